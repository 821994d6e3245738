"""Field cases as requests: what the report gives, and what the test must fill in (data/field_case_requests.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.request import find_gpu, find_model
from mbridge_advisor.knowledge import load

BASE = load()
DATA = Path(__file__).parent / "data"
CORE_RELEASE = "v0.3.1"  # the last one at which Bridge leaves Megatron Core's own rules and defaults as they are
# Config key -> our name, where they differ.
NAMES = {
    "world_size": "gpus",
    "num_experts": "num_moe_experts",
    "first_stage_layers": "num_layers_in_first_pipeline_stage",
    "last_stage_layers": "num_layers_in_last_pipeline_stage",
    "dispatcher": "moe_token_dispatcher_type",
    "flex_backend": "moe_flex_dispatcher_backend",
    "cuda_graph": "cuda_graph_impl",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}
GPUS_PER_NODE = 8


def read(name: str) -> Any:
    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))


RULES: Mapping[str, Any] = read("field_case_rules.yaml")
FILLED: Mapping[str, Mapping[str, Any]] = read("field_case_requests.yaml")


@dataclass(frozen=True)
class Case:
    """One report.

    Attributes:
        data: as it stands in data/field_cases.yaml.
        filled: its entry in data/field_case_requests.yaml.
    """

    data: Mapping[str, Any]
    filled: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def verdict(self) -> str:
        return str(self.data["expected"]["verdict"])

    @property
    def by(self) -> str:
        return str(self.filled.get("by", "check"))

    @property
    def rules(self) -> dict[str, list[str]]:
        """Rule id of the report -> our rules that answer it; only what is covered."""
        return {r: RULES[r] for r in self.data["expected"]["rules"] if isinstance(RULES[r], list)}

    @property
    def ours(self) -> set[str]:
        return {rule for rules in self.rules.values() for rule in rules}

    @property
    def bridge(self) -> str:
        bridge = "megatron-bridge" in self.data["framework"] and "lm" not in self.data["framework"]
        return str(self.filled.get("bridge", BASE.latest.tag if bridge else CORE_RELEASE))

    def request(self, *changes: Mapping[str, Any], bridge: str | None = None) -> dict[str, Any]:
        """The request, with changes by the report's names or ours."""
        config = {k: v for k, v in self.data["config"].items() if k not in self.filled.get("drop", ())}
        settings: dict[str, Any] = {}
        gpu = str(config.get("gpu_type", "")).split("/")[0]
        for spelling in (gpu.rpartition("-")[0], gpu):
            if _known(find_gpu, spelling):
                settings["gpu"] = spelling
        if "nodes" in config:
            settings["gpus"] = config["nodes"] * config.get("gpus_per_node", GPUS_PER_NODE)
        if config.get("optimizer_offload"):
            settings |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0}
        if str(config.get("tuner", "")).startswith("LoRA"):
            settings["task"] = "lora"
        for part in (config, self.filled.get("model", {}), self.filled.get("set", {}), *changes):
            for key, value in part.items():
                term = BASE.by_field.get(NAMES.get(key, key))
                if term is not None and term.section != "derived" and not str(value).startswith(">"):
                    settings[term.field] = value
        request: dict[str, Any] = {"bridge": bridge or self.bridge}
        name = settings.pop("model", None)
        known = name is not None and _known(find_model, name)
        if known:
            request["model"] = find_model(name, BASE).name
        for field, value in settings.items():
            section = BASE.by_field[field].section
            if section != "model" or not known:
                request.setdefault(section, {})[field] = value
        return request


def _known(find: Any, name: str) -> bool:
    try:
        find(name, BASE)
    except RequestError:
        return False
    return True


CASES = [Case(data, FILLED.get(data["id"]) or {}) for data in read("field_cases.yaml")]
COVERED = [case for case in CASES if case.rules]
OPEN: Mapping[str, str] = read("field_cases_open.yaml")
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- generated: field cases -->\n", "<!-- end -->"


def lists() -> str:
    """The lists of tests/README.md: how many cases are covered, which aren't, which are open."""
    lines = [
        f"{len(COVERED)} of {len(CASES)} cases are covered by rules, {len(COVERED) - len(OPEN)} come out right.",
        "",
        "Not covered yet:",
        "",
    ]
    for case in CASES:
        if not case.rules:
            rule = case.data["expected"]["rules"][0]
            lines.append(f"- {case.id} ({case.data['category']}): {RULES[rule]['not_covered']}.")
    lines += ["", "Covered, but not right yet:", ""]
    lines += [f"- {name}: {why}" for name, why in OPEN.items()]
    return "\n".join(lines) + "\n"


def readme() -> str:
    """tests/README.md as it should be."""
    text = README.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}{lists()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
