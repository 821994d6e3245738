"""A knowledge base with three rules and one quantity, and small sources that look like Megatron Bridge and Core."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mbridge_advisor.knowledge import Knowledge
from mbridge_advisor.knowledge.load import _load

BRIDGE_CONFIG = '''\
"""Configuration."""

import logging


class ConfigContainer:
    """All of it."""

    def validate(self):
        """Check it."""
        size = self.tp * self.pp
        if self.world_size % size != 0:
            raise ValueError(f"world size {self.world_size} doesn't fit {size}")
        if self.sequence_parallel and self.tp < 2:
            logging.warning("sequence parallelism is switched off")
            self.sequence_parallel = False
'''
CORE_CONFIG = """\
from dataclasses import dataclass


@dataclass
class ModelParallelConfig:
    tp: int = 1

    def __post_init__(self):
        if self.sequence_parallel:
            if self.tp <= 1:
                raise ValueError("no sequence parallelism without tensor parallelism")
"""
GUIDE = """\
# Parallelism

Intro.

## How to choose `TP`

Keep it inside   a node.

```
# not a heading
```

### Details

More.

## Other

Else.
"""
FILES: Mapping[str, str] = {
    "src/megatron/bridge/__init__.py": "",
    "src/megatron/bridge/package_info.py": 'MAJOR = 0\nMINOR = 6\nPATCH = 0\nPRE_RELEASE = ""\n',
    "src/megatron/bridge/training/config.py": BRIDGE_CONFIG,
    "docs/parallelisms.md": GUIDE,
}
CORE_FILES: Mapping[str, str] = {
    "megatron/core/__init__.py": "",
    "megatron/core/package_info.py": 'MAJOR = 0\nMINOR = 19\nPATCH = 0\nPRE_RELEASE = "rc1"\n',
    "megatron/core/model_parallel_config.py": CORE_CONFIG,
}

KNOWLEDGE: Mapping[str, str] = {
    "knowledge.yaml": "version: 0.1.0\nchanged: 2026-12-02\n",
    "vocabulary.yaml": """\
terms:
  tp:
    field: tensor_model_parallel_size
    section: grid
    type: int
    min: 1
    default: 1
    title: {en: TP, zh: 张量并行}
    meaning: {en: GPUs that share a layer, zh: 共同切分一层的 GPU}
  pp:
    field: pipeline_model_parallel_size
    section: grid
    type: int
    min: 1
    default: 1
    title: {en: PP, zh: 流水线并行}
    meaning: {en: Stages, zh: 阶段数}
  sequence_parallel:
    field: sequence_parallel
    section: grid
    type: bool
    default: false
    title: {en: SP, zh: 序列并行}
    meaning: {en: Splits the sequence, zh: 切分序列}
  world_size:
    field: gpus
    section: cluster
    type: int
    min: 1
    title: {en: GPUs, zh: GPU 总数}
    meaning: {en: GPUs of the job, zh: 任务的 GPU 总数}
  pipeline_model_parallel_layout:
    field: pipeline_model_parallel_layout
    section: grid
    type: str
    nullable: true
    default: null
    title: {en: Layout, zh: 布局}
    meaning: {en: Layers of each stage, zh: 各阶段的层}
  dense_ranks:
    field: dense_ranks
    section: derived
    type: int
    title: {en: Ranks, zh: 总秩数}
    meaning: {en: GPUs of one copy, zh: 一个副本的 GPU 数}
""",
    "revisions.yaml": """\
revisions:
  - tag: v0.5.0
    commit: "BRIDGE_0.5.0"
    core_commit: "CORE_0.5.0"
    core_version: 0.18.0
    released: 2026-05-01
    environment: {python: "3.12"}
    citations:
      - url: {url: "https://example.org", title: Releases}
  - tag: v0.6.0
    commit: "BRIDGE_0.6.0"
    core_commit: "CORE_0.6.0"
    core_version: 0.19.0
    released: 2026-09-01
    environment: {python: "3.12"}
    citations:
      - url: {url: "https://example.org", title: Releases}
""",
    "quantities/grid.yaml": """\
quantities:
  - name: dense_ranks
    bridge: ">=0.5"
    formula: tp * pp
    status: code_verified
    citations:
      - code: {repo: NVIDIA-NeMo/Megatron-Bridge, path: src/megatron/bridge/training/config.py, symbol: ConfigContainer.validate, condition: size tp pp}
    examples:
      - {given: {tp: 2, pp: 2}, is: 4}
""",  # noqa: E501
    "rules/constraints/grid.yaml": """\
topic: Grid
rules:
  - id: MB-WORLD-001
    title: {en: The grid divides the world, zh: 网格整除总数}
    kind: constraint
    severity: error
    status: code_verified
    bridge: ">=0.5"
    when: [world_size % dense_ranks != 0]
    then: {violation: {en: "{world_size} GPUs don't fit.", zh: "{world_size} 张 GPU 无法整除。"}}
    because: {en: Whole copies., zh: 完整副本。}
    citations:
      - code: {repo: NVIDIA-NeMo/Megatron-Bridge, path: src/megatron/bridge/training/config.py, symbol: ConfigContainer.validate, condition: world_size size}
    since: "2026-12-02"
    examples:
      fires: [{world_size: 3, dense_ranks: 2}]
      quiet: [{world_size: 4, dense_ranks: 2}]
  - id: MB-SP-001
    title: {en: SP needs TP, zh: 序列并行依赖张量并行}
    kind: constraint
    severity: error
    status: code_verified
    bridge: ">=0.6"
    when: [sequence_parallel, tp < 2]
    then: {violation: {en: "SP with TP {tp}.", zh: "TP 为 {tp} 时启用了序列并行。"}}
    because: {en: Core refuses., zh: Core 会报错。}
    citations:
      - code: {repo: NVIDIA/Megatron-LM, path: megatron/core/model_parallel_config.py, symbol: ModelParallelConfig.__post_init__, condition: sequence_parallel tp 1}
    since: "2026-12-02"
    examples:
      fires: [{sequence_parallel: true, tp: 1}]
      quiet: [{sequence_parallel: true, tp: 2}]
  - id: MB-TP-001
    title: {en: TP within a node, zh: TP 不跨节点}
    kind: pitfall
    severity: warning
    status: doc_only
    bridge: ">=0.5"
    when: [tp > 8]
    then: {violation: {en: "TP {tp} leaves the node.", zh: "TP {tp} 跨节点。"}}
    because: {en: The guide says so., zh: 指南如此建议。}
    citations:
      - doc: {repo: NVIDIA-NeMo/Megatron-Bridge, path: docs/parallelisms.md, heading: How to choose TP}
    since: "2026-12-02"
    examples:
      fires: [{tp: 16}]
      quiet: [{tp: 8}]
""",  # noqa: E501
}


def git(root: Path, *arguments: str) -> str:
    """Run git in a test repository."""
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(root), *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files under a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@dataclass
class World:
    """A knowledge base and git repositories of both projects, with tags v0.5.0 and v0.6.0."""

    root: Path
    bridge: Path
    core: Path
    commits: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def knowledge(self) -> Knowledge:
        _load.cache_clear()  # within a process a knowledge base is read once; here it changes
        return _load(self.root.resolve())

    def release(self, tag: str, bridge: Mapping[str, str] | None = None, core: Mapping[str, str] | None = None) -> None:
        """Commit changed files of both projects and tag them."""
        for repo, files in ((self.bridge, bridge), (self.core, core)):
            write(repo, files or {})
            git(repo, "add", "-A")
            git(repo, "commit", "-q", "--allow-empty", "-m", tag)
            git(repo, "tag", tag)
        self.commits[tag] = git(self.bridge, "rev-parse", tag), git(self.core, "rev-parse", tag)

    def write_knowledge(self, changes: Mapping[str, Callable[[str], str]] | None = None) -> None:
        """(Re)write the knowledge base, with changes to the text of some files."""
        for name, text in KNOWLEDGE.items():
            for tag, (bridge, core) in self.commits.items():
                text = text.replace(f"BRIDGE_{tag[1:]}", bridge).replace(f"CORE_{tag[1:]}", core)
            text = (changes or {}).get(name, lambda same: same)(text)
            write(self.root / "knowledge", {name: text})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both releases have the same content."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = World(tmp_path / "base", tmp_path / "bridge", tmp_path / "core")
    for repo, files in ((made.bridge, FILES), (made.core, CORE_FILES)):
        write(repo, files)
        git(repo, "init", "-q")
    made.release("v0.5.0")
    made.release("v0.6.0")
    made.write_knowledge()
    monkeypatch.setenv("MBRIDGE_ADVISOR_KNOWLEDGE", str(made.root))
    return made
