"""Small knowledge to test inference with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mbridge_advisor.inference import Program
from mbridge_advisor.knowledge.model import Fix, Quantity, Revision, Rule, Term, Text, Then

V05 = Revision("v0.5.1", "0" * 40, "0" * 40, "0.1", "2026-01-01", {})
V06 = Revision("v0.6.0", "1" * 40, "1" * 40, "0.2", "2026-06-01", {})


def text(words: str) -> Text:
    return Text(words, words)


def term(name: str, kind: Any = "int", section: Any = "derived", **more: Any) -> Term:
    return Term(name=name, field=name, section=section, type=kind, title=text(name), meaning=text(name), **more)


def terms(*given: Term) -> dict[str, Term]:
    return {t.name: t for t in given}


def quantity(name: str, formula: str, bridge: str = ">=0.2", **more: Any) -> Quantity:
    return Quantity(name, formula, bridge, "code_verified", (), **more)


def rule(number: int | str, *when: str, kind: Any = "constraint", severity: Any = "error", **more: Any) -> Rule:
    identity = f"MB-T-{number:03}" if isinstance(number, int) else number
    more.setdefault("then", Then(violation=text("wrong")))
    more.setdefault("bridge", ">=0.2")
    return Rule(
        id=identity,
        title=text(identity),
        kind=kind,
        severity=severity,
        status="code_verified",
        when=when,
        because=text("because"),
        citations=(),
        since="2026-12-02",
        **more,
    )


def derivation(number: int | str, *when: str, **derive: str) -> Rule:
    return rule(number, *when, kind="derivation", severity="advice", then=Then(derive=derive))


GRID = terms(
    *(term(n, section="grid", min=1, max=65536) for n in ("tp", "pp", "cp", "ep")),
    term("etp", section="grid", nullable=True, min=1, max=65536),
    term("vpp", section="grid", nullable=True),
    term("world_size", section="cluster", min=1, max=10**6),
    term("sequence_parallel", "bool", section="grid"),
    term("method", "str", section="training", nullable=True),
    term("scope", "list", section="training", nullable=True),
    term("share", "float", section="training"),
    term("etp_effective", max=65536),
    term("dense_ranks"),
    term("min_gpus"),
    term("dp"),
    term("fits", "bool"),
    term("advice", "str"),
    term("limit", "float"),
)
QUANTITIES = (
    quantity("etp_effective", "etp if given(etp) else tp", variants=((">=0.6", "etp if given(etp) else 1"),)),
    quantity("dense_ranks", "tp * pp * cp"),
    quantity("min_gpus", "pp * lcm(tp * cp, ep * etp_effective)"),
    quantity("dp", "world_size // dense_ranks"),
)
RULES = (
    rule(1, "sequence_parallel", "tp < 2", then=Then(violation=text("SP with TP {tp} on {world_size} GPUs"))),
    rule(2, "world_size % min_gpus != 0", then=Then(violation=text("needs a multiple of {min_gpus}"))),
    derivation(3, "world_size % min_gpus == 0", fits="True"),
    rule(
        4,
        "fits",
        "dp > 8",
        kind="sizing",
        severity="advice",
        then=Then(advice=text("{advice}"), derive={"advice": "'wide'"}, prefer=(("tp <= 8", 0.05),)),
    ),
    rule(5, "method == 'full'", "'moe' in scope", kind="pitfall", severity="warning"),
    rule(6, "given(vpp)", "pp < 2", fix=Fix(text("unset VPP {vpp}"))),
)


def program(
    with_terms: Mapping[str, Term] = GRID,
    quantities: Iterable[Quantity] = QUANTITIES,
    rules: Iterable[Rule] = RULES,
    revision: Revision = V06,
) -> Program:
    return Program.build(with_terms, quantities, rules, revision)
