"""What all answers share: the request, the knowledge base, the version."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..intake.request import Request, parse_request
from ..knowledge import Knowledge, load
from ..knowledge.model import Text, Value


def package_version() -> str:
    """Version of this package, or ``0+unknown`` from a bare checkout."""
    try:
        return version("mbridge-advisor")
    except PackageNotFoundError:
        return "0+unknown"


def as_request(request: Mapping[str, Any] | Request, knowledge: Knowledge | None) -> tuple[Request, Knowledge]:
    """A mapping or an already checked request, with the knowledge base."""
    base = knowledge or load()
    return (request if isinstance(request, Request) else parse_request(request, base)), base


def assumed_sequence_parallel(request: Request) -> tuple[dict[str, tuple[Value, str]], list[Text]]:
    """Sequence parallelism where nobody speaks of it but nothing else runs: MoE with TP > 1.

    Who writes down a grid rarely adds the switch, and recipes set it; judged by Bridge's default, off, each such grid
    would be refused.
    """
    values, arch = request.values, request.architecture
    tp, ep = (int(str(values.get(name) or 1)) for name in ("tp", "ep"))
    moe = arch.is_moe if arch is not None else bool(values.get("num_moe_experts", ep > 1))
    if "sequence_parallel" in values or tp == 1 or not moe:
        return {}, []
    note = Text(
        "sequence_parallel isn't given. Bridge's default, off, fails for MoE models with TP > 1, so it is taken as on; "
        "set it.",
        "未给出 sequence_parallel。Bridge 默认关闭，而 TP > 1 的 MoE 模型会因此报错，故按开启计算；请显式设置。",
    )
    return {"sequence_parallel": (True, "needed by MoE models with TP > 1")}, [note]
