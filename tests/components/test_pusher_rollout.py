"""Pushing to a server that has a rollout: the node waits for its steps; what the guard takes back fails the node."""

from __future__ import annotations

import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from drivetrain.components import Pusher
from drivetrain.components.pusher import push
from drivetrain.serving.client import Client, ServerError
from drivetrain.serving.config import read_models
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.components.test_pusher_server import answers_whole, model_of, pushing
from drivetrain.tests.components.test_pusher_server import bundles as bundles
from drivetrain.tests.components.test_pusher_server import workplace as workplace
from drivetrain.tests.serving.bundles import rows_of
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.running import serving
from drivetrain.tests.serving.test_workers import until

pytestmark = pytest.mark.engine

CONFIG = """
models:
  net:
    base_path: served/net
    rollout:
      steps: [{share: 10, minutes: 0.02}, {share: 50, minutes: 0.02}, {share: 100, minutes: 0}]
      guard: {min_requests: 20, window_seconds: 60, p99_ratio: null, p99_seconds: %s, drift: null}
      state: rollouts
"""


@pytest.fixture(autouse=True)
def _decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts of servers in this process are looked at all the time."""
    monkeypatch.setattr("drivetrain.serving.rollout_control.LOOK_SECONDS", 0.05)


# `python -m drivetrain` that does the same in a process of its own.
DECIDES_AT_ONCE = (
    "-c",
    "from drivetrain.console import main; from drivetrain.serving import rollout_control as control;"
    "control.LOOK_SECONDS = 0.05; main()",
)


def serving_models(text: str, poll_seconds: float = 3600) -> AbstractContextManager[OpenServer]:
    """A server of the models of a file."""
    Path("models.yaml").write_text(text)
    return open_server(ServerOptions(poll_seconds=poll_seconds), read_models(Path("models.yaml")))


def candidate(client: Client) -> int | None:
    """The version of which a rollout is under way."""
    version: int | None = (client.traffic()["rollout"] or {}).get("candidate")
    return version


def ask_for(server: OpenServer, action: str) -> None:
    """As an operator does."""
    urllib.request.urlopen(f"{server.rest}/v1/models/net/rollout/{action}", b"").close()


@contextmanager
def asked_all_the_time(address: str) -> Iterator[list[int]]:
    """Requests that name no version, one after the other: the versions that answered, the last after the block."""
    versions: list[int] = []
    ended = threading.Event()
    rows = [{"x": row["x"]} for row in rows_of(9, 4).to_pylist()]

    def ask() -> None:
        with Client(address, "net") as client:
            while not ended.is_set():
                versions.append(client.predict(rows).version)
                time.sleep(0.005)
            versions.append(client.predict(rows).version)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield versions
    finally:
        ended.set()
        thread.join(60)
        assert not thread.is_alive()


def test_a_push_ends_with_the_last_step_and_the_receipt_has_each(workplace: Path, bundles: Path) -> None:
    push(bundles / "1", workplace / "served" / "net")
    with serving_models(CONFIG % "null") as server:
        with asked_all_the_time(server.rest) as versions:
            pushed = Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert set(versions) == {1, 2}
        assert answers_whole(server.rest, {1: 1, 2: 2}) == 2
        facts: Any = pushed.serving
        assert (facts["before"], facts["after"]) == (1, 2)
        shares = [step["share"] for step in facts["steps"]]
        assert shares == sorted(shares)
        assert set(shares) >= {10.0, 50.0}
        assert any(step["figures"]["candidate"]["requests"] > 0 for step in facts["steps"] if step["figures"])


def test_what_the_guard_takes_back_fails_the_node_and_the_old_version_answers(workplace: Path, bundles: Path) -> None:
    push(bundles / "1", workplace / "served" / "net")
    half = CONFIG.replace("share: 10,", "share: 40,")  # which has its 20 requests soon
    with serving_models(half % "0.0000001") as server:  # which nothing keeps
        with (
            asked_all_the_time(server.rest) as versions,
            pytest.raises(
                ServerError, match=r"the server took version 2 back \(p99_seconds\): 99 of 100 requests took up to"
            ),
        ):
            Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert versions[-1] == 1
        assert answers_whole(server.rest, {1: 1}) == 1
        with pytest.raises(ServerError, match="the server took version 2 back"):  # also when the node runs again
            Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        shutil.rmtree(workplace / "served" / "net" / "2")
        with pytest.raises(ServerError, match="took version 2 back") as caught:
            Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert not (workplace / "served" / "net" / "2").exists()  # nothing is pushed that the server has refused
        assert "POST /v1/models/net/rollout/retry" in str(caught.value)
        urllib.request.urlopen(f"{server.rest}/v1/models/net/rollout/retry", b"").close()
        with asked_all_the_time(server.rest), pytest.raises(ServerError, match="took version 2 back"):
            Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert (workplace / "served" / "net" / "2").exists()  # it was let try once more


def test_another_bundle_under_the_number_of_one_that_failed_takes_over(workplace: Path, bundles: Path) -> None:
    push(bundles / "1", workplace / "served" / "net")
    slow = CONFIG.replace("minutes: 0.02", "minutes: 60")
    with (
        serving_models(slow % "null", poll_seconds=0.1) as server,
        asked_all_the_time(server.rest),
        Client(server.rest, "net") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(Pusher, model_of(bundles, 2), destination="served/net", server=server.rest)
        until(lambda: candidate(client) == 2)
        ask_for(server, "abort")
        with pytest.raises(ServerError, match="the server took version 2 back"):
            first.result(60)
        shutil.rmtree(workplace / "served" / "net" / "2")
        until(lambda: [each["version"] for each in client.status()] == ["1"])
        second = pool.submit(Pusher, model_of(bundles, 3), destination="served/net", server=server.rest)
        until(lambda: candidate(client) == 2)
        for _ in range(2):  # the last step has no minutes
            assert not second.done()
            ask_for(server, "advance")
        assert second.result(60).version == 2
        assert answers_whole(server.rest, {1: 1, 2: 3}) == 2


@pytest.mark.parametrize("rollout", [True, False])
def test_who_was_overtaken_by_another_push_is_told_so(
    workplace: Path, bundles: Path, monkeypatch: pytest.MonkeyPatch, rollout: bool
) -> None:
    monkeypatch.setattr("drivetrain.components.rollout._UNSEEN", 0.3)
    push(bundles / "1", workplace / "served" / "net")
    real = push

    def overtaken(*arguments: Any, **options: Any) -> Any:
        pushed = real(*arguments, **options)
        real(bundles / "3", workplace / "served" / "net")
        return pushed

    with serving_models(CONFIG % "null" if rollout else "models:\n  net: {base_path: served/net}\n") as server:
        with asked_all_the_time(server.rest):
            monkeypatch.setattr("drivetrain.components.pusher.push", overtaken)
            with pytest.raises(ServerError, match=r"(?s)version 3 .*pushed since"):
                Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert answers_whole(server.rest, {1: 1, 3: 3}) in (1, 3)


def test_of_two_pushers_at_a_slow_first_step_the_later_one_goes_on(workplace: Path, bundles: Path) -> None:
    """The earlier one ends by the later one's version, not when the hour of the step is over."""
    push(bundles / "1", workplace / "served" / "net")
    slow = CONFIG.replace("minutes: 0.02", "minutes: 60").replace("share: 10,", "share: 1,")
    with (
        serving_models(slow % "null") as server,
        Client(server.rest, "net") as client,
        ThreadPoolExecutor(2) as pool,
    ):
        first = pool.submit(Pusher, model_of(bundles, 2), destination="served/net", server=server.rest)
        until(lambda: candidate(client) == 2)
        second = pool.submit(Pusher, model_of(bundles, 3), destination="served/net", server=server.rest)
        with pytest.raises(ServerError, match="version 3 was pushed since, and takes over from version 1"):
            first.result(120)
        assert answers_whole(server.rest, {1: 1, 3: 3}) in (1, 3)
        for _ in range(3):
            assert not second.done()
            assert candidate(client) == 3
            ask_for(server, "advance")
        assert second.result(60).version == 3
        assert answers_whole(server.rest, {3: 3}) == 3
        assert client.traffic()["rollout"]["previous"] == 1


def test_a_server_that_is_killed_between_the_steps_goes_on_with_them(workplace: Path, bundles: Path) -> None:
    push(bundles / "1", workplace / "served" / "net")
    (workplace / "models.yaml").write_text(CONFIG % "null")
    arguments = ("--config", "models.yaml", "--poll", "3600")
    with serving(workplace, *arguments, program=DECIDES_AT_ONCE) as first:
        port = first.address.rpartition(":")[2]
        with pushing(bundles / "2", first.address) as process:
            with Client(first.address, "net") as client:
                until(lambda: candidate(client) == 2)
            first.process.kill()
            first.process.wait()
            with serving(workplace, *arguments, "--rest-port", port, program=DECIDES_AT_ONCE) as second:
                with asked_all_the_time(second.address):
                    assert process.wait(120) == 0
                assert answers_whole(second.address, {1: 1, 2: 2}) == 2
