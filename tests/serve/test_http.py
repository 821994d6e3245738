"""The HTTP service, as a process of its own on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mbridge_advisor
import pytest
import uvicorn
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge.schema import mistakes
from mbridge_advisor.serve import schemas
from serve.running import GRID, LLAMA, Service, running

TOKEN = "0123456789-abcdef"
pytestmark = pytest.mark.xdist_group("http")
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running("--workers", "1") as one:
        yield one


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert mistakes(body, "problem") == []
    return body


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("advise", {"request": LLAMA, "top": 1, "lang": "zh"}),
        ("check", {"request": GRID}),
        ("estimate", {"request": GRID}),
        ("diagnose", {"request": GRID, "log": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"}),
    ],
)
def test_operations(service: Service, operation: str, arguments: dict[str, Any]) -> None:
    response = service.call(operation, **arguments)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert mistakes(response.json(), schemas.ANSWERS[operation]) == []


def test_check_says_what_the_python_function_says(service: Service) -> None:
    bad = {"cluster": {"gpus": 8}, "grid": {"tp": 3, "pp": 2}}
    assert service.call("check", request=bad).json() == json.loads(json.dumps(mbridge_advisor.check(bad).to_dict()))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/explain/MB-WORLD-002?lang=zh&bridge=v0.6.0",
        "/v1/explain/deepseek-ai/DeepSeek-V3",
        "/v1/rules?kind=constraint&words=expert%20tensor",
        "/v1/models",
        "/v1/gpus?lang=zh",
        "/v1/revisions",
        "/v1/schemas",
        "/health",
        "/ready",
    ],
)
def test_what_is_known(service: Service, path: str) -> None:
    response = service.client.get(path)
    assert response.status_code == 200
    assert response.json()


def test_schemas_are_served_as_they_are(service: Service) -> None:
    for name in service.client.get("/v1/schemas").json():
        assert service.client.get(f"/v1/schemas/{name}").json()["$id"].endswith(f"/{name}.schema.json")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/explain/nothing-of-ours", 404),
        ("GET", "/v1/explain/MB-WORLD-002?bridge=v9", 422),
        ("GET", "/v1/rules?kind=law", 422),
        ("GET", "/v1/rules?colour=red", 422),
        ("GET", "/v1/rules?kind=pitfall&kind=sizing", 422),
        ("GET", "/v1/schemas/..%2F..%2Fpyproject.toml", 404),
        ("GET", "/v1/schemas/passwd", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v1/check", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_wrong_ways(service: Service, method: str, path: str, status: int) -> None:
    problem(service.client.request(method, path), status)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b'{"request": {"grid": {"tp": "two"}}}', JSON, 422),
        (b'{"request": {"model": "/etc/config.json"}}', JSON, 422),
        (b'{"request": {}}', {}, 415),
        (b'{"request": {}}', {"Content-Type": "text/plain"}, 415),
        (b'{"request": {}}', {**JSON, "Host": "somewhere.example"}, 403),
        (b'{"request": {}}', {**JSON, "Host": "127.0.0.1.example"}, 403),
        (b'{"request": {}}', {**JSON, "Origin": "https://somewhere.example"}, 403),
        (b'{"request": {}}', {**JSON, "Origin": "null"}, 403),
    ],
)
def test_wrong_requests(service: Service, body: bytes, headers: dict[str, str], status: int) -> None:
    problem(service.client.post("/v1/check", content=body, headers=headers), status)


def test_a_problem_tells_field_value_reason_and_way_out(service: Service) -> None:
    body = problem(service.call("check", request={"grid": {"tp": "two"}}), 422)
    assert (body["field"], body["value"]) == ("grid.tp", "two")
    assert body["reason"]
    assert "whole number" in body["way_out"]


def test_arguments_behind_the_path_of_a_post_are_refused(service: Service) -> None:
    problem(service.client.post("/v1/check?lang=zh", json={"request": {}}), 422)


def test_the_page_of_the_own_machine_may_call(service: Service) -> None:
    headers = {"Origin": f"http://localhost:{service.port}", "Host": f"localhost:{service.port}"}
    assert service.client.post("/v1/check", json={"request": GRID}, headers=headers).status_code == 200


def test_the_description_covers_all_operations_and_its_references_lead_somewhere(service: Service) -> None:
    document = service.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    paths = {re.sub(r"\{.*", "", path) for path in document["paths"]}
    assert {f"/v1/{name}" + "/" * (name == "explain") for name in schemas.operations()} <= paths
    found = list(references(document))
    assert len(found) > 100
    for reference in found:
        target = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from references(each)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from references(each)


def test_metrics_count(service: Service) -> None:
    name = 'mbridge_advisor_requests_total{path="/v1/estimate",status="200"}'
    assert service.call("estimate", request=GRID).status_code == 200
    before = service.metric(name)
    assert service.call("estimate", request=GRID).status_code == 200
    assert service.metric(name) == before + 1
    assert service.metric('mbridge_advisor_request_seconds_count{path="/v1/estimate"}') == before + 1
    assert service.metric("mbridge_advisor_workers_ready") == 1
    assert service.metric('mbridge_advisor_worker_memory_bytes{worker="0"}') > 1 << 20
    assert service.metric("mbridge_advisor_requests_in_hand") == 1  # this one


def test_bodies_have_a_largest_size() -> None:
    with running("--workers", "1", "--max-body", "1") as service:
        large = json.dumps({"request": {}, "config": "x" * (1 << 20)}).encode()
        problem(service.client.post("/v1/check", content=large, headers=JSON), 413)
        chunks = (large[at : at + 65536] for at in range(0, len(large), 65536))  # without Content-Length
        problem(service.client.post("/v1/check", content=chunks, headers=JSON), 413)
        problem(service.client.post("/v1/check", content=large[: 1 << 20], headers=JSON), 400)


def half_sent(service: Service, body: bytes) -> tuple[socket.socket, bytes]:
    """A connection over which all but the end of a request was sent, and that end."""
    head = ["POST /v1/check HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head += [f"Content-Length: {len(body)}", "", ""]
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=120)
    connection.sendall("\r\n".join(head).encode() + body[:-1])
    return connection, body[-1:]


def received(connection: socket.socket) -> str:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


BODY = json.dumps({"request": GRID}).encode()


def test_too_many_requests_are_turned_away_but_health_is_told() -> None:
    with running("--workers", "1", "--concurrency", "1") as service:
        connection, _ = half_sent(service, BODY)
        while service.client.get("/v1/schemas").status_code == 200:
            pass  # until the server has seen the half
        response = service.call("check", request=GRID)
        problem(response, 503)
        assert response.headers["retry-after"] == "1"
        assert service.client.get("/health").status_code == 200
        connection.close()
        while service.call("check", request=GRID).status_code == 503:
            pass


def test_a_body_that_doesnt_come_is_given_up() -> None:
    with running("--workers", "1", "--timeout", "1") as service:
        connection, _ = half_sent(service, BODY)
        assert received(connection).startswith("HTTP/1.1 408 ")


def test_requests_in_hand_are_answered_before_it_stops() -> None:
    with running("--workers", "1") as service:
        connection, rest = half_sent(service, BODY)
        while service.metric("mbridge_advisor_requests_in_hand") < 2:
            pass
        workers = service.workers()
        service.process.send_signal(signal.SIGTERM)
        while accepts(service.port):
            pass
        connection.sendall(rest)
        answer = received(connection)
        assert answer.startswith("HTTP/1.1 200 ")
        assert '"verdict"' in answer
        assert service.stop() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_an_interrupt_from_the_terminal_reaches_the_workers_too_and_loses_nothing() -> None:
    with running("--workers", "1") as service:
        connection, rest = half_sent(service, BODY)
        while service.metric("mbridge_advisor_requests_in_hand") < 2:
            pass
        for pid in (*service.workers(), service.process.pid):
            os.kill(pid, signal.SIGINT)
        connection.sendall(rest)
        assert received(connection).startswith("HTTP/1.1 200 ")
        assert service.process.wait(120) == 0


def test_workers_killed_under_load_lose_no_request() -> None:
    with running("--workers", "2", "--recycle", "30") as service, ThreadPoolExecutor(8) as threads:
        grids = [{**GRID, "grid": {"tp": 1 << n % 4, "pp": 1 + n % 2}} for n in range(100)]
        calls = [threads.submit(service.call, "check", request=grid) for grid in grids]
        for n in (10, 30, 60):
            calls[n].result()
            for pid in service.workers()[:1]:
                os.kill(pid, signal.SIGKILL)
        assert [call.result().status_code for call in calls] == [200] * 100
        expected = {str(grid): mbridge_advisor.check(grid).verdict for grid in grids}
        assert [call.result().json()["verdict"] for call in calls] == [expected[str(grid)] for grid in grids]
        assert service.metric('mbridge_advisor_workers_ended_total{reason="died"}') >= 1
        assert service.metric('mbridge_advisor_workers_ended_total{reason="recycled"}') >= 1


def test_workers_end_with_a_server_that_is_killed() -> None:
    with running("--workers", "2") as service:
        workers = service.workers()
        assert len(workers) == 2
        service.process.kill()
        service.process.wait(120)
        while any(alive(pid) for pid in workers):
            pass


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_token_is_asked_for() -> None:
    with running("--workers", "1", MBRIDGE_ADVISOR_TOKEN=TOKEN) as service:
        assert service.client.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
            response = service.client.get(path)
            problem(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", f"Basic {TOKEN}", TOKEN, "Bearer é"):
            headers = {"Authorization": wrong.encode()}
            problem(service.client.get("/v1/models", headers=headers), 401)
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "any.example"}
        assert service.client.get("/v1/models", headers=right).status_code == 200
        assert TOKEN not in "".join(service.log)


def test_the_token_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with running("--workers", "1", "--token-file", str(file), "--host", "0.0.0.0") as service:
        problem(service.client.get("/v1/gpus"), 401)
        assert service.client.get("/v1/gpus", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        (["--host", "0.0.0.0"], None, "there is no token"),
        (["--host", "::"], None, "there is no token"),
        (["--host", "10.0.0.1"], None, "there is no token"),
        (["--host", "somewhere.example"], None, "there is no token"),
        (["--host", "0.0.0.0"], "short", "no usable token"),
        (["--host", "0.0.0.0"], "", "no usable token"),
        (["--token-file", "/nowhere/token"], None, "can't be read"),
        (["--host", "256.0.0.1"], TOKEN, "can't be listened on"),
        (["--workers", "0"], None, "--workers"),
    ],
)
@pytest.mark.parametrize("command", [["serve"], ["mcp", "--http"]])
def test_it_refuses_to_start(
    command: list[str], options: list[str], token: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: pytest.fail("it serves"))
    done = CliRunner().invoke(cli, [*command, "--port", "0", *options], env={"MBRIDGE_ADVISOR_TOKEN": token})
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mbridge_advisor.cli.serve"], "find_spec", lambda name: None)
    for command in ("serve", "mcp"):
        done = CliRunner().invoke(cli, [command])
        assert done.exit_code == 2
        assert "pip install 'mbridge-advisor[" in done.output
