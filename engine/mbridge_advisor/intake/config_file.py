"""Mappings of settings as requests: a request itself, Bridge's ``ConfigContainer``, and other programs' YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import RequestError
from .mappings import table, translate_options
from .notes import Draft
from .request import SECTIONS, find_model

CONTAINER = frozenset(
    {
        "train",
        "ddp",
        "optimizer",
        "dataset",
        "scheduler",
        "checkpoint",
        "logger",
        "tokenizer",
        "dist",
        "rng",
        "comm_overlap",
        "mixed_precision",
        "rerun_state_machine",
        "validation",
        "profiling",
        "peft",
        "ft",
        "nvrx_straggler",
        "straggler",
        "inprocess_restart",
        "tensor_inspect",
    }
)
# Where providers of multimodal models keep the language model's configuration, and newer models all of it.
NESTED = ("transformer", "transformer_config", "language_transformer_config", "language_model", "text_config", "config")
_DTYPES = re.compile(r"torch\.(\w+)")
_MODEL_ID = ("hf_model_id", "hf_model_name_or_path", "_hf_model_id")


def is_request(data: Mapping[str, Any]) -> bool:
    """Whether a mapping has the request's own shape."""
    return data.keys() <= {"bridge", *SECTIONS} and not is_container(data)


def is_container(data: Mapping[str, Any]) -> bool:
    """Whether a mapping is a ``ConfigContainer``, or part of one."""
    model = data.get("model")
    settings = isinstance(model, Mapping) and any(
        k.endswith("_parallel_size") or k in ("_target_", "sequence_parallel") for k in map(str, model)
    )
    return bool(CONTAINER & data.keys()) or settings


def read_container(data: Mapping[str, Any], draft: Draft) -> None:
    """Put a ``ConfigContainer``, or a flat mapping of settings, into a draft.

    ``_target_`` says what an object is and is never acted on: an enum or a dtype is read by its value, a nested
    provider by its fields. A flat mapping may also have a request's sections beside its settings.
    """
    knowledge = draft.knowledge
    if "bridge" in data:
        draft.request["bridge"] = data["bridge"]
    for key in ("cluster", "environment"):
        part = data.get(key)
        if part is not None and not isinstance(part, Mapping):
            raise RequestError(key, part, "is not a mapping", f"Write name: value pairs under {key}, or leave it out.")
        if part:
            draft.request[key] = dict(part)
    rest = {k: v for k, v in data.items() if k not in ("bridge", "cluster", "environment")}
    if isinstance(rest.get("model"), str):
        draft.request["model"] = rest.pop("model")
    model = rest.get("model")
    container = is_container(data)
    if isinstance(model, Mapping):
        name = model.get("name")
        if isinstance(name, str) and "_target_" not in model:
            draft.model(name, "model.name")
        rest["model"] = _lifted(model)
        _named(model, draft)
    pairs: list[tuple[str, Any]] = []
    for path, value in _leaves(rest):
        section, _, tail = path.partition(".")
        if tail and section not in CONTAINER | {"model"}:  # sections of our own request, or of nobody
            pairs.append((f"model.{tail}" if section in SECTIONS else path, value))
        elif not tail and path not in CONTAINER:
            pairs.append((f"model.{path}", value))
        else:
            pairs.append((path, value))
    mapping = table(knowledge, "bridge")
    known = [(k, v) for k, v in pairs if not (v is None and _refuses_null(k, mapping.below_root(k), draft))]
    translate_options(known, mapping, draft)
    if container:  # a whole configuration: what it leaves out has Bridge's defaults
        draft.request.setdefault("grid", {}).setdefault("tensor_model_parallel_size", 1)
    if isinstance(data.get("peft"), Mapping) and not draft.has("task"):
        draft.put("task", "lora", "peft")


def read_settings(data: Mapping[str, Any], draft: Draft, form: str) -> None:
    """Put another program's nested YAML (NeMo 2, verl) into a draft, by its mapping."""
    from .launch import _cluster

    mapping = table(draft.knowledge, form)
    extra = translate_options(list(_leaves(data)), mapping, draft)
    _cluster(extra.get("nodes"), None, None, draft)
    if mapping.remark is not None:
        draft.note(mapping.title.en, "not_modelled", mapping.remark)


def read_functional_test(data: Mapping[str, Any], draft: Draft) -> None:
    """Put a functional test of Megatron-LM (``ENV_VARS``, ``MODEL_ARGS``) into a draft."""
    from .launch import _cluster

    arguments = data.get("MODEL_ARGS")
    base = data.get("BASE_MODEL_ARGS")
    given = {
        str(key).lstrip("-").replace("-", "_"): value
        for part in (base, arguments)
        if isinstance(part, Mapping)
        for key, value in part.items()
    }
    nemo = any(key.startswith("trainer.") for key in given)
    mapping = table(draft.knowledge, "nemo2" if nemo else "megatron_lm")
    extra = translate_options([(k, _flat(v)) for k, v in given.items()], mapping, draft)
    for name, value in (data.get("ENV_VARS") or {}).items() if isinstance(data.get("ENV_VARS"), Mapping) else ():
        term = draft.knowledge.by_field.get(str(name))
        if term is not None and term.section == "environment":
            draft.put(term.name, str(value), str(name))
        else:
            draft.note(str(name), "no_bearing", value=str(value))
    _cluster(extra.get("nodes"), None, None, draft)


def _flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else None if isinstance(value, Mapping) else value


def _refuses_null(path: str, name: str, draft: Draft) -> bool:
    term = draft.knowledge.by_field.get(name)
    return term is not None and not term.nullable


def _lifted(model: Mapping[str, Any]) -> dict[str, Any]:
    """A provider with the fields of its nested language model beside its own; its own come first."""
    out: dict[str, Any] = {}
    for key in NESTED:
        inner = model.get(key)
        if isinstance(inner, Mapping) and "num_layers" in inner:
            out.update(inner)
    nested = {k for k in NESTED if isinstance(model.get(k), Mapping)}
    return {**out, **{k: v for k, v in model.items() if k not in nested and not (v is None and k in out)}}


def _named(model: Mapping[str, Any], draft: Draft) -> None:
    """A model that a provider names by its Hugging Face id, where the dimensions aren't all there."""
    if {"num_layers", "hidden_size", "num_attention_heads", "vocab_size"} <= model.keys():
        return
    for key in _MODEL_ID:
        name = model.get(key)
        if not isinstance(name, str):
            continue
        try:
            draft.request["model"] = {"name": find_model(name, draft.knowledge).name}
        except RequestError:  # an id outside the catalogue says nothing more
            continue
        draft.note(f"model.{key}", "taken", name="model", value=name)
        return


def _leaves(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """``(dotted path, value)``; objects are their plain value, and keys that start with an underscore are left out."""
    for key, value in data.items():
        here = f"{path}{key}"
        if str(key).startswith("_"):
            continue
        if isinstance(value, Mapping):
            if "_target_" in value or "_args_" in value:
                simple = _object(value)
                if simple is not None:
                    yield here, simple
                    continue
                if any(k in value for k in ("_call_", "_partial_", "config_dict")) and len(value) <= 4:
                    yield here, None
                    continue
            yield from _leaves(value, f"{here}.")
        elif isinstance(value, list):
            yield here, [_object(v) if isinstance(v, Mapping) else v for v in value]
        else:
            yield here, value


def _object(value: Mapping[str, Any]) -> Any:
    """A dtype or an enum by its name or value; None for any other object."""
    arguments = value.get("_args_")
    if value.get("_call_") is True and isinstance(arguments, list) and len(arguments) == 1:
        inner, name = arguments[0], value.get("_name_")
        return inner if isinstance(inner, str) else name if isinstance(name, str) else inner
    target = value.get("_target_")
    if isinstance(target, str) and (match := _DTYPES.fullmatch(target)):
        return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}.get(match[1], match[1])
    return None
