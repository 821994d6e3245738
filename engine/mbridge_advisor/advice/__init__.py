"""Answers: what the commands, the Python API and later services give.

The modules ``advise``, ``check``, ``estimate`` and ``explain`` each hold the function of that name; the package itself
imports none of them, so that each command loads only what it needs.
"""
