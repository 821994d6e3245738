"""Answers: what the commands, the Python API and later services give."""

from .advise import advise
from .check import check
from .estimate import estimate
from .explain import Explanation, explain
from .results import Advice, Estimate, Grid, Report, Statement

__all__ = ["Advice", "Estimate", "Explanation", "Grid", "Report", "Statement", "advise", "check", "estimate", "explain"]
