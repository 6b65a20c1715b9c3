"""`notify`: the verbs, and `schedule run --notify`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.tests.console.test_schedule import schedule
from drivetrain.tests.pipelines.faulty import waits
from drivetrain.tests.pipelines.notifications.receivers import WebReceiver, web_receiver

Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebReceiver]:
    """A receiver that `notifications.yaml` in the working directory names."""
    with web_receiver() as receiver:
        channels = {"pager": {"kind": "webhook", "url": receiver.url}}
        rules = {"all": {"events": ["failed", "recovered"], "channels": "pager", "wait": "0s", "window": "0s"}}
        (tmp_path / "notifications.yaml").write_text(json.dumps({"channels": channels, "rules": rules}))
        yield receiver


def test_told_tried_and_listed(shop: Path, web: WebReceiver, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("notify", "test", "pager").stdout == "sent a sample to pager\n"
    assert last_json(drivetrain("notify", "test", "pager", "--json")) == {
        "channel": "pager",
        "sent": True,
        "remark": "",
    }
    assert [body["subject"] for body in web.bodies] == ["sample failed"] * 2
    web.answers = [500]
    failed = drivetrain("notify", "test", "pager")
    assert (failed.exit_code, "channel pager: the server answered 500" in failed.stderr) == (2, True)
    assert "see that the server works" in failed.stderr
    web.answers = [404]
    assert "fix: correct it in notifications.yaml" in drivetrain("notify", "test", "pager").stderr
    unknown = drivetrain("notify", "test", "pagr")
    assert (unknown.exit_code, "did you mean 'pager'?" in unknown.stderr) == (2, True)
    drivetrain("run", "shop")
    assert "nobody has been told" in drivetrain("notify", "list").stdout
    assert drivetrain("notify", "run", "--once").exit_code == 0
    run = last_json(drivetrain("run", "shop", "--param", "fail=crash", "--json"))["run"]
    web.answers = [404]
    assert "given up after 1 attempts" in drivetrain("notify", "run", "--once").stdout
    drivetrain("run", "shop", "--param", "fail=user")
    assert "told pager: shop failed" in drivetrain("notify", "run", "--once").stdout
    listed = drivetrain("notify", "list").stdout.splitlines()
    assert listed[0] == "all to pager: 0 waiting"
    assert listed[1].endswith("  pager  shop failed  sent")
    assert listed[2].endswith("  pager  shop failed  given up: the server answered 404 Not Found")
    answer = last_json(drivetrain("notify", "list", "--json", "-n", "1"))
    assert answer["outboxes"] == [{"rule": "all", "channel": "pager", "waiting": 0, "attempts": 0}]
    assert [message["is_sent"] for message in answer["messages"]] == [True]
    assert web.bodies[4]["events"][0]["run"] == run


def test_a_file_that_is_wrong_is_refused_before_anything_begins(
    shop: Path, web: WebReceiver, drivetrain: Command, tmp_path: Path
) -> None:
    drivetrain("run", "shop")
    text = (tmp_path / "notifications.yaml").read_text()
    (tmp_path / "notifications.yaml").write_text(text.replace("recovered", "recoverd"))
    for verb in (("notify", "run", "--once"), ("schedule", "run", "--once", "--notify", "notifications.yaml")):
        refused = drivetrain(*verb)
        assert refused.exit_code == 2
        assert "notifications.yaml:1: rules.all.events[1]: there is no event 'recoverd'" in refused.stderr
        assert "did you mean 'recovered'?" in refused.stderr


@pytest.mark.slow
def test_a_scheduler_tells_of_what_it_starts_and_of_what_it_does_not(
    shop: Path, web: WebReceiver, drivetrain: Command, last_json: Read
) -> None:
    schedule(shop, 'on.Schedule(on.Every("1s"), parameters={"fail": "user"})')
    drivetrain("schedule", "register", "shop")
    command = [sys.executable, "-m", "drivetrain", "schedule", "run", "--poll", "0.2", "--notify", "notifications.yaml"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        waits(lambda: any(event["schedule"] == "shop" for body in web.bodies for event in body["events"]))
        drivetrain("schedule", "pause", "shop")
        run = last_json(drivetrain("run", "shop", "--param", "fail=crash", "--json"))["run"]
        waits(lambda: run in web.runs)
    finally:
        process.send_signal(signal.SIGTERM)
        assert "told pager: shop failed" in process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert len(web.runs) == len(set(web.runs))
