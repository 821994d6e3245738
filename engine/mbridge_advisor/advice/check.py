"""``check``: is this configuration legal at this release, and is it wise?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..inference import Inference, Program, infer
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Text, Value
from .common import as_request, assumed_sequence_parallel, package_version
from .programs import program_for
from .results import Report, Statement, Verdict
from .statements import derived, not_judged, statements

SHAPE = ("tp", "pp", "cp", "ep")
SIZES = (
    "dp",
    "edp",
    "etp_effective",
    "sp_effective",
    "dense_ranks",
    "expert_ranks",
    "min_gpus",
    "full_product",
    "num_microbatches",
    "layers_per_stage",
    "layers_per_virtual_stage",
    "experts_per_rank",
)


def check(request: Mapping[str, Any] | Request, *, knowledge: Knowledge | None = None) -> Report:
    """Judge one configuration by every rule of its release.

    Grid fields that aren't given have Bridge's defaults, except for sequence parallelism of MoE models with TP > 1,
    which is taken as on (and said in the notes), since nothing else runs. What the request doesn't tell (the model, the
    number of GPUs, and the parallel sizes where it gives nothing of a grid) stays unknown: rules that need it are
    listed as not judged.

    Args:
        request: as schemas/request.schema.json describes, or a checked one.
        knowledge: another knowledge base than the packaged one.

    Raises:
        RequestError: the request can't be understood.
    """
    checked, base = as_request(request, knowledge)
    open_names: tuple[str, ...] = ()
    if not any(base.terms[name].section == "grid" for name in checked.values) and checked.values.get("world_size") != 1:
        open_names = SHAPE
    inference, program, notes = judge(checked, base, open_names=open_names)
    findings = statements(inference, program, base, kinds=("constraint", "pitfall"))
    return Report(
        request=checked.to_dict(base),
        bridge=checked.revision.tag,
        knowledge=base.version,
        package=package_version(),
        notes=(*(Text(n, n) for n in checked.notes), *notes),
        verdict=verdict_of(findings),
        findings=findings,
        not_judged=not_judged(inference, program, base, kinds=("constraint", "pitfall")),
        quantities=derived(inference, base, SIZES),
    )


def judge(
    request: Request,
    base: Knowledge,
    *,
    open_names: Collection[str] = (),
    more: Mapping[str, Value] | None = None,
) -> tuple[Inference, Program, list[Text]]:
    """Conclude all that follows from a request.

    Args:
        request: the checked request.
        base: the knowledge base.
        open_names: short names that get no default.
        more: further facts, of names that no request can give.

    Returns:
        The conclusions, the program that made them, and notes on what was assumed.

    Raises:
        RequestError: a pipeline layout that can't be parsed.
    """
    assumed, notes = assumed_sequence_parallel(request)
    if set(open_names) == set(SHAPE):
        notes.append(
            Text(
                "No parallel sizes are given, so what depends on them isn't judged; Bridge's defaults are 1.",
                "未给出任何并行规模，与之相关的规则不作判断；Bridge 的默认值均为 1。",
            )
        )
    facts = build_facts(request, base, open_names=open_names, assumed=assumed)
    program = program_for(base, request.revision)
    return infer(program, {**facts.values, **(more or {})}), program, notes


def verdict_of(findings: tuple[Statement, ...]) -> Verdict:
    """``error`` where the code would refuse, ``warning`` where it would not run as wished or not well, else ``ok``."""
    severities = {f.severity for f in findings}
    if "error" in severities:
        return "error"
    return "warning" if severities & {"override", "warning"} else "ok"
