"""Fails on text of the documentation site's hand-written pages that has no Chinese translation.

    python tools/check_translation.py build/gettext/guides.pot docs/locale/zh_CN/LC_MESSAGES/guides.po

The knowledge's own texts are checked when the site is built (docs/_ext/mbridge_docs/site.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

from babel.messages.pofile import read_po


def untranslated(template: Path, catalogue: Path) -> list[str]:
    """Messages of the template that the catalogue lacks, leaves empty or marks as fuzzy."""
    with template.open("rb") as stream:
        wanted = [m.id for m in read_po(stream) if m.id]
    with catalogue.open("rb") as stream:
        have = {m.id: m.string for m in read_po(stream) if m.id and not m.fuzzy}
    return [str(text) for text in wanted if not have.get(text)]


if __name__ == "__main__":
    lacking = untranslated(*map(Path, sys.argv[1:3]))
    for message in lacking:
        print(f"untranslated: {message}")
    print(f"{len(lacking)} untranslated")
    sys.exit(bool(lacking))
