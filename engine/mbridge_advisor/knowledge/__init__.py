"""The knowledge base: read from YAML, checked, as typed objects.

knowledge = load()
knowledge.rules["MB-SP-001"].at(knowledge.latest)
load_recipes(knowledge, "llama3_70b")
"""

from .load import load, load_recipes, load_throughput
from .model import Knowledge

__all__ = ["Knowledge", "load", "load_recipes", "load_throughput"]
