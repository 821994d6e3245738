"""Runs the validation code of Megatron Bridge and Megatron Core on a CPU, one configuration a line.

This file is a script for a process of its own. It needs the standard library, torch, numpy, packaging and the sources
(or wheels) to judge; nothing of mbridge_advisor. It reads JSON lines from standard input and answers each with one on
standard output; everything that the judged code prints goes to standard error.

    python worker.py --path BRIDGE/src --path CORE [--versions '{"transformer-engine": "2.9.0"}']

First it writes ``{"ready": true, "versions": .., "limits": [..]}`` (or ``{"ready": false, "message": ..}`` and ends).
A request is ``{"id": any, "config": {name: value}, "defaults": {name: value}}``, with the names of the vocabulary,
Bridge's field names, or dotted paths into ``ConfigContainer`` (``ddp.average_in_collective``); names in capitals are
environment variables. Defaults are set first, and left out where the revision has no such field. A reply is
``{"id", "verdict": "accept"|"reject"|"unsupported", "stage", "message", "where", "explicit", "trace", "effective"}``:

- ``stage``: config, finalize, validate, microbatches, groups, model, schedule, forward: how far the configuration came;
- ``where``: ``path:line symbol`` of the innermost frame in the given sources;
- ``explicit``: the sources raise or assert there. Elsewhere than in the early stages, an error that is *not* explicit
  may come from a stand-in, so it counts as unsupported;
- ``trace``: the last four frames in the sources, outermost first;
- ``effective``: on accept, what the code made of the configuration (sizes, layers of each stage).

What stands in for the missing world: third-party imports that carry no rule about parallelism, CUDA queries, torch's
fake process group (rank 0 of ``world_size``), meta tensors for CUDA tensors, and a plain norm layer. The modules built
are Core's own layers of the local specification with Core's own Transformer Engine attention wrapper.
"""

from __future__ import annotations

import abc
import argparse
import ast
import contextlib
import dataclasses
import enum
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import json
import logging
import os
import random
import re
import sys
import traceback
import types
import typing
import warnings
from typing import Any

# Third-party modules that Bridge and Core import without need for what is run here. A real installation is not used
# either: a stand-in answers alike everywhere.
STAND_INS = (
    "transformers",
    "datasets",
    "modelopt",
    "megatron.energon",
    "transformer_engine",
    "transformer_engine_torch",
    "triton",
    "torch.utils.tensorboard",
    "tqdm",
    "rich",
    "six",
    "regex",
    "safetensors",
    "huggingface_hub",
    "accelerate",
    "sentencepiece",
    "tiktoken",
    "wandb",
    "mamba_ssm",
    "causal_conv1d",
    "flash_attn",
    "deep_ep",
    "PIL",
    "requests",
)
VERSIONS = {"transformer-engine": "2.9.0", "triton": "3.5.0", "flash-attn": "2.8.1", "mamba-ssm": "2.2.6"}

# The smallest model that meets every rule; a request changes what it names.
BASE: dict[str, Any] = {
    "world_size": 8,
    "num_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "seq_length": 4096,
    "global_batch_size": 32,
    "micro_batch_size": 1,
    "task": "pretrain",
    "precision": "bf16",
    "gpu": "H100",
}
SHORT = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "sp": "sequence_parallel",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "gpus": "world_size",
    "num_gpus": "world_size",
    "layout": "pipeline_model_parallel_layout",
    "seq_len": "seq_length",
    "sequence_length": "seq_length",
}
# Names that Bridge keeps outside the model's section (the first section that has the field, else the model).
SECTIONS = ("train", "ddp", "optimizer", "dist", "checkpoint", "comm_overlap", "rng", "validation", "dataset")
PREFERRED = {
    "use_distributed_optimizer": ("ddp", "optimizer"),
    "tp_comm_overlap": ("comm_overlap",),
    "overlap_moe_expert_parallel_comm": ("comm_overlap",),
    "delay_wgrad_compute": ("comm_overlap",),
    "use_megatron_fsdp": ("dist", "ddp"),
    "grad_reduce_in_fp32": ("mixed_precision",),
    "fp8_param_gather": ("mixed_precision",),
}
PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8_mx": "bf16_with_mxfp8_mixed",
    "fp8_delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "uint8"}
# name: (device name as CUDA reports it, compute capability)
GPUS = {
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0)),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0)),
    "H200": ("NVIDIA H200", (9, 0)),
    "B200": ("NVIDIA B200", (10, 0)),
    "GB200": ("NVIDIA GB200", (10, 0)),
    "B300": ("NVIDIA B300 SXM6 AC", (10, 3)),
    "GB300": ("NVIDIA GB300", (10, 3)),
    "RTX_PRO_6000": ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0)),
}
STAGES = ("config", "finalize", "validate", "microbatches", "groups", "model", "schedule", "forward")
EARLY = frozenset(STAGES[:5])
LIMITS = (
    "Transformer Engine's own checks (feature sizes of FP8 and FP4 GEMMs, heads against CP in its attention)",
    "kernels, communication, memory, and everything after the entry of the schedule's first micro-batch",
    "ranks other than 0, except the layer counts of every pipeline stage",
    "embedding and output layer beyond the split of the vocabulary; Mamba and other linear-attention blocks",
    "optimizer, DDP and FSDP wrappers, checkpoints, data sets and tokenizers",
    "the model, schedule and forward stages with use_decentralized_pg",
    "CUDA graphs, user buffers of TP overlap, NCCL communicators",
)


class UnsupportedError(Exception):
    """The request can't be expressed at this revision."""


class ReachedError(Exception):
    """Raised by a probe: the code went past its guards."""


# --- the missing world ---


class _AnyMeta(abc.ABCMeta):
    """Classes of a stand-in module: any attribute is another such class, so that base classes and hints resolve."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _any_class(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], type | types.FunctionType):
            return args[0]  # used as a decorator: the function or class as it is
        return super().__call__(*args, **kwargs)

    def __or__(cls, other: Any) -> Any:
        return typing.Any

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())


def _any_class(name: str) -> Any:
    body = {
        "__init__": lambda self, *args, **kwargs: None,
        "__call__": lambda self, *args, **kwargs: args[0] if args and callable(args[0]) else self,
        "register": staticmethod(lambda *args, **kwargs: lambda function: function),
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "__init_subclass__": classmethod(lambda cls, **kwargs: None),
    }
    return _AnyMeta(name, (), body)


class _StandInModule(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package: submodules may be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if name == "__version__":
            value: Any = VERSIONS.get(self.__name__.replace("_", "-"), "1.0.0")
        elif name == "FusedAdam":  # Core looks at its parameters
            value = _FusedAdam
        elif self.__name__ == "transformer_engine.pytorch" and name[:1].isupper():
            # Core derives torch modules from these.
            torch = importlib.import_module("torch")
            value = type(name, (torch.nn.Module,), {"__init__": lambda self, *a, **k: torch.nn.Module.__init__(self)})
        else:
            value = _any_class(name)
        setattr(self, name, value)
        return value


class _FusedAdam:
    def __init__(
        self, params: Any, master_weight_dtype: Any, exp_avg_dtype: Any, exp_avg_sq_dtype: Any, use_decoupled_grad: Any
    ) -> None:
        """The parameters that a precision-aware optimizer needs; every pinned Transformer Engine has them."""


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if any(fullname == name or fullname.startswith(name + ".") for name in STAND_INS):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _install_stand_ins(torch: Any) -> None:
    """Third-party modules, versions and CUDA queries."""
    sys.meta_path.insert(0, _StandInFinder())
    if not hasattr(typing, "override"):  # Python 3.12's; newer Cores import it from typing
        typing.override = lambda function: function  # type: ignore[attr-defined]

    real_version = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return VERSIONS.get(distribution_name.lower().replace("_", "-")) or real_version(distribution_name)

    importlib.metadata.version = version

    # Nothing is compiled here, and the compiler would take the stand-in for the real triton.
    torch.compile = lambda model=None, **kwargs: model if model is not None else lambda function: function
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 8
    cuda.current_device = lambda: "meta"
    cuda.set_device = lambda device: None
    cuda.synchronize = lambda *args: None
    cuda.is_bf16_supported = lambda *args: True
    cuda.Stream = _any_class("Stream")
    cuda.Event = _any_class("Event")
    cuda.current_stream = lambda *args: cuda.Stream()
    _use_gpu(torch, "H100")


def _use_gpu(torch: Any, gpu: str) -> None:
    name, (major, minor) = GPUS.get(gpu.upper().replace("-", "_"), GPUS["H100"])
    properties = types.SimpleNamespace(
        name=name, major=major, minor=minor, total_memory=80 << 30, multi_processor_count=132
    )
    torch.cuda.get_device_properties = lambda *args: properties
    torch.cuda.get_device_capability = lambda *args: (major, minor)
    torch.cuda.get_device_name = lambda *args: name


# --- the code under test ---


class Oracle:
    """The imported sources of one revision."""

    def __init__(self, paths: list[str]) -> None:
        torch = importlib.import_module("torch")
        self.torch = torch
        self.fake_store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore
        # Of the configuration in hand: the model's config and the arguments as the constructor got them, the process
        # groups, and the MoE layer that was built.
        self.built: Any = None
        self.call: dict[str, Any] = {}
        self.groups: Any = None
        self.moe_layer: Any = None
        _install_stand_ins(torch)
        sys.path[:0] = paths

        def module(name: str) -> Any:
            return importlib.import_module("megatron." + name)

        self.config = module("bridge.training.config")
        self.initialize = module("bridge.training.initialize")
        self.gpt = module("bridge.models.gpt_provider")
        self.bridge_transformer = module("bridge.models.transformer_config")
        self.comm_overlap = module("bridge.training.comm_overlap")
        self.parallel_state = module("core.parallel_state")
        self.calculator = module("core.num_microbatches_calculator")
        self.schedules = module("core.pipeline_parallel.schedules")
        self.block = module("core.transformer.transformer_block")
        self.layer = module("core.transformer.transformer_layer")
        self.specs = module("core.models.gpt.gpt_layer_specs")
        self.mla = module("core.transformer.multi_latent_attention")
        self.experts = module("core.transformer.moe.experts")
        self.spec_utils = module("core.transformer.spec_utils")
        self.mappings = module("core.tensor_parallel.mappings")
        self.embedding = module("core.models.common.embeddings.language_model_embedding")
        self.te = module("core.extensions.transformer_engine")
        self.mtp = module("core.transformer.multi_token_prediction")
        self.ddp = module("core.distributed")
        self.fsdp = module("core.distributed.fsdp.mcore_fsdp_adapter")
        package = self.config.__file__.split("megatron" + os.sep + "bridge")[0]
        core = self.block.__file__.split("megatron" + os.sep + "core")[0]
        self.roots = tuple(sorted({package, core}))

        # Every pipeline rank's groups have the same shape: rank 0's are enough, and building all takes minutes.
        real_new_group = torch.distributed.new_group

        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if ranks is not None and 0 not in ranks:
                return torch.distributed.GroupMember.NON_GROUP_MEMBER
            return real_new_group(ranks, backend="fake")

        def new_subgroups(ranks_per_group: Any, *args: Any, **kwargs: Any) -> Any:
            return next((new_group(ranks) for ranks in ranks_per_group if 0 in ranks), None), None

        torch.distributed.new_group = new_group
        torch.distributed.new_subgroups_by_enumeration = new_subgroups
        torch.distributed.barrier = lambda *args, **kwargs: None
        self._patch_layers(module)

        class CudaToMeta(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
            def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = dict(kwargs or {})
                if function is torch.Tensor.cuda:
                    return args[0].to("meta")
                kwargs.pop("pin_memory", None)
                if "cuda" in str(kwargs.get("device", "")):
                    kwargs["device"] = "meta"
                return function(*args, **kwargs)

        self.cuda_to_meta = CudaToMeta

        @dataclasses.dataclass
        class MLAProvider(self.bridge_transformer.MLATransformerConfig, self.gpt.GPTModelProvider):  # type: ignore[misc, name-defined]
            """Multi-latent attention on the GPT provider, as Bridge's DeepSeek providers combine them."""

        self.mla_provider = MLAProvider

    def _patch_layers(self, module: Any) -> None:
        torch = self.torch

        class Norm(torch.nn.Module):  # type: ignore[misc, name-defined]
            """Stand-in for the norm layers that apex and Transformer Engine bring."""

            def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **kwargs: Any) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.empty(hidden_size, device="meta"))

        # The sharding itself, and the device meshes that it asks for, come after the wrapper's guards.
        self.fsdp.HAVE_MEGATRON_FSDP = True
        self.fsdp.MegatronFSDP = _stop
        self.fsdp.FullyShardedDataParallel._init_dist_index = lambda wrapper, groups: None
        # Apex's kernel and the fused dispatchers are taken as installed: their absence is no rule of the sources.
        module("core.tensor_parallel.layers")._grad_accum_fusion_available = True
        # It expects a layer of Transformer Engine, which the layers built here are not.
        real = self.te.set_save_original_input
        for loaded in [m for m in sys.modules.values() if getattr(m, "set_save_original_input", None) is real]:
            loaded.set_save_original_input = lambda module: None  # type: ignore[attr-defined]
        # Graphs are not captured here, so the state that their manager asks for is not set up.
        module("core.transformer.cuda_graphs").CudaGraphManager.__init__ = lambda graph, *args, **kwargs: (
            torch.nn.Module.__init__(graph)
        )
        norm = module("core.transformer.torch_norm").WrappedTorchNorm
        norm.__new__ = staticmethod(lambda cls, *args, **kwargs: Norm(*args, **kwargs))

    # --- stages ---

    def judge(self, config: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        """Accept or reject one configuration."""
        stage = "config"
        saved = dict(os.environ)
        try:
            flat = {**BASE, **{_plain_name(name): value for name, value in config.items()}}
            world = flat.pop("world_size")
            if not isinstance(world, int) or not 1 <= world <= 65536:
                raise UnsupportedError(f"world_size: {world!r}")
            _use_gpu(self.torch, str(flat.pop("gpu")))
            for name in [n for n in flat if n.isupper()]:
                value = flat.pop(name)
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = str(value)
            os.environ.update(WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0", LOCAL_WORLD_SIZE="8")
            cfg = self._container(flat, defaults)
            stage = "validate"
            self.config.runtime_config_update(cfg)
            stage = "microbatches"
            self.calculator.init_num_microbatches_calculator(
                0,
                cfg.train.rampup_batch_size,
                cfg.train.global_batch_size,
                cfg.train.micro_batch_size,
                cfg.data_parallel_size,
                cfg.train.decrease_batch_size_if_needed,
            )
            stage = "groups"
            self._groups(cfg, world)
            if not self.parallel_state.model_parallel_is_initialized():
                raise UnsupportedError("the later stages need Core's global process groups (use_decentralized_pg)")
            stage = "model"
            with self.cuda_to_meta():
                effective = self._model(cfg)
                stage = "schedule"
                self._steps(cfg)
                stage = "forward"
                self._forward(cfg)
            return {"verdict": "accept", "stage": stage, "message": "", "where": "", "effective": effective}
        except UnsupportedError as error:
            return {"verdict": "unsupported", "stage": stage, "message": str(error), "where": ""}
        except Exception as error:
            return self._rejection(stage, error)
        finally:
            self._reset()
            os.environ.clear()
            os.environ.update(saved)

    def _rejection(self, stage: str, error: Exception) -> dict[str, Any]:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename.startswith(self.roots)]
        explicit = bool(own) and own[-1] == frames[-1] and _raises(own[-1].filename, own[-1].lineno or 0)
        if stage == "validate" and any(
            f.name == "finalize" and "/bridge/models/" in f.filename.replace(os.sep, "/") for f in own
        ):
            stage = "finalize"
        where = ""
        if own:
            root = next(r for r in self.roots if own[-1].filename.startswith(r))
            path = own[-1].filename[len(root) :].replace(os.sep, "/")
            where = f"{path}:{own[-1].lineno} {_symbol(own[-1].filename, own[-1].lineno or 0)}"
        message = " ".join(f"{type(error).__name__}: {error}".split())[:600]
        crashed = bool(own) and (stage in EARLY or _theirs(error))
        verdict = "reject" if explicit or (crashed and not isinstance(error, ImportError)) else "unsupported"
        trace = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in own[-4:]]
        return {
            "verdict": verdict,
            "stage": stage,
            "message": message,
            "where": where,
            "explicit": explicit,
            "trace": trace,
        }

    def _reset(self) -> None:
        torch = self.torch
        self.parallel_state.destroy_model_parallel()
        self.calculator._GLOBAL_NUM_MICROBATCHES_CALCULATOR = None
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.use_deterministic_algorithms(False)
        self.parallel_state._GLOBAL_MEMORY_BUFFER = None

    def _container(self, flat: dict[str, Any], defaults: dict[str, Any]) -> Any:
        """A ConfigContainer with the values of ``flat``; raises UnsupportedError for a name without a field."""
        kit = self.config
        flat = dict(flat)
        task, precision = flat.pop("task"), flat.pop("precision")
        packed = flat.pop("packed_sequence", False)
        seq_length = flat["seq_length"]
        mla = bool(flat.get("multi_latent_attention"))
        model = (self.mla_provider if mla else self.gpt.GPTModelProvider)(
            num_layers=flat.pop("num_layers"),
            hidden_size=flat.pop("hidden_size"),
            num_attention_heads=flat.pop("num_attention_heads"),
            # What every recipe of the catalogue sets, and Megatron's defaults don't.
            gated_linear_unit=True,
            add_bias_linear=False,
            normalization="RMSNorm",
            position_embedding_type="rope",
            bias_activation_fusion=False,
        )
        if task == "pretrain":
            if packed:
                raise UnsupportedError("packed_sequence: only the data set of fine-tuning has it")
            dataset = _dataset(kit, seq_length)
        else:
            kind = getattr(kit, "GPTSFTDatasetConfig", None) or kit.FinetuningDatasetConfig
            dataset = kind(**_known(kind.__init__, seq_length=seq_length, dataset_root="data", num_workers=1))
            if packed:
                self._pack(dataset, seq_length)
        cfg = kit.ConfigContainer(
            model=model,
            train=kit.TrainingConfig(
                train_iters=None if flat.get("train.train_samples") or flat.get("train.num_epochs") else 10,
                global_batch_size=flat.pop("global_batch_size"),
                micro_batch_size=flat.pop("micro_batch_size"),
            ),
            optimizer=kit.OptimizerConfig(lr=1e-4),
            scheduler=kit.SchedulerConfig(),
            ddp=kit.DistributedDataParallelConfig(),
            dataset=dataset,
            logger=kit.LoggerConfig(),
            tokenizer=kit.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=flat["vocab_size"]),
            checkpoint=kit.CheckpointConfig(),
        )
        if precision is not None:
            cfg.mixed_precision = kit.get_mixed_precision_config(PRECISIONS.get(precision, precision))
        if task == "lora":
            lora = importlib.import_module("megatron.bridge.peft.lora").LoRA
            cfg.peft = lora(**({"dim": flat.pop("lora_rank")} if flat.get("lora_rank") else {}))
        flat.pop("lora_rank", None)
        for name, value in defaults.items():
            with contextlib.suppress(UnsupportedError):
                self._set(cfg, name, value)
        for name, value in flat.items():
            self._set(cfg, name, value)
        return cfg

    @staticmethod
    def _pack(dataset: Any, seq_length: int) -> None:
        if hasattr(dataset, "packed_sequence_specs"):
            home = importlib.import_module("megatron.bridge.data.datasets.packed_sequence")
            dataset.packed_sequence_specs = home.PackedSequenceSpecs(packed_sequence_size=seq_length)
        else:
            home = importlib.import_module("megatron.bridge.data.packing.config")
            dataset.enable_offline_packing = True
            # Padded throughout, as CUDA graphs need it: the names of a request don't say.
            dataset.dataset_kwargs = {**(dataset.dataset_kwargs or {}), "pad_to_max_length": True}
            dataset.offline_packing_specs = home.PackedSequenceSpecs(
                packed_sequence_size=seq_length, pad_cu_seqlens=True
            )

    def _set(self, cfg: Any, name: str, value: Any) -> None:
        if "." in name:
            section, name = name.split(".", 1)
            sections: tuple[str, ...] = (section,)
        elif name in PREFERRED:
            sections = PREFERRED[name]
        elif _has(cfg.model, name):
            sections = ("model",)
        else:
            sections = SECTIONS
        if "comm_overlap" in sections and cfg.comm_overlap is None and _has(self.comm_overlap.CommOverlapConfig, name):
            if name not in ("overlap_p2p_comm", "batch_p2p_comm") and (value is False or value == -1):
                return  # what holds without the section
            cfg.comm_overlap = self.comm_overlap.CommOverlapConfig(tp_comm_overlap=False)
        homes = [home for s in sections if (home := getattr(cfg, s, None)) is not None and _has(home, name)]
        if not homes:
            raise UnsupportedError(f"{name}: no such field at this revision")
        for home in homes if name in PREFERRED else homes[:1]:
            setattr(home, name, self._typed(value, getattr(home, name), name))

    def _typed(self, value: Any, current: Any, name: str) -> Any:
        """A word as the enumeration or torch dtype that the field holds."""
        if isinstance(value, str) and isinstance(current, enum.Enum):
            return type(current)[value]
        if isinstance(value, str) and name.endswith("_dtype") and value in DTYPES:
            return getattr(self.torch, DTYPES[value])
        return value

    def _groups(self, cfg: Any, world: int) -> None:
        self.torch.distributed.init_process_group("fake", store=self.fake_store(), rank=0, world_size=world)
        result = self.initialize._initialize_distributed(
            model_config=cfg.model,
            dist_config=cfg.dist,
            num_distributed_optimizer_instances=cfg.ddp.num_distributed_optimizer_instances,
            get_embedding_ranks=None,
            get_position_embedding_ranks=None,
        )
        if result is None:  # older Bridges keep the groups in Core's globals
            groups = importlib.import_module("megatron.core.process_groups_config")
            kind = getattr(groups, "ProcessGroupCollection", None) or groups.ModelCommProcessGroups
            result = kind.use_mpu_process_groups()
        if hasattr(cfg.model, "_pg_collection"):
            cfg.model._pg_collection = result
        self.groups = result

    def _model(self, cfg: Any) -> dict[str, Any]:
        model = cfg.model
        layers = self._provide(model)
        config = self.built
        self._embedding(config)
        self._layers(config)
        self._wrap(cfg, config)
        return {
            "tensor_model_parallel_size": model.tensor_model_parallel_size,
            "sequence_parallel": model.sequence_parallel,
            "expert_tensor_parallel_size": model.expert_tensor_parallel_size,
            "virtual_pipeline_model_parallel_size": model.virtual_pipeline_model_parallel_size,
            "data_parallel_size": cfg.data_parallel_size,
            "expert_data_parallel_size": self.parallel_state.get_expert_data_parallel_world_size(),
            "num_microbatches": self.calculator.get_num_microbatches(),
            "layers": layers,
            "padded_vocab_size": self.call["vocab_size"],
        }

    def _wrap(self, cfg: Any, config: Any) -> None:
        """The guards of the data-parallel wrapper, around a module without parameters."""
        if cfg.dist.use_torch_fsdp2:
            return  # its guards are those of torch
        kind = self.fsdp.FullyShardedDataParallel if cfg.dist.use_megatron_fsdp else self.ddp.DistributedDataParallel
        with contextlib.suppress(ReachedError):
            where = _known(kind.__init__, device=self.torch.device("meta"))
            kind(config, cfg.ddp, self.torch.nn.Identity(), disable_bucketing=True, **where)

    def _provide(self, model: Any) -> list[list[int]]:
        """Run ``provide()`` up to the model's constructor, then count the layers of every stage and chunk."""
        oracle = self

        class Recorder(self.torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, config: Any, **kwargs: Any) -> None:
                super().__init__()
                oracle.built, oracle.call, self.config = config, kwargs, config

        # At pipeline stages the real constructor would build the layers that are counted below.
        model.transformer_layer_spec = lambda config, vp_stage=None: oracle._spec(config)
        if hasattr(model, "perform_initialization"):
            model.perform_initialization = False
        real, self.gpt.MCoreGPTModel = self.gpt.MCoreGPTModel, Recorder
        try:
            vp = model.virtual_pipeline_model_parallel_size
            for stage in range(vp) if vp else [None]:
                model.provide(pre_process=True, post_process=True, **_known(model.provide, vp_stage=stage))
        finally:
            self.gpt.MCoreGPTModel = real
        config = self.built
        table = []
        for rank in range(config.pipeline_model_parallel_size):
            row = []
            self.parallel_state.set_pipeline_model_parallel_rank(rank)
            for stage in range(vp) if vp else [None]:
                row.append(self.block.get_num_layers_to_build(config, vp_stage=stage, pp_rank=rank))
                self.layer.get_transformer_layer_offset(config, vp_stage=stage, pp_rank=rank)
                if config.mtp_num_layers:
                    self.mtp.get_mtp_num_layers_to_build(config, vp_stage=stage, pp_rank=rank)
            table.append(row)
        self.parallel_state.set_pipeline_model_parallel_rank(None)
        return table

    def _spec(self, config: Any) -> Any:
        spec = self.specs.get_gpt_layer_local_spec(
            **_known(
                self.specs.get_gpt_layer_local_submodules
                if hasattr(self.specs, "get_gpt_layer_local_submodules")
                else self.specs.get_gpt_layer_local_spec,
                num_experts=config.num_moe_experts,
                moe_grouped_gemm=False,
                qk_layernorm=config.qk_layernorm,
                multi_latent_attention=config.multi_latent_attention,
                normalization=config.normalization,
            )
        )
        attention = spec.submodules.self_attention.submodules
        attention.core_attention = self.te.TEDotProductAttention
        if config.multi_latent_attention and getattr(config, "mla_down_proj_fusion", False):
            spec.submodules.self_attention.module = self.mla.FusedMLASelfAttention
            attention.linear_qkv_down_proj = self.te.TELinear
        if config.multi_latent_attention:  # as training has it: the down projections are not split over TP
            attention.linear_q_down_proj = attention.linear_kv_down_proj = self.te.TELinear
        return spec

    def _embedding(self, config: Any) -> None:
        kind = self.embedding.LanguageModelEmbedding
        with self.torch.device("meta"):
            kind(
                **_known(
                    kind.__init__,
                    config=config,
                    vocab_size=self.call["vocab_size"],
                    max_sequence_length=self.call["max_sequence_length"],
                    position_embedding_type=self.call.get("position_embedding_type", "rope"),
                    tp_group=self.parallel_state.get_tensor_model_parallel_group(),
                )
            )

    def _layers(self, config: Any) -> None:
        """Build one layer of each kind that the model has, dense and MoE, on the meta device."""
        self.moe_layer = None
        kinds = [None]
        if config.num_moe_experts:
            # Both check the pattern of dense and MoE layers.
            if getattr(config, "experimental_attention_variant", None):
                home = "megatron.core.models.gpt.experimental_attention_variant_module_specs"
                importlib.import_module(home).get_moe_layer_pattern(config)
            else:
                known = _known(self.specs.get_gpt_decoder_layer_specs, normalization=None)
                self.specs.get_gpt_decoder_layer_specs(config, use_transformer_engine=False, **known)
            every = config.moe_layer_freq
            dense = 0 in every if isinstance(every, list) else every > 1 and config.num_layers > 1
            kinds = [None, config.num_moe_experts] if dense else [config.num_moe_experts]
        with self.torch.device("meta"):
            for experts in kinds:
                layer = self._layer(config, experts)
                if experts:
                    self.moe_layer = layer.mlp
                    if config.moe_grouped_gemm:
                        self._grouped_experts(config)

    def _grouped_experts(self, config: Any) -> None:
        """The guards at the head of the experts that training uses; the layers above have plain ones."""

        class Stop:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                raise ReachedError

        with contextlib.suppress(ReachedError):
            self.experts.TEGroupedMLP(
                1, config, types.SimpleNamespace(linear_fc1=Stop, activation_func=None), pg_collection=self.groups
            )

    def _layer(self, config: Any, experts: int | None) -> Any:
        view = types.SimpleNamespace(
            num_moe_experts=experts,
            qk_layernorm=config.qk_layernorm,
            multi_latent_attention=config.multi_latent_attention,
            normalization=config.normalization,
            mla_down_proj_fusion=getattr(config, "mla_down_proj_fusion", False),
        )
        spec = self._spec(view)
        provided = self.call["transformer_layer_spec"].submodules.self_attention.submodules
        spec.submodules.self_attention.submodules.core_attention = provided.core_attention  # provide() may change it
        return self.spec_utils.build_module(
            spec,
            config=config,
            layer_number=1,
            **_known(spec.module.__init__, pg_collection=self.groups, vp_stage=0, add_layer_offset=False),
        )

    def _steps(self, cfg: Any) -> None:
        """The schedule of the first step, and where the batch grows, each batch size, and the schedule of the last."""
        self._schedule(cfg)
        ramp = cfg.train.rampup_batch_size
        if ramp is None or not hasattr(self.calculator, "RampupBatchsizeNumMicroBatchesCalculator"):
            return
        start, increment, samples = map(int, ramp)
        steps = (cfg.train.global_batch_size - start) // increment
        for consumed in [-(-samples * step // steps) for step in range(steps)] + [samples + 1]:
            self.calculator.update_num_microbatches(consumed, consistency_check=True)
        self._schedule(cfg)

    def _schedule(self, cfg: Any) -> None:
        """Enter the schedule that training would use, up to the first micro-batch."""
        config = self.built
        vp = config.virtual_pipeline_model_parallel_size
        schedules = self.schedules

        class Batches:
            def __iter__(self) -> Any:
                return self

            __next__ = _stop

        class Chunk(self.torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.config = config
                self.model_type = None
                self.vp_stage = 0

            set_input_tensor = _stop

        chunks: Any = [Chunk() for _ in range(vp or 1)]
        real, schedules.forward_step = schedules.forward_step, _stop
        config.finalize_model_grads_func = None
        try:
            function = schedules.get_forward_backward_func(
                **_known(
                    schedules.get_forward_backward_func,
                    pp_size=config.pipeline_model_parallel_size,
                    vp_size=config.virtual_pipeline_model_parallel_size,
                )
            )
            function(
                forward_step_func=_stop,
                data_iterator=[Batches() for _ in chunks] if vp else Batches(),
                model=chunks,
                num_microbatches=self.calculator.get_num_microbatches(),
                seq_length=config.seq_length,
                micro_batch_size=cfg.train.micro_batch_size,
                decoder_seq_length=config.seq_length,
                forward_only=False,
            )
        except ReachedError:
            pass
        finally:
            schedules.forward_step = real

    def _forward(self, cfg: Any) -> None:
        """The split of the sequence, and the guards in the forward passes of attention, MoE and MTP layers."""
        torch, config = self.torch, self.built
        length = config.seq_length // config.context_parallel_size
        shape = (length, cfg.train.micro_batch_size, config.hidden_size)
        if config.sequence_parallel:
            self.mappings.scatter_to_sequence_parallel_region(torch.empty(shape, device="meta"))
        if self.moe_layer is not None:
            self._moe_forward(torch.empty(shape, device="meta"))
        if config.multi_latent_attention and getattr(config, "mla_down_proj_fusion", False):
            self._fused_mla_forward(config)
        if config.mtp_num_layers and config.recompute_granularity == "full":
            self._mtp_recompute(config)

    def _moe_forward(self, hidden: Any) -> None:
        layer = self.moe_layer
        layer.train()
        layer.router.forward = _stop
        layer.moe_layer_recompute = False  # it would save CUDA's random state; the guards come before
        with contextlib.suppress(ReachedError):
            layer(hidden)
        if getattr(layer.config, "moe_latent_size", None):  # what comes after the router
            layer.fc1_latent_proj.forward = _stop
            with contextlib.suppress(ReachedError):
                layer.preprocess(hidden, None, None)

    def _fused_mla_forward(self, config: Any) -> None:
        class Projected:
            @classmethod
            def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
                raise ReachedError

        group = self.parallel_state.get_tensor_model_parallel_group()
        layer = types.SimpleNamespace(
            config=config, tp_group=group, linear_qkv_down_proj=lambda hidden: (Projected(), None)
        )
        with contextlib.suppress(ReachedError):
            self.mla.FusedMLASelfAttention._qkv_down_projection(layer, None)

    def _mtp_recompute(self, config: Any) -> None:
        tensor_parallel = self.mtp.tensor_parallel
        real = tensor_parallel.checkpoint, self.te.te_checkpoint
        tensor_parallel.checkpoint = self.te.te_checkpoint = _stop
        layer = types.SimpleNamespace(config=config, _proj_and_transformer_layer=_stop)
        run = self.mtp.MultiTokenPredictionLayer._checkpointed_forward
        try:
            with contextlib.suppress(ReachedError):
                run(layer, **_known(run, forward_func=_stop, hidden_states=None, decoder_input=None))
        finally:
            tensor_parallel.checkpoint, self.te.te_checkpoint = real


# --- helpers ---


def _theirs(error: BaseException) -> bool:
    """Whether an error that isn't raised on purpose lies with the sources and not with a stand-in.

    Arithmetic and names can't fail for want of a stand-in, a meta tensor's shape is the real one, and an object lacks
    an attribute by itself where all its classes are the sources' own or torch's.
    """
    if isinstance(error, ArithmeticError | NameError) or str(error).startswith("shape '["):
        return True
    lacking = re.match(r"'(\w+)' object has no attribute", str(error))
    if lacking is None:
        return False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kind = type(frame.f_locals.get("self"))
        if kind.__name__ == lacking[1] != "NoneType":
            return all(base.__module__.partition(".")[0] in OWN for base in kind.__mro__)
    return False


def _stop(*args: Any, **kwargs: Any) -> Any:
    raise ReachedError


def _dataset(kit: Any, seq_length: int) -> Any:
    kind = kit.GPTDatasetConfig
    values = {
        "random_seed": 1234,
        "reset_attention_mask": False,
        "reset_position_ids": False,
        "eod_mask_loss": False,
        "num_dataset_builder_threads": 1,
        "dataloader_type": "single",
        "seq_length": seq_length,
        "sequence_length": seq_length,
        "mmap_bin_files": True,
    }
    return kind(**_known(kind.__init__, **values))


OWN = ("megatron", "torch", "builtins", "abc")  # where classes come from that aren't stand-ins

# What the model is built with; "model." before them means the same.
BUILT_WITH = ("num_layers", "hidden_size", "num_attention_heads", "vocab_size", "multi_latent_attention")


def _plain_name(name: str) -> str:
    """A short name as the field's name; a dotted path stays, but for what the model is built with."""
    bare = name.removeprefix("model.")
    return bare if bare in BUILT_WITH else SHORT.get(name, name)


def _known(function: Any, **values: Any) -> dict[str, Any]:
    """The values that the function takes."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return values
    return {k: v for k, v in values.items() if k in parameters}


def _has(owner: Any, name: str) -> bool:
    """Whether a configuration class or object has a field, or a property in front of one."""
    kind = owner if isinstance(owner, type) else type(owner)
    return name in getattr(kind, "__dataclass_fields__", {}) or isinstance(getattr(kind, name, None), property)


@functools.cache
def _tree(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _raises(path: str, line: int) -> bool:
    """Whether a raise or assert statement of the file spans the line."""
    return any(
        isinstance(node, ast.Raise | ast.Assert) and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(_tree(path))
    )


def _symbol(path: str, line: int) -> str:
    """Qualified name of the innermost class or function that spans the line."""
    names: list[str] = []
    body: list[ast.stmt] = _tree(path).body
    while True:
        inner = next(
            (
                n
                for n in body
                if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.lineno <= line <= (n.end_lineno or n.lineno)
            ),
            None,
        )
        if inner is None:
            return ".".join(names)
        names.append(inner.name)
        body = inner.body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--path", action="append", default=[], help="folder to put on the import path; may be repeated")
    parser.add_argument("--versions", default="{}", help="JSON object: package -> version that queries are told")
    options = parser.parse_args()
    VERSIONS.update(json.loads(options.versions))

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def answer(value: dict[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    try:
        oracle = Oracle(options.path)
    except Exception as error:
        traceback.print_exc()
        answer({"ready": False, "message": f"{type(error).__name__}: {error}"})
        return
    os.makedirs("checkpoint", exist_ok=True)  # for requests that name one; the runner's folder is temporary
    answer({"ready": True, "versions": _versions(), "limits": list(LIMITS), "stages": list(STAGES)})
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            request = json.loads(line)
            identity, config, defaults = request["id"], dict(request["config"]), dict(request.get("defaults", {}))
        except (ValueError, KeyError, TypeError) as error:
            answer({"id": None, "verdict": "unsupported", "stage": "config", "message": f"malformed line: {error}"})
            continue
        random.seed(0)
        answer({"id": identity, **oracle.judge(config, defaults)})


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "numpy"):
        found[name] = importlib.import_module(name).__version__
    for name in ("core", "bridge"):
        info = importlib.import_module(f"megatron.{name}.package_info")
        found[f"megatron-{name}"] = getattr(info, "__version__", "")
    found["transformer-engine"] = VERSIONS["transformer-engine"] + " (stand-in)"
    return found


if __name__ == "__main__":
    main()
