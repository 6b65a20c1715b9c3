"""Nothing is sent anywhere: the suite fails where a socket leaves this machine, and no run opens one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ELSEWHERE = ("192.0.2.1", 9)  # of TEST-NET-1, which no machine has
WATCHED = """
import ipaddress, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event.startswith(("socket.connect", "socket.send")) else arguments
        host = address[0] if isinstance(address, tuple) else None  # a path is a socket of this machine
        try:
            here = host in (None, "localhost") or ipaddress.ip_address(host).is_loopback
        except ValueError:
            here = False
        if not here:
            print("LEFT", event, arguments, file=sys.stderr)
            sys.exit(77)

sys.addaudithook(watch)
from drivetrain.console.cli import main
sys.argv = ["drivetrain", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("verb", ["connect", "connect_ex"])
def test_a_socket_that_leaves_this_machine_fails_its_test(verb: str, kind: int) -> None:
    with socket.socket(socket.AF_INET, kind) as opened:
        opened.setblocking(False)
        with pytest.raises(AssertionError, match="a socket left this machine"):
            getattr(opened, verb)(ELSEWHERE)


@pytest.mark.slow
def test_no_verb_asks_another_machine(project: Callable[..., Path], tmp_path: Path) -> None:
    """Python's audit events tell of each name that is looked up and of each connection, in a process of its own."""
    project(
        pipeline="""
        import drivetrain as dt
        from drivetrain.metadata import Artifact

        @dt.component
        def Make() -> Artifact:
            return Artifact.new()

        @dt.pipeline
        def shop() -> None:
            Make()
        """
    )
    for verb in (("run", "shop"), ("show",), ("runs",), ("why", "Make"), ("fsck",), ("doctor",), ("backup",)):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *verb], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
