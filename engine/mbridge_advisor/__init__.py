"""mbridge-advisor: cited advice on how to parallelise a training run in NVIDIA Megatron Bridge.

    from mbridge_advisor import advise, check, estimate, explain

    advice = advise({"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": 256}})
    advice.grids[0].fields, advice.to_dict()

A request is a mapping as schemas/request.schema.json describes. Results are typed and immutable. Errors derive from
:class:`AdvisorError`. Importing is cheap: the functions load what they need when first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import AdvisorError, KnowledgeError, RequestError

if TYPE_CHECKING:
    from .advice import Advice, Estimate, Explanation, Report, advise, check, estimate, explain

__all__ = [
    "Advice",
    "AdvisorError",
    "Estimate",
    "Explanation",
    "KnowledgeError",
    "Report",
    "RequestError",
    "advise",
    "check",
    "estimate",
    "explain",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import advice

        return getattr(advice, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
