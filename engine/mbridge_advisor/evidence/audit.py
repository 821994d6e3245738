"""The claims of the usual guide, each judged at every release.

``knowledge/audit/guide.yaml`` says in our own words what the guide claims, where, and how a machine can tell whether it
holds. ``knowledge/audit/found.yaml`` keeps what was looked up in the source, so that the audit runs without one.

A test has one of these forms:

``equal``     two expressions over the vocabulary, compared on a box of values by the quantities of the release;
``check``     a request to ``check``: whether the constraints let it run, which rules fire, which sizes follow;
``rules``     rules that say the same, at the severity that the claim gives them;
``place``     something that stands in the source, at the lines that the guide names, or at all;
``grid``      a grid of one model, looked for among the shipped recipes;
``practice``  a condition, counted over the shipped recipes;
``estimate``  bytes by component, against our estimate;
``open``      why no machine can tell.

A recipe is *tuned* where the vendor ships it for benchmarks on a named system, else it is a library default.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ..advice.check import check
from ..advice.estimate import estimate
from ..errors import KnowledgeError, RequestError
from ..expressions import Conjunction, Expression
from ..inference import Program, infer
from ..intake.facts import build_facts
from ..intake.recipe import request_of_recipe
from ..intake.request import parse_request
from ..knowledge.load import load_recipes
from ..knowledge.model import Knowledge, Revision, Text, Value
from ..knowledge.schema import validate
from ..knowledge.yaml_reader import read
from .anchors import Found, Missing, find_section
from .source import BRIDGE, CORE, Source, SourceError, open_source
from .store import Place, flow, write_text
from .tags import tag_of
from .verify import Finder, Progress

Verdict = Literal["holds", "in_part", "fails", "not_applicable", "unjudged"]
VERDICTS: tuple[Verdict, ...] = ("holds", "in_part", "fails", "not_applicable", "unjudged")
FOLDER = Path("knowledge") / "audit"
GUIDE = FOLDER / "guide.yaml"
FOUND = FOLDER / "found.yaml"
TUNED = frozenset({"perf_recipe", "perf_config"})
NEAR_ALL, NEXT_TO_NONE = 0.9, 0.1
"""From this share of the recipes on a practice holds; up to that share it doesn't."""


@dataclass(frozen=True)
class Version:
    """A version of the guide.

    Attributes:
        at: the release or commit that carries it.
        commit: 40 hex digits.
        calls_itself: its own version, where its card states one.
        guide, card: paths of the text and of its card.
    """

    at: str
    commit: str
    calls_itself: str | None
    guide: str
    card: str


@dataclass(frozen=True)
class Claim:
    """One claim of the guide, in our words.

    Attributes:
        id: e.g. ``G-001``; never reused.
        kind: claim, formula, example, table or anchor.
        where: in which file, under which heading, on which line it stands.
        tests: how a machine can tell.
        expect: (specifier, verdict) that a person has reviewed; the first that fits a release counts.
        note: what to say instead, or what the claim leaves out.
    """

    id: str
    kind: str
    says: Text
    where: tuple[Mapping[str, str], ...]
    tests: tuple[Mapping[str, Any], ...]
    expect: tuple[tuple[str, Verdict], ...]
    note: Text | None = None

    def expected(self, revision: Revision) -> Verdict | None:
        """The reviewed verdict at a release; None where nobody has looked."""
        return next((verdict for bridge, verdict in self.expect if revision.within(bridge)), None)


@dataclass(frozen=True)
class Guide:
    """The claims, and where the guide stands."""

    title: Text
    repo: str
    versions: tuple[Version, ...]
    claims: tuple[Claim, ...]

    @staticmethod
    def load(root: Path) -> Guide:
        """Read ``guide.yaml``.

        Raises:
            KnowledgeError: it is missing or has mistakes.
        """
        data = _read(root, GUIDE, "guide")
        return Guide(
            Text(**data["title"]),
            data["repo"],
            tuple(Version(**{"calls_itself": None, **row}) for row in data["versions"]),
            tuple(
                Claim(
                    row["id"],
                    row["kind"],
                    Text(**row["says"]),
                    tuple(row["where"]),
                    tuple(row["tests"]),
                    tuple(row["expect"].items()),
                    Text(**row["note"]) if "note" in row else None,
                )
                for row in data["claims"]
            ),
        )

    def places(self) -> Iterator[Place]:
        """Everything that the claims' tests look up in the source."""
        for claim in self.claims:
            for test in claim.tests:
                if "place" in test:
                    yield _place(test["place"])
                    if "instead" in test["place"]:
                        yield _place({**test["place"], "text": test["place"]["instead"]})


@dataclass(frozen=True)
class Looked:
    """What was found in the source.

    Attributes:
        digests: version of the guide -> file -> digest of its text.
        lines: version -> claim -> (file, first, last) of each place where the claim stands.
        places: release -> key of a place -> what was found.
    """

    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Sequence[tuple[str, int, int]]]] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, Found | Missing]] = field(default_factory=dict)

    @staticmethod
    def load(root: Path) -> Looked:
        """Read ``found.yaml``; nothing was found where it is missing.

        Raises:
            KnowledgeError: it has mistakes.
        """
        if not (root / FOUND).is_file():
            return Looked()
        data = _read(root, FOUND, "guide_found")
        return Looked(
            {at: part["digests"] for at, part in data["guide"].items()},
            {
                at: {claim: [(row[0], row[1], row[2]) for row in rows] for claim, rows in part["lines"].items()}
                for at, part in data["guide"].items()
            },
            {
                tag: {
                    key: Missing(row["missing"]) if "missing" in row else Found((row["lines"][0], row["lines"][1]), "")
                    for key, row in part.items()
                }
                for tag, part in data["places"].items()
            },
        )


@dataclass(frozen=True)
class Outcome:
    """What a test found: verdict, words, and evidence as data (rules and quantities with tags, places, recipes)."""

    verdict: Verdict
    text: Text
    evidence: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "text": vars(self.text), "evidence": [dict(e) for e in self.evidence]}


@dataclass(frozen=True)
class Cell:
    """A claim at a release. ``expected``: the reviewed verdict."""

    verdict: Verdict
    expected: Verdict | None
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Audit:
    """All claims at all releases; ``cells``: claim id -> release -> what was found."""

    guide: Guide
    looked: Looked
    revisions: tuple[Revision, ...]
    cells: Mapping[str, Mapping[str, Cell]]

    @property
    def surprises(self) -> list[tuple[str, str, Cell]]:
        """(claim, release, cell) where the verdict isn't the reviewed one."""
        return [
            (claim, tag, cell)
            for claim, row in self.cells.items()
            for tag, cell in row.items()
            if cell.verdict not in (cell.expected, "not_applicable")
        ]

    @property
    def exit_code(self) -> int:
        """1 where a person must look, else 0."""
        return int(bool(self.surprises))

    def counts(self, tag: str) -> dict[Verdict, int]:
        """Verdict -> number of claims at a release."""
        counted = Counter(row[tag].verdict for row in self.cells.values())
        return {verdict: counted[verdict] for verdict in VERDICTS}


def audit(
    knowledge: Knowledge,
    looked: Looked | None = None,
    progress: Progress = lambda stage, share: None,
) -> Audit:
    """Judge every claim at every release.

    Args:
        knowledge: the rules, quantities, recipes and matrix, with ``knowledge/audit`` under its root.
        looked: what was found in the source; None = what is recorded.
        progress: called with what is done and the share done.

    Raises:
        KnowledgeError: the audit's files have mistakes.
    """
    root = Path(knowledge.root)
    guide = Guide.load(root)
    bench = Bench(knowledge, looked or Looked.load(root))
    cells: dict[str, dict[str, Cell]] = {claim.id: {} for claim in guide.claims}
    revisions = tuple(knowledge.revisions.values())
    for n, revision in enumerate(revisions):
        progress(revision.tag, n / len(revisions))
        for claim in guide.claims:
            outcomes = tuple(judge(bench, revision, test) for test in claim.tests)
            cells[claim.id][revision.tag] = Cell(joined(outcomes), claim.expected(revision), outcomes)
    return Audit(guide, bench.looked, revisions, cells)


def joined(outcomes: Sequence[Outcome]) -> Verdict:
    """One verdict for all tests of a claim: what could be judged decides, and mixed verdicts are ``in_part``."""
    found = {o.verdict for o in outcomes}
    judged = found & {"holds", "in_part", "fails"}
    if not judged:
        return "unjudged" if "unjudged" in found else "not_applicable"
    return judged.pop() if len(judged) == 1 else "in_part"


# --- looking up in the source ---


def look(
    knowledge: Knowledge, bridge: Path, core: Path | None, progress: Progress = lambda stage, share: None
) -> Looked:
    """Look every place and every claim up in git repositories; nothing there is executed.

    Args:
        knowledge: says which releases there are, and holds the guide's claims.
        bridge: git repository of Megatron Bridge with all releases and versions of the guide.
        core: git repository of Megatron Core with the pinned commits; None = what lies there stays as recorded.
        progress: called with what is done and the share done.

    Raises:
        SourceError: a source can't be used, or a version of the guide lacks a claim in all of its places.
        KnowledgeError: the audit's files have mistakes.
    """
    root = Path(knowledge.root)
    guide, before = Guide.load(root), Looked.load(root) if core is None else Looked()
    digests, lines = {}, {}
    for version in guide.versions:
        progress(version.at, 0.0)
        source = open_source(BRIDGE, bridge, version.commit)
        texts = {name: source.read(getattr(version, name)) for name in ("guide", "card")}
        for name, raw in texts.items():
            if raw is None:
                raise SourceError(str(source), f"has no {getattr(version, name)}", "Is it the guide's own repository?")
        digests[version.at] = {n: hashlib.sha256(raw or b"").hexdigest()[:12] for n, raw in texts.items()}
        lines[version.at] = {claim.id: found for claim in guide.claims if (found := list(_stands(claim, texts)))}
    for claim in guide.claims:
        if not any(claim.id in of for of in lines.values()):
            raise SourceError(str(bridge), f"has {claim.id} in no version of the guide", f"Correct it in {GUIDE}.")
    places: dict[str, dict[str, Found | Missing]] = {}
    for n, revision in enumerate(knowledge.revisions.values()):
        progress(revision.tag, n / len(knowledge.revisions))
        sources: dict[str, Source] = {BRIDGE: open_source(BRIDGE, bridge, revision.tag)}
        if core is not None:
            sources[CORE] = open_source(CORE, core, revision.core_commit)
        finder = Finder(sources)
        places[revision.tag] = {}
        for place in guide.places():
            if place.repo in sources:
                places[revision.tag][place.key] = _find(finder, place)
            elif place.key in before.places.get(revision.tag, {}):
                places[revision.tag][place.key] = before.places[revision.tag][place.key]
        finder.complain()
    return Looked(digests, lines, places)


def write(root: Path, guide: Guide, looked: Looked) -> Path:
    """Write ``found.yaml``.

    Raises:
        OSError: the folder can't be written.
    """
    named = {place.key: place for place in guide.places()}
    out = ["# What was found in the source; written by `mbridge-advisor audit --bridge-source .. --record`.", "guide:"]
    for at, digests in looked.digests.items():
        out += [f"  {at}:", f"    digests: {flow(dict(digests))}", "    lines:"]
        out += [f"      {claim}: {flow([list(row) for row in rows])}" for claim, rows in looked.lines[at].items()]
    out.append("places:")
    for tag, places in looked.places.items():
        out.append(f"  {tag}:" if places else f"  {tag}: {{}}")
        for key, found in sorted(places.items()):
            what = {"missing": found.what} if isinstance(found, Missing) else {"lines": list(found.lines)}
            named_at = {k: v for k, v in named[key].to_dict().items() if v}  # a whole file has no name
            out.append(f"    {key}: {flow({**named_at, **what})}")
    write_text(root / FOUND, "\n".join(out) + "\n")
    return root / FOUND


def _stands(claim: Claim, texts: Mapping[str, bytes | None]) -> Iterator[tuple[str, int, int]]:
    """(file, first, last) of the places where a claim stands in one version of the guide."""
    for where in claim.where:
        raw = texts[where["in"]] or b""
        lines, (first, last) = raw.decode("utf-8", "replace").splitlines(), (1, len(raw.splitlines()))
        if "heading" in where:
            section = find_section(raw, where["heading"])
            if isinstance(section, Missing):
                continue
            first, last = section.lines
        start = next((n for n in range(first, last + 1) if where["line"] in lines[n - 1]), None)
        if start is None:
            continue
        end = where.get("through", where["line"])
        stop = next((n for n in range(start, last + 1) if end in lines[n - 1]), start)
        yield where["in"], start, stop


def _place(spec: Mapping[str, Any]) -> Place:
    """What a ``place`` test names: a symbol in code, a section of a page, a line with some text, or a whole file."""
    repo, path = spec.get("repo", BRIDGE), spec["path"]
    if "symbol" in spec:
        return Place("code", repo, path, spec["symbol"], spec.get("condition"))
    if "heading" in spec:
        return Place("doc", repo, path, spec["heading"])
    return Place("line" if "text" in spec else "file", repo, path, spec.get("text", ""))


def _find(finder: Finder, place: Place) -> Found | Missing:
    if place.kind in ("code", "doc"):
        return finder.find(place)
    raw = finder.sources[place.repo].read(place.path)
    if raw is None:
        return Missing("file")
    lines = raw.decode("utf-8", "replace").splitlines()
    if place.kind == "file":
        return Found((1, max(1, len(lines))), "")
    words = place.name.split()
    at = next((n for n, line in enumerate(lines, 1) if all(word in line for word in words)), None)
    return Missing("line") if at is None else Found((at, at), "")


# --- the forms of a test ---

_NO_RECIPES = Outcome("not_applicable", Text("The facts hold no recipes of this release.", "没有此版本的配方数据。"))


@dataclass
class Bench:
    """What the tests work with."""

    knowledge: Knowledge
    looked: Looked

    @cached_property
    def recipes(self) -> Mapping[str, tuple[Mapping[str, Any], ...]]:
        """Release -> rows of the recipes, each with its ``model_key``."""
        out: dict[str, list[Mapping[str, Any]]] = {}
        for path in sorted((Path(self.knowledge.root) / "knowledge" / "facts" / "recipes").glob("*.yaml")):
            for row in load_recipes(self.knowledge, path.stem):
                out.setdefault(row["tag"], []).append({**row, "model_key": path.stem})
        return {tag: tuple(rows) for tag, rows in out.items()}

    @cached_property
    def _facts(self) -> dict[str, list[tuple[Mapping[str, Any], Mapping[str, Value]]]]:
        return {}

    @cached_property
    def _sizes(self) -> dict[str, Program]:
        return {}

    def sizes(self, revision: Revision) -> Program:
        """The quantities of a release, without rules."""
        if revision.tag not in self._sizes:
            base = self.knowledge
            self._sizes[revision.tag] = Program.build(base.terms, base.quantities.values(), (), revision)
        return self._sizes[revision.tag]

    def facts(self, revision: Revision) -> list[tuple[Mapping[str, Any], Mapping[str, Value]]]:
        """Every distinct grid of the recipes of a release, with all that is known and concluded about it."""
        if revision.tag not in self._facts:
            base = self.knowledge
            rules = [r for r in base.rules.values() if r.kind in ("sizing", "derivation")]
            program = Program.build(base.terms, base.quantities.values(), rules, revision)
            seen: dict[tuple[Any, ...], tuple[Mapping[str, Any], Mapping[str, Value]]] = {}
            for row in self.recipes.get(revision.tag, ()):
                key = _grid_key(row)
                if key not in seen:
                    values = build_facts(parse_request(request_of_recipe(row, base), base), base).values
                    seen[key] = (row, infer(program, values, engine="reference").facts)
            self._facts[revision.tag] = list(seen.values())
        return self._facts[revision.tag]

    def rule(self, name: str, revision: Revision) -> dict[str, Any]:
        """A rule as evidence."""
        return {"rule": name, "tag": tag_of(self.knowledge, name, revision.tag)}

    def quantity(self, name: str, revision: Revision) -> dict[str, Any]:
        """A quantity as evidence."""
        return {"quantity": name, "tag": tag_of(self.knowledge, name, revision.tag)}


def _grid_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes a shipped grid distinct; the precision and its fine settings don't."""
    names = ("model_key", "task", "hardware", "num_gpus", "seq_length", "tp", "pp", "vpp", "cp", "ep", "etp", "fsdp")
    return (row["kind"] in TUNED, *(row.get(name) for name in names))


def judge(bench: Bench, revision: Revision, test: Mapping[str, Any]) -> Outcome:
    """Judge one test at a release; ``unjudged`` where it can't be asked there."""
    (form,) = test
    try:
        return _FORMS[form](bench, revision, test[form])
    except RequestError as error:
        return Outcome("unjudged", Text(f"Can't be asked here: {error}", f"此版本无法询问：{error}"))


def _equal(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    terms = bench.knowledge.terms
    ours, theirs = Expression(spec["to"], terms), Expression(spec["expression"], terms)
    program = bench.sizes(revision)
    same, tried, example = 0, 0, ""
    for values in itertools.product(*spec["over"].values()):
        facts = dict(zip(spec["over"], values, strict=True))
        known = infer(program, facts, engine="reference").facts
        if spec.get("where") and not Expression(spec["where"], terms).scalar(known):
            continue
        tried += 1
        a, b = theirs.scalar(known), ours.scalar(known)
        same += a == b
        if a != b and not example:
            example = ", ".join(f"{k} {'unset' if v is None else v}" for k, v in facts.items()) + f": {a}, {b}"
    verdict: Verdict = "holds" if same == tried else "in_part" if same else "fails"
    en, zh = f"Equal on {same} of {tried} inputs.", f"{tried} 组输入中有 {same} 组相等。"
    if example:
        en, zh = (
            f"{en} First difference (the guide's, ours): {example}.",
            f"{zh}首个不同之处（指南值，本项目值）：{example}。",
        )
    read_ = sorted((ours.names | theirs.names) & bench.knowledge.quantities.keys())
    return Outcome(verdict, Text(en, zh), tuple(bench.quantity(name, revision) for name in read_))


def _check(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    report = check({**spec["request"], "bridge": revision.tag}, knowledge=bench.knowledge)
    errors = [f for f in report.findings if f.kind == "constraint" and f.severity == "error"]
    fired = {f.rule: f for f in report.findings}
    sizes = {d.name: d.value for d in report.quantities}
    said: Verdict = "holds"
    en, zh = [], []
    if "runs" in spec:
        if bool(errors) == spec["runs"]:
            said = "fails"
        for f in errors:
            en.append(f"{f.rule}: {f.message.en}")
            zh.append(f"{f.rule}：{f.message.zh}")
        if not errors:
            en.append("No constraint refuses it.")
            zh.append("没有约束会拒绝它。")
    for rule in spec.get("rules", ()):
        if rule in fired:
            en.append(f"{rule} ({fired[rule].severity}): {fired[rule].message.en}")
            zh.append(f"{rule}（{fired[rule].severity}）：{fired[rule].message.zh}")
        else:
            said = "fails"
            en.append(f"{rule} doesn't fire.")
            zh.append(f"{rule} 不触发。")
    for name, value in spec.get("sizes", {}).items():
        if sizes.get(name) != value:
            said = "fails"
        en.append(f"{name} is {sizes.get(name)}.")
        zh.append(f"{name} 为 {sizes.get(name)}。")
    evidence = [
        bench.rule(name, revision) for name in dict.fromkeys([*(f.rule for f in errors), *spec.get("rules", ())])
    ]
    evidence += [bench.quantity(name, revision) for name in spec.get("sizes", {})]
    return Outcome(said, Text(" ".join(en), "".join(zh)), ({"check": said}, *evidence))


def _rules(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    fits, en, zh = 0, [], []
    evidence = []
    for name in spec["ids"]:
        rule = bench.knowledge.rules.get(name)
        here = rule.at(revision) if rule else None
        if here is None:
            en.append(f"{name}: absent")
            zh.append(f"{name}：此版本没有")
            continue
        fits += here.severity == spec["severity"]
        evidence.append(bench.rule(name, revision))
        en.append(f"{name}: {here.severity}, {evidence[-1]['tag']}")
        zh.append(f"{name}：{here.severity}，{evidence[-1]['tag']}")
    verdict: Verdict = "holds" if fits == len(spec["ids"]) else "in_part" if fits else "fails"
    return Outcome(verdict, Text("; ".join(en) + ".", "；".join(zh) + "。"), tuple(evidence))


def _at_place(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    place = _place(spec)
    found = bench.looked.places.get(revision.tag, {}).get(place.key)
    what = " ".join(word for word in (place.path, place.name) if word)
    if found is None:
        return Outcome("unjudged", Text(f"{what} was not looked up.", f"尚未查找 {what}。"))
    if "instead" in spec and isinstance(found, Missing):
        return _instead(bench, revision, spec)
    if isinstance(found, Missing):
        words = Text(f"{what}: no such {found.what}.", f"{what}：不存在（{found.what}）。")
        return Outcome("fails", words, ({"place": place.path, "missing": found.what},))
    first, last = found.lines
    evidence = ({"repo": place.repo, "place": place.path, "lines": [first, last]},)
    shown = place.path if place.kind == "file" else f"{place.path}:{first}"
    if "lines" not in spec:
        return Outcome("holds", Text(f"{shown} is there.", f"{shown} 存在。"), evidence)
    low, high = spec["lines"]
    if low <= first <= high:
        return Outcome("holds", Text(f"At line {first}, as said.", f"位于第 {first} 行，与所述一致。"), evidence)
    en, zh = f"Now at line {first}, not {low} to {high}.", f"现位于第 {first} 行，而非第 {low} 至 {high} 行。"
    return Outcome("fails", Text(en, zh), evidence)


def _instead(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    """What isn't there as claimed fails only where what stands there instead was found."""
    other = bench.looked.places.get(revision.tag, {}).get(_place({**spec, "text": spec["instead"]}).key)
    if not isinstance(other, Found):
        return Outcome("unjudged", Text(f"{spec['path']} doesn't speak of it.", f"{spec['path']} 未提及。"))
    en = f"{spec['path']}:{other.lines[0]} has {spec['instead']} instead."
    evidence = ({"repo": spec.get("repo", BRIDGE), "place": spec["path"], "lines": list(other.lines)},)
    return Outcome("fails", Text(en, f"{spec['path']}:{other.lines[0]} 处实为 {spec['instead']}。"), evidence)


def _shipped(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    rows = [r for r in bench.recipes.get(revision.tag, ()) if r["model_key"] in spec["models"]]
    if revision.tag not in bench.recipes:
        return _NO_RECIPES
    if not rows:
        return Outcome(
            "unjudged",
            Text("The facts hold no recipe of this model at this release.", "此版本的配方数据中没有该模型。"),
        )
    wanted = spec["grid"]
    same = [r for r in rows if all((r.get(name) or 1) == value for name, value in wanted.items())]
    tuned, library = ([r["recipe"] for r in same if (r["kind"] in TUNED) is kind] for kind in (True, False))
    all_tuned = sum(r["kind"] in TUNED for r in rows)
    all_library = len(rows) - all_tuned
    verdict: Verdict = "holds" if tuned else "in_part" if library else "fails"
    en = f"{len(tuned)} of {all_tuned} tuned recipes and {len(library)} of {all_library} library defaults have it"
    zh = f"{all_tuned} 个调优配方中有 {len(tuned)} 个、{all_library} 个库默认配方中有 {len(library)} 个采用此网格"
    if library and not tuned:
        en, zh = f"{en}: it is an untuned default", f"{zh}：它只是未调优的默认值"
    named = tuple(dict.fromkeys((*tuned, *library)))[:3]
    evidence = ({"recipes": list(named), "tuned": [len(tuned), all_tuned], "library": [len(library), all_library]},)
    return Outcome(verdict, Text(f"{en}.", f"{zh}。"), evidence)


def _practice(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    if revision.tag not in bench.recipes:
        return _NO_RECIPES
    terms = bench.knowledge.terms
    where, that = Conjunction(spec.get("where", []), terms), Conjunction(spec["that"], terms)
    counted = {True: [0, 0], False: [0, 0]}
    for row, facts in bench.facts(revision):
        if "tasks" in spec and row["task"] not in spec["tasks"]:
            continue
        if where.judge(facts) is True and isinstance(judged := that.judge(facts), bool):
            counted[row["kind"] in TUNED][0] += judged
            counted[row["kind"] in TUNED][1] += 1
    (tuned, of_tuned), (library, of_library) = counted[True], counted[False]
    en = f"True of {tuned} of {of_tuned} tuned grids and of {library} of {of_library} library defaults."
    zh = f"{of_tuned} 个调优网格中有 {tuned} 个、{of_library} 个库默认网格中有 {library} 个符合。"
    evidence = ({"recipes": [], "tuned": [tuned, of_tuned], "library": [library, of_library]},)
    if not of_tuned:
        return Outcome(
            "unjudged", Text(f"No tuned recipe to hold it to. {en}", f"没有可比对的调优配方。{zh}"), evidence
        )
    share = tuned / of_tuned
    verdict: Verdict = "holds" if share >= NEAR_ALL else "fails" if share <= NEXT_TO_NONE else "in_part"
    return Outcome(verdict, Text(en, zh), evidence)


def _estimate(bench: Bench, revision: Revision, spec: Mapping[str, Any]) -> Outcome:
    components = estimate({**spec["request"], "bridge": revision.tag}, knowledge=bench.knowledge).grid.memory.components
    close, en, zh = 0, [], []
    for row in spec["bytes"]:
        ours = sum(components.get(name, 0) for name in row["of"])
        close += abs(row["is"] / ours - 1) <= spec["within"] if ours else False
        en.append(f"{' + '.join(row['of'])}: {row['is'] / 1e9:.3g} GB said, {ours / 1e9:.3g} GB by our estimate")
        zh.append(f"{' + '.join(row['of'])}：指南 {row['is'] / 1e9:.3g} GB，本项目估算 {ours / 1e9:.3g} GB")
    verdict: Verdict = "holds" if close == len(spec["bytes"]) else "in_part" if close else "fails"
    return Outcome(verdict, Text("; ".join(en) + ".", "；".join(zh) + "。"), ({"estimate": verdict},))


def _open(bench: Bench, revision: Revision, spec: Mapping[str, str]) -> Outcome:
    return Outcome("unjudged", Text(spec["en"], spec["zh"]))


_FORMS: Mapping[str, Callable[[Bench, Revision, Any], Outcome]] = {
    "equal": _equal,
    "check": _check,
    "rules": _rules,
    "place": _at_place,
    "grid": _shipped,
    "practice": _practice,
    "estimate": _estimate,
    "open": _open,
}


def _read(root: Path, name: Path, schema: str) -> Any:
    document = read(root / name, name.as_posix())
    if problems := validate(document, schema):
        raise KnowledgeError(problems)
    return document.data


__all__ = [
    "Audit",
    "Bench",
    "Cell",
    "Claim",
    "Guide",
    "Looked",
    "Outcome",
    "Version",
    "audit",
    "joined",
    "judge",
    "look",
    "write",
]
