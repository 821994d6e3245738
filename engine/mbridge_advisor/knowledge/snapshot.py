"""A checked knowledge base as one JSON file, so that loading it again takes milliseconds.

The first line names the format, the digest of the YAML files and the checksum of the second line, which holds their
content. A snapshot of other files, of another format or with a wrong checksum is ignored; it never says more than the
YAML does, so it can be deleted at any time. It lies beside the data (the wheel brings one), else in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from .sources import Plain

FORMAT = 1
NAME = "snapshot.jsonl"


def read(root: Path, digest: str) -> Plain | None:
    """The content of the files with this digest, or None where no snapshot of them is at hand."""
    for path in (root / NAME, _cache_file(root)):
        if path is not None and (content := _read_file(path, digest)) is not None:
            return content
    return None


def write(path: Path, digest: str, content: Plain) -> None:
    """Write a snapshot, whole or not at all.

    Raises:
        OSError: the folder can't be written.
    """
    import tempfile  # pulls in much, and is needed once

    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    head = json.dumps({"format": FORMAT, "digest": digest, "sum": hashlib.sha256(body).hexdigest()}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".snapshot-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(head + b"\n" + body + b"\n")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def remember(root: Path, digest: str, content: Plain) -> None:
    """Write a snapshot to the user's cache; a cache that can't be written is left alone."""
    path = _cache_file(root)
    if path is not None:
        with contextlib.suppress(OSError):
            write(path, digest, content)


def _read_file(path: Path, digest: str) -> Plain | None:
    try:
        head, body = path.read_bytes().split(b"\n", 1)
        body = body.rstrip(b"\n")
        if json.loads(head) != {"format": FORMAT, "digest": digest, "sum": hashlib.sha256(body).hexdigest()}:
            return None
        return {file: (kind, data, tuple(lines)) for file, (kind, data, lines) in json.loads(body).items()}
    except (OSError, ValueError):
        return None


def _cache_file(root: Path) -> Path | None:
    """One file for each root, so that old snapshots don't pile up; None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "mbridge-advisor" / f"knowledge-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.jsonl"
