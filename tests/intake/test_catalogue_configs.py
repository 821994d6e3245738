"""Every model of the catalogue, written as its family writes a config.json, is read back with the same dimensions."""

from __future__ import annotations

from typing import Any

import pytest
from mbridge_advisor.architecture import Architecture
from mbridge_advisor.intake.hf_config import read_hf_config
from mbridge_advisor.intake.read import read_input
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from mbridge_advisor.memory.parameters import active_parameters, total_parameters

BASE = load()
# Beginning of a catalogue name -> model_type; the longest that fits counts.
FAMILIES = {
    "deepseek-v2": "deepseek_v2",
    "deepseek-v3": "deepseek_v3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "glm": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "gpt3": "gpt2",
    "kimi-k2": "kimi_k2",
    "llama": "llama",
    "llama4": "llama4",
    "ministral3": "ministral3",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "moonlight": "deepseek_v3",
    "nemotron-": "nemotron_h",
    "nemotron4": "nemotron",
    "olmoe": "olmoe",
    "qwen2": "qwen2",
    "qwen2-57b-a14b": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3-235b": "qwen3_moe",
    "qwen3-30b": "qwen3_moe",
    "qwen3-coder": "qwen3_moe",
    "qwen3-next": "qwen3_next",
}
NESTED = {"gemma3_text": ("gemma3", "text_config"), "llama4": ("llama4", "text_config")}


def family(name: str) -> str:
    return FAMILIES[max((f for f in FAMILIES if name.startswith(f)), key=len)]


def config_of(name: str, arch: Architecture) -> dict[str, Any]:
    """A config.json as the family's authors write it."""
    kind = family(name)
    out: dict[str, Any] = {
        "model_type": kind,
        "num_hidden_layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "num_attention_heads": arch.num_attention_heads,
        "num_key_value_heads": arch.num_query_groups,
        "head_dim": arch.kv_channels,
        "intermediate_size": arch.ffn_hidden_size,
        "vocab_size": arch.vocab_size,
        "tie_word_embeddings": arch.share_embeddings_and_output_weights,
        "attention_bias": arch.add_qkv_bias,
        "torch_dtype": "bfloat16",
    }
    if kind == "gpt2":
        return {
            "model_type": kind,
            "n_layer": arch.num_layers,
            "n_embd": arch.hidden_size,
            "n_head": arch.num_attention_heads,
            "n_inner": arch.ffn_hidden_size,
            "n_positions": arch.max_position_embeddings,
            "vocab_size": arch.vocab_size,
        }
    if arch.multi_latent_attention:
        out |= {
            "q_lora_rank": arch.q_lora_rank,
            "kv_lora_rank": arch.kv_lora_rank,
            "qk_nope_head_dim": arch.qk_head_dim,
            "qk_rope_head_dim": arch.qk_pos_emb_head_dim,
            "v_head_dim": arch.v_head_dim,
        }
    if arch.hybrid_override_pattern:
        out |= {
            "hybrid_override_pattern": arch.hybrid_override_pattern,
            "ssm_state_size": arch.mamba_state_dim,
            "mamba_head_dim": arch.mamba_head_dim,
            "mamba_num_heads": arch.mamba_num_heads,
            "n_groups": arch.mamba_num_groups,
            "conv_kernel": arch.mamba_conv_kernel,
            "moe_latent_size": arch.moe_latent_size,
            "mtp_hybrid_override_pattern": arch.mtp_hybrid_override_pattern,
        }
    if kind == "glm4_moe":
        out["use_qk_norm"] = arch.qk_layernorm
    if arch.mtp_num_layers:
        out["num_nextn_predict_layers"] = arch.mtp_num_layers
    if arch.linear_attention_freq:
        out |= {name: getattr(arch, name) for name in vars(arch) if name.startswith("linear_") and "freq" not in name}
        out["full_attention_interval"] = arch.linear_attention_freq
    if arch.num_moe_experts:
        _experts(kind, arch, out)
    if kind in NESTED:
        outer, key = NESTED[kind]
        inner = {**out, "model_type": "llama4_text" if kind == "llama4" else kind}
        return {"model_type": outer, key: inner, "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}}
    return out


def _experts(kind: str, arch: Architecture, out: dict[str, Any]) -> None:
    freq = arch.moe_layer_freq
    layers = freq if isinstance(freq, tuple) else (1,) * arch.num_layers
    shared, width = arch.moe_shared_expert_intermediate_size, arch.moe_ffn_hidden_size
    out["num_experts_per_tok"] = arch.moe_router_topk
    if kind in ("mixtral", "gpt_oss", "llama4"):
        out["num_local_experts"] = arch.num_moe_experts
        if kind == "llama4":
            out |= {"intermediate_size": width, "intermediate_size_mlp": arch.ffn_hidden_size}
            out["interleave_moe_layer_step"] = 1 if all(layers) else 2
    elif kind.startswith(("qwen", "olmoe")):
        out |= {"num_experts": arch.num_moe_experts, "moe_intermediate_size": width, "decoder_sparse_step": 1}
        out["shared_expert_intermediate_size"] = shared
    else:
        out |= {"n_routed_experts": arch.num_moe_experts, "moe_intermediate_size": width}
        out["first_k_dense_replace"] = layers.index(1)
        if kind == "nemotron_h":
            out |= {"n_shared_experts": 1, "moe_shared_expert_intermediate_size": shared}
        else:
            out["n_shared_experts"] = (shared or 0) // (width or 1)


@pytest.mark.parametrize("name", BASE.models)
def test_a_catalogue_model_is_read_back(name: str) -> None:
    arch = BASE.models[name].architecture
    read, _, _ = read_hf_config({k: v for k, v in config_of(name, arch).items() if v is not None})
    assert total_parameters(read) == total_parameters(arch)
    assert active_parameters(read) == active_parameters(arch)


def test_as_an_input_it_has_a_note_on_every_key(tmp_path: Any) -> None:
    import json

    config = config_of("qwen3-30b-a3b", BASE.models["qwen3-30b-a3b"].architecture)
    (tmp_path / "config.json").write_text(json.dumps({**config, "mystery_size": 3}))
    request, notes = read_input(tmp_path)
    assert {n.key for n in notes} == {*config, "mystery_size"}
    assert [n.key for n in notes if n.matters] == ["mystery_size"]
    checked = parse_request(request, BASE)
    assert checked.architecture is not None
    assert checked.architecture.num_moe_experts == 128
