"""Step time of each candidate: compute by module, communication with what overlaps, pipeline bubble, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from ..knowledge.model import Gpu
from ..memory import calibration as calibration_
from ..memory.grids import Floats, Grids
from ..memory.layers import LINEAR_BYTES, Shape, Weights, mtp_depth, shape, weights
from ..memory.parameters import LayerKind, layer_kinds, mtp_layer_kinds, padded_vocab_size
from ..memory.plan import stages, unique_columns
from ..memory.settings import Settings
from . import network
from .work import Work, layer_work

COMPONENTS = (
    "attention",
    "mlp",
    "experts",
    "elementwise",
    "routing",
    "output_layer",
    "recompute",
    "tp_communication",
    "cp_communication",
    "ep_communication",
    "launch",
    "bubble",
    "pp_communication",
    "dp_communication",
    "optimizer",
    "host",
)
Seconds = dict[str, Floats]


@dataclass(frozen=True)
class TimeEstimate:
    """Step time of each candidate, arrays of shape (N,).

    Attributes:
        step_seconds: one optimizer step.
        tokens_per_second_per_gpu: global batch * sequence length / step / GPUs.
        low, high: tokens/s/GPU; 80 % of measured rows lie between.
        components: seconds by component (:data:`COMPONENTS`), exposed time only; their sum is the step.
        model_flops_per_token: forward and backward, of the whole model, without recompute.
        model_tflops_per_gpu: model FLOPs at the estimated rate.
    """

    step_seconds: Floats
    tokens_per_second_per_gpu: Floats
    low: Floats
    high: Floats
    components: Mapping[str, Floats]
    model_flops_per_token: float
    model_tflops_per_gpu: Floats


def estimate(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu,
    calibration: Mapping[str, float] | None = None,
) -> TimeEstimate:
    """Estimate all candidates of ``grids`` on systems of kind ``gpu``.

    ``calibration``: constants by name; None: those of the knowledge base.
    """
    constants = calibration_.default() if calibration is None else calibration
    model = _Model(arch, settings, gpu, constants)
    parts = [model.components(part) for part in grids.slices()]
    components = {name: np.concatenate([p[name] for p in parts]) for name in COMPONENTS}
    step = np.sum(list(components.values()), axis=0)
    rate = _rate(settings, grids, step)
    flops = model_flops_per_token(arch, settings)
    return TimeEstimate(
        step_seconds=step,
        tokens_per_second_per_gpu=rate,
        low=rate * constants["time_range_low"],
        high=rate * constants["time_range_high"],
        components=components,
        model_flops_per_token=flops,
        model_tflops_per_gpu=rate * flops / 1e12,
    )


def tokens_per_second_per_gpu(
    arch: Architecture, settings: Settings, grids: Grids, gpu: Gpu, calibration: Mapping[str, float] | None = None
) -> Floats:
    """The rate alone, shape (N,), in two thirds of the time: see :func:`estimate`."""
    constants = calibration_.default() if calibration is None else calibration
    model = _Model(arch, settings, gpu, constants)
    steps = [sum(model.seconds(part, detailed=False).values(), np.zeros(len(part))) for part in grids.slices()]
    return _rate(settings, grids, np.concatenate(steps))


def _rate(settings: Settings, grids: Grids, step: Floats) -> Floats:
    return grids.num_microbatches * grids.mbs * grids.dp * float(settings.seq_length) / step / grids.world_size


def model_flops_per_token(arch: Architecture, settings: Settings) -> float:
    """Forward and backward FLOPs of one token through the whole model, causal attention counted once."""
    s = shape(arch, settings, Grids.of(world_size=1, num_microbatches=1))
    tokens = float(settings.seq_length)
    depth = arch.mtp_num_layers or 0
    kinds = [*layer_kinds(arch), *(mtp_layer_kinds(arch) * depth if depth else ())]
    passes = _gemm_passes(settings)
    total = 2 * passes * tokens * (arch.vocab_size * arch.hidden_size * (1 + depth) + 2 * arch.hidden_size**2 * depth)
    for kind in dict.fromkeys(kinds):
        work = layer_work(arch, settings, kind, s, weights(arch, kind, s))
        total += kinds.count(kind) * float((passes * work.gemms + 3 * work.core)[0])
    return total / tokens


def _gemm_passes(settings: Settings) -> float:
    """Forward, gradient of the input and of the weight; frozen weights (LoRA) need no gradient."""
    return 2.0 if settings.task == "lora" else 3.0


def peak(gpu: Gpu, precision: str) -> float:
    """Dense FLOP/s of GEMMs in a training precision; where the GPU lacks it, of the next wider one."""
    keys = {"nvfp4": ("fp4", "fp8", "bf16"), "bf16": ("bf16",), "fp16": ("fp16", "bf16"), "fp32": ("tf32", "bf16")}
    for key in keys.get(precision, ("fp8", "bf16")):
        if key in gpu.peak_flops:
            return gpu.peak_flops[key]
    return next(iter(gpu.peak_flops.values()))


def generation(gpu: Gpu) -> str:
    """Parts with one compute capability sustain one share of their peak under load."""
    if gpu.compute_capability < 100:
        return "hopper"
    return "blackwell" if gpu.compute_capability == 100 else "blackwell_ultra"


class _Model:
    """The time model with everything that doesn't depend on the candidate worked out."""

    def __init__(self, arch: Architecture, settings: Settings, gpu: Gpu, c: Mapping[str, float]) -> None:
        self.arch, self.settings, self.gpu, self.c = arch, settings, gpu, c
        sustained = c[f"sustained_{generation(gpu)}"]
        low = "fp4" if settings.precision == "nvfp4" else "fp8" if settings.low_precision else "bf16"
        self.gemm = peak(gpu, settings.precision) * c[f"gemm_efficiency_{low}"] * sustained
        if low == "bf16" and generation(gpu) == "hopper":
            self.gemm = peak(gpu, settings.precision) * c["gemm_efficiency_bf16_hopper"] * sustained
        self.wide = (
            self.gemm
            if low == "bf16"
            else peak(gpu, "bf16")
            * sustained
            * c["gemm_efficiency_bf16_hopper" if generation(gpu) == "hopper" else "gemm_efficiency_bf16"]
        )
        self.core = peak(gpu, "bf16") * c["attention_efficiency"] * sustained
        self.memory = gpu.memory_bandwidth * c["memory_efficiency"]
        self.e = float(settings.element_bytes)
        # A cast reads 2 bytes and writes the value twice: along rows and, transposed or scaled apart, along columns.
        self.cast = 2 + 2 * LINEAR_BYTES.get(settings.precision, 1.0) if settings.low_precision else 0.0

    def components(self, grids: Grids) -> Seconds:
        """Seconds of a step by component (:data:`COMPONENTS`), shape (N,)."""
        out, empty = self.seconds(grids, detailed=True), np.zeros(len(grids))
        return {name: np.asarray(out.get(name, empty)) for name in COMPONENTS}

    def seconds(self, grids: Grids, detailed: bool) -> Seconds:
        """Seconds of a step by component; without ``detailed`` a layer's are one, ``layers``, beside its recompute."""
        c, settings, arch = self.c, self.settings, self.arch
        st = stages(arch, grids)
        first, inverse = unique_columns(
            np.stack(
                [
                    grids.tp,
                    grids.cp,
                    grids.ep,
                    grids.etp,
                    grids.sp.astype(np.int64),
                    grids.mbs,
                    grids.recompute,
                ]
            )
        )
        few = grids.take(first)
        s = shape(arch, settings, few)
        index = inverse[st.candidate]
        depth = arch.mtp_num_layers or 0
        parts = []
        for n, kind in zip(st.layers, st.kinds, strict=True):
            w = weights(arch, kind, s)
            parts.append((n, self._layer(kind, s, w, few), w))
        if depth:
            layers = [self._layer(kind, s, weights(arch, kind, s), few) for kind in mtp_layer_kinds(arch)]
            names = {name for layer in layers for name in layer}
            seconds = {name: sum((layer.get(name, 0 * s.tp) for layer in layers), 0 * s.tp) for name in names}
            parts.append((st.mtp, seconds, mtp_depth(arch, s)))
        counts = [*(layer_kinds(arch).count(kind) for kind in st.kinds), depth]
        totals = [sum(seconds.values(), 0 * s.tp) for _, seconds, _ in parts]
        again = _recomputed(grids.take(st.candidate), st.chunk)
        dense = sum((n * w.dense[index] for n, _, w in parts), np.zeros(len(index)))
        expert = sum((n * w.expert[index] for n, _, w in parts), np.zeros(len(index)))
        vocab = padded_vocab_size(arch, few.tp) / s.tp
        head = self._output(s, vocab)
        dense = dense + (st.embedding + st.loss) * vocab[index] * arch.hidden_size
        busy = st.loss * (1 + st.mtp) * head[index]
        for (n, seconds, _), total in zip(parts, totals, strict=True):
            busy = busy + n * total[index]
            if again is not None:
                busy = busy - n * (seconds["recompute"][index] * (1 - again))
        if not detailed:
            parts = [
                (n, {"layers": total - seconds["recompute"], "recompute": seconds["recompute"]}, w)
                for (n, seconds, w), total in zip(parts, totals, strict=True)
            ]
        row = st.worst(busy)
        m = grids.num_microbatches.astype(float)
        # components on the slowest rank alone
        out: Seconds = {"output_layer": (st.loss[row] * (1 + st.mtp[row])) * head[inverse] * m}
        for n, seconds, _ in parts:
            times = n[row] * m
            for name, value in seconds.items():
                share = value[inverse] * times
                if name == "recompute" and again is not None:
                    share = share * again[row]
                out[name] = out[name] + share if name in out else share
        mean = sum((count * total for count, total in zip(counts, totals, strict=False)), head * (1 + depth))
        mean = mean[inverse] / grids.pp
        out["bubble"] = (grids.pp - 1) / grids.vpp * mean
        # Where virtual stages hold different numbers of layers, passes wait for the fuller ones.
        fuller = st.stall[row] * mean * grids.pp / arch.num_layers
        out["bubble"] = out["bubble"] + c["pipeline_uneven"] * fuller * m
        passed = s.sp_tokens[inverse] * arch.hidden_size * self.e
        hop = network.point_to_point_seconds(passed, grids.world_size / grids.pp, self.gpu, c)
        exposed = np.where((grids.vpp > 1) & settings.overlap_p2p_comm, c["pp_exposed"], 1.0)
        # Each pass through a virtual stage costs its sends, and a moment of waiting and bookkeeping.
        pause = c["pipeline_pause_seconds"]
        out["pp_communication"] = np.where(grids.pp > 1, m * grids.vpp * (2 * hop * exposed + pause), 0)
        full = st.worst(dense + expert)
        return out | self._step(grids, dense[full], expert[full], busy[row], m)

    def _layer(self, kind: LayerKind, s: Shape, w: Weights, grids: Grids) -> Seconds:
        """Seconds of one layer, forward and backward, for one micro-batch."""
        arch, settings, c, gpu = self.arch, self.settings, self.c, self.gpu
        x = layer_work(arch, settings, kind, s, w)
        zero = np.zeros_like(s.tp)
        # A narrow GEMM spends more of its time outside the steady state of its tiles.
        narrow = c["gemm_half_width"]
        projections = x.projections / self.gemm * (1 + narrow / x.mixer_width)
        mlp = x.mlp / self.gemm * (1 + narrow / x.mlp_width)
        core = x.core / self.core
        bytes_each = LINEAR_BYTES.get(settings.precision, 1.0) if settings.low_precision else self.e
        grouped = x.experts / (self.gemm * c["grouped_gemm_efficiency"]) * (1 + narrow / x.expert_width)
        experts = np.maximum(grouped, x.expert_elements * bytes_each / self.memory)
        scan = x.scan_bytes / (gpu.memory_bandwidth * c["scan_efficiency"])
        stream = x.stream_bytes / self.memory
        cast = x.quantised * self.cast / self.memory
        route = x.route_bytes / self.memory
        forward = projections + core + mlp + experts + scan + stream + cast / 3 + route
        passes = _gemm_passes(settings)
        flags = s.flags
        again = (
            flags["core_attn"] * core
            + flags["mla_up_proj"] * (projections / 3 + stream / 6)
            + flags["layernorm"] * stream / 4
            + flags["moe_act"] * stream / 4
            + flags["mlp"] * (mlp if kind.mlp == "dense" else zero)
            + flags["shared_experts"] * (mlp if kind.mlp == "moe" else zero)
            + flags["moe"] * (experts + route + (mlp if kind.mlp == "moe" else zero))
        )
        out = {
            "attention": passes * projections + 3.5 * core + 3 * scan,
            "mlp": passes * mlp,
            "experts": passes * experts,
            "elementwise": 3 * stream + cast,
            "routing": 2.5 * route,
            "recompute": again,
            **self._communication(kind, s, x),
        }
        busy, host = sum(out.values(), zero), self._host(kind, s)
        out["launch"] = np.maximum(host - busy, 0)
        if any(r.granularity == "full" for r in grids.recomputes):
            # A forward pass comes on top: its kernels, or where it takes longer, their launches.
            full = np.array([float(r.granularity == "full") for r in grids.recomputes])[grids.recompute]
            out["recompute"] = again + full * np.maximum(forward, host / passes)
        return out

    def _communication(self, kind: LayerKind, s: Shape, x: Work) -> Seconds:
        """Exposed communication of one layer for one micro-batch."""
        arch, settings, c, gpu, e = self.arch, self.settings, self.c, self.gpu, self.e
        zero = np.zeros_like(s.tp)
        one = np.ones_like(s.tp)
        h = arch.hidden_size
        inner = arch.moe_latent_size or h
        # TP: gather and scatter around mixer and MLP, forward and backward, and one gather for the weight gradient
        shared = kind.mlp == "moe" and bool(arch.moe_shared_expert_intermediate_size)
        blocks = float(kind.mixer != "none") + float(kind.mlp == "dense" or shared)
        ring = network.ring_seconds(s.tokens * h * e, s.tp, one, gpu, c)
        out = {"tp_communication": 5 * blocks * ring * (c["tp_exposed"] if settings.tp_comm_overlap else 1.0)}
        # CP: keys and values travel around the ring, forward once, backward twice
        if kind.mixer in ("attention", "mla"):
            if arch.multi_latent_attention:
                width = (arch.qk_head_dim or 0) + (arch.qk_pos_emb_head_dim or 0) + (arch.v_head_dim or 0)
                kv = s.tokens * arch.num_attention_heads / s.tp * width * e
            else:
                kv = s.tokens * 2 * np.maximum(arch.query_groups, s.tp) / s.tp * arch.head_dim * e
            ring = network.ring_seconds(kv * s.cp, s.cp, s.tp, gpu, c)
            # Each step of the ring adds its part to the result: forward in fp32, backward to the gradients.
            joined = (s.cp - 1) * x.projected * (4 * 4 + 2 * e) if settings.cp_comm_type in (None, "p2p") else zero
            out["cp_communication"] = 3 * c["cp_exposed"] * ring + joined / self.memory
        if kind.mlp != "moe":
            return out
        if settings.moe_token_dispatcher_type == "allgather":
            gathered = s.sp_tokens * s.ep * s.etp * inner * e
            out["ep_communication"] = 4 * network.ring_seconds(gathered, s.ep * s.etp, one, gpu, c)
            return out
        topk = float(arch.moe_router_topk or 1)
        once = settings.moe_token_dispatcher_type == "flex"
        token_bytes = s.sent / topk * (inner * e + c["dispatch_token_bytes"])
        dispatch = network.all_to_all_seconds(token_bytes, topk, s.ep, s.etp, once, gpu, c)
        exposed = c["ep_exposed"] if settings.overlap_moe_expert_parallel_comm else 1.0
        out["ep_communication"] = np.where(s.ep > 1, 4 * dispatch * exposed, zero)
        return out

    def _host(self, kind: LayerKind, s: Shape) -> Floats:
        """Seconds that the host needs to launch one layer's kernels, forward and backward, beyond CUDA graphs.

        Experts cost launches one by one; a dispatcher that sizes its buffers on the host also waits for the device.
        """
        c, scope = self.c, self.settings.cuda_graph_scope
        whole = "full_iteration" in scope or not scope or self.settings.cuda_graph_impl == "full_iteration"
        captured = self.settings.cuda_graph_impl != "none"
        one = np.ones_like(s.tp)
        if captured and whole:
            return 0 * one
        mixer = c["launch_seconds_block"] * (kind.mixer != "none")
        if captured and ("mamba" if kind.mixer == "mamba" else "attn") in scope:
            mixer = 0.0
        if kind.mlp == "dense":
            return (mixer + c["launch_seconds_block"] * (not (captured and "mlp" in scope))) * one
        if kind.mlp == "none":
            return mixer * one
        router = c["launch_seconds_router"] * (0.5 if captured and "moe_router" in scope else 1.0)
        if self.settings.moe_token_dispatcher_type != "flex":
            router += c["launch_seconds_sync"]
        # 16-bit experts launch their six GEMMs; in 8 bits two casts for each of four inputs and gradients come on top.
        each = c["launch_seconds_expert"] * (1.0 if self.settings.low_precision else 6 / 14)
        return mixer + router + each * float(self.arch.num_moe_experts or 0) / s.ep

    def _output(self, s: Shape, vocab: Floats) -> Floats:
        """Output layer (always 16 bits) and loss, forward and backward, for one micro-batch."""
        logits = s.tokens * vocab
        passes = _gemm_passes(self.settings)
        return 2 * passes * logits * self.arch.hidden_size / self.wide + logits * 8 / self.memory

    def _step(self, grids: Grids, dense: Floats, expert: Floats, compute: Floats, m: Floats) -> Seconds:
        """What happens once a step: gradients and parameters between replicas, the optimizer, the host.

        ``compute`` is one micro-batch's time on the slowest rank.
        """
        settings, c, gpu = self.settings, self.c, self.gpu
        if settings.task == "lora":
            dense, expert = dense * 0, expert * 0
        gradient = 4.0 if settings.grad_reduce_in_fp32 or self.e == 4 else self.e
        weight = 1.0 if settings.low_precision_parameters else self.e
        replicas, expert_replicas = (grids.dp * grids.cp).astype(float), grids.edp.astype(float)
        # FSDP gathers weights for each forward and backward pass and scatters gradients after each.
        passes = m if settings.use_megatron_fsdp else np.ones_like(m)
        traffic = passes * gradient + weight * (2 * passes if settings.use_megatron_fsdp else 1)
        stride = grids.tp.astype(float)
        seconds = network.ring_seconds(dense * traffic, replicas, stride, gpu, c)
        stride = (grids.etp * grids.ep).astype(float)
        seconds = seconds + network.ring_seconds(expert * traffic, expert_replicas, stride, gpu, c)
        # Overlapped, they hide behind one micro-batch's passes (FSDP: behind all), but not wholly.
        hidden = compute * passes * c["dp_hidden"] if settings.overlap_grad_reduce else 0 * compute
        exposed = np.maximum(seconds - hidden, seconds * c["dp_exposed"])
        sharded = settings.use_distributed_optimizer or settings.use_megatron_fsdp
        owned = dense / replicas + expert / expert_replicas if sharded else dense + expert
        return {
            "dp_communication": exposed,
            "optimizer": owned * (28 + gradient) / self.memory,
            "host": np.full(len(m), c["host_seconds_per_step"]),
        }


def _recomputed(grids: Grids, chunk: Floats) -> Floats | None:
    """Share of the layers of a virtual stage that recompute works on: below 1 for the block method, None: all."""
    table = grids.recomputes
    if not any(r.granularity == "full" and r.method == "block" for r in table):
        return None
    number = np.array([float(r.num_layers or 0) if r.method == "block" else np.inf for r in table])[grids.recompute]
    return np.asarray(np.minimum(number / np.maximum(chunk, 1), 1.0))
