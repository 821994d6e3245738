"""From a log, a symptom in words and configurations to causes, each with its evidence, fix and source."""
