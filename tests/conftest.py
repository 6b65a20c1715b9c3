"""What every test relies on: no skip of what is required, no socket beyond loopback, no library phoning home, no cache
of the user's, no runs beside the repository."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import ipaddress
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A timing is never a test: on a busy machine an example may take any time, to draw it too.
settings.register_profile("drivetrain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("drivetrain")

# What DRIVETRAIN_REQUIRE may name, and a module that proves it is there. Tests carry the first five as markers.
NEEDS = {
    "beam": "apache_beam", "engine": "jax", "gx": "great_expectations", "postgres": "psycopg",
    "gpu": "jax",
    "analysis": "sklearn", "avro": "fastavro", "cloud": "fsspec", "images": "PIL", "kafka": "confluent_kafka",
    "kubeflow": "cel", "notebook": "papermill", "onnx": "onnx",
    "pandas": "pandas", "s3": "moto", "sql": "duckdb", "tfrecord": "google_crc32c",
    "tensorboard": "tensorboardX", "tuning": "optuna",
}  # fmt: skip
REQUIRED = {name for name in os.environ.get("DRIVETRAIN_REQUIRE", "").split(",") if name}

os.environ.update(GX_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1", JAX_PLATFORMS=os.environ.get("JAX_PLATFORMS", "cpu"))

# Where nobody has set this, modules are compiled once and not by each of thousands of child processes; the tests too,
# which pytest rewrites first, and not by each worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts what runs in its background deaf to Ctrl-C, and children inherit it: its tests would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Beam's runners that are not Python lie in the user's cache, where .ci/beam/fetch has put them.
_USERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FETCHED = Path(os.environ.setdefault("DRIVETRAIN_BEAM", str(_USERS / "drivetrain" / "beam" / "2.77.0")))
FETCHES = ("prism", "flink", "spark")  # tests carry these as markers too

# Set as this file is read, so that no module has looked yet; child processes get it too.
_CACHE = tempfile.TemporaryDirectory(prefix="drivetrain-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name


# Stores and artifacts are written to the disk at each step, and tests would wait for that most of their time. What they
# write they read again, so it may lie in memory. Those of a test that passed go with it, and so they stay few.
_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30


def _holds_programs(folder: Path) -> bool:
    """Whether a folder has room for what tests write, and programs of theirs may run there."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        return free >= _ROOM and os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return False


if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _holds_programs(_MEMORY):
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)  # workers get it too


# Nor does a run that a test starts without a word of where go to the repository's runs, or to the user's.
_ROOTS = tempfile.TemporaryDirectory(prefix="drivetrain-roots-")
_COUNTER = itertools.count()
os.environ["DRIVETRAIN_ROOT"] = str(Path(_ROOTS.name) / ".drivetrain")


def pytest_unconfigure() -> None:
    """Remove the cache and the roots of this session."""
    _CACHE.cleanup()
    _ROOTS.cleanup()


# Collecting makes little that dies (see pytest_collection_finish): to look for it is a fifth of the collection's time.
gc.disable()


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays: the tests themselves and the libraries they import.

    JAX, Beam and 11,000 test items are millions of objects that live to the end, and each full collection looks at all
    of them: a tenth of the suite's time. What of them is dead stays with the rest: to look for it takes longer than it
    is large.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def pytest_configure() -> None:
    """What is required must be there: a whole module that skips itself would leave no test to fail."""
    missing = [NEEDS[name] for name in sorted(REQUIRED & NEEDS.keys()) if importlib.util.find_spec(NEEDS[name]) is None]
    if missing:
        raise pytest.UsageError(f"DRIVETRAIN_REQUIRE needs {', '.join(missing)}, which is not installed")
    missing = [name for name in FETCHES if name in REQUIRED and not (FETCHED / name).exists()]
    if missing:
        raise pytest.UsageError(
            f"DRIVETRAIN_REQUIRE needs {', '.join(missing)}: run .ci/beam/fetch {' '.join(missing)}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Has each worker begin elsewhere in a folder.

    Workers collect at once. In a new checkout each would rewrite and compile the same file at the same moment; so it
    finds most of its files done by another.
    """
    report = yield
    if isinstance(collector, pytest.Directory):
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        start = len(report.result) * worker // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        report.result = report.result[start:] + report.result[:start]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs an extra that is not installed.

    Begin with the files of the longest tests, by their timeouts, and of the others with those of many tests. In
    whatever order a worker collected them, this is the same.
    """
    longest: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), mark.args[0] if mark else 0.0)
    many = Counter(item.path for item in items)
    items.sort(key=lambda item: (-longest[item.path], -many[item.path], item.path))
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        for name in markers & NEEDS.keys():
            if importlib.util.find_spec(NEEDS[name]) is None:
                item.add_marker(pytest.mark.skip(reason=f"{NEEDS[name]} is not installed"))
        for name in markers.intersection(FETCHES):
            if not (FETCHED / name).exists():
                item.add_marker(pytest.mark.skip(reason=f"there is no {name}: make beam"))
        if "prism" in markers:
            from drivetrain.tests.beam.servers import HAS_WORKERS_HERE

            item.add_marker(HAS_WORKERS_HERE)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where JAX has none; it is only asked where such a test is about to run."""
    if item.get_closest_marker("gpu"):
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip(f"JAX has no GPU here (JAX_PLATFORMS={os.environ['JAX_PLATFORMS']}): make test-gpu")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip of something that DRIVETRAIN_REQUIRE names is a failure."""
    report = yield
    if not report.skipped or hasattr(report, "wasxfail"):
        return report
    markers = {marker.name for marker in item.iter_markers()}
    # What also needs a runner of Beam's that pip does not bring is required where that is.
    names = REQUIRED & markers if markers.intersection(FETCHES) <= REQUIRED else set()
    if names:
        report.outcome = "failed"
        report.longrepr = f"skipped, but DRIVETRAIN_REQUIRE names {', '.join(sorted(names))}: {report.longrepr}"
    return report


def pytest_runtest_teardown() -> None:
    """A secret of a test is redacted in it alone."""
    redaction: Any = sys.modules.get("drivetrain.redaction")
    if redaction is not None:
        redaction._secrets = frozenset()


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """A connection to anywhere but this machine is an error."""
    real, real_ex = socket.socket.connect, socket.socket.connect_ex

    def check(opened: Any, address: Any) -> None:
        if opened.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0]
            if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
                raise AssertionError(f"a socket left this machine: {address}")

    def connect(self: Any, address: Any) -> None:
        check(self, address)
        real(self, address)

    def connect_ex(self: Any, address: Any) -> int:
        check(self, address)
        return real_ex(self, address)

    socket.socket.connect, socket.socket.connect_ex = connect, connect_ex  # type: ignore[method-assign]
    yield
    socket.socket.connect, socket.socket.connect_ex = real, real_ex  # type: ignore[method-assign]


@pytest.fixture(autouse=True, scope="session")
def _programs_written_in_a_hurry() -> Iterator[None]:
    """Where tests that were collected have imported JAX."""
    if "jax" not in sys.modules:
        yield
        return
    from drivetrain.tests.engine.hurry import mlir_context_kept

    with mlir_context_kept():
        yield


@pytest.fixture(autouse=True)
def _root_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the runs of a test lie that names no root: `.drivetrain` in its temporary folder, if it asks for one.

    A test of the search for the root unsets the variable.
    """
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
    else:  # nothing is created: most tests run nothing
        folder = Path(_ROOTS.name) / str(next(_COUNTER))
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(folder / ".drivetrain"))


@pytest.fixture(scope="module")
def programs_compiled_once() -> Iterator[None]:
    """Has child processes keep what XLA made: the same program of the same machine. A damaged entry is made anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(Path(os.environ["XDG_CACHE_HOME"]) / "jax"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        yield


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small project: `project("shop", pipeline="...", parts="...")` gives its folder."""

    def write(name: str = "shop", **modules: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(textwrap.dedent(text))
        return folder

    return write
