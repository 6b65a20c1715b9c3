"""The container's command, started as KFP's launcher does: whom it tells what, and what it does when it is ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home
from drivetrain.pipelines.kubeflow import pod
from drivetrain.pipelines.kubeflow.manifests import ExecutorInput, local_path
from drivetrain.pipelines.launcher import run_records as records
from drivetrain.pipelines.launcher.flow import Flow
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.launcher.runs import open_run
from drivetrain.tests.pipelines.kubeflow.pods import PARTS, Image, Pod

PIPELINE = """
import drivetrain as dt
from shop.parts import Check, Double, Fails, Login, Make

@dt.pipeline
def shop(count: int = 3, how: str = "crash") -> None:
    made = Make.options(cache=False)(count=count)
    Check(made, limit=5)
    doubled = Double(made)
    other = Make.options(id="Other")(count=count)
    Fails.options(retries=2, backoff=1, timeout=2 if {timed} else None)(other, how=how)
    Login(token=dt.secret("SHOP_TOKEN"))
    with dt.when(made.total > 3):
        Double.options(id="Again")(doubled)
"""
Make = Callable[..., Image]


@pytest.fixture
def image(project: Callable[..., Path], tmp_path: Path) -> Make:
    def make(timed: bool = False, pipeline: str = PIPELINE, **parameters: object) -> Image:
        folder = project(pipeline=pipeline.replace("{timed}", str(timed)), parts=PARTS)
        return Image(folder, tmp_path, parameters=parameters)

    return make


def _told(image: Image, task: str) -> tuple[str, str]:
    """What the store says of a task: its newest execution's state and reason."""
    home = image.home()
    try:
        execution = Flow(home.store, open_run(home, image.run)).execution(task)
        assert execution is not None
        return execution.state, str(execution.properties["reason"])
    finally:
        home.close()


def _count(image: Image, task: str) -> int:
    home = image.home()
    try:
        context = home.store.find_context("node", f"shop.{task}")
        return len(home.store.executions(context=context)) if context else 0
    finally:
        home.close()


def _made(image: Image, node: str = "Make") -> Pod:
    pod = image.start("--node", node, outputs=("numbers--total",), artifacts=("numbers",))
    assert pod.end() == 0, pod.err
    return pod


def test_kfp_is_told_by_a_manifest_and_by_parameters(image: Make) -> None:
    shop = image()
    pod = _made(shop)
    assert "making 3" in pod.out
    assert pod.output["parameterValues"] == {"numbers--total": [3]}
    manifest = pod.manifest("numbers")
    (artifact,) = manifest["artifacts"]
    assert (manifest["state"], manifest["task"], manifest["run"]) == ("COMPLETE", "Make", shop.run)
    assert artifact["address"].startswith("file://")
    payload = Path(artifact["address"].removeprefix("file://"))
    assert (payload / "content" / "total.txt").read_text() == "3"
    (told,) = pod.output["artifacts"]["numbers"]["artifacts"]
    home = shop.home()
    execution = Flow(home.store, open_run(home, shop.run)).execution("Make")
    assert execution is not None
    assert told["metadata"]["drivetrain_execution"] == execution.uid
    assert told["metadata"]["fingerprint"] == artifact["fingerprint"]
    home.close()


def test_another_version_in_the_image_is_told_before_anything_is_done(image: Make) -> None:
    shop = image()
    pod = shop.start("--node", "Make", digest="0" * 64)
    assert pod.end() == 1
    assert "the image holds another version of shop" in pod.err
    assert "fix: build the image from the sources that were compiled" in pod.err
    assert not shop.root.exists()


@pytest.mark.slow
def test_a_veto_is_no_failure_and_holds_back_what_waits_for_it(image: Make) -> None:
    shop = image(count=7)
    _made(shop)
    gate = shop.start("--node", "Check", outputs=("drivetrain-passed",), artifacts=("verdict",))
    assert gate.end() == 0
    assert gate.output["parameterValues"] == {"drivetrain-passed": False}
    held = shop.start("--node", "Double", outputs=("numbers--total",), artifacts=("numbers",))
    assert held.end() == 0
    assert held.output["parameterValues"] == {"numbers--total": []}
    assert held.manifest("numbers")["state"] == "BLOCKED"
    assert _told(shop, "Double")[0] == "BLOCKED"
    close = shop.start("--leave", status={"state": "SUCCEEDED"})
    assert close.end() == 1
    assert _told(shop, "Login")[0] == "CANCELED"  # its pod never started
    assert "its pod never started" in close.out


@pytest.mark.slow
def test_what_was_pruned_is_recorded_when_the_run_is_left(image: Make) -> None:
    plain = "".join(
        line + "\n" for line in PIPELINE.splitlines() if not any(part in line for part in ("Login(", "Fails.", "Other"))
    )
    shop = image(pipeline=plain)
    _made(shop)
    for task in ("Check", "Double"):
        assert shop.start("--node", task, artifacts=("numbers", "verdict")).end() == 0
    assert shop.start("--leave").end() == 0
    assert _told(shop, "Again") == ("SKIPPED", "Make.total > 3 is false")
    home = shop.home()
    assert open_run(home, shop.run).state == "COMPLETE"
    home.close()


@pytest.mark.slow
def test_pods_that_come_at_once_make_one_run(image: Make) -> None:
    shop = image()
    digest = shop.digest
    pods = [shop.start("--node", "Make", digest=digest, artifacts=("numbers",)) for _ in range(3)]
    assert [pod.end() for pod in pods] == [0, 0, 0]
    home = shop.home()
    assert [context.name for context in home.store.contexts("run")] == [shop.run]
    assert len({pod.manifest("numbers")["execution"] for pod in pods}) == 1
    home.close()
    assert _count(shop, "Make") == 1  # though its cache is off: the others find what the first published


@pytest.mark.slow
def test_a_failure_is_told_with_its_trace_and_tried_again_as_the_launcher_would(image: Make) -> None:
    shop = image()
    _made(shop, "Other")
    for attempt in range(3):
        pod = shop.start("--node", "Fails", environment={"KFP_RETRY_INDEX": str(attempt)})
        assert pod.end() == 1
        assert "ValueError: told to fail" in pod.err
        assert 'parts.py", line' in pod.err
    state, reason = _told(shop, "Fails")
    assert (state, reason.partition("parts.py:")[2][-25:]) == ("FAILED", " ValueError: told to fail")
    assert _count(shop, "Fails") == 3
    assert "attempt 3" in pod.out


@pytest.mark.slow
def test_what_the_user_is_to_mend_is_not_tried_again(image: Make) -> None:
    shop = image(how="user")
    _made(shop, "Other")
    for attempt in range(2):
        pod = shop.start("--node", "Fails", environment={"KFP_RETRY_INDEX": str(attempt)})
        assert pod.end() == 1
        assert "mend your count" in pod.err
    assert _count(shop, "Fails") == 1
    again = shop.start("--node", "Fails")  # `retry` in KFP: a new pod, from the beginning
    assert again.end() == 1
    assert _count(shop, "Fails") == 2


@pytest.mark.slow
def test_an_attempt_that_published_and_could_not_say_so_is_not_repeated(image: Make) -> None:
    shop = image()
    first = _made(shop)
    before = first.output
    (first.place / "output.json").unlink()
    pod = shop.start(
        "--node", "Make", outputs=("numbers--total",), artifacts=("numbers",), environment={"KFP_RETRY_INDEX": "1"}
    )
    assert pod.end() == 0
    assert pod.output == before
    assert _count(shop, "Make") == 1


@pytest.mark.slow
def test_the_death_of_the_work_is_recorded(image: Make) -> None:
    shop = image(how="killed")
    _made(shop, "Other")
    pod = shop.start("--node", "Fails")
    assert pod.end() == 1
    state, reason = _told(shop, "Fails")
    assert (state, "SIGKILL" in reason, "out of memory" in reason) == ("FAILED", True, True)


@pytest.mark.slow
def test_a_timeout_is_kept(image: Make) -> None:
    shop = image(timed=True, how="slow")
    _made(shop, "Other")
    pod = shop.start("--node", "Fails")
    assert pod.end() == 1
    assert _told(shop, "Fails") == ("FAILED", "ran longer than its timeout of 2 s")


@pytest.mark.slow
def test_an_evicted_pod_says_so_before_it_ends(image: Make) -> None:
    shop = image(how="held")
    _made(shop, "Other")
    pod = shop.start("--node", "Fails")
    while not (shop.base / "begun").exists():
        assert pod.process.poll() is None
        time.sleep(0.05)
    pod.process.send_signal(signal.SIGTERM)
    assert pod.end() == 143
    state, reason = _told(shop, "Fails")
    assert (state, reason) == ("CANCELED", "its pod got SIGTERM: it was evicted or deleted, or its run was terminated")
    assert list((shop.root / "records" / shop.run).glob("Fails.*.json"))
    home = shop.home()
    assert not list(home.payloads.staging.glob("*"))
    home.close()


@pytest.mark.slow
def test_a_secret_comes_by_the_environment_and_is_redacted(image: Make) -> None:
    shop = image()
    pod = shop.start("--node", "Login", outputs=("Login",), environment={"SHOP_TOKEN": "sesame-open"})
    assert pod.end() == 0, pod.err
    assert "the token is ***" in pod.out
    everything = [path for path in shop.base.rglob("*") if path.is_file()]
    assert not [path for path in everything if b"sesame-open" in path.read_bytes()]


@pytest.mark.slow
def test_what_is_cloned_in_kfp_is_no_run_that_was(image: Make) -> None:
    """KFP's pages copy all parameters of a run, the id of ours among them, for whoever changes one of them."""
    shop = image()
    pod = shop.start("--node", "Make", artifacts=("numbers",))
    assert pod.end() == 0, pod.err
    clone = replace(shop, kfp_run="0d9f6a30-0000-4000-8000-000000000000")
    clone.parameters = {"drivetrain_run": shop.run, "count": 7}
    pod = clone.start("--node", "Make", artifacts=("numbers",))
    assert pod.end() == 1
    assert f"run {shop.run} has count=3, and KFP's run {clone.kfp_run} has count=7" in pod.err
    assert "leave the parameter drivetrain_run empty" in pod.err
    assert shop.start("--leave", status={"state": "FAILED"}).end() == 1
    clone.parameters = {"drivetrain_run": shop.run, "count": 3}
    pod = clone.start("--node", "Make", artifacts=("numbers",))
    assert pod.end() == 1
    assert f"has ended, as KFP's run {shop.kfp_run}" in pod.err
    assert _count(shop, "Make") == 1


LEAKING = """
from drivetrain.pipelines import Files, SqlQuery

@dt.component
def Leaks(*, data: Files | SqlQuery, token: dt.Secret) -> int:
    print("the database is", os.environ["SHOP_DB"], "the token", token.reveal().replace("\\n", "; "), flush=True)
    raise ValueError(f"{os.environ['SHOP_DB']} does not take {token.reveal()}")
"""


@pytest.mark.slow
def test_no_log_of_a_pod_tells_a_secret(project: Callable[..., Path], tmp_path: Path) -> None:
    """Of the first process of a node, and of another one, as where it has replicas."""
    sqlite3.connect(tmp_path / "open-sesame.db").close()
    url = f"sqlite:///{tmp_path}/open-sesame.db"
    text = (
        "import drivetrain as dt\nfrom shop.parts import Leaks\n\n@dt.pipeline\ndef shop() -> None:\n"
        "    Leaks(data=dt.query('SELECT 1', connection='env:SHOP_DB'), token=dt.secret('SHOP_TOKEN'))\n"
    )
    environment = {"SHOP_TOKEN": "sesame-open\nsesame-close", "SHOP_DB": url}  # as a private key has several lines
    shop = Image(project(pipeline=text, parts=PARTS + LEAKING), tmp_path, environment)
    pod = shop.start("--node", "Leaks")
    assert pod.end() == 1
    words = ["--project", str(shop.folder), "--ir", shop.digest, "--run", shop.run, "--task", "Leaks"]
    other = subprocess.run(
        [sys.executable, "-P", "-m", "drivetrain.pipelines.kubeflow.worker", *words], check=False,
        capture_output=True, text=True, cwd=tmp_path, timeout=240,
        env={**os.environ, "DRIVETRAIN_KUBEFLOW_RUN": shop.kfp_run, "DRIVETRAIN_ROOT": str(shop.root),
             "DRIVETRAIN_PROCESS": "1", **environment},
    )  # fmt: skip
    assert other.returncode == 1
    for said in (pod.out + pod.err, other.stdout + other.stderr):
        # As it is printed, or as the log is left, where as many signs as before stand
        assert re.search(r"the database is \*+ the token \*+; \*+\n", said)
        assert "*** does not take ***" in said
        assert "sesame" not in said


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("gs://bucket/a/b", "/gcs/bucket/a/b"),
        ("s3://bucket/a", "/s3/bucket/a"),
        ("minio://mlpipeline/a", "/minio/mlpipeline/a"),
        ("file:///a/b", "/a/b"),
        ("/a/b", "/a/b"),
    ],
)
def test_manifests_lie_where_kfps_launcher_looks(uri: str, path: str) -> None:
    """The folders are those of `kfp.dsl.types.artifact_types.convert_remote_path_to_local_path`."""
    assert local_path(uri) == Path(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": {}}', '{"outputs": []}'])
def test_an_executor_input_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="--executor-input"):
        ExecutorInput(text)


@pytest.mark.slow
def test_a_store_that_breaks_while_a_pod_works_costs_nothing(image: Make) -> None:
    breaks = """
@dt.component
def Breaks(numbers: Numbers) -> Numbers:
    if not Path("broken").exists():
        Path("broken").touch()
        for path in Path("store").glob("metadata.db*"):
            path.write_bytes(b"no database any more " * 1000)
    return made(5 * numbers.total)
"""
    pipeline = """
import drivetrain as dt
from shop.parts import Breaks, Double, Make

@dt.pipeline
def shop(count: int = 3) -> None:
    Double(Breaks(Make(count=count)))
"""
    shop = image(pipeline=pipeline)
    (shop.folder / "parts.py").write_text(PARTS + breaks)
    store = shop.base / "store"
    shop.environment |= {"DRIVETRAIN_STORE": str(store / "metadata.db"), "DRIVETRAIN_STORE_PATIENCE": "0.01"}
    _made(shop)
    shutil.copytree(store, shop.base / "backup")
    pod = shop.start("--node", "Breaks", artifacts=("numbers",))
    assert pod.end() == 0, pod.err
    assert "the store went away, this pod goes on without it" in pod.out
    after = shop.start("--node", "Double", artifacts=("numbers",))
    assert after.end() == 0, after.err
    assert "the store cannot be reached" in after.out
    shutil.rmtree(store)
    shutil.copytree(shop.base / "backup", store)
    home = Home(shop.root, store=str(store / "metadata.db"))
    assert sorted(records.sync(home, shop.run).brought) == ["Breaks", "Double"]
    flow = Flow(home.store, open_run(home, shop.run))
    assert flow.property("Double", "numbers", "total") == 30
    assert [execution.state for execution in home.store.executions()] == ["COMPLETE"] * 3
    report = fsck(home.store, home.root, repair=True)
    assert (report.missing, report.corrupt) == ((), ())
    assert len(report.orphans) <= 1  # what the broken store was told of as its last word
    home.close()


def test_without_the_store_only_what_asks_for_earlier_runs_is_refused(image: Make) -> None:
    pipeline = """
import drivetrain as dt
from shop.parts import Double, Make, Numbers

@dt.component
def Compare(earlier: Numbers | None) -> int:
    return 0

@dt.pipeline
def shop(count: int = 3) -> None:
    Compare(dt.latest(Numbers))
    Double(Make(count=count))
"""
    shop = image(pipeline=pipeline)
    shop.environment |= {"DRIVETRAIN_STORE": "/dev/null/metadata.db", "DRIVETRAIN_STORE_PATIENCE": "0.01"}
    _made(shop)
    assert shop.start("--node", "Double", artifacts=("numbers",)).end() == 0
    pod = shop.start("--node", "Compare", outputs=("Compare",))
    assert pod.end() == 1
    assert "Compare asks for what earlier runs made, which only the store knows" in pod.err


@pytest.mark.slow
def test_an_attempt_that_kfp_gave_up_and_its_successor_publish_once(image: Make) -> None:
    waits = """
@dt.component
def Waits(numbers: Numbers) -> Numbers:
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    return made(numbers.total)
"""
    pipeline = """
import drivetrain as dt
from shop.parts import Make, Waits

@dt.pipeline
def shop(count: int = 3) -> None:
    Waits.options(cache=False, retries=1)(Make(count=count))
"""
    shop = image(pipeline=pipeline)
    (shop.folder / "parts.py").write_text(PARTS + waits)
    _made(shop)
    first = shop.start("--node", "Waits", artifacts=("numbers",))
    while not (shop.base / "begun").exists():
        assert first.process.poll() is None
        time.sleep(0.05)
    second = shop.start("--node", "Waits", artifacts=("numbers",), environment={"KFP_RETRY_INDEX": "1"})
    log = shop.root / "logs" / shop.run / "Waits.log"
    while "waiting for process" not in log.read_text():
        assert second.process.poll() is None
        time.sleep(0.05)
    (shop.base / "go").touch()
    assert (first.end(), second.end()) == (0, 0)
    assert _count(shop, "Waits") == 1


@pytest.mark.parametrize("node", ["Make", "Again"])
def test_a_pod_has_one_launcher(image: Make, monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    shop = image()
    launchers: list[Launcher] = []
    begin = Launcher.__init__

    def count(self: Launcher, *arguments: Any, **named: Any) -> None:
        launchers.append(self)
        begin(self, *arguments, **named)

    monkeypatch.setattr(Launcher, "__init__", count)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.chdir(shop.base)
    monkeypatch.setenv("DRIVETRAIN_KUBEFLOW_RUN", shop.kfp_run)
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(shop.root))
    for name in ("Make", "Double"):
        if name != node:
            assert shop.start("--node", name).end() == 0
    argv = ["--project", str(shop.folder), "--ir", shop.digest, "--node", node, "--executor-input", shop.given()]
    assert pod.main(argv) == 0
    assert len(launchers) == 1
