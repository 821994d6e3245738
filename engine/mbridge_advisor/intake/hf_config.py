"""Read a Hugging Face ``config.json`` into an :class:`~mbridge_advisor.architecture.Architecture`.

Only dimensions are read; nothing in the file is executed or downloaded. Most families share key names; what a family
adds by its own code (QK norms, biases, tied embeddings by default) is in ``FAMILIES``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..architecture import Architecture
from ..errors import RequestError

MAX_BYTES = 4 * 2**20
MAX_LAYERS = 10_000


@dataclass(frozen=True)
class Family:
    """What a model type implies beyond its config keys.

    Attributes:
        traits: architecture fields that hold for the whole family.
        tied: whether embeddings are tied where the config doesn't say.
        moe: how layers alternate: ``all``, ``first_k`` (first_k_dense_replace), ``sparse_step`` (decoder_sparse_step
            and mlp_only_layers), ``none``.
    """

    traits: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = False
    moe: str = "none"


_MLA = {"multi_latent_attention": True, "qk_layernorm": True}
FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "llama4_text": Family(moe="interleaved"),
    "mistral": Family(),
    "ministral3": Family(),
    "mistral3_text": Family(),
    "mixtral": Family(moe="all"),
    "qwen2": Family({"add_qkv_bias": True}),
    "qwen2_moe": Family({"add_qkv_bias": True, "moe_shared_expert_gate": True}, moe="sparse_step"),
    "qwen3": Family({"qk_layernorm": True}),
    "qwen3_moe": Family({"qk_layernorm": True}, moe="sparse_step"),
    "qwen2_vl": Family({"add_qkv_bias": True}),
    "qwen3_next": Family(
        {"qk_layernorm": True, "attention_output_gate": True, "moe_shared_expert_gate": True}, moe="sparse_step"
    ),
    "deepseek_v2": Family(_MLA, moe="first_k"),
    "deepseek_v3": Family({**_MLA, "moe_router_enable_expert_bias": True}, moe="first_k"),
    "kimi_k2": Family({**_MLA, "moe_router_enable_expert_bias": True}, moe="first_k"),
    "glm4_moe": Family({"moe_router_enable_expert_bias": True}, moe="first_k"),
    "gpt_oss": Family(
        {"add_bias_linear": True, "add_qkv_bias": True, "softmax_offset": True, "moe_router_bias": True}, moe="all"
    ),
    "olmoe": Family({"qk_layernorm": True, "qk_layernorm_all_heads": True}, moe="all"),
    "gemma2": Family({"post_block_norms": True}, tied=True),
    "gemma3_text": Family({"post_block_norms": True, "qk_layernorm": True}, tied=True),
    "nemotron": Family({"gated_linear_unit": False, "normalization": "LayerNorm"}),
    "nemotron_h": Family({"gated_linear_unit": False, "position_embedding_type": "none"}),
    "gpt2": Family(
        {
            "gated_linear_unit": False,
            "normalization": "LayerNorm",
            "add_bias_linear": True,
            "add_qkv_bias": True,
            "position_embedding_type": "learned_absolute",
        },
        tied=True,
    ),
}

# Model types that count like another's.
ALIASES: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "moonlight": "deepseek_v3",
    "llama4": "llama4_text",
    "qwen2_5_vl": "qwen2_vl",
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_vl",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "glm4v_moe_text": "glm4_moe",
}
# Where multimodal configs keep the language model, in the order in which it is looked for.
LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config.text_config")

# Architecture field -> keys that families use for it, first present wins.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "vocab_size": ("vocab_size",),
    "ffn_hidden_size": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "num_query_groups": ("num_key_value_heads",),
    "kv_channels": ("head_dim",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "num_moe_experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "moe_router_topk": ("num_experts_per_tok", "num_experts_per_token", "moe_topk"),
    "moe_ffn_hidden_size": ("moe_intermediate_size",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_head_dim": ("qk_nope_head_dim",),
    "qk_pos_emb_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "mtp_num_layers": ("num_nextn_predict_layers",),
    "mamba_state_dim": ("ssm_state_size", "mamba_d_state"),
    "mamba_head_dim": ("mamba_head_dim",),
    "mamba_num_heads": ("mamba_num_heads",),
    "mamba_num_groups": ("n_groups", "mamba_n_groups"),
    "hybrid_override_pattern": ("hybrid_override_pattern",),
    "moe_latent_size": ("moe_latent_size",),
    "linear_conv_kernel_dim": ("linear_conv_kernel_dim",),
    "linear_key_head_dim": ("linear_key_head_dim",),
    "linear_value_head_dim": ("linear_value_head_dim",),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_num_value_heads": ("linear_num_value_heads",),
}
_OTHER_KEYS = frozenset(
    {
        "model_type",
        "tie_word_embeddings",
        "attention_bias",
        "use_qk_norm",
        "layer_types",
        "full_attention_interval",
        "conv_kernel",
        "mamba_d_conv",
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "n_shared_experts",
        "num_shared_experts",
        "first_k_dense_replace",
        "moe_layer_freq",
        "decoder_sparse_step",
        "mlp_only_layers",
        "sliding_window",
        "use_sliding_window",
        "sliding_window_pattern",
        "interleave_moe_layer_step",
        "moe_layers",
        "intermediate_size_mlp",
        "layers_block_type",
        "mtp_hybrid_override_pattern",
        "moe_latent_size",
    }
)
_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "vocab_size")
_MOE_ONLY = ("num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size")
_MLA_ONLY = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")


def read_hf_config(source: Any, base: Path | None = None) -> tuple[Architecture, str, tuple[str, ...]]:
    """Read a config.

    Args:
        source: path of a ``config.json`` (or of the folder that holds it), or the parsed object.
        base: folder that a relative path starts from.

    Returns:
        the architecture, a name for it, and notes on what was taken from where or not understood.

    Raises:
        RequestError: unreadable, not JSON, unknown family, or dimensions missing; the message lists them.
    """
    config, name = _load(source, base)
    notes: list[str] = []
    part = language_part(config)
    if part:
        notes.append(f"{name}: the language part ({part}) is read; other parts are not counted.")
        inner: Any = config
        for key in part.split("."):
            inner = inner[key]
        outer = {k: config[k] for k in ("model_type", "tie_word_embeddings") if k in config}
        config = {**outer, **inner}
    kind = str(config.get("model_type") or "")
    kind = ALIASES.get(kind, kind)
    family = FAMILIES.get(kind)
    missing = [" or ".join(_KEYS[target]) for target in _REQUIRED if _number(config, _KEYS[target]) is None]
    if family is None:
        also = f"; it also lacks {', '.join(missing)}" if missing else ""
        raise RequestError(
            "model.hf_config",
            kind or None,
            f"is a model_type that the advisor can't count{also}",
            f"Known: {', '.join(FAMILIES)}. Or give an architecture object with Megatron Core's field names.",
        )
    if missing:
        raise RequestError("model.hf_config", name, f"lacks {', '.join(missing)}", "Use the model's own config.json.")
    values: dict[str, Any] = {}
    for target, keys in _KEYS.items():
        value = _text(config, keys) if target == "hybrid_override_pattern" else _number(config, keys)
        if value is not None:
            values[target] = value
    if values["num_layers"] > MAX_LAYERS:
        raise RequestError("model.hf_config", values["num_layers"], "layers are too many", f"At most {MAX_LAYERS}.")
    if kind == "nemotron_h" and values.get("num_moe_experts"):
        values["moe_router_enable_expert_bias"] = True
        if isinstance(config.get("mtp_hybrid_override_pattern"), str):
            values["mtp_hybrid_override_pattern"] = config["mtp_hybrid_override_pattern"]
    if (family.moe == "none" and kind != "nemotron_h") or not values.get("num_moe_experts"):
        for key in _MOE_ONLY:
            values.pop(key, None)
    if not family.traits.get("multi_latent_attention"):
        for key in _MLA_ONLY:
            values.pop(key, None)
    else:
        values.pop("kv_channels", None)
    if not values.get("mtp_num_layers"):
        values.pop("mtp_num_layers", None)
    values["share_embeddings_and_output_weights"] = bool(config.get("tie_word_embeddings", family.tied))
    values.update(family.traits)
    if config.get("attention_bias") is True:
        values["add_qkv_bias"] = True
    if kind == "glm4_moe" and config.get("use_qk_norm"):
        values["qk_layernorm"] = True
    _experts(config, family, values)
    _windows(config, kind, values)
    if kind == "qwen3_next":
        types = config.get("layer_types")
        every = _number(config, ("full_attention_interval",)) or 4
        linear = [t == "linear_attention" for t in types] if isinstance(types, list) else None
        values["linear_attention_freq"] = tuple(map(int, linear)) if linear else every
    values.setdefault("mamba_conv_kernel", _number(config, ("conv_kernel", "mamba_d_conv")) or 4)
    try:
        return Architecture(**values), name, tuple(notes)
    except TypeError as problem:
        raise RequestError("model.hf_config", name, f"could not be read: {problem}", "Report this config.") from None


def language_part(config: Mapping[str, Any]) -> str | None:
    """The dotted key under which a multimodal config keeps its language model; None where it is at the top."""
    for part in LANGUAGE_PARTS:
        inner: Any = config
        for key in part.split("."):
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping) and _number(inner, _KEYS["num_layers"]) is not None:
            return part
    return None


def read_keys() -> frozenset[str]:
    """Keys of a config that are read."""
    return frozenset(key for keys in _KEYS.values() for key in keys) | _OTHER_KEYS


def _load(source: Any, base: Path | None) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        name = source.get("_name_or_path") or source.get("model_type") or "hf-config"
        return source, Path(str(name)).name or "hf-config"
    if not isinstance(source, str) or not source:
        raise RequestError("model.hf_config", source, "is not a path or an object", "Give a config.json.")
    path = Path(source).expanduser()
    path = base / path if base is not None and not path.is_absolute() else path
    path = path / "config.json" if path.is_dir() else path
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestError("model.hf_config", source, "is larger than 4 MiB", "That is no config.json.")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = f"can't be read ({problem.strerror or problem})"
        raise RequestError("model.hf_config", source, reason, "Check the path.") from None
    except (ValueError, RecursionError) as problem:
        reason = f"is not JSON ({problem})"
        raise RequestError("model.hf_config", source, reason, "Give the model's config.json.") from None
    if not isinstance(data, Mapping):
        raise RequestError("model.hf_config", source, "holds no object", "Give the model's config.json.")
    stem = path.parent.resolve().name if path.name == "config.json" else path.stem
    return data, stem or "hf-config"


def _number(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if not isinstance(value, int) or value < 0 or value > 10**9:
            raise RequestError(f"model.hf_config.{key}", value, "is not a dimension", "It must be a whole number.")
        return value
    return None


def _text(config: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((config[k] for k in keys if isinstance(config.get(k), str)), None)


def _experts(config: Mapping[str, Any], family: Family, values: dict[str, Any]) -> None:
    if not values.get("num_moe_experts"):
        return
    layers = values["num_layers"]
    values.setdefault("moe_ffn_hidden_size", values.get("ffn_hidden_size"))
    width = values["moe_ffn_hidden_size"]
    shared = _number(config, ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"))
    count = _number(config, ("n_shared_experts", "num_shared_experts"))
    if shared is None and count and width:
        shared = count * width
    if shared:
        values["moe_shared_expert_intermediate_size"] = shared
    if family.moe == "first_k":
        dense = _number(config, ("first_k_dense_replace",)) or 0
        every = _number(config, ("moe_layer_freq",)) or 1
        values["moe_layer_freq"] = tuple(int(i >= dense and i % every == 0) for i in range(layers))
    elif family.moe == "interleaved":  # Llama 4: `intermediate_size` is an expert's, and one is shared
        values["moe_ffn_hidden_size"] = width = values.get("ffn_hidden_size")
        values["ffn_hidden_size"] = _number(config, ("intermediate_size_mlp",)) or width
        values["moe_shared_expert_intermediate_size"] = width
        step = _number(config, ("interleave_moe_layer_step",)) or 1
        chosen = config.get("moe_layers")
        values["moe_layer_freq"] = tuple(
            int(i in chosen if isinstance(chosen, list) else (i + 1) % step == 0) for i in range(layers)
        )
    elif family.moe == "sparse_step":
        step = _number(config, ("decoder_sparse_step",)) or 1
        skip = config.get("mlp_only_layers") or []
        values["moe_layer_freq"] = tuple(int(i not in skip and (i + 1) % step == 0) for i in range(layers))
    if isinstance(values.get("moe_layer_freq"), tuple) and all(values["moe_layer_freq"]):
        values["moe_layer_freq"] = 1


def _windows(config: Mapping[str, Any], kind: str, values: dict[str, Any]) -> None:
    window = _number(config, ("sliding_window",))
    types = config.get("layer_types")
    if not window or config.get("use_sliding_window") is False:
        return
    if isinstance(types, list):
        windowed = [int(t == "sliding_attention") for t in types]
        if not any(windowed):
            return
        values["window_size"] = window
        if not all(windowed):
            values["window_attn_skip_freq"] = tuple(windowed)
        return
    values["window_size"] = window
    if kind == "gemma3_text":
        values["window_attn_skip_freq"] = _number(config, ("sliding_window_pattern",)) or 6
    elif kind in ("gemma2", "gpt_oss"):
        values["window_attn_skip_freq"] = 2
