"""What an inference concluded, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ..knowledge.model import Value


@dataclass(frozen=True)
class Derivation:
    """How a name got its value.

    Attributes:
        value: the value.
        source: the quantity's name or the rule's id.
        inputs: the facts that the derivation read, by name.
        round: the round of forward chaining in which it became known.
    """

    value: Value
    source: str
    inputs: Mapping[str, Value]
    round: int


@dataclass(frozen=True)
class Firing:
    """A rule that fired.

    Attributes:
        rule: its id.
        facts: the facts that its conditions read and its texts show, by name; what a text shows may be missing.
        round: the round in which it fired.
    """

    rule: str
    facts: Mapping[str, Value]
    round: int


@dataclass(frozen=True)
class Conflict:
    """Two rules derive different values of one name: the rule with the smaller id wins.

    Attributes:
        name: the name.
        kept, dropped: (rule id, value).
    """

    name: str
    kept: tuple[str, Value]
    dropped: tuple[str, Value]


@dataclass(frozen=True)
class Proof:
    """A conclusion with what it rests on, down to given facts.

    Attributes:
        name: the name concluded, or the id of the rule that fired.
        value: its value; True for a rule that fired.
        source: ``given``, the quantity's name or the rule's id.
        kind: what the source is.
        premises: the proofs of the facts that it used.
    """

    name: str
    value: Value
    source: str
    kind: Literal["given", "quantity", "rule"]
    premises: tuple[Proof, ...] = ()

    @cached_property
    def depth(self) -> int:
        """Steps from the given facts: 0 for a given fact itself."""
        return 0 if self.kind == "given" else 1 + max((premise.depth for premise in self.premises), default=0)

    def to_dict(self) -> dict[str, Any]:
        """The tree as data."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        node: dict[str, Any] = {"name": self.name, "value": value, "source": self.source, "kind": self.kind}
        if self.premises:
            node["because"] = [premise.to_dict() for premise in self.premises]
        return node


@dataclass(frozen=True)
class Inference:
    """All that follows from a fact set at one revision.

    Attributes:
        revision: tag of the revision.
        facts: every known name with its value, given and derived; None is unset.
        derivations: how each derived name got its value.
        firings: the rules that fired, in order of id.
        not_judged: rules that couldn't be judged, in order of id, each with the names that are missing. A rule that
            fired stands here too where a name in its conclusion is missing.
        conflicts: different values for one name.
        engine: what matched the conditions: ``durable_rules`` or ``reference``.
    """

    revision: str
    facts: Mapping[str, Value]
    derivations: Mapping[str, Derivation]
    firings: tuple[Firing, ...]
    not_judged: tuple[tuple[str, frozenset[str]], ...]
    conflicts: tuple[Conflict, ...]
    engine: str = field(compare=False)

    @cached_property
    def fired(self) -> Mapping[str, Firing]:
        """The firings by rule id."""
        return {firing.rule: firing for firing in self.firings}

    def chain(self, key: str) -> Proof:
        """The proof of a known name, or of the firing of a rule.

        Raises:
            KeyError: the name isn't known, or the rule didn't fire.
        """
        return self._prove(key, {})

    def _prove(self, key: str, done: dict[str, Proof]) -> Proof:
        if key not in done:
            if key in self.fired:
                proof = Proof(key, True, key, "rule", self._premises(self.fired[key].facts, done))
            elif key in self.derivations:
                found = self.derivations[key]
                kind: Literal["quantity", "rule"] = "quantity" if found.source == key else "rule"
                proof = Proof(key, found.value, found.source, kind, self._premises(found.inputs, done))
            else:
                proof = Proof(key, self.facts[key], "given", "given")
            done[key] = proof
        return done[key]

    def _premises(self, inputs: Mapping[str, Value], done: dict[str, Proof]) -> tuple[Proof, ...]:
        return tuple(self._prove(name, done) for name in sorted(inputs))
