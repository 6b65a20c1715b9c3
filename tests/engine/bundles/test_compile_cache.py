"""Executables are kept where only this user can write, and used by the next process."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from drivetrain.engine import keep_compiled
from drivetrain.engine._user_cache import cache_home
from drivetrain.engine.bundles import compile_cache
from drivetrain.engine.bundles.compile_cache import compiled_kept
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.tests.fixtures.bundles.make import build, flights

pytestmark = pytest.mark.engine

PROCESS = """
import json, sys
from drivetrain.engine import Bundle, keep_compiled
import jax
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
jax.numpy.zeros(3) + 1  # compiled before the folder is known
folder = keep_compiled()
found = Bundle.load(sys.argv[1]).run_row("predict", json.loads(sys.argv[2]))
print(json.dumps({"folder": str(folder), "probability": found["probability"],
                  "hits": sum(event.endswith("/cache_hits") for event in seen)}))
"""


@pytest.mark.slow
def test_the_next_process_compiles_nothing_anew(tmp_path: Path) -> None:
    build(tmp_path / "made")
    row = json.dumps(dict.fromkeys(flights(1, 1).column_names))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def process() -> dict[str, Any]:
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "made" / "model"), row]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    first, second = process(), process()
    assert first["hits"] == 0 < second["hits"]
    assert first["probability"] == second["probability"]
    folder = Path(first["folder"])
    assert folder == Path(second["folder"])
    assert folder.is_relative_to(tmp_path / "cache" / "drivetrain" / "compiled")
    assert list(folder.iterdir())
    for place in (folder, folder.parent):
        assert place.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(InputError, match="open is open to others"):
        keep_compiled(tmp_path / "open")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="link is open to others"):
        keep_compiled(tmp_path / "link")
    assert list((tmp_path / "mine").iterdir()) == []


def zstandard_compressed(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    compressed: bytes = zstandard.ZstdCompressor().compress(data)
    return compressed


WRITER = """
import json, sys, warnings
from pathlib import Path
import jax
import numpy as np
from drivetrain.engine import keep_compiled
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event.rsplit("/", 1)[-1]))
keep_compiled(Path(sys.argv[1]))
print("ready", flush=True)
input()
x = np.linspace(0, 1, 64, dtype=np.float32)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    values = [float(jax.jit(lambda x, n=n: (x * n).sum())(x)) for n in range(8)]
print(json.dumps({"values": values, "hits": seen.count("cache_hits"), "said": [str(each.message) for each in said]}))
"""


@pytest.mark.slow
def test_two_write_at_once_and_a_torn_executable_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def start() -> subprocess.Popen[str]:
        pipe, command = subprocess.PIPE, [sys.executable, "-c", WRITER, str(folder)]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

    def results(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
        for process in processes:  # all are ready before any begins
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        answers = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            out, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors
            answers.append(json.loads(out))
        return answers

    expected = [pytest.approx(32 * n, rel=1e-6) for n in range(8)]
    together = results([start(), start()])
    assert [answer["values"] for answer in together] == [expected, expected]
    entries = sorted(folder.rglob("*-cache"), key=lambda path: path.stat().st_size)
    entries[-1].write_bytes(entries[-1].read_bytes()[:100])  # as where its writer was killed
    after, again = results([start()]) + results([start()])
    assert after["values"] == again["values"] == expected
    assert 0 < after["hits"] < len(entries)
    assert again["hits"] == len(entries)  # it was removed, and is there anew
    assert after["said"] == again["said"] == []


@pytest.mark.parametrize("compress", [zlib.compress, pytest.param(zstandard_compressed, id="zstandard")])
def test_torn_executables_are_removed_once_they_are_looked_at(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "executables"
    folder.mkdir()
    compile_cache._remove_torn(folder)
    whole = compress(os.urandom(4000))
    (folder / "whole-cache").write_bytes(whole)
    (folder / "torn-cache").write_bytes(whole[:-10])
    (folder / "empty-cache").touch()
    (folder / "whole-atime").touch()
    compile_cache._remove_torn(folder)
    assert sorted(path.name for path in folder.glob("*-*")) == ["whole-atime", "whole-cache"]
    (folder / "torn-cache").write_bytes(whole[:-10])
    (folder / "old-cache").write_bytes(whole[:-10])
    os.utime(folder / "old-cache", ns=(0, 0))  # of before it was looked, when it would have been seen
    compile_cache._remove_torn(folder)
    assert sorted(path.name for path in folder.glob("*-cache")) == ["old-cache", "whole-cache"]


def test_what_was_not_used_for_longest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled").mkdir(mode=0o700)
    (tmp_path / "compiled" / "jaxlib-0.0.1-other").mkdir()
    for age in range(10):
        name = "jaxlib-0.0.1-other" if age % 2 else "jaxlib-0.0.2-other"
        (tmp_path / "compiled" / name).mkdir(exist_ok=True)
        path = tmp_path / "compiled" / name / f"{age}-cache"
        path.write_bytes(bytes(2**20))
        os.utime(path, (10**9 - age, 10**9 - age))

    def left() -> list[int]:
        return sorted(int(path.name.partition("-")[0]) for path in tmp_path.rglob("*-cache"))

    monkeypatch.setenv("DRIVETRAIN_COMPILED_GIB", str(4.5 / 1024))
    with compiled_for_a_test():
        keep_compiled(tmp_path / "compiled")
        assert left() == [0, 1, 2, 3]
        monkeypatch.setenv("DRIVETRAIN_COMPILED_GIB", "many")
        with pytest.raises(DrivetrainError, match=r"DRIVETRAIN_COMPILED_GIB is 'many'\n.*GiB as a number"):
            keep_compiled(tmp_path / "compiled")


@contextmanager
def compiled_for_a_test() -> Iterator[None]:
    """JAX is set up afterwards as before."""
    import jax
    from drivetrain.engine.bundles import compile_cache

    before = tuple(getattr(jax.config, option) for option in compile_cache._OPTIONS)
    try:
        yield
    finally:
        compile_cache._configure(before)


@pytest.fixture
def _no_folder_configured() -> Iterator[None]:
    """JAX as in a process in which nothing is kept yet: another test may have begun to."""
    import jax

    option = "jax_compilation_cache_dir"
    configured = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX types no option
    jax.config.update(option, None)  # type: ignore[no-untyped-call]
    yield
    jax.config.update(option, configured)  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("_no_folder_configured")
def test_without_a_folder_to_write_to_the_fix_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()  # as a home that is read-only: nothing can be made below it, by root either
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"drivetrain/compiled cannot be made: .*\n.*set XDG_CACHE_HOME"):
        keep_compiled()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: Path("~no-such-user").expanduser())
    with pytest.raises(InputError, match=r"no home folder to keep a cache in\n.*set XDG_CACHE_HOME"):
        keep_compiled()


@pytest.mark.usefixtures("_no_folder_configured")
def test_a_pass_keeps_what_it_compiles_and_leaves_jax_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    def options() -> list[object]:
        return [value for name, value in sorted(jax.config.values.items()) if "cache" in name]

    def executables() -> list[str]:
        return sorted(path.name for path in tmp_path.rglob("*-cache"))

    def fails() -> None:
        with compiled_kept():
            jax.jit(lambda x: x * 0.73205)(1.0)
            raise KeyError

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = options()
    with pytest.raises(KeyError):
        fails()
    kept = executables()
    assert len(kept) == 1
    assert options() == before
    jax.jit(lambda x: x * 0.41421)(1.0)
    assert executables() == kept


@pytest.mark.usefixtures("_no_folder_configured")
def test_with_a_limit_of_nothing_none_are_kept_or_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DRIVETRAIN_COMPILED_GIB", "0")
    with compiled_kept():
        jax.jit(lambda x: x * 0.26794)(1.0)
        assert jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]  # JAX types no option
    assert not list(tmp_path.rglob("*-cache"))
    monkeypatch.setenv("DRIVETRAIN_COMPILED_GIB", "-1")
    with pytest.raises(DrivetrainError, match="DRIVETRAIN_COMPILED_GIB is '-1'"), compiled_kept():
        pass


@pytest.mark.usefixtures("_no_folder_configured")
def test_a_pass_goes_on_without_a_folder_to_keep_executables_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with compiled_kept():
        assert keep_compiled(tmp_path / "elsewhere").is_dir()


def test_the_suite_and_its_processes_keep_nothing_in_the_users_own_cache() -> None:
    asked = "from drivetrain.engine._user_cache import cache_home; print(cache_home())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=100)
    assert Path(done.stdout.strip()) == cache_home()
    assert not cache_home().is_relative_to(Path.home() / ".cache")


@pytest.mark.slow
@pytest.mark.usefixtures("_no_folder_configured")
def test_a_training_with_another_rate_compiles_its_step_again_unless_the_rate_is_state(
    tmp_path: Path, problem: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/training.md says; what JAX remembers in this process is cleared, as in a new one."""
    import jax
    import optax
    from drivetrain.engine import TrainingRun, nnx_model

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = TrainingRun(problem.SPECS, problem.examples(tmp_path / "content", train=640, evaluation=64), batch_size=64)
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/", 1)[-1]))

    def compiled(optimizer: optax.GradientTransformation) -> int:
        jax.clear_caches()  # type: ignore[no-untyped-call]  # jax leaves it untyped
        events.clear()
        with compiled_kept():
            run.fit(
                nnx_model(problem.build),
                loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
                predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
                optimizer=optimizer,
                label="late",
            )
        return events.count("cache_misses")

    adam = optax.inject_hyperparams(optax.adam)
    assert compiled(optax.adam(0.01)) > 2
    assert compiled(optax.adam(0.01)) == 0
    assert compiled(optax.adam(0.02)) == 1  # the step
    assert compiled(adam(learning_rate=0.01)) > 0
    assert compiled(adam(learning_rate=0.02)) == 1  # the first state, which is compiled without optimisation
