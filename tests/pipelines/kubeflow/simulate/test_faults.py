"""Faults of a cluster, caused: pods evicted and killed, a store that cannot be reached, secrets that are not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("cel")

from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, RunOptions, load_pipeline, open_run, run_pipeline
from drivetrain.pipelines.kubeflow.compiler import compile_pipeline
from drivetrain.pipelines.kubeflow.ownership import Submission, hand_over
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference, PodSettings
from drivetrain.pipelines.kubeflow.simulate import (
    Eviction,
    SimulatedCluster,
    SimulatedResult,
    read,
    result_of,
    simulate,
)
from drivetrain.pipelines.launcher import run_records as records
from drivetrain.pipelines.launcher.runs import new_run
from drivetrain.tests.pipelines.kubeflow.pods import PARTS

pytestmark = [pytest.mark.kubeflow, pytest.mark.slow]
AWAY = {"DRIVETRAIN_STORE": "/dev/null/metadata.db", "DRIVETRAIN_STORE_PATIENCE": "0.01"}
"""A SQLite file that nobody can open or make."""
CHAIN = """
import drivetrain as dt
from shop.parts import Check, Double, Make, Scale

@dt.pipeline
def shop(count: int = 3) -> None:
    made = Make(count=count)
    Check(made, limit=100)
    doubled = Double(made)
    dt.map_(lambda n: Scale.options(id="Each")(doubled, by=n), over=[3, 4])
    with dt.when(made.total > 100):
        Double.options(id="Large")(doubled)
    with dt.on_exit() as run:
        Make.options(id="Last")(count=count)
"""
HELD = """
import drivetrain as dt
from shop.parts import Double, Held, Make

@dt.pipeline
def shop() -> None:
    held = Held.options(retries=1, backoff=1)(Make(count=3))
    Double(held)
"""
HELD_PARTS = """
@dt.component
def Scale(numbers: Numbers, *, by: int) -> Numbers:
    return made(by * numbers.total)

@dt.component
def Peeks() -> bool:
    return "SHOP_TOKEN" in os.environ

@dt.component
def Held(numbers: Numbers) -> Numbers:
    import subprocess, sys
    if not Path("go").exists():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)", "grandchild-of-BASE"])
        Path("begun").touch()
        time.sleep(240)
    return made(numbers.total)
"""


class Shop:
    """A project and its home."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.pipeline = load_pipeline(folder)
        self.base = base
        self.home = Home(base / ".drivetrain")
        self.settings = ClusterSettings("registry.example/shop:1", "s3://bucket/shop", KeyReference("shop", "store"))

    def simulate(self, cluster: SimulatedCluster, *, submitted: bool = True, **parameters: object) -> SimulatedResult:
        """Submitted, the run is in the store; else its pods make it."""
        built = self.pipeline.build()
        compiled = compile_pipeline(built, self.settings, project=self.pipeline.project)
        run = None
        if submitted:
            values = self.pipeline.values(parameters)
            run = new_run(self.home, built, self.pipeline.project, values, RunOptions(runner="kubeflow"))
            run = hand_over(self.home, run, Submission())
        document = read((compiled.spec, compiled.platform))
        found = simulate(self.home, document, self.pipeline.project, parameters, run, cluster)
        name = run.id if run else f"kubeflow-{found.kfp_run}"
        if self.home.store.find_context("run", name) is None:
            records.sync(self.home, name)
        return result_of(self.home, name, found)

    def states(self, result: SimulatedResult) -> dict[str, str]:
        return {name: node.state for name, node in result.nodes.items()}

    def fingerprints(self, result: SimulatedResult) -> dict[str, list[str]]:
        return {
            name: [record.fingerprint for several in node.outputs.values() for record in several]
            for name, node in result.nodes.items()
        }


@pytest.fixture
def shop(project: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[[str], Shop]]:
    made: list[Shop] = []

    def make(pipeline: str) -> Shop:
        parts = PARTS + HELD_PARTS.replace("BASE", str(tmp_path))
        made.append(Shop(project(pipeline=pipeline, parts=parts), tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.home.close()


def _whole(shop: Shop, result: SimulatedResult, base: Path) -> None:
    """As if nothing had happened: the inline runner's states and content, every task once, every payload known."""
    home = Home(base / "inline" / ".drivetrain")
    other = run_pipeline(home, shop.pipeline)
    home.close()
    assert shop.states(result) == {name: node.state for name, node in other.nodes.items()}
    assert shop.fingerprints(result) == {
        name: [record.fingerprint for several in node.outputs.values() for record in several]
        for name, node in other.nodes.items()
    }
    run = open_run(shop.home, result.run)
    assert (run.state, other.state) == ("COMPLETE", "COMPLETE")
    executions = shop.home.store.executions(context=run.context)
    assert sorted(str(each.properties["node"]) for each in executions) == sorted(other.nodes)
    report = fsck(shop.home.store, shop.home.root)
    assert report.clean, report.to_dict()
    again = records.sync(shop.home, result.run)
    assert (again.brought, again.ignored) == ((), ())


@pytest.mark.parametrize("task", ["Double", "Each[1]", "Last"])
def test_a_store_that_one_pod_cannot_reach(shop: Callable[[str], Shop], task: str, tmp_path: Path) -> None:
    here = shop(CHAIN)
    result = here.simulate(SimulatedCluster(environment={task: AWAY}))
    assert result.kubeflow.state == "SUCCEEDED"
    (log,) = [ran.log for ran in result.kubeflow.pods if ran.task == task]
    assert "the store cannot be reached, this pod goes on without it" in log.read_text()
    _whole(here, result, tmp_path)


@pytest.mark.parametrize("submitted", [True, False])
def test_a_store_that_no_pod_can_reach(shop: Callable[[str], Shop], submitted: bool, tmp_path: Path) -> None:
    here = shop(CHAIN)
    result = here.simulate(SimulatedCluster(environment={"*": AWAY}), submitted=submitted)
    assert result.kubeflow.state == "SUCCEEDED"
    if submitted:
        assert {node.state for node in result.nodes.values()} == {"CANCELED"}  # the store knows of the run, and no more
        assert open_run(here.home, result.run).state == "RUNNING"
        report = records.sync(here.home, result.run)
        assert sorted(report.brought) == ["Check", "Double", "Each[0]", "Each[1]", "Large", "Last", "Make"]
        result = result_of(here.home, result.run, result.kubeflow)
    _whole(here, result, tmp_path)
    shown = subprocess.run(
        [sys.executable, "-m", "drivetrain", "show", result.run, "--root", str(here.home.root), "--json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    answer = json.loads(shown.stdout)
    assert answer["state"] == "COMPLETE"
    assert answer["nodes"]["Each[1]"]["state"] == "COMPLETE"


@pytest.mark.parametrize("kill", [False, True])
def test_a_pod_that_is_evicted_while_it_works_is_done_again(
    shop: Callable[[str], Shop], kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = shop(HELD)
    begun, go = here.base / "begun", here.base / "go"

    def held() -> bool:
        if begun.exists():
            go.touch()
        return begun.exists()

    monkeypatch.chdir(here.base)
    result = here.simulate(SimulatedCluster(evictions=(Eviction("Held", held, kill),), grace=120.0))
    assert (result.kubeflow.state, result.state) == ("SUCCEEDED", "COMPLETE")
    pods = [(ran.attempt, ran.status) for ran in result.kubeflow.pods if ran.task == "Held"]
    assert pods == [(0, -signal.SIGKILL if kill else 143), (1, 0)]
    run = open_run(here.home, result.run)
    ended = [each for each in here.home.store.executions(context=run.context) if each.properties["node"] == "Held"]
    assert [each.state for each in ended] == ["COMPLETE", "ABANDONED" if kill else "CANCELED"]
    if not kill:
        assert ended[1].properties["reason"].startswith("its pod got SIGTERM: it was evicted")
    assert len(here.home.store.artifacts(context=run.context)) == 3
    report = fsck(here.home.store, here.home.root)
    assert report.clean, report.to_dict()
    _no_grandchildren(here.base)


def test_ctrl_c_ends_pods_and_what_they_started(shop: Callable[[str], Shop]) -> None:
    here = shop(HELD)
    (here.pipeline.project / "kubeflow.yaml").write_text(
        "image: registry.example/shop:1\nartifacts: s3://bucket/shop\nstore: {secret: shop, key: store}\n"
    )
    command = [sys.executable, "-m", "drivetrain", "kubeflow", "simulate", str(here.pipeline.project), "--json"]
    process = subprocess.Popen(command, cwd=here.base, stdout=subprocess.PIPE, text=True)
    while not (here.base / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    answer = json.loads(out.splitlines()[-1])
    assert (answer["state"], answer["kubeflow"]["state"]) == ("CANCELED", "CANCELED")
    assert {name: node["state"] for name, node in answer["nodes"].items()} == {
        "Make": "COMPLETE", "Held": "CANCELED", "Double": "BLOCKED",
    }  # fmt: skip
    assert open_run(here.home, answer["run"]).state == "CANCELED"
    _no_grandchildren(here.base)


def test_what_argo_does_not_start_after_a_failure_is_recorded_as_never_started(shop: Callable[[str], Shop]) -> None:
    here = shop(
        "import drivetrain as dt\nfrom shop.parts import Double, Fails, Make\n\n"
        "@dt.pipeline\ndef shop() -> None:\n"
        "    Fails(Make(count=3), how='crash')\n"
        "    Double(Double.options(id='B')(Double.options(id='A')(Make.options(id='Other')(count=1))))\n"
    )
    result = here.simulate(SimulatedCluster(fail_fast=True, parallel=1))
    assert (result.kubeflow.state, result.state) == ("FAILED", "FAILED")
    assert result.nodes["Fails"].state == "FAILED"
    never = {name for name, node in result.nodes.items() if node.reason == "its pod never started"}
    assert len(never) == 1  # what waits for it is blocked by that
    assert open_run(here.home, result.run).state == "FAILED"


def test_a_secret_of_the_platform_document_reaches_its_pods_alone(
    shop: Callable[[str], Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = shop(
        "import drivetrain as dt\nfrom shop.parts import Login, Peeks\n\n"
        "@dt.pipeline\ndef shop() -> None:\n"
        "    Login(token=dt.secret('SHOP_TOKEN'))\n    Peeks()\n"
    )
    secrets = PodSettings(secrets=(("SHOP_TOKEN", KeyReference("shop", "token")),))
    here.settings = ClusterSettings(
        "registry.example/shop:1", "s3://b/shop", KeyReference("shop", "store"), nodes={"Login": secrets}
    )
    missing = here.simulate(SimulatedCluster())
    assert here.states(missing) == {"Login": "FAILED", "Peeks": "COMPLETE"}
    assert "Kubernetes cannot start the container: the secret SHOP_TOKEN is not set" in [
        ran.reason for ran in missing.kubeflow.pods
    ]
    assert missing.nodes["Login"].reason == "its pod ended without a record: evicted, killed, or out of memory"
    monkeypatch.setenv("SHOP_TOKEN", "sesame-open")
    there = here.simulate(SimulatedCluster())
    assert here.states(there) == {"Login": "COMPLETE", "Peeks": "CACHED"}
    ((peeked,),) = there.nodes["Peeks"].outputs.values()
    assert peeked.properties["value"] is False
    found = [path for path in here.base.rglob("*") if path.is_file() and b"sesame-open" in path.read_bytes()]
    assert not found


def _no_grandchildren(base: Path) -> None:
    """See that what pods of a test have started is gone; what was killed may take a moment."""
    look = ["pgrep", "-f", f"grandchild-of-{base}$"]
    deadline = time.monotonic() + 60
    while subprocess.run(look, check=False, capture_output=True).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
