"""What all candidates of one request have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..errors import RequestError

FP8_RECIPES = frozenset({"fp8_cs", "fp8_mx", "fp8_delayed", "fp8_sc"})
PRECISIONS = frozenset({"bf16", "fp16", "fp32", "nvfp4"}) | FP8_RECIPES
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class Settings:
    """Training and runtime settings, with Bridge's names and (at v0.6.0) the values its recipes train with.

    Where no recipe says otherwise the default is that of ``recipes/common.py`` (``_pretrain_common``), of
    ``ModelParallelConfig``/``TransformerConfig`` or of ``DistributedDataParallelConfig``.
    ``None`` means unset. Sizes are in tokens, sequences, layers.

    Attributes:
        precision: ``bf16``, ``fp16``, ``fp32``, ``fp8_cs``, ``fp8_mx``, ``fp8_delayed``, ``fp8_sc``, ``nvfp4``; the
            last five compute GEMMs in 8 or 4 bits and keep bf16 elsewhere.
        params_dtype: of parameters and activations outside low-precision GEMMs; None: fp32 or fp16 where that is the
            precision, else bf16.
        task: ``pretrain``, ``sft`` or ``lora``.
        fp8_param_gather: keep the weights of linear layers in 8 (or 4) bits; None: as Bridge's mixed-precision recipes
            do, for all low precisions but ``fp8_sc``.
        grad_reduce_in_fp32: gradient buffer in fp32 instead of the parameter dtype.
        num_distributed_optimizer_instances: copies of the sharded optimizer (HSDP's outer groups).
        attention_backend: ``auto``/``flash``/``fused`` never store the score matrix, ``unfused``/``local`` do.
        hidden_dropout, attention_dropout: probabilities; above 0 masks or random state are kept.
        bias_activation_fusion: gated activations run in one kernel that keeps its input alone.
        use_fused_weighted_squared_relu: the same for squared ReLU in experts (models without a gate).
        gradient_accumulation_fusion: weight gradients are added to the buffer inside the GEMM.
        cuda_graph_impl: ``none``, ``local``, ``transformer_engine`` or ``full_iteration``.
        cuda_graph_scope: modules that are captured (empty: whole layers).
        cpu_offloading_num_layers: layers of a stage whose activations wait in host memory.
        offload_modules: modules whose inputs ``fine_grained_activation_offloading`` moves to the host.
        data_parallel_sharding_strategy: of Megatron FSDP: ``no_shard``, ``optim``, ``optim_grads``,
            ``optim_grads_params``.
        lora_rank: dimension of the adapters (Bridge: ``peft.dim``).
        lora_targets: modules with adapters, Bridge's names.
        packed_sequence: sequences are packed (attention sees the packed lengths; ours).
        deterministic_mode: attention then runs in FlashAttention, which keeps its output twice.
        defer_embedding_wgrad_compute, wgrad_deferral_limit: weight gradients of the output layer wait for the pipeline
            flush; how many micro-batches at most (0: all).
        skip_getting_attention_mask_from_dataset: False: a batch carries a mask of length x length bytes.
        pytorch_cuda_alloc_conf: the environment variable; with ``expandable_segments:True`` memory pools share pages.
        cublas_workspace_bytes: PyTorch's cuBLAS workspace of one thread; None: by GPU generation.
        router_imbalance: tokens that the busiest rank's experts get, relative to the mean (1: balanced, as the
            vendor's benchmarks force it; ours).
    """

    seq_length: int = 4096
    global_batch_size: int = 512
    precision: str = "bf16"
    params_dtype: str | None = None
    task: str = "pretrain"
    # optimizer and data parallelism
    optimizer: str = "adam"
    use_distributed_optimizer: bool = True
    num_distributed_optimizer_instances: int = 1
    use_precision_aware_optimizer: bool = False
    main_grads_dtype: str = "fp32"
    main_params_dtype: str = "fp32"
    exp_avg_dtype: str = "fp32"
    exp_avg_sq_dtype: str = "fp32"
    grad_reduce_in_fp32: bool = True
    fp8_param_gather: bool | None = None
    optimizer_cpu_offload: bool = False
    optimizer_offload_fraction: float = 1.0
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    use_megatron_fsdp: bool = False
    data_parallel_sharding_strategy: str = "optim_grads_params"
    gradient_accumulation_fusion: bool = True
    # transformer layer
    transformer_impl: str = "transformer_engine"
    attention_backend: str = "auto"
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    bias_activation_fusion: bool = True
    attention_softmax_in_fp32: bool = False
    # loss
    cross_entropy_loss_fusion: bool = True
    cross_entropy_fusion_impl: str = "te"
    calculate_per_token_loss: bool = False
    # communication
    cp_comm_type: str | None = None
    tp_comm_overlap: bool = False
    overlap_p2p_comm: bool = True
    # mixture of experts
    moe_token_dispatcher_type: str = "alltoall"
    moe_flex_dispatcher_backend: str | None = None
    moe_grouped_gemm: bool = True
    moe_permute_fusion: bool = True
    moe_router_fusion: bool = True
    moe_router_dtype: str | None = None
    use_fused_weighted_squared_relu: bool = True
    moe_expert_capacity_factor: float | None = None
    moe_pad_expert_input_to_capacity: bool = False
    moe_shared_expert_overlap: bool = False
    overlap_moe_expert_parallel_comm: bool = False
    delay_wgrad_compute: bool = False
    router_imbalance: float = 1.0
    # offloading, graphs, fine-tuning
    cpu_offloading_num_layers: int = 0
    fine_grained_activation_offloading: bool = False
    offload_modules: tuple[str, ...] = ()
    cuda_graph_impl: str = "none"
    cuda_graph_scope: tuple[str, ...] = ()
    packed_sequence: bool = False
    lora_rank: int = 32
    lora_targets: tuple[str, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    deterministic_mode: bool = False
    defer_embedding_wgrad_compute: bool = False
    wgrad_deferral_limit: int = 0
    skip_getting_attention_mask_from_dataset: bool = True
    pytorch_cuda_alloc_conf: str | None = None
    cublas_workspace_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise RequestError(
                "training.precision",
                self.precision,
                "is not a known precision",
                f"Use one of {', '.join(sorted(PRECISIONS))}.",
            )
        for name in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
            if getattr(self, name) not in DTYPE_BYTES:
                raise RequestError(
                    f"training.{name}",
                    getattr(self, name),
                    "is not a known data type",
                    f"Use one of {', '.join(DTYPE_BYTES)}.",
                )
        for name in ("seq_length", "global_batch_size"):
            if getattr(self, name) < 1:
                raise RequestError(f"training.{name}", getattr(self, name), "is not positive", "Use 1 or more.")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Settings:
        """Settings from a mapping by field name; unknown names and None values are left at their default."""
        known = {f.name for f in fields(cls)}
        chosen: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in known and v is not None
        }
        return cls(**chosen)

    @property
    def low_precision(self) -> bool:
        """Whether linear layers compute in 8 or 4 bits."""
        return self.precision in FP8_RECIPES or self.precision == "nvfp4"

    @property
    def low_precision_parameters(self) -> bool:
        """Whether linear layers keep their weights in 8 or 4 bits."""
        if self.fp8_param_gather is None:
            return self.low_precision and self.precision != "fp8_sc"
        return self.low_precision and self.fp8_param_gather

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation or unquantised parameter."""
        return 4 if "fp32" in (self.precision, self.params_dtype) else 2
