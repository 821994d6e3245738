"""Memory of candidate grids, by component, vectorised.

:class:`Settings` is what all candidates of a request share, :class:`Grids` the candidates as columns;
:func:`estimate` gives a :class:`MemoryEstimate` with arrays of the same length. One code path serves one candidate and
a million: ``estimate(arch, settings, Grids.of(world_size=64, tp=2, pp=4, global_batch_size=512))``.
"""

from .estimate import COMPONENTS, MOMENTS, MemoryEstimate, estimate, estimate_stage
from .grids import Grids, Recompute, StageLayout
from .settings import Settings

__all__ = [
    "COMPONENTS",
    "MOMENTS",
    "Grids",
    "MemoryEstimate",
    "Recompute",
    "Settings",
    "StageLayout",
    "estimate",
    "estimate_stage",
]
