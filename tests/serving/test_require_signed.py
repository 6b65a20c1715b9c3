"""Only what a key has signed is served, by keys that openssl makes; what else is pushed is refused, with the reason."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("httptools")
pytest.importorskip("cryptography")

from click.testing import CliRunner
from drivetrain.components.pusher import push
from drivetrain.console.cli import cli
from drivetrain.engine import sign_bundle
from drivetrain.errors import InputError
from drivetrain.serving import manager as manager_module
from drivetrain.serving.api import InferenceRequest, ModelRef, RequestError, VersionState
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.manager import ModelManager
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.workers import WorkerSupervisor
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.running import RunningServer, serving

pytestmark = pytest.mark.engine
X = [row["x"] for row in rows_of(9).slice(0, 3).to_pylist()]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks by seed: 1 and 4 signed by `ours`, 2 not signed, 3 signed by `theirs`; and the keys."""
    folder = tmp_path_factory.mktemp("signed")
    for name in ("ours", "theirs"):
        for command in (
            f"ecparam -genkey -name prime256v1 -noout -out {name}.key",
            f"ec -in {name}.key -pubout -out {name}.pub",
        ):
            subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    for seed, key in ((1, "ours"), (2, None), (3, "theirs"), (4, "ours")):
        write_network(folder / str(seed), seed, hidden=8)
        if key is not None:
            sign_bundle(folder / str(seed), folder / f"{key}.key")
    return folder


def serving_signed(folder: Path, key: Path) -> AbstractContextManager[OpenServer]:
    """A server of the model `net` that serves only what a key has signed."""
    return open_server(ServerOptions(poll_seconds=0.05, require_signed=key), [ModelConfig("net", str(folder / "net"))])


def get(server: RunningServer | OpenServer, path: str) -> dict[str, Any]:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("GET", path)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


def statuses(server: RunningServer | OpenServer, model: str = "net") -> dict[int, tuple[str, str]]:
    """State and reason of each version."""
    body = get(server, f"/v1/models/{model}")["model_version_status"]
    return {int(each["version"]): (each["state"], each["status"]["error_message"]) for each in body}


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_last_version_that_is_signed_goes_on(
    signed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = tmp_path / "net"
    push(signed / "1", net)
    with serving_signed(tmp_path, signed / "ours.pub") as server:
        assert statuses(server) == {1: ("AVAILABLE", "")}
        push(signed / "2", net)
        wait_for(lambda: statuses(server).get(2, ("",))[0] == "END")
        assert statuses(server)[2][1] == "version 2 is not signed, and is to be: there is no 2.sig"
        push(signed / "3", net)
        wait_for(lambda: statuses(server).get(3, ("",))[0] == "END")
        assert "3.sig is not a signature of the key of" in statuses(server)[3][1]
        assert statuses(server)[1] == ("AVAILABLE", "")
        assert "version 2: version 2 is not signed" in caplog.text
        push(signed / "4", net)
        wait_for(lambda: statuses(server).get(4) == ("AVAILABLE", ""))
        shutil.copy(net / "1.sig", net / "5.sig")  # of another bundle
        shutil.copytree(net / "2", net / "new")
        (net / "new").rename(net / "5")
        wait_for(lambda: statuses(server).get(5, ("",))[0] == "END")
        assert "is not as it was signed" in statuses(server)[5][1]
        assert statuses(server)[4] == ("AVAILABLE", "")


def changed_statement(path: Path) -> None:
    """What was signed lists a file less; the signature is as it was."""
    body = json.loads(path.read_text())
    statement = json.loads(base64.b64decode(body["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"].pop()
    body["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    path.write_text(json.dumps(body))


def changed_weights(path: Path) -> None:
    """One bit of the weights is another."""
    weights = path.with_suffix("") / "weights" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_weights, r"weights/model\.safetensors does not match its digest"),
        (changed_statement, "is not a signature of the key of"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "is not a signature that can be read"),
        (Path.unlink, "is not signed, and is to be"),
    ],
)
def test_what_is_altered_after_it_was_signed_is_refused(
    signed: Path, tmp_path: Path, change: Callable[[Path], Any], reason: str
) -> None:
    for seed in ("1", "4"):
        push(signed / seed, tmp_path / "net")
    change(tmp_path / "net" / "2.sig")
    configs = [ModelConfig("net", str(tmp_path / "net"))]
    manager = ModelManager(configs, poll_seconds=0, require_signed=signed / "ours.pub")

    async def use() -> None:
        newest, before = manager.statuses(ModelRef("net"))
        assert (newest.version, newest.state, before.state) == (2, VersionState.END, VersionState.AVAILABLE)
        assert re.search(reason, newest.message)

    with_manager(manager, use)


def test_what_is_signed_later_is_served_then(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "_FIRST_RETRY", 0.2)
    push(signed / "2", tmp_path / "net")
    with serving_signed(tmp_path, signed / "ours.pub") as server:
        assert statuses(server)[1][0] == "END"
        assert "is not signed" in get(server, "/v1/models/net/metadata")["error"]
        sign_bundle(tmp_path / "net" / "1", signed / "ours.key")
        wait_for(lambda: statuses(server)[1] == ("AVAILABLE", ""))


def test_workers_and_a_file_of_models_have_keys_too(signed: Path, tmp_path: Path) -> None:
    """A key of each model, from the file's folder on; the option is for those that name none."""
    for model, seed in (("a", "3"), ("b", "3"), ("c", "1")):
        push(signed / seed, tmp_path / "conf" / model)
    shutil.copy(signed / "theirs.pub", tmp_path / "conf")
    text = "models:\n  a: {base_path: a, require_signed: theirs.pub}\n  b: {base_path: b}\n  c: {base_path: c}\n"
    (tmp_path / "conf" / "models.yaml").write_text(text)
    options = ("--config", "conf/models.yaml", "--require-signed", str(signed / "ours.pub"), "--workers", "2")
    with serving(tmp_path, *options) as server:
        for _ in range(8):  # by either worker
            assert statuses(server, "a") == {1: ("AVAILABLE", "")}
            assert statuses(server, "b")[1][0] == "END"
            assert statuses(server, "c") == {1: ("AVAILABLE", "")}


def with_manager(manager: ModelManager, use: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await manager.start()
        try:
            await use()
        finally:
            await manager.stop()

    asyncio.run(run())


def test_no_request_undoes_a_key(signed: Path, tmp_path: Path) -> None:
    push(signed / "2", tmp_path / "unsigned")
    push(signed / "3", tmp_path / "theirs")
    keyed = ModelConfig("a", str(tmp_path / "theirs"), require_signed=str(signed / "theirs.pub"))
    manager = ModelManager([keyed], poll_seconds=0, require_signed=signed / "ours.pub")

    async def use() -> None:
        assert manager.statuses(ModelRef("a"))[0].state is VersionState.AVAILABLE
        await manager.configure([ModelConfig("new", str(tmp_path / "unsigned"))])
        assert "is not signed" in manager.statuses(ModelRef("new"))[0].message
        await manager.configure([ModelConfig("a", str(tmp_path / "unsigned"))])
        assert "is not signed" in manager.statuses(ModelRef("a"))[0].message
        await manager.configure([ModelConfig("a", str(tmp_path / "theirs"))])
        assert manager.statuses(ModelRef("a"))[0].state is VersionState.AVAILABLE

    with_manager(manager, use)


def test_a_version_that_sleeps_is_checked_before_and_when_it_wakes(signed: Path, tmp_path: Path) -> None:
    for model, seed in (("a", "1"), ("b", "4"), ("c", "2")):
        push(signed / seed, tmp_path / model)
    configs = [ModelConfig(name, str(tmp_path / name)) for name in ("a", "b", "c")]
    manager = ModelManager(configs, poll_seconds=0, require_signed=signed / "ours.pub", most_bytes=1)

    async def use() -> None:
        states = {name: manager.statuses(ModelRef(name))[0].state for name in ("a", "b", "c")}
        assert states == {"a": VersionState.AVAILABLE, "b": VersionState.AVAILABLE, "c": VersionState.END}
        answer = await manager.infer(InferenceRequest(ModelRef("a"), None, {"x": X}, len(X)))
        assert len(answer.outputs["score"]) == 3
        shutil.rmtree(tmp_path / "b" / "1")
        shutil.copytree(signed / "2", tmp_path / "b" / "1")  # as whoever may write there could
        with pytest.raises(RequestError, match="is not as it was signed"):
            await manager.infer(InferenceRequest(ModelRef("b"), None, {"x": X}, len(X)))

    with_manager(manager, use)


def test_behind_a_url_the_signature_is_fetched(signed: Path) -> None:
    for seed in ("1", "2", "3"):
        push(signed / seed, "memory://require-signed/net")
    config = ModelConfig("net", "memory://require-signed/net", policy="all")
    manager = ModelManager([config], poll_seconds=0, require_signed=signed / "ours.pub")

    async def use() -> None:
        states = {each.version: (each.state, each.message) for each in manager.statuses(ModelRef("net"))}
        assert states[1] == (VersionState.AVAILABLE, "")
        assert "is not signed" in states[2][1]
        assert "is not a signature of the key" in states[3][1]

    with_manager(manager, use)


def test_a_key_that_is_none_is_refused_at_once(signed: Path, tmp_path: Path) -> None:
    shutil.copy(signed / "ours.key", tmp_path / "ours.key")
    (tmp_path / "models.yaml").write_text("models:\n  a: {base_path: a, require_signed: gone.pub}\n")
    result = CliRunner().invoke(
        cli, ["serve", str(tmp_path), "--rest-port", "0", "--require-signed", str(tmp_path / "ours.key")]
    )
    assert (result.exit_code, "it is a private key" in result.stderr) == (2, True), result.output
    with pytest.raises(InputError, match=r"gone\.pub"):
        ModelManager(read_models(tmp_path / "models.yaml"))
    with pytest.raises(InputError, match=r"gone\.pub"):
        WorkerSupervisor(read_models(tmp_path / "models.yaml"), ServerOptions(workers=2))
