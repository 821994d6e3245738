"""``python -m mbridge_advisor``."""

from .cli import main

main()
