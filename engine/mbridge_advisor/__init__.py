"""mbridge-advisor: cited advice on how to parallelise a training run in NVIDIA Megatron Bridge.

    from mbridge_advisor import advise, check, diagnose, estimate, explain

    advice = advise({"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": 256}})
    advice.grids[0].fields, advice.to_dict()

A request is a mapping as schemas/request.schema.json describes. Results are typed and immutable. Errors derive from
:class:`AdvisorError`. Importing is cheap: the functions load what they need when first called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import AdvisorError, KnowledgeError, RequestError

if TYPE_CHECKING:
    from .advice.advise import advise
    from .advice.check import check
    from .advice.estimate import estimate
    from .advice.explain import Explanation, explain
    from .advice.results import Advice, Estimate, Report
    from .diagnosis.diagnose import diagnose
    from .diagnosis.results import Diagnosis

__all__ = [
    "Advice",
    "AdvisorError",
    "Diagnosis",
    "Estimate",
    "Explanation",
    "KnowledgeError",
    "Report",
    "RequestError",
    "advise",
    "check",
    "diagnose",
    "estimate",
    "explain",
]


_MODULES = {
    "advise": "advice.advise",
    "check": "advice.check",
    "diagnose": "diagnosis.diagnose",
    "estimate": "advice.estimate",
    "explain": "advice.explain",
    "Explanation": "advice.explain",
    "Advice": "advice.results",
    "Diagnosis": "diagnosis.results",
    "Estimate": "advice.results",
    "Report": "advice.results",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
