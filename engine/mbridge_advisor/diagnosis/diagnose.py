"""``diagnose``: why did this run fail, hang, or get slow?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..advice.check import SHAPE, judge
from ..advice.common import as_request, package_version
from ..advice.results import Grid, NotJudged, Statement
from ..advice.statements import COUNTED, fill, fix_values, not_judged, show, statement, statements
from ..architecture import FIELD_NAMES
from ..errors import RequestError
from ..evidence.tags import tag_of
from ..expressions import Conjunction
from ..inference import Inference, Program
from ..inference.program import placeholders
from ..intake.request import Request, check_value, find_gpu, find_model, parse_request
from ..knowledge.model import Knowledge, Revision, Rule, Term, Text, Value
from . import criteria
from .compare import compare, estimated, former
from .results import Ask, Cause, Certainty, Comparison, Diagnosis, Observed
from .scan import MAX_RANKS, Evidence, Hit, Scan, scan
from .stream import Log
from .words import Words, read_words

CERTAINTIES: tuple[Certainty, ...] = ("confirmed", "likely", "possible")
WAITING = ("MB-HANG-001", "MB-HANG-004", "MB-HANG-005")  # reported by ranks that wait for others
SHOWN_SILENT = 16
SEVERITIES = ("error", "override", "warning", "advice")
WANTED = ("gpu", "world_size", "tp", "pp", "cp", "ep", "seq_length", "mbs", "gbs")  # where nothing else is known
_NOTHING = Scan()
_STATIC = ("weights", "gradients", "main_params", "optimizer_states", "fp8_copies")


def diagnose(
    request: Mapping[str, Any] | Request | None = None,
    *,
    log: Log | Mapping[str, Log] | None = None,
    symptom: str = "",
    before: Mapping[str, Any] | Request | None = None,
    plan: Mapping[str, Any] | None = None,
    knowledge: Knowledge | None = None,
) -> Diagnosis:
    """Find out why a run failed, hangs or is slow, or whether a smoke run did what its plan asks.

    Any of the parts may be missing. A log tells what ran, so where it contradicts the request it is believed, with a
    note; words only fill in what nobody else tells.

    Args:
        request: the configuration, as for :func:`check`.
        log: path of a log (plain or gzip), a binary stream, or lines; or several of them by name. Each is read once, in
            bounded memory.
        symptom: what people say, in English or Chinese; error lines may be part of it.
        before: the configuration before the trouble (or with which the checkpoint was saved).
        plan: a smoke plan as :func:`mbridge_advisor.advice.smoke.plan` gives it (``to_dict()``), of which the log is
            the run: its success criteria are judged, and its configuration is taken where ``request`` is None.
        knowledge: another knowledge base than the packaged one.

    Raises:
        RequestError: nothing was given, something can't be understood, or a plan without a log.
    """
    if plan is not None:
        request = criteria.configuration(plan) if request is None else request
        if log is None:
            raise RequestError("plan", None, "has no log beside it", "Give the log of its run.")
    if request is None and log is None and before is None and not symptom.strip():
        raise RequestError("diagnose", None, "was given nothing", "Give a log, a symptom or a configuration.")
    checked, base = as_request({} if request is None else request, knowledge)
    former_request = None if before is None else as_request(before, base)[0]
    seen = _NOTHING if log is None else scan(log, base)
    words = read_words(symptom, base)
    spoken = scan(symptom.splitlines(), base)
    hits = (*seen.hits, *(replace(h, evidence=replace(h.evidence, line=0)) for h in spoken.hits))
    told_release = isinstance(request, Request) or bool((request or {}).get("bridge"))
    if not told_release:
        checked = replace(checked, revision=_release(hits, base))
    merged, observed, notes = _merge(checked, hits, (seen, spoken), words, base)
    comparison = None if former_request is None else compare(former_request, merged, base)
    more = _more(merged, hits, (seen, spoken), former_request, comparison, base)
    whole = seen.whole or former_request is not None or _gives_grid(checked, base)
    open_names = () if whole else tuple(n for n in SHAPE if n not in merged.values)
    inference, program, assumed = judge(merged, base, open_names=open_names, more=more)
    assumed = assumed if request is not None else []
    case = _Case(base, merged.revision, inference, program, frozenset(more) | observed.keys(), request is not None)
    causes = case.causes(hits, words)
    named = {c.rule for c in causes} | {s.rule for c in causes for s in c.behind}
    findings = statements(inference, program, base, kinds=("constraint", "pitfall"))
    lacking = not_judged(inference, program, base, kinds=("constraint", "pitfall"))
    return Diagnosis(
        request=merged.to_dict(base),
        bridge=merged.revision.tag,
        knowledge=base.version,
        package=package_version(),
        notes=(*(Text(n, n) for n in checked.notes), *notes, *assumed, *seen.reading.notes),
        causes=causes,
        findings=tuple(f for f in findings if f.rule not in named),
        observed=observed,
        unknown=() if any(c.certainty == "confirmed" for c in causes) else seen.unknown,
        asks=tuple(case.asked(causes)) if causes or seen.unknown or symptom.strip() else (),
        comparison=comparison,
        not_judged=lacking,
        criteria=() if plan is None else criteria.judged(plan, seen, base),
        lines=seen.reading.lines,
        configured=request is not None,
        described=bool(symptom.strip()),
    )


@dataclass(frozen=True)
class _Case:
    """All that is known about one trouble."""

    base: Knowledge
    revision: Revision
    inference: Inference
    program: Program
    observed: frozenset[str]  # names that log, words, estimate or the former configuration gave
    configured: bool  # whether a configuration was given

    def causes(self, hits: Iterable[Hit], words: Words) -> tuple[Cause, ...]:
        """Every cause, best first."""
        by_rule: dict[str, list[Hit]] = {}
        for hit in hits:
            by_rule.setdefault(hit.rule, []).append(hit)
        found = list(self._enforced(by_rule))
        for rule in self.base.rules.values():
            here = rule.at(self.revision) or rule
            if rule.kind == "diagnosis" and not rule.withdrawn:
                family = [rule.id, *([rule.refines] if rule.refines else [])]
                mine = [hit for name in family for hit in by_rule.get(name, [])]
                phrase = next((words.rules[name] for name in family if name in words.rules), None)
                cause = self._diagnosed(here, mine, phrase)
                found += [cause] if cause else []
        named = {c.rule for c in found}
        for finding in statements(self.inference, self.program, self.base, kinds=("constraint", "pitfall")):
            if finding.severity == "error" and finding.rule not in named:
                found.append(self._of_config(finding))
        refined = {self.base.rules[c.rule].refines for c in found}
        return tuple(sorted((replace(c, general=c.rule in refined) for c in found), key=_rank))

    def _enforced(self, by_rule: Mapping[str, list[Hit]]) -> Iterator[Cause]:
        """Constraints and pitfalls whose own message was seen.

        One message may be that of several rules; those whose conditions hold on the numbers go before the rest.
        """
        judged = {}
        for rule_id, hits in by_rule.items():
            rule = self.base.rules[rule_id].at(self.revision) or self.base.rules[rule_id]
            if rule.kind != "diagnosis":
                judged[rule_id] = rule, hits, self._judge(rule)
        for rule, hits, verdict in judged.values():
            texts = {h.sign.text for h in hits}
            rivals = [v for _, other, v in judged.values() if texts & {h.sign.text for h in other}]
            if verdict is not True and True in rivals:
                continue
            if verdict is False and any(isinstance(v, frozenset) for v in rivals):
                continue
            contradicted = verdict is False and self.configured
            certainty: Certainty = "likely" if contradicted else "confirmed"
            cause = self._cause(rule, certainty, tuple(h.evidence for h in hits), hits=hits)
            if contradicted:
                cause = replace(cause, confirm=_OTHER_CONFIG)
            yield cause

    def _diagnosed(self, rule: Rule, hits: list[Hit], phrase: str | None) -> Cause | None:
        verdict = self._judge(rule)
        if verdict is False:
            return None
        behind = tuple(self._behind(rule))
        evidence = tuple(h.evidence for h in hits) or ((Evidence(0, phrase),) if phrase else ())
        silent = rule.when and not (rule.signs or rule.symptoms.en or rule.refines)  # numbers alone lead to it
        certainty: Certainty
        if verdict is True and (hits or (silent and self._read(rule) & self.observed)):
            estimate = any(n.startswith("estimated_") or n == "speed_ratio" for n in self._read(rule))
            certainty = "likely" if estimate else "confirmed"
        elif hits or phrase:
            if verdict is not True and (rule.refines or (not hits and not self._askable(verdict))):
                return None  # a general one says all that is known, or nobody could tell what is missing
            certainty = "likely" if (verdict is True and rule.when) or behind else "possible"
        else:
            return None
        return self._cause(rule, certainty, evidence, hits=hits, behind=behind)

    def _of_config(self, finding: Statement) -> Cause:
        rule = self.program.rules[finding.rule].rule
        assert rule is not None
        return self._cause(rule, "confirmed", ())

    def _judge(self, rule: Rule) -> bool | frozenset[str]:
        return Conjunction(rule.when, self.base.terms).judge(self.inference.facts)

    def _askable(self, names: bool | frozenset[str]) -> bool:
        """Whether somebody could tell, or a derivation conclude, all of these names."""
        terms, told = self.base.terms, (n for n in names) if isinstance(names, frozenset) else ()
        return all(terms[n].section != "derived" or n in COUNTED or self.program.derivers(n) for n in told)

    def _read(self, rule: Rule) -> frozenset[str]:
        return Conjunction(rule.when, self.base.terms).names

    def _behind(self, rule: Rule) -> Iterator[Statement]:
        fired = {f.rule: f for f in self.inference.firings}
        said: set[str] = set()
        for cause in rule.causes:
            step = self.program.rules.get(cause)
            if step is not None and step.rule is not None and cause in fired and step.rule.then.message is not None:
                facts = self.inference.facts
                found = statement(step.rule, fired[cause].facts, facts, self.base, self.revision)
                if found.message.en not in said:
                    yield found
                said.add(found.message.en)

    def _cause(
        self,
        rule: Rule,
        certainty: Certainty,
        evidence: tuple[Evidence, ...],
        hits: Iterable[Hit] = (),
        behind: tuple[Statement, ...] = (),
    ) -> Cause:
        facts = self.inference.facts
        terms = self.base.terms
        message = rule.then.message
        assert message is not None
        if rule.kind == "diagnosis" and not set(placeholders(message)) <= facts.keys():
            message = rule.title  # its numbers aren't known
        tags = [
            tuple(r.tag for r in self.base.revisions.values() if r.within(h.sign.bridge))
            for h in hits
            if h.sign.bridge != ">=0"
        ]
        lacking = self._lacking(rule)
        missing = {m for row in lacking for m in row.missing}
        wanted = [terms[n].field for n in rule.asks if n not in facts]
        return Cause(
            rule=rule.id,
            kind=rule.kind,
            severity=rule.severity,
            status=tag_of(self.base, rule.id, self.revision.tag),
            certainty=certainty,
            message=fill(message, facts, terms),
            because=fill(rule.because, facts, terms),
            evidence=_once(evidence),
            facts={n: facts[n] for n in sorted(self._read(rule)) if n in facts},
            citations=rule.citations,
            fix=fill(rule.fix.text, facts, terms) if rule.fix and rule.fix.text else None,
            set=fix_values(rule.fix, facts, self.base) if rule.fix else {},
            behind=behind,
            open=tuple(lacking),
            asks=tuple(dict.fromkeys((*wanted, *sorted(missing)))),
            confirm=fill(rule.confirm, facts, terms) if rule.confirm else None,
            releases=tags[0] if tags else (),
            aftermath=rule.aftermath,
        )

    def _lacking(self, rule: Rule) -> list[NotJudged]:
        """The rule itself, or the rules behind a diagnosis, that can't be judged yet."""
        rows = not_judged(self.inference, self.program, self.base, kinds=("constraint", "pitfall"))
        return [row for row in rows if row.rule in (rule.id, *rule.causes)]

    def asked(self, causes: tuple[Cause, ...]) -> Iterator[Ask]:
        """What to tell, most wanted first; the usual things where nothing was recognised."""
        fields = [field for c in causes for field in c.asks]
        if not causes:
            fields = [self.base.terms[n].field for n in WANTED if n not in self.inference.facts]
        for field in dict.fromkeys(fields):
            term = self.base.by_field.get(field)
            yield Ask(field, term.title if term is not None else Text(field, field))


_OTHER_CONFIG = Text(
    "The given configuration doesn't break this rule, so the run didn't use it as it stands: look for overrides, "
    "fields that the installed version names otherwise, or a layout left from before a change.",
    "给定的配置并不违反该规则，说明实际运行用的不是这份配置：请检查覆盖项、已安装版本中改名的字段，或修改后遗留的旧布局。",
)


def _once(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Each line once; of two signs on one line the first tells."""
    first: dict[tuple[str, int], Evidence] = {}
    for e in evidence:
        first.setdefault((e.file, e.line), e)
    return tuple(first[place] for place in sorted(first, key=lambda p: p[1]))


def _rank(cause: Cause) -> tuple[Any, ...]:
    """First what isn't an aftermath, then what the log shows; then by certainty, severity, place, detail."""
    lines = [e.line or 10**15 for e in cause.evidence]
    return (
        cause.aftermath,
        cause.general,
        not any(e.line for e in cause.evidence),
        CERTAINTIES.index(cause.certainty),
        SEVERITIES.index(cause.severity),
        min(lines, default=10**16),
        not cause.rule.startswith("MB-WORLD-"),  # the first check of a run
        -len(cause.facts),
        cause.rule,
    )


def _release(hits: tuple[Hit, ...], base: Knowledge) -> Revision:
    """The newest release in which every message is worded as it was seen; the newest at all where there is none."""
    fit = [r for r in base.revisions.values() if all(r.within(h.sign.bridge) for h in hits)]
    return max(fit or base.revisions.values(), key=lambda r: r.version)


def _gives_grid(request: Request, base: Knowledge) -> bool:
    return any(base.terms[name].section == "grid" for name in request.values)


def _merge(
    request: Request, hits: tuple[Hit, ...], scans: tuple[Scan, ...], words: Words, base: Knowledge
) -> tuple[Request, dict[str, Observed], list[Text]]:
    """The request with what messages, printed settings and words add to it, what was observed, and notes."""
    told: dict[str, tuple[Value, int]] = {}
    for hit in hits:
        for name, value in hit.values.items():
            told.setdefault(name, (value, hit.evidence.line))
    for s in scans:
        for name, value in (*s.values.items(), *s.settings.items()):
            told.setdefault(name, (value, s.lines_of.get(name, 0) if s is scans[0] else 0))
    for name, value in words.values.items():
        told.setdefault(name, (value, 0))
    notes: list[Text] = []
    added: dict[str, Value] = {}
    for name, (value, line) in told.items():
        term = base.terms[name]
        if not _requestable(term) or name in ("gpu", "model"):
            continue
        try:
            value = check_value(term, value, term.field)
        except RequestError:
            continue
        built = request.architecture if term.section == "model" else None
        known = name in request.values or built is not None
        given = getattr(built, name, value) if built is not None else request.values.get(name)
        if not known:
            added[name] = value
        elif given != value and line:
            notes.append(_differs(term.field, given, value, line))
            if built is None:
                added[name] = value
    merged = request.with_values(**added)
    if merged.gpu is None and words.gpu is not None:
        merged = replace(merged, gpu=find_gpu(words.gpu, base))
    if merged.architecture is None and words.model is not None and not _dimensions(merged, base):
        model = find_model(words.model, base)
        merged = replace(merged, architecture=model.architecture, model=model, model_name=model.name)
    if merged.architecture is None and _dimensions(merged, base):
        with suppress(RequestError):
            merged = parse_request(merged.to_dict(base), base)  # a model, where the log shows all that makes one
    observed = {n: _observed(base.terms[n], v, line) for n, (v, line) in told.items()}
    return merged, observed, notes


def _requestable(term: Term) -> bool:
    """Whether a request can give the name."""
    return term.section != "derived" and (term.section != "model" or term.field in FIELD_NAMES)


def _observed(term: Term, value: Value, line: int) -> Observed:
    texts = []
    for lang in ("en", "zh"):
        label = term.title[lang] if term.section == "derived" else term.field
        texts.append(f"{label} {show(value, term, lang)}{' s' if term.unit == 'second' else ''}")
    return Observed(term.field, value, line, Text(*texts))


def _differs(field: str, given: Value, seen: Value, line: int) -> Text:
    return Text(
        f"The configuration gives {field} = {given}, but line {line} of the log shows {seen}: that is what ran.",
        f"配置中 {field} = {given}，但日志第 {line} 行显示 {seen}：实际运行用的是后者。",
    )


def _dimensions(request: Request, base: Knowledge) -> bool:
    return any(base.terms[name].section == "model" for name in request.values)


def _more(
    request: Request,
    hits: tuple[Hit, ...],
    scans: tuple[Scan, ...],
    before: Request | None,
    comparison: Comparison | None,
    base: Knowledge,
) -> dict[str, Value]:
    """Facts that no request can give: read from messages, estimated, or of the former configuration and the release."""
    more: dict[str, Value] = {}
    for values in (*(h.values for h in hits), *(s.values for s in scans)):
        for name, value in values.items():
            if not _requestable(base.terms[name]):
                more.setdefault(name, value)
    if before is not None:
        more |= former(before, base)
    if comparison is not None and comparison.speed_ratio is not None:
        more["speed_ratio"] = comparison.speed_ratio
    more |= _silent(hits, request)
    if request.gpu is None and "oom_capacity" in more:
        more["gpu_memory"] = more["oom_capacity"]
    grid = comparison.after if comparison is not None else estimated(request, base)
    if grid is not None:
        more |= _estimates(grid)
    return more


def _estimates(grid: Grid) -> dict[str, Value]:
    """The estimate as facts."""
    parts = grid.memory.components
    out: dict[str, Value] = {
        "estimated_memory": grid.memory.total,
        "estimated_static": sum(parts.get(name, 0) for name in _STATIC),
        "estimated_activations": sum(b for name, b in parts.items() if name.startswith("activations")),
    }
    if grid.throughput is not None:
        out["estimated_flops"] = grid.throughput.model_tflops_per_gpu * 1e12
        out["estimated_step_seconds"] = grid.throughput.step_seconds
    return out


def _silent(hits: tuple[Hit, ...], request: Request) -> dict[str, Value]:
    """Ranks of the run that were never heard of while others reported that they wait."""
    world = request.values.get("world_size")
    waiting = frozenset().union(*(h.ranks for h in hits if h.rule in WAITING))
    if not waiting or not isinstance(world, int) or world > MAX_RANKS or max(waiting) >= world:
        return {}
    silent = sorted(set(range(world)) - waiting)
    shown = ", ".join(map(str, silent[:SHOWN_SILENT])) + (", …" if len(silent) > SHOWN_SILENT else "")
    return {"waiting_ranks": len(waiting), "silent_ranks": len(silent), "silent_rank_list": shown}
