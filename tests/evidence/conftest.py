"""The fixture of :mod:`small_world` for all tests of evidence."""

from small_world import world

__all__ = ["world"]
