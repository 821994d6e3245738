"""All of our figures against all measured and published rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .. import memory as memory_model
from ..errors import RequestError
from ..knowledge.load import load_left_out, load_measured_memory, load_recipes, load_throughput
from ..knowledge.model import Knowledge, Text
from . import choice, memory, peers, report, throughput

Group = Literal["model", "gpu", "precision", "release"]
GROUPS: tuple[Group, ...] = ("model", "gpu", "precision", "release")
FILES = ("measured_memory.jsonl", "measured_memory_large.jsonl", "published_throughput.jsonl", "recipe_grids.jsonl")


@dataclass(frozen=True)
class Part:
    """One figure over one set of rows.

    Attributes:
        key, title: for machines and for people.
        comparisons: predicted against measured, row by row.
        peers: the same rows by other formulas: name -> comparisons.
    """

    key: str
    title: Text
    comparisons: tuple[report.Comparison, ...]
    peers: Mapping[str, tuple[report.Comparison, ...]]


@dataclass(frozen=True)
class Feasible:
    """Whether published rows fit in memory, with the settings of the recipe that is nearest.

    Attributes:
        fits, tight: rows.
        refused: row -> why it can't have run as printed (None: we are wrong, or nobody has found out).
    """

    fits: int
    tight: int
    refused: Mapping[str, str | None]

    @classmethod
    def of(cls, cases: Sequence[throughput.Case], constants: Mapping[str, float]) -> Feasible:
        """Judge rows."""
        counts = [0, 0, 0]
        refused: dict[str, str | None] = {}
        for c in cases:
            found = memory_model.estimate(c.architecture, c.settings, c.grids, c.gpu, constants)
            verdict = int(found.verdict(float(c.gpu.memory_bytes))[0])
            counts[verdict] += 1
            if verdict == 2:
                refused[c.id] = c.slip
        return cls(counts[0], counts[1], refused)


@dataclass(frozen=True)
class Validation:
    """Everything that ``validate`` found.

    Attributes:
        knowledge, digest: version and content of the knowledge base.
        parts: figure by figure.
        feasible: task -> whether the rows published for it fit.
        choices: set of scenarios -> how the search did on each.
    """

    knowledge: str
    digest: str
    parts: tuple[Part, ...]
    feasible: Mapping[str, Feasible]
    choices: Mapping[str, tuple[choice.Choice, ...]]

    def to_dict(self, by: Group | None = None) -> dict[str, Any]:
        """Scores as plain data; with ``by`` also for each member of that group."""
        return {
            "knowledge": self.knowledge,
            "parts": {part.key: _part(part, by) for part in self.parts if part.comparisons},
            "feasible": {task: asdict(found) for task, found in self.feasible.items()},
            "choice": {name: _choices(found) for name, found in self.choices.items()},
        }


def _part(part: Part, by: Group | None) -> dict[str, Any]:
    out: dict[str, Any] = {"title": part.title.en, **scores(part.comparisons)}
    if by is not None:
        out["by"] = scores_by(part.comparisons, by)
    out["peers"] = {name: scores(rows) for name, rows in part.peers.items()}
    return out


def scores_by(comparisons: Sequence[report.Comparison], group: Group) -> dict[str, Any]:
    """:func:`scores` of each member of a group."""
    return {name: scores(rows) for name, rows in report.by(comparisons, group).items()}


def scores(comparisons: Sequence[report.Comparison]) -> dict[str, Any]:
    """Scores of at least one comparison as plain data, errors as rounded fractions."""
    s = report.summarise(comparisons)
    return {
        "rows": s.count,
        "median": round(s.median, 4),
        "mean_absolute": round(s.mean_absolute, 4),
        "bias": round(s.bias, 4),
        "worst": {"row": s.worst[0], "error": round(s.worst[1], 4)},
        "within": {str(p): round(share, 4) for p, share in s.within.items()},
        **({"in_range": round(s.covered, 4)} if _has_range(comparisons) else {}),
    }


def _has_range(comparisons: Sequence[report.Comparison]) -> bool:
    return any(c.low < c.high for c in comparisons)


def _choices(found: Sequence[choice.Choice]) -> dict[str, Any]:
    apart = {"ddp": [c for c in found if not c.scenario.sharded], "fsdp": [c for c in found if c.scenario.sharded]}
    return {
        **{name: {k: round(v, 4) for k, v in asdict(choice.score(c)).items()} for name, c in apart.items() if c},
        "refused": [c.scenario.name for c in found if not c.theirs],
        "differs": [
            {
                "scenario": c.scenario.name,
                "ours": choice.in_words(c.choices[0]),
                "theirs": c.best,
                "tokens_per_second_per_gpu": [round(c.ours, 1), round(c.theirs, 1)],
                "reasons": list(c.reasons),
            }
            for c in found
            if c.choices and c.rank != 1
        ],
    }


@dataclass(frozen=True)
class Rows:
    """The data: measured memory (functional tests, real-size layers), published throughput, recipes."""

    small: Sequence[memory.Row]
    large: Sequence[memory.Row]
    published: Sequence[memory.Row]
    recipes: Sequence[memory.Row]

    @classmethod
    def of(cls, knowledge: Knowledge) -> Rows:
        """Those of the knowledge base."""
        published = load_throughput(knowledge)
        keys = {row["model_key"] for row in published}
        recipes = [{**recipe, "model_key": key} for key in sorted(keys) for recipe in load_recipes(knowledge, key)]
        small, large = (load_measured_memory(knowledge, large=big) for big in (False, True))
        return cls(small, large, published, recipes)

    @classmethod
    def read(cls, folder: Path) -> Rows:
        """Those of a folder of JSON lines; a missing file counts as empty.

        Raises:
            RequestError: none of the files is there, or one can't be read.
        """
        paths = [folder / name for name in FILES]
        if not any(path.is_file() for path in paths):
            raise RequestError("--data", str(folder), "holds none of the data files", f"Expected {', '.join(FILES)}.")
        try:
            return cls(*(memory.read_rows(path) if path.is_file() else [] for path in paths))
        except (OSError, ValueError) as error:
            raise RequestError("--data", str(folder), f"can't be read ({error})", "Give JSON lines.") from error


def validate(
    knowledge: Knowledge,
    rows: Rows | None = None,
    sources: Sequence[choice.Source] = ("published",),
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> Validation:
    """Compare.

    Args:
        knowledge: models, systems and constants.
        rows: other data than the knowledge base's own.
        sources: which scenarios the choice is scored on, each with constants fitted without its model.
        progress: called with a stage and the share done.
    """
    data = rows or Rows.of(knowledge)
    left_out = load_left_out(knowledge)
    constants = knowledge.calibration_values

    def without(model: str) -> Mapping[str, float]:
        return {**constants, **left_out.get(model, {})}

    progress("memory", 0.0)
    small = memory.measured_small(data.small, knowledge.gpus)
    staged, unranked = (
        memory.measured_large([row for row in data.large if (row["tier"] == "A") == ranked], knowledge.gpus)
        for ranked in (True, False)
    )
    published = throughput.cases(data.published, data.recipes, knowledge)
    tuned = [c for t in ("sft", "lora") for c in throughput.cases(data.published, data.recipes, knowledge, t)]
    timed = throughput.measured_cases(data.large, knowledge)
    parts = [
        _memory("peak", "Peak memory, functional tests", "峰值显存：功能测试", small, constants),
        _plain(
            "end_of_step",
            Text("Memory between steps, functional tests", "步间显存：功能测试"),
            report.end_of_step_memory(small, constants),
        ),
        _memory(
            "hybrid",
            "Peak memory, functional tests of hybrid models (not fitted)",
            "峰值显存：混合模型功能测试（未参与拟合）",
            memory.measured_small(data.small, knowledge.gpus, ("hybrid",)),
            constants,
        ),
        _memory(
            "large", "Peak memory, real-size layers, each stage", "峰值显存：真实尺寸的层，逐阶段", staged, constants
        ),
        _memory(
            "tables",
            "Peak memory, tables without ranks (tier B), read as the last stage's",
            "峰值显存：未注明 rank 的表格（B 级），按末阶段理解",
            unranked,
            constants,
        ),
    ]
    progress("throughput", 0.2)
    parts += [
        _rate("throughput", "Tokens/s/GPU, published pretraining", "每 GPU 吞吐：公布的预训练", published, constants),
        _plain(
            "left_out",
            Text("The same, each model by constants fitted without it", "同上，各模型使用未见过它的拟合常数"),
            report.tokens_per_second(published, lambda c: without(c.model)),
        ),
        _rate(
            "fine_tuning",
            "Tokens/s/GPU, published fine-tuning (not fitted)",
            "每 GPU 吞吐：公布的微调（未参与拟合）",
            tuned,
            constants,
        ),
        _rate("step_time", "Tokens/s/GPU, real-size layers", "每 GPU 吞吐：真实尺寸的层", timed, constants),
    ]
    feasible = {
        task: Feasible.of(judged, constants)
        for task, judged in (("pretraining", published), ("fine-tuning", tuned))
        if judged
    }
    choices: dict[str, tuple[choice.Choice, ...]] = {}
    for n, source in enumerate(sources):
        found = []
        scenarios = choice.scenarios(knowledge, source)
        for i, scenario in enumerate(scenarios):
            progress("choice", 0.4 + 0.6 * (n + i / len(scenarios)) / len(sources))
            found.append(choice.choose(scenario, knowledge, without(scenario.family)))
        choices[source] = tuple(found)
    return Validation(knowledge.version, knowledge.digest, tuple(parts), feasible, choices)


def _plain(key: str, title: Text, comparisons: Sequence[report.Comparison]) -> Part:
    return Part(key, title, tuple(comparisons), {})


def _memory(key: str, en: str, zh: str, cases: Sequence[memory.Case], constants: Mapping[str, float]) -> Part:
    ours = report.peak_memory(cases, constants)
    # The other formulas speak of the fullest rank, so of a run's stages they are held to that one alone.
    fullest: dict[str, float] = {}
    for case in cases:
        fullest[_run(case)] = max(case.peak, fullest.get(_run(case), 0))
    rows = [(c, case) for c, case in zip(ours, cases, strict=True) if case.peak == fullest[_run(case)]]
    others = {
        name: tuple(report.instead(c, formula(case)) for c, case in rows)
        for name, formula in peers.MEMORY.items()
        if rows
    }
    return Part(key, Text(en, zh), tuple(ours), others)


def _run(case: memory.Case) -> str:
    return case.name.partition(" stage ")[0]


def _rate(key: str, en: str, zh: str, cases: Sequence[throughput.Case], constants: Mapping[str, float]) -> Part:
    ours = report.tokens_per_second(cases, lambda _: constants)
    others = {
        name: tuple(report.instead(c, formula(case)) for c, case in zip(ours, cases, strict=True))
        for name, formula in peers.THROUGHPUT.items()
        if cases
    }
    return Part(key, Text(en, zh), tuple(ours), others)


def errors(validation: Validation) -> dict[str, dict[str, float]]:
    """Signed error of each row, by part: what a change is compared with."""
    return {part.key: {c.row: round(c.error, 4) for c in part.comparisons} for part in validation.parts}
