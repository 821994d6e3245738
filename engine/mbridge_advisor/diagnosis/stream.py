"""Reading logs of any size: plain or gzip, in bounded memory, never with a traceback."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import RequestError
from ..knowledge.model import Text

CHUNK = 1 << 20
MAX_LINE = 8192  # bytes kept of one line; messages stand at the beginning of theirs
MAX_BYTES = 64 << 30  # decompressed; more is no log but an accident
_GZIP = 31  # zlib's word for gzip with its header
_NO_TEXT = bytes({*range(32)} - {*b"\t\n\r\f\x1b"})  # control characters that no text has
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Log = str | Path | BinaryIO | Iterable[str]
"""A path, a binary stream, or lines of text."""


@dataclass
class Reading:
    """What became of a log while it was read.

    Attributes:
        lines, bytes: read so far; bytes as decompressed.
        notes: why it wasn't read to the end, or is hardly text.
    """

    lines: int = 0
    bytes: int = 0
    notes: tuple[Text, ...] = ()

    def note(self, en: str, zh: str) -> None:
        self.notes = (*self.notes, Text(en, zh))


def read_lines(log: Log, reading: Reading) -> Iterator[bytes]:
    """The lines of a log, without their ends; long ones are cut. A carriage return ends a line too.

    Raises:
        RequestError: the file can't be opened.
    """
    if isinstance(log, str | Path):
        path = Path(log).expanduser()
        try:
            if path.is_dir():
                raise RequestError("log", str(log), "is a folder", "Name the log file.")
            with path.open("rb") as stream:
                yield from _stream(stream, reading)
        except (OSError, ValueError) as problem:
            reason = f"can't be read ({getattr(problem, 'strerror', None) or problem})"
            raise RequestError("log", str(log), reason, "Check the path.") from None
    elif hasattr(log, "read"):
        yield from _stream(cast(BinaryIO, log), reading)
    else:
        for text in log:
            for line in str(text).encode("utf-8", "replace").splitlines() or [b""]:
                reading.lines += 1
                reading.bytes += len(line) + 1
                yield line[:MAX_LINE]


def _stream(stream: BinaryIO, reading: Reading) -> Iterator[bytes]:
    rest, cut = b"", False  # the beginning of the line that is being read; whether more of it was dropped
    for chunk in _chunks(stream, reading):
        reading.bytes += len(chunk)
        *whole, last = chunk.replace(b"\r", b"\n").split(b"\n")
        for n, piece in enumerate(whole):
            reading.lines += 1
            yield piece[:MAX_LINE] if n or not (rest or cut) else (rest + piece[:MAX_LINE])[:MAX_LINE]
        if whole:
            rest, cut = last[:MAX_LINE], len(last) > MAX_LINE
        else:
            rest, cut = (rest + last[:MAX_LINE])[:MAX_LINE], True
        if reading.bytes > MAX_BYTES:
            reading.note(f"Only the first {MAX_BYTES >> 30} GiB were read.", f"只读取了前 {MAX_BYTES >> 30} GiB。")
            break
    if rest:
        reading.lines += 1
        yield rest


def _chunks(stream: BinaryIO, reading: Reading) -> Iterator[bytes]:
    """The bytes of a log, unpacked, and as UTF-8 where a mark at the beginning says that they are UTF-16."""
    head = stream.read(2)
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if head in _UTF16 else None
    chunks = _raw(head, stream)
    if head == b"\x1f\x8b":
        chunks = _unpacked(chunks)
    first = True
    while True:
        try:
            chunk = next(chunks, b"")
        except (OSError, zlib.error) as problem:
            reading.note(
                f"The log can't be read beyond line {reading.lines} ({str(problem)[:80]}).",
                f"日志在第 {reading.lines} 行之后无法读取（{str(problem)[:80]}）。",
            )
            return
        if not chunk:
            return
        if decoder is not None:
            chunk = decoder.decode(chunk).encode("utf-8", "replace")
        if first and 50 * (len(chunk) - len(chunk.translate(None, _NO_TEXT))) > len(chunk):
            reading.note("The log looks binary.", "日志看起来是二进制内容。")
        first = False
        if chunk:
            yield chunk


def _raw(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    chunk = head + stream.read(CHUNK)
    while chunk:
        yield chunk
        chunk = stream.read(CHUNK)


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Gzip, several in a row too.

    Raises:
        zlib.error: what isn't gzip, or ends too early.
    """
    unzip = zlib.decompressobj(_GZIP)
    for chunk in chunks:
        while chunk:
            if unzip.eof:
                unzip = zlib.decompressobj(_GZIP)
            out = unzip.decompress(chunk, CHUNK)
            if out:
                yield out
            chunk = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
    if not unzip.eof:
        raise zlib.error("the gzip data end too early")
