"""Hugging Face configs give the same parameter counts as the catalogue, and unclear ones a clear error.

The dimensions below are those of the public config.json files of the named models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.hf_config import read_hf_config
from mbridge_advisor.knowledge import load
from mbridge_advisor.memory.parameters import total_parameters

CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "sliding_window": 131072,
        "use_sliding_window": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "vocab_size": 129280,
        "tie_word_embeddings": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 24,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "attention_bias": True,
        "vocab_size": 201088,
        "tie_word_embeddings": False,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_public_config_counts_like_the_catalogue(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    for source in (str(folder), str(folder / "config.json")):
        arch, found, _ = read_hf_config(source)
        assert found == name
        assert total_parameters(arch) == total_parameters(load().models[name].architecture)


def test_the_language_part_of_a_multimodal_config_is_read() -> None:
    arch, _, notes = read_hf_config({"model_type": "llama", "text_config": CONFIGS["llama3-8b"], "vision_config": {}})
    assert arch.num_layers == 32
    assert notes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "unheard_of"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": -3}, "not a dimension"),
        ({"vocab_size": 10**30}, "not a dimension"),
    ],
)
def test_what_is_missing_or_odd_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        read_hf_config({**CONFIGS["llama3-8b"], **change})


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"x"', "[" * 100_000])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RequestError):
        read_hf_config(str(tmp_path / "config.json"))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(RequestError):
        read_hf_config(str(tmp_path / "config.json"))
