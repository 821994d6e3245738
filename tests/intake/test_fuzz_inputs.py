"""Whatever is thrown at the intake, it answers with a request or with a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.kinds import KINDS
from mbridge_advisor.intake.read import MAX_BYTES, read_input
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from real_inputs import RUN_CONFIG, SCRIPT

BASE = load()
KIND = st.sampled_from([None, *KINDS])
FRAGMENTS = [
    "{", "[", "$", "${", "$((", ")", '"', "'", "\\", "\n", "- ", ": ", "&a", "*a", "!!x ", "9" * 30, "-1", "1e999",
    "null", "\0", "`", "--", "=", "[0]*9", "|", "0", "true", "#SBATCH -N ", "<<: ", "@", "../../etc/passwd", "\u202e",
    "--num-layers-per-virtual-pipeline-stage 0 ", "_args_: [[1]]", "_target_: os.system", "nan", ".inf", "\r",
]  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(FRAGMENTS)
)
FIELDS = [t.field for t in BASE.terms.values()]
KEYS = st.one_of(
    st.sampled_from(
        ["model", "train", "_target_", "_args_", "_call_", "MODEL_ARGS", "ENV_VARS", "trainer", "strategy"]
    ),
    st.sampled_from(["actor_rollout_ref", "model_type", "text_config", "mixed_precision", "peft", "cluster", "grid"]),
    st.sampled_from(FIELDS),
    st.sampled_from([f"--{field.replace('_', '-')}" for field in FIELDS]),
    st.text(max_size=8),
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))
RELAXED = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def attempt(source: Any, kind: str | None = None) -> None:
    try:
        request, notes = read_input(source, kind)
        for note in notes:
            assert note.text("en")
            json.dumps(note.to_dict("zh"))
        parse_request(request, BASE)
    except RequestError as error:
        told = json.loads(json.dumps(error.to_dict()))
    else:
        return
    assert told["reason"]
    assert told["way_out"]


@RELAXED
@given(data=st.binary(max_size=300), kind=KIND)
@example(data=b"\xff\xfe{\x00", kind=None)
@example(data="mod\u00e8le: 1".encode("latin-1"), kind=None)
@example(data=b"\xef\xbb\xbfmodel: llama3-8b", kind=None)
def test_bytes(data: bytes, kind: str | None, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    attempt(path, kind)


@RELAXED
@given(tree=st.dictionaries(KEYS, TREES, max_size=8), kind=KIND)
@example(tree={"cluster": None, "gpus_per_node": 4}, kind="bridge")
@example(tree={"environment": [1], "nccl_launch_mode": 0, "cuda_device_max_connections": 1}, kind="bridge")
def test_trees(tree: dict[str, Any], kind: str | None) -> None:
    attempt(json.dumps(tree), kind)


@RELAXED
@given(
    text=st.sampled_from([RUN_CONFIG, SCRIPT]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(FRAGMENTS)), max_size=10),
    kind=KIND,
)
def test_damaged_files(text: str, changes: list[tuple[float, int, str]], kind: str | None) -> None:
    for place, cut, put in changes:
        at = int(place * len(text))
        text = text[:at] + put + text[at + cut :]
    attempt(text + "\n", kind)


@RELAXED
@given(
    text=st.lists(st.sampled_from([*FRAGMENTS, "--fp8-recipe ", "--moe-layer-freq ", "TP=", "${TP}", "if ", "fi\n"]))
)
def test_scripts(text: list[str]) -> None:
    attempt("torchrun pretrain_gpt.py " + "".join(text) + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
        "[" * 100_000,
        "{" * 100_000,
        "a:\n" + "".join(" " * n + f"k{n}:\n" for n in range(1, 3000)),
        "model: {num_layers: " + "9" * 5000 + "}",
        '{"model_type": "llama", "num_hidden_layers": 1000000000, "hidden_size": 64, '
        '"num_attention_heads": 1, "vocab_size": 9}',
        "torchrun pretrain_gpt.py --num-layers " + "9" * 5000,
        "A=" + "$((" * 5000 + "\nrun --num-layers $A\n",
        "run " + "'" * 9999 + " --num-layers 3\n",
        "A=x\n" + "A=${A:-${A}}$A\n" * 200 + "run --num-layers $A",
    ],
    ids=range(10),
)  # fmt: skip
def test_bombs(text: str) -> None:
    attempt(text)
    attempt(text + "\n")


def test_files_that_are_none(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (
        large,
        loop,
        tmp_path,
        tmp_path / "missing.yaml",
        Path("/dev/null"),
        "nul\0l",
        "x" * 300 + ".yaml",
        "~nobody-x/y",
    ):
        with pytest.raises(RequestError):
            read_input(path)


SECRET = 770_077


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config.json beside the folder that an input lies in."""
    dims = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    path = tmp_path / "secret.json"
    path.write_text(json.dumps({**dims, "intermediate_size": 128, "vocab_size": SECRET}))
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    return path


@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "model: {{hf_config: {path}}}\n",
        "model: {path}\ngrid: {{tp: 1}}\n",
        "model: !include {path}\n",
        "model: {{_target_: megatron.bridge.AutoBridge, hf_path: {path}}}\ntrain: {{train_iters: 1}}\n",
        "defaults: [{path}]\nmodel: {{num_layers: 2}}\n",
        "source {path}\ntorchrun pretrain_gpt.py --num-layers 2\n",
        "torchrun pretrain_gpt.py --num-layers $(cat {path})\n",
        "torchrun pretrain_gpt.py --num-layers 2 --yaml-cfg {path} --tokenizer-model {path}\n",
        "swift sft --model {path}\n",
    ],
)
@pytest.mark.parametrize("path", ["../secret.json", "{absolute}", "linked.json", "./x/../../secret.json"])
def test_paths_out_of_the_folder_are_not_followed(text: str, path: str, as_file: bool, secret: Path) -> None:
    Path("linked.json").symlink_to(secret)
    source: Any = text.format(path=path.format(absolute=secret))
    if as_file:
        Path("input").write_text(source)
        source = Path("input").absolute()
    told: Any
    try:
        request, notes = read_input(source)
        checked = parse_request(request, BASE)
    except RequestError as error:
        told = error.to_dict()
    else:
        told = [request, [note.to_dict("en") for note in notes], checked.to_dict(BASE)]
    assert str(SECRET) not in json.dumps(told)


def test_a_config_inside_the_folder_is_found_from_anywhere(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "in" / "models" / "config.json"
    inside.parent.mkdir()
    inside.write_bytes(secret.read_bytes())
    (tmp_path / "in" / "request.yaml").write_text("model: {hf_config: models/config.json}\ncluster: {gpus: 8}\n")
    monkeypatch.chdir("/")
    request, _ = read_input(tmp_path / "in" / "request.yaml")
    arch = parse_request(request, BASE).architecture
    assert arch is not None
    assert arch.vocab_size == SECRET


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "gb18030", "shift_jis", "cp037", "utf-7"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "input.yaml"
    path.write_bytes("# 中文，模型\nmodel: llama3-8b\ncluster: {gpus: 8}\n".encode(encoding, "replace"))
    attempt(path)
    attempt(path, "request")
