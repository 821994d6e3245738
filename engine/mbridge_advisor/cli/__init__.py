"""The command line. Thin: it reads options, calls :mod:`mbridge_advisor.advice`, prints, and sets the exit code.

Exit codes: 0 fine; 1 ``check`` or ``estimate`` found an error in the configuration, ``diagnose`` a cause; 2 bad
input; 3 no grid fits.
"""

from __future__ import annotations

import sys

from .batch import batch
from .commands import cli
from .diagnose import diagnose
from .plan import plan
from .read import read

for _command in (batch, diagnose, plan, read):
    cli.add_command(_command)


def main() -> None:
    """Entry point of ``mbridge-advisor``."""
    sys.exit(cli(standalone_mode=True))


__all__ = ["cli", "main"]
