"""All templates of a knowledge base at once: which of them does a line match?"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from dataclasses import dataclass

from ..knowledge.model import Knowledge, Sign, Value
from ..knowledge.signs import WORD, Template

_WORDS = re.compile(WORD.encode()).findall


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

    Nearly all lines are dropped by their words: each template has some that a line must have.
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
        by_word: dict[bytes, list[tuple[frozenset[bytes], Pattern]]] = defaultdict(list)
        for pattern in patterns:
            words = [word.encode() for word in pattern.template.words]
            by_word[words[0]].append((frozenset(words[1:]), pattern))
        self._by_word = {word: tuple(mine) for word, mine in by_word.items()}
        self._known = self._by_word.keys()

    def match(self, raw: bytes) -> list[tuple[Pattern, dict[str, Value]]]:
        """The patterns that a line matches, with the values that they read."""
        words = frozenset(_WORDS(raw.lower()))
        near = [
            pattern
            for word in sorted(self._known & words)
            for others, pattern in self._by_word[word]
            if others <= words
        ]
        if not near:
            return []
        line = " ".join(raw.decode("utf-8", "replace").split())
        return [(pattern, values) for pattern in near if (values := pattern.template.match(line)) is not None]


_matchers: dict[str, Matcher] = {}
_lock = threading.Lock()


def matcher_for(knowledge: Knowledge) -> Matcher:
    """The matcher of a knowledge base, built once a process."""
    with _lock:
        if knowledge.digest not in _matchers:
            _matchers[knowledge.digest] = Matcher(knowledge)
        return _matchers[knowledge.digest]
