"""Prints the field cases of the tests as scenarios for `mbridge-advisor review --scenarios`, one JSON object a line.

python tools/field_case_scenarios.py > field_cases.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from field_cases import CASES


def main() -> None:
    """Every case that is judged by ``check`` or ``advise``."""
    for case in CASES:
        if case.by in ("check", "advise"):
            print(json.dumps({"id": case.id, "by": case.by, "request": case.request()}, ensure_ascii=False))


if __name__ == "__main__":
    main()
