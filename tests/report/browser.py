"""A headless Chromium over its debugging pipe: open a page, ask it, press keys, take its picture."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str | None:
    """The browser's program: DRIVETRAIN_CHROMIUM, else the first that is installed; None: there is none."""
    return os.environ.get("DRIVETRAIN_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab. What its pages logged, threw or asked of the network is in `complaints` and `requests`."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self._id, self._session = 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded: set[str] = set()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while (found := self._next()).get("id") != self._id:
            pass
        assert "error" not in found, found["error"]
        return dict(found["result"])

    def _next(self) -> dict[str, Any]:
        raw = bytearray()
        while (byte := self._receive.read(1)) != b"\0":
            assert byte, "the browser closed its pipe"
            raw += byte
        message: dict[str, Any] = json.loads(raw)
        method, params = message.get("method", ""), message.get("params", {})
        if method == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def open(
        self, path: Path | str, state: str = "", *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Load a file's page, or this machine's, with a state in its address, in a window of that size; it is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        address = path if isinstance(path, str) else path.as_uri()
        loading = self.call("Page.navigate", url=address + (f"#{state}" if state else ""))["loaderId"]
        while loading not in self._loaded:
            self._next()
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: what comes into view is drawn in the first."""
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))"
        self.ask(frame)

    def ask(self, script: str) -> Any:
        """The JSON value of an expression of JavaScript; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """One key down and up, as from a keyboard."""
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            down = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **down)
        self.settle()

    def picture(self, path: Path) -> None:
        """Write the window as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that reaches nothing beyond this machine; it ends with the block."""
    program = chromium()
    assert program is not None, "there is no Chromium"
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    # The browser reads its file descriptor 3 and writes 4.
    shell = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
    arguments = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", shell, program, *arguments, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            with os.fdopen(to_write, "wb") as send, os.fdopen(from_read, "rb") as receive:
                yield Browser(send, receive)
        finally:
            process.terminate()
            process.wait(120)
