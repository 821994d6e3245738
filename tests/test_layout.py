"""Pipeline layouts are read as Megatron Core reads them, and mistakes are named."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.errors import RequestError
from mbridge_advisor.layout import Layout, parse_layout


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("Et*3|(tt|)*3,m|L", ["Ettt", "tt", "tt", "tt", "m", "L"]),
        ("Ett|ttL", ["Ett", "ttL"]),
        ("E|(t*2|)*2L", ["E", "tt", "tt", "L"]),
        ("E(tt|t)*2L", ["Ett", "ttt", "tL"]),
        ("E,t|*3,L", ["Et", "", "", "L"]),
        ("Et*0|(t|)*0L", ["E", "L"]),
        ("tmL", ["tmL"]),
    ],
)
def test_text(text: str, entries: list[str]) -> None:
    assert list(parse_layout(text)) == entries


def test_lists() -> None:
    layout = parse_layout([["embedding", "decoder"], [" Decoder", "mtp"], [], ["loss"]])
    assert layout == Layout(("Et", "tm", "", "L"))


def test_counts() -> None:
    layout = parse_layout("Et*3|(tt|)*29,m|L")
    assert len(layout) == 32
    assert (layout.decoder_layers, layout.mtp_layers, layout.embeddings, layout.losses) == (61, 1, 1, 1)
    assert (layout.starts_with_embedding, layout.ends_with_loss, layout.max_stage_layers) == (True, True, 3)
    assert not parse_layout("t|E").starts_with_embedding


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        (",", "is empty"),
        ([], "is empty"),
        ("Et|x", "unknown character 'x'"),
        ("Et |L", "unknown character ' '"),
        ("Et*|L", "without a number"),
        ("E*t|L", "without a number"),
        ("*3", "nothing"),
        ("t*2*3", "already repeated"),
        ("(t|", "isn't closed"),
        ("t)", "unknown character ')'"),
        ("(t|)L", "without a repetition"),
        ("()*3", "empty group"),
        ("((t)*2|)*3", "inside a group"),
        ("t*999999999999", "longer than"),
        ("(t*1000)*1000", "longer than"),
        ("t*٣", "without a number"),
        (["embedding"], "list of layer names"),
        ([["encoder"]], "unknown layer 'encoder'"),
        ([["decoder", 3]], "unknown layer '3'"),
    ],
)
def test_mistakes(value: object, reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)) as caught:
        parse_layout(value)  # type: ignore[arg-type]
    assert caught.value.field == "grid.pipeline_model_parallel_layout"


@given(st.lists(st.text("EtmL", max_size=5), min_size=1, max_size=8).filter(any))
def test_plain_text_comes_back(entries: list[str]) -> None:
    layout = parse_layout("|".join(entries))
    assert list(layout) == entries
    assert str(layout) == "|".join(entries)


@given(st.text("EtmL|", min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 9))
def test_repetition_is_writing_it_out(group: str, times: int, more: int) -> None:
    assert parse_layout(f"E|({group})*{times},t*{more}|L") == parse_layout(f"E|{group * times}{'t' * more}|L")


@given(st.text("EtmL|()*,0123456789 x", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        layout = parse_layout(text)
    except RequestError:
        return
    assert set("".join(layout)) <= set("EtmL")
