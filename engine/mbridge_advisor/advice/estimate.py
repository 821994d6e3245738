"""``estimate``: memory and time of one grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RequestError
from ..inference import Inference, infer
from ..intake.facts import Facts, build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Text, Value
from ..memory import Grids, Recompute, StageLayout
from ..memory import estimate as estimate_memory
from ..memory.parameters import active_parameters, expert_parameters, total_parameters
from ..timing import estimate as estimate_time
from .check import verdict_of
from .common import as_request, assumed_sequence_parallel, package_version
from .figures import assumptions, memory_of, need, overrides, settings_of, throughput_of
from .programs import program_for
from .results import Estimate, Grid
from .statements import statements

GRID_FIELDS = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "sequence_parallel",
    "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "mbs",
    "gbs",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
)
OPTIONAL = frozenset(GRID_FIELDS[7:12])  # shown only where set
SIZES = ("dp", "edp", "min_gpus", "num_microbatches")


def estimate(request: Mapping[str, Any] | Request, *, knowledge: Knowledge | None = None) -> Estimate:
    """Estimate peak memory and step time of the grid that the request gives.

    Grid fields that aren't given have Bridge's defaults; micro-batch size 1, sequence length and global batch size are
    assumed where not given, and said in the notes. Without a GPU there is no time and no capacity.

    Raises:
        RequestError: no model, no GPU count, or sizes that leave no data-parallel rank.
    """
    checked, base = as_request(request, knowledge)
    need(checked, gpu=False, world=True)
    assumed, notes = assumptions(checked)
    assumed["mbs"] = (1, "assumed")
    parallel, more = assumed_sequence_parallel(checked)
    assumed, notes = {**assumed, **parallel}, [*notes, *more]
    facts = build_facts(checked, base, assumed=assumed)
    program = program_for(base, checked.revision)
    inference = infer(program, facts.values)
    known = inference.facts
    if not known.get("dp"):
        raise RequestError(
            "cluster.gpus",
            known["world_size"],
            f"are fewer than TP x PP x CP = {known.get('dense_ranks')}",
            f"The smallest world of this grid is {known.get('min_gpus')} GPUs.",
        )
    arch = checked.architecture
    assert arch is not None
    pp, places = known.get("pp"), arch.num_layers + (arch.mtp_num_layers or 0) + 2  # the embedding and the loss
    if isinstance(pp, int) and pp > places:
        way = f"At most {places:,}, each stage with one layer."
        raise RequestError("grid.pipeline_model_parallel_size", pp, "is more stages than there are layers", way)
    settings = settings_of(checked, known, base)
    grids = one_grid(known)
    memory = estimate_memory(arch, settings, grids, checked.gpu, base.calibration_values)
    capacity = known.get("gpu_memory")
    throughput = None
    if checked.gpu is not None:
        throughput = throughput_of(estimate_time(arch, settings, grids, checked.gpu, base.calibration_values), 0)
    findings = statements(inference, program, base, kinds=("constraint", "pitfall"))
    fields = {**grid_fields(facts, base), "seq_length": facts.values["seq_length"]}
    grid = Grid(
        fields=fields,
        sizes=sizes(inference, base),
        memory=memory_of(memory, 0, None if capacity is None else int(str(capacity))),
        throughput=throughput,
        reasons=(),
        cautions=tuple(f for f in findings if f.severity != "error"),
        overrides=overrides(fields, base, checked.revision),
    )
    return Estimate(
        request=checked.to_dict(base),
        bridge=checked.revision.tag,
        knowledge=base.version,
        package=package_version(),
        notes=(*(Text(n, n) for n in checked.notes), *notes),
        grid=grid,
        verdict=verdict_of(findings),
        findings=findings,
        parameters={
            "total": total_parameters(arch),
            "active": active_parameters(arch),
            "routed_experts": expert_parameters(arch),
        },
    )


def one_grid(known: Mapping[str, Value]) -> Grids:
    """The columns (of length 1) of a fact set with its quantities."""

    def number(name: str, default: int = 1) -> int:
        value = known.get(name)
        return default if value is None else int(str(value))

    layout = known.get("pipeline_model_parallel_layout")
    stages = StageLayout.parse(str(layout)) if layout else None
    vpp = number("vpp")
    if stages is not None and number("layout_stages", 0) % number("pp") == 0:
        vpp = max(vpp, number("layout_stages") // number("pp"))
    modules = known.get("recompute_modules")
    granularity = known.get("recompute_granularity")
    method = known.get("recompute_method")
    return Grids.of(
        world_size=number("world_size"),
        tp=number("tp"),
        pp=number("pp"),
        vpp=vpp,
        cp=number("cp"),
        ep=number("ep"),
        etp=number("etp_effective"),
        sp=bool(known.get("sp_effective")),
        mbs=number("mbs"),
        dp=number("dp"),
        edp=max(number("edp"), 1),
        num_microbatches=max(number("num_microbatches"), 1),
        recompute=Recompute(
            str(granularity) if granularity else None,
            str(method) if method else None,
            number("recompute_num_layers", 0) or None,
            tuple(map(str, modules)) if isinstance(modules, tuple) else (),
        ),
        layout=stages,
        first_layers=number("num_layers_in_first_pipeline_stage", -1),
        last_layers=number("num_layers_in_last_pipeline_stage", -1),
        account_for_embedding=bool(known.get("account_for_embedding_in_pipeline_split")),
        account_for_loss=bool(known.get("account_for_loss_in_pipeline_split")),
        microbatch_group_size=number("microbatch_group_size_per_vp_stage", number("pp")),
    )


def grid_fields(facts: Facts, knowledge: Knowledge) -> dict[str, Value]:
    """Field name -> value of what makes up a grid; rarely used fields only where set.

    An expert TP left unset is spelled out for MoE models, since its meaning changed between releases.
    """
    values = facts.values
    out: dict[str, Value] = {}
    for name in GRID_FIELDS:
        value = values.get(name)
        if name in OPTIONAL and not value:
            continue
        out[knowledge.terms[name].field] = value
    return out


def sizes(inference: Inference, knowledge: Knowledge) -> dict[str, Value]:
    """Field name -> value of the derived sizes, and the GPU count."""
    known = inference.facts
    out: dict[str, Value] = {"gpus": known.get("world_size")}
    for name in SIZES:
        if name in known:
            out[knowledge.terms[name].field] = known[name]
    return out
