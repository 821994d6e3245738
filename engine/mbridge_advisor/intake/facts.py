"""From a checked request to a fact set: every known name with its value and where the value comes from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..architecture import Architecture
from ..errors import RequestError
from ..knowledge.model import Gpu, Knowledge, Value
from ..layout import layout_facts
from ..memory.parameters import (
    active_parameters,
    expert_parameters,
    layer_kinds,
    total_parameters,
)
from .request import Request

# Which peak a training precision runs its matrix products at.
PEAK_OF = {"bf16": "bf16", "fp16": "fp16", "fp32": "tf32", "nvfp4": "fp4"}


# Lists for which Bridge takes an empty one as unset.
EMPTY_IS_UNSET = ("cuda_graph_scope", "offload_modules")


@dataclass(frozen=True)
class Origin:
    """Where a fact comes from.

    Attributes:
        kind: ``given`` (in the request), ``default`` (Bridge's, at the revision), ``model`` (catalogue or config),
            ``architecture`` (counted from the dimensions), ``gpu`` (system fact), ``assumed`` (by us, said in notes).
        source: citation or explanation in words; may be empty.
    """

    kind: Literal["given", "default", "model", "architecture", "gpu", "assumed"]
    source: str = ""


@dataclass(frozen=True)
class Facts:
    """Known names with values and origins. ``None`` is *unset*; an absent name is unknown."""

    values: Mapping[str, Value]
    origins: Mapping[str, Origin]


def peak_key(precision: str) -> str:
    """The key of ``Gpu.peak_flops`` for a training precision (every FP8 recipe uses ``fp8``)."""
    return PEAK_OF.get(precision, "fp8" if precision.startswith("fp8") else precision)


def build_facts(
    request: Request,
    knowledge: Knowledge,
    *,
    open_names: Collection[str] = (),
    assumed: Mapping[str, tuple[Value, str]] | None = None,
) -> Facts:
    """Collect what is known.

    Args:
        request: the checked request.
        knowledge: the knowledge base.
        open_names: short names that get no default (search variables).
        assumed: short name -> (value, why), used where the request and Bridge give none.

    Raises:
        RequestError: a pipeline layout that can't be parsed.
    """
    values: dict[str, Value] = {}
    origins: dict[str, Origin] = {}

    def put(name: str, value: Value, kind: Any, source: str = "") -> None:
        if name in knowledge.terms and name not in values:
            values[name] = None if value == () and name in EMPTY_IS_UNSET else value
            origins[name] = Origin(kind, source)

    for name, value in request.values.items():
        put(name, value, "given")
    arch = request.architecture
    if arch is not None:
        source = str(request.model.citations[0]) if request.model and request.model.citations else ""
        put("model", request.model_name or "custom", "model")
        for field, value in _dimensions(arch, knowledge).items():
            put(field, value, "model", source)
        for name, value in counted(arch).items():
            put(name, value, "architecture")
    else:
        for name, value, why in _implied(request.values):
            put(name, value, "assumed", why)
    precision = request.values.get("precision", "bf16")
    if request.gpu is not None:
        for name, value, source in gpu_facts(request.gpu, str(precision)):
            put(name, value, "gpu", source)
    for name, (value, why) in (assumed or {}).items():
        if name not in open_names:
            put(name, value, "assumed", why)
    for term in knowledge.terms.values():
        if term.section not in ("training", "grid", "environment", "cluster") or term.name in open_names:
            continue
        default = term.default.at(request.revision) if term.default is not None else None
        if default is not None:
            value = tuple(default) if isinstance(default, list) else default
            put(term.name, value, "default", f"Megatron Bridge {request.revision.tag}")
        elif term.nullable and term.default is not None:
            put(term.name, None, "default", f"unset at Megatron Bridge {request.revision.tag}")
    if "pipeline_model_parallel_layout" not in open_names:
        layout = values.get("pipeline_model_parallel_layout")
        for name, value in layout_facts(None if layout is None else str(layout)).items():
            put(name, value, origins["pipeline_model_parallel_layout"].kind, "parsed from the layout")
    sizes = values.get("hierarchical_context_parallel_sizes", ())
    if sizes != ():
        product = None
        if isinstance(sizes, tuple):
            if not all(isinstance(size, int) for size in sizes):
                way = "Write e.g. [2, 4]."
                raise RequestError("hierarchical_context_parallel_sizes", sizes, "aren't all whole numbers", way)
            product = math.prod(map(int, sizes))
        put("hierarchical_cp_product", product, origins["hierarchical_context_parallel_sizes"].kind)
    ramp = values.get("rampup_batch_size", ())
    if ramp != ():
        entries: tuple[Any, ...] = ramp if isinstance(ramp, tuple) else ()
        kind = origins["rampup_batch_size"].kind
        put("rampup_entries", len(entries) or None, kind)
        for name, at in (("rampup_start", 0), ("rampup_increment", 1)):
            entry = entries[at] if len(entries) > at else None
            put(name, entry if isinstance(entry, int) else None, kind)
    return Facts(values, origins)


def _implied(values: Mapping[str, Value]) -> list[tuple[str, Value, str]]:
    """``(name, value, why)`` that single settings tell of a model that isn't known in full."""
    out: list[tuple[str, Value, str]] = []
    ep = values.get("ep")
    if "num_moe_experts" not in values and isinstance(ep, int) and ep > 1:
        out.append(("is_moe", True, "expert parallelism asks for experts"))
    if isinstance(values.get("num_query_groups"), int):
        out.append(("query_groups", values["num_query_groups"], "num_query_groups"))
    if "num_layers" in values:
        out.append(("hybrid_override_pattern", None, "no pattern is given beside num_layers"))
    return out


def _dimensions(arch: Architecture, knowledge: Knowledge) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for field, value in arch.to_dict().items():
        term = knowledge.by_field.get(field)
        if term is None or (value is None and not term.nullable):
            continue
        if term.type == "list" and value is not None:
            value = tuple(value) if isinstance(value, list) else (value,)
        out[term.name] = value
    return out


def counted(arch: Architecture) -> dict[str, Value]:
    """Facts counted from an architecture: parameters and kinds of layers."""
    kinds = layer_kinds(arch)
    total, expert = total_parameters(arch), expert_parameters(arch)
    moe = sum(kind.mlp == "moe" for kind in kinds)
    return {
        "total_params": total,
        "active_params": active_parameters(arch),
        "expert_params": expert,
        "dense_params": total - expert,
        "num_moe_layers": moe,
        "num_dense_layers": len(kinds) - moe,
    }


def gpu_facts(gpu: Gpu, precision: str) -> list[tuple[str, Value, str]]:
    """``(name, value, source)`` for what a system's facts give to the rules."""

    def cite(attribute: str) -> str:
        return str(gpu.citations[attribute]) if attribute in gpu.citations else ""

    rows: list[tuple[str, Value, str]] = [
        ("gpu", gpu.name, ""),
        ("gpu_memory", gpu.memory_bytes, cite("memory_bytes")),
        ("memory_bandwidth", gpu.memory_bandwidth, cite("memory_bandwidth")),
        ("compute_capability", gpu.compute_capability, cite("compute_capability")),
        ("gpus_per_node", gpu.gpus_per_node, cite("gpus_per_node")),
        ("nvlink_domain", gpu.nvlink_domain, cite("nvlink_domain")),
        ("nvlink_bandwidth", gpu.nvlink_bandwidth, cite("nvlink_bandwidth")),
        ("network_bandwidth", gpu.network_bandwidth, cite("network_bandwidth")),
    ]
    if gpu.host_memory_bytes is not None:
        rows.append(("host_memory", gpu.host_memory_bytes, cite("host_memory_bytes")))
    peak = gpu.peak_flops.get(peak_key(precision))
    if peak is not None:
        rows.append(("gpu_peak_flops", peak, cite("peak_flops")))
    return rows
