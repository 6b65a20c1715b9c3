"""A web server that takes messages, and settings that name it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.tests.pipelines.notifications.receivers import WebReceiver, web_receiver


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def settings(tmp_path: Path, web: WebReceiver) -> Callable[..., Path]:
    """`settings(window="0s")` is a file with a rule `all` of every event to a webhook `pager`, changed so."""

    def write(channels: dict[str, Any] | None = None, **rule: Any) -> Path:
        path = tmp_path / "notifications.yaml"
        every = ["failed", "recovered", "stopped", "approval", "champion"]
        channels = channels or {"pager": {"kind": "webhook", "url": web.url}}
        rules = {"all": {"events": every, "channels": list(channels), "wait": "0s", "window": "0s", **rule}}
        path.write_text(json.dumps({"channels": channels, "rules": rules}))  # JSON is YAML
        return path

    return write
