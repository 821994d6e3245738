"""Is a grid that the vendor published for a scenario among the first that the search finds?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..advice.plan import find
from ..intake.recipe import precision_of as recipe_precision
from ..intake.request import Request, parse_request
from ..knowledge.load import load_recipes, load_throughput
from ..knowledge.model import Knowledge
from .throughput import TAGS, precision_of

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
    """

    scenario: Scenario
    rank: int | None
    grid_rank: int | None
    ours: float
    theirs: float
    choices: tuple[Mapping[str, Any], ...]

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
        yield key, TAGS[row["release"][:5]], _shape(row, row.get("vp"))


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
    theirs = [_score(request, shape, knowledge, constants) for shape in scenario.published]
    return Choice(
        scenario,
        _place(scenario.published, choices, schedule=True),
        _place(scenario.published, choices, schedule=False),
        finalists[0].score if finalists else 0.0,
        max(theirs),
        tuple(choices),
    )


def _score(request: Request, shape: Shape, knowledge: Knowledge, constants: Mapping[str, float] | None) -> float:
    """Our estimate for a published grid with the settings that our search gives it, 0 where it is refused."""
    pinned = {"tp": shape.tp, "pp": shape.pp, "cp": shape.cp, "use_megatron_fsdp": shape.fsdp, "mbs": shape.mbs}
    if shape.ep > 1:
        pinned["ep"] = shape.ep
    finalists = find(request.with_values(**pinned), knowledge, 1, constants=constants).finalists
    return finalists[0].score if finalists else 0.0


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
