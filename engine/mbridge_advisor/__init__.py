"""mbridge-advisor: cited advice on how to parallelise a training run in NVIDIA Megatron Bridge."""
