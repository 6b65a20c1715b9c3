"""Bad input and bad luck on the main job: one clear error that names the thing and the fix; nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from drivetrain.tests.examples import flights_job as job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job.sample(tmp_path_factory.mktemp("data") / "flights.csv", 0.02)


def clean(root: Path) -> None:
    report = job.drive("fsck", "--root", str(root)).result
    assert report["missing"] == report["corrupt"] == [], report


def lines(data: Path) -> list[str]:
    return data.read_text().splitlines()


def ragged(data: Path) -> str:
    rows = lines(data)
    rows[1000] += ",one,too,many"
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (None, "no file matches"),
        (lambda data: "", "empty"),
        (lambda data: lines(data)[0] + "\n", "no rows"),
        (ragged, "1001"),
        (lambda data: "\n".join(row.rpartition(",")[0] + "," + row.partition(",")[0] for row in lines(data)[:1])
            + "\n1,2", ""),
    ],
    ids=["missing", "empty", "header-only", "ragged", "torn"],
)  # fmt: skip
def test_a_bad_file_is_one_error_of_the_users(
    data: Path, tmp_path: Path, make: Callable[[Path], str] | None, says: str
) -> None:
    path, root = tmp_path / "bad.csv", tmp_path / ".drivetrain"
    if make:
        path.write_text(make(data))
    done = job.run(root, "--param", f"data={path}")
    assert done.code == 2, (done.code, done.err)
    assert done.states["ExampleGen"] == "FAILED"
    assert says in done.result["nodes"]["ExampleGen"]["reason"]
    assert "bad.csv" in done.result["nodes"]["ExampleGen"]["reason"]
    assert "Traceback" not in done.err
    assert done.states["Trainer"] == "BLOCKED"
    clean(root)


def test_a_column_that_is_all_missing_is_an_anomaly_or_simply_works(data: Path, tmp_path: Path) -> None:
    table = pyarrow.csv.read_csv(data)
    for column, code in (("tailnum", {3}), ("arr_delay", {0, 3})):
        holed = table.set_column(table.schema.get_field_index(column), column, pa.nulls(table.num_rows, pa.string()))
        path, root = tmp_path / f"{column}.csv", tmp_path / column / ".drivetrain"
        pyarrow.csv.write_csv(holed, path)
        done = job.run(root, "--param", f"data={path}", "--param", "epochs=1")
        assert done.code in code, (column, done.code, done.err)
        clean(root)


@pytest.mark.parametrize(
    ("limit", "recovery"),
    [(200_000, "run"), (600_000, "resume"), (2_000_000, "resume")],
    ids=["the store before its run", "the store", "the rows"],
)
def test_a_full_disk_loses_nothing(tmp_path: Path, limit: int, recovery: str) -> None:
    """A limit on file sizes stands for the disk, so that no right to mount is needed; the smaller two hit the store."""
    root = tmp_path / ".drivetrain"
    script = (
        "import resource, runpy, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"sys.argv = ['drivetrain', 'run', {str(job.PROJECT)!r}, '--root', {str(root)!r},"
        " '--json']\n"
        "runpy.run_module('drivetrain', run_name='__main__')\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert out.returncode == 2, out.stderr
    assert "free space" in out.stdout + out.stderr  # where even the failure cannot be recorded, the shell says it
    assert "Traceback" not in out.stderr
    clean(root)
    recorded = job.drive("runs", "--root", str(root)).result["runs"]
    assert len(recorded) == (recovery == "resume"), recorded
    done = job.run(root) if recovery == "run" else job.drive("resume", "--root", str(root))
    assert done.code == 0, done.err
    clean(root)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 24 MB, where we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_really_full_disk_loses_nothing(data: Path, small_disk: Path) -> None:
    root = small_disk / ".drivetrain"
    filler = small_disk / "filler"
    space = os.statvfs(small_disk)
    filler.write_bytes(bytes(space.f_bavail * space.f_frsize - 700_000))  # enough to begin, not to end
    done = job.run(root, "--param", f"data={data}", "--param", "epochs=1")
    assert done.code in (1, 2), (done.code, done.err)
    filler.unlink()
    job.drive("fsck", "--root", str(root), "--repair")
    again = job.run(root, "--param", f"data={data}", "--param", "epochs=1")
    assert again.code == 0, again.err
    clean(root)


def test_two_processes_on_one_store(data: Path, tmp_path: Path) -> None:
    root = tmp_path / ".drivetrain"
    command = job.command("run", str(job.PROJECT), "--root", str(root), "--param", f"data={data}", "--json")
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert job.run(root, "--param", f"data={data}").states["Trainer"] == "CACHED"
    clean(root)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epochs=epochs", "epoch=epochs", "did you mean 'epochs'"),
        ("Evaluator(examples, model", "Evaluator(statistics, model", "takes Examples, not Statistics"),
        ("    ExampleValidator(", "    StatisticsGen(examples)\n    ExampleValidator(", "already is a node"),
    ],
)
def test_a_wrong_pipeline_is_refused_before_anything_runs(tmp_path: Path, old: str, new: str, says: str) -> None:
    project = job.copy_project(tmp_path)
    pipeline = project / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace(old, new))
    root = tmp_path / ".drivetrain"
    out = subprocess.run(
        job.command("run", str(project), "--root", str(root)), capture_output=True, text=True, timeout=300, check=False
    )
    assert out.returncode == 2
    assert says in out.stderr
    assert "pipeline.py:" in out.stderr
    assert "Traceback" not in out.stderr
    assert not (root / "artifacts").exists()
