"""What a schema can't say: names, types, units, references, releases. Every mistake becomes a Problem with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from string import Formatter
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..errors import ExpressionError, Problem
from ..expressions import Expression, parse_unit
from . import build
from .model import Model, Revision, Rule, Term
from .schema import mistakes, near_miss
from .signs import Template
from .yaml_reader import Document

Step = str | int
_NUMBERS = ("int", "float")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_CONCLUSIONS: Mapping[str, tuple[str, ...]] = {
    "constraint": ("violation",),
    "pitfall": ("violation",),
    "derivation": ("derive",),
    "sizing": ("advice", "derive", "prefer"),
    "diagnosis": ("diagnosis",),
}
"""Kind of rule -> what its ``then`` must have at least one of."""


def check_documents(root: Path, documents: Sequence[tuple[str, Document]]) -> list[Problem]:
    """All mistakes of the documents, of shape and of meaning. An entry of wrong shape is not looked into further."""
    checks = _Checks(root, documents)
    checks.run()
    return list(dict.fromkeys(checks.problems))


class Place:
    """A place in a document, which knows how to complain."""

    def __init__(self, document: Document, path: tuple[Step, ...], problems: list[Problem]) -> None:
        self.document, self.path, self._problems = document, path, problems

    def at(self, *steps: Step) -> Place:
        return Place(self.document, (*self.path, *steps), self._problems)

    def wrong(self, reason: str, expected: str = "") -> None:
        self._problems.append(self.document.problem(self.path, reason, expected))


class _Checks:
    def __init__(self, root: Path, documents: Sequence[tuple[str, Document]]) -> None:
        self.root, self.documents = root, documents
        self.problems: list[Problem] = []
        self.flawed: dict[str, set[tuple[Step, ...]]] = {}  # file -> paths of wrong shape
        self.terms: dict[str, Term] = {}
        self.revisions: dict[str, Revision] = {}

    def run(self) -> None:
        kinds = {kind for kind, _ in self.documents}
        for kind in ("knowledge", "vocabulary", "revisions"):
            if kind not in kinds:
                expected = f"knowledge/{kind}.yaml"
                self.problems.append(Problem(expected, None, "", "is missing or can't be read", expected))
        for kind, document in self.documents:
            wrong = mistakes(document.data, kind)
            self.problems += [document.problem(*mistake) for mistake in wrong]
            self.flawed[document.file] = {path for path, _, _ in wrong}
            self.texts(Place(document, (), self.problems), document.data)
        base = [d.file for kind, d in self.documents if kind in ("vocabulary", "revisions")]
        self.vocabulary()
        self.releases()
        if len(base) < 2 or any(p.file in base for p in self.problems):
            return  # without the names and releases all the rest would look wrong
        self.gpus()
        self.models()
        self.calibration()
        self.quantities()
        self.rules()

    # Walking

    def entries(self, kind: str, key: str | None = None) -> Iterator[tuple[Place, Any]]:
        """The entries of right shape of all files of a kind: under a key, or each file as a whole."""
        for of, document in self.documents:
            if of != kind:
                continue
            wrong = self.flawed[document.file]
            if key is None:
                if not wrong:
                    yield Place(document, (), self.problems), document.data
                continue
            content = document.data.get(key) if isinstance(document.data, dict) else None
            if not isinstance(content, dict if kind == "vocabulary" else list):
                continue
            for step in content if isinstance(content, dict) else range(len(content)):
                if not any(path[:2] == (key, step) for path in wrong):
                    yield Place(document, (key, step), self.problems), content[step]

    def texts(self, place: Place, data: Any) -> None:
        """Every text for people is in Chinese too."""
        if isinstance(data, dict):
            en, zh = data.get("en"), data.get("zh")
            if isinstance(en, str) and isinstance(zh, str):
                if not _CHINESE.search(zh) and len(en.split()) > 3:
                    place.at("zh").wrong("isn't Chinese", "the text in Simplified Chinese")
                return
            for key, value in data.items():
                self.texts(place.at(key), value)
        elif isinstance(data, list):
            for n, value in enumerate(data):
                self.texts(place.at(n), value)

    def unique(self, place: Place, seen: dict[str, str], owner: str, spellings: Iterable[str], what: str) -> None:
        """No spelling belongs to two owners; case doesn't tell them apart."""
        for spelling in dict.fromkeys(s.lower() for s in spellings):
            if seen.setdefault(spelling, owner) != owner:
                place.wrong(f"the {what} {spelling!r} belongs to {seen[spelling]} already", f"a {what} of its own")

    def once(self, place: Place, seen: dict[str, str], key: str, what: str) -> bool:
        if key in seen:
            place.wrong(f"the {what} {key!r} is taken in {seen[key]}", f"a {what} of its own")
            return False
        line = place.document.line(place.path)
        seen[key] = f"{place.document.file}:{line}"
        return True

    # Vocabulary and releases

    def vocabulary(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("vocabulary", "terms"):
            name = str(place.path[-1])
            term = self.terms[name] = build.term(name, data)
            for spelling in dict.fromkeys((name, term.field, *term.aliases)):
                if seen.setdefault(spelling, name) != name:
                    place.wrong(f"{spelling!r} means {seen[spelling]} already", "a spelling of its own")
            self.term(place, term, data.get("default"))
        for place, data in self.entries("vocabulary", "terms"):
            bounds, suggests = data.get("bounds"), data.get("suggests")
            if bounds and bounds["name"] not in self.terms:
                place.at("bounds", "name").wrong(*self._unknown(bounds["name"]))
            if suggests and suggests not in self.terms:
                place.at("suggests").wrong(*self._unknown(suggests))
            for n, text in enumerate(data.get("in_log", ())):
                self.sign(place.at("in_log", n), text, place.path[-1])

    def term(self, place: Place, term: Term, default: Any) -> None:
        try:
            parse_unit(term.unit)
        except ValueError as error:
            place.at("unit").wrong(f"isn't a unit ({error})", "a product of base units")
        if term.unit != "1" and term.type not in _NUMBERS:
            place.at("unit").wrong(f"a {term.type} has no unit", "no unit")
        for key in ("min", "max"):
            if getattr(term, key) is not None and term.type not in _NUMBERS:
                place.at(key).wrong(f"a {term.type} has no {key}", f"no {key}")
        if term.min is not None and term.max is not None and term.min > term.max:
            place.at("max").wrong(f"is below min ({term.max:g} < {term.min:g})", "max at least min")
        if term.values and term.type not in ("str", "list"):
            place.at("values").wrong(f"a {term.type} has no values", "values only for str and list")
        if term.bounds and term.section != "derived":
            place.at("bounds").wrong("only a derived name can bound another", "section: derived")
        if term.suggests and term.section != "derived":
            place.at("suggests").wrong("only a derived name can suggest another", "section: derived")
        if term.tentative and not term.suggests:
            place.at("tentative").wrong("belongs to a suggestion", "suggests")
        if term.section == "derived" and term.default is not None:
            place.at("default").wrong("a derived name has no default", "no default")
        for n, (spec, value) in enumerate(term.default.cases if term.default else ()):
            here = place.at("default")
            if isinstance(default, list) and default and isinstance(default[0], dict):
                here = place.at("default", n, "value")
                self.specifier(place.at("default", n, "bridge"), spec)
            if reason := misfit(term, value):
                here.wrong(reason, "a default that fits type, range and values")

    def releases(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("revisions", "revisions"):
            revision = build.revision(data)
            if self.once(place.at("tag"), seen, revision.tag, "tag"):
                self.revisions[revision.tag] = revision
            self.day(place.at("released"), revision.released)

    # Facts

    def gpus(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("gpu"):
            gpu = build.gpu(data)
            self.unique(place, seen, gpu.name, (gpu.name, *gpu.aliases), "name")
            for attribute in data:
                if attribute not in ("name", "aliases", "note", "citations") and attribute not in gpu.citations:
                    place.at("citations").wrong(f"has no source of {attribute}", "a citation for each figure")

    def models(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("model"):
            model: Model = build.model(data)
            ids = [model.hf_id] if model.hf_id else []
            self.unique(place, seen, model.name, (model.name, *model.aliases, *ids), "name")
            for n, key in enumerate(model.recipe_keys):
                folder = self.root / "knowledge" / "facts" / "recipes"
                if not (folder / f"{key}.yaml").is_file():
                    known = sorted(path.stem for path in folder.glob("*.yaml"))
                    place.at("recipe_keys", n).wrong(f"there is no recipe file for {key!r}", near_miss(key, known))

    def calibration(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("calibration", "constants"):
            self.once(place.at("name"), seen, data["name"], "name")
            try:
                parse_unit(data.get("unit", "1"))
            except ValueError as error:
                place.at("unit").wrong(f"isn't a unit ({error})", "a product of base units")

    # Quantities and rules

    def quantities(self) -> None:
        seen: dict[str, str] = {}
        for place, data in self.entries("quantities", "quantities"):
            quantity = build.quantity(data)
            self.once(place.at("name"), seen, quantity.name, "name")
            reach = self.reach(place.at("bridge"), quantity.bridge)
            term = self.derived(place.at("name"), quantity.name)
            self.conclusion(place.at("formula"), quantity.formula, term)
            for n, (spec, formula) in enumerate(quantity.variants):
                self.variant(place.at("variants", n, "bridge"), spec, quantity.variants[:n], reach)
                self.conclusion(place.at("variants", n, "formula"), formula, term)
            for n, (given, result, bridge) in enumerate(quantity.examples):
                here = place.at("examples", n)
                self.release(here.at("bridge"), bridge, reach)
                for name, value in given.items():
                    self.fact(here.at("given", name), name, value)
                if term is not None and (reason := misfit(term, result)):
                    here.at("is").wrong(reason, f"a value of {term.name}")

    def rules(self) -> None:
        ids = {
            rule.get("id")
            for kind, document in self.documents
            if kind == "rules" and isinstance(document.data, dict) and isinstance(document.data.get("rules"), list)
            for rule in document.data["rules"]
            if isinstance(rule, dict)
        }
        seen: dict[str, str] = {}
        for place, data in self.entries("rules", "rules"):
            rule = build.rule(data, place.document.file, None)
            self.once(place.at("id"), seen, rule.id, "id")
            self.day(place.at("since"), rule.since)
            reach = self.reach(place.at("bridge"), rule.bridge)
            self.body(place, data, rule.kind)
            for n, (spec, _) in enumerate(rule.variants):
                self.variant(place.at("variants", n, "bridge"), spec, rule.variants[:n], reach)
                self.body(place.at("variants", n), data["variants"][n], rule.kind)
            for n, other in enumerate(rule.related):
                if other not in ids or other == rule.id:
                    reason = "is this rule itself" if other == rule.id else f"there is no rule {other!r}"
                    place.at("related", n).wrong(reason, near_miss(other, sorted(map(str, ids - {rule.id}))))
            self.signs(place, rule, ids)
            self.examples(place, rule, reach)

    def signs(self, place: Place, rule: Rule, ids: set[Any]) -> None:
        """How a run shows the rule, and what only a diagnosis has."""
        for n, sign in enumerate(rule.signs):
            self.sign(place.at("signs", n, "text"), sign.text)
            self.specifier(place.at("signs", n, "bridge"), sign.bridge)
        if rule.kind != "diagnosis":
            for key in ("symptoms", "refines", "causes", "asks", "confirm", "aftermath"):
                if key in self._data(place):
                    place.at(key).wrong(f"a {rule.kind} has no {key}", "kind: diagnosis")
            return
        if rule.refines is not None and (rule.refines not in ids or rule.refines == rule.id):
            place.at("refines").wrong(
                f"there is no rule {rule.refines!r}", near_miss(rule.refines, sorted(map(str, ids)))
            )
        if not (rule.signs or rule.symptoms.en or rule.when or rule.refines):
            place.wrong("nothing leads to this diagnosis", "signs, symptoms or conditions")
        for n, cause in enumerate(rule.causes):
            if cause not in ids or cause == rule.id:
                place.at("causes", n).wrong(f"there is no rule {cause!r}", near_miss(cause, sorted(map(str, ids))))
        for n, name in enumerate(rule.asks):
            if name not in self.terms:
                place.at("asks", n).wrong(*self._unknown(name))
        self.template(place.at("confirm"), {"en": rule.confirm.en, "zh": rule.confirm.zh} if rule.confirm else {})

    def sign(self, place: Place, text: str, shows: Step | None = None) -> None:
        """A template of a message; ``shows`` is the name that it must read."""
        try:
            template = Template.compile(text, self.terms)
        except ValueError as error:
            place.wrong(f"can't be matched: {error}", "words, {name} and ...")
            return
        if shows is not None and shows not in template.names:
            place.wrong(f"doesn't read {shows}", f"{{{shows}}} in the template")

    def _data(self, place: Place) -> Mapping[str, Any]:
        data: Any = place.document.data
        for step in place.path:
            data = data[step]
        return dict(data)

    def body(self, place: Place, data: Mapping[str, Any], kind: str) -> None:
        """The parts that a rule and its variants share."""
        for n, source in enumerate(data.get("when", ())):
            self.expression(place.at("when", n), source, Expression.require_condition)
        if "then" in data:
            then, here = data["then"], place.at("then")
            if not any(key in then for key in _CONCLUSIONS[kind]):
                here.wrong(f"a {kind} without {' or '.join(_CONCLUSIONS[kind])} says nothing", "a conclusion")
            for key in ("violation", "advice", "diagnosis"):
                self.template(here.at(key), then.get(key, {}))
            for name, source in then.get("derive", {}).items():
                self.conclusion(here.at("derive", name), source, self.derived(here.at("derive", name), name))
            for n, preference in enumerate(then.get("prefer", ())):
                self.expression(here.at("prefer", n, "that"), preference["that"], Expression.require_condition)
        fix = data.get("fix", {})
        self.template(place.at("fix", "text"), fix.get("text", {}))
        for name, value in fix.get("set", {}).items():
            here = place.at("fix", "set", name)
            term = self.terms.get(name)
            if term is None:
                here.wrong(*self._unknown(name))
            elif term.section == "derived":
                here.wrong(f"{name} is computed and can't be set", "a name that a request can give")
            elif isinstance(value, str) and value.startswith("="):
                self.conclusion(here, value[1:].strip(), term)
            elif reason := misfit(term, tuple(value) if isinstance(value, list) else value):
                here.wrong(reason, f"a value of {name}, or '= expression'")

    def examples(self, place: Place, rule: Rule, reach: list[Revision]) -> None:
        for key, examples in (("fires", rule.fires), ("quiet", rule.quiet)):
            if rule.when and not rule.withdrawn and not examples:
                place.at("examples", key).wrong(f"the rule has no example that {_SAYS[key]}", "at least one")
            for n, example in enumerate(examples):
                here = place.at("examples", key, n)
                self.release(here.at("bridge"), example.bridge, reach)
                for name, value in example.facts.items():
                    self.fact(here.at(name), name, value)

    # Small parts

    def _unknown(self, name: str) -> tuple[str, str]:
        return f"the name {name!r} isn't in the vocabulary", near_miss(name, self.terms)

    def derived(self, place: Place, name: str) -> Term | None:
        term = self.terms.get(name)
        if term is None:
            place.wrong(*self._unknown(name))
        elif term.section != "derived":
            place.wrong(f"{name} is given ({term.section}), and facts never change", "a name of section derived")
            return None
        return term

    def fact(self, place: Place, name: str, value: Any) -> None:
        """An example's fact. It may be out of range, to show what a rule says of that."""
        term = self.terms.get(name)
        if term is None:
            place.wrong(*self._unknown(name))
        elif reason := misfit(term, value, ranges=False):
            place.wrong(reason, f"a value of {name}")

    def conclusion(self, place: Place, source: str, term: Term | None) -> None:
        self.expression(place, source, (lambda e: e.require(term)) if term else lambda e: None)

    def expression(self, place: Place, source: str, require: Callable[[Expression], None]) -> None:
        try:
            require(Expression(source, self.terms))
        except ExpressionError as error:
            at = "" if error.column is None else f" (column {error.column + 1})"
            place.wrong(f"{source!r}{at}: {error.reason}", "an expression over the vocabulary")

    def template(self, place: Place, text: Mapping[str, str]) -> None:
        for lang, words in text.items():
            here = place.at(lang)
            try:
                fields = list(Formatter().parse(words))
            except ValueError as error:
                here.wrong(f"its braces don't match ({error})", "{name}, and {{ }} for braces")
                continue
            for _, name, form, conversion in fields:
                if name is None:
                    continue
                if form or conversion or not name.isidentifier():
                    here.wrong(f"has the placeholder {{{name}}} in a form that isn't supported", "a bare {name}")
                elif name not in self.terms:
                    here.wrong(*self._unknown(name))

    def day(self, place: Place, text: str) -> None:
        try:
            date.fromisoformat(text)
        except ValueError:
            place.wrong(f"{text!r} is no day", "a date such as 2026-12-02")

    def specifier(self, place: Place, text: str) -> bool:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            place.wrong(f"{text!r} isn't a PEP 440 specifier", "e.g. >=0.2.0,<0.4")
            return False
        return True

    def reach(self, place: Place, spec: str) -> list[Revision]:
        """The releases that a specifier takes in; none is a mistake."""
        if not self.specifier(place, spec):
            return []
        found = [revision for revision in self.revisions.values() if revision.within(spec)]
        if not found:
            place.wrong(f"{spec!r} takes in no known release", f"some of {', '.join(self.revisions)}")
        return found

    def variant(self, place: Place, spec: str, before: Sequence[tuple[str, Any]], reach: list[Revision]) -> None:
        if not self.specifier(place, spec) or not reach:
            return
        inside = [revision for revision in reach if revision.within(spec)]
        if not inside:
            place.wrong(f"{spec!r} takes in no release of the rule's own range", "a part of that range")
        elif not any(self._first(revision, before) for revision in inside):
            place.wrong(f"{spec!r} is covered by the variants before it", "releases of its own")

    @staticmethod
    def _first(revision: Revision, before: Sequence[tuple[str, Any]]) -> bool:
        try:
            return not any(revision.within(spec) for spec, _ in before)
        except InvalidSpecifier:
            return True

    def release(self, place: Place, tag: str | None, reach: list[Revision]) -> None:
        if tag is None or not reach:
            return
        if tag not in self.revisions:
            place.wrong(f"there is no release {tag!r}", near_miss(tag, self.revisions))
        elif tag not in {revision.tag for revision in reach}:
            place.wrong(f"{tag} is outside the range that is spoken of", "a release inside it")


_SAYS = {"fires": "fires", "quiet": "stays quiet"}


def misfit(term: Term, value: Any, *, ranges: bool = True) -> str | None:
    """Why a value can't be one of a term, or None where it can. Without ``ranges`` only the type counts."""
    if value is None:
        return None if term.nullable else f"{term.name} can't be unset"
    kinds: Mapping[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str, "list": tuple}
    if not isinstance(value, kinds[term.type]) or (isinstance(value, bool) and term.type != "bool"):
        return f"{value!r} isn't of type {term.type}, as {term.name} is"
    if not ranges:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if term.min is not None and value < term.min:
            return f"{value} is below the least {term.name}, {term.min:g}"
        if term.max is not None and value > term.max:
            return f"{value} is above the largest {term.name}, {term.max:g}"
    for item in value if isinstance(value, tuple) else (value,):
        if term.values and item not in term.values:
            return f"{item!r} is none of the values of {term.name}: {', '.join(term.values)}"
    return None
