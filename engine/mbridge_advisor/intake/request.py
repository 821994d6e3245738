"""From a request (a mapping, as in schemas/request.schema.json) to typed, checked values.

Every problem is a :class:`~mbridge_advisor.errors.RequestError` that names the field, the value, the reason and the way
out. The vocabulary decides what may be asked; this module knows only the request's outer shape.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..architecture import FIELD_NAMES, Architecture
from ..errors import RequestError
from ..knowledge.model import Gpu, Knowledge, Model, Revision, Term, Value

REQUIRED = frozenset({"num_layers", "hidden_size", "num_attention_heads", "vocab_size"})  # without default
SECTIONS = ("model", "cluster", "training", "grid", "environment")
# Nested groups that people write under ``training``; leaves are vocabulary names, except for these short forms.
_GROUPS: Mapping[str, Mapping[str, str]] = {
    "recompute": {
        "granularity": "recompute_granularity",
        "method": "recompute_method",
        "num_layers": "recompute_num_layers",
        "modules": "recompute_modules",
    },
    "optimizer": {"name": "optimizer"},
}


@dataclass(frozen=True)
class Request:
    """A checked request.

    Attributes:
        revision: the Bridge release to judge by.
        architecture: the model's dimensions, or None where no model was given.
        model: the catalogue entry, where the model came from there.
        model_name: how the model is called in answers.
        gpu: the system, or None where not given.
        values: vocabulary short name -> value, only what was asked (cluster, training, grid, environment; and single
            dimensions of a model that is known no further).
        notes: what was taken over, translated or ignored, for the reader.
    """

    revision: Revision
    architecture: Architecture | None = None
    model: Model | None = None
    model_name: str | None = None
    gpu: Gpu | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_values(self, **changes: Value) -> Request:
        """A copy with some values set (short names)."""
        return replace(self, values={**self.values, **changes})

    def without(self, *names: str) -> Request:
        """A copy with some values no longer given."""
        return replace(self, values={k: v for k, v in self.values.items() if k not in names})

    def to_dict(self, knowledge: Knowledge) -> dict[str, Any]:
        """The normalised request, in the form that the request schema describes."""
        out: dict[str, Any] = {"bridge": self.revision.tag}
        if self.model is not None and self.architecture == self.model.architecture:
            out["model"] = self.model.name
        elif self.architecture is not None:
            out["model"] = _architecture_dict(self.architecture)
        if self.gpu is not None:
            out.setdefault("cluster", {})["gpu"] = self.gpu.name
        for name, value in self.values.items():
            term = knowledge.terms[name]
            out.setdefault(term.section, {})[term.field] = list(value) if isinstance(value, tuple) else value
        return out


def _architecture_dict(arch: Architecture) -> dict[str, Any]:
    defaults = {f.name: f.default for f in fields(Architecture)}
    return {k: v for k, v in arch.to_dict().items() if v != defaults[k]}


def parse_request(
    data: Mapping[str, Any], knowledge: Knowledge, *, base: Path | None = None, files: bool = True
) -> Request:
    """Check a request and resolve its model, GPU and revision.

    Args:
        data: the request, e.g. ``{"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": 256}}``.
        knowledge: the knowledge base.
        base: folder that a relative ``model.hf_config`` path starts from; None = the current folder.
        files: whether a model may be read from a file that the request names; a service says no.

    Raises:
        RequestError: anything that can't be understood.
    """
    if not isinstance(data, Mapping):
        raise RequestError("request", data, "is not a mapping", 'Write e.g. {"model": "llama3-8b", "cluster": {...}}.')
    known = {"bridge", *SECTIONS}
    for key in data:
        if key not in known:
            raise RequestError(str(key), data[key], "is not a part of a request", _place(str(key), known, knowledge))
    revision = find_revision(data.get("bridge"), knowledge)
    notes: list[str] = []
    architecture, model, model_name, dimensions = _model(data.get("model"), knowledge, base, files, notes)
    values: dict[str, Value] = dict(dimensions)
    gpu: Gpu | None = None
    for section in SECTIONS[1:]:
        part = data.get(section)
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise RequestError(section, part, "is not a mapping", f"Write {section} as field: value pairs.")
        for term, value, path in _leaves(part, section, knowledge):
            if term.name in values and values[term.name] != value:
                raise RequestError(path, value, f"contradicts {term.field} = {values[term.name]}", "Give it once.")
            values[term.name] = value
    if values.get("gpu") is not None:
        gpu = find_gpu(values.pop("gpu"), knowledge)
    return Request(revision, architecture, model, model_name, gpu, values, tuple(notes))


def parse_pair(text: str) -> tuple[str, Any]:
    """Split ``name=value`` as given to ``--set``; the value is read as JSON where it is JSON, else as a word.

    ``null``, ``none`` and an empty value mean *unset*; ``True``/``False`` are accepted as Python writes them. A dotted
    name (``model.tensor_model_parallel_size``) is reduced to its last part.
    """
    name, sign, raw = text.partition("=")
    name = name.strip().lstrip("+~").rpartition(".")[2]
    if not sign or not name:
        raise RequestError("--set", text, "is not name=value", "Write e.g. --set tp=2.")
    return name, parse_word(raw)


def parse_word(raw: str) -> Any:
    """A command-line word as a value: None, bool, int, float, list or str."""
    word = raw.strip()
    lowered = word.lower()
    if lowered in ("", "null", "none"):
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        if word.startswith("[") and word.endswith("]"):
            return [parse_word(part) for part in word[1:-1].split(",") if part.strip()]
        return word
    return value


def find_revision(tag: Any, knowledge: Knowledge) -> Revision:
    """The revision called ``tag`` (``v0.6.0`` or ``0.6.0``); the newest where None."""
    if tag is None:
        return knowledge.latest
    names = ", ".join(knowledge.revisions)
    if not isinstance(tag, str):
        raise RequestError("bridge", tag, "is not a release tag", f"Known: {names}.")
    found = knowledge.revisions.get(tag) or knowledge.revisions.get("v" + tag.lstrip("v"))
    if found is None:
        raise RequestError("bridge", tag, "is not a Megatron Bridge release in the knowledge base", f"Known: {names}.")
    return found


def find_gpu(name: Any, knowledge: Knowledge) -> Gpu:
    """A GPU system by name or alias, in any case."""
    table = {alias.lower(): gpu for gpu in knowledge.gpus.values() for alias in (gpu.name, *gpu.aliases)}
    if not isinstance(name, str):
        raise RequestError("cluster.gpu", name, "is not the name of a GPU", f"Known: {', '.join(knowledge.gpus)}.")
    found = table.get(name.lower().removeprefix("nvidia").strip(" -_"))
    if found is None:
        raise RequestError("cluster.gpu", name, "is not in the knowledge base", _did_you_mean(name, knowledge.gpus))
    return found


def find_model(name: str, knowledge: Knowledge) -> Model:
    """A catalogue model by name, alias or Hugging Face id, in any case and spelling of dashes."""
    table = {
        _slug(alias): model
        for model in knowledge.models.values()
        for alias in (model.name, *model.aliases, *([model.hf_id] if model.hf_id else []))
    }
    found = table.get(_slug(name))
    if found is None:
        way = _did_you_mean(name, knowledge.models)
        way += " A Hugging Face config.json or an architecture object works too."
        raise RequestError("model", name, "is not in the catalogue", way)
    return found


def _slug(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum() or c == "/")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    pool = list(known)
    by_lower = {n.lower(): n for n in pool}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(by_lower[n] for n in near)}?"
    return f"Known: {', '.join(pool)}."


def _place(key: str, known: Iterable[str], knowledge: Knowledge) -> str:
    term = knowledge.by_field.get(key)
    if term is not None and term.section in SECTIONS:
        return f"It belongs under {term.section}."
    return _did_you_mean(key, known)


def _model(
    given: Any, knowledge: Knowledge, base: Path | None, files: bool, notes: list[str]
) -> tuple[Architecture | None, Model | None, str | None, Mapping[str, Value]]:
    """``(architecture, catalogue entry, name, dimensions)``; the last where they don't make up an architecture."""
    if given is None:
        return None, None, None, {}
    if isinstance(given, str):
        if given.endswith(".json"):
            return _from_hf(given, base, files, notes)
        named = find_model(given, knowledge)
        return named.architecture, named, named.name, {}
    if not isinstance(given, Mapping) or not given:
        way = "Write a catalogue name, {hf_config: path} or an architecture object."
        raise RequestError("model", given, "is not a model", way)
    if "hf_config" in given:
        if len(given) > 1:
            extra = ", ".join(str(k) for k in given if k != "hf_config")
            raise RequestError("model", extra, "stands beside hf_config", "Give either hf_config or dimensions.")
        return _from_hf(given["hf_config"], base, files, notes)
    start: Architecture | None = None
    model: Model | None = None
    dims = {k: v for k, v in given.items() if k not in ("name", "model")}
    name = given.get("name", given.get("model"))
    if name is not None:
        if not isinstance(name, str):
            raise RequestError("model.name", name, "is not a name", "Write a catalogue name.")
        try:
            model = find_model(name, knowledge)
            start = model.architecture
        except RequestError:
            if not dims:
                raise
    checked = _check_dimensions(dims, knowledge)
    if start is None and not checked.keys() >= REQUIRED:
        known = {k: (v,) if isinstance(v, int) and knowledge.terms[k].type == "list" else v for k, v in checked.items()}
        return None, None, name, known
    return _architecture(checked, start), model, name or "custom", {}


def _from_hf(
    source: Any, base: Path | None, files: bool, notes: list[str]
) -> tuple[Architecture, None, str, Mapping[str, Value]]:
    from .hf_config import read_hf_config

    if isinstance(source, str) and not files:
        way = "Give its content, {hf_config: {...}}, or a catalogue name."
        raise RequestError("model", source, "names a file, and none is read here", way)
    architecture, name, more = read_hf_config(source, base)
    notes.extend(more)
    return architecture, None, name, {}


def _check_dimensions(dims: Mapping[str, Any], knowledge: Knowledge) -> dict[str, Any]:
    """Megatron Core's own field names with values that the vocabulary allows."""
    checked: dict[str, Any] = {}
    for key, value in dims.items():
        path = f"model.{key}"
        term = knowledge.by_field.get(key)
        if term is None or term.field not in FIELD_NAMES:
            raise RequestError(path, value, "is not a dimension of a model", _did_you_mean(str(key), FIELD_NAMES))
        if term.type == "list" and isinstance(value, int) and not isinstance(value, bool):
            checked[term.field] = value  # Megatron's "every n-th layer"
            continue
        checked[term.field] = check_value(term, value, path)
    return checked


def _architecture(checked: Mapping[str, Any], start: Architecture | None) -> Architecture:
    """An architecture, or one that differs from ``start`` in some dimensions."""
    arch = replace(start, **checked) if start is not None else Architecture(**checked)
    if arch.num_moe_experts and not arch.moe_router_topk:
        raise RequestError("model.moe_router_topk", None, "is needed with num_moe_experts", "Add it.")
    if arch.hidden_size % arch.num_attention_heads and not arch.kv_channels and not arch.multi_latent_attention:
        way = "Add kv_channels (channels of one head)."
        raise RequestError("model.kv_channels", None, "is needed: hidden_size isn't a multiple of the heads", way)
    return arch


def _leaves(part: Mapping[str, Any], section: str, knowledge: Knowledge) -> Iterable[tuple[Term, Value, str]]:
    for key, value in part.items():
        path = f"{section}.{key}"
        if isinstance(value, Mapping):
            short = _GROUPS.get(str(key))
            if short is None:
                raise RequestError(path, value, "is not a single value", "Write it as field: value.")
            for inner, leaf in value.items():
                name = short.get(str(inner), str(inner))
                yield _term(name, section, f"{path}.{inner}", leaf, knowledge)
            continue
        yield _term(str(key), section, path, value, knowledge)


def _term(key: str, section: str, path: str, value: Any, knowledge: Knowledge) -> tuple[Term, Value, str]:
    term = knowledge.by_field.get(key)
    fits = {term.section} if term is not None else set()
    # Names are unique, so training and grid settings are understood in either place.
    if fits & {"training", "grid"}:
        fits = {"training", "grid"}
    if term is None or term.section == "derived":
        names = [n for t in knowledge.terms.values() if t.section == section for n in (t.field, t.name)]
        reason = "is computed, not given" if term is not None else f"is not a known {section} setting"
        raise RequestError(path, value, reason, _did_you_mean(key, names))
    if section not in fits:
        raise RequestError(path, value, "stands in the wrong place", f"{term.field} belongs under {term.section}.")
    return term, check_value(term, value, path), path


def check_value(term: Term, value: Any, path: str) -> Value:
    """A value as the vocabulary's type, or a :class:`RequestError`."""
    if value is None:
        if term.nullable:
            return None
        raise RequestError(path, value, "may not be empty", f"{term.field} is {_expected(term)}.")
    wrong = RequestError(path, value, "has the wrong type", f"{term.field} is {_expected(term)}.")
    if term.type == "bool":
        if not isinstance(value, bool):
            raise wrong
        return value
    if term.type == "str":
        if isinstance(value, list | tuple) and term.values == ():
            value = "|".join(map(str, value))
        if not isinstance(value, str):
            raise wrong
        if term.values and value not in term.values:
            raise RequestError(path, value, "is not a choice", f"One of: {', '.join(term.values)}.")
        return value
    if term.type == "list":
        items = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(i, str | int) and not isinstance(i, bool) for i in items):
            raise wrong
        bad = [i for i in items if term.values and i not in term.values]
        if bad:
            raise RequestError(path, bad[0], "is not a choice", f"Any of: {', '.join(term.values)}.")
        return tuple(items)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong
    if isinstance(value, float) and (not math.isfinite(value) or term.type == "int"):
        raise wrong
    if term.min is not None and value < term.min:
        raise RequestError(path, value, f"is below {term.min:g}", f"{term.field} is {_expected(term)}.")
    if term.max is not None and value > term.max:
        raise RequestError(path, value, f"is above {term.max:.0f}", f"{term.field} is {_expected(term)}.")
    return float(value) if term.type == "float" else value


def _expected(term: Term) -> str:
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word", "list": "a list"}
    out = words[term.type]
    if term.min is not None and term.max is not None:
        out += f" from {term.min:g} to {term.max:.0f}"
    elif term.min is not None:
        out += f" of at least {term.min:g}"
    if term.values:
        out += f" out of {', '.join(term.values)}"
    return out + (", or null for unset" if term.nullable else "")
