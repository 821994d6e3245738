"""Logs are read in bounded memory, whatever they hold; nothing but a result or a clear error comes of any input."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mbridge_advisor import RequestError, diagnose
from mbridge_advisor.diagnosis.scan import MAX_SAMPLES, scan
from mbridge_advisor.diagnosis.stream import MAX_LINE, Reading, read_lines
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import mistakes

from .logs import START, WATCHDOG, failing, oom, srun, steps, tee, torchrun

BASE = load()
OOM = (START + torchrun(oom("2.50 GiB"), 3)).encode()


def rules(**parts: Any) -> list[str]:
    diagnosis = diagnose(**parts)
    assert not mistakes(diagnosis.to_dict(), "diagnosis")
    return [c.rule for c in diagnosis.causes]


class Endless(io.RawIOBase):
    """A stream of a size that is made up while it is read."""

    def __init__(self, block: bytes, blocks: int, end: bytes) -> None:
        self.block, self.blocks, self.end = block, blocks, end

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self.blocks:
            self.blocks -= 1
            return self.block
        end, self.end = self.end, b""
        return end


@pytest.mark.parametrize("block", [steps(1, 2000).encode(), b"x" * 400_000, b"rank 3: \xff\xfe \x00" * 40_000])
def test_memory_does_not_grow_with_the_log(block: bytes) -> None:
    def peak(blocks: int) -> tuple[int, int]:
        tracemalloc.start()
        seen = scan(Endless(block, blocks, b"\n" + OOM), BASE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "MB-OOM-001" in [h.rule for h in seen.hits]
        return seen.reading.bytes, peak

    scan([], BASE)
    peak(2)
    few, small = peak(4)
    many, large = peak(24)
    assert many > 5 * few
    assert large < small + 2_000_000


def test_long_series_stay_small() -> None:
    seen = scan((f"| lm loss: {n / 1000:.4E} |" for n in range(20_000)), BASE)
    assert seen.measured["log_loss"].count == 20_000
    assert seen.values["log_loss"] == pytest.approx(10.0, rel=2 / MAX_SAMPLES)
    assert seen.measured["log_loss"].high == pytest.approx(19.999)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks_of_any_size_give_the_same_lines(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"one\r\ntwo\rthree\n\n" + b"y" * (MAX_LINE + 5) + b"\nlast"
    monkeypatch.setattr("mbridge_advisor.diagnosis.stream.CHUNK", size)
    lines = list(read_lines(io.BytesIO(raw), Reading()))
    assert [line for line in lines if line] == [b"one", b"two", b"three", b"y" * MAX_LINE, b"last"]


def test_gzip_is_read_from_file_and_stream(tmp_path: Path) -> None:
    path = tmp_path / "run.log"  # whatever its name
    path.write_bytes(gzip.compress(OOM))
    assert rules(log=path) == rules(log=str(path)) == rules(log=io.BytesIO(gzip.compress(OOM))) == ["MB-OOM-001"]


def test_a_cut_off_gzip_is_read_as_far_as_it_goes() -> None:
    noise = random.Random(7).randbytes(200_000).replace(b"\n", b"")
    packed = gzip.compress(OOM + noise)
    diagnosis = diagnose(log=io.BytesIO(packed[: len(packed) // 2]))
    assert diagnosis.causes[0].rule == "MB-OOM-001"
    assert any("can't be read beyond" in n.en for n in diagnosis.notes)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_encodings_are_read(encoding: str) -> None:
    assert rules(log=io.BytesIO(OOM.decode().encode(encoding))) == ["MB-OOM-001"]


def test_junk_around_a_message_does_not_hide_it() -> None:
    junk = random.Random(3).randbytes(3_000_000)
    raw = junk + b"\n\x1b[31m" + OOM.splitlines()[-1] + b"\x1b[0m\n" + junk
    diagnosis = diagnose(log=io.BytesIO(raw))
    assert "MB-OOM-001" in [c.rule for c in diagnosis.causes]
    assert "\x1b" not in str(diagnosis.to_dict())
    assert any("binary" in n.en for n in diagnosis.notes)


def test_interleaved_ranks_are_told_apart() -> None:
    lines = [srun(oom("2.50 GiB"), 5).splitlines(), tee(oom("3.50 GiB"), 9).splitlines()]
    mixed = "\n".join(line for pair in zip(*lines, strict=True) for line in pair)
    evidence = diagnose(log=mixed.splitlines()).causes[0].evidence[0]
    assert (evidence.rank, evidence.count, evidence.ranks) == (5, 2, (5, 9))


def test_logs_of_single_ranks_are_read_together(tmp_path: Path) -> None:
    """As torchrun --redirects writes them: the rank stands in the path."""
    logs = {}
    for rank in range(4):
        path = tmp_path / f"attempt_0/{rank}/stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text(START + (oom("2.50 GiB") if rank == 2 else WATCHDOG.format(rank)))
        logs[str(path)] = path
    diagnosis = diagnose(log=logs)
    first = diagnosis.causes[0]
    assert first.rule == "MB-OOM-001"
    assert first.evidence[0].file == str(tmp_path / "attempt_0/2/stderr.log")
    assert first.evidence[0].rank == 2
    assert not mistakes(diagnosis.to_dict("zh"), "diagnosis")


def test_silent_ranks_are_named() -> None:
    log = START.replace("64", "8") + "".join(WATCHDOG.format(rank) for rank in range(8) if rank != 6)
    diagnosis = diagnose(log=log.splitlines())
    assert diagnosis.causes[0].rule == "MB-HANG-013"
    assert "7 ranks" in diagnosis.causes[0].message.en
    assert diagnosis.causes[0].message.en.endswith("6. One of them is where it began.")
    assert [c.rule for c in diagnosis.causes if c.general] == ["MB-HANG-001"]


PIECES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([log.text.encode()[-700:] for log in failing()]),
    st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")),
    st.text(max_size=100).map(lambda t: t.encode("utf-16", "surrogatepass")),
    st.integers(0, 3 * MAX_LINE).map(lambda n: b"A world size (" * (n // 14)),
    st.sampled_from([b"\x1f\x8b", b"\xff\xfe", b"\x00" * 99, b"\r\r\n", b"\x1b[31m", gzip.compress(OOM), b"{" * 999]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=8), st.sampled_from([b"", b"\n"]))
def test_any_bytes_give_a_result(pieces: list[bytes], between: bytes) -> None:
    diagnosis = diagnose(log=io.BytesIO(between.join(pieces)))
    for lang in ("en", "zh"):
        assert not mistakes(diagnosis.to_dict(lang), "diagnosis")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400), st.lists(st.text(max_size=80), max_size=5))
def test_any_words_give_a_result(symptom: str, lines: list[str]) -> None:
    assert not mistakes(diagnose(symptom=symptom, log=lines).to_dict(), "diagnosis")


NUMBERS = st.one_of(st.integers(-(10**30), 10**30), st.floats(), st.sampled_from(["nan", "inf", "-1", "1e999"]))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([s.text for r in BASE.rules.values() for s in r.signs if "{" in s.text]), NUMBERS, NUMBERS)
def test_any_numbers_in_a_message_give_a_result(template: str, first: Any, second: Any) -> None:
    line = ""
    for n, piece in enumerate(template.replace("...", "x").split("{")):
        rest = piece.partition("}")[2] if n else piece
        line += (str(first if n % 2 else second) if n else "") + rest
    request = {"model": "llama3-8b", "cluster": {"gpu": "H100", "gpus": 8}, "grid": {"tp": 2}}
    for given_request in (None, request):
        assert not mistakes(diagnose(given_request, log=[line]).to_dict(), "diagnosis")


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    for log in (tmp_path / "none.log", tmp_path, "x\x00y"):
        with pytest.raises(RequestError):
            diagnose(log=log)
    with pytest.raises(RequestError, match="nothing"):
        diagnose(symptom="  ")
