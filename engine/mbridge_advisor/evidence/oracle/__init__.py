"""The oracle: what the real code of Megatron Bridge and Megatron Core says about a configuration.

:mod:`.worker` is a script that runs the real code in a process of its own; :mod:`.runner` starts and feeds it;
:mod:`.fuzz` compares its verdicts with those of our rules.
"""

from __future__ import annotations

from .runner import Oracle, Sources, Verdict

__all__ = ["Oracle", "Sources", "Verdict"]
