"""Seeded random and boundary configurations for the oracle.

A case is a mapping of vocabulary short names to values. It is first drawn so that most constraints hold (sizes are
built as multiples of what must divide them), in small worlds, and then pushed over or back across an edge in up to
three places: both sides of every constraint are met about equally often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from math import lcm
from typing import Any

Case = dict[str, Any]

# What every case has, and what shrinking returns to. Small, and every rule is met.
SMALLEST: Mapping[str, Any] = {
    "gpu": "H100",
    "world_size": 8,
    "num_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "seq_length": 4096,
    "gbs": 32,
    "mbs": 1,
}
MAX_WORLD = 1024
GPUS = ("H100", "H100", "H100", "A100", "H200", "B200", "GB200", "GB300", "RTX-PRO-6000")
MODULES = ("core_attn", "mlp", "moe", "layernorm", "moe_act", "mla_up_proj", "shared_experts")


# What a setting can't do without; most cases with the first have the others, so that further rules are reached.
NEEDS: Mapping[str, Mapping[str, Any]] = {
    "cuda_graph_impl": {"use_te_rng_tracker": True, "check_for_nan_in_loss": False},
    "deterministic_mode": {
        "nccl_algo": "Ring",
        "nvte_allow_nondeterministic_algo": "0",
        "cross_entropy_loss_fusion": False,
    },
    "async_save": {"checkpoint_save": "checkpoint"},
    "delay_wgrad_compute": {"overlap_moe_expert_parallel_comm": True},
    "overlap_moe_expert_parallel_comm": {
        "num_moe_experts": 8,
        "moe_router_topk": 2,
        "ep": 2,
        "moe_token_dispatcher_type": "alltoall",
    },
    "fine_grained_activation_offloading": {"nvte_cpu_offload_v1": "1", "offload_modules": ["core_attn"]},
    "use_decentralized_pg": {"use_gloo_process_groups": False},
}
# Kinds of layers that the oracle doesn't build.
UNBUILT = ("mamba_", "linear_", "hybrid_")


def generate(
    rng: random.Random,
    hints: Sequence[Mapping[str, Any]] = (),
    lacking: Callable[[Case], Collection[str]] = lambda case: (),
) -> Case:
    """One random case; about half of them break something.

    Args:
        rng: where the chance comes from.
        hints: settings that belong together, such as the examples of rules; a third of the cases take one or two over.
        lacking: names that the release doesn't have for such a case; they are left out.
    """
    usable = [hint for hint in hints if hint and not any(name.startswith(UNBUILT) for name in hint)]
    while True:
        case = _sound(rng)
        for hint in rng.sample(usable, rng.choice((0, 0, 0, 0, 1, 2))) if usable else ():
            whole: Case = {}  # what a model of this kind can't do without
            if hint.get("is_moe") or "num_moe_experts" in hint:
                whole |= {"num_moe_experts": 8, "moe_router_topk": 2}
            if hint.get("multi_latent_attention"):
                whole |= {"kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}
            case = {**whole, **case, **{k: list(v) if isinstance(v, tuple) else v for k, v in hint.items()}}
            case.pop("is_moe", None)
        features = FEATURES + MOE_FEATURES if "num_moe_experts" in case else FEATURES
        for feature in rng.sample(features, rng.choice((0, 0, 0, 1, 1, 2, 3))):
            feature(rng, case)
        for name, needed in NEEDS.items():
            if case.get(name) not in (None, False, "none") and rng.random() < 0.8:
                case = {**needed, **case}
        for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2))):
            push(rng, case)
        if case.get("packed_sequence"):  # a setting of the data set of fine-tuning
            case.setdefault("task", "sft")
        for name in lacking(case):
            case.pop(name, None)
        if case["hidden_size"] % case["num_attention_heads"]:  # a request has to say what the code then rounds
            case["kv_channels"] = case["hidden_size"] // case["num_attention_heads"]
        if "experimental_attention_variant" not in case:
            case = {name: value for name, value in case.items() if not name.startswith("linear_")}
        if 1 <= case["world_size"] <= MAX_WORLD:
            return case


def _sound(rng: random.Random) -> Case:
    """A dense or MoE model on a grid that it fits, with batches that divide."""
    pick = rng.choice
    moe, mla = rng.random() < 0.5, rng.random() < 0.12
    tp, pp, cp = pick((1, 1, 2, 2, 4, 8, 3, 6)), pick((1, 1, 1, 2, 2, 4, 3, 8)), pick((1, 1, 1, 1, 2, 4, 3))
    vpp = pick((1, 2, 2, 3, 4)) if pp > 1 and rng.random() < 0.35 else None
    case: Case = {"gpu": pick(GPUS), "tp": tp, "pp": pp, "cp": cp}
    expert_ranks = tp  # of one pipeline stage: what Megatron Core makes of an unset ETP
    if moe:
        ep, etp = pick((1, 2, 2, 4, 8, 3, 16)), pick((None, None, 1, 1, 2, tp))
        case |= {"ep": ep, "num_moe_experts": ep * pick((1, 2, 4)), "moe_router_topk": pick((2, 2, 2, 4))}
        if etp is not None:
            case["etp"] = etp
        expert_ranks = ep * (etp or pick((1, tp)))
        if rng.random() < 0.5:
            case["moe_ffn_hidden_size"] = 64 * tp * pick((1, 3, 8))
        if rng.random() < 0.3:
            case["moe_shared_expert_intermediate_size"] = 64 * tp * pick((1, 2))
        if rng.random() < 0.4:
            case["moe_token_dispatcher_type"] = pick(("allgather", "alltoall", "flex"))
    if vpp is not None:
        case["vpp"] = vpp
    if moe and tp > 1:
        case["sequence_parallel"] = rng.random() < 0.9
    elif rng.random() < (0.5 if tp > 1 else 0.08):
        case["sequence_parallel"] = True
    world = pp * lcm(tp * cp, expert_ranks) * pick((1, 1, 1, 2, 3))
    dp = world // (tp * pp * cp)
    heads = tp * pick((1, 2, 4))
    mbs = pick((1, 1, 1, 2, 4))
    microbatches = pp * pick((1, 2, 3)) if vpp else pick((1, 2, 4, 5))
    case |= {
        "world_size": world,
        "num_layers": pp * (vpp or 1) * pick((1, 2, 3)),
        "hidden_size": 64 * heads,
        "num_attention_heads": heads,
        "vocab_size": pick((32000, 50257, 128256)),
        "seq_length": 2 * cp * tp * pick((64, 128, 512)),
        "mbs": mbs,
        "gbs": mbs * dp * microbatches,
    }
    if mla:
        case |= {"multi_latent_attention": True, "kv_lora_rank": 512, "q_lora_rank": pick((None, 1536))}
        case |= {"qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}
    elif rng.random() < 0.6:
        case["num_query_groups"] = pick([n for n in range(1, heads + 1) if heads % n == 0])
    if rng.random() < 0.6:
        case["ffn_hidden_size"] = 64 * tp * pick((1, 2, 7))
    return case


# --- features: each sets a few settings that belong together, sound or not ---


def _uneven(rng: random.Random, case: Case) -> None:
    case["pp"] = max(case["pp"], rng.choice((1, 2, 4)))
    for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"):
        if rng.random() < 0.7:
            case[name] = rng.choice((1, 2, 3, 4))
    if rng.random() < 0.7:  # a middle that divides
        ends = [case[n] for n in case if n.startswith("num_layers_in_")]
        case["num_layers"] = sum(ends) + max(case["pp"] - len(ends), 0) * (case.get("vpp") or 1) * rng.choice((1, 2))


def _account(rng: random.Random, case: Case) -> None:
    for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        if rng.random() < 0.7:
            case[name] = True
    case["num_layers"] = max(1, case["num_layers"] - rng.choice((0, 1, 2)))


def _layout(rng: random.Random, case: Case) -> None:
    stages = case["pp"] * (case.get("vpp") or 1) if rng.random() < 0.8 else case["pp"] * rng.choice((1, 2, 3))
    parts = ["t" * rng.choice((0, 1, 1, 2, 2, 3)) for _ in range(stages)]
    decoders = sum(map(len, parts))
    if not decoders:
        parts[0], decoders = "t", 1
    parts[0] = "E" + parts[0]
    if rng.random() < 0.25:
        case["mtp_num_layers"] = 1
        parts[-1 if rng.random() < 0.7 else rng.randrange(stages)] += "m"
    parts[-1] += "L"
    text = "|".join(parts)
    if rng.random() < 0.25:  # a slip: one character dropped, doubled or exchanged
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(("", text[at] * 2, rng.choice("tEL|m"))) + text[at + 1 :]
    case["pipeline_model_parallel_layout"] = text
    case["num_layers"] = decoders
    if rng.random() < 0.6:
        case.pop("vpp", None)


def _mtp(rng: random.Random, case: Case) -> None:
    case["mtp_num_layers"] = rng.choice((1, 1, 2))


def _recompute(rng: random.Random, case: Case) -> None:
    case["recompute_granularity"] = rng.choice(("selective", "full"))
    if rng.random() < (0.85 if case["recompute_granularity"] == "full" else 0.15):
        case["recompute_method"] = rng.choice(("uniform", "block"))
    if rng.random() < (0.85 if case["recompute_granularity"] == "full" else 0.15):
        case["recompute_num_layers"] = rng.choice((1, 1, 2, case["num_layers"]))
    if rng.random() < 0.6:
        case["recompute_modules"] = rng.sample(MODULES, rng.choice((1, 1, 2)))


def _context(rng: random.Random, case: Case) -> None:
    case["cp_comm_type"] = rng.choice(("p2p", "all_gather", "a2a", "a2a+p2p"))
    if case["cp_comm_type"] == "a2a+p2p" or rng.random() < 0.2:
        case["cp"] = rng.choice((2, 4, 4, case["cp"]))
        case["hierarchical_context_parallel_sizes"] = rng.choice(([2, 2], [case["cp"], 1], [1, case["cp"]], [2, 1]))


def _optimizer(rng: random.Random, case: Case) -> None:
    case["num_distributed_optimizer_instances"] = rng.choice((1, 2, 2, 3, 4))
    if rng.random() < 0.2:
        case["use_distributed_optimizer"] = False


def _precision_aware(rng: random.Random, case: Case) -> None:
    case["use_precision_aware_optimizer"] = rng.random() < 0.8
    if rng.random() < 0.3:
        case["use_distributed_optimizer"] = False
    if rng.random() < 0.5:
        case[rng.choice(("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"))] = rng.choice(("bf16", "fp32"))


def _fsdp(rng: random.Random, case: Case) -> None:
    case["use_megatron_fsdp"] = True
    if rng.random() < 0.2:
        case["cuda_device_max_connections"] = rng.choice(("1", "8"))
    if rng.random() < 0.5:
        case["data_parallel_sharding_strategy"] = rng.choice(("optim", "optim_grads", "optim_grads_params"))


def _precision(rng: random.Random, case: Case) -> None:
    case["precision"] = rng.choice(("fp16", "fp8_cs", "fp8_mx", "fp8_delayed", "fp8_sc", "nvfp4"))
    if rng.random() < 0.2:
        case["first_last_layers_bf16"] = rng.random() < 0.7
    if rng.random() < 0.15:
        case["fp8_param_gather"] = rng.random() < 0.5


def _finetune(rng: random.Random, case: Case) -> None:
    case["task"] = rng.choice(("sft", "sft", "lora"))
    if case["cp"] > 1 or rng.random() < 0.3:
        case["calculate_per_token_loss"] = rng.random() < 0.7
    if rng.random() < 0.3:
        case["average_in_collective"] = rng.random() < 0.5
    if rng.random() < 0.3:
        case["packed_sequence"] = True


def _overlap(rng: random.Random, case: Case) -> None:
    for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "tp_comm_overlap"):
        if rng.random() < 0.4:
            case[name] = True
    if rng.random() < 0.2:
        case["defer_embedding_wgrad_compute"] = True
    if rng.random() < 0.2:
        case["overlap_p2p_comm"] = rng.random() < 0.5


def _group(rng: random.Random, case: Case) -> None:
    case["microbatch_group_size_per_vp_stage"] = rng.choice((1, case["pp"], case["pp"] + 1, 2 * case["pp"]))


def _dispatcher(rng: random.Random, case: Case) -> None:
    case["moe_token_dispatcher_type"] = rng.choice(("allgather", "alltoall", "flex"))
    if rng.random() < 0.5:
        case["moe_flex_dispatcher_backend"] = rng.choice(("deepep", "hybridep", "ncclep"))
    if rng.random() < 0.3:
        case["moe_shared_expert_overlap"] = True
    if rng.random() < 0.2:
        case["moe_permute_fusion"] = True


def _capacity(rng: random.Random, case: Case) -> None:
    if rng.random() < 0.7:
        case["moe_expert_capacity_factor"] = rng.choice((1.0, 1.5))
    if rng.random() < 0.6:
        case["moe_pad_expert_input_to_capacity"] = True


def _routing(rng: random.Random, case: Case) -> None:
    if rng.random() < 0.3:
        case["moe_router_topk"] = 1
        case["moe_router_pre_softmax"] = rng.random() < 0.7
    if rng.random() < 0.7:
        case["moe_router_num_groups"] = rng.choice((1, 2, 3, 4))
    if rng.random() < 0.7:
        case["moe_router_group_topk"] = rng.choice((1, 2, 4))
    if rng.random() < 0.3:
        case["moe_router_score_function"] = rng.choice(("softmax", "sigmoid"))
    if rng.random() < 0.3:
        case["moe_router_enable_expert_bias"] = True


def _frequency(rng: random.Random, case: Case) -> None:
    length = case["num_layers"] + rng.choice((0, 0, 0, 1))
    case["moe_layer_freq"] = rng.choice((2, [0] + [1] * (length - 1)))


def _offload(rng: random.Random, case: Case) -> None:
    if rng.random() < 0.5:
        case |= {"cpu_offloading": True, "cpu_offloading_num_layers": rng.choice((0, 1, case["num_layers"] - 1))}
    else:
        case["fine_grained_activation_offloading"] = True
        case["offload_modules"] = rng.sample(("core_attn", "attn_proj", "expert_fc1", "moe_act"), rng.choice((1, 2)))
        if rng.random() < 0.7:
            case["nvte_cpu_offload_v1"] = "1"


def _graphs(rng: random.Random, case: Case) -> None:
    case["cuda_graph_impl"] = rng.choice(("local", "transformer_engine", "transformer_engine", "full_iteration"))
    case["use_te_rng_tracker"] = rng.random() < 0.8
    case["check_for_nan_in_loss"] = rng.random() < 0.3
    if rng.random() < 0.7:
        case["cuda_graph_scope"] = rng.sample(
            ("attn", "mlp", "moe", "moe_router", "moe_preprocess"), rng.choice((1, 2))
        )


def _vocabulary(rng: random.Random, case: Case) -> None:
    case["should_pad_vocab"] = False
    case["vocab_size"] = rng.choice((32000, 50257, 32004))


def _bias(rng: random.Random, case: Case) -> None:
    case["add_bias_linear"] = True


def _gated_delta_net(rng: random.Random, case: Case) -> None:
    keys = case["tp"] * case["cp"] * rng.choice((1, 2)) + rng.choice((0, 0, 0, 1))
    case |= {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": rng.choice((2, 4)),
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * rng.choice((1, 2)) + rng.choice((0, 0, 0, 1)),
    }


def _determinism(rng: random.Random, case: Case) -> None:
    case["deterministic_mode"] = True
    case["cross_entropy_loss_fusion"] = rng.random() < 0.3
    if rng.random() < 0.8:
        case["nccl_algo"] = rng.choice(("Ring", "Ring", "PAT"))


def _checkpoint(rng: random.Random, case: Case) -> None:
    case["ckpt_format"] = rng.choice(("torch_dist", "fsdp_dtensor", "torch"))


# Settings that a rule or two read: any of them, now and then.
RARE: Mapping[str, tuple[Any, ...]] = {
    "eval_global_batch_size": (8, 31, 32),
    "eval_micro_batch_size": (1, 2),
    "eval_context_parallel_size": (1, 2, 3),
    "async_save": (True,),
    "use_gloo_process_groups": (False,),
    "use_decentralized_pg": (True,),
    "use_tp_pp_dp_mapping": (True,),
    "use_torch_fsdp2": (True,),
    "use_sharp": (True,),
    "sharp_enabled_group": ("dp", "dp_replica", "tp"),
    "checkpoint_save": ("checkpoint",),
    "transformer_impl": ("local",),
    "attention_backend": ("flash", "fused", "unfused", "local"),
    "attention_dropout": (0.1,),
    "hidden_dropout": (0.1,),
    "batch_invariant_mode": (True,),
    "flash_attention_version": (2, 3, 4),
    "hybrid_context_parallel": (True,),
    "optimizer": ("sgd", "adam"),
    "num_buckets": (2,),
    "bucket_size": (40000000,),
    "nccl_ub": (True,),
    "pytorch_cuda_alloc_conf": ("expandable_segments:True",),
    "cuda_device_max_connections": ("1",),
    "fsdp_manual_registration": (True,),
    "fsdp_double_buffer": (True,),
    "check_weight_hash_across_dp_replicas_interval": (10,),
    "gradient_accumulation_fusion": (False,),
    "restore_modelopt_state": (True,),
    "apply_rope_fusion": (True,),
    "mla_down_proj_fusion": (True,),
    "original_max_position_embeddings": (6144,),
    "rope_type": ("rope", "yarn"),
    "bias_dropout_fusion": (True,),
    "overlap_grad_reduce": (True, False),
    "overlap_param_gather": (True, False),
    "rotary_interleaved": (True,),
    "attention_output_gate": (True,),
    "no_rope_freq": (2, 3),
    "use_te_activation_func": (True,),
    "bias_activation_fusion": (True,),
    "overlap_param_gather_with_optimizer_step": (True,),
    "distribute_saved_activations": (True,),
    "moe_layer_recompute": (True,),
    "overlap_p2p_comm_warmup_flush": (True,),
    "batch_p2p_comm": (True, False),
    "pipeline_model_parallel_comm_backend": ("ucc", "nccl"),
    "variable_seq_lengths": (True,),
    "tensor_parallel_num_weight_shards": (1, 2, 3, 4),
    "expert_tensor_parallel_num_weight_shards": (1, 2, 4),
    "ep_overlap_early_attn_memory_release": (True,),
    "overlap_dispatch_backward_with_experts_wgrad": (True,),
    "wgrad_deferral_limit": (0, -1),
    "first_last_layers_bf16": (True,),
    "num_layers_at_start_in_bf16": (1, 4),
    "rampup_batch_size": ([2, 2, 100], [1, 3, 100], [2, 2]),
    "train_iters": (10,),
    "num_epochs": (1,),
    "decrease_batch_size_if_needed": (True,),
    "train_samples": (320,),
    "dataset_seq_length": (2048, 4096),
    "moe_enable_deepep": (True,),
    "moe_expert_rank_capacity_factor": (1.5,),
    "moe_ncclep_static_shape": (True,),
    "moe_router_padding_for_quantization": (True,),
    "moe_router_load_balancing_type": ("sinkhorn", "none", "seq_aux_loss"),
    "moe_latent_size": (64,),
    "moe_paged_stash": (True,),
    "moe_grouped_gemm": (False,),
    "use_transformer_engine_op_fuser": (True,),
    "experimental_attention_variant": ("dsa", "gated_delta_net"),
}
MOE_ONLY = ("moe_", "ep_overlap", "overlap_dispatch")
MLA_ONLY = ("mla_", "original_max_position", "rope_type")


def _rare(rng: random.Random, case: Case) -> None:
    moe, mla = "num_moe_experts" in case, "multi_latent_attention" in case
    names = [n for n in RARE if (moe or not n.startswith(MOE_ONLY)) and (mla or not n.startswith(MLA_ONLY))]
    for name in rng.sample(names, rng.choice((1, 1, 2))):
        case[name] = rng.choice(RARE[name])


FEATURES: tuple[Callable[[random.Random, Case], None], ...] = (
    *(_uneven, _account, _layout, _mtp, _recompute, _context, _optimizer, _precision_aware, _fsdp, _precision),
    *(_finetune, _overlap, _group, _offload, _graphs, _vocabulary, _bias, _determinism, _checkpoint, _gated_delta_net),
    *(_uneven, _account, _layout, _context, _rare, _rare, _rare, _rare, _rare),
)
MOE_FEATURES = (_dispatcher, _capacity, _routing, _frequency, _overlap, _dispatcher)

# Sizes that constraints relate to one another: where to push.
SIZES = (
    *("world_size", "world_size", "tp", "pp", "vpp", "cp", "ep", "etp", "num_layers", "num_layers", "seq_length"),
    *("gbs", "gbs", "mbs", "num_moe_experts", "num_attention_heads", "num_query_groups"),
    *("ffn_hidden_size", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "mtp_num_layers"),
)
SWITCHES = ("sequence_parallel", "account_for_loss_in_pipeline_split", "calculate_per_token_loss")


def push(rng: random.Random, case: Case) -> None:
    """Move one size by one step, half or double it, or turn a switch."""
    if rng.random() < 0.15:
        name = rng.choice(SWITCHES)
        case[name] = not case.get(name, False)
        return
    name = rng.choice(SIZES)
    value = case.get(name) or 1
    moved = rng.choice((value - 1, value + 1, value + 1, value // 2, value * 2, rng.choice((1, 2, 3, 4, 5, 6, 8))))
    if moved < 1:
        return
    case[name] = moved
    if name == "num_moe_experts":
        case.setdefault("moe_router_topk", 1)
    if name == "num_attention_heads":
        case["hidden_size"] = 64 * moved


def shrink(case: Case, same: Callable[[Case], bool], budget: int = 250) -> Case:
    """A smaller case for which ``same`` still holds: settings dropped one by one, then sizes made smaller.

    Args:
        case: one for which ``same`` holds.
        same: whether a case still shows what is looked for.
        budget: most calls of ``same``.
    """

    def better(candidate: Case) -> bool:
        nonlocal budget, case
        if candidate == case or budget <= 0:
            return False
        budget -= 1
        if same(candidate):
            case = candidate
            return True
        return False

    changed = True
    while changed and budget > 0:
        changed = False
        for name in sorted(case, key=lambda n: (n in SMALLEST, n)):
            value, floor = case[name], SMALLEST.get(name)
            simpler: list[Case] = []
            if floor is None:
                simpler.append({k: v for k, v in case.items() if k != name})
            elif value != floor:
                simpler.append({**case, name: floor})
            if isinstance(value, int) and not isinstance(value, bool):
                sizes = (1, 2, 3, 4, value // 2, value - 1)
                simpler += [{**case, name: n} for n in sizes if 1 <= n < value and (floor is None or value > floor)]
            changed = any(better(candidate) for candidate in simpler) or changed
    return case
