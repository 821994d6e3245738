"""One way in for real inputs: files and texts of many kinds, normalised into the request mapping."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..knowledge import Knowledge, load
from ..knowledge.model import Text
from .config_file import is_container, is_request, read_container, read_functional_test, read_settings
from .kinds import KINDS
from .notes import Draft, Note
from .request import find_revision

MAX_BYTES = 4 * 2**20
_SCRIPTS = ("bridge_launch", "megatron_lm", "nemo2", "verl", "ms_swift", "slime", "slurm")


def read_input(
    source: str | Path,
    kind: str | None = None,
    *,
    bridge: str | None = None,
    knowledge: Knowledge | None = None,
    files: bool = True,
) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Normalise an input into the request mapping.

    Args:
        source: a file's path (or the folder of a ``config.json`` or ``run_config.yaml``), or the text itself. Of the
            paths that an input names, only a model's config.json in the input's own folder (for a text: the current
            one) or below is followed.
        kind: what it is; None = found out from the content.
        bridge: the release to ask about; decides which release's recipe is read.
        knowledge: another knowledge base than the packaged one.
        files: whether the source may be a path; otherwise it is the text itself, whatever it looks like.

    Returns:
        the request, as schemas/request.schema.json describes, and a note on every field.

    Raises:
        RequestError: unreadable, of no known kind, or with a value that can't be.
    """
    base = knowledge or load()
    if kind is not None and kind not in KINDS:
        raise RequestError("kind", kind, "is not a kind of input", f"One of: {', '.join(KINDS)}.")
    draft = Draft(base)
    if bridge is not None:
        draft.request["bridge"] = find_revision(bridge, base).tag
    name, text = _text(source, kind, files)
    if kind == "recipe" or (kind is None and "\n" not in text and re.fullmatch(r"\s*[\w/.-]+\s*", text)):
        from .recipe import take_recipe

        take_recipe(text.strip(), draft)
        return draft.request, tuple(draft.notes)
    data = _data(text, name, kind)
    if isinstance(data, list):
        raise RequestError(name, None, "holds no settings", "Write name: value pairs.")
    if isinstance(data, Mapping):
        _mapping(data, kind, name, draft)
    elif kind == "overrides" or (kind is None and _all_overrides(text)):
        from .launch import read_overrides

        read_overrides(_overrides(text), draft)
        draft.request.setdefault("grid", {})
    elif kind is None or kind in _SCRIPTS:
        from .launch import form_of, read_launch

        form = None if kind in (None, "slurm") else kind
        if form is None and form_of(text, base) is None and "#SBATCH" not in text:
            raise RequestError(name, None, "is of no known kind", f"Give --kind, one of: {', '.join(KINDS)}.")
        read_launch(text, draft, form)
    else:
        raise RequestError(name, None, f"isn't {kind}", "It must be a mapping in YAML or JSON.")
    if files:
        _keep_inside(draft.request, Path() if name == "input" else Path(name).expanduser().parent)
    return draft.request, tuple(draft.notes)


def _keep_inside(request: dict[str, Any], folder: Path) -> None:
    """Make the path of a model's config.json start from ``folder``; refuse one that leads out of it."""
    model = request.get("model")
    given = model.get("hf_config") if isinstance(model, Mapping) else model
    if not isinstance(given, str) or (isinstance(model, str) and not given.endswith(".json")):
        return
    try:
        inside = (folder / given).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as problem:
        raise RequestError("model", given, f"is no path ({problem})", "Check the path.") from None
    if not inside:
        way = "Put the config.json beside the file, or name it by --model."
        raise RequestError("model", given, "leads out of the input's folder", way)
    request["model"] = {"hf_config": str(folder / given)}


def _text(source: str | Path, kind: str | None, files: bool) -> tuple[str, str]:
    """``(name for messages, content)`` of a file, or of the text itself."""
    text = str(source)
    if kind == "recipe":
        return "recipe", text
    if not files or (
        isinstance(source, str)
        and ("\n" in text or "=" in text or text.startswith(("--", "{")) or " --" in text or len(text) > 4000)
    ):
        if len(text) > MAX_BYTES:
            raise RequestError("input", None, "is larger than 4 MiB", "Give the configuration only.")
        return "input", text
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            inside = [path / n for n in ("run_config.yaml", "config.json") if (path / n).is_file()]
            if not inside:
                raise RequestError(
                    "file",
                    text,
                    "can't be read: the folder has neither run_config.yaml nor config.json",
                    "Name the file.",
                )
            path = inside[0]
        elif not path.exists():
            if isinstance(source, str) and re.fullmatch(r"[\w/-]+", text) and "." not in text:
                return "recipe", text
            raise RequestError("file", text, "can't be read (No such file or directory)", "Check the path.")
        if not path.is_file():
            raise RequestError("file", text, "is no regular file", "Give a file.")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        reason = f"can't be read ({problem.strerror or problem})"
        raise RequestError("file", text, reason, "Check the path.") from None
    except (ValueError, RuntimeError) as problem:
        raise RequestError("file", text, f"is no path ({problem})", "Check the path.") from None
    if len(raw) > MAX_BYTES:
        raise RequestError("file", text, "is larger than 4 MiB", "Give the configuration only.")
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise RequestError("file", text, f"isn't UTF-8 text (line {line})", "Save it as UTF-8.") from None
    if "\0" in content:
        raise RequestError("file", text, "isn't text", "Give a text file.")
    if not content.strip():
        raise RequestError("file", text, "holds no settings", "Write name: value pairs.")
    return text, content


def _data(text: str, name: str, kind: str | None) -> Any:
    """JSON or YAML content as data; None where it is neither (a script)."""
    stripped = text.lstrip()
    if kind in ("overrides", "slurm", "bridge_launch", "ms_swift", "slime"):
        return None
    if stripped.startswith("{"):
        try:
            return json.loads(text, parse_constant=lambda word: None)
        except (ValueError, RecursionError) as problem:
            reason = f"is not JSON ({str(problem)[:120]})"
            raise RequestError(name, None, reason, "Mend the file.") from None
    if re.match(r"#!|--?[A-Za-z]", stripped) or _SCRIPT.search(text) or (kind is None and _all_overrides(text)):
        return None
    from .yaml_input import parse_yaml

    try:
        return parse_yaml(text, name)
    except RequestError:
        if kind is None and re.search(r"(^|\s)--[a-z]", text) and not re.search(r"^[\w-]+:\s*$", text, re.MULTILINE):
            return None
        raise


_SCRIPT = re.compile(r"^(export |torchrun |srun |python3? |#SBATCH|megatron (sft|pt|rlhf)|[A-Z_]+=)", re.MULTILINE)


def _mapping(data: Mapping[str, Any], kind: str | None, name: str, draft: Draft) -> None:
    kind = kind or _kind_of(data)
    if kind == "hf_config":
        _hf_config(data, name, draft)
    elif kind == "request":
        draft.request = {**dict(data), **({"bridge": draft.request["bridge"]} if "bridge" in draft.request else {})}
    elif kind in ("megatron_test", "megatron_lm"):
        read_functional_test(data if "MODEL_ARGS" in data else {"MODEL_ARGS": data}, draft)
    elif kind in ("nemo2", "verl"):
        read_settings(data, draft, kind)
    elif kind == "bridge":
        read_container(data, draft)
    else:
        raise RequestError(name, None, f"can't be read as {kind}", f"One of: {', '.join(KINDS)}.")


def _kind_of(data: Mapping[str, Any]) -> str:
    """What a mapping is, by its keys."""
    if not data:
        raise RequestError("file", None, "holds no settings", "Write name: value pairs.")
    keys = set(map(str, data))
    if "MODEL_ARGS" in keys or any(k.startswith("--") for k in keys):
        return "megatron_test"
    if keys & {"model_type", "architectures"} and not is_container(data):
        return "hf_config"
    if "actor_rollout_ref" in keys:
        return "verl"
    trainer = data.get("trainer")
    if isinstance(trainer, Mapping) and isinstance(trainer.get("strategy"), Mapping):
        return "nemo2"
    return "request" if is_request(data) else "bridge"


def _hf_config(data: Mapping[str, Any], name: str, draft: Draft) -> None:
    """Dimensions, with a note on every key of the part that was read."""
    from .hf_config import language_part, read_hf_config, read_keys
    from .mappings import table

    arch, _, remarks = read_hf_config(data)
    stem = Path(name).parent.name if Path(name).name == "config.json" else Path(name).stem
    label = data.get("_name_or_path") or (stem if name != "input" else "") or data.get("model_type")
    draft.request["model"] = {"name": Path(str(label)).name or "custom", **arch.to_dict()}
    part = language_part(data)
    inner: Any = data
    for key in part.split(".") if part else ():
        inner = inner[key]
    known, ignored = read_keys(), table(draft.knowledge, "hf_config")
    for key in map(str, inner):
        status: Any = "taken" if key in known else "no_bearing" if ignored.without_bearing(key) else "unknown"
        draft.note(key, status, value=inner[key] if not isinstance(inner[key], dict | list) else None)
    for remark in remarks:
        draft.note(part or "model", "not_modelled", Text(remark, f"只读取语言模型部分（{part}），其余部分不计入"))


def _all_overrides(text: str) -> bool:
    from .launch import override

    words = text.split()
    return bool(words) and all(override(word) for word in words)


def _overrides(text: str) -> list[tuple[str, Any]]:
    import shlex

    from .launch import override

    try:
        words = shlex.split(text, comments=True)
    except ValueError as problem:
        raise RequestError("overrides", None, f"can't be taken apart ({problem})", "Close the quotes.") from None
    pairs = []
    for word in words:
        pair = override(word)
        if pair is None:
            way = "Write e.g. model.tensor_model_parallel_size=2."
            raise RequestError("overrides", word, "is not path=value", way)
        pairs.append(pair)
    return pairs
