"""One call: what it is answered, that the answers are those of the Python functions, and that no file is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mbridge_advisor
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mbridge_advisor.advice import smoke
from mbridge_advisor.architecture import FIELD_NAMES
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.locate import own_root
from mbridge_advisor.knowledge.model import Term
from mbridge_advisor.knowledge.schema import mistakes
from mbridge_advisor.serve import schemas
from mbridge_advisor.serve.operations import answer
from serve.running import GRID, LLAMA

CONFIG = "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n"
HF = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64}
HF |= {"num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128}


def call(operation: str, told: bool = False, **arguments: Any) -> tuple[int, Any]:
    reply = answer(operation, json.dumps(arguments).encode(), told=told)
    return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("advise", {"request": LLAMA, "top": 2}),
        ("check", {"request": GRID}),
        ("estimate", {"request": GRID}),
        ("diagnose", {"request": GRID, "symptom": "CUDA out of memory"}),
        ("explain", {"name": "MB-WORLD-002"}),
    ],
)
def test_the_answers_are_those_of_the_python_functions(operation: str, arguments: dict[str, Any]) -> None:
    status, body = call(operation, **arguments)
    function, more = getattr(mbridge_advisor, operation), dict(arguments)
    first = more.pop("name" if operation == "explain" else "request")
    assert status == 200
    assert body == json.loads(json.dumps(function(first, **more).to_dict()))
    assert mistakes(body, schemas.ANSWERS[operation]) == []


def plan_of(request: dict[str, Any]) -> dict[str, Any]:
    gpu = {"gpu": "H100", **request.get("cluster", {})}
    return json.loads(json.dumps(smoke.plan({**request, "cluster": gpu}).to_dict()))  # type: ignore[no-any-return]


def test_a_smoke_run_is_held_to_its_plan() -> None:
    wanted, log = plan_of(GRID), "exit code: 1\n"
    status, body = call("diagnose", plan=wanted, log=log)
    assert status == 200
    assert body == json.loads(json.dumps(mbridge_advisor.diagnose(plan=wanted, log=log.splitlines()).to_dict()))
    assert [c["holds"] for c in body["criteria"]].count(False) == 1
    assert call("diagnose", plan={"request": {}}, log=log)[0] == 422
    assert call("diagnose", plan=wanted)[0] == 422


def test_a_config_is_the_start_and_the_request_goes_before_it() -> None:
    status, body = call("check", config=CONFIG, request={"grid": {"tp": 4}, "cluster": {"gpus": 8}}, lang="zh")
    assert status == 200
    assert body["request"]["grid"]["tensor_model_parallel_size"] == 4
    assert body["request"]["grid"]["pipeline_model_parallel_size"] == 2
    assert body["quantities"]["data_parallel_size"] == 1
    status, body = call("advise", config=CONFIG, request=LLAMA, top=1)
    assert status == 200
    assert body["request"].get("grid", {}) == {}  # looked for anew


def test_the_content_of_a_config_json_is_a_model() -> None:
    status, body = call("estimate", request={"model": {"hf_config": HF}, "cluster": {"gpus": 2}})
    assert status == 200
    assert (
        call("estimate", config=json.dumps(HF), request={"cluster": {"gpus": 2}})[1]["parameters"] == body["parameters"]
    )


def test_lists_and_markdown() -> None:
    for name in ("rules", "models", "gpus", "revisions"):
        status, rows = call(name)
        assert status == 200
        assert len(rows) > 1
    assert {row["kind"] for row in call("rules", kind="pitfall", words="expert", bridge="v0.6.0")[1]} == {"pitfall"}
    status, body = call("check", told=True, request=GRID, lang="zh")
    assert status == 200
    assert body["data"]["verdict"] == "ok"
    assert body["text"].startswith("# ")


@pytest.mark.parametrize(
    ("operation", "raw", "status", "field"),
    [
        ("check", b"", 400, None),
        ("check", b"\xff", 400, None),
        ("check", b"[" * 100_000, 400, None),
        ("check", b'{"request": {"grid": {"tp": NaN}}}', 400, None),
        ("check", b"[]", 422, "check"),
        ("check", b"{}", 422, "request"),
        ("check", b'{"request": null}', 422, "request"),
        ("check", b'{"request": []}', 422, "request"),
        ("check", b'{"reqest": {}}', 422, "reqest"),
        ("check", b'{"request": {"grid": {"tp": "two"}}}', 422, "grid.tp"),
        ("check", b'{"request": {"grid": {"tp": 1e999}}}', 422, "grid.tp"),
        ("check", b'{"config": ""}', 422, "config"),
        ("check", b'{"config": "hello there"}', 422, "input"),
        ("check", b'{"request": {}, "lang": "fr"}', 422, "lang"),
        ("check", b'{"request": {}, "lang": ["en"]}', 422, "lang"),
        ("advise", b'{"request": {}, "top": 51}', 422, "top"),
        ("advise", b'{"request": {}, "top": true}', 422, "top"),
        ("advise", b'{"request": {}}', 422, "model"),
        ("diagnose", b"{}", 422, "diagnose"),
        ("explain", b"{}", 422, "name"),
        ("explain", b'{"name": "nothing of ours"}', 404, "name"),
        ("rules", b'{"bridge": "v9"}', 422, "bridge"),
        ("rules", b'{"kind": "law"}', 422, "kind"),
    ],
)
def test_what_cant_be_answered_is_a_problem(operation: str, raw: bytes, status: int, field: str | None) -> None:
    reply = answer(operation, raw)
    body = json.loads(reply.body)
    assert (reply.status, body["status"], body.get("field")) == (status, status, field)
    assert mistakes(body, "problem") == []


def test_deep_nesting_and_half_a_surrogate_pair() -> None:
    deep = b'{"request": {"grid": ' + b'{"x": ' * 900 + b"1" + b"}" * 900 + b"}}"
    assert answer("check", deep).status == 422
    reply = answer("check", b'{"request": {"grid": {"\\ud800": 1}}}')
    assert reply.status == 422
    assert json.loads(reply.body.decode("utf-8", "strict"))["field"] == "grid.\ud800"


def test_a_fault_of_ours_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("mbridge_advisor.advice.check.check", fail)
    reply = answer("check", b'{"request": {}}')
    assert reply.status == 500
    assert b"secret" not in reply.body
    assert mistakes(json.loads(reply.body), "problem") == []


_opened: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None:
        if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes | Path):
            _opened.append(str(arguments[0]))
        elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec"):
            _opened.append(f"{event} {arguments[0]}")


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """What the process opens, lists, connects to or starts. A hook can't be taken away, so it is only switched."""
    global _opened
    if not getattr(sys, "_mbridge_audited", False):
        sys.addaudithook(_audit)
        sys._mbridge_audited = True  # type: ignore[attr-defined]
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**HF, "hidden_size": 12345}))
    (tmp_path / "run_config.yaml").write_text("model:\n  hidden_size: 12345\n")
    (tmp_path / "train.log").write_text("hidden_size 12345\n")
    return path


KINDS = schemas.shapes()["kind"]["enum"]


@pytest.mark.parametrize("operation", ["advise", "check", "estimate", "diagnose"])
def test_no_file_that_a_call_names_is_read(operation: str, secret: Path, opened: list[str]) -> None:
    """Not as a model, not as a config of any kind, not as a log, not from inside a config."""
    cluster = {"gpu": "H100", "gpus": 8}
    paths = [str(secret), str(secret.parent), f"file://{secret}", f"../../..{secret}"]
    calls: list[dict[str, Any]] = []
    for path in paths:
        for model in (path, {"hf_config": path}, {"name": path}, {"model": path}):
            calls.append({"request": {"model": model, "cluster": cluster}})
            calls.append({"config": json.dumps({"model": model, "cluster": cluster})})
        calls += [{"config": path, "kind": kind, "request": {"cluster": cluster}} for kind in (None, *KINDS)]
        for script in (
            f"python run_recipe.py --recipe {path} --hf_path {path}\n",
            f"source {path}\ntorchrun pretrain_gpt.py $(cat {path}) --load {path} --num-layers 2\n",
            f"#!/bin/bash\n. {path}\nmegatron sft --model {path} --tensor_model_parallel_size 2\n",
            f"model: {path}\nhf_config: {path}\n",
            f"model: !include {path}\n",
            f"model.hf_model_path={path} checkpoint.load={path}\n",
        ):
            calls += [{"config": script, "kind": kind, "request": {"cluster": cluster}} for kind in (None, *KINDS)]
    if operation == "diagnose":
        calls += [{"log": path, "symptom": path, "request": {}} for path in paths]
        calls += [{"before": {"model": {"hf_config": path}}, "symptom": "slow"} for path in paths]
        wanted = plan_of(GRID)
        calls += [
            {"plan": {**wanted, "request": {**wanted["request"], "model": {"hf_config": path}}}, "log": path}
            for path in paths
        ]
    for arguments in calls:
        del opened[:]
        status, body = call(operation, **arguments)
        assert status in (200, 422), (arguments, body)
        assert "12345" not in json.dumps(body), arguments
        ours = (str(own_root()), str(Path(mbridge_advisor.__file__).parent), sys.prefix, sys.base_prefix)
        assert [path for path in opened if not path.startswith(ours)] == [], arguments


def test_the_boundary_would_be_noticed(secret: Path, opened: list[str]) -> None:
    """The Python function reads the same file, so the test above can fail."""
    mbridge_advisor.check({"model": {"hf_config": str(secret)}})
    assert str(secret) in opened


BASE = load()
DIMENSIONS = [term for term in BASE.terms.values() if term.field in FIELD_NAMES]
NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "vocab_size")


@st.composite
def values(draw: st.DrawFn, terms: list[Term], needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Some settings, each with a value that the vocabulary allows, often a small or an extreme one."""
    chosen = draw(st.lists(st.sampled_from(terms), unique_by=lambda t: t.name, max_size=12))
    chosen += [BASE.terms[name] for name in needed if BASE.terms[name] not in chosen]
    return {term.field: draw(value(term)) for term in chosen}


def value(term: Term) -> st.SearchStrategy[Any]:
    low, high = term.min if term.min is not None else -10, term.max if term.max is not None else 10**12
    small = st.sampled_from([n for n in (1, 2, 3, 4, 8, 16) if low <= n <= high] or [low])
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "str": st.sampled_from(term.values or ("", "x", "1", "adam")),
        "list": st.lists(st.sampled_from(term.values or ("moe", "core_attn", "1", 1, 0, 2)), max_size=3),
        "int": (small | st.sampled_from([low, high]) | st.integers(int(low), int(high))).map(int),
        "float": (small | st.sampled_from([low, high]) | st.floats(low, high)).map(float),
    }
    return kinds[term.type] | st.none() if term.nullable else kinds[term.type]


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Requests of the right shape about things that exist, sensible or not."""
    sections = {
        name: draw(values([t for t in BASE.terms.values() if t.section == name]))
        for name in ("cluster", "training", "grid", "environment")
    }
    sections["cluster"] |= draw(
        st.fixed_dictionaries(
            {"gpus": st.sampled_from([1, 2, 7, 8, 16, 64, 256, 10**6]), "gpu": st.sampled_from(sorted(BASE.gpus))}
        )
    )
    model = st.sampled_from(sorted(BASE.models)) | values(DIMENSIONS, NEEDED)
    return {"bridge": draw(st.sampled_from(sorted(BASE.revisions))), "model": draw(model), **sections}


@given(st.sampled_from(["check", "estimate", "diagnose"]), requests(), requests(), st.booleans())
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_request_is_judged_or_refused(
    operation: str, request: dict[str, Any], before: dict[str, Any], compared: bool
) -> None:
    more = {"before": before} if compared and operation == "diagnose" else {}
    status, body = call(operation, request=request, **more)
    assert status in (200, 422), body
    if status == 200:
        assert mistakes(body, schemas.ANSWERS[operation]) == []


@given(requests())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_request_is_advised_or_refused(request: dict[str, Any]) -> None:
    status, body = call("advise", request=request, top=1)
    assert status in (200, 422), body


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        # Each once ended in an exception, or took all memory.
        ("check", {"grid": {"hierarchical_context_parallel_sizes": ["moe"]}}),
        ("estimate", {**LLAMA, "grid": {"pp": 60_000}, "cluster": {"gpus": 10**6}}),
        (
            "estimate",
            {
                "model": {"name": "llama3-8b", "mtp_num_layers": 2, "mtp_hybrid_override_pattern": ""},
                "cluster": {"gpus": 8},
            },
        ),
        ("advise", {**LLAMA, "training": {"recompute_modules": ["moe", 1], "recompute_granularity": "selective"}}),
    ],
)
def test_hard_requests(operation: str, request_: dict[str, Any]) -> None:
    assert call(operation, request=request_)[0] in (200, 422)


def near(schema: Any) -> st.SearchStrategy[Any]:
    """Values that are near to what is asked, and others."""
    keys = st.sampled_from(schema) | st.text(max_size=5)
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(schema),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


WORDS = [
    "request",
    "config",
    "kind",
    "top",
    "lang",
    "log",
    "symptom",
    "before",
    "plan",
    "name",
    "bridge",
    "model",
    "cluster",
]
WORDS += [
    "name",
    "bridge",
    "model",
    "cluster",
    "training",
    "grid",
    "gpu",
    "gpus",
    "tp",
    "pp",
    "vpp",
    "seq_length",
    "hf_config",
    "llama3-8b",
    "H100",
    "v0.6.0",
]


@given(st.sampled_from(sorted(schemas.operations())), near(WORDS) | st.fixed_dictionaries({"request": near(WORDS)}))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_anything_is_answered(operation: str, data: Any) -> None:
    reply = answer(operation, json.dumps(data).encode())
    body = json.loads(reply.body)
    assert reply.status in (200, 400, 404, 422), body
    if reply.status != 200:
        assert mistakes(body, "problem") == []
