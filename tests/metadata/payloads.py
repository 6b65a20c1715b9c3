"""A payload to publish, for the tests of wherever it goes."""

from __future__ import annotations

from pathlib import Path

from drivetrain.metadata import Payloads


def staged(payloads: Payloads, text: str = "hello", uid: str = "uid", key: str = "out") -> Path:
    """A staged output with a file in a folder, an empty one, and a report beside the content."""
    path = payloads.stage("Node", uid, key)
    (path / "content" / "deep").mkdir()
    (path / "content" / "deep" / "file.txt").write_text(text)
    (path / "content" / "empty.txt").write_bytes(b"")
    (path / "extra").mkdir()
    (path / "extra" / "report.html").write_text("<p>")
    return path
