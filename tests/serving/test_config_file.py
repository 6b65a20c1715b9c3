"""The file of --config while the server runs: what it says is served, and what is wrong with it changes nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from drivetrain.errors import InputError
from drivetrain.serving import config_file
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.config_file import ConfigFile
from drivetrain.serving.manager import ModelManager
from drivetrain.serving.rollout import RampStep, Rollout
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import open_server
from drivetrain.tests.serving.running import serving
from drivetrain.tests.serving.test_workers import ask

ONE = "models:\n  a: {base_path: a}\n"
TWO = ONE + "  b: {base_path: b, labels: {stable: 1}}\n"
GAUGE = "drivetrain_serving_config_last_reload_successful"


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Looked:
    """A file that is looked at, and what was configured by it."""

    def __init__(self, path: Path) -> None:
        path.write_text(ONE)
        self.path = path
        self.file = ConfigFile(path, read_models(path))
        self.configured: list[list[str]] = []
        self.trouble: Exception | None = None

    async def _configure(self, configs: Sequence[ModelConfig]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.configured.append([config.name for config in configs])

    def look(self, text: str | None = None) -> bool:
        """Whether it says what is served, once it holds a text."""
        if text is not None:
            self.path.write_text(text)
        asyncio.run(self.file.look(self._configure))
        return self.file.is_served


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(tmp_path / "models.yaml")


def test_what_changes_is_configured_once(looked: Looked) -> None:
    assert looked.look()
    assert looked.look(ONE + "# a remark\n")
    assert looked.configured == []
    assert looked.look(TWO)
    assert looked.look()
    assert looked.configured == [["a", "b"]]
    assert looked.look(ONE)
    assert looked.configured == [["a", "b"], ["a"]]


def test_a_change_between_reading_and_the_first_look_is_seen(looked: Looked) -> None:
    assert looked.look(TWO)
    assert looked.configured == [["a", "b"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [", "models.yaml"),
        ("", "is empty"),
        ("models:\n  a: {base_path: a, verions: all}\n", "verions"),
        ("models:\n  a: {base_path: nowhere/deep/a}\n", "there is no folder"),
        ("models:\n  a: {base_path: a, request_log: {folder: log}}\n", "changes request_log of model 'a'"),
        (ONE + "  b: {base_path: b, require_signed: key.pub}\n", "changes require_signed of model 'b'"),
        (b"\xff\xfe", "cannot be read"),
        (None, "cannot be read"),
    ],
    ids=["yaml", "empty", "key", "folder", "log", "signed", "bytes", "gone"],
)
def test_what_is_wrong_changes_nothing_and_is_said_once(
    looked: Looked, caplog: pytest.LogCaptureFixture, text: str | bytes | None, words: str
) -> None:
    if text is None:
        looked.path.unlink()
    else:
        looked.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert not looked.look()
    assert not looked.look()
    assert looked.configured == []
    (line,) = caplog.messages
    assert line.startswith("the models stay as they were: ")
    assert words in line
    assert looked.look(TWO)
    assert looked.configured == [["a", "b"]]


@pytest.mark.parametrize(
    ("what", "words"),
    [("pipe", "no such file"), ("folder", "no such file"), ("endless", "no such file"), ("large", "more than 16 MiB")],
)
def test_what_is_no_file_of_models_is_neither_waited_for_nor_read_without_end(
    looked: Looked, caplog: pytest.LogCaptureFixture, what: str, words: str
) -> None:
    assert looked.look()
    looked.path.unlink()
    if what == "pipe":
        os.mkfifo(looked.path)
    elif what == "folder":
        looked.path.mkdir()
    elif what == "endless":
        looked.path.symlink_to("/dev/zero")
    else:
        with looked.path.open("wb") as file:
            file.truncate(1 << 40)  # of which the disk holds nothing
    assert not looked.look()
    assert looked.configured == []
    assert words in caplog.text


def test_a_file_that_is_being_written_is_left_until_it_is_whole(looked: Looked) -> None:
    """Its first lines alone are a file of fewer models, and nothing tells it from a whole one."""
    asyncio.run(looked.file.look(looked._configure))

    async def main() -> None:
        watching = asyncio.create_task(looked.file.watch(looked._configure, 0.1))
        for number in range(40):
            looked.path.write_text(f"models:\n  b: {{base_path: b}}\n# {number}\n")
            await asyncio.sleep(0.01)
        looked.path.write_text(TWO)
        while not looked.configured:
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(main())
    assert looked.configured == [["a", "b"]]


def test_a_file_that_changes_while_it_is_read_is_read_again(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> list[ModelConfig]:
        configs = read_models(path)
        if looked.path.read_text() == ONE + "  c: {base_path: c}\n":
            looked.path.write_text(TWO)
        return configs

    monkeypatch.setattr(config_file, "read_models", read)
    looked.look(ONE + "  c: {base_path: c}\n")
    assert looked.configured == []
    assert looked.look()
    assert looked.configured == [["a", "b"]]


def test_a_shells_pipe_is_read_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read, write = os.pipe()
    os.write(write, ONE.encode())
    os.close(write)
    path = Path(f"/dev/fd/{read}")
    file = ConfigFile(path, read_models(path))
    os.close(read)
    asyncio.run(file.look(lambda _: pytest.fail("nothing has changed")))
    assert file.is_served
    assert caplog.messages == []


def test_what_cannot_be_configured_is_tried_again(looked: Looked, caplog: pytest.LogCaptureFixture) -> None:
    looked.trouble = InputError("the disk is full")
    assert not looked.look(TWO)
    assert not looked.look()
    looked.trouble = None
    assert looked.look()
    assert looked.configured == [["a", "b"]]
    assert caplog.text.count("the disk is full") == 1


def test_a_rollout_that_the_file_does_not_have_any_more_ends_and_a_request_that_cannot_say_it_keeps_it(
    tmp_path: Path,
) -> None:
    def config(state: str) -> ModelConfig:
        return ModelConfig("a", str(tmp_path / "a"), rollout=Rollout((RampStep(10),), str(tmp_path / state)))

    async def main() -> None:
        plain = ModelConfig("a", str(tmp_path / "a"))
        manager = ModelManager([config("rollouts")], poll_seconds=0)
        await manager.reload([plain])
        assert manager.configs() == [config("rollouts")]
        await manager.configure([plain])
        assert (manager.configs(), await manager.rollout_statuses()) == ([plain], [])
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="cannot be kept in"):
            await manager.configure([config("file"), ModelConfig("b", str(tmp_path / "b"))])
        assert manager.configs() == [plain]  # nothing half
        await manager.stop()

    asyncio.run(main())


def test_a_server_takes_the_file_over(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(ONE)

    def gauge(server: Any) -> str:
        text = server.ask("GET", "/metrics")[2].decode()
        return str(next(line for line in text.splitlines() if line.startswith(GAUGE)))

    options = ServerOptions(poll_seconds=0, config=path, config_poll_seconds=0.05)
    with open_server(options, read_models(path)) as server:
        assert server.ask("GET", "/v1/models")[2] == {"models": ["a"]}
        path.write_text("models: [")
        until(lambda: gauge(server) == f"{GAUGE} 0.0")
        assert server.ask("GET", "/v1/models")[2] == {"models": ["a"]}
        path.write_text(TWO)
        until(lambda: server.ask("GET", "/v1/models")[2] == {"models": ["a", "b"]})
        until(lambda: gauge(server) == f"{GAUGE} 1.0")
    with open_server(ServerOptions(poll_seconds=0)) as server:
        assert GAUGE not in server.ask("GET", "/metrics")[2].decode()


@pytest.mark.slow
@pytest.mark.engine
def test_all_workers_take_it_over_by_default(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(ONE)
    with serving(tmp_path, "--config", "models.yaml", "--workers", "2") as server:
        path.write_text(TWO)
        until(lambda: all(ask(server, "/v1/models", None)[1] == {"models": ["a", "b"]} for _ in range(12)))
        path.write_text("models: {}")
        until(lambda: f"{GAUGE} 0.0" in ask(server, "/metrics", None)[1])
        assert "has no model" in server.log.read_text()
        assert {*ask(server, "/v1/models", None)[1]["models"]} == {"a", "b"}
