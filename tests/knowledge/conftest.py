"""A knowledge base of the smallest size that has everything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

FILES: Mapping[str, str] = {
    "knowledge.yaml": """\
version: 0.1.0
changed: 2026-12-02
""",
    "vocabulary.yaml": """\
terms:
  tp:
    field: tensor_model_parallel_size
    path: model.tensor_model_parallel_size
    section: grid
    type: int
    min: 1
    max: 64
    default: 1
    aliases: [tensor_parallel]
    title: {en: Tensor parallel size, zh: 张量并行大小}
    meaning: {en: GPUs that share a layer, zh: 共同切分一层的 GPU}
  etp:
    field: expert_tensor_parallel_size
    section: grid
    type: int
    nullable: true
    default:
      - {bridge: "<0.6", value: null}
      - {bridge: ">=0.6", value: 1}
    title: {en: ETP, zh: 专家张量并行}
    meaning: {en: GPUs that share an expert, zh: 共同切分一个专家的 GPU}
  sequence_parallel:
    field: sequence_parallel
    section: grid
    type: bool
    default: false
    title: {en: SP, zh: 序列并行}
    meaning: {en: Splits the sequence, zh: 切分序列}
  dispatcher:
    field: moe_token_dispatcher_type
    section: training
    type: str
    values: [alltoall, flex]
    title: {en: Dispatcher, zh: 分发器}
    meaning: {en: Moves tokens, zh: 搬运 token}
  seq_length:
    field: seq_length
    section: training
    type: int
    unit: token
    title: {en: Sequence length, zh: 序列长度}
    meaning: {en: Tokens of a sequence, zh: 一条序列的 token 数}
  world_size:
    field: gpus
    section: cluster
    type: int
    min: 1
    title: {en: GPUs, zh: GPU 总数}
    meaning: {en: GPUs of the job, zh: 任务的 GPU 总数}
  dp:
    field: data_parallel_size
    section: derived
    type: int
    title: {en: DP, zh: 数据并行}
    meaning: {en: Copies of the model, zh: 模型副本数}
  tp_max:
    field: tp_max
    section: derived
    type: int
    bounds: {name: tp, side: max}
    title: {en: Largest TP, zh: 最大 TP}
    meaning: {en: TP beyond which nothing is gained, zh: 再大也没有收益的 TP}
""",
    "revisions.yaml": """\
revisions:
  - tag: v0.5.0
    commit: "1111111111111111111111111111111111111111"
    core_commit: "2222222222222222222222222222222222222222"
    core_version: 0.18.0
    released: 2026-05-01
    environment: {python: "3.12", container: null}
    citations:
      - url: {url: "https://example.org", title: Releases}
  - tag: v0.6.0
    commit: "3333333333333333333333333333333333333333"
    core_commit: "4444444444444444444444444444444444444444"
    core_version: 0.19.0
    released: 2026-09-01
    environment: {python: "3.12"}
    citations:
      - url: {url: "https://example.org", title: Releases}
    note: {en: A note, zh: 说明}
""",
    "facts/gpus/h100.yaml": """\
name: H100
aliases: [H100-80GB]
memory_bytes: 85520809984
memory_bandwidth: 3.35e+12
peak_flops: {bf16: 9.895e+14}
compute_capability: 90
gpus_per_node: 8
nvlink_domain: 8
nvlink_bandwidth: 4.5e+11
network_bandwidth: 5.0e+10
citations:
"""
    + "".join(
        f"  {key}: {{url: {{url: 'https://example.org', title: H100}}}}\n"
        for key in (
            "memory_bytes",
            "memory_bandwidth",
            "peak_flops",
            "compute_capability",
            "gpus_per_node",
            "nvlink_domain",
            "nvlink_bandwidth",
            "network_bandwidth",
        )
    ),
    "facts/models/small.yaml": """\
name: small
title: Small 1B
hf_id: someone/small
recipe_keys: [small]
architecture: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 1000, moe_layer_freq: [1, 0]}
total_parameters: 1.0e+6
published: with embeddings
citations:
  - url: {url: "https://example.org", title: Card}
""",
    "facts/recipes/small.yaml": """\
model_key: small
source: {data: {repo: a/b, path: recipes}}
rows:
- {id: r1, tag: v0.6.0, kind: library, recipe: small_config, task: pretrain, tp: 1, pp: 1, path: a.py, line: 3}
""",
    "facts/measurements/published_throughput.yaml": """\
source: {data: {path: docs}}
rows:
- {id: p1, release: '26.08', task: pretrain, model: Small, model_key: small, system: H100, num_gpus: 8, tag: v0.6.0,
   tokens_per_sec_per_gpu: 9000, path: docs/performance.md, line: 4}
""",
    "facts/calibration.yaml": """\
constants:
  - {name: overhead_bytes, value: 1000, unit: byte}
""",
    "quantities/grid.yaml": """\
quantities:
  - name: dp
    bridge: ">=0.2"
    formula: world_size // tp
    variants:
      - {bridge: ">=0.6", formula: "max(1, world_size // tp)"}
    status: code_verified
    citations:
      - url: {url: "https://example.org", title: Docs}
    examples:
      - {given: {world_size: 8, tp: 2}, is: 4}
      - {given: {world_size: 1, tp: 2}, is: 0, bridge: v0.5.0}
""",
    "rules/constraints/sp.yaml": """\
topic: Sequence parallelism
rules:
  - id: MB-SP-001
    title: {en: SP needs TP, zh: SP 依赖 TP}
    kind: constraint
    severity: error
    status: code_verified
    bridge: ">=0.2"
    when:
      - sequence_parallel
      - tp < 2
    then:
      violation: {en: "SP is on, but TP is {tp}.", zh: "已开启 SP，但 TP 为 {tp}。"}
    fix:
      text: {en: Switch it off, zh: 关闭它}
      set: {sequence_parallel: false, tp: "= min(world_size, 2)"}
    because: {en: There is nothing to split, zh: 没有可切分的内容}
    citations:
      - code: {repo: NVIDIA/Megatron-LM, path: a.py, symbol: A.b}
    since: 2026-12-02
    variants:
      - bridge: ">=0.6"
        severity: override
    related: [MB-SP-002]
    examples:
      fires: [{tp: 1, sequence_parallel: true, bridge: v0.5.0}]
      quiet:
        - {tp: 2, sequence_parallel: true}
        - {tp: 1, sequence_parallel: false}
  - id: MB-SP-002
    title: {en: TP stays in the node, zh: TP 不出节点}
    kind: sizing
    severity: advice
    status: doc_only
    bridge: ">=0.2"
    when: [world_size > 8]
    then:
      derive: {tp_max: "8"}
      prefer: [{that: tp <= 8, cost: 0.05}]
    because: {en: NVLink ends there, zh: NVLink 到此为止}
    citations:
      - doc: {repo: NVIDIA-NeMo/Megatron-Bridge, path: docs/parallelisms.md, heading: TP}
    since: 2026-12-02
    examples:
      fires: [{world_size: 16}]
      quiet: [{world_size: 8}]
""",
}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a small knowledge base without mistakes; snapshots go to a folder of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "base"
    for name, text in FILES.items():
        path = root / "knowledge" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
