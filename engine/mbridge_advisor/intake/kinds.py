"""The kinds of input, for :func:`mbridge_advisor.intake.read.read_input` and the command line."""

KINDS = (
    "request",
    "bridge",
    "hf_config",
    "recipe",
    "overrides",
    "bridge_launch",
    "megatron_lm",
    "megatron_test",
    "nemo2",
    "verl",
    "ms_swift",
    "slime",
    "slurm",
)
