"""What advise and estimate share: assumptions, and rows of figures as answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from ..architecture import FIELD_NAMES
from ..errors import RequestError
from ..intake.request import REQUIRED, Request
from ..knowledge import Knowledge
from ..knowledge.model import Revision, Text, Value
from ..memory import MOMENTS, MemoryEstimate, Settings
from ..search.space import OPEN
from ..timing import TimeEstimate
from .results import Memory, Throughput

DECISIONS: tuple[Literal["fits", "tight", "does_not_fit"], ...] = ("fits", "tight", "does_not_fit")
ASSUMED_SEQUENCE = 4096  # tokens
ASSUMED_BATCH_TOKENS = 4 * 2**20  # tokens of a global batch where none is given, as published runs have


def need(request: Request, *, gpu: bool, world: bool) -> None:
    """Refuse a request that lacks what an estimate can't do without.

    Raises:
        RequestError: names the missing part.
    """
    if request.architecture is None and (known := FIELD_NAMES & request.values.keys()):
        lacks = ", ".join(sorted(REQUIRED - known))
        raise RequestError("model", ", ".join(sorted(known)), f"lacks {lacks}", "Add them, or name a model.")
    if request.architecture is None:
        raise RequestError("model", None, "is needed", "Name a model, a Hugging Face config.json or dimensions.")
    if gpu and request.gpu is None:
        raise RequestError("cluster.gpu", None, "is needed", "Name a GPU, e.g. H100.")
    if world and request.values.get("world_size") is None:
        raise RequestError("cluster.gpus", None, "is needed", "Say how many GPUs there are.")


def assumptions(request: Request) -> tuple[dict[str, tuple[Value, str]], list[Text]]:
    """Values for what neither the request nor Bridge's defaults give, and the notes that say so.

    Settings that are not asked for are those that the vendor's recipes train with (see :class:`Settings`).
    """
    out: dict[str, tuple[Value, str]] = {}
    notes: list[Text] = []
    values = request.values
    seq = values.get("seq_length")
    if seq is None:
        seq = ASSUMED_SEQUENCE
        out["seq_length"] = (seq, "assumed")
        notes.append(Text(f"Sequence length not given: {seq} assumed.", f"未给出序列长度，按 {seq} 计算。"))
    if values.get("gbs") is None:
        batch = assumed_batch(int(str(seq)), int(str(values.get("world_size", 1))))
        out["gbs"] = (batch, "assumed")
        notes.append(
            Text(
                f"Global batch size not given: {batch} sequences (about 4M tokens) assumed.",
                f"未给出全局批大小，按 {batch} 条序列（约 4M token）计算。",
            )
        )
    for name, value in vars(Settings()).items():
        # Bridge turns overlap_p2p_comm on by itself where the schedule is interleaved, so it is no setting to assume.
        if name not in ("seq_length", "global_batch_size", "overlap_p2p_comm") and value is not None:
            out[name] = (value, "as the vendor's recipes set it")
    return out, notes


def assumed_batch(seq_length: int, world_size: int) -> int:
    """A global batch of about 4M tokens that odd world sizes divide, in sequences."""
    target = max(1.0, ASSUMED_BATCH_TOKENS / seq_length)
    odd = world_size // (world_size & -world_size)
    return odd << max(0, round(math.log2(target / odd)))


def settings_of(request: Request, facts: Mapping[str, Value], knowledge: Knowledge) -> Settings:
    """What the memory and time models need beside the grid: asked for, else as the vendor's recipes have it."""
    asked = {knowledge.terms[name].field: value for name, value in request.values.items()}
    asked["seq_length"], asked["global_batch_size"] = facts["seq_length"], facts["gbs"]
    asked["pytorch_cuda_alloc_conf"] = facts.get("pytorch_cuda_alloc_conf")
    return Settings.of({k: v for k, v in asked.items() if v is not None})


def pinned_names(request: Request) -> dict[str, Value]:
    """The open names that the request fixes."""
    return {name: request.values[name] for name in OPEN if name in request.values}


def memory_of(estimate: MemoryEstimate, row: int, capacity: int | None) -> Memory:
    """One row of an estimate; what lies outside the allocator is a component of its own."""
    components = {name: round(float(c[row])) for name, c in estimate.components.items()}
    components = {name: value for name, value in components.items() if value > 0}
    components["outside_allocator"] = round(float(estimate.outside_allocator[row]))
    components["fragmentation"] = round(float(estimate.reserved[row] - estimate.total[row]))
    total = sum(components.values())
    decision = DECISIONS[int(estimate.verdict(float(capacity))[row])] if capacity is not None else None
    return Memory(components, total, capacity, int(estimate.stage[row]), MOMENTS[int(estimate.moment[row])], decision)


def throughput_of(estimate: TimeEstimate, row: int) -> Throughput:
    """One row of an estimate."""
    return Throughput(
        float(estimate.tokens_per_second_per_gpu[row]),
        float(estimate.low[row]),
        float(estimate.high[row]),
        float(estimate.step_seconds[row]),
        float(estimate.model_tflops_per_gpu[row]),
        {name: float(c[row]) for name, c in estimate.components.items() if c[row] > 0},
    )


def overrides(fields: Mapping[str, Value], knowledge: Knowledge, revision: Revision) -> tuple[str, ...]:
    """``path=value`` pairs as ``run_recipe.py`` takes them, for the fields that the release has a path for.

    The sequence length is given to model and dataset, which must agree.
    """
    out = []
    if "seq_length" in fields:
        fields = {**fields, "dataset_seq_length": fields["seq_length"]}
    for name, value in fields.items():
        paths = knowledge.by_field[name].path
        path = paths.at(revision) if paths else None
        if path is None:
            continue
        if value is None:
            text = "null"
        elif isinstance(value, tuple):
            text = "[" + ",".join(map(str, value)) + "]"
        elif isinstance(value, str) and any(c in value for c in "|*(),"):
            text = f'"{value}"'
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
        out.append(f"{path}={text}")
    return tuple(out)
