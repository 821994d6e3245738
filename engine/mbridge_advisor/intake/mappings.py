"""Options of other programs to a request, by the tables under ``knowledge/mappings``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any

from ..architecture import FIELD_NAMES
from ..errors import RequestError
from ..knowledge import Knowledge
from ..knowledge.load import load_mapping
from ..knowledge.model import Term, Text
from .notes import Draft, unresolved
from .request import parse_word


@dataclass(frozen=True)
class Table:
    """A table with all that it extends."""

    name: str
    title: Text
    options: Mapping[str, Mapping[str, Any]]
    roots: tuple[str, ...]
    defaults: Mapping[str, Any]
    no_bearing: tuple[str, ...]
    not_modelled: tuple[str, ...]
    detect: tuple[str, ...]
    remark: Text | None

    @cached_property
    def _ignored(self) -> re.Pattern[str]:
        return re.compile("|".join(map(translate, self.no_bearing)) or r"(?!)")

    @cached_property
    def _open(self) -> re.Pattern[str]:
        return re.compile("|".join(map(translate, self.not_modelled)) or r"(?!)")

    def below_root(self, key: str) -> str:
        """What is left of a dotted path below the longest root; the path itself where there are no roots."""
        if not self.roots:
            return key
        root = max((r for r in self.roots if key.startswith(r + ".")), key=len, default=None)
        return key[len(root) + 1 :] if root is not None else ""

    def without_bearing(self, key: str) -> bool:
        return bool(self._ignored.fullmatch(key))

    def unmodelled(self, key: str) -> bool:
        return bool(self._open.fullmatch(key))

    def knows(self, key: str, knowledge: Knowledge) -> bool:
        """Whether the table or the vocabulary speaks of an option."""
        return (
            key in self.options
            or self.below_root(key) in knowledge.by_field
            or self.without_bearing(key)
            or self.unmodelled(key)
        )


@lru_cache(maxsize=32)
def _table(root: str, name: str) -> Table:
    data = load_mapping(root, name)
    parents = [_table(root, parent) for parent in data.get("extends", ())]
    options: dict[str, Mapping[str, Any]] = {}
    for parent in parents:
        options.update(parent.options)
    options.update(data["options"])
    remark = data.get("remark")
    return Table(
        name,
        Text(**data["title"]),
        options,
        tuple(data.get("roots", ())),
        data["defaults"] if "defaults" in data else {k: v for parent in parents for k, v in parent.defaults.items()},
        (*(p for parent in parents for p in parent.no_bearing), *data.get("no_bearing", ())),
        (*(p for parent in parents for p in parent.not_modelled), *data.get("not_modelled", ())),
        tuple(data.get("detect", ())),
        Text(**remark) if remark else None,
    )


def table(knowledge: Knowledge, name: str) -> Table:
    """A mapping by name."""
    return _table(knowledge.root, name)


def translate_options(pairs: Iterable[tuple[str, Any]], mapping: Table, draft: Draft) -> dict[str, Any]:
    """Put options into a draft.

    Args:
        pairs: option as the mapping spells it (dashes as underscores, or a dotted path) and value; the last one of a
            name counts, as it does on a command line.
        mapping: the table.
        draft: what the settings are put into.

    Returns:
        what isn't a setting: ``nodes`` and ``recipe``, where given.

    Raises:
        RequestError: a value that can't be.
    """
    given = dict(pairs)
    order = {key: n for n, key in enumerate(mapping.options)}
    extra: dict[str, Any] = {}
    for key in sorted(given, key=lambda k: order.get(k, -1)):
        value = given[key]
        option = mapping.options.get(key)
        below = mapping.below_root(key)
        term = draft.knowledge.by_field.get(below) if below else None
        if option is not None:
            _option(key, value, option, given, mapping, draft, extra)
        elif term is not None and term.section != "derived" and not _beside(term, key, mapping):
            draft.put(below, value, key)
        elif mapping.unmodelled(key):
            draft.note(key, "not_modelled" if value not in (False, None, "false") else "no_bearing", value=value)
        elif mapping.without_bearing(key):
            draft.note(key, "no_bearing", value=value)
        else:
            near = difflib.get_close_matches(below or key, _spellings(draft.knowledge), n=1, cutoff=0.85)
            why = Text(f"did you mean {near[0]}?", f"是否想写 {near[0]}？") if near else None
            draft.note(key, "unknown", why, value=value)
    _late(given, mapping, draft)
    _defaults(mapping, draft)
    return extra


def _beside(term: Term, key: str, mapping: Table) -> bool:
    """Whether a term is of the model but no dimension, and the table has its own word on it."""
    dimension = term.section != "model" or term.field in FIELD_NAMES
    return not dimension and (mapping.without_bearing(key) or mapping.unmodelled(key))


def _option(
    key: str,
    value: Any,
    option: Mapping[str, Any],
    given: Mapping[str, Any],
    mapping: Table,
    draft: Draft,
    extra: dict[str, Any],
) -> None:
    target = option["to"]
    off = value is False or value is None or (isinstance(value, str) and value.lower() in ("false", "null", "none", ""))
    needs = option.get("needs")
    if needs is not None and not _on(given.get(needs)):
        draft.note(key, "no_bearing", Text(f"has no effect without {needs}", f"未给出 {needs}，不起作用"), value=value)
    elif target in ("switch", "ignored", "layers_per_virtual_stage"):
        if target != "layers_per_virtual_stage":
            draft.note(key, "no_bearing" if target == "ignored" else "taken", value=value)
    elif target in ("nodes", "recipe"):
        extra[target] = value
        draft.note(key, "unresolved" if unresolved(value) else "taken", name=target, value=value)
    elif target == "model":
        draft.model(str(value), key)
    elif target == "window":  # Core counts the tokens before the current one, and after it
        back = str(value).strip("()[] ").replace(",", " ").split()
        draft.put("window_size", int(back[0]) + 1 if back and back[0].isdecimal() and len(back[0]) < 10 else value, key)
    elif target == "hybrid_pattern":
        _hybrid(str(value), key, draft)
    elif option.get("text"):
        if isinstance(value, str) and value:
            draft.put(target, value, key, verbatim=True)
        else:
            draft.note(key, "no_bearing", value=value)
    elif "set" in option:
        if off:
            draft.note(key, "no_bearing", value=value)
        else:
            draft.put(target, option["set"], key)
    elif "values" in option:
        word = str(value)
        if off:
            draft.note(key, "no_bearing", value=value)
        elif word in option["values"]:
            draft.put(target, option["values"][word], key)
        elif isinstance(value, str) and value in (draft.knowledge.by_field[target].values or ()):
            draft.put(target, value, key)
        else:
            status = "unresolved" if unresolved(word) else "unknown"
            draft.note(key, status, value=word)  # type: ignore[arg-type]
    else:
        draft.put(target, _combined(value, option, given), key)


def _on(value: Any) -> bool:
    return value is not None and value is not False and str(value).lower() not in ("false", "none", "null", "")


def _combined(value: Any, option: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """The value plus, or times, another option's."""
    number = parse_word(value) if isinstance(value, str) else value
    for verb in ("plus", "times"):
        other = given.get(option[verb]) if verb in option else None
        other = parse_word(other) if isinstance(other, str) else other
        if other is None or unresolved(other):
            continue
        if not isinstance(number, int) or not isinstance(other, int):
            return value
        number = number + other if verb == "plus" else number * other
    return number if any(verb in option for verb in ("plus", "times")) else value


def _hybrid(text: str, key: str, draft: Draft) -> None:
    """A pattern of layer letters: ``|`` marks pipeline stages, what follows ``/`` are MTP layers."""
    main, _, mtp = text.partition("/")
    main = main.replace("|", "")
    draft.put("hybrid_override_pattern", main, key)
    if main and not unresolved(main) and not draft.has("num_layers"):
        draft.put("num_layers", len(main), key)
    if mtp and not draft.has("mtp_hybrid_override_pattern"):
        draft.put("mtp_hybrid_override_pattern", mtp.split("/")[0], key)
        draft.put("mtp_num_layers", len(mtp.split("/")), key)


def _late(given: Mapping[str, Any], mapping: Table, draft: Draft) -> None:
    """What needs several settings."""
    for key, option in mapping.options.items():
        if option["to"] != "layers_per_virtual_stage" or key not in given:
            continue
        value = parse_word(given[key]) if isinstance(given[key], str) else given[key]
        layers, stages = draft.get("num_layers"), draft.get("pipeline_model_parallel_size") or 1
        if value is None:
            draft.note(key, "no_bearing")
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            if not unresolved(value):
                raise RequestError(key, value, "is not a number of layers", "Give a whole number.")
            draft.note(key, "unresolved", value=value)
        elif isinstance(layers, int) and isinstance(stages, int) and layers % (stages * value) == 0:
            draft.put("virtual_pipeline_model_parallel_size", layers // stages // value, key)
        elif isinstance(layers, int) and isinstance(stages, int):
            raise RequestError(
                key, value, f"times {stages} pipeline stages doesn't divide {layers} layers", "Choose another number."
            )
        else:
            why = Text("needs the number of layers", "需要知道层数")
            draft.note(key, "unresolved", why, name="virtual_pipeline_model_parallel_size", value=value)


def _defaults(mapping: Table, draft: Draft) -> None:
    """The program's own defaults, where they aren't Bridge's."""
    dimensions = draft.request.get("model")
    by_hand = isinstance(dimensions, dict) and "hidden_size" in dimensions
    moe = isinstance(dimensions, dict) and bool(dimensions.get("num_moe_experts"))
    for name, value in mapping.defaults.items():
        term = draft.knowledge.by_field[name]
        if draft.has(name) or (term.field in FIELD_NAMES and not by_hand):
            continue
        if (term.field.startswith("moe_") or "expert" in term.field) and not moe:
            continue
        if isinstance(value, str) and value.startswith("="):
            value = draft.get(value[1:].strip()) or 1
        draft.put(name, value, name, "default", Text(f"default of {mapping.title.en}", f"{mapping.title.zh} 的默认值"))


def _spellings(knowledge: Knowledge) -> list[str]:
    return [t.field for t in knowledge.terms.values() if t.section != "derived"]
