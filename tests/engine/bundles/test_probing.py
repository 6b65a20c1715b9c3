"""Programs that this user has not met are tried in a process of their own; what ends it is one clear error here."""

import os
import random
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from drivetrain.engine import Bundle, BundleError, Limits, refresh_bundle
from drivetrain.engine.bundles import probing
from drivetrain.engine.bundles.child import LimitedChild
from drivetrain.tests.engine.bundles.bundle_fuzz import damaged
from drivetrain.tests.engine.bundles.resealing import reseal
from drivetrain.tests.fixtures.bundles.make import build

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probing") / "made"
    build(folder)
    return folder / "model"


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has met no program; gives the cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(probing, "_tried", set())
    return tmp_path / "cache" / "drivetrain" / "programs"


def interpreter(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> Path:
    """A child that does that and leaves a mark for each time it was started; gives the marks' folder."""
    marks = folder / "marks"
    marks.mkdir()
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ntouch {marks}/$$\n{does}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    return marks


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -SEGV $$", "reading it ends the process (SIGSEGV)"),
        ("kill -ABRT $$", "reading it ends the process (SIGABRT)"),
        ("kill -ALRM $$", "reading it takes longer than 60 s"),
        ("exec sleep 600", "takes longer than 0.1 s"),
        ("echo no room >&2; exit 3", "cannot be tried in a process of its own (exit 3: no room)"),
    ],
)
def test_what_ends_the_child_is_an_error_that_names_the_program(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    if "sleep" in does:  # the others must be given their time
        monkeypatch.setattr(probing, "SECONDS", 0.1)
    interpreter(tmp_path, monkeypatch, does)
    for use in (lambda: Bundle.load(model), lambda: refresh_bundle(model, tmp_path / "out")):
        with pytest.raises(BundleError) as told:
            use()
        assert f"{model}: device/predict-0.stablehlo was changed or is damaged: " in told.value.message
        assert says in told.value.message


@pytest.mark.slow
def test_a_program_is_tried_once_per_user(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Path
) -> None:
    marks = interpreter(tmp_path, monkeypatch, f'exec {sys.executable} "$@"')
    bundle = Bundle.load(model)
    assert len(list(marks.iterdir())) == 1
    (kept,) = stranger.glob("jaxlib-*/*")
    assert kept.name == sha256(bundle.payload.programs["predict-0"]).hexdigest()
    assert stranger.stat().st_mode & 0o777 == 0o700
    Bundle.load(model)
    monkeypatch.setattr(probing, "_tried", set())  # as in the next process
    Bundle.load(model)
    assert len(list(marks.iterdir())) == 1
    kept.unlink()
    monkeypatch.setattr(probing, "_tried", set())
    Bundle.load(model)
    assert len(list(marks.iterdir())) == 2


def test_what_this_user_saved_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Path) -> None:
    marks = interpreter(tmp_path, monkeypatch, "exit 1")
    build(tmp_path / "made")
    monkeypatch.setattr(probing, "_tried", set())
    bundle = Bundle.load(tmp_path / "made" / "model")
    shutil.rmtree(stranger)  # nothing of it is known any more
    monkeypatch.setattr(probing, "_tried", set())
    bundle.save(tmp_path / "again")
    monkeypatch.setattr(probing, "_tried", set())
    Bundle.load(tmp_path / "again")
    assert list(marks.iterdir()) == []


@pytest.mark.slow
def test_a_folder_that_others_can_write_to_is_not_believed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Path
) -> None:
    Bundle.load(model)
    stranger.chmod(0o777)
    monkeypatch.setattr(probing, "_tried", set())
    marks = interpreter(tmp_path, monkeypatch, f'exec {sys.executable} "$@"')
    Bundle.load(model)
    Bundle.load(model)  # this process remembers
    assert len(list(marks.iterdir())) == 1


def test_without_a_folder_of_its_own_each_process_tries(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder can be made below
    marks = interpreter(tmp_path, monkeypatch, f'exec {sys.executable} "$@"')
    Bundle.load(model)
    Bundle.load(model)
    assert len(list(marks.iterdir())) == 1


def test_a_child_reads_and_compiles_many_programs(model: Path) -> None:
    program = (model / "device" / "predict-0.stablehlo").read_bytes()
    many = [program, program[:500], b"", program + b"\0"]
    child = LimitedChild(Limits(200))
    survived = [answer.head["survived"] for answer in child.ask({"do": "try_programs"}, many)]
    child.close()
    assert survived == [sha256(each).hexdigest() for each in many]


SERVER = """
import sys
from pathlib import Path
from drivetrain.engine import Bundle
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.bundle_fuzz import compile_equal_programs_once
from drivetrain.tests.fixtures.bundles.make import flights
compile_equal_programs_once()
table = flights(3, 1)
(batch,) = table.combine_chunks().to_batches()
for folder in sorted(Path(sys.argv[1]).iterdir()):
    try:
        bundle = Bundle.load(folder)
        for name in bundle.signatures:
            bundle.run(name, batch)
            bundle.run_row(name, table.to_pylist()[0])
        print("works")
    except InputError:
        print("refused")
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_damaged_program_ends_the_process_that_loads_it(model: Path, tmp_path: Path) -> None:
    """Its digests in order, as whoever made it would put them. Without the child about one in 500 ends the process."""
    program = (model / "device" / "predict-0.stablehlo").read_bytes()
    for number in range(80, 120):
        folder = shutil.copytree(model, tmp_path / "bundles" / f"{number:03}")
        (folder / "device" / "predict-0.stablehlo").write_bytes(damaged(random.Random(number), program))
        reseal(folder)
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(tmp_path / "bundles")]
    done = subprocess.run(command, capture_output=True, env=os.environ, timeout=800)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-2000:]
    told = done.stdout.decode().split()
    assert len(told) == 40
    assert {"works", "refused"} == set(told)
