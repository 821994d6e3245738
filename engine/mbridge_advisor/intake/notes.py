"""What became of every field of an input, and the request that grows out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from ..architecture import FIELD_NAMES
from ..errors import RequestError
from ..knowledge.model import Knowledge, Term, Text, Value
from .request import check_value, parse_word

Status = Literal["taken", "default", "left_open", "no_bearing", "not_modelled", "unresolved", "unknown"]
MATTERS: tuple[Status, ...] = ("not_modelled", "unresolved", "unknown")

NOTHING = Text("", "")
_WORDS: Mapping[Status, Text] = {
    "taken": Text("taken", "已采用"),
    "default": Text("default of the program", "原程序默认值"),
    "left_open": Text("not taken", "未采用"),
    "no_bearing": Text("without bearing on the layout", "与并行布局无关"),
    "not_modelled": Text("matters, but isn't modelled", "有影响但未建模"),
    "unresolved": Text("value could not be resolved", "取值无法确定"),
    "unknown": Text("not understood", "未能识别"),
}


@dataclass(frozen=True)
class Note:
    """What became of one field.

    Attributes:
        key: as the input writes it.
        status: ``taken``; ``default`` (the input leaves it out and its program's default isn't Bridge's);
            ``left_open`` (for the search); ``no_bearing``; and what matters: ``not_modelled``, ``unresolved``,
            ``unknown``.
        field: the request's field that it became, or "".
        value: the value in the request, or as written.
        why: more in words; may be empty.
    """

    key: str
    status: Status
    field: str = ""
    value: Value = None
    why: Text = NOTHING

    @property
    def matters(self) -> bool:
        """Whether the answer may be wrong because of it."""
        return self.status in MATTERS

    def text(self, lang: str = "en") -> str:
        """One line."""
        gap = "：" if lang == "zh" else ": "
        tail = f" ({self.why[lang]})" if self.why[lang] else ""
        shown = f" -> {self.field} = {self.value}" if self.field else ""
        return f"{self.key}{gap}{_WORDS[self.status][lang]}{shown}{tail}"

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {
            "key": self.key,
            "status": self.status,
            "field": self.field or None,
            "value": value,
            "why": self.why[lang],
        }


def summary(notes: Iterable[Note]) -> tuple[Text, ...]:
    """A few lines for people: how many were taken, every one that matters in full."""
    every = list(notes)
    count = {status: sum(n.status == status for n in every) for status in _WORDS}
    lines = []
    if every:
        lines.append(
            Text(
                f"From the input: {count['taken']} settings taken, {count['default']} defaults of its program, "
                f"{count['no_bearing']} without bearing on the layout.",
                f"输入解析：采用 {count['taken']} 项设置，补充 {count['default']} 项原程序默认值，"
                f"{count['no_bearing']} 项与并行布局无关。",
            )
        )
    lines += [Text(n.text("en"), n.text("zh")) for n in every if n.matters or n.status == "left_open"]
    return tuple(lines)


@dataclass
class Draft:
    """A request under construction, with its notes. Settings are given by any spelling of the vocabulary."""

    knowledge: Knowledge
    request: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, key: str, status: Status, why: Text | None = None, *, name: str = "", value: Value = None) -> None:
        """Write down what became of a field."""
        self.notes.append(Note(key[:200], status, name, _short(value), why or NOTHING))

    def get(self, name: str) -> Value:
        """The value of a setting in the draft, or None."""
        term = self.knowledge.by_field[name]
        part = self.request.get(term.section)
        return part.get(term.field) if isinstance(part, dict) else None

    def has(self, name: str) -> bool:
        """Whether a setting is in the draft, be it as unset."""
        term = self.knowledge.by_field[name]
        part = self.request.get(term.section)
        return isinstance(part, dict) and term.field in part

    def put(
        self,
        name: str,
        value: Any,
        key: str,
        status: Status = "taken",
        why: Text | None = None,
        *,
        verbatim: bool = False,
    ) -> None:
        """Set a setting.

        Args:
            name: a spelling of the vocabulary.
            value: as the input has it; text is read as the term's type.
            key: as the input writes the field.
            status: for the note.
            why: for the note.
            verbatim: whether text may hold variables.

        Raises:
            RequestError: a value that can't be (a choice that isn't known is only noted).
        """
        term = self.knowledge.by_field[name]
        if unresolved(value) and not verbatim:
            self.note(key, "unresolved", name=term.field, value=str(value))
            return
        if term.section == "model" and term.field not in FIELD_NAMES:
            plain = value in (None, "", "null", "None", False)
            self.note(key, "no_bearing" if plain else "not_modelled", value=_short(value))
            return
        try:
            fitting = fit(term, value, key)
        except RequestError as problem:
            if term.type != "str" or value is None:
                raise
            self.note(key, "unknown", Text(problem.reason, "取值不在已知选项之中"), value=str(value))
            return
        if fitting is None and not term.nullable:
            return
        section = "model" if term.section == "model" else term.section
        part = self.request.setdefault(section, {})
        if isinstance(part, str):
            part = self.request[section] = {"name": part}
        if section == "model" and isinstance(fitting, tuple) and str(value).strip("[]() ") == str(*fitting[:1]):
            fitting = fitting[0]  # "every n-th layer" stays a number
        part[term.field] = list(fitting) if isinstance(fitting, tuple) else fitting
        self.note(key, status, why, name=term.field, value=fitting)

    def model(self, name: str, key: str) -> None:
        """Set the model by a catalogue name, a Hugging Face id, or a path that ends in one."""
        from .request import find_model

        for candidate in dict.fromkeys((name, name.rstrip("/").rpartition("/")[2])):
            try:
                found = find_model(candidate, self.knowledge)
            except RequestError:
                continue
            dims = self.request.get("model")
            self.request["model"] = {"name": found.name, **dims} if isinstance(dims, dict) else found.name
            self.note(key, "taken", name="model", value=found.name)
            return
        why = Text(
            "not in the catalogue; name a model or its config.json", "不在模型目录中；请给出模型名或其 config.json"
        )
        self.note(key, "unresolved" if unresolved(name) else "unknown", why, value=name)


def unresolved(value: Any) -> bool:
    """Whether a value still holds a variable."""
    return isinstance(value, str) and ("$" in value or "`" in value)


def fit(term: Term, value: Any, key: str) -> Value:
    """A value, or text, as the term's type."""
    if isinstance(value, str):
        value = _parse(term, value)
    if term.type == "str" and isinstance(value, bool | int | float):
        value = str(value)
    if term.type == "float" and isinstance(value, str) and value[:1] in "-+.0123456789":
        with suppress(ValueError):
            value = float(value)
    if term.type == "int" and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if term.type == "bool" and value in (0, 1) and not isinstance(value, float):
        value = bool(value)
    return check_value(term, value, key)


def _parse(term: Term, text: str) -> Any:
    text = text.strip()
    if term.type == "str":
        return None if text.lower() in ("null", "none", "") and "none" not in term.values else text.strip("\"'")
    if term.type == "list":
        if text.lower() in ("null", "none", ""):
            return None
        repeated = repeated_list(text)
        if repeated is not None:
            return repeated
        inner = text.strip("[]() ")
        return [parse_word(word.strip("\"'")) for word in inner.replace(",", " ").split()]
    return parse_word(text)


MAX_ITEMS = 10_000


def repeated_list(text: str) -> list[int] | None:
    """Megatron-LM's ``([0]*3+[1]*11)``, as a list; None where it is something else."""
    text = re.sub(r"\s", "", text)
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    out: list[int] = []
    for part in text.split("+"):
        match = re.fullmatch(r"\(?(\[[01](?:,[01])*\])(?:\*(\d{1,5}))?\)?", part)
        if match is None:
            return None
        items = [int(i) for i in match[1][1:-1].split(",")]
        times = int(match[2] or 1)
        if len(out) + len(items) * times > MAX_ITEMS:
            return None
        out += items * times
    return out


def _short(value: Any) -> Value:
    if isinstance(value, list | tuple):
        return tuple(str(v)[:80] if not isinstance(v, int) else v for v in value[:200])
    if isinstance(value, str):
        return value[:200]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:200]
