"""Logs of failing, slow and healthy runs, written by us in the forms that real runs have.

Each is made of a start (configuration, process groups, NCCL chatter), steps, the trouble on one or more ranks, and what
launchers print after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


def start(world: int = 64, tp: int = 4, pp: int = 2) -> str:
    """What a run prints before its first step."""
    return f"""\
W1202 10:00:01.123000 4242 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable for each process
using world size: {world}, data-parallel size: {world // (tp * pp)}
> initialized tensor model parallel with size {tp}
> initialized pipeline model parallel with size {pp}
node01:4311:4311 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.1<0>
node01:4311:4400 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
/opt/venv/lib/python3.12/site-packages/torch/utils/cpp_extension.py:2425: UserWarning: TORCH_CUDA_ARCH_LIST is not set
INFO:megatron.core.num_microbatches_calculator:setting number of microbatches to constant 16
"""


START = start()
TRACE = """\
Traceback (most recent call last):
  File "/workspace/pretrain.py", line 120, in <module>
    main()
  File "/opt/Megatron-Bridge/src/megatron/bridge/training/pretrain.py", line 101, in pretrain
    _pretrain(state=state)
"""
END = """\
E1202 10:05:01.9 4242 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
pretrain.py FAILED
Root Cause (first observed failure):
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 4314)
"""


def steps(first: int, last: int, ms: float = 8123.4, tflops: float = 412.5, nan: int = 0) -> str:
    """Step lines as Bridge prints them: without the loss where it is NaN."""
    loss = "" if nan else " lm loss: 2.345678E+00 |"
    return "".join(
        f" [2026-12-02 10:{n % 60:02d}:00] iteration {n:8d}/     100 | consumed samples: {n * 512:12d} |"
        f" elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} |"
        f" learning rate: 3.000000E-04 | global batch size:   512 |{loss} loss scale: 1.0 |"
        f" grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations: {nan:3d} |\n"
        for n in range(first, last)
    )


def torchrun(message: str, rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in (*TRACE.splitlines(), message))


def srun(message: str, rank: int) -> str:
    return "".join(f"{rank:2d}: {line}\n".lstrip() for line in (*TRACE.splitlines(), message))


def tee(message: str, rank: int) -> str:
    return "".join(f"[default{rank}]:{line}\n" for line in (*TRACE.splitlines(), message))


def mpi(message: str, rank: int) -> str:
    return "".join(f"[1,{rank}]<stderr>:{line}\n" for line in (*TRACE.splitlines(), message))


FORMS: tuple[Callable[[str, int], str], ...] = (torchrun, srun, tee, mpi)


@dataclass(frozen=True)
class Log:
    """One log and what must be read from it.

    Attributes:
        name: for the test.
        text: the log.
        rule: the cause that must come first.
        rank: where it happened first, or None where the line doesn't tell.
        observed: short name -> value.
        set: Bridge field name -> value of the fix.
        request: the configuration given beside it.
        also: further rules that must be causes or stand behind one.
    """

    name: str
    text: str
    rule: str
    rank: int | None = None
    observed: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] | None = None
    also: tuple[str, ...] = ()


def oom(request: str, free: str = "1.19 GiB", process: str = "77.90 GiB", unallocated: str = "513.20 MiB") -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU 3 has a total capacity of 79.11 GiB"
        f" of which {free} is free. Including non-PyTorch memory, this process has {process} memory in use. Of the"
        f" allocated memory 70.02 GiB is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
        " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )


# message, rule, observed, set: what a check or a library says
MESSAGES: Mapping[str, tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = {
    "world, Bridge": (
        "AssertionError: world size (12) is not divisible by total_model_size (model_cfg.tensor_model_parallel_size=8"
        " * model_cfg.pipeline_model_parallel_size=1 * model_cfg.context_parallel_size=1)",
        "MB-WORLD-001",
        {"tp": 8, "pp": 1, "cp": 1},
        {"gpus": 16},
    ),
    "world, Core": (
        "RuntimeError: world_size (12) is not divisible by 8",
        "MB-WORLD-001",
        {"dense_ranks": 8},
        {"gpus": 16},
    ),
    "expert grid": (
        "RuntimeError: world_size (128) is not divisible by expert_tensor_model_pipeline_parallel size (512)",
        "MB-WORLD-002",
        {"expert_ranks": 512},
        {},
    ),
    "expert grid, NeMo": (
        "RuntimeError: decoder world_size (128) is not divisible by expert_tensor_model_pipeline_parallel size (512)",
        "MB-WORLD-002",
        {"expert_ranks": 512},
        {},
    ),
    "layers by stages, new": (
        "AssertionError: num_layers=60 should be divisible by config.pipeline_model_parallel_size=8",
        "MB-PP-001",
        {"num_layers": 60, "pp": 8},
        {},
    ),
    "layers by stages, old": (
        "AssertionError: num_layers should be divisible by pipeline_model_parallel_size",
        "MB-PP-001",
        {},
        {},
    ),
    "middle layers": (
        "ValueError: number of layers at middle stage: 55 must be divisible bythe middle pipeline model parallel size 3",
        "MB-PP-005",
        {},
        {},
    ),
    "virtual stages": (
        "AssertionError: num_layers_per_pipeline_rank 20 should be divisible by vp_size 12",
        "MB-VPP-002",
        {"layers_per_stage": 20, "vpp": 12},
        {},
    ),
    "micro-batches of the interleaved schedule": (
        "ValueError: The number of contiguous micro-batches in a virtual pipeline stageshould range in [PP=8 , M=4]",
        "MB-VPP-005",
        {"pp": 8, "num_microbatches": 4},
        {},
    ),
    "layout and PP": (
        "AssertionError: pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size"
        " (len(layout)=8, pipeline_model_parallel_size=3)",
        "MB-LAYOUT-002",
        {"pp": 3},
        {},
    ),
    "layout and layers": (
        "AssertionError: Number of decoder layers 45must match num_layers 46",
        "MB-LAYOUT-005",
        {"layout_decoder_layers": 45, "num_layers": 46},
        {},
    ),
    "layout and VPP": (
        "AssertionError: virtual_pipeline_model_parallel_size conflicts with pipeline_model_parallel_layout,"
        " (self.virtual_pipeline_model_parallel_size=4, detected_vpp_size=2)",
        "MB-LAYOUT-003",
        {},
        {},
    ),
    "heads": (
        "ValueError: num_attention_heads (28) must be a multiple of tensor_model_parallel_size (8).",
        "MB-TP-001",
        {"num_attention_heads": 28, "tp": 8},
        {},
    ),
    "KV groups": (
        "ValueError: num_query_groups (10) must be a multiple or divisor of tensor_model_parallel_size (4).",
        "MB-TP-002",
        {"num_query_groups": 10, "tp": 4},
        {},
    ),
    "SP without TP": (
        "ValueError: Cannot use sequence parallelism without tensor parallelism",
        "MB-SP-001",
        {},
        {"sequence_parallel": False},
    ),
    "first dimension": (
        "AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
        "MB-SP-003",
        {},
        {},
    ),
    "CP length": (
        "AssertionError: Sequence length must be divisible by 2 * context parallel size if context parallel is used.",
        "MB-CP-001",
        {},
        {},
    ),
    "CP silently off": (
        "AssertionError: hierarchical_context_parallel_sizes must be set when cp_comm_type contains 'a2a+p2p'. Without",
        "MB-CP-004",
        {},
        {},
    ),
    "batch": (
        "AssertionError: global batch size (36) is not divisible by micro batch size (4) times data parallel size (4)",
        "MB-BATCH-001",
        {"gbs": 36, "mbs": 4, "dp": 4},
        {},
    ),
    "EP on a dense model": (
        "ValueError: num_moe_experts must be non None to use expert-parallel.",
        "MB-EP-001",
        {},
        {"expert_model_parallel_size": 1},
    ),
    "experts by EP": (
        "ValueError: num_moe_experts=60 must be divisible by expert_model_parallel_size=16",
        "MB-EP-003",
        {"num_moe_experts": 60, "ep": 16},
        {},
    ),
    "CUDA graphs": (
        "AssertionError: full recompute is only supported with full iteration CUDA graph.",
        "MB-CG-006",
        {},
        {},
    ),
    "FSDP format": (
        "AssertionError: Megatron-FSDP requires the fsdp_dtensor checkpointing format!",
        "MB-FSDP-003",
        {},
        {},
    ),
    "FP8 shape": (
        "AssertionError: FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by 16,"
        " but got tensor with dims=[184, 4096]",
        "MB-PREC-009",
        {},
        {},
    ),
    "a layer that TP can't cut": ("AssertionError: 1000 is not divisible by 16", "MB-START-002", {}, {}),
    "ranks don't make up the grid": (
        "ValueError: cannot reshape array of size 8 into shape (1,1,4,8)",
        "MB-START-001",
        {"world_size": 8},
        {},
    ),
    "checkpoint not found": (
        "FileNotFoundError: No checkpoint found in load directory or pretrained directory",
        "MB-LOAD-001",
        {},
        {},
    ),
    "checkpoint shape": (
        "megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for loaded"
        " (torch.Size([128256, 4096])) and expected ((129024, 4096)) tensor for key embedding.word_embeddings.weight",
        "MB-LOAD-002",
        {},
        {},
    ),
    "checkpoint keys": (
        "megatron.core.dist_checkpointing.core.CheckpointingException: Unexpected keys (not found in the checkpoint)"
        " encountered in the provided sharded state dict.",
        "MB-LOAD-003",
        {},
        {},
    ),
    "optimizer states": (
        "RuntimeError: (TP, PP) mismatch after resume ((4, 2) vs (4, 4) from checkpoint): not supported for"
        " DistributedOptimizer with sharding type dp_zero_gather_scatter. Please use fully_parallel_save",
        "MB-LOAD-004",
        {},
        {},
    ),
    "checkpoint cut off": (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "MB-LOAD-013",
        {},
        {},
    ),
    "Core of another version": (
        "ImportError: cannot import name 'get_pg_rank' from 'megatron.core.utils' (/opt/megatron/core/utils.py)",
        "MB-PKG-001",
        {},
        {},
    ),
    "extension of another PyTorch": (
        "ImportError: /opt/venv/lib/transformer_engine_torch.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation",
        "MB-PKG-002",
        {},
        {},
    ),
    "DeepEP missing": (
        "ImportError: DeepEP is not installed. Please install DeepEP package from https://github.com/",
        "MB-PKG-003",
        {},
        {},
    ),
    "no attention backend": (
        "ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1",
        "MB-PKG-004",
        {},
        {"attention_backend": "auto"},
    ),
    "NaN": (
        "RuntimeError: Rank 3, node node01, device 3, iteration 17: Unexpected result nan (message='found NaN in local"
        " grad norm for bucket #0 in backward pass before data-parallel communication collective')",
        "MB-NAN-001",
        {},
        {},
    ),
    "illegal access": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "MB-HANG-008",
        {},
        {},
    ),
    "hardware": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "MB-HANG-009",
        {},
        {},
    ),
    "rendezvous": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to"
        " (node01, 29500).",
        "MB-HANG-003",
        {},
        {},
    ),
    "unknown override": (
        "omegaconf.errors.ConfigAttributeError: Key 'tensor_parallel_size' not in 'Qwen3ModelProvider'",
        "MB-START-014",
        {},
        {},
    ),
    "gated repository": (
        "OSError: You are trying to access a gated repo. Make sure to have access to it at https://huggingface.co/m",
        "MB-START-015",
        {},
        {},
    ),
    "host allocator": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"
        " tried to allocate 402653184 bytes. Error code 12 (Cannot allocate memory)",
        "MB-OOM-010",
        {},
        {},
    ),
    "CUDA call in NCCL": ("ncclUnhandledCudaError: Call to CUDA function failed.", "MB-HANG-014", {}, {}),
    "NCCL system error": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, ncclSystemError: System call"
        " (e.g. socket, malloc) or external library call failed or device error.",
        "MB-HANG-006",
        {},
        {},
    ),
    "two ranks on a GPU": (
        "torch.distributed.DistBackendError: ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA",
        "MB-HANG-007",
        {},
        {},
    ),
}
# As Bridge prints it since v0.3, through srun --label with a wide field.
SUMMARY = "".join(
    f"  0: {line}\n"
    for line in (
        "=" * 70,
        "Configuration Summary (Non-Default Values vs Megatron Core)",
        "[model] Non-default values (vs Mcore MLATransformerConfig):",
        "  expert_model_parallel_size: 64  (Mcore default: 1)",
        "  num_layers: 61  (Mcore default: 0)",
        "  num_moe_experts: 256  (Mcore default: None)",
        "  pipeline_model_parallel_size: 8  (Mcore default: 1)",
        "  moe_token_dispatcher_type: 'flex'  (Mcore default: 'allgather')",
        "[train]:",
        "  global_batch_size: 8192",
        *TRACE.splitlines(),
        "AssertionError: num_layers=61 should be divisible by config.pipeline_model_parallel_size=8",
    )
)
# As Megatron-LM prints them: all that an estimate takes.
ARGUMENTS = "using world size: 8, data-parallel size: 8\n" + "".join(
    f"  {name} {'.' * (48 - len(name))} {value}\n"
    for name, value in {
        "context_parallel_size": 1,
        "expert_model_parallel_size": 1,
        "ffn_hidden_size": 14336,
        "hidden_size": 4096,
        "kv_channels": 128,
        "micro_batch_size": 2,
        "num_attention_heads": 32,
        "num_layers": 32,
        "num_query_groups": 8,
        "pipeline_model_parallel_size": 1,
        "seq_length": 8192,
        "tensor_model_parallel_size": 1,
        "vocab_size": 128256,
    }.items()
)
LLAMA = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100", "gpus": 8},
    "grid": {"tp": 1},
    "training": {"seq_length": 8192, "micro_batch_size": 1},
}
BIG = {
    "model": "llama3-70b",
    "cluster": {"gpu": "H100", "gpus": 8},
    "grid": {"tp": 8},
    "training": {"seq_length": 4096, "micro_batch_size": 1},
}
LONG = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100", "gpus": 8},
    "grid": {"tp": 2, "sequence_parallel": True},
    "training": {"seq_length": 32768, "micro_batch_size": 4},
}
WATCHDOG = (
    "[rank{0}]:[E1202 10:20:00.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for"
    " 600004 milliseconds before timing out.\n"
)


def failing() -> Iterator[Log]:
    """All of them."""
    for n, (name, (message, rule, observed, changes)) in enumerate(MESSAGES.items()):
        # Rank 3 fails first, others follow; the launcher's words come last.
        form = FORMS[n % len(FORMS)]
        told = 3
        yield Log(name, START + form(message, 3) + form(message, 5) + END, rule, told, observed, changes)
    yield Log(
        "OOM", START + steps(1, 4) + torchrun(oom("2.50 GiB"), 3) + END, "MB-OOM-001", 3, {"oom_request": 2684354560}
    )
    yield Log(
        "OOM, older PyTorch",
        START
        + srun(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 79.15 GiB total capacity;"
            " 70.50 GiB already allocated; 1.03 GiB free; 77.24 GiB reserved in total by PyTorch)",
            1,
        ),
        "MB-OOM-001",
        1,
        {"oom_capacity": round(79.15 * 2**30)},
    )
    yield Log(
        "OOM with private pools",
        START
        + torchrun(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 7 has a total capacity of 79.11 GiB"
            " of which 3.30 GiB is free. Including non-PyTorch memory, this process has 75.80 GiB memory in use. Of the"
            " allocated memory 66.10 GiB is allocated by PyTorch, with 1.20 GiB allocated in private pools (e.g., CUDA"
            " Graphs), and 3.20 GiB is reserved by PyTorch but unallocated.",
            7,
        ),
        "MB-OOM-001",
        7,
        {"oom_allocated": round(66.1 * 2**30), "oom_unallocated": round(3.2 * 2**30)},
    )
    yield Log(
        "OOM by fragmentation",
        START + steps(1, 40) + torchrun(oom("2.50 GiB", unallocated="9.35 GiB"), 3),
        "MB-OOM-002",
        3,
        set={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        also=("MB-OOM-001",),
    )
    yield Log("OOM by other processes", START + torchrun(oom("2.50 GiB", process="40.00 GiB"), 3), "MB-OOM-008", 3)
    yield Log(
        "OOM by model state",
        start(8, 8, 1) + torchrun(oom("2.50 GiB"), 3),
        "MB-OOM-005",
        3,
        request=BIG,
        also=("MB-FIT-002", "MB-OOM-001"),
    )
    yield Log(
        "OOM by activations",
        start(8, 2, 1) + torchrun(oom("4.00 GiB"), 3),
        "MB-OOM-006",
        3,
        request=LONG,
        set={"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    )
    yield Log(
        "OOM by logits",
        start(8, 1, 1) + torchrun(oom("3.91 GiB"), 7),
        "MB-OOM-003",
        7,
        request=LLAMA,
        set={"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    )
    yield Log(
        "OOM of the host",
        START
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step tasks have been OOM Killed.\n",
        "MB-OOM-010",
    )
    yield Log(
        "killed",
        START + steps(1, 3) + END.replace("exitcode  : 1 ", "exitcode  : -9 "),
        "MB-OOM-011",
        observed={"exit_code": -9},
    )
    yield Log(
        "OOM in NCCL",
        START + "node01:4311:4500 [3] transport/nvls.cc:254 NCCL WARN Cuda failure 2 'out of memory'\n" + END,
        "MB-OOM-012",
    )
    yield Log(
        "hang",
        START + steps(1, 9) + "".join(map(WATCHDOG.format, (0, 2, 1))),
        "MB-HANG-001",
        0,
        {"collective": "ALLREDUCE"},
    )
    yield Log(
        "hang of a pipeline group",
        START
        + WATCHDOG.format(12)
        + "[rank12]:[E1202 10:20:00.2 ProcessGroupNCCL.cpp:2241] [PG ID 5 PG GUID 31(PIPELINE_MODEL_PARALLEL_GROUP) Rank 1]"
        " failure detected by watchdog at work sequence id: 9 PG status: last enqueued work: 9, last completed work: 8\n",
        "MB-HANG-002",
        12,
        {"process_group": "PIPELINE_MODEL_PARALLEL_GROUP"},
        also=("MB-HANG-001",),
    )
    yield Log(
        "silent rank",
        start(8, 2, 1) + steps(1, 9) + "".join(map(WATCHDOG.format, (0, 1, 2, 3, 5, 6, 7))),
        "MB-HANG-013",
        0,
        {"world_size": 8},
    )
    yield Log(
        "arguments of Megatron-LM", ARGUMENTS + torchrun(oom("7.83 GiB"), 3), "MB-OOM-003", 3, {"seq_length": 8192}
    )
    yield Log("whole configuration", SUMMARY, "MB-PP-001", 0, {"num_layers": 61, "pp": 8, "ep": 64})
    yield Log(
        "hang after a failure on another rank",
        START + "".join(map(WATCHDOG.format, (0, 2))) + torchrun(oom("2.50 GiB"), 3) + WATCHDOG.format(1) + END,
        "MB-OOM-001",
        3,
        also=("MB-HANG-001", "MB-HANG-010"),
    )
    yield Log(
        "hang in DeepEP",
        START + "DeepEP dispatch NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 3\n",
        "MB-HANG-012",
        set={"moe_token_dispatcher_type": "alltoall"},
    )
    yield Log(
        "peer gone",
        START
        + torchrun("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting", 2),
        "MB-HANG-005",
        2,
    )
    yield Log("launcher only", START + END, "MB-HANG-010")
    yield Log(
        "time limit",
        START
        + steps(1, 9)
        + "slurmstepd: error: *** STEP 42.0 ON node01 CANCELLED AT 2026-12-02 DUE TO TIME LIMIT ***\n",
        "MB-HANG-011",
    )
    yield Log(
        "impossible speed",
        start(8, 1, 1) + steps(1, 30, ms=900.0, tflops=1500.0),
        "MB-SPEED-001",
        request=LLAMA,
        observed={"log_flops": 1.5e15, "log_step_seconds": 0.9},
    )
    yield Log("slow", start(8, 1, 1) + steps(1, 30, ms=60000.0, tflops=40.0), "MB-SPEED-003", request=LLAMA)
    yield Log("loss is NaN", START + steps(1, 5) + steps(5, 9, nan=1), "MB-NAN-002", observed={"log_nan_steps": 4.0})


# Logs on which nothing may fire: other programs, and healthy runs with frightening words.
HEALTHY = START + steps(1, 60)
BENIGN: Mapping[str, str] = {
    "healthy": HEALTHY,
    "healthy, with retries": HEALTHY
    + "WARNING: connection error to logger, retrying (error 3 of 10)\n"
    + steps(60, 90),
    "healthy, validation": HEALTHY
    + " validation loss at iteration 50 | lm loss value: 2.31 | lm loss PPL: 1.0E+01 |\n",
    "healthy, checkpoint": HEALTHY + "saving checkpoint at iteration 50 to /ckpt\n successfully saved checkpoint\n",
    "healthy, skipped steps": steps(1, 9).replace("skipped iterations:   0", "skipped iterations:   1"),
    "deprecations": "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\nDeprecationWarning: error_if_nonfinite\n"
    * 20,
    "words": "no errors found\n0 errors, 0 failures\nerror rate 0.0\nout of 8 GPUs 8 are healthy\nmemory error check passed\n",
    "pytest": "tests/test_a.py::test_error_message PASSED\ntests/test_oom.py::test_out_of_memory_is_reported PASSED\n2 passed\n",
    "nginx": '10.0.0.9 - - [02/Dec/2026:10:00:00 +0000] "GET /error.html HTTP/1.1" 404 153\n' * 50,
    "kernel": "[    0.000000] Linux version 6.8.0\n[   12.3] nvidia: loading out-of-tree module taints kernel.\n",
    "postgres": "ERROR:  duplicate key value violates unique constraint\nFATAL:  remaining connection slots are reserved\n",
    "java": 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat java.util.Arrays.copyOf\n',
    "tensorflow": "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] and type float on /job:localhost\n",
    "jax": "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB (2147483648B) on device ordinal 0\n",
    "gcc": "main.c:12:5: error: expected ';' before 'return'\nmake: *** [Makefile:3: all] Error 1\n",
    "npm": "npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve dependency tree\n",
    "python": 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nZeroDivisionError: division by zero\n',
    "numpy": "ValueError: operands could not be broadcast together with shapes (3,) (4,)\nValueError: matrix is singular\n",
    "sklearn": "ConvergenceWarning: lbfgs failed to converge (status=1): STOP: TOTAL NO. OF ITERATIONS REACHED LIMIT.\n",
    "vllm": "INFO 12-02 10:00:00 engine.py:123] # GPU blocks: 12345, # CPU blocks: 2048\nINFO: Application startup complete.\n",
    "kubernetes": "Warning  FailedScheduling  0/5 nodes are available: 5 Insufficient nvidia.com/gpu.\nNormal  Scheduled\n",
    "spark": "26/12/02 WARN TaskSetManager: Lost task 0.0 in stage 1.0 (TID 1): ExecutorLostFailure (executor 1 exited)\n",
    "rsync": "rsync: connection unexpectedly closed (0 bytes received so far)\nrsync error: error in socket IO (code 10)\n",
    "quiet exit": "job finished\nexit code: 0\n",
    "pip": "ERROR: Could not find a version that satisfies the requirement foo==9 (from versions: none)\n",
    "prose": "The world size of the industry is divisible into sectors; the first dimension must be understood.\n" * 9,
    "chinese": "训练正常，没有错误。显存占用 60%。\n" * 20,
}
