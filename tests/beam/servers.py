"""Beam's runners as servers of this machine, each with its workers, and the options that name them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

FOLDER = Path(os.environ["DRIVETRAIN_BEAM"])  # tests/conftest.py sees to it
JOB_SERVICE = Path(__file__).with_name("job_service.py")
POOL = "apache_beam.runners.worker.worker_pool_main"
Flags = tuple[str, ...]
WORKER_THREADS = "(run_worker_|read_grpc_client_inputs|forward_grpc_outputs|read_log_control_messages|read_state)"
"""What the threads of a worker are called that is part of this process."""
HAS_WORKERS_HERE = pytest.mark.filterwarnings(
    f"ignore:Exception in thread {WORKER_THREADS}:pytest.PytestUnhandledThreadExceptionWarning"
)
"""Of a test with such workers: where their server ends first, they end with an error, which is Beam's way."""
_OPEN = "lang lang.invoke lang.reflect io net nio util util.concurrent util.concurrent.atomic"
# Spark's own list of what it must reach in Java 17.
SPARK_JAVA = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPEN.split()) + tuple(
    f"--add-opens=java.base/sun.{name}=ALL-UNNAMED" for name in ("nio.ch", "nio.cs", "security.action", "util.calendar")
)


def environment(**more: str) -> dict[str, str]:
    """Of a worker pool: it starts `python` from the PATH, which must be this one."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", **more}


@contextlib.contextmanager
def started(*command: str, env: Mapping[str, str] | None = None, log: BinaryIO | None = None) -> Iterator[int]:
    """A process group of our own, ended with all its children; gives its id."""
    out = log or subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=out, stderr=out)
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):  # of its children, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to whoever asks for any."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("localhost", port))
            return port


def wait_for(port: int, pid: int) -> None:
    """Until a process that we started listens."""
    for _ in range(2000):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the process ended"
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port}")


@contextlib.contextmanager
def listening(*command: str, port: int, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """A server that listens; gives the id of its process.

    Workers of its jobs may be threads of this process (LOOPBACK). They end when the server does, some of them with an
    error, and Beam does not wait for them: so that error would be heard in whichever test comes next. Those of a killed
    server that wait for it to come back never end.
    """
    before = set(threading.enumerate())
    try:
        with started(*command, env=env) as pid:
            wait_for(port, pid)
            yield pid
    finally:
        deadline = time.monotonic() + 10
        for thread in set(threading.enumerate()) - before:
            if re.match(WORKER_THREADS, thread.name):
                thread.join(max(0, deadline - time.monotonic()))


@contextlib.contextmanager
def pool(env: Mapping[str, str] | None = None) -> Iterator[Flags]:
    """A worker pool, in which every worker is a process."""
    port = free_port()
    with listening(sys.executable, "-m", POOL, "--service_port", str(port), port=port, env=env or environment()):
        yield "--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"


def endpoint(port: int) -> Flags:
    """Of a job service."""
    return "--runner=PortableRunner", f"--job_endpoint=localhost:{port}"


@contextlib.contextmanager
def portable() -> Iterator[Flags]:
    """Beam's own job service, and a pool of two workers."""
    port = free_port()
    with listening(sys.executable, str(JOB_SERVICE), "--port", str(port), port=port), pool() as workers:
        yield *endpoint(port), *workers, "--direct_num_workers=2"


def prism_command(port: int) -> tuple[str, ...]:
    """What starts Prism."""
    return str(FOLDER / "prism"), "-job_port", str(port), "-serve_http=false", "-log_level", "warn"


@contextlib.contextmanager
def prism() -> Iterator[Flags]:
    """Prism; its workers are threads of whoever submits."""
    port = free_port()
    with listening(*prism_command(port), port=port):
        yield endpoint(port)


@contextlib.contextmanager
def prism_pool() -> Iterator[Flags]:
    """Prism, and a worker pool."""
    with prism() as job, pool() as workers:
        yield *job, *workers


def java_command(name: str, driver: str, port: int, *arguments: str, java: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What starts a job server."""
    # Of a few short jobs, the second compiler and a collector with threads cost more than they gain.
    short = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    classes = (*short, *java, "-cp", f"{FOLDER / name}/*", str(FOLDER / "JobServer.java"), driver)
    ports = ("--job-port", str(port), "--artifact-port", "0", "--expansion-port", "0")
    return "java", *classes, *ports, "--artifacts-dir", str(FOLDER / "staged"), *arguments


def flink_command(port: int) -> tuple[str, ...]:
    """What starts the job server of Flink, which starts a small Flink for each job."""
    driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"
    return java_command("flink", driver, port, "--flink-master", "[local]")


@contextlib.contextmanager
def flink() -> Iterator[Flags]:
    """Flink, and a worker pool."""
    port = free_port()
    with listening(*flink_command(port), port=port), pool() as workers:
        yield *endpoint(port), *workers, "--parallelism=2"


@contextlib.contextmanager
def spark() -> Iterator[Flags]:
    """Spark, and a worker pool."""
    port = free_port()
    driver = "org.apache.beam.runners.spark.SparkJobServerDriver"
    command = java_command("spark", driver, port, "--spark-master-url", "local[2]", java=SPARK_JAVA)
    with listening(*command, port=port), pool() as workers:
        yield *endpoint(port), *workers


RUNNERS: Mapping[str, Callable[[], contextlib.AbstractContextManager[Flags]]] = {
    "portable": portable,
    "prism": prism,
    "prism_pool": prism_pool,
    "flink": flink,
    "spark": spark,
}


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Those of a test that needs the runner."""
    found = next((mark for mark in ("prism", "flink", "spark") if name.startswith(mark)), None)
    return [getattr(pytest.mark, found)] if found else []
