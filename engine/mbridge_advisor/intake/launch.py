"""Launch scripts, argument lists and Slurm scripts as requests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import RequestError
from ..knowledge import Knowledge
from ..knowledge.model import Text
from .mappings import Table, table, translate_options
from .notes import Draft, unresolved
from .shell import Script, read_script

FORMS = ("bridge_launch", "verl", "slime", "ms_swift", "nemo2", "megatron_lm")  # looked for in this order
_SETTING = re.compile(r"[+~]{0,2}([A-Za-z_][\w-]*(?:\.[\w-]+)+)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def form_of(text: str, knowledge: Knowledge) -> str | None:
    """Which program's arguments a text holds, or None."""
    return next((name for name in FORMS if any(word in text for word in table(knowledge, name).detect)), None)


def read_launch(text: str, draft: Draft, form: str | None = None) -> None:
    """Put what a script or an argument list says into a draft.

    Args:
        text: the script, or arguments alone.
        draft: what the settings are put into.
        form: name of the mapping; None = found out.

    Raises:
        RequestError: no arguments that are understood, or a value that can't be.
    """
    form = form or form_of(text, draft.knowledge) or "megatron_lm"
    mapping = table(draft.knowledge, form)
    first = read_script(text)
    nodes, per_node, gpu = _slurm(first.sbatch, draft)
    script = read_script(text, _slurm_variables(nodes, per_node)) if first.sbatch else first
    words = _chosen(script, mapping, draft.knowledge)
    pairs = list(_pairs(words, mapping, draft.knowledge))
    environment = [(name, value) for name, value in script.exported.items() if name in mapping.options]
    settings = [(key, value) for key, value in pairs if "." in key and key not in mapping.options]
    options = [pair for pair in pairs if pair not in settings]
    if not pairs and nodes is None and per_node is None:
        way = "Give a script or arguments such as --tensor-model-parallel-size 2."
        raise RequestError("file", None, "holds no arguments that are understood", way)
    for condition in dict.fromkeys(script.undecided):
        why = Text("can't be decided without running it; its first branch was read", "不运行无法判断，按第一个分支读取")
        draft.note(condition, "no_bearing", why)
    own = bool(mapping.roots) and not any(s[0].startswith(("model.", "train.")) for s in settings)
    extra = {}
    if form == "bridge_launch":
        _recipe(options, draft)
    if own:
        extra = translate_options([*environment, *options, *settings], mapping, draft)
    else:
        extra = translate_options([*environment, *options], mapping, draft)
        translate_options(settings, table(draft.knowledge, "bridge"), draft)
    _environment(script, draft)
    _cluster(extra.get("nodes", nodes), per_node, gpu, draft)
    if mapping.remark is not None:
        draft.note(mapping.title.en, "not_modelled", mapping.remark)


def read_overrides(pairs: Iterable[tuple[str, Any]], draft: Draft) -> None:
    """Put ``path=value`` overrides, as run_recipe.py takes them, into a draft."""
    translate_options(pairs, table(draft.knowledge, "bridge"), draft)


def override(text: str) -> tuple[str, str] | None:
    """``path=value`` as a pair; None where it is something else."""
    match = _SETTING.fullmatch(text)
    return (match[1], match[2].strip().strip("\"'")) if match else None


def _recipe(options: list[tuple[str, Any]], draft: Draft) -> None:
    """The recipe that a Bridge launch names comes first: everything else changes it."""
    from .recipe import take_recipe

    given = dict(options)
    name = given.get("recipe")
    if name is None and given.get("model") is not None:
        mode = str(given.get("mode", "pretrain"))
        name = f"{given['model']}_{'peft' if mode in ('lora', 'dora') else mode}_config"
    options[:] = [pair for pair in options if pair[0] not in ("recipe", "model")]
    if name is None:
        return
    if unresolved(name):
        draft.note("recipe", "unresolved", value=str(name))
        return
    take_recipe(str(name), draft, strict=False)


def _chosen(script: Script, mapping: Table, knowledge: Knowledge) -> list[str]:
    """The words of the command with the most arguments that are understood; else of all variables."""

    def score(words: list[str]) -> int:
        return sum(mapping.knows(key, knowledge) for key, _ in _pairs(words, mapping, knowledge))

    commands = [_flat(words) for words in script.commands]
    best = max(commands, key=score, default=[])
    variables = [w for value in script.variables.values() for w in _flat([value] if isinstance(value, str) else value)]
    return best if score(best) >= 1 and score(best) * 3 >= score(variables) else [*best, *variables]


def _flat(words: list[str]) -> list[str]:
    """Words that hold a whole command or several arguments, taken apart."""
    out: list[str] = []
    for word in words:
        if re.search(r"\s", word.strip()) and re.search(r"(^|\s)--?[A-Za-z]", word):
            try:
                out += shlex.split(word, comments=False)
            except ValueError:
                out += word.split()
        else:
            out.append(word)
    return out


def _pairs(words: list[str], mapping: Table, knowledge: Knowledge) -> Iterator[tuple[str, Any]]:
    """``(option, value)``; a switch is True, several values are joined by blanks."""
    key: str | None = None
    values: list[str] = []

    def done() -> Iterator[tuple[str, Any]]:
        if key is not None:
            yield key, _value(key, values, mapping, knowledge)

    for word in words:
        setting = _SETTING.fullmatch(word)
        option = _OPTION.fullmatch(word)
        if setting:
            yield from done()
            key = None
            yield setting[1], setting[2].strip("\"'")
        elif option and (word.startswith("--") or option[1].replace("-", "_") in mapping.options):
            yield from done()
            key, values = option[1].replace("-", "_"), []
            if option[2] is not None:
                yield key, option[2]
                key = None
        elif key is not None:
            values.append(word)
    yield from done()


def _value(key: str, values: list[str], mapping: Table, knowledge: Knowledge) -> Any:
    option = mapping.options.get(key)
    name = option["to"] if option else key
    term = knowledge.by_field.get(name)
    if not values or (option and "set" in option and values[0].lower() not in ("true", "false")):
        return True
    if option and "values" in option:
        return values[0]
    if term is not None and term.type == "list":
        return " ".join(values)
    if term is not None and term.type == "bool" and values[0].lower() not in ("true", "false", "0", "1"):
        return True  # the next word belongs to nobody
    return values[0]


def _slurm(words: list[str], draft: Draft) -> tuple[int | None, int | None, str | None]:
    """Nodes, GPUs a node and kind of GPU that ``#SBATCH`` lines ask for."""
    asked: dict[str, str] = {}
    short = {"N": "nodes", "n": "ntasks", "G": "gpus"}
    pending: str | None = None
    for word in words:
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word)
        if match and (word.startswith("--") or len(match[1]) == 1):
            name = short.get(match[1], match[1])
            pending = None if match[2] is not None else name
            asked[name] = match[2] if match[2] is not None else ""
        elif match and match[1][:1] in short and match[1][1:].isdigit():
            asked[short[match[1][0]]] = match[1][1:]
        elif pending is not None:
            asked[pending], pending = word, None
    gpu = None

    def number(name: str) -> int | None:
        nonlocal gpu
        text = asked.get(name, "")
        parts = text.split("-")[-1].split(":") if name == "nodes" else text.split(":")
        if name == "gres" and parts[0] not in ("gpu", "gpus"):
            return None
        if len(parts) > 1 + (name == "gres"):
            gpu = parts[-2]
        value = int(parts[-1]) if re.fullmatch(r"\d{1,7}", parts[-1]) else None
        if text:
            draft.note(f"#SBATCH {name}", "taken" if value is not None else "unresolved", value=text)
        return value

    nodes = number("nodes")
    per_node = number("gpus-per-node") or number("gres")
    total = number("gpus")
    tasks, per_task = number("ntasks-per-node"), number("gpus-per-task")
    if per_node is None and tasks is not None:
        per_node = tasks * (per_task or 1)
    if per_node is None and total is not None:
        per_node = total // (nodes or 1) if total % (nodes or 1) == 0 else None
    for name in asked.keys() - {"nodes", "gpus-per-node", "gres", "gpus", "ntasks-per-node", "gpus-per-task"}:
        draft.note(f"#SBATCH {name}", "no_bearing", value=asked[name])
    return nodes, per_node, gpu


def _slurm_variables(nodes: int | None, per_node: int | None) -> dict[str, str]:
    out: dict[str, str] = {}
    if nodes is not None:
        out |= {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    if per_node is not None:
        out |= dict.fromkeys(("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_NTASKS_PER_NODE"), str(per_node))
    if nodes is not None and per_node is not None:
        out |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(nodes * per_node))
    return out


def _environment(script: Script, draft: Draft) -> None:
    for name, value in script.exported.items():
        term = draft.knowledge.by_field.get(name)
        if term is not None and term.section == "environment":
            draft.put(name, value, name)


def _cluster(nodes: Any, per_node: int | None, gpu: str | None, draft: Draft) -> None:
    """GPUs from nodes and GPUs a node; options of the launcher go before ``#SBATCH`` lines."""
    from .request import find_gpu, parse_word

    nodes = parse_word(nodes) if isinstance(nodes, str) else nodes
    known = draft.get("gpus_per_node")
    if known is None and per_node is not None:
        draft.put("gpus_per_node", per_node, "GPUs per node")
        known = per_node
    if isinstance(nodes, int) and not isinstance(nodes, bool) and isinstance(known, int) and not draft.has("gpus"):
        draft.put("gpus", nodes * known, "nodes x GPUs per node")
    if gpu is not None and not draft.has("gpu"):
        try:
            draft.put("gpu", find_gpu(gpu, draft.knowledge).name, "gres")
        except RequestError:
            draft.note("gres", "unknown", value=gpu)
