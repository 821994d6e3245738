"""Pipeline layouts: what each pipeline stage holds, written as Megatron Core reads it.

Core's ``PipelineParallelLayerLayout`` takes a string such as ``Et*3|(tt|)*29,m|L``: entries separated by bars, one for
each of the PP * VPP virtual stages in the order of the layers (pipeline rank varies fastest).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from .errors import RequestError

FIELD = "grid.pipeline_model_parallel_layout"
_NAMES = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_LETTERS = frozenset("EtmL")
_MAX_LENGTH = 100_000  # letters and bars after repetition: more than any real model has
_WAY_OUT = 'Write entries of E (embedding), t (decoder layer), m (MTP layer), L (loss), | between: "Et*3|(tt|)*6,tL".'


@dataclass(frozen=True)
class Layout:
    """A parsed layout. Iterating gives the entries.

    Attributes:
        entries: one string of the letters ``E t m L`` a virtual stage, in the order of the layers.
    """

    entries: tuple[str, ...]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        return "|".join(self.entries)

    @cached_property
    def _all(self) -> str:
        return "".join(self.entries)

    @property
    def decoder_layers(self) -> int:
        """Decoder layers of all entries."""
        return self._all.count("t")

    @property
    def mtp_layers(self) -> int:
        """MTP layers of all entries."""
        return self._all.count("m")

    @property
    def mtp_entries(self) -> tuple[int, ...]:
        """Indices of the entries that hold MTP layers, from 0."""
        return tuple(i for i, entry in enumerate(self.entries) if "m" in entry)

    @property
    def decoders_after_mtp(self) -> int:
        """Decoder layers behind the first MTP layer."""
        return self._all.partition("m")[2].count("t")

    @property
    def embeddings(self) -> int:
        """How often the embedding stands in the layout (Core asks for exactly one)."""
        return self._all.count("E")

    @property
    def losses(self) -> int:
        """How often the loss stands in the layout (Core asks for exactly one)."""
        return self._all.count("L")

    @property
    def starts_with_embedding(self) -> bool:
        """Whether the embedding comes first."""
        return self._all.startswith("E")

    @property
    def ends_with_loss(self) -> bool:
        """Whether the loss comes last."""
        return self._all.endswith("L")

    @property
    def max_stage_layers(self) -> int:
        """Decoder layers of the fullest entry."""
        return max(entry.count("t") for entry in self.entries)


def parse_layout(value: str | Sequence[Sequence[str]]) -> Layout:
    """Read a layout, given as a string or as a list of lists of ``embedding``, ``decoder``, ``mtp`` and ``loss``.

    In a string, commas mean nothing, ``(..)*n`` repeats a group and ``x*n`` one letter or bar; groups don't nest.
    Whether the entries fit a grid and a model is for rules and :func:`~mbridge_advisor.memory.parameters.stage_layers`.

    Raises:
        RequestError: not a layout.
    """
    if not isinstance(value, str):
        return Layout(tuple(_entry(value, row) for row in value)) if value else _refuse(value, "is empty")
    text = value.replace(",", "")
    if not text:
        _refuse(value, "is empty")
    return Layout(tuple(_unrolled(value, text).split("|")))


def _refuse(value: object, reason: str) -> Layout:
    raise RequestError(FIELD, value, reason, _WAY_OUT)


def _entry(value: object, row: Sequence[str]) -> str:
    if isinstance(row, str) or not isinstance(row, Sequence):
        _refuse(value, f"has {row!r} where a list of layer names must stand")
    names = [str(name).strip().lower() for name in row]
    for name in names:
        if name not in _NAMES:
            _refuse(value, f"names the unknown layer {name!r}")
    return "".join(_NAMES[name] for name in names)


def _unrolled(value: str, text: str) -> str:
    """The text with all repetitions written out: only letters and bars are left."""
    out: list[str] = []
    length = position = 0
    while position < len(text):
        char = text[position]
        if char == "(":
            end = text.find(")", position)
            if end < 0:
                _refuse(value, "has a bracket that isn't closed")
            inside = text[position + 1 : end]
            if "(" in inside:
                _refuse(value, "has a group inside a group, which Megatron Core doesn't read")
            if not inside:
                _refuse(value, "has an empty group")
            piece, position = _unrolled(value, inside), end + 1
            if text[position : position + 1] != "*":
                _refuse(value, "has a group without a repetition such as )*3")
        elif char in _LETTERS or char == "|":
            piece, position = char, position + 1
        elif char == "*":
            _refuse(value, "repeats something that is already repeated, or nothing")
        else:
            _refuse(value, f"has the unknown character {char!r}")
        times = 1
        if text[position : position + 1] == "*":
            start = position = position + 1
            while position < len(text) and text[position] in "0123456789":
                position += 1
            digits = text[start:position]
            if not digits:
                _refuse(value, "has a * without a number after it")
            times = int(digits) if len(digits) < 7 else _MAX_LENGTH + 1
        length += len(piece) * times
        if length > _MAX_LENGTH:
            _refuse(value, f"is longer than {_MAX_LENGTH:,} letters when written out")
        out.append(piece * times)
    return "".join(out)


FACTS = (
    "layout_stages",
    "layout_decoder_layers",
    "layout_mtp_layers",
    "layout_embeddings",
    "layout_losses",
    "layout_starts_with_embedding",
    "layout_ends_with_loss",
    "layout_max_stage_layers",
    "layout_decoders_after_mtp",
    "layout_mtp_stages",
    "layout_first_mtp_stage",
)


def layout_facts(value: str | None) -> dict[str, int | bool | None]:
    """The vocabulary's facts about a layout (:data:`FACTS`); all ``None`` where it is unset.

    Raises:
        RequestError: not a layout.
    """
    if value is None:
        return dict.fromkeys(FACTS)
    layout = parse_layout(value)
    return {
        "layout_stages": len(layout),
        "layout_decoder_layers": layout.decoder_layers,
        "layout_mtp_layers": layout.mtp_layers,
        "layout_embeddings": layout.embeddings,
        "layout_losses": layout.losses,
        "layout_starts_with_embedding": layout.starts_with_embedding,
        "layout_ends_with_loss": layout.ends_with_loss,
        "layout_max_stage_layers": layout.max_stage_layers,
        "layout_decoders_after_mtp": layout.decoders_after_mtp,
        "layout_mtp_stages": len(layout.mtp_entries),
        "layout_first_mtp_stage": layout.mtp_entries[0] if layout.mtp_entries else None,
    }
