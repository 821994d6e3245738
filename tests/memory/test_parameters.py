"""Parameter counts against published figures and a second count; pipeline stages against dealing layers one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import gcd, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mbridge_advisor.architecture import Architecture
from mbridge_advisor.errors import RequestError
from mbridge_advisor.layout import Layout, parse_layout
from mbridge_advisor.memory.parameters import (
    LayerKind,
    Weights,
    active_parameters,
    embedding_weights,
    expert_parameters,
    final_norm_weights,
    layer_kinds,
    layer_weights,
    model_weights,
    mtp_layers_held,
    mtp_weights,
    output_weights,
    padded_vocab_size,
    stage_layers,
    total_parameters,
)

ROOT = Path(__file__).parents[2]
GRIDS = ROOT.parent / "shared" / "data" / "recipe_grids.jsonl"


def _read(path: Path) -> tuple[dict[str, Any], Architecture]:
    """A catalogue file with every figure as it is written, so that its digits can be counted, and its architecture."""
    text = path.read_text(encoding="utf-8")
    dimensions: dict[str, Any] = yaml.safe_load(text)["architecture"]
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dimensions.items()}
    return yaml.load(text, Loader=yaml.BaseLoader), Architecture(**values)


CATALOGUE = {path.stem: _read(path) for path in sorted((ROOT / "knowledge/facts/models").glob("*.yaml"))}
# Their authors print the size with one or two digits only; the count must agree with those.
COARSE = {"ministral3-8b", "nemotron-h-4b", "nemotron-h-47b", "nemotron-h-56b", "nemotron-3-ultra-550b-a55b"}


def _digits(figure: str) -> int:
    return len(figure.lower().split("e")[0].replace(".", "").lstrip("0"))


def _agrees(count: int, figure: str) -> bool:
    """Whether a count equals a printed figure to three digits, or to as many as it has (there, rounded or cut off)."""
    value, digits = float(figure), _digits(figure)
    if digits >= 3:
        return f"{count:.2e}" == f"{value:.2e}"
    unit = 10.0 ** (len(str(int(value))) - digits)
    return abs(count - value) < unit


def _published_total(arch: Architecture, counts: dict[str, str]) -> int:
    """The count that a published total stands for; ``counts`` as in the catalogue."""
    on = {name: value == "true" for name, value in counts.items()}
    total = total_parameters(
        arch,
        include_mtp=on.get("mtp", False),
        embedding=on.get("embedding", True),
        output=on.get("output", True),
    )
    if on.get("mtp_copies"):  # the checkpoint repeats embedding and output layer in each MTP layer
        total += 2 * arch.vocab_size * arch.hidden_size * (arch.mtp_num_layers or 0)
    if on.get("router_bias"):  # buffers, one number an expert in each MoE layer
        layers = sum(kind.mlp == "moe" for kind in layer_kinds(arch))
        layers += (arch.mtp_num_layers or 0) if on.get("mtp") else 0
        total += layers * (arch.num_moe_experts or 0)
    return total


@pytest.mark.parametrize("name", CATALOGUE)
def test_published_total(name: str) -> None:
    model, arch = CATALOGUE[name]
    figure = model["total_parameters"]
    count = _published_total(arch, model.get("counts", {}))
    assert _agrees(count, figure), f"{name}: counted {count:,}, published {figure}"
    assert (_digits(figure) < 3) == (name in COARSE)
    if figure.isdigit():
        assert count == int(figure), "a figure given to the last digit must be met to the last digit"


@pytest.mark.parametrize("name", [name for name, (model, _) in CATALOGUE.items() if "active_parameters" in model])
def test_published_active(name: str) -> None:
    model, arch = CATALOGUE[name]
    counts = model.get("counts", {})
    count = active_parameters(
        arch,
        embedding=counts.get("active_embedding", "true") == "true",
        output=counts.get("active_output", "true") == "true",
    )
    assert _agrees(count, model["active_parameters"]), f"{count:,} is not {model['active_parameters']}"


def test_catalogue() -> None:
    assert len(CATALOGUE) >= 50
    spellings = [s for model, _ in CATALOGUE.values() for s in (model["name"], *model.get("aliases", ()))]
    assert len(spellings) == len(set(spellings))
    keys = [key for model, _ in CATALOGUE.values() for key in model.get("recipe_keys", ())]
    assert len(keys) == len(set(keys))
    for name, (model, arch) in CATALOGUE.items():
        assert model["name"] == name
        assert ("active_parameters" in model) == arch.is_moe


def _vit(layers: int, width: int, mlp: int, patch: int, positions: int) -> int:
    """A vision transformer with biases and LayerNorms, without its patch embedding's bias and outer norms."""
    layer = 4 * (width * width + width) + 2 * width * mlp + mlp + width + 4 * width
    return layers * layer + patch * width + positions * width


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [
        ("gemma3-4b", 4300079472),
        ("gemma3-12b", 12187325040),
        ("gemma3-27b", 27432406640),
        ("llama4-scout", 108641793536),
        ("llama4-maverick", 401583781376),
    ],
)
def test_multimodal_checkpoint_is_language_plus_vision(name: str, checkpoint: int) -> None:
    """The language part in the catalogue and the vision part counted here make up the whole checkpoint."""
    _, arch = CATALOGUE[name]
    if name.startswith("gemma"):
        tower = _vit(27, 1152, 4304, 3 * 14 * 14, 4096) + 3 * 1152  # patch bias, last norm
        vision = tower + 1152 * arch.hidden_size + 1152
    else:
        tower = _vit(34, 1408, 5632, 3 * 14 * 14, 577) + 5 * 1408  # class token, norms before and after
        vision = tower + 5632 * 4096 + 4096 * 4096 + 4096 * arch.hidden_size
    assert total_parameters(arch) + vision == checkpoint


# --- a second count, tensor by tensor -------------------------------------------------------------------------------


def _norm(arch: Architecture, width: int) -> list[tuple[int, ...]]:
    return [(width,)] * (2 if arch.normalization == "LayerNorm" else 1)


def _linear(inputs: int, outputs: int, bias: bool) -> list[tuple[int, ...]]:
    return [(outputs, inputs), (outputs,)] if bias else [(outputs, inputs)]


def _mlp(arch: Architecture, hidden: int, width: int) -> list[tuple[int, ...]]:
    up = _linear(hidden, width, arch.add_bias_linear)
    gate = _linear(hidden, width, arch.add_bias_linear) if arch.gated_linear_unit else []
    return up + gate + _linear(width, hidden, arch.add_bias_linear)


def _tensors(arch: Architecture) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(copies: 1, or the number of experts; shape of one) of every tensor, as model code would create them."""
    hidden, heads = arch.hidden_size, arch.num_attention_heads
    groups = arch.num_query_groups or heads
    width = arch.kv_channels or hidden // heads
    yield 1, (arch.vocab_size, hidden)
    if not arch.share_embeddings_and_output_weights:
        yield 1, (arch.vocab_size, hidden)
    yield from ((1, shape) for shape in _norm(arch, hidden))
    for index in range(arch.num_layers):
        shapes: list[tuple[int, ...]] = []
        if arch.multi_latent_attention:
            kv_rank, nope, rope = arch.kv_lora_rank or 0, arch.qk_head_dim or 0, arch.qk_pos_emb_head_dim or 0
            value = arch.v_head_dim or 0
            query = heads * (nope + rope)
            if arch.q_lora_rank:
                shapes += [(arch.q_lora_rank, hidden), (query, arch.q_lora_rank)]
                shapes += _norm(arch, arch.q_lora_rank) if arch.qk_layernorm else []
            else:
                shapes += [(query, hidden)]
            shapes += [(kv_rank, hidden), (rope, hidden), (heads * nope, kv_rank), (heads * value, kv_rank)]
            shapes += _norm(arch, kv_rank) if arch.qk_layernorm else []
            shapes += _linear(heads * value, hidden, arch.add_bias_linear)
        else:
            bias = arch.add_bias_linear or arch.add_qkv_bias
            for outputs in (heads * width, groups * width, groups * width):
                shapes += _linear(hidden, outputs, bias)
            if arch.attention_output_gate:
                shapes += _linear(hidden, heads * width, bias)
            shapes += _linear(heads * width, hidden, arch.add_bias_linear)
            shapes += 2 * _norm(arch, width) if arch.qk_layernorm else []
            shapes += [(heads,)] if arch.softmax_offset else []
        shapes += (4 if arch.post_block_norms else 2) * _norm(arch, hidden)
        if arch.num_moe_experts and index % (arch.moe_layer_freq if isinstance(arch.moe_layer_freq, int) else 1) == 0:
            assert arch.moe_ffn_hidden_size
            shapes += _linear(hidden, arch.num_moe_experts, arch.add_bias_linear)
            if arch.moe_shared_expert_intermediate_size:
                shapes += _mlp(arch, hidden, arch.moe_shared_expert_intermediate_size)
                shapes += [(1, hidden)] if arch.moe_shared_expert_gate else []
            inner = hidden
            if arch.moe_latent_size:
                inner = arch.moe_latent_size
                shapes += _linear(hidden, inner, arch.add_bias_linear) + _linear(inner, hidden, arch.add_bias_linear)
            yield from ((arch.num_moe_experts, shape) for shape in _mlp(arch, inner, arch.moe_ffn_hidden_size))
        else:
            shapes += _mlp(arch, hidden, arch.ffn_hidden_size or 4 * hidden)
        yield from ((1, shape) for shape in shapes)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    flag = st.booleans()
    heads = draw(st.sampled_from([4, 8, 12]))
    some = st.integers(1, 6).map(lambda n: 8 * n)
    moe = draw(flag)
    return Architecture(
        num_layers=draw(st.integers(1, 6)),
        hidden_size=heads * draw(some),
        num_attention_heads=heads,
        vocab_size=draw(st.integers(100, 3000)),
        ffn_hidden_size=draw(st.none() | some),
        num_query_groups=draw(st.sampled_from([None, 1, 2, 4])),
        kv_channels=draw(st.none() | some),
        gated_linear_unit=draw(flag),
        add_bias_linear=draw(flag),
        add_qkv_bias=draw(flag),
        normalization=draw(st.sampled_from(["RMSNorm", "LayerNorm"])),
        qk_layernorm=draw(flag),
        post_block_norms=draw(flag),
        attention_output_gate=draw(flag),
        softmax_offset=draw(flag),
        share_embeddings_and_output_weights=draw(flag),
        multi_latent_attention=draw(flag),
        q_lora_rank=draw(st.none() | some),
        kv_lora_rank=draw(some),
        qk_head_dim=draw(some),
        qk_pos_emb_head_dim=draw(some),
        v_head_dim=draw(some),
        num_moe_experts=16 if moe else None,
        moe_router_topk=draw(st.integers(1, 16)) if moe else None,
        moe_ffn_hidden_size=draw(some),
        moe_shared_expert_intermediate_size=draw(st.none() | some),
        moe_shared_expert_gate=draw(flag),
        moe_layer_freq=draw(st.integers(1, 3)),
        moe_latent_size=draw(st.none() | some),
    )


@given(architectures())
@settings(max_examples=150, deadline=None)
def test_equals_a_count_tensor_by_tensor(arch: Architecture) -> None:
    tensors = list(_tensors(arch))
    assert total_parameters(arch) == sum(n * prod(shape) for n, shape in tensors)
    chosen = arch.moe_router_topk or 0
    assert active_parameters(arch) == sum(prod(shape) * (1 if n == 1 else chosen) for n, shape in tensors)
    assert expert_parameters(arch) == sum(n * prod(shape) for n, shape in tensors if n > 1)


@given(architectures(), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=150, deadline=None)
def test_shards_sum_back_to_the_model(arch: Architecture, tp: int, etp: int, ep: int) -> None:
    """Each rank's share is whole, and all shares of one copy make up the model."""
    if arch.query_groups % tp:
        tp = gcd(arch.query_groups, tp)
    for kind in set(layer_kinds(arch)):
        weights = layer_weights(arch, kind)
        assert weights.tp % tp == weights.expert % (ep * etp) == weights.expert_replicated % ep == 0
        assert weights.total == weights.tp + weights.replicated + weights.routed
    rows = padded_vocab_size(arch, tp)
    parts = [layer_weights(arch, kind) for kind in layer_kinds(arch)]
    parts += [embedding_weights(arch, rows), final_norm_weights(arch), output_weights(arch, rows, holds_embedding=True)]
    assert rows % tp == 0
    assert sum(parts, Weights()) == model_weights(arch, padded_vocab=rows)
    assert total_parameters(arch, padded_vocab=rows) == sum(part.total for part in parts)


def test_what_tensor_parallelism_leaves_whole() -> None:
    """Down-projections of MLA, norms, the router and the bias of a row-parallel layer are whole on each TP rank."""
    mla = CATALOGUE["deepseek-v3"][1]
    assert layer_weights(mla, LayerKind("mla", "none")).replicated == (
        7168 * 1536 + 7168 * (512 + 64) + 1536 + 512 + 7168
    )
    assert layer_weights(mla, LayerKind("none", "moe")).replicated == 256 * 7168 + 7168
    biased = CATALOGUE["gpt-oss-20b"][1]
    moe = layer_weights(biased, LayerKind("none", "moe"))
    assert moe.expert_replicated == 32 * 2880
    assert moe.expert == 32 * (3 * 2880 * 2880 + 2 * 2880)
    assert layer_weights(biased, LayerKind("attention", "none")).replicated == 2880 + 2880
    latent = CATALOGUE["nemotron-3-super-120b-a12b"][1]
    assert layer_weights(latent, LayerKind("none", "moe")).replicated == 4096 * 512 + 2 * 4096 * 1024 + 4096


def test_weights_add_and_scale() -> None:
    one = Weights(tp=1, replicated=2, expert=3, expert_replicated=4)
    assert one + one == one * 2 == 2 * one == Weights(2, 4, 6, 8)
    assert (one.total, one.routed) == (10, 7)


def test_mtp() -> None:
    arch = CATALOGUE["deepseek-v3"][1]
    expected = layer_weights(arch, LayerKind("mla", "moe")) + Weights(tp=2 * 7168**2, replicated=3 * 7168)
    assert mtp_weights(arch) == expected
    assert total_parameters(arch, include_mtp=True) - total_parameters(arch) == expected.total
    hybrid = CATALOGUE["nemotron-3-super-120b-a12b"][1]
    inner = layer_weights(hybrid, LayerKind("attention", "none")) + layer_weights(hybrid, LayerKind("none", "moe"))
    assert mtp_weights(hybrid) == inner + Weights(tp=2 * 4096**2, replicated=3 * 4096)


def test_repeated_mtp_layer_is_held_once() -> None:
    small: dict[str, Any] = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    assert mtp_layers_held(Architecture(**small)) == 0
    assert mtp_layers_held(Architecture(**small, mtp_num_layers=2)) == 2
    assert mtp_layers_held(Architecture(**small, mtp_num_layers=2, mtp_use_repeated_layer=True)) == 1


def test_layer_kinds() -> None:
    small: dict[str, Any] = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    dense, moe = LayerKind("attention", "dense"), LayerKind("attention", "moe")
    assert layer_kinds(Architecture(**small)) == (dense,) * 4
    assert layer_kinds(Architecture(**small, num_moe_experts=8, moe_layer_freq=2)) == (moe, dense, moe, dense)
    assert layer_kinds(Architecture(**small, num_moe_experts=8, moe_layer_freq=(0, 1, 1, 1))) == (dense, moe, moe, moe)
    windowed = layer_kinds(Architecture(**small, window_size=128, window_attn_skip_freq=2))
    assert [kind.windowed for kind in windowed] == [True, False, True, False]
    linear = layer_kinds(Architecture(**small, linear_attention_freq=4))
    assert [kind.mixer for kind in linear] == ["linear_attention"] * 3 + ["attention"]
    hybrid = layer_kinds(Architecture(**small, hybrid_override_pattern="ME|*-/*E"))
    assert [(kind.mixer, kind.mlp) for kind in hybrid] == [
        ("mamba", "none"),
        ("none", "moe"),
        ("attention", "none"),
        ("none", "dense"),
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hybrid_override_pattern": "M?*-"}, "model.hybrid_override_pattern"),
        ({"hybrid_override_pattern": "M*"}, "model.hybrid_override_pattern"),
        ({"num_moe_experts": 8, "moe_layer_freq": (1, 0)}, "model.moe_layer_freq"),
        ({"linear_attention_freq": (1,)}, "model.linear_attention_freq"),
        ({"linear_attention_freq": 4}, "model.linear_conv_kernel_dim"),
        ({"multi_latent_attention": True}, "model.kv_lora_rank"),
        ({"position_embedding_type": "learned_absolute"}, "model.max_position_embeddings"),
    ],
)
def test_incomplete_architecture(change: dict[str, Any], field: str) -> None:
    small: dict[str, Any] = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    with pytest.raises(RequestError) as caught:
        total_parameters(Architecture(**small, **change))
    assert caught.value.field == field


@given(st.integers(1, 300_000), st.integers(1, 4000), st.integers(1, 64), st.booleans())
def test_padded_vocabulary(vocab: int, multiple: int, tp: int, pad: bool) -> None:
    arch = Architecture(1, 64, 4, vocab, make_vocab_size_divisible_by=multiple, should_pad_vocab=pad)
    rows = padded_vocab_size(arch, tp)
    if pad:
        assert rows % (multiple * tp) == 0
        assert 0 <= rows - vocab < multiple * tp
    else:
        assert rows == vocab
    array = padded_vocab_size(arch, np.array([[1, tp], [tp, 1]]))
    assert array.shape == (2, 2)
    assert array[0, 1] == rows


def test_tied_output_is_held_again_on_a_later_stage() -> None:
    arch = CATALOGUE["llama3.2-1b"][1]
    assert output_weights(arch, 128256, holds_embedding=True) == Weights()
    assert output_weights(arch, 128256).tp == 128256 * 2048
    untied = CATALOGUE["llama3-8b"][1]
    assert output_weights(untied, 128256, holds_embedding=True).tp == 128256 * 4096


# --- pipeline stages ------------------------------------------------------------------------------------------------


def _dealt(
    layers: int, pp: int, vpp: int, first: int | None, last: int | None, embedding: bool, loss: bool
) -> list[list[list[int]]] | None:
    """Deal layers one by one into virtual stages of known room; None where they don't come out even."""
    cards: list[Any] = ["E"] * embedding + list(range(layers)) + ["L"] * loss
    if first is None and last is None:
        room = {rank: len(cards) / pp for rank in range(pp)}
    else:
        fixed = {rank: n for rank, n in ((0, first), (pp - 1, last)) if n is not None}
        free = [rank for rank in range(pp) if rank not in fixed]
        room = {**{rank: (layers - sum(fixed.values())) / len(free) for rank in free}, **fixed}
    hands: list[list[list[int]]] = [[[] for _ in range(vpp)] for _ in range(pp)]
    for chunk in range(vpp):
        for rank in range(pp):
            if room[rank] < 0 or room[rank] % vpp:
                return None
            for _ in range(int(room[rank]) // vpp):
                if not cards:
                    return None
                card = cards.pop(0)
                if card == "E" and (rank, chunk) != (0, 0):
                    return None
                if card == "L" and (rank, chunk) != (pp - 1, vpp - 1):
                    return None
                if not isinstance(card, str):
                    hands[rank][chunk].append(card)
    return None if cards else hands


@given(
    st.integers(1, 96),
    st.integers(1, 8),
    st.integers(1, 4),
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 12),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=600, deadline=None)
def test_stages_equal_dealing(
    layers: int, pp: int, vpp: int, first: int | None, last: int | None, embedding: bool, loss: bool
) -> None:
    if first is not None or last is not None:
        embedding = loss = False
    if pp == 1 or (pp == 2 and first is not None and last is not None):
        first = None
    expected = _dealt(layers, pp, vpp, first, last, embedding, loss)
    try:
        stages = stage_layers(layers, pp, vpp, first, last, embedding, loss)
    except RequestError:
        assert expected is None
        return
    assert [[list(chunk) for chunk in rank] for rank in stages] == expected
    assert sum(len(chunk) for rank in stages for chunk in rank) == layers


def test_known_stages() -> None:
    assert stage_layers(8, 2, 4) == (
        (range(0, 1), range(2, 3), range(4, 5), range(6, 7)),
        (range(1, 2), range(3, 4), range(5, 6), range(7, 8)),
    )
    assert stage_layers(8, 2, 2) == ((range(0, 2), range(4, 6)), (range(2, 4), range(6, 8)))
    uneven = stage_layers(61, 16, first=4, last=1)
    assert [len(rank[0]) for rank in uneven] == [4] * 15 + [1]
    shared = stage_layers(126, 8, 8, account_for_embedding=True, account_for_loss=True)
    assert [len(chunk) for chunk in shared[0]] == [1] + [2] * 7
    assert [len(chunk) for chunk in shared[-1]] == [2] * 7 + [1]
    laid = stage_layers(61, 16, 2, layout=parse_layout("Et*3|(tt|)*29,m|L"))
    assert [list(map(len, rank)) for rank in laid] == [[3, 2], *[[2, 2]] * 13, [2, 0], [2, 0]]
    assert laid[0] == (range(0, 3), range(33, 35))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"num_layers": 61, "pp": 16}, "grid.pipeline_model_parallel_size"),
        ({"num_layers": 12, "pp": 2, "vpp": 4}, "grid.virtual_pipeline_model_parallel_size"),
        ({"num_layers": 12, "pp": 4, "first": 2}, "model.num_layers"),
        ({"num_layers": 12, "pp": 2, "first": 2, "last": 3}, "grid.num_layers_in_first_pipeline_stage"),
        (
            {"num_layers": 12, "pp": 4, "first": 3, "account_for_loss": True},
            "grid.account_for_embedding_in_pipeline_split",
        ),
        ({"num_layers": 0, "pp": 1, "vpp": None, "layout": Layout(("Et", "L"))}, "grid.pipeline_model_parallel_layout"),
        ({"num_layers": 4, "pp": 3, "layout": Layout(("Ett", "ttL"))}, "grid.pipeline_model_parallel_layout"),
    ],
)
def test_stages_that_do_not_fit(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        stage_layers(**arguments)
    assert caught.value.field == field


def _shipped() -> list[dict[str, Any]]:
    if not GRIDS.exists():
        pytest.skip("the recipe grids (../shared/data/recipe_grids.jsonl) are not in a plain checkout")
    rows = map(json.loads, GRIDS.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row["pipeline_layout"]]


def test_shipped_layouts() -> None:
    """Every layout in a shipped recipe can be read and places all layers of its model, MTP layers included."""
    by_key = {key: arch for model, arch in CATALOGUE.values() for key in model.get("recipe_keys", ())}
    unknown, misfits = set(), set()
    for row in _shipped():
        layout = parse_layout(row["pipeline_layout"])
        assert (layout.starts_with_embedding, layout.ends_with_loss) == (True, True)
        assert (layout.embeddings, layout.losses) == (1, 1)
        if row["model_key"] not in by_key:
            unknown.add(row["model_key"])
            continue
        arch = by_key[row["model_key"]]
        assert layout.decoder_layers == arch.num_layers, row["id"]
        assert layout.mtp_layers == (row["mtp_num_layers"] or 0)
        if len(layout) == row["pp"] * (row["vpp"] or 1):
            stages = stage_layers(arch.num_layers, row["pp"], row["vpp"], layout=layout)
            assert sorted(i for rank in stages for chunk in rank for i in chunk) == list(range(arch.num_layers))
        else:
            misfits.add((row["model_key"], row["pp"], row["vpp"], len(layout)))
    assert unknown == {"deepseek_v4_flash", "deepseek_v4_pro"}  # not in the catalogue
    # Recipes for fewer GPUs that keep the layout of a larger grid: they can't run as shipped.
    assert misfits == {("deepseek_v3", 4, 2, 16)}
