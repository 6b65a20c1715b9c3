"""A run is killed while it uploads to an S3 that is not ours, or its server goes away: nothing lost, nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, list_runs, load_pipeline, resume, run_pipeline
from drivetrain.pipelines.launcher.processes import MARK
from drivetrain.tests.pipelines import faulty
from drivetrain.tests.s3 import S3, bucket, s3, s3_server

__all__ = ["bucket", "s3", "s3_server"]
pytestmark = [pytest.mark.s3, pytest.mark.slow]

COUNT = 12
PARTS = """
    from pathlib import Path
    import os
    import drivetrain as dt
    from drivetrain.pipelines import current

    class Files(dt.Artifact):
        count: int = 0

    @dt.component
    def Write(*, count: int) -> Files:
        with open(current().base / "calls", "a") as calls:
            calls.write("x")
        files = Files.new(count=count)
        for number in range(count):
            (files.content / f"part-{number:02}").write_bytes(os.urandom(1000))
        return files

    @dt.component
    def Read(files: Files) -> int:
        return sum(len(path.read_bytes()) for path in files.content.iterdir())
"""
PIPELINE = f"""
    import drivetrain as dt
    from .parts import Read, Write

    @dt.pipeline
    def shop() -> None:
        Read(Write(count={COUNT}))
"""


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_killed_run_goes_on_with_its_upload(
    s3: S3, bucket: str, tmp_path: Path, project: Callable[..., Path], runner: str
) -> None:
    import fsspec  # type: ignore[import-untyped]

    folder = project("shop", parts=PARTS, pipeline=PIPELINE)
    root, stuck = tmp_path / "home" / ".drivetrain", threading.Event()
    answered: list[str] = []

    def before(request: str) -> int | None:
        if request.startswith("PUT ") and "/part-" in request:
            if len(answered) >= 5:
                stuck.set()
                gone.wait(240)
                return 503
            answered.append(request)
        return None

    gone = threading.Event()
    s3.before = before
    words = ["run", str(folder), "--root", str(root), "--artifacts", bucket, "--runner", runner]
    home = Home(root, artifacts=bucket)
    environment = {**os.environ, MARK: faulty.mark(home)}
    process = subprocess.Popen([sys.executable, "-m", "drivetrain", *words], start_new_session=True, env=environment)
    try:
        assert stuck.wait(120)
        store = fsspec.filesystem("s3", use_listings_cache=False)
        faulty.waits(lambda: len([name for name in store.find(bucket) if "/part-" in name]) >= 5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    faulty.waits(lambda: not faulty.left(home))  # the process runner's children see that it is gone
    s3.before = lambda request: None
    gone.set()
    try:
        assert [run.state for run in list_runs(home)] == ["INTERRUPTED"]
        (begun,) = {each.uri for each in home.payloads.published()}
        assert not home.payloads.present(begun)
        there = {name.rpartition("/")[2] for name in home.payloads.objects.entries(begun)}  # type: ignore[attr-defined]
        assert len(there) >= 5
        s3.asked.clear()
        result = resume(home)
        assert result.state == "COMPLETE"
        assert (root.parent / "calls").read_text() == "x"
        (record,) = result.nodes["Write"].outputs["files"]
        assert record.uri == begun
        assert result.nodes["Read"].outputs["value"][0].properties["value"] == 1000 * COUNT
        sent = [name.rpartition("/")[2] for name in s3.puts() if "/part-" in name]
        assert sorted({*sent} | there) == [f"part-{number:02}" for number in range(COUNT)]
        assert not {*sent} & there
        assert len(sent) == len({*sent})
        report = fsck(home.store, home.root)
        assert report.clean, report.to_dict()
    finally:
        home.close()


def test_a_run_outlives_its_server_for_a_while(
    s3: S3, bucket: str, tmp_path: Path, project: Callable[..., Path]
) -> None:
    pipeline = load_pipeline(project("shop", parts=PARTS, pipeline=PIPELINE))
    home = Home(tmp_path / "home" / ".drivetrain", artifacts=bucket)
    begun = threading.Event()

    def before(request: str) -> None:
        if "/part-" in request:
            begun.set()

    def restart() -> None:
        assert begun.wait(240)
        s3.stop()
        time.sleep(4)
        s3.start()

    s3.before = before
    thread = threading.Thread(target=restart)
    thread.start()
    result = run_pipeline(home, pipeline)
    thread.join()
    assert result.state == "COMPLETE"
    assert fsck(home.store, home.root).clean
    home.close()
