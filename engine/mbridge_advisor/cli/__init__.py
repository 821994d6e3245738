"""The command line. Thin: it reads options, calls :mod:`mbridge_advisor.advice`, prints, and sets the exit code.

Exit codes: 0 fine; 1 ``check`` or ``estimate`` found an error in the configuration, ``diagnose`` a cause; 2 bad
input; 3 no grid fits.
"""

from __future__ import annotations

import sys

import click

from .ask import advise, estimate
from .batch import batch
from .catalogue import explain, gpus, models, revisions, rules
from .check import check_command
from .diagnose import diagnose
from .evidence import add_release, audit, evidence, knowledge, matrix, review, verify
from .export import export
from .plan import plan
from .read import read
from .serve import mcp, serve
from .validate import validate


def _version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from ..advice.common import package_version

        click.echo(f"mbridge-advisor {package_version()}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Cited, machine-checked advice on parallelising a training run in NVIDIA Megatron Bridge.

    Nothing here launches a job, reaches the network or reads a credential.

    Exit codes: 0 fine, 1 the configuration has errors, 2 bad input, 3 no grid fits.
    """


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL, e.g. for ~/.bashrc: eval "$(mbridge-advisor completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "mbridge-advisor", "_MBRIDGE_ADVISOR_COMPLETE").source())


revisions.add_command(add_release)
for _command in (
    advise,
    check_command,
    estimate,
    plan,
    diagnose,
    read,
    batch,
    serve,
    mcp,
    explain,
    rules,
    models,
    gpus,
    revisions,
    validate,
    verify,
    audit,
    review,
    matrix,
    evidence,
    knowledge,
    export,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of ``mbridge-advisor``."""
    sys.exit(cli(standalone_mode=True))


__all__ = ["cli", "main"]
