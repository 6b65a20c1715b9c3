"""h2spec, which knows RFC 9113 and RFC 7541 case by case, put to our HTTP/2; Go builds it, through Go's proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("hpack")

from drivetrain.tests.serving.grpc_running import handler_running
from drivetrain.tests.serving.test_http2 import Echo

pytestmark = [pytest.mark.h2spec, pytest.mark.slow]

H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built; modules and what was compiled stay in the caches of Go's own user."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    folder = tmp_path_factory.mktemp("h2spec")
    caches = {"GOCACHE": str(Path.home() / ".cache" / "go-build"), "GOBIN": str(folder)}
    built = subprocess.run(
        [go, "install", H2SPEC], env={**os.environ, **caches}, capture_output=True, text=True, check=False
    )
    if built.returncode and any(sign in built.stderr for sign in ("403 Forbidden", "dial tcp", "no such host", "EOF")):
        pytest.skip(f"the Go proxy does not give h2spec: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return folder / "h2spec"


def test_every_case_passes(h2spec: Path) -> None:
    with handler_running(Echo) as client:
        command = [str(h2spec), "-h", "127.0.0.1", "-p", str(client.port), "--timeout", "10"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in ended.stdout, ended.stdout[-8000:]
    assert ended.returncode == 0
