"""Is a grid that the vendor published for a scenario among the first that the search finds?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..advice.plan import Finalist, find
from ..intake.recipe import precision_of as recipe_precision
from ..intake.request import Request, parse_request
from ..knowledge.load import load_recipes, load_throughput
from ..knowledge.model import Knowledge
from .throughput import TAGS, nearest_recipe, precision_of

TOP = 5
Source = Literal["published", "recipes"]
SOURCES: tuple[Source, ...] = ("published", "recipes")


@dataclass(frozen=True)
class Shape:
    """A published grid, with Bridge's short names; None = not said, and then not compared."""

    tp: int
    pp: int
    cp: int
    ep: int
    vpp: int | None = None
    mbs: int = 1
    fsdp: bool = False

    def matches(self, choice: Mapping[str, Any], *, schedule: bool = True) -> bool:
        """Whether a finalist of the search is this grid; ``schedule``: VPP counts too, where it is said."""
        same = all(getattr(self, name) == choice[name] for name in ("tp", "pp", "cp", "ep"))
        fsdp = bool(choice.get("use_megatron_fsdp")) == self.fsdp
        return same and fsdp and (not schedule or self.vpp is None or self.vpp == (choice["vpp"] or 1))


@dataclass(frozen=True)
class Scenario:
    """What was asked, and every grid that the vendor has published for it.

    Attributes:
        model: name in the catalogue; family: the key that throughput rows and fits have.
        bridge: the newest release that published a grid for it.
    """

    model: str
    family: str
    gpu: str
    gpus: int
    precision: str
    seq_length: int
    global_batch_size: int
    task: str
    bridge: str
    published: tuple[Shape, ...]

    @property
    def name(self) -> str:
        """For people."""
        return (
            f"{self.family} {self.task} {self.gpus} x {self.gpu} {self.precision}"
            f" seq {self.seq_length} gbs {self.global_batch_size}"
        )

    @property
    def sharded(self) -> bool:
        """Whether all its grids use FSDP."""
        return all(shape.fsdp for shape in self.published)

    def request(self) -> dict[str, Any]:
        """As a user would ask."""
        return {
            "bridge": self.bridge,
            "model": self.model,
            "cluster": {"gpu": self.gpu, "gpus": self.gpus},
            "training": {
                "task": self.task,
                "seq_length": self.seq_length,
                "global_batch_size": self.global_batch_size,
                "precision": self.precision,
            },
        }


@dataclass(frozen=True)
class Choice:
    """How the search did on a scenario.

    Attributes:
        rank: place (from 1) of the first finalist that is a published grid, None if none of the first :data:`TOP`.
        grid_rank: the same without comparing VPP.
        ours, theirs: our estimates in tokens/s/GPU, preferences counted, for our first choice and for the best
            published grid with the settings that our search gives it (0: refused).
        best: that published grid, in words, None where all are refused.
        reasons: what makes ours faster in our own eyes, where it isn't a published grid.
    """

    scenario: Scenario
    rank: int | None
    grid_rank: int | None
    ours: float
    theirs: float
    choices: tuple[Mapping[str, Any], ...]
    best: str | None
    reasons: tuple[str, ...]

    @property
    def defensible(self) -> bool:
        """Whether our first choice is a published grid, or at least as fast by our own estimate."""
        return self.rank == 1 or self.ours >= self.theirs


@dataclass(frozen=True)
class Scores:
    """Shares of scenarios: a published grid among the first one and five, with and without VPP; and defensible ones."""

    count: int
    first: float
    top: float
    grid_first: float
    grid_top: float
    defensible: float


def scenarios(knowledge: Knowledge, source: Source = "published") -> list[Scenario]:
    """Scenarios of the published tables, or of the performance recipes, that the catalogue can be asked about."""
    models = {key: m.name for m in knowledge.models.values() for key in (m.name, *m.recipe_keys)}
    found: dict[tuple[Any, ...], tuple[str, list[Shape]]] = {}
    rows = _published(knowledge) if source == "published" else _recipes(knowledge)
    for key, tag, shape in rows:
        family, gpu, _, precision, *_ = key
        if family not in models or gpu not in knowledge.gpus or precision not in knowledge.terms["precision"].values:
            continue
        newest, shapes = found.setdefault(key, (tag, []))
        if shape not in shapes:
            shapes.append(shape)
        found[key] = (max(newest, tag), shapes)
    return [
        Scenario(models[family], family, gpu, gpus, precision, seq, gbs, task, tag, tuple(shapes))
        for (family, gpu, gpus, precision, seq, gbs, task), (tag, shapes) in sorted(found.items())
    ]


def _published(knowledge: Knowledge) -> Iterable[tuple[tuple[Any, ...], str, Shape]]:
    for row in load_throughput(knowledge):
        key = (
            row["model_key"],
            row["system"],
            row["num_gpus"],
            precision_of(row),
            row["seq_len"],
            row["gbs"],
            row["task"],
        )
        fsdp = row.get("fsdp")
        if fsdp is None:  # the table has no such column
            fsdp = (nearest_recipe(row, load_recipes(knowledge, row["model_key"])) or {}).get("fsdp")
        yield key, TAGS[row["release"][:5]], _shape({**row, "fsdp": fsdp}, row.get("vp"))


def _shape(row: Mapping[str, Any], vpp: int | None) -> Shape:
    tp, pp, cp, ep = (row.get(name) or 1 for name in ("tp", "pp", "cp", "ep"))
    return Shape(tp, pp, cp, ep, vpp, row["mbs"], bool(row.get("fsdp")))


def _recipes(knowledge: Knowledge) -> Iterable[tuple[tuple[Any, ...], str, Shape]]:
    keys = {key for m in knowledge.models.values() for key in m.recipe_keys}
    for family in sorted(keys):
        for row in load_recipes(knowledge, family):
            if row["kind"] == "library" or not all(row.get(n) for n in ("num_gpus", "hardware", "gbs", "seq_length")):
                continue
            key = (
                family,
                row["hardware"],
                row["num_gpus"],
                recipe_precision(row),
                row["seq_length"],
                row["gbs"],
                row["task"],
            )
            yield key, row["tag"], _shape(row, row.get("vpp"))


def choose(scenario: Scenario, knowledge: Knowledge, constants: Mapping[str, float] | None = None) -> Choice:
    """Search a scenario, and estimate its published grids the same way.

    ``constants`` replaces those of the knowledge base (models left out of the fit).
    """
    request = parse_request(scenario.request(), knowledge)
    finalists = find(request, knowledge, TOP, constants=constants).finalists
    choices = [finalist.choice for finalist in finalists]
    published = [_given(request, shape, knowledge, constants) for shape in scenario.published]
    best = max((f for f in published if f is not None), key=lambda f: f.score, default=None)
    rank = _place(scenario.published, choices, schedule=True)
    return Choice(
        scenario,
        rank,
        _place(scenario.published, choices, schedule=False),
        finalists[0].score if finalists else 0.0,
        best.score if best else 0.0,
        tuple(choices),
        in_words(best.choice) if best else None,
        _reasons(finalists[0], best) if finalists and rank != 1 else (),
    )


def _given(
    request: Request, shape: Shape, knowledge: Knowledge, constants: Mapping[str, float] | None
) -> Finalist | None:
    """A published grid with the settings that our search gives it, None where it is refused."""
    pinned = {"tp": shape.tp, "pp": shape.pp, "cp": shape.cp, "use_megatron_fsdp": shape.fsdp, "mbs": shape.mbs}
    if shape.ep > 1:
        pinned["ep"] = shape.ep
    return next(iter(find(request.with_values(**pinned), knowledge, 1, constants=constants).finalists), None)


def in_words(choice: Mapping[str, Any]) -> str:
    """A grid for people."""
    sizes = {"TP": choice["tp"], "PP": choice["pp"], "VPP": choice["vpp"], "CP": choice["cp"], "EP": choice["ep"]}
    shown = " ".join(f"{name} {size}" for name, size in sizes.items() if (size or 1) > 1) or "DP alone"
    return f"{shown}, MBS {choice['mbs']}{', FSDP' if choice['use_megatron_fsdp'] else ''}"


def _reasons(ours: Finalist, theirs: Finalist | None) -> tuple[str, ...]:
    """What a published grid takes longer for than ours: recompute, the two largest terms, preferences."""
    if theirs is None:
        return ("no published grid can be laid out, or fits, with the settings that we take",)
    out = []
    recompute = _recompute(theirs.choice)
    if recompute != _recompute(ours.choice):
        out.append(f"they recompute {recompute}, ours {_recompute(ours.choice)}")
    mine, other = ours.seconds, theirs.seconds
    more = {name: other[name] - mine[name] for name in mine}
    step = sum(mine.values())
    out += [
        f"{name} {more[name]:+.2f} s" for name in sorted(more, key=lambda n: -more[n])[:2] if more[name] > step / 100
    ]
    if theirs.preference < ours.preference - 0.005:
        out.append(f"preferences x {theirs.preference:.2f}, ours x {ours.preference:.2f}")
    return tuple(out)


def _recompute(choice: Mapping[str, Any]) -> str:
    if choice["recompute_granularity"] == "selective":
        return "+".join(choice["recompute_modules"])
    return "all layers" if choice["recompute_granularity"] else "nothing"


def _place(published: Sequence[Shape], choices: Sequence[Mapping[str, Any]], *, schedule: bool) -> int | None:
    hits = (n for n, c in enumerate(choices, 1) if any(s.matches(c, schedule=schedule) for s in published))
    return next(hits, None)


def score(choices: Sequence[Choice]) -> Scores:
    """Shares over at least one scenario."""

    def share(hits: Iterable[bool]) -> float:
        return float(np.mean(list(hits)))

    return Scores(
        len(choices),
        share(c.rank == 1 for c in choices),
        share(c.rank is not None for c in choices),
        share(c.grid_rank == 1 for c in choices),
        share(c.grid_rank is not None for c in choices),
        share(c.defensible for c in choices),
    )
