"""``plan``: the smallest run that proves that a grid initialises and trains. Nothing here runs anything."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from ..errors import RequestError
from ..intake.request import Request
from ..knowledge import Knowledge, load
from ..knowledge.model import Text, Value
from .common import as_request, package_version
from .estimate import estimate
from .figures import need, overrides
from .recipes import nearest_recipes
from .results import Answer, Estimate, Grid, Memory

ITERATIONS = 3  # the first one allocates and compiles; the later ones show that a whole step repeats
LIMIT_MINUTES = 20  # for start-up, which isn't modelled; the run is killed then
GROWTH = 8  # multiples of the smallest world that are tried until the grid fits in memory
SCRATCH = "SMOKE_DIR"
_RECIPE_PLACEHOLDER = "RECIPE"


@dataclass(frozen=True)
class SmokePlan(Answer):
    """A run to be confirmed, and started, by a person.

    Attributes:
        recipe: the release's recipe to start from, or None where the knowledge base has none of this model.
        grid: Bridge field name -> value.
        gpus, nodes, gpus_per_node: what the run takes.
        iterations: optimizer steps.
        overrides: what ``run_recipe.py`` is given beside the recipe.
        command: the launch, line by line, for one node's shell.
        limit_minutes: after which the run is killed.
        gpu_minutes: upper bound, ``gpus * limit_minutes``.
        step_seconds: estimated time of one step, or None without a GPU.
        memory: estimated, on the fullest GPU.
        reads, writes, preconditions, isolation, success, stop, clean_up: for people, one item each.
        question: what must be answered with yes first.
    """

    recipe: str | None
    grid: Mapping[str, Value]
    gpus: int
    nodes: int
    gpus_per_node: int
    iterations: int
    overrides: tuple[str, ...]
    command: tuple[str, ...]
    limit_minutes: int
    gpu_minutes: int
    step_seconds: float | None
    memory: Memory
    reads: tuple[Text, ...]
    writes: tuple[Text, ...]
    preconditions: tuple[Text, ...]
    isolation: tuple[Text, ...]
    success: tuple[Text, ...]
    stop: tuple[Text, ...]
    clean_up: tuple[Text, ...]
    question: Text

    @property
    def exit_code(self) -> int:
        return 0

    def lists(self) -> Iterator[tuple[str, tuple[Text, ...]]]:
        """The lists for people, in the order in which they are read."""
        for name in ("preconditions", "reads", "writes", "isolation", "success", "stop", "clean_up"):
            yield name, getattr(self, name)

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            **self.head(lang),
            "recipe": self.recipe,
            "grid": {k: list(v) if isinstance(v, tuple) else v for k, v in self.grid.items()},
            "gpus": self.gpus,
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "iterations": self.iterations,
            "overrides": list(self.overrides),
            "command": list(self.command),
            "limit_minutes": self.limit_minutes,
            "gpu_minutes": self.gpu_minutes,
            "step_seconds": None if self.step_seconds is None else round(self.step_seconds, 3),
            "memory": self.memory.to_dict(),
            **{name: [text[lang] for text in items] for name, items in self.lists()},
            "question": self.question[lang],
        }


def plan(
    request: Mapping[str, Any] | Request, *, recipe: str | None = None, knowledge: Knowledge | None = None
) -> SmokePlan:
    """Plan the smoke run of the grid that the request gives.

    The run is as small as the grid allows: the smallest world in which it fits in memory, one pipeline filling of
    micro-batches, a few iterations on mock data, nothing saved.

    Args:
        request: as for :func:`estimate`; its GPU count is the most that the run may take.
        recipe: the recipe to start from; None = the vendor's nearest one of the model at the release.
        knowledge: another knowledge base than the packaged one.

    Raises:
        RequestError: no model, GPU or GPU count; or a grid that breaks a rule, which no run can prove.
    """
    checked, base = as_request(request, knowledge)
    need(checked, gpu=True, world=True)
    small = _smallest(checked, base)
    grid = small.grid
    world = int(str(grid.sizes["gpus"]))
    per_node = min(world, _per_node(checked))
    chosen = recipe or _recipe(checked, base)
    every = (*overrides(grid.fields, base, checked.revision), *_settings(checked))
    question = Text(
        f"This takes {world} {_gpu(checked)} GPUs on {ceil(world / per_node)} node(s) for at most {LIMIT_MINUTES} "
        f"minutes ({world * LIMIT_MINUTES} GPU-minutes) and reads and writes what is listed. Start it? (yes/no)",
        f"本次运行占用 {ceil(world / per_node)} 个节点上的 {world} 张 {_gpu(checked)}，至多 {LIMIT_MINUTES} 分钟"
        f"（{world * LIMIT_MINUTES} GPU 分钟），只读写上面列出的内容。是否启动？（是/否）",
    )
    return SmokePlan(
        request=small.request,
        bridge=small.bridge,
        knowledge=base.version,
        package=package_version(),
        notes=(*small.notes, *_notes(checked, chosen, grid)),
        recipe=chosen,
        grid=grid.fields,
        gpus=world,
        nodes=ceil(world / per_node),
        gpus_per_node=per_node,
        iterations=ITERATIONS,
        overrides=every,
        command=_command(world, per_node, chosen, every, checked),
        limit_minutes=LIMIT_MINUTES,
        gpu_minutes=world * LIMIT_MINUTES,
        step_seconds=grid.throughput.step_seconds if grid.throughput else None,
        memory=grid.memory,
        reads=tuple(_reads(checked)),
        writes=_WRITES,
        preconditions=tuple(_preconditions(checked, grid, world, per_node)),
        isolation=_ISOLATION,
        success=tuple(success(grid.fields, ITERATIONS).values()),
        stop=_STOP,
        clean_up=_CLEAN_UP,
        question=question,
    )


def plan_of(request: Mapping[str, Any], grid: Grid, *, recipe: str | None = None) -> SmokePlan:
    """The plan of a grid that ``advise`` found for a request."""
    fields = {k: v for k, v in grid.fields.items() if k != "global_batch_size"}
    training = {k: v for k, v in dict(request.get("training") or {}).items() if k != "recompute"}
    out: dict[str, Any] = {**request, "training": training}
    terms = load().by_field
    for name, value in fields.items():
        section = "environment" if terms[name].section == "environment" else "grid"
        out[section] = {**(out.get(section) or {}), name: value}
    return plan(out, recipe=recipe)


def _per_node(request: Request) -> int:
    given = request.values.get("gpus_per_node")
    assert request.gpu is not None
    return int(str(given)) if given else request.gpu.gpus_per_node


def _gpu(request: Request) -> str:
    return request.gpu.name if request.gpu else "GPU"


def _smallest(request: Request, base: Knowledge) -> Estimate:
    """The estimate in the smallest world in which the grid is legal and fits; else in the world asked for."""
    asked = int(str(request.values["world_size"]))
    whole = estimate(request, knowledge=base)
    unit = int(str(whole.grid.sizes.get("min_gpus") or asked))
    per_node = _per_node(request)
    if whole.verdict == "error" and asked == unit:
        _refuse(whole)
    best: Estimate | None = None
    for world in [unit * k for k in range(1, GROWTH + 1) if unit * k < asked] + [asked]:
        if world > per_node and world % per_node:
            continue
        tried = estimate(_small(request, whole, world), knowledge=base)
        if tried.verdict == "error":
            best = best or (tried if world == asked else None)
            continue
        best = tried
        if tried.grid.memory.decision != "does_not_fit":
            return tried
    if best is None or best.verdict == "error":
        _refuse(best or whole)
    return best or whole


def _small(request: Request, whole: Estimate, world: int) -> Request:
    """The request in another world, with one filling of the pipeline as its batch."""
    fields = whole.grid.fields

    def number(name: str) -> int:
        return int(str(fields.get(name) or 1))

    ranks = (
        number("tensor_model_parallel_size") * number("pipeline_model_parallel_size") * number("context_parallel_size")
    )
    fill = number("pipeline_model_parallel_size")
    batch = number("micro_batch_size") * max(world // ranks, 1) * fill
    return request.with_values(world_size=world, gbs=batch)


def _refuse(found: Estimate) -> None:
    rule = next((f for f in found.findings if f.severity == "error"), None)
    reason = f"breaks {rule.rule}: {rule.message.en}" if rule else "is not legal in any world up to the one asked for"
    way = (rule.fix.en if rule and rule.fix else "") or "Run `mbridge-advisor check` on it."
    raise RequestError("grid", None, reason.rstrip("."), way)


def _recipe(request: Request, base: Knowledge) -> str | None:
    """The nearest library recipe of the model, task and release."""
    task = request.values.get("task", "pretrain")
    rows = [
        row
        for row in nearest_recipes(request, base, top=50)
        if row["tag"] == request.revision.tag and row["kind"] == "library" and row["task"] == task
    ]
    # One that isn't tuned for a system brings fewer settings that could contradict the grid.
    rows.sort(key=lambda row: row.get("num_gpus") is not None)
    return str(rows[0]["recipe"]) if rows else None


def _settings(request: Request) -> tuple[str, ...]:
    """Overrides that make the run short and leave nothing behind."""
    validation = "validation" if request.revision.within(">=0.4") else "train"
    return (
        f"train.train_iters={ITERATIONS}",
        "scheduler.lr_warmup_iters=1",
        f"scheduler.lr_decay_iters={ITERATIONS}",
        f"{validation}.eval_iters=0",
        "logger.log_interval=1",
        f"logger.tensorboard_dir=${SCRATCH}/tensorboard",
        "checkpoint.save=null",
        "checkpoint.load=null",
    )


def _command(
    world: int, per_node: int, recipe: str | None, settings: tuple[str, ...], request: Request
) -> tuple[str, ...]:
    # Since v0.6.0 the launcher chooses the data set; before, a pretraining recipe without data paths takes mock data.
    mock = request.revision.within(">=0.6") and request.values.get("task", "pretrain") == "pretrain"
    nodes = ceil(world / per_node)
    devices = ",".join(map(str, range(per_node)))
    rendezvous = (
        f"--nnodes={nodes} --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
        if nodes > 1
        else "--standalone"
    )
    lines = [
        f'export {SCRATCH}="$(mktemp -d)"',
        f'export TRITON_CACHE_DIR="${SCRATCH}/triton" TORCHINDUCTOR_CACHE_DIR="${SCRATCH}/inductor" HF_HUB_OFFLINE=1',
        f"export CUDA_VISIBLE_DEVICES={devices}",
        f"timeout --signal=INT --kill-after=60 {LIMIT_MINUTES}m \\",
        f"  torchrun --nproc_per_node={per_node} {rendezvous} scripts/training/run_recipe.py \\",
        f"  --recipe {shlex.quote(recipe or _RECIPE_PLACEHOLDER)}{' --dataset mock' if mock else ''} \\",
    ]
    quoted = [f'"{s}"' if "$" in s else shlex.quote(s) for s in settings]
    lines += [f"  {word} \\" for word in quoted]
    log = f'"${SCRATCH}/smoke.log"'
    lines.append(f'  2>&1 | tee {log}; echo "exit code: ${{PIPESTATUS[0]}}" | tee -a {log}')
    return tuple(lines)


def _notes(request: Request, recipe: str | None, grid: Grid) -> Iterator[Text]:
    if recipe is None:
        yield Text(
            f"The knowledge base has no library recipe of this model at {request.revision.tag}: put yours in the "
            f"place of {_RECIPE_PLACEHOLDER}.",
            f"知识库中 {request.revision.tag} 没有该模型的配方：请把 {_RECIPE_PLACEHOLDER} 换成自己的配方。",
        )
    if request.revision.tag.startswith("v0.2."):
        yield Text(
            "This release has no scripts/training/run_recipe.py; call the recipe function and apply the overrides.",
            "该版本没有 scripts/training/run_recipe.py；请直接调用配方函数并应用这些覆盖项。",
        )
    if request.values.get("task", "pretrain") != "pretrain":
        yield Text(
            "Fine-tuning recipes may need a dataset and a checkpoint; mock data only serves pretraining.",
            "微调配方可能需要数据集与检查点；模拟数据只适用于预训练。",
        )
    if grid.memory.decision == "does_not_fit":
        yield Text(
            "By the estimate this grid doesn't fit in memory in any world up to the one asked for: expect the run to "
            "fail with out of memory.",
            "按估算，在所给 GPU 数以内该网格都放不下：预计会因显存不足失败。",
        )
    yield Text(
        "The run proves that the groups form, the model builds and steps repeat. With fewer data-parallel ranks than "
        "in production it proves neither its memory nor its speed.",
        "该运行只证明通信组能建立、模型能构建、训练步能重复；数据并行规模小于正式任务，不能证明其显存与速度。",
    )


def _preconditions(request: Request, grid: Grid, world: int, per_node: int) -> Iterator[Text]:
    revision, fields = request.revision, grid.fields
    tp, pp, cp, ep = (
        fields.get(f"{name}_parallel_size") or 1
        for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    )
    unit = grid.sizes.get("min_gpus")
    yield Text(
        "You may use these GPUs and this account, and the owner of the cluster agrees.",
        "你有权使用这些 GPU 与账户，且集群负责人同意。",
    )
    yield Text(
        f"The quota covers {world} GPUs for {LIMIT_MINUTES} minutes; nobody else runs on them.",
        f"配额足够 {world} 张 GPU 使用 {LIMIT_MINUTES} 分钟，且没有其他人占用。",
    )
    yield Text(
        f"Topology: {ceil(world / per_node)} node(s) with {per_node} {_gpu(request)} GPUs each "
        "(`nvidia-smi topo -m` shows NVLink between them).",
        f"拓扑：{ceil(world / per_node)} 个节点，每节点 {per_node} 张 {_gpu(request)}"
        "（用 `nvidia-smi topo -m` 确认 NVLink）。",
    )
    yield Text(
        f"World size {world} is a multiple of {unit}, the smallest of TP {tp}, PP {pp}, CP {cp}, EP {ep}.",
        f"GPU 总数 {world} 是 {unit} 的倍数，后者为 TP {tp}、PP {pp}、CP {cp}、EP {ep} 的最小规模。",
    )
    stated = revision.environment
    versions = {
        name: stated.get(name) or stated.get(f"{name}_locked")
        for name in ("pytorch", "transformer_engine", "cuda", "python")
    }
    shown = [f"{name} {value}" for name, value in versions.items() if value]
    container = revision.environment.get("container")
    image = f", container {container}" if container else ""
    image_zh = f"，容器 {container}" if container else ""
    yield Text(
        f"Versions: Megatron Bridge {revision.tag}, Megatron Core {revision.core_version}, {', '.join(shown)}{image}.",
        f"版本：Megatron Bridge {revision.tag}、Megatron Core {revision.core_version}、{'、'.join(shown)}{image_zh}。",
    )
    yield Text(
        "What the run reads is there already (see below): it doesn't download.",
        "运行所需的内容已就绪（见下）：运行时不下载。",
    )
    yield Text(
        "No production job shares the checkpoint, log or cache folders.", "没有正式任务共用检查点、日志或缓存目录。"
    )


def _reads(request: Request) -> Iterator[Text]:
    yield Text("The Megatron Bridge checkout and its Python environment.", "Megatron Bridge 代码与 Python 环境。")
    yield Text(
        "The model's config and tokenizer in the Hugging Face cache, where the recipe needs them. HF_HUB_OFFLINE=1 "
        "keeps it from downloading.",
        "配方需要时：Hugging Face 缓存中的模型配置与分词器。HF_HUB_OFFLINE=1 禁止下载。",
    )
    if request.values.get("task", "pretrain") == "pretrain":
        yield Text("No training data: the mock data set is generated.", "不读取训练数据：使用生成的模拟数据。")
    else:
        yield Text(
            "The recipe's fine-tuning data set and the pretrained checkpoint that it names: both must be there.",
            "配方中的微调数据集，以及它所指的预训练检查点：两者都须事先就绪。",
        )


_WRITES = (
    Text(
        f"${SCRATCH}, on each node: the log, TensorBoard files, and the caches of Triton and TorchInductor.",
        f"各节点的 ${SCRATCH}：日志、TensorBoard 文件，以及 Triton 与 TorchInductor 的缓存。",
    ),
    Text("No checkpoint: checkpoint.save is unset.", "不写检查点：checkpoint.save 置空。"),
    Text(
        "The compiled data-set helper in Megatron Core's own folder, where it isn't built yet; a fine-tuning data set "
        "may leave its index beside the data.",
        "Megatron Core 目录中的数据集编译模块（尚未编译时）；微调数据集可能在数据旁留下索引。",
    ),
)
_ISOLATION = (
    Text(
        "CUDA_VISIBLE_DEVICES lists only the GPUs of this run; on a shared node, put those that are yours.",
        "CUDA_VISIBLE_DEVICES 只列出本次使用的 GPU；与他人共用节点时，改为分配给自己的编号。",
    ),
    Text(f"A scratch folder of its own, ${SCRATCH}.", f"使用独立的临时目录 ${SCRATCH}。"),
    Text(
        f"`timeout` ends it after {LIMIT_MINUTES} minutes; under Slurm, give --time={LIMIT_MINUTES} too.",
        f"`timeout` 在 {LIMIT_MINUTES} 分钟后结束它；使用 Slurm 时另加 --time={LIMIT_MINUTES}。",
    ),
)
_STOP = (
    Text(
        "Ctrl-C, or `kill -INT` of the torchrun you started; then `kill -TERM`.",
        "按 Ctrl-C，或对自己启动的 torchrun 执行 `kill -INT`，再 `kill -TERM`。",
    ),
    Text("Under Slurm: `scancel JOBID` of this job only.", "使用 Slurm 时：只对本作业执行 `scancel JOBID`。"),
    Text(
        "`nvidia-smi` must show none of your processes on these GPUs afterwards.",
        "之后用 `nvidia-smi` 确认这些 GPU 上没有自己的进程。",
    ),
)
_CLEAN_UP = (
    Text(
        f'Keep smoke.log if you need it, then: rm -r -- "${SCRATCH}"',
        f'如需保留请先取出 smoke.log，然后：rm -r -- "${SCRATCH}"',
    ),
)


def success(fields: Mapping[str, Any], iterations: int) -> dict[str, Text]:
    """What must hold after the run of a grid, by a name for each; ``diagnose`` judges them from the log."""
    tp = fields.get("tensor_model_parallel_size") or 1
    pp = fields.get("pipeline_model_parallel_size") or 1
    out = {
        "exit_code": Text("Exit code 0 on every node.", "每个节点的退出码均为 0。"),
        "groups": Text(
            f"The log says `initialized tensor model parallel with size {tp}` and `initialized pipeline model parallel "
            f"with size {pp}`.",
            f"日志中有 `initialized tensor model parallel with size {tp}` 与 `initialized pipeline model parallel with "
            f"size {pp}`。",
        ),
    }
    layout = fields.get("pipeline_model_parallel_layout")
    if layout:
        out["layout"] = Text(
            f"The log says `Parse pipeline model parallel layout {layout}` with {pp} columns of stages.",
            f"日志中有 `Parse pipeline model parallel layout {layout}`，且阶段数为 {pp}。",
        )
    out["iterations"] = Text(
        f"{iterations} iteration lines, each with a finite `lm loss` and no skipped or NaN iteration.",
        f"{iterations} 行迭代日志，每行 `lm loss` 为有限值，没有跳过或 NaN 的迭代。",
    )
    out["quiet"] = Text(
        "No `out of memory`, NCCL error or timeout on any rank.", "任何 rank 上都没有显存不足、NCCL 错误或超时。"
    )
    return out
