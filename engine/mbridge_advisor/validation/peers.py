"""What simpler formulas say of the same rows: the size of the problem, and a check that ours earns its length.

Each is the published formula in our own code; none is used for advice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..memory.parameters import layer_kinds, padded_vocab_size
from ..timing import model_flops_per_token
from ..timing.estimate import peak
from . import memory, throughput


def bridge_estimator(case: memory.Case) -> float:
    """Bytes as Megatron Bridge v0.6.0 reckons them at start-up.

    Source: ``src/megatron/bridge/training/utils/theoretical_memory_utils.py`` (``estimate_training_memory``), described
    in ``docs/training/memory-estimator.md``. 18 bytes a parameter, or 6 plus 12 over the optimizer's shards; attention
    always counted as grouped-query attention; activations by table 2 of arXiv 2205.05198, for selective recompute with
    sequence parallelism, times every layer of the model.
    """
    a, s, g = case.architecture, case.settings, case.grids
    tp, pp, cp, ep, etp = (int(c[0]) for c in (g.tp, g.pp, g.cp, g.ep, g.etp))
    h, matrices = a.hidden_size, 3 if a.gated_linear_unit else 2
    moe = [kind.mlp == "moe" for kind in layer_kinds(a)]
    width, shared = a.moe_ffn_hidden_size or a.mlp_hidden_size, a.moe_shared_expert_intermediate_size or 0
    attention = 2 * h * (1 + a.query_groups / a.num_attention_heads) * a.head_dim * a.num_attention_heads
    dense = sum(attention + 4 * h + matrices * h * (shared if m else a.mlp_hidden_size) for m in moe) + 2 * h
    experts = sum(moe) * matrices * h * width * (a.num_moe_experts or 0)
    vocab = padded_vocab_size(a, tp)
    tables = 2 if pp == 1 and not a.share_embeddings_and_output_weights else 1
    on_rank = (dense / pp + tables * h * vocab) / tp

    def each(shards: float) -> float:
        return 6 + 12 / max(shards, 1) if s.use_distributed_optimizer else 18.0

    dp = int(g.dp[0])
    state = on_rank * each(dp * cp) + experts / (pp * ep * etp) * each(dp * tp * cp // (ep * etp))
    ffn = sum((width * (a.moe_router_topk or 1) + shared) if m else a.mlp_hidden_size for m in moe) / (len(moe) * h)
    tokens = s.seq_length * int(g.mbs[0])
    activation = len(moe) * tokens * h * (18 + 4 * ffn) + tokens * pp * (8 + h)
    if int(g.vpp[0]) > 1:
        activation *= 1 + (pp - 1) / (pp * int(g.vpp[0]))
    elif pp > 1:
        activation *= min(1, int(g.num_microbatches[0]) / pp)
    if pp == 1:
        activation += 4 * tokens * (h + vocab)
    return state + activation / (tp * cp)


def sixteen_bytes(case: memory.Case) -> float:
    """Bytes by the rule of thumb of 16 bytes a parameter (ZeRO, arXiv 1910.02054), spread over all model ranks.

    Parameters, gradients and Adam's states of mixed precision; activations are left out, as in the rule.
    """
    from ..memory.parameters import expert_parameters, total_parameters

    a, g = case.architecture, case.grids
    experts = expert_parameters(a)
    dense = total_parameters(a) - experts
    return 16 * (dense / float(g.tp[0] * g.pp[0]) + experts / float(g.pp[0] * g.ep[0] * g.etp[0]))


def constant_utilisation(case: throughput.Case, share: float = 0.4) -> float:
    """Tokens/s/GPU at a fixed share of the peak (40 %, as PaLM, arXiv 2204.02311, made common), whatever the grid."""
    return share * peak(case.gpu, case.settings.precision) / model_flops_per_token(case.architecture, case.settings)


MEMORY: Mapping[str, Callable[[memory.Case], float]] = {
    "Megatron Bridge's estimator": bridge_estimator,
    "16 bytes a parameter": sixteen_bytes,
}
THROUGHPUT: Mapping[str, Callable[[throughput.Case], float]] = {"40 % of peak": constant_utilisation}
