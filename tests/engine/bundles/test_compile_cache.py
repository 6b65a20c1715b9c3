"""Executables are kept where only this user can write, and used by the next process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.engine import keep_compiled
from drivetrain.engine._user_cache import cache_home
from drivetrain.engine.bundles.compile_cache import compiled_kept
from drivetrain.errors import InputError
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
