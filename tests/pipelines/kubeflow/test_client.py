"""KFP's real client against a server that keeps what it gets, and fails on demand."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.kubeflow.api_errors import ApiError
from drivetrain.pipelines.kubeflow.client import KfpClient
from drivetrain.pipelines.kubeflow.connection import ApiSettings

from .api_server import KfpServer, Refused, Request, serving

if importlib.util.find_spec("kfp") is None:  # imported late: it takes half a second, in each worker of pytest
    pytest.skip("kfp is not installed", allow_module_level=True)

PACKAGE = """\
pipelineInfo: {name: hello}
schemaVersion: 2.1.0
sdkVersion: drivetrain
components:
  comp-a: {executorLabel: exec-a}
deploymentSpec:
  executors:
    exec-a: {container: {image: x, command: [a]}}
root:
  dag:
    tasks:
      a:
        cachingOptions: {enableCache: true}
        componentRef: {name: comp-a}
        taskInfo: {name: a}
  inputDefinitions:
    parameters:
      epochs: {parameterType: NUMBER_INTEGER}
---
platforms:
  kubernetes:
    deploymentSpec:
      executors:
        exec-a: {nodeSelector: {labels: {gpu: "yes"}}}
"""


@pytest.fixture(autouse=True)
def _no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KF_PIPELINES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server() -> Iterator[KfpServer]:
    with serving(multi_user=True) as found:
        yield found


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "hello.yaml"
    path.write_text(PACKAGE)
    return path


def _client(server: KfpServer, **more: Any) -> KfpClient:
    return KfpClient(ApiSettings(host=server.url, namespace="team", **({"timeout": 60.0} | more)))


def _submit(client: KfpClient, package: Path, **arguments: object) -> str:
    return client.submit(package, name="hello 1", experiment="trials", arguments=arguments).id


def test_a_submitted_run_arrives_whole(
    server: KfpServer, package: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run = _client(server).submit(
        package, name="hello 1", experiment="trials", arguments={"epochs": 3, "drivetrain_run": "r1"},
        service_account="trainer",
    )  # fmt: skip
    sent = server.runs[run.id]
    assert run.state == "PENDING"
    assert run.link == f"{server.url}/#/runs/details/{run.id}"
    assert sent["display_name"] == "hello 1"
    assert sent["service_account"] == "trainer"
    assert sent["runtime_config"]["parameters"] == {"epochs": 3, "drivetrain_run": "r1"}
    spec = sent["pipeline_spec"]["pipeline_spec"]
    assert spec["schemaVersion"] == "2.1.0"
    assert not spec["root"]["dag"]["tasks"]["a"]["cachingOptions"].get("enableCache")  # ours alone
    nodes = sent["pipeline_spec"]["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert nodes["exec-a"]["nodeSelector"]["labels"] == {"gpu": "yes"}
    (experiment,) = server.experiments.values()
    assert (experiment["display_name"], experiment["namespace"]) == ("trials", "team")
    assert capsys.readouterr().out == ""  # kfp prints links, which would spoil --json
    _submit(_client(server), package)
    assert len(server.experiments) == 1


def test_waiting_sees_each_state_and_its_end(server: KfpServer, package: Path) -> None:
    states = iter(["PENDING", "RUNNING", "RUNNING", "CANCELED"])  # kfp's own wait never sees this end

    def advance(run: dict[str, Any]) -> None:
        run["state"] = next(states)

    server.advance = advance
    client, seen = _client(server), []
    run = client.wait(_submit(client, package), seen=lambda run: seen.append(run.state), every=0.01)
    assert seen == ["PENDING", "RUNNING", "RUNNING", "CANCELED"]
    assert run.ended
    server.advance = lambda run: run.update(state="RUNNING")
    with pytest.raises(ApiError, match="still RUNNING after"):
        client.wait(run.id, every=0.02, timeout=0.05)


def test_tasks_are_read_with_their_pods_and_errors(server: KfpServer, package: Path) -> None:
    def advance(run: dict[str, Any]) -> None:
        run["state"] = "FAILED"
        run["error"] = {"code": 13, "message": "one task failed"}
        run["run_details"]["task_details"] = [
            {"task_id": "1", "display_name": "trainer", "state": "FAILED", "child_tasks": [{"pod_name": "hello-1"}],
             "state_history": [{"state": "PENDING"}, {"state": "FAILED", "error": {"message": "OOMKilled"}}]},
            {"task_id": "2", "display_name": "pusher", "state": "PENDING", "parent_task_id": "1",
             "error": {"message": "ImagePullBackOff"}},
        ]  # fmt: skip

    server.advance = advance
    client = _client(server)
    run = client.run(_submit(client, package))
    assert run.error == "one task failed"
    first, second = run.tasks
    assert (first.name, first.pods, first.error) == ("trainer", ("hello-1",), "OOMKilled")
    assert (second.parent, second.error) == ("1", "ImagePullBackOff")


def test_a_run_is_found_by_what_it_was_started_with(server: KfpServer, package: Path) -> None:
    client = _client(server)
    _submit(client, package)
    ids = [server.add_run(drivetrain_run=f"r{n}") for n in range(120)]  # more than a page
    found = client.find("drivetrain_run", "r3")
    assert found is not None
    assert found.id == ids[3]
    assert client.find("drivetrain_run", "r999") is None
    since = client.run(ids[119]).created
    assert client.find("drivetrain_run", "r3", since=since) is None  # it looks no further back than a page


def test_a_gateway_that_gives_up_leaves_open_whether_it_was_done(server: KfpServer, package: Path) -> None:
    """It waited no longer; what stands behind it went on."""
    answer = server.answer

    def late(request: Request) -> dict[str, Any]:
        answered = answer(request)
        if request.method == "POST" and request.path.endswith("/runs"):
            raise Refused(504, "upstream request timeout")
        return answered

    server.answer = late  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="upstream request timeout") as caught:
        _submit(_client(server), package)
    assert caught.value.sent
    assert "whether it was done is not known" in str(caught.value.fix)
    assert len(server.runs) == 1


def test_two_that_make_an_experiment_at_once_both_submit(server: KfpServer, package: Path) -> None:
    answer, others = server.answer, 0

    def beaten(request: Request) -> dict[str, Any]:
        nonlocal others
        answered = answer(request)
        if request.method == "POST" and request.path.endswith("/experiments") and not others:
            others += 1  # made by another, a moment before
            raise Refused(409, "Already exist error: trials")
        return answered

    server.answer = beaten  # type: ignore[method-assign]
    _submit(_client(server), package)
    assert (len(server.experiments), len(server.runs), others) == (1, 1, 1)


def test_a_token_that_is_rotated_while_it_waits(server: KfpServer, package: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("token-of-9am")
    server.token = "token-of-9am"
    client = _client(server, token_file=str(file))
    run, looks = _submit(client, package), 0

    def advance(run: dict[str, Any]) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            file.write_text("token-of-10am")
            server.token = "token-of-10am"
        if looks == 4:
            run["state"] = "SUCCEEDED"

    server.advance = advance
    assert client.wait(run, every=0.01).state == "SUCCEEDED"
    server.token = "token-of-11am"
    with pytest.raises(ApiError, match="does not accept the credentials"):
        client.wait(run, every=0.01)


def test_terminating(server: KfpServer, package: Path) -> None:
    client = _client(server)
    run = _submit(client, package)
    client.terminate(run)
    assert client.run(run).state == "CANCELED"
    with pytest.raises(ApiError, match=r"it has ended \(400\)"):
        client.terminate(run)


def test_recurring_runs(server: KfpServer, package: Path) -> None:
    client = _client(server)
    daily = client.recur(
        package, name="daily", description="d", experiment="trials", arguments={"epochs": 1}, cron="0 0 3 * * *",
        start="2026-12-01T00:00:00Z", max_concurrency=2, no_catchup=True,
    )  # fmt: skip
    assert (daily.cron, daily.state, daily.max_concurrency, daily.no_catchup) == ("0 0 3 * * *", "ENABLED", 2, True)
    assert daily.start is not None
    assert daily.start.year == 2026
    often = client.recur(package, name="often", description="", experiment="trials", arguments={}, every=3600)
    assert (often.cron, often.every) == ("", 3600)
    assert {one.name for one in client.schedules()} == {"daily", "often"}
    client.change_schedule(daily.id, "disabled")
    assert {one.name: one.state for one in client.schedules()} == {"daily": "DISABLED", "often": "ENABLED"}
    client.change_schedule(daily.id, "enabled")
    client.change_schedule(often.id, "deleted")
    assert [(one.name, one.state) for one in client.schedules()] == [("daily", "ENABLED")]
    with pytest.raises(ApiError, match="out of range"):
        client.recur(package, name="x", description="", experiment="trials", arguments={}, every=60, max_concurrency=11)
    with pytest.raises(ApiError, match="above maximum"):
        client.recur(package, name="x", description="", experiment="trials", arguments={}, cron="0 0 0 * * 7")


def test_a_token_goes_with_every_request_and_into_no_error(
    server: KfpServer, package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.token = "s3cret-t0ken"
    monkeypatch.setenv("MY_TOKEN", server.token)
    client = _client(server, token_env="MY_TOKEN", cookies_env="MY_TOKEN")
    _submit(client, package)
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer s3cret-t0ken"}
    assert {request.headers["cookie"] for request in server.requests} == {"s3cret-t0ken"}
    assert "s3cret" not in caplog.text
    (tmp_path / "token").write_text("s3cret-t0ken\n")
    assert _client(server, token_file=str(tmp_path / "token")).schedules() == []
    monkeypatch.setenv("MY_TOKEN", "wr0ng")
    with pytest.raises(ApiError, match=r"does not accept the credentials.*\(401\)") as caught:
        _client(server, token_env="MY_TOKEN").schedules()
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(InputError, match=r"variable OTHER, which .* names, is not set"):
        _client(server, token_env="OTHER")


def test_an_empty_token_file_is_told_of(server: KfpServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(InputError, match=r"api\.token_file .* is empty"):
        _client(server, token_file=str(tmp_path / "token"))


def test_who_is_asked_to_log_in_sees_it(
    server: KfpServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kfp prints where to log in and waits; on standard output, which holds the answer to --json."""

    def asks(client_id: str, *others: object) -> tuple[str, bool]:
        print(f"Please visit https://accounts.example/{client_id}")
        return "iap-token", False

    monkeypatch.setattr("kfp.client.auth.get_auth_token", asks)
    _client(server, iap_client_id="flights")
    told = capsys.readouterr()
    assert (told.out, "https://accounts.example/flights" in told.err) == ("", True)


def test_service_account_tokens_are_kfps_own_affair(server: KfpServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("projected")
    server.token = "projected"
    assert _client(server, service_account_token=str(tmp_path / "token")).schedules() == []


@pytest.mark.parametrize(
    ("status", "reason", "fix"),
    [
        (401, "does not accept the credentials", "token"),
        (403, "does not allow that", "right to edit"),
        (404, "has no such thing", "--host"),
        (409, "it is not so", "another name"),
        (500, "the database is down", "ml-pipeline"),
        (503, "the database is down", "ml-pipeline"),
    ],
)
def test_what_the_server_says_is_one_error_with_a_fix(
    server: KfpServer, package: Path, status: int, reason: str, fix: str
) -> None:
    client = _client(server, retries=1)
    server.faults = [status, status]
    with pytest.raises(ApiError) as caught:
        client.run("abc")
    assert reason in caught.value.message
    assert f"({status})" in caught.value.message
    assert fix in (caught.value.fix or "")
    assert caught.value.status == status


def test_questions_are_asked_again_and_orders_are_not(
    server: KfpServer, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.pipelines.kubeflow.client._BACKOFF", 0.01)
    client = _client(server)
    run = _submit(client, package)
    server.faults = [503, "drop", 500]
    assert client.run(run).id == run
    assert len(server.asked("GET", run)) == 4
    server.faults = [503]
    with pytest.raises(ApiError, match="503"):
        client.terminate(run)
    assert len(server.asked("POST", "terminate")) == 1
    server.faults = ["drop"]
    with pytest.raises(ApiError, match="connection broke") as caught:
        client.terminate(run)
    assert caught.value.sent  # perhaps


def test_an_answer_that_does_not_come(server: KfpServer) -> None:
    server.faults = ["silence", "silence"]
    with pytest.raises(ApiError, match=r"did not answer within 0.05 s") as caught:
        _client(server, timeout=0.05, retries=1).run("abc")
    assert not caught.value.sent


def test_an_answer_to_an_order_that_does_not_come(server: KfpServer, package: Path) -> None:
    client = _client(server)
    rest = client._kfp.runs.api_client.rest_client
    send = rest.request

    def in_a_hurry(method: str, url: str, **more: Any) -> Any:
        if method == "POST":  # and not where the experiment is looked up first
            more["_request_timeout"] = (60.0, 0.1)
        return send(method, url, **more)

    rest.request = in_a_hurry
    server.faults = [None, "silence"]
    with pytest.raises(ApiError, match="did not answer") as caught:
        _submit(client, package)
    assert caught.value.sent
    assert "drivetrain kubeflow status" in (caught.value.fix or "")


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with socket.socket() as deaf:  # and nobody else gets its port
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(ApiError, match="nothing listens there") as caught:
            KfpClient(ApiSettings(host=f"http://127.0.0.1:{deaf.getsockname()[1]}", retries=1)).schedules()
    assert "port-forward" in (caught.value.fix or "")
    assert sum(pauses) < 5  # kfp alone asks five times with five seconds between


def test_a_page_to_log_in_is_no_api(server: KfpServer, package: Path) -> None:
    client = _client(server)
    for ask in (lambda: client.run("abc"), client.schedules, lambda: _submit(client, package)):
        server.faults = ["page"]
        with pytest.raises(ApiError, match="text/html, as a page to log in does"):
            ask()


def test_a_server_without_tls_and_a_host_without_scheme(server: KfpServer) -> None:
    host = server.url.removeprefix("http://")
    with pytest.raises(ApiError, match=r"TLS failed|connection broke"):
        KfpClient(ApiSettings(host=host, namespace="team", retries=0)).schedules()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls_is_checked_against_the_authority_that_is_named(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    kind = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    asked = ["openssl", "req", "-x509", *kind.split(), *names.split(), *files]
    subprocess.run(asked, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(tls=context) as server:
        KfpClient(ApiSettings(host=server.url, ca_cert=str(certificate), timeout=60)).greet()
        KfpClient(ApiSettings(host=server.url, verify_ssl=False, timeout=60)).greet()
        with pytest.raises(ApiError, match="TLS failed") as caught:
            KfpClient(ApiSettings(host=server.url, timeout=60, retries=0)).greet()
        assert "api.ca_cert" in (caught.value.fix or "")
        with pytest.raises(ApiError, match="cannot be asked"):
            KfpClient(ApiSettings(host=server.url, ca_cert=str(tmp_path / "none.pem"), timeout=60, retries=0)).greet()


def test_several_users_need_a_namespace(server: KfpServer) -> None:
    with pytest.raises(ApiError, match="a namespace is required"):
        KfpClient(ApiSettings(host=server.url)).schedules()
    _client(server).greet()
    server.multi_user = False
    with pytest.raises(ApiError, match="no namespace is taken"):
        _client(server).greet()
    KfpClient(ApiSettings(host=server.url)).greet()


def test_no_host_is_one_line(monkeypatch: pytest.MonkeyPatch, server: KfpServer) -> None:
    with pytest.raises(InputError, match="not said where Kubeflow Pipelines answers"):
        KfpClient(ApiSettings())
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    assert KfpClient(replace(ApiSettings(), namespace="team")).schedules() == []


def test_without_kfp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, server: KfpServer) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "kfp.client", None)
    with pytest.raises(Exception, match="kfp is not installed") as caught:
        _client(server)
    assert "drivetrain[kubeflow]" in str(caught.value)
