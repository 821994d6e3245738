"""Inputs as people have them, written by us: a saved run configuration and a launch script."""

RUN_CONFIG = """\
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.qwen.qwen_provider.Qwen3MoEModelProvider
  num_layers: 48
  hidden_size: 2048
  num_attention_heads: 32
  vocab_size: 151936
  num_moe_experts: 128
  moe_router_topk: 8
  moe_ffn_hidden_size: 768
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  expert_model_parallel_size: 8
  expert_tensor_parallel_size: null
  sequence_parallel: true
  attention_backend:
    _target_: megatron.core.transformer.enums.AttnBackend
    _call_: true
    _args_: [3]
    _name_: flash
  params_dtype: {_target_: torch.bfloat16, _call_: false}
  activation_func: {_target_: torch.nn.functional.silu, _call_: false}
  init_method:
    _target_: torch.nn.init.normal_
    _partial_: true
    _args_: []
    std: 0.02
train: {_target_: a.TrainingConfig, global_batch_size: 64, micro_batch_size: 1, train_iters: 100}
optimizer:
  _target_: a.OptimizerConfig
  main_grads_dtype: {_target_: torch.bfloat16, _call_: false}
  lr: 0.0001
ddp: {_target_: a.DDP, use_distributed_optimizer: true, grad_reduce_in_fp32: false}
dataset: {_target_: os.system, seq_length: 4096, split: "99,1,0"}
mixed_precision: {_target_: a.MixedPrecisionConfig, bf16: true, fp8: hybrid, fp8_recipe: mxfp8}
logger: {_target_: a.LoggerConfig, log_interval: 10}
"""

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:h100:8   # whole nodes
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=${TP:-4}
PP=2
EP=$((TP * 2))
MODEL_ARGS=(
    --num-layers 32  # as published
    --hidden-size 4096
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --num-experts 8
    --moe-router-topk 2
    --disable-bias-linear
    --swiglu
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
    --moe-layer-freq "([0]*2+[1]*30)"
)
if [ "$PP" -gt 1 ]; then
    MODEL_ARGS+=(--num-layers-per-virtual-pipeline-stage 4)
else
    MODEL_ARGS+=(--num-layers 99)
fi
options=" \\
    --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size ${PP} \\
    --expert-model-parallel-size=$EP \\
    --sequence-parallel --bf16 --fp8-format hybrid --fp8-recipe tensorwise \\
    --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 \\
    --data-path ${DATA} --save $CKPT --lr 1e-4 --some-new-thing 3"
srun torchrun --nproc_per_node=8 --nnodes=$SLURM_NNODES pretrain_gpt.py ${MODEL_ARGS[@]} $options
"""
