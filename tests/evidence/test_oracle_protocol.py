"""The runner against worker scripts that misbehave, and the comparison of verdicts."""

import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor.errors import RequestError
from mbridge_advisor.evidence.oracle.fuzz import Opinion, Report, compare, evidence, fuzz
from mbridge_advisor.evidence.oracle.runner import Oracle, Sources, Verdict
from mbridge_advisor.evidence.store import condition_digest
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import validate
from mbridge_advisor.knowledge.yaml_reader import read

HEAD = """
import json, sys, time, os
def say(value): print(json.dumps(value), flush=True)
"""
READY = 'say({"ready": True, "versions": {"torch": "0"}, "limits": []})\n'
ECHO = """
for line in sys.stdin:
    request = json.loads(line)
    tp = request["config"].get("tp", 1)
    if tp == 2: os._exit(3)
    if tp == 3: time.sleep(60)
    if tp == 4: print("not JSON", flush=True); continue
    if tp == 5: say({"id": request["id"], "verdict": "perhaps"}); continue
    if tp == 6: say({"id": -1, "verdict": "accept"}); continue
    if tp == 7: say({"id": request["id"], "verdict": "reject", "stage": "validate", "message": "no",
                     "where": "a.py:1 f", "explicit": True, "trace": ["a.py:1 f"]}); continue
    say({"id": request["id"], "verdict": "accept", "effective": request["defaults"]})
"""


@contextmanager
def oracle(folder: Path, script: str, **options: Any) -> Iterator[Oracle]:
    worker = folder / "worker.py"
    worker.write_text(HEAD + textwrap.dedent(script), encoding="utf-8")
    started = Oracle(Sources((folder,)), sys.executable, worker=worker, **options)
    with started:
        yield started


def test_verdicts_come_back_with_all_their_fields(tmp_path: Path) -> None:
    with oracle(tmp_path, READY + ECHO) as real:
        assert real.info["versions"] == {"torch": "0"}
        assert real.judge({"tp": 1}, {"pp": 2}) == Verdict("accept", effective={"pp": 2})
        rejected = real.judge({"tp": 7})
        assert rejected == Verdict("reject", "validate", "no", "a.py:1 f", True, ("a.py:1 f",))
        assert Verdict.from_dict(rejected.to_dict()) == rejected
        assert real.restarts == 0


@pytest.mark.parametrize(
    ("tp", "reason"),
    [(2, "ended (exit status 3)"), (4, "malformed answer"), (5, "malformed answer"), (6, "malformed answer")],
)
def test_a_failure_is_unsupported_and_the_next_question_gets_a_fresh_worker(
    tmp_path: Path, tp: int, reason: str
) -> None:
    with oracle(tmp_path, READY + ECHO) as real:
        failed = real.judge({"tp": tp})
        assert (failed.verdict, reason in failed.message) == ("unsupported", True), failed
        assert real.judge({"tp": 1}).verdict == "accept"
        assert real.restarts == 1


def test_a_worker_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    with oracle(tmp_path, READY + ECHO, timeout=0.3) as real:
        assert "no answer within 0.3 s" in real.judge({"tp": 3}).message
    with oracle(tmp_path, READY + ECHO) as real:
        assert real.judge({"tp": 1}).verdict == "accept"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('say({"ready": False, "message": "no torch"})', "no torch"),
        ("sys.exit(1)", "ended at once"),
        ('print("hello", flush=True)', "malformed"),
        ("print([], flush=True)", "malformed"),
        ("time.sleep(60)", "no sign of life"),
    ],
)
def test_a_worker_that_does_not_start_is_an_error_with_a_way_out(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught, oracle(tmp_path, script, start_timeout=1.0):
        pass
    assert caught.value.field == "sources"
    assert "torch" in caught.value.way_out


def test_an_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="can't be started"), Oracle(Sources((tmp_path,)), str(tmp_path / "python")):
        pass


def test_the_worker_writes_nothing_into_the_sources(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "judged.py").write_text("VALUE = 1\n", encoding="utf-8")
    worker = tmp_path / "worker.py"
    script = f"sys.path.insert(0, {str(source)!r})\nimport judged\n" + READY + ECHO
    worker.write_text(HEAD + script, encoding="utf-8")
    with Oracle(Sources((source,)), sys.executable, worker=worker) as real:
        assert real.judge({}).verdict == "accept"
    assert [path.name for path in source.iterdir()] == ["judged.py"]


def test_describe_names_what_will_run(tmp_path: Path) -> None:
    real = Oracle(Sources((tmp_path,), {"transformer-engine": "2.9.0"}), "some-python")
    assert str(tmp_path) in real.describe()
    assert "some-python" in real.describe()
    assert real.command[-2:] == ["--versions", '{"transformer-engine": "2.9.0"}']


def test_sources_are_found_in_checkouts_and_in_wheels(tmp_path: Path) -> None:
    checkout, core, wheels = tmp_path / "bridge", tmp_path / "core", tmp_path / "site"
    (checkout / "src/megatron/bridge").mkdir(parents=True)
    (core / "megatron/core/transformer").mkdir(parents=True)
    (wheels / "megatron/bridge").mkdir(parents=True)
    (wheels / "megatron/core/transformer").mkdir(parents=True)
    assert Sources.find(checkout, core).paths == (checkout / "src", core)
    assert Sources.find(wheels).paths == (wheels,)
    with pytest.raises(RequestError, match="no Megatron Core"):
        Sources.find(checkout)
    with pytest.raises(RequestError, match="no Megatron Bridge"):
        Sources.find(core)
    nested = checkout / "3rdparty/Megatron-LM"
    (nested / "megatron/core/transformer").mkdir(parents=True)
    assert Sources.find(checkout).paths == (checkout / "src", nested)


ACCEPT = Verdict("accept", effective={"data_parallel_size": 4})
REJECT = Verdict("reject", "groups", "world size (12)", "megatron/core/x.py:3 f")


@pytest.mark.parametrize(
    ("rules", "values", "verdict", "kind"),
    [
        ((), {"dp": 4}, ACCEPT, None),
        ((), {}, ACCEPT, None),
        ((), {"dp": 5}, ACCEPT, "value"),
        (("MB-A-001",), {"dp": 4}, ACCEPT, "wrong"),
        (("MB-A-001",), {}, REJECT, None),
        ((), {}, REJECT, "missing"),
        (("MB-A-001",), {}, Verdict("unsupported"), None),
    ],
)
def test_compare(rules: tuple[str, ...], values: dict[str, Any], verdict: Verdict, kind: str | None) -> None:
    found = compare(Opinion(rules, {}, {}, values), verdict)
    assert (found[0] if found else None) == kind


def test_fuzz_shrinks_groups_and_counts() -> None:
    """The code rejects tp > 4 at one place; our rule has the bound wrong by one and forgets odd pp."""

    def code(config: Any, defaults: Any) -> Verdict:
        if config["tp"] > 4:
            return Verdict("reject", "validate", f"tp is {config['tp']}", "megatron/core/x.py:9 check")
        if config["pp"] % 2:
            return Verdict("reject", "groups", "odd", "megatron/core/y.py:1 groups")
        return Verdict("accept")

    def ours(case: dict[str, Any]) -> Opinion:
        full = {"tp": 1, "pp": 2, **case}
        return Opinion(("MB-TP-001",) if full["tp"] > 5 else (), full, {}, full)

    cases = [{"tp": tp, "pp": pp, "cp": 2} for tp in (5, 5, 6, 7) for pp in (2, 3, 4)]
    kept, more, counts = fuzz(code, ours, cases, per_cause=1)
    assert [(d.kind, d.cause.split(" |")[0]) for d in kept] == [("missing", "validate: megatron/core/x.py check")]
    assert kept[0].case == {"tp": 5}
    assert kept[0].found == {"tp": 5, "pp": 2, "cp": 2}
    assert sum(more.values()) == 5
    assert counts["verdict"] == {"reject": 12}
    assert counts["rules"] == {"MB-TP-001": 6}


def test_the_record_of_a_run_is_valid_and_says_what_was_tried(tmp_path: Path) -> None:
    base = load()
    revision = base.revisions["v0.6.0"]
    commits = {"bridge_commit": revision.commit, "core_commit": revision.core_commit}
    report = Report(
        **{"revision": "v0.6.0", "seed": 7, "tried": 9, "accepted": 4, "rejected": 4, "unsupported": {"no field": 1}},
        **{"stages": {}, "rules": {}, "located": {}, "disagreements": (), "suppressed": {}, "seconds": 1.5},
        alone={"MB-TP-001": 3, "request: model.num_layers is below 1": 1},
        values={"dp": 4},
        environment={**commits, "torch": "0", "restarts": 0},
    )
    record = evidence(base, report)
    assert record["rules"] == {"MB-TP-001": 3, "dp": 4}
    assert record["conditions"] == {name: condition_digest(base, name, revision) for name in ("MB-TP-001", "dp")}
    assert (record["not_executable"], record["disagreements"]) == (1, 0)
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert validate(read(path, "run.yaml"), "execution") == []
