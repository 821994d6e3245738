"""Step time of candidate grids, by component, vectorised like :mod:`mbridge_advisor.memory`.

``estimate(arch, settings, grids, gpu)`` gives a :class:`TimeEstimate` with arrays of the grids' length.
"""

from .estimate import COMPONENTS, TimeEstimate, estimate, model_flops_per_token, tokens_per_second_per_gpu

__all__ = ["COMPONENTS", "TimeEstimate", "estimate", "model_flops_per_token", "tokens_per_second_per_gpu"]
