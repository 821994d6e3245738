"""Differential fuzzing: our rules against the real code.

    python -m mbridge_advisor.evidence.oracle.fuzz --bridge-source DIR --core-source DIR --revision v0.6.0 \\
        --python /path/to/python --count 1000 --seed 1 --execute

Each case goes through the rules (any constraint of severity error that fires rejects it) and through the oracle. Where
they disagree the case is shrunk and reported with the oracle's message and our rule ids; where both accept, what the
code computed is compared with our quantities.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ...architecture import FIELD_NAMES
from ...errors import AdvisorError, RequestError
from ...inference import Program, infer
from ...intake.facts import build_facts
from ...intake.request import parse_request
from ...knowledge import load
from ...knowledge.model import Knowledge, Revision, Value
from ...knowledge.yaml_reader import read
from ..store import condition_digest
from .cases import SMALLEST, Case, generate, shrink
from .runner import Oracle, Sources, Verdict

# What the oracle reports of an accepted configuration -> our name for it.
COMPARED = {
    "data_parallel_size": "dp",
    "expert_data_parallel_size": "edp",
    "expert_tensor_parallel_size": "etp_effective",
    "sequence_parallel": "sp_effective",
    "num_microbatches": "num_microbatches",
    "padded_vocab_size": "padded_vocab_size",
}
# Names that the worker puts in place itself: what it builds a configuration from, and what stands in two sections.
BARE = frozenset(SMALLEST) | {"use_distributed_optimizer", "use_megatron_fsdp"}
# What models and recipes set, so that the vocabulary has no default: the values of the oracle's own model.
STATED: Mapping[str, Value] = {
    "apply_rope_fusion": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "calculate_per_token_loss": False,
    "check_for_nan_in_loss": True,
    "experimental_attention_variant": None,
    "gradient_accumulation_fusion": True,
    "moe_router_load_balancing_type": "aux_loss",
    "moe_router_pre_softmax": False,
    "moe_router_score_function": "softmax",
    "no_rope_freq": None,
    "rope_type": "yarn",
    "rotary_interleaved": False,
    "use_te_rng_tracker": False,
}
# Rules whose place in the code the oracle can't reach: they alone are no verdict that it could contradict.
# docs/evidence.md says the same to people.
HYBRID = "the oracle builds no Mamba or hybrid model"
PACKED = "the data sets of chat and vision-language models, which the oracle doesn't make"
IMPLIED = "whatever breaks it breaks another rule too, so that no run tells the two apart"
REFUSED = "a request refuses such a number before the rules see it"
BEYOND: Mapping[str, str] = {
    "MB-EP-002": REFUSED,
    "MB-MAMBA-001": HYBRID,
    "MB-MAMBA-002": HYBRID,
    "MB-MAMBA-003": HYBRID,
    "MB-MAMBA-004": HYBRID,
    "MB-MLA-004": "the forward pass of multi-latent attention on batches that the data loader of hybrid CP makes",
    "MB-PACK-002": PACKED,
    "MB-PACK-003": PACKED,
    "MB-PP-002": HYBRID,
    "MB-PP-004": REFUSED,
    "MB-PP-007": IMPLIED,
    "MB-TP-003": IMPLIED,
    "MB-VPP-004": HYBRID,
}
NO_FIELD = "no such field at this revision"  # how the worker's message ends
COUNTS = ("verdict", "stage", "unsupported", "rules", "alone", "located", "values")
Kind = Literal["missing", "wrong", "value"]


@dataclass(frozen=True)
class Opinion:
    """What our rules say of a case.

    Attributes:
        rules: ids of the constraints of severity error that fire and claim the code as evidence (a rule that rests on
            documents only, such as one on another library's checks, or is :data:`BEYOND` the oracle, is none that it
            could confirm);
            ``request: REASON`` where the request is refused.
        config: the case for the oracle: dotted path, environment variable or name -> value.
        defaults: what we take for granted where nothing is given, for the oracle.
        values: all facts, given and derived.
    """

    rules: tuple[str, ...]
    config: Mapping[str, Any]
    defaults: Mapping[str, Any]
    values: Mapping[str, Value]


class Ours:
    """Our verdict at one revision."""

    def __init__(self, knowledge: Knowledge, revision: Revision) -> None:
        self.knowledge, self.revision = knowledge, revision
        self.program = Program.build(knowledge.terms, knowledge.quantities.values(), knowledge.rules.values(), revision)
        self.claims = frozenset(
            name
            for name, step in self.program.constraints.items()
            if step.rule and step.rule.status == "code_verified" and name not in BEYOND
        )

    def __call__(self, case: Case) -> Opinion:
        known = self.knowledge.terms
        case = {name: value for name, value in case.items() if name in known}
        config = {self._key(name): value for name, value in case.items()}
        precision = case.get("precision", "bf16")
        stated: dict[str, Value] = {
            **STATED,
            # as Bridge's precision recipes have it
            "fp8_param_gather": precision in ("fp8_cs", "fp8_mx", "fp8_delayed"),
            "reuse_grad_buf_for_mxfp8_param_ag": precision == "fp8_mx",
            # adapters need one, and a request seldom says where it lies; the worker has this folder
            "pretrained_checkpoint": "checkpoint" if case.get("task") == "lora" else None,
            # the worker's environment has none of these
            **{name: None for name, term in known.items() if term.section == "environment"},
        }
        request: dict[str, Any] = {"bridge": self.revision.tag}
        for name, value in case.items():
            term = known[name]
            if term.section == "model" and term.field not in FIELD_NAMES:
                stated[name] = value
            elif term.section != "model" or value is not None:
                request.setdefault(term.section, {})[term.field] = value
        try:
            facts = build_facts(parse_request(request, self.knowledge), self.knowledge).values
        except RequestError as error:
            return Opinion((f"request: {error.field} {error.reason}",), config, {}, {})
        asked = {name for name in case if known[name].section != "model"}
        facts = {**facts, **{name: value for name, value in stated.items() if name in known and name not in asked}}
        defaults: dict[str, Any] = {}
        for name, value in facts.items():
            path = self._path(name)
            # Bridge derives the settings of these two sections from others unless told otherwise.
            derived = path is None or path.startswith(("comm_overlap.", "mixed_precision."))
            said = value is not None or name == "q_lora_rank"  # a model without one has to say so
            if name not in case and not derived and said and not name.startswith("linear_"):
                defaults[self._key(name)] = _plain(name, value)
        inference = infer(self.program, facts, engine="reference")
        fired = {firing.rule for firing in inference.firings}
        rules = tuple(sorted(fired & self.claims))
        return Opinion(rules, config, defaults, inference.facts)

    def hints(self) -> list[dict[str, Value]]:
        """The examples of the constraints, as far as they are settings, for the generator."""
        terms = self.knowledge.terms
        out: list[dict[str, Value]] = []
        for step in self.program.constraints.values():
            for example in (*step.rule.fires, *step.rule.quiet) if step.rule else ():
                out.append(
                    {
                        name: value
                        for name, value in example.facts.items()
                        if name == "is_moe" or (terms[name].section != "derived" and value is not None)
                    }
                )
        return out

    def lacking(self, oracle: Callable[[Mapping[str, Any], Mapping[str, Any]], Verdict], mla: bool) -> frozenset[str]:
        """Names without a field at the revision, for models with or without multi-latent attention."""
        model = {"multi_latent_attention": True} if mla else {}

        def lacks(name: str) -> bool:
            verdict = oracle({**model, self._key(name): None}, {})
            return verdict.verdict == "unsupported" and verdict.message.endswith(NO_FIELD)

        settable = (name for name, term in self.knowledge.terms.items() if term.section != "derived")
        return frozenset(name for name in settable if name not in BARE and lacks(name))

    def cites(self, rule: str, verdict: Verdict) -> bool:
        """Whether the code rejects in a symbol that the rule cites, or called from one."""
        path, _, rest = verdict.where.partition(":")
        frames = {verdict.where.rpartition(" ")[2].rpartition(".")[2]} | {f.rpartition(" ")[2] for f in verdict.trace}
        for citation in self.knowledge.rules[rule].citations if rule in self.knowledge.rules else ():
            symbol = citation.where.get("symbol", "")
            if citation.where.get("path", "").endswith(path) and rest.endswith(" " + symbol):
                return True
            if symbol and symbol.rpartition(".")[2] in frames - {"__init__", "__post_init__", "validate", "finalize"}:
                return True
        return False

    def _path(self, name: str) -> str | None:
        path = self.knowledge.terms[name].path
        return path.at(self.revision) if path is not None else None

    def _key(self, name: str) -> str:
        term = self.knowledge.terms[name]
        if term.section == "environment":
            return term.field
        return name if name in BARE else self._path(name) or name


def _plain(name: str, value: Value) -> Any:
    """A fact as Bridge's field takes it: a list, or the int behind a list of one ("every n-th layer")."""
    if isinstance(value, tuple):
        return value[0] if name.endswith("_freq") and len(value) == 1 else list(value)
    return value


@dataclass(frozen=True)
class Disagreement:
    """One case on which the rules and the real code differ.

    Attributes:
        kind: ``missing`` (the code rejects, no rule fires), ``wrong`` (a rule fires, the code accepts), ``value`` (both
            accept, a computed value differs).
        cause: what to group by: where the code rejects, our rule ids, or the value's name.
        case: the shrunk case.
        rules: our rule ids for it.
        verdict: the oracle's for it.
        detail: for a value: ours and theirs.
        found: the case as it was drawn.
    """

    kind: Kind
    cause: str
    case: Case
    rules: tuple[str, ...]
    verdict: Verdict
    detail: str = ""
    found: Case = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "rules": list(self.rules), "verdict": self.verdict.to_dict()}


@dataclass(frozen=True)
class Report:
    """What a run found.

    Attributes:
        unsupported: what the oracle couldn't tell -> how often.
        stages: where the code rejected -> how often.
        rules: our firings among the rejected.
        alone: the same where no other rule fired: then the code confirms this one.
        located: of those, where it rejected in a symbol that the rule cites.
        values: quantities that the code computed to the same value among the accepted -> how often.
        suppressed: causes of further disagreements -> how many.
    """

    revision: str
    seed: int
    tried: int
    accepted: int
    rejected: int
    unsupported: Mapping[str, int]
    stages: Mapping[str, int]
    rules: Mapping[str, int]
    alone: Mapping[str, int]
    located: Mapping[str, int]
    values: Mapping[str, int]
    disagreements: tuple[Disagreement, ...]
    suppressed: Mapping[str, int]
    seconds: float
    environment: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The run as evidence."""
        return {
            **{k: v for k, v in vars(self).items() if k != "disagreements"},
            "date": datetime.now(UTC).date().isoformat(),
            "disagreements": [d.to_dict() for d in self.disagreements],
        }


def evidence(knowledge: Knowledge, report: Report) -> dict[str, Any]:
    """The run as a file of ``knowledge/evidence/executions`` (see ``schemas/execution.schema.json``).

    A rule is confirmed by each rejected configuration on which it alone fired, a quantity by each accepted one for
    which the code computed the same value.
    """
    revision = knowledge.revisions[report.revision]
    digests = {name: condition_digest(knowledge, name, revision) for name in sorted({**report.alone, **report.values})}
    conditions = {name: digest for name, digest in digests.items() if digest}  # not where a request was refused
    versions = {k: v for k, v in report.environment.items() if isinstance(v, str) and not k.endswith("commit")}
    return {
        "id": f"oracle-{report.revision}-" + (f"seed{report.seed}" if report.seed else "listed"),
        "revision": report.revision,
        "bridge_commit": report.environment["bridge_commit"],
        "core_commit": report.environment["core_commit"],
        "date": datetime.now(UTC).date().isoformat(),
        "seed": report.seed,
        "tried": report.tried,
        "accepted": report.accepted,
        "rejected": report.rejected,
        "not_executable": sum(report.unsupported.values()),
        "disagreements": len(report.disagreements) + sum(report.suppressed.values()),
        "seconds": report.seconds,
        "versions": versions,
        "rules": {name: report.alone.get(name) or report.values[name] for name in conditions},
        "conditions": conditions,
    }


def compare(opinion: Opinion, verdict: Verdict) -> tuple[Kind, str, str] | None:
    """(kind, cause, detail) where they differ; None where they agree or the oracle can't tell."""
    if verdict.verdict == "unsupported":
        return None
    if verdict.verdict == "reject":
        return None if opinion.rules else ("missing", f"{verdict.stage}: {_place(verdict)}", "")
    if opinion.rules:
        return "wrong", ", ".join(opinion.rules), ""
    for name, ours, theirs in _values(opinion, verdict):
        if ours != theirs:
            return "value", name, f"ours {ours}, theirs {theirs}"
    return None


def _values(opinion: Opinion, verdict: Verdict) -> Iterator[tuple[str, Value, Value]]:
    """(quantity, our value, the code's) of an accepted configuration, where both are known."""
    for theirs, ours in COMPARED.items():
        ramp = ours == "num_microbatches" and opinion.values.get("rampup_batch_size")  # the code's is the first step's
        if opinion.values.get(ours) is not None and theirs in verdict.effective and not ramp:
            yield ours, opinion.values[ours], verdict.effective[theirs]


def _place(verdict: Verdict) -> str:
    """File and symbol without the line, and the message without numbers: equal for equal causes."""
    path, _, rest = verdict.where.partition(":")
    symbol = rest.partition(" ")[2]
    words = re.sub(r"[\d.]+(, [\d.]+)*", "#", verdict.message)
    return f"{path} {symbol} | {words[:70]}"


def fuzz(
    oracle: Callable[[Mapping[str, Any], Mapping[str, Any]], Verdict],
    ours: Callable[[Case], Opinion],
    cases: Iterable[Case],
    *,
    per_cause: int = 2,
    cites: Callable[[str, Verdict], bool] = lambda rule, verdict: False,
    progress: Callable[[int, int], None] = lambda done, found: None,
) -> tuple[list[Disagreement], Counter[str], dict[str, Counter[str]]]:
    """Compare on all cases.

    Args:
        oracle: the real code: (config, defaults) -> verdict.
        ours: our rules.
        cases: what to try.
        cites: whether a rule cites the place where the code rejects.
        per_cause: how many disagreements of one cause to shrink and keep; more are counted.
        progress: called after each case with the cases done and the disagreements found.

    Returns:
        The disagreements, how many more there were by cause, and counts by :data:`COUNTS` (see :class:`Report`).
    """
    kept: list[Disagreement] = []
    more: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {k: Counter() for k in COUNTS}
    seen: Counter[tuple[str, str]] = Counter()

    def ask(case: Case) -> tuple[Opinion, Verdict, tuple[Kind, str, str] | None]:
        opinion = ours(case)
        verdict = oracle(opinion.config, opinion.defaults)
        return opinion, verdict, compare(opinion, verdict)

    for done, case in enumerate(cases, 1):
        opinion, verdict, difference = ask(case)
        counts["verdict"][verdict.verdict] += 1
        if verdict.verdict == "reject":
            counts["stage"][verdict.stage] += 1
            counts["rules"].update(opinion.rules)
            if len(opinion.rules) == 1:
                counts["alone"].update(opinion.rules)
                counts["located"].update(rule for rule in opinion.rules if cites(rule, verdict))
        if verdict.verdict == "accept" and not opinion.rules:
            counts["values"].update(name for name, mine, theirs in _values(opinion, verdict) if mine == theirs)
        if verdict.verdict == "unsupported":
            counts["unsupported"][f"{verdict.stage}: {_place(verdict)}"] += 1
        if difference is not None:
            kind, cause, _ = difference
            seen[kind, cause] += 1
            if seen[kind, cause] > per_cause:
                more[f"{kind}: {cause}"] += 1
            else:

                def same(candidate: Case, wanted: tuple[str, str] = (kind, cause)) -> bool:
                    found = ask(candidate)[2]
                    return found is not None and found[:2] == wanted

                small = shrink(dict(case), same)
                opinion, verdict, difference = ask(small)
                detail = difference[2] if difference else ""
                kept.append(Disagreement(kind, cause, small, opinion.rules, verdict, detail, case))
        progress(done, len(kept) + sum(more.values()))
    return kept, more, counts


def run(
    knowledge: Knowledge,
    revision: Revision,
    oracle: Oracle,
    *,
    seed: int,
    count: int,
    listed: Sequence[Case] = (),
    progress: Callable[[int, int], None] = lambda done, found: None,
) -> Report:
    """Fuzz one revision with a started oracle, or try listed cases instead (then the seed is 0)."""
    if listed:
        seed, count = 0, len(listed)
    rng, started, ours = random.Random(seed), time.monotonic(), Ours(knowledge, revision)
    hints = ours.hints()
    lacking = {mla: ours.lacking(oracle.judge, mla) for mla in (False, True)}
    drawn = (generate(rng, hints, lambda case: lacking[bool(case.get("multi_latent_attention"))]) for _ in range(count))
    cases: Iterable[Case] = listed or drawn
    kept, more, counts = fuzz(oracle.judge, ours, cases, cites=ours.cites, progress=progress)
    return Report(
        revision=revision.tag,
        seed=seed,
        tried=count,
        accepted=counts["verdict"]["accept"],
        rejected=counts["verdict"]["reject"],
        unsupported=dict(counts["unsupported"].most_common()),
        stages=dict(counts["stage"].most_common()),
        rules=dict(counts["rules"].most_common()),
        alone=dict(counts["alone"].most_common()),
        located=dict(counts["located"].most_common()),
        values=dict(counts["values"].most_common()),
        disagreements=tuple(kept),
        suppressed=dict(more.most_common()),
        seconds=round(time.monotonic() - started, 1),
        environment={
            **oracle.info.get("versions", {}),
            "bridge_commit": revision.commit,
            "core_commit": revision.core_commit,
            "knowledge": knowledge.version,
            "knowledge_digest": knowledge.digest,
            "restarts": oracle.restarts,
        },
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line; exit status 0: no disagreement, 1: some, 2: bad input."""
    parser = argparse.ArgumentParser(description="Compare the rules with the real code on random configurations.")
    parser.add_argument("--bridge-source", type=Path, required=True, help="checkout or unpacked wheel of Bridge")
    parser.add_argument("--core-source", type=Path, help="the same of Megatron Core, where it is elsewhere")
    parser.add_argument("--revision", required=True, help="Bridge release that the rules are taken for, e.g. v0.6.0")
    parser.add_argument("--python", default="python3", help="interpreter that has torch and what the sources import")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=Path, nargs="+", default=[], help="try the cases in these files instead")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the report as JSON")
    parser.add_argument(
        "--evidence", type=Path, help="write the record for knowledge/evidence/executions (JSON is YAML)"
    )
    parser.add_argument("--execute", action="store_true", help="really run the code of the given sources")
    options = parser.parse_args(arguments)
    try:
        return _main(options)
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return 2


def read_cases(path: Path) -> list[Case]:
    """The cases of a file such as tests/data/directed_cases.yaml (``cases: {name: settings}``).

    Raises:
        KnowledgeError: it can't be read.
        RequestError: it has no such mapping.
    """
    data = read(path, str(path)).data
    cases = data.get("cases") if isinstance(data, Mapping) else None
    if not isinstance(cases, Mapping):
        raise RequestError("--cases", str(path), "has no mapping `cases`", "Write `cases: {name: {setting: value}}`.")
    return [dict(case) for case in cases.values()]


def pinned_versions(revision: Revision) -> dict[str, str]:
    """The versions that a release's stand-ins report."""
    locked = revision.environment.get("transformer_engine_locked") or revision.environment.get("transformer_engine")
    return {"transformer-engine": str(locked).split("+")[0]} if locked else {}


def _main(options: argparse.Namespace) -> int:
    knowledge = load()
    if options.revision not in knowledge.revisions:
        known = ", ".join(knowledge.revisions)
        raise RequestError("revision", options.revision, "is not a known release", f"One of: {known}.")
    revision = knowledge.revisions[options.revision]
    sources = Sources.find(options.bridge_source, options.core_source, pinned_versions(revision), revision.tag)
    oracle = Oracle(sources, options.python, nice=options.nice)
    print(oracle.describe(), file=sys.stderr)
    if not options.execute:
        print("Nothing was run: add --execute.", file=sys.stderr)
        return 0

    def progress(done: int, found: int) -> None:
        if sys.stderr.isatty() or done % 500 == 0:
            print(f"\r{done}/{options.count} tried, {found} disagree", end="", file=sys.stderr, flush=True)

    with oracle:
        report = run(
            knowledge,
            revision,
            oracle,
            seed=options.seed,
            count=options.count,
            listed=[{**SMALLEST, **case} for path in options.cases for case in read_cases(path)],
            progress=progress,
        )
    print(file=sys.stderr)
    text = json.dumps(report.to_dict(), indent=1, default=str)
    if options.evidence:
        options.evidence.write_text(json.dumps(evidence(knowledge, report), indent=1) + "\n", encoding="utf-8")
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(render(report))
    return 1 if report.disagreements else 0


def render(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.revision}: {report.tried} tried, {report.accepted} accepted, {report.rejected} rejected, "
        f"{sum(report.unsupported.values())} not executable, {report.seconds:g} s",
        "rejected at: " + ", ".join(f"{k} {v}" for k, v in report.stages.items()),
    ]
    for text, number in list(report.unsupported.items())[:10]:
        lines.append(f"  not executable x{number}: {text}")
    for d in report.disagreements:
        extra = report.suppressed.get(f"{d.kind}: {d.cause}", 0)
        lines.append(f"{d.kind.upper()} {d.cause}" + (f" (and {extra} more)" if extra else ""))
        lines.append(f"  case: {json.dumps(d.case, sort_keys=True)}")
        if d.rules:
            lines.append(f"  our rules: {', '.join(d.rules)}")
        if d.detail:
            lines.append(f"  {d.detail}")
        if d.verdict.verdict == "reject":
            lines.append(f"  code: {d.verdict.stage}: {d.verdict.message[:240]} ({d.verdict.where})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
