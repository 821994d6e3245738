"""A model's dimensions, named as Megatron Core and Bridge name them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """Exact dimensions of a decoder model (dense, MoE, MLA, hybrid).

    ``None`` means *unset*, as in Megatron Core. Sizes are counts of channels, heads, experts or layers. The names are
    fields of Megatron Core's ``TransformerConfig``/``MLATransformerConfig`` or Bridge's ``GPTModelProvider``, except
    where a comment says otherwise.
    """

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    ffn_hidden_size: int | None = None  # dense MLP width; Megatron's default is 4 * hidden_size
    num_query_groups: int | None = None  # None: as many as heads
    kv_channels: int | None = None  # None: hidden_size // num_attention_heads
    gated_linear_unit: bool = True
    add_bias_linear: bool = False
    add_qkv_bias: bool = False
    normalization: str = "RMSNorm"  # RMSNorm | LayerNorm (LayerNorm has a bias)
    qk_layernorm: bool = False
    qk_layernorm_all_heads: bool = False  # ours: OLMoE norms the channels of all heads at once, not head by head
    post_block_norms: bool = False  # ours: Gemma 2/3 norm the outputs of attention and MLP too
    attention_output_gate: bool = False  # Qwen3-Next: query projection carries a gate of the same size
    softmax_offset: bool = False  # ours: one learnable attention sink a head (GPT-OSS, softmax_type "learnable")
    position_embedding_type: str = "rope"  # rope | learned_absolute | none | yarn | mrope
    max_position_embeddings: int | None = None
    share_embeddings_and_output_weights: bool = False
    make_vocab_size_divisible_by: int = 128
    should_pad_vocab: bool = True  # Bridge: pad vocab_size to a multiple of make_vocab_size_divisible_by * TP
    # sliding window (affects time, not parameters)
    window_size: int | None = None  # tokens looked back by a windowed layer
    window_attn_skip_freq: int | tuple[int, ...] | None = None  # int n: every n-th layer is global; list: 1 = windowed
    # multi-latent attention
    multi_latent_attention: bool = False
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_head_dim: int | None = None
    qk_pos_emb_head_dim: int | None = None
    v_head_dim: int | None = None
    # mixture of experts
    num_moe_experts: int | None = None
    moe_router_topk: int | None = None
    moe_ffn_hidden_size: int | None = None
    moe_shared_expert_intermediate_size: int | None = None  # all shared experts together
    moe_shared_expert_gate: bool = False  # Qwen2-MoE, Qwen3-Next: a gate of hidden_size weights
    moe_layer_freq: int | tuple[int, ...] = 1  # int n: layers 0, n, 2n.. are MoE; list: 1 = MoE, 0 = dense
    moe_router_enable_expert_bias: bool = False
    moe_router_bias: bool = False  # ours: the router projection has a bias (GPT-OSS)
    moe_latent_size: int | None = None  # Nemotron 3 Super: experts work in a latent width
    # multi-token prediction
    mtp_num_layers: int | None = None
    mtp_use_repeated_layer: bool = False  # all MTP depths share one layer's weights
    mtp_hybrid_override_pattern: str | None = None  # letters of one MTP layer of a hybrid model
    # hybrid and linear-attention models
    hybrid_override_pattern: str | None = None  # a letter a layer: M mamba, * attention, - MLP, E MoE
    mamba_state_dim: int | None = None
    mamba_head_dim: int | None = None
    mamba_num_heads: int | None = None
    mamba_num_groups: int | None = None
    mamba_conv_kernel: int = 4  # ours: Mamba's d_conv
    linear_attention_freq: int | tuple[int, ...] | None = (
        None  # int n: every n-th layer is full attention; list: 1 = linear
    )
    linear_conv_kernel_dim: int | None = None
    linear_key_head_dim: int | None = None
    linear_value_head_dim: int | None = None
    linear_num_key_heads: int | None = None
    linear_num_value_heads: int | None = None

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return bool(self.num_moe_experts)

    @property
    def query_groups(self) -> int:
        """Key/value groups: ``num_query_groups``, or the number of heads."""
        return self.num_query_groups or self.num_attention_heads

    @property
    def head_dim(self) -> int:
        """Channels of one head: ``kv_channels``, or hidden_size // num_attention_heads."""
        return self.kv_channels or self.hidden_size // self.num_attention_heads

    @property
    def mlp_hidden_size(self) -> int:
        """Width of the dense MLP: ``ffn_hidden_size``, or 4 * hidden_size."""
        return self.ffn_hidden_size or 4 * self.hidden_size

    def to_dict(self) -> dict[str, Any]:
        """All fields; tuples as lists."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}


FIELD_NAMES = frozenset(f.name for f in fields(Architecture))
