"""All templates of a knowledge base at once: which of them does a line match?"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..knowledge.model import Knowledge, Sign, Value
from ..knowledge.signs import Template, plain


@dataclass(frozen=True)
class Pattern:
    """A template with whose it is: a rule's sign, or (``rule`` None) a line that shows values.

    Attributes:
        rule: rule id, or None.
        sign: the sign, or None.
    """

    template: Template
    rule: str | None = None
    sign: Sign | None = None


class Matcher:
    """Immutable; build one for a knowledge base and share it.

    Most lines are dropped by a search for a few words, of which each template has one (``gates``); the rest are only
    held against the templates that belong to the word that was found.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        terms = knowledge.terms
        patterns = [
            Pattern(Template.compile(sign.text, terms), rule.id, sign)
            for rule in knowledge.rules.values()
            if not rule.withdrawn
            for sign in rule.signs
        ]
        shown = dict.fromkeys(text for term in terms.values() for text in term.in_log)
        patterns += [Pattern(Template.compile(text, terms)) for text in shown]
        self._by_gate: Mapping[bytes, tuple[Pattern, ...]] = {
            word.encode(): tuple(mine) for word, mine in _gates(patterns).items()
        }

    def match(self, raw: bytes) -> Iterator[tuple[Pattern, dict[str, Value]]]:
        """The patterns that a line matches, with the values that they read."""
        low = raw.lower()
        found = [patterns for gate, patterns in self._by_gate.items() if gate in low]
        if not found:
            return
        line = plain(raw.decode("utf-8", "replace"))
        folded = line.lower()
        for patterns in found:
            for pattern in patterns:
                if pattern.template.key in folded:
                    values = pattern.template.match(line)
                    if values is not None:
                        yield pattern, values


def _gates(patterns: list[Pattern]) -> dict[str, list[Pattern]]:
    """A few words of which each pattern has one: always the word next that most of the rest have."""
    out: dict[str, list[Pattern]] = defaultdict(list)
    rest = list(patterns)
    while rest:
        count = Counter(word for pattern in rest for word in pattern.template.words)
        word = max(sorted(count), key=lambda w: (count[w], len(w)))
        out[word] = [p for p in rest if word in p.template.words]
        rest = [p for p in rest if word not in p.template.words]
    return out


_matchers: dict[str, Matcher] = {}
_lock = threading.Lock()


def matcher_for(knowledge: Knowledge) -> Matcher:
    """The matcher of a knowledge base, built once a process."""
    with _lock:
        if knowledge.digest not in _matchers:
            _matchers[knowledge.digest] = Matcher(knowledge)
        return _matchers[knowledge.digest]
