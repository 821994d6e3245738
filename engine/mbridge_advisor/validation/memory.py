"""Measured memory rows: the arguments that reproduce them, and predicted against measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..architecture import Architecture
from ..knowledge.model import Gpu
from ..memory import Grids, MemoryEstimate, Recompute, Settings, StageLayout, estimate, estimate_stage

Row = Mapping[str, Any]
Gpus = Mapping[str, Gpu]


@dataclass(frozen=True)
class Case:
    """One measured configuration.

    Attributes:
        name, model: for people and for grouping.
        architecture, settings, grids: arguments of the estimate; ``grids`` has length 1.
        gpu: the device, None where the knowledge base hasn't got it.
        stage: pipeline rank that was measured, None where the largest of all was printed.
        peak: largest allocated bytes.
        end_of_step: allocated bytes between steps, None where not known.
    """

    name: str
    model: str
    architecture: Architecture
    settings: Settings
    grids: Grids
    gpu: Gpu | None
    stage: int | None
    peak: float
    end_of_step: float | None

    def predict(self, calibration: Mapping[str, float] | None = None) -> MemoryEstimate:
        """The estimate for the measured rank."""
        if self.stage is None:
            return estimate(self.architecture, self.settings, self.grids, self.gpu, calibration)
        return estimate_stage(self.architecture, self.settings, self.grids, self.stage, self.gpu, calibration)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def distinct(rows: Iterable[Row], key: str) -> list[Row]:
    """The first row of each value of ``key``; rows without one are kept."""
    seen: dict[Any, Row] = {}
    for i, row in enumerate(rows):
        seen.setdefault(row.get(key) or i, row)
    return list(seen.values())


class _Whole(dict[str, Any]):
    """A row whose nulls were left out."""

    def __missing__(self, key: str) -> None:
        return None

    @classmethod
    def of(cls, value: Any) -> Any:
        return cls({k: cls.of(v) for k, v in value.items()}) if isinstance(value, Mapping) else value


def small_case(row: Row, gpus: Gpus) -> Case:
    """A row of ``measured_memory.jsonl``: one of Megatron-LM's functional tests."""
    row = _Whole.of(row)
    a = row["args"]
    freq = a["moe_layer_freq"]
    if isinstance(freq, str):
        freq = tuple(json.loads(freq))
    elif isinstance(freq, list):
        freq = tuple(freq)
    raw = row["raw_args"]
    pattern, *depths = (a["hybrid_layer_pattern"] or raw.get("--hybrid-override-pattern") or "").split("/")
    arch = Architecture(
        num_layers=len(pattern.replace("|", "")) or a["num_layers"],
        hidden_size=a["hidden_size"],
        num_attention_heads=a["num_attention_heads"],
        vocab_size=a["vocab_size"],
        hybrid_override_pattern=pattern or None,
        mtp_hybrid_override_pattern=depths[0] if depths else None,
        mamba_state_dim=raw.get("--mamba-state-dim", 128),
        mamba_head_dim=raw.get("--mamba-head-dim", 64),
        mamba_num_groups=raw.get("--mamba-num-groups", 8),
        mamba_num_heads=raw.get("--mamba-num-heads"),
        ffn_hidden_size=a["ffn_hidden_size"],
        num_query_groups=a["num_query_groups"] if a["group_query_attention"] else None,
        kv_channels=a["kv_channels"],
        gated_linear_unit=a["swiglu"],
        add_bias_linear=a["add_bias_linear"],
        normalization=a["normalization"],
        qk_layernorm=a["qk_layernorm"],
        position_embedding_type=a["position_embedding_type"],
        max_position_embeddings=a["max_position_embeddings"],
        share_embeddings_and_output_weights=not a["untie_embeddings_and_output_weights"],
        make_vocab_size_divisible_by=a["make_vocab_size_divisible_by"],
        multi_latent_attention=a["multi_latent_attention"],
        q_lora_rank=a["q_lora_rank"],
        kv_lora_rank=a["kv_lora_rank"],
        qk_head_dim=a["qk_head_dim"],
        qk_pos_emb_head_dim=a["qk_pos_emb_head_dim"],
        v_head_dim=a["v_head_dim"],
        num_moe_experts=a["num_experts"],
        moe_router_topk=a["moe_router_topk"],
        moe_ffn_hidden_size=a["moe_ffn_hidden_size"],
        moe_shared_expert_intermediate_size=a["moe_shared_expert_intermediate_size"],
        moe_layer_freq=freq or 1,
        moe_router_enable_expert_bias=a["moe_router_enable_expert_bias"],
        mtp_num_layers=a["mtp_num_layers"],
    )
    backend = a["attention_backend"]
    if a["transformer_impl"] == "local":
        backend = "local"
    precision = a["precision"]
    if a["fp8_format"]:
        precision = {"tensorwise": "fp8_cs", "blockwise": "fp8_sc", "delayed": "fp8_delayed", "mxfp8": "fp8_mx"}[
            a["fp8_recipe"] or "delayed"
        ]
    settings = Settings.of(
        {
            **{
                k: a[k]
                for k in (
                    "seq_length",
                    "global_batch_size",
                    "optimizer",
                    "use_distributed_optimizer",
                    "num_distributed_optimizer_instances",
                    "use_precision_aware_optimizer",
                    "main_grads_dtype",
                    "main_params_dtype",
                    "exp_avg_dtype",
                    "exp_avg_sq_dtype",
                    "fp8_param_gather",
                    "optimizer_cpu_offload",
                    "overlap_grad_reduce",
                    "overlap_param_gather",
                    "use_megatron_fsdp",
                    "data_parallel_sharding_strategy",
                    "transformer_impl",
                    "hidden_dropout",
                    "attention_dropout",
                    "cross_entropy_loss_fusion",
                    "cross_entropy_fusion_impl",
                    "calculate_per_token_loss",
                    "cp_comm_type",
                    "moe_flex_dispatcher_backend",
                    "moe_grouped_gemm",
                    "moe_permute_fusion",
                    "moe_router_dtype",
                    "moe_expert_capacity_factor",
                    "moe_pad_expert_input_to_capacity",
                    "moe_shared_expert_overlap",
                    "overlap_moe_expert_parallel_comm",
                    "delay_wgrad_compute",
                    "fine_grained_activation_offloading",
                    "cuda_graph_impl",
                )
            },
            "precision": precision,
            "params_dtype": "fp32" if a["precision"] == "fp32" else None,
            "use_fused_weighted_squared_relu": "--use-fused-weighted-squared-relu" in raw,
            "attention_backend": backend,
            "gradient_accumulation_fusion": not a["no_gradient_accumulation_fusion"],
            "grad_reduce_in_fp32": precision not in ("fp32", "fp16") and not a["grad_reduce_in_bf16"],
            "moe_token_dispatcher_type": a["moe_token_dispatcher_type"],
            "bias_activation_fusion": "--no-bias-gelu-fusion" not in row["raw_args"]
            or "--use-transformer-engine-op-fuser" in row["raw_args"],
            "attention_softmax_in_fp32": bool(row["raw_args"].get("--attention-softmax-in-fp32")),
            "offload_modules": _words(a["offload_modules"]),
            "cuda_graph_scope": _words(a["cuda_graph_scope"]),
            "deterministic_mode": str(row["raw_env"].get("NVTE_ALLOW_NONDETERMINISTIC_ALGO", 1)) == "0",
            "defer_embedding_wgrad_compute": a["defer_embedding_wgrad_compute"],
            "wgrad_deferral_limit": row["raw_args"].get("--wgrad-deferral-limit"),
            "skip_getting_attention_mask_from_dataset": False,
            "cublas_workspace_bytes": _cublas_workspace(row),
        }
    )
    pp = a["pipeline_model_parallel_size"]
    layout = StageLayout.parse(a["pipeline_model_parallel_layout"]) if a["pipeline_model_parallel_layout"] else None
    vpp = a["virtual_pipeline_model_parallel_size"] or a["num_virtual_stages_per_pipeline_rank"] or 1
    if a["num_layers_per_virtual_pipeline_stage"]:
        vpp = a["num_layers"] // pp // a["num_layers_per_virtual_pipeline_stage"]
    grids = Grids.of(
        world_size=row["world_size"],
        tp=a["tensor_model_parallel_size"],
        pp=pp,
        vpp=vpp,
        cp=a["context_parallel_size"],
        ep=a["expert_model_parallel_size"],
        etp=a["expert_tensor_parallel_size"],
        sp=a["sequence_parallel"] and a["tensor_model_parallel_size"] > 1,
        mbs=a["micro_batch_size"],
        num_microbatches=row["num_microbatches"],
        recompute=Recompute(
            a["recompute_granularity"], a["recompute_method"], a["recompute_num_layers"], _words(a["recompute_modules"])
        ),
        layout=layout,
        first_layers=a["decoder_first_pipeline_num_layers"] or -1,
        last_layers=a["decoder_last_pipeline_num_layers"] or -1,
        account_for_embedding=a["account_for_embedding_in_pipeline_split"],
        account_for_loss=a["account_for_loss_in_pipeline_split"],
        microbatch_group_size=a["microbatch_group_size_per_vp_stage"],
    )
    m = row["measured"]
    return Case(
        row["case"],
        row["family"],
        arch,
        settings,
        grids,
        _gpu(row["gpu"], gpus),
        -1,
        m["mem_max_allocated_bytes"],
        m["mem_allocated_bytes_median"],
    )


def _cublas_workspace(row: Row) -> int:
    """PyTorch's cuBLAS workspace in the run: as configured (``:KiB:count``), or the default of that time.

    On Blackwell the containers of spring 2026 moved from the small default to Hopper's.
    """
    if config := row["raw_env"].get("CUBLAS_WORKSPACE_CONFIG"):
        kib, count = (int(x) for x in config.strip(":").split(":"))
        return kib * count * 1024
    large = row["gpu"] == "H100" or (row["gpu"] == "GB200" and row["golden_recorded_date"] >= "2026-05")
    return 32 * 1024 * 1024 if large else 8320 * 1024


def _words(text: Any) -> tuple[str, ...]:
    """``"[a b]"`` or a list as a tuple of words."""
    if not text:
        return ()
    return tuple(text.strip("[]").replace(",", " ").split()) if isinstance(text, str) else tuple(text)


def large_cases(row: Row, gpus: Gpus) -> list[Case]:
    """A row of ``measured_memory_large.jsonl``: a case for each stage that was printed, or one for the largest."""
    row = _Whole.of(row)
    a, p, b = row["arch"], row["parallel"], row["batch"]
    arch = Architecture(
        num_layers=a["num_layers"],
        hidden_size=a["hidden_size"],
        num_attention_heads=a["num_attention_heads"],
        vocab_size=a["padded_vocab_size"],
        should_pad_vocab=False,
        ffn_hidden_size=a["ffn_hidden_size"],
        num_query_groups=a["num_query_groups"],
        kv_channels=a["kv_channels"],
        gated_linear_unit=a["swiglu"],
        add_bias_linear=a["add_bias_linear"],
        normalization=a["normalization"],
        qk_layernorm=a["qk_layernorm"],
        position_embedding_type=a["position_embedding_type"],
        share_embeddings_and_output_weights=not a["untie_embeddings_and_output_weights"],
        multi_latent_attention=a["multi_latent_attention"],
        q_lora_rank=a["q_lora_rank"],
        kv_lora_rank=a["kv_lora_rank"],
        qk_head_dim=a["qk_head_dim"],
        qk_pos_emb_head_dim=a["qk_pos_emb_head_dim"],
        v_head_dim=a["v_head_dim"],
        num_moe_experts=a["num_experts"],
        moe_router_topk=a["moe_router_topk"],
        moe_ffn_hidden_size=a["moe_ffn_hidden_size"],
        moe_shared_expert_intermediate_size=a["moe_shared_expert_intermediate_size"],
        moe_layer_freq=tuple(a["moe_layer_freq"]) if a["moe_layer_freq"] else 1,
        mtp_num_layers=a["mtp_num_layers"],
    )
    o, moe = row["optimizer"], row["moe"]
    fp8 = bool(row["precision"]["fp8_recipe"])
    settings = Settings.of(
        {
            "seq_length": b["seq_length"],
            "global_batch_size": b["global_batch_size"],
            "precision": "fp8_cs" if fp8 else "bf16",
            "fp8_param_gather": row["precision"]["fp8_param_gather"],
            "task": row["task"],
            "use_distributed_optimizer": o["distributed"],
            "use_precision_aware_optimizer": o["precision_aware"],
            "grad_reduce_in_fp32": o["main_grads_dtype"] == "fp32",
            "cross_entropy_loss_fusion": row["cross_entropy"]["fusion"],
            "cross_entropy_fusion_impl": row["cross_entropy"]["impl"],
            "overlap_grad_reduce": row["overlap"]["overlap_grad_reduce"],
            "overlap_param_gather": row["overlap"]["overlap_param_gather"],
            "moe_token_dispatcher_type": moe["token_dispatcher_type"],
            "moe_permute_fusion": moe["permute_fusion"],
            "moe_expert_capacity_factor": moe["capacity_factor"],
            "moe_pad_expert_input_to_capacity": moe["pad_to_capacity"],
            "cp_comm_type": p["cp_comm_type"],
            "cuda_graph_impl": row["runtime"]["cuda_graph_impl"],
            "cuda_graph_scope": _words(row["runtime"]["cuda_graph_scope"]),
            "use_megatron_fsdp": row["runtime"]["fsdp"],
            "pytorch_cuda_alloc_conf": row["runtime"]["alloc_conf"],
        }
    )
    r = row["recompute"]
    recompute = Recompute(r["granularity"], r["method"], r["num_layers"], _words(r["modules"]))
    if r["granularity"] == "full" and r["num_layers"] == 0:
        recompute = Recompute()
    grids = Grids.of(
        world_size=row["world_size"],
        tp=p["tp"],
        pp=p["pp"],
        vpp=p["vpp"] or 1,
        cp=p["cp"],
        ep=p["ep"],
        etp=p["etp"] or 1,
        sp=p["sequence_parallel"],
        mbs=b["micro_batch_size"],
        num_microbatches=b["num_microbatches"],
        recompute=recompute,
    )
    m = row["measured"]
    gpu = _gpu(row["gpu"], gpus)
    by_stage = m["peak_allocated_bytes_by_stage"]
    if not by_stage:
        # Bridge's loggers (TensorBoard and the like) live on the last global rank, hence on the last stage.
        last = -1 if m["peak_scope"] and "unknown rank" in m["peak_scope"] else None
        return [Case(row["id"], row["model"], arch, settings, grids, gpu, last, m["peak_allocated_bytes"], None)]
    return [
        Case(f"{row['id']} stage {stage}", row["model"], arch, settings, grids, gpu, int(stage), peak, None)
        for stage, peak in by_stage.items()
    ]


def _gpu(name: str, gpus: Gpus) -> Gpu | None:
    """The system of that name or alias."""
    return next((g for g in gpus.values() if name in (g.name, *g.aliases)), None)


def usable(rows: Iterable[Row], families: Sequence[str] = ("gpt", "moe")) -> list[Row]:
    """Rows of ``measured_memory.jsonl`` whose run is known well (tier A), each configuration once."""
    return distinct([r for r in rows if r["tier"] == "A" and r["family"] in families], "mem_config_key")


def measured_small(rows: Iterable[Row], gpus: Gpus, families: Sequence[str] = ("gpt", "moe")) -> list[Case]:
    """The usable rows of ``measured_memory.jsonl`` as cases."""
    return [small_case(r, gpus) for r in usable(rows, families)]


def measured_large(rows: Iterable[Row], gpus: Gpus) -> list[Case]:
    """Rows of ``measured_memory_large.jsonl`` as cases, each measurement once."""
    return [case for r in distinct(rows, "memory_group") for case in large_cases(r, gpus)]
