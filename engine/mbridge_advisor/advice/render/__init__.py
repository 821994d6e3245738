"""Answers for people: terminal text and Markdown. JSON is each result's own ``to_dict``."""
