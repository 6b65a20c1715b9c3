"""A run on a cluster followed: our store, KFP's API and Kubernetes' each tell a part; the command line tells it all."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.metadata import Owner
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, open_run
from drivetrain.pipelines.kubeflow import following, ownership
from drivetrain.pipelines.kubeflow.api_errors import ApiError
from drivetrain.pipelines.kubeflow.client import KfpClient
from drivetrain.pipelines.kubeflow.connection import ApiSettings
from drivetrain.pipelines.kubeflow.kubernetes_api import KubernetesApi
from drivetrain.pipelines.kubeflow.settings import ClusterSettings
from drivetrain.pipelines.kubeflow.submit import SubmitResult, submit
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.launcher.runs import new_run
from drivetrain.pipelines.launcher.states import RunState

from . import kubernetes_server
from .api_server import KfpServer, Refused, Request
from .kubernetes_server import KubernetesServer
from .shop import PARTS, PLAIN

pytest.importorskip("kfp")


@pytest.fixture
def kubernetes(tmp_path: Path, server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    with kubernetes_server.serving(tmp_path) as found:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield found


@pytest.fixture
def done(home: Home, settings: ClusterSettings, pipe: Callable[..., PipelineFunction[..., object]]) -> SubmitResult:
    return submit(home, pipe(PLAIN), settings)


def _kubernetes() -> KubernetesApi:
    return KubernetesApi(ApiSettings(), "team")


def _status(home: Home, settings: ClusterSettings, run: str) -> following.RunStatus:
    return following.status(home, open_run(home, run), KfpClient(settings.api), _kubernetes)


def _states(found: following.RunStatus) -> dict[str, tuple[str, str]]:
    return {task.task: (task.state, task.reason) for task in found.tasks}


def _node(name: str) -> list[str]:
    """The words of a container as KFP's launcher has them."""
    ours = ["python", "-m", "drivetrain.pipelines.kubeflow.pod", "--project", "/app/shop", "--ir", "x", "--node", name]
    return ["--executor_type", "container", "--", *ours, "--executor-input", "{{$}}"]


def test_three_sources_make_one_status(
    home: Home, settings: ClusterSettings, server: KfpServer, kubernetes: KubernetesServer, done: SubmitResult
) -> None:
    assert done.kfp is not None
    assert set(_states(_status(home, settings, done.run)).values()) == {("WAITING", "")}
    Launcher(home, open_run(home, done.run), resuming=True).launch("Make")
    server.runs[done.kfp.id].update(
        state="RUNNING",
        run_details={"task_details": [{"task_id": "1", "display_name": "first", "state": "RUNNING"}]},
    )
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
    kubernetes.pod("shop-1", done.kfp.id, _node("Make"), phase="Succeeded")
    kubernetes.pod(
        "shop-2", done.kfp.id, _node("First"), phase="Pending",
        containerStatuses=[{"name": "wait", "state": {"running": {}}}, {"name": "main", "state": waiting}],
    )  # fmt: skip
    kubernetes.pod("shop-driver", done.kfp.id, ["driver"], phase="Succeeded")
    kubernetes.pod("other", "another run", _node("Second"), phase="Failed")
    run_status = _status(home, settings, done.run)
    states = _states(run_status)
    assert states["Make"][0] == "COMPLETE"
    assert states["First"][0] == "PENDING"
    assert states["First"][1] == 'ImagePullBackOff (its image cannot be pulled): Back-off pulling image "x"'
    assert states["Second"] == ("WAITING", "")
    assert [task.pod for task in run_status.tasks] == ["shop-1", "shop-2", ""]
    assert json.loads(json.dumps(run_status.to_json()))["nodes"]["First"]["pod"] == "shop-2"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
         "OOMKilled (it used more memory than it may): exit code 137"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
         "Evicted (its machine needed the room for others): low on memory"),
        ({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]},
         "Unschedulable (no machine of the cluster has room for it): 0/3 nodes"),
        ({"phase": "Pending", "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s"'}}}]},
         'CreateContainerConfigError (a Secret, a ConfigMap or a key that it names is not there): secret "s"'),
        ({"phase": "Pending", "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
         "CrashLoopBackOff (it ends again and again); before that OOMKilled"),
        ({"phase": "Pending", "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
    ],
)  # fmt: skip
def test_why_a_pod_does_not_run(
    home: Home,
    settings: ClusterSettings,
    kubernetes: KubernetesServer,
    done: SubmitResult,
    status: dict[str, Any],
    reason: str,
) -> None:
    assert done.kfp is not None
    kubernetes.pod("shop-1", done.kfp.id, _node("Make"), **status)
    state = "FAILED" if status["phase"] == "Failed" else "PENDING"
    assert _states(_status(home, settings, done.run))["Make"] == (state, reason)


def test_items_of_loops_are_told_apart_by_what_their_launchers_are_given(
    home: Home,
    settings: ClusterSettings,
    kubernetes: KubernetesServer,
    pipe: Callable[..., PipelineFunction[..., object]],
) -> None:
    done = submit(home, pipe("dt.map_(lambda item: Make(count=item), over=[5, 6])"), settings)
    assert done.kfp is not None
    given = json.dumps({"inputs": {"parameterValues": {"count": 3, "loop--Make": 1}}})
    loop = open_run(home, done.run).pipeline.scope("Make")[0]
    words = ["--executor_input", given.replace("loop--Make", f"loop--{loop}"), *_node("Make")]
    kubernetes.pod("shop-1", done.kfp.id, words, phase="Failed", reason="Evicted")
    states = _states(_status(home, settings, done.run))
    assert states["Make[0]"][0] == "WAITING"
    assert states["Make[1]"][0] == "FAILED"


def test_what_cannot_be_asked_is_a_note(
    home: Home, settings: ClusterSettings, server: KfpServer, kubernetes: KubernetesServer, done: SubmitResult
) -> None:
    kubernetes.denied.add("GET pods")
    run_status = _status(home, settings, done.run)
    assert [note.partition(":")[0] for note in run_status.notes] == ["Kubernetes cannot list pods in team"]
    server.token = "now"
    run_status = _status(home, settings, done.run)
    assert "does not accept the credentials" in run_status.notes[0]
    assert run_status.kfp is None
    assert len(run_status.tasks) == 3


def test_a_run_whose_submitter_died_is_found_in_kfp(
    home: Home, settings: ClusterSettings, done: SubmitResult, server: KfpServer
) -> None:
    run = open_run(home, done.run)
    home.store.update_context(run.context, {"kubeflow": {}})
    run_status = _status(home, settings, done.run)
    assert run_status.kfp is not None
    assert ownership.submission(open_run(home, done.run)).run == run_status.kfp.id


def test_runs_are_found_by_either_id(home: Home, done: SubmitResult) -> None:
    assert done.kfp is not None
    assert following.find(home, done.kfp.id).id == done.run
    assert following.find(home, done.run).id == done.run
    assert following.find(home, None).id == done.run
    with pytest.raises(InputError, match="there is no run 'nobody'"):
        following.find(home, "nobody")


def test_what_was_simulated_is_no_clusters(
    home: Home, done: SubmitResult, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    options = RunOptions("kubeflow", (ownership.SIMULATED,))
    run = new_run(home, pipe(PLAIN).build(), pipe(PLAIN).project, {"count": 3}, options)
    there = ownership.hand_over(home, run, ownership.Submission("as its pods do"))
    assert following.find(home, None).id == done.run
    with pytest.raises(InputError, match="is not a cluster's"):
        following.find(home, run.id)
    gone = Owner(Owner.current().host, Owner.current().boot_id, 2**22 - 1, "0")
    assert there.context.properties["owner"] == Owner.current().to_dict()  # so its death is seen
    home.store.update_context(there.context, {"owner": gone.to_dict()})
    assert open_run(home, run.id).state == "INTERRUPTED"


def test_waiting_takes_the_closing_pods_word(
    home: Home, settings: ClusterSettings, server: KfpServer, done: SubmitResult
) -> None:
    def advance(run: dict[str, Any]) -> None:
        run["state"] = "SUCCEEDED"
        ownership.end(home, open_run(home, done.run), RunState.COMPLETE)

    server.advance = advance
    assert following.wait(home, open_run(home, done.run), KfpClient(settings.api), every=0.01).state == "COMPLETE"


def test_where_no_pod_closes_the_run_who_waits_does(
    home: Home, settings: ClusterSettings, server: KfpServer, done: SubmitResult
) -> None:
    Launcher(home, open_run(home, done.run), resuming=True).launch("Make")
    server.advance = lambda run: run.update(state="FAILED")
    run = following.wait(home, open_run(home, done.run), KfpClient(settings.api), every=0.01, grace=0.0)
    assert run.state == "FAILED"
    states = _states(_status(home, settings, done.run))
    assert (states["Make"][0], states["First"][0], states["Second"][0]) == ("COMPLETE", "FAILED", "BLOCKED")


def test_terminating_ends_both(home: Home, settings: ClusterSettings, server: KfpServer, done: SubmitResult) -> None:
    assert done.kfp is not None
    run = following.terminate(home, open_run(home, done.run), KfpClient(settings.api), every=0.01)
    assert run.state == "CANCELED"
    assert server.runs[done.kfp.id]["state"] == "CANCELED"
    with pytest.raises(InputError, match="has ended: it is CANCELED, and KFP's run CANCELED"):
        following.terminate(home, run, KfpClient(settings.api), every=0.01)


CLUSTER_POD = Owner("another-host", "", 7, "0")


def test_what_is_at_work_when_its_run_is_terminated_is_cancelled(
    home: Home, settings: ClusterSettings, server: KfpServer, done: SubmitResult
) -> None:
    run = open_run(home, done.run)
    contexts = [home.store.context("node", "shop.Make"), run.context]
    home.store.start("parts:Make", contexts=contexts, properties={"run": run.id, "node": "Make"}, owner=CLUSTER_POD)
    run = following.terminate(home, run, KfpClient(settings.api), every=0.01)
    assert run.state == "CANCELED"
    states = _states(_status(home, settings, done.run))
    assert states["Make"] == ("CANCELED", "its run was terminated while its pod worked")


def test_a_run_that_kfp_has_ended_can_still_be_closed(
    home: Home, settings: ClusterSettings, server: KfpServer, done: SubmitResult
) -> None:
    assert done.kfp is not None
    server.runs[done.kfp.id]["state"] = "FAILED"
    assert "kubeflow sync" in _status(home, settings, done.run).notes[-1]
    assert following.terminate(home, open_run(home, done.run), KfpClient(settings.api), every=0.01).state == "FAILED"
    assert server.asked("POST", "terminate") == []


@pytest.mark.parametrize(("kfp", "ours"), [("SUCCEEDED", "COMPLETE"), ("FAILED", "FAILED"), ("CANCELED", "CANCELED")])
def test_of_pods_whose_record_cannot_be_seen_from_here_nothing_is_made_up(
    tmp_path: Path,
    settings: ClusterSettings,
    server: KfpServer,
    pipe: Callable[..., PipelineFunction[..., object]],
    kfp: str,
    ours: str,
) -> None:
    home = Home(tmp_path / "local" / ".drivetrain")  # its payloads lie in the root, those of the pods in a bucket
    done = submit(home, pipe(PLAIN), settings)
    server.advance = lambda run: run.update(
        state=kfp, run_details={"task_details": [{"task_id": "1", "display_name": "make", "state": "SUCCEEDED"}]}
    )
    run = following.wait(home, open_run(home, done.run), KfpClient(settings.api), every=0.01, grace=3600.0)
    assert run.state == ours
    assert home.store.executions(context=run.context) == []
    found = following.status(home, run, KfpClient(settings.api))
    assert _states(found)["Make"] == ("COMPLETE", "")
    assert "unseen from here" in found.notes[0]
    home.close()


def test_logs_come_from_the_newest_pod(home: Home, kubernetes: KubernetesServer, done: SubmitResult) -> None:
    assert done.kfp is not None
    kubernetes.pod("shop-1", done.kfp.id, _node("Make"), phase="Failed")
    kubernetes.pod("shop-2", done.kfp.id, _node("Make"), phase="Running")
    kubernetes.logs |= {"shop-1": "first try\n", "shop-2": "second try\n"}
    run = open_run(home, done.run)
    assert following.log(home, run, "Make", _kubernetes) == following.TaskLog("second try\n", "shop-2")
    with pytest.raises(InputError, match="the cluster has no pod of First") as caught:
        following.log(home, run, "First", _kubernetes)
    assert caught.value.fix == f"a log is gone with its pod; how the task ended stays: `drivetrain show {run.id}`"
    del kubernetes.logs["shop-2"]
    with pytest.raises(ApiError, match=r"cannot read the log of shop-2 .*: the pod has been removed"):
        following.log(home, run, "Make", _kubernetes)
    with pytest.raises(InputError, match=r"Make\[1\] is not a task of run"):
        following.log(home, run, "Make[1]", _kubernetes)


@pytest.fixture
def shop(project: Callable[..., Path], settings: ClusterSettings) -> Path:
    """A project with the settings of its cluster."""
    head = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef shop(count: int = 3) -> None:\n    "
    folder = project("shop", parts=PARTS, pipeline=head + PLAIN)
    (folder / "kubeflow.yaml").write_text(
        textwrap.dedent(f"""
        image: {settings.image}
        artifacts: s3://bucket/shop
        store: {{secret: store, key: url}}
        api: {{host: "{settings.api.host}", timeout: 60, retries: 1}}
        """)
    )
    return folder


def _run(*words: str | Path, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(cli, [*map(str, words), "--json"], prog_name="drivetrain")
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1]) if code in (0, 130) else {}
    return answer | {"stderr": result.stderr}


@pytest.mark.slow
def test_the_verbs(
    shop: Path, server: KfpServer, kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_ARTIFACTS", f"file://{tmp_path}/objects")
    (tmp_path / "objects").mkdir()
    root = ("--root", tmp_path / "runs" / ".drivetrain")
    sent = _run(
        "kubeflow", "submit", shop, "-p", "count=4", "--name", "tonight", "--tag", "night", "--note", "late", *root
    )
    assert (sent["state"], sent["pods"]) == ("RUNNING", 3)
    assert server.runs[sent["kfp"]["run"]]["display_name"] == "tonight"
    tagged = _run("tag", "--run", sent["run"], *root)
    assert (tagged["tags"], tagged["note"]) == ({"night": ""}, "late")
    answer = _run("kubeflow", "status", *root)
    assert (answer["run"], answer["kfp"]["state"]) == (sent["run"], "PENDING")
    assert set(answer["nodes"]) == {"Make", "First", "Second"}
    kubernetes.pod("p", sent["kfp"]["run"], _node("Make"), phase="Running")
    kubernetes.namespace = "kubeflow"
    kubernetes.logs["p"] = "counting\n"
    assert _run("kubeflow", "logs", sent["run"], "Make", *root)["text"] == "counting\n"
    assert "is being worked on by the KFP run" in _run("resume", sent["run"], *root, code=2)["stderr"]
    ended = _run("kubeflow", "terminate", sent["kfp"]["run"], *root)
    assert ended["state"] == "CANCELED"
    again = _run("resume", sent["run"], *root)
    assert again["run"] == sent["run"]
    assert again["kfp"]["run"] != sent["kfp"]["run"]
    for words in (("kubeflow", "status"), ("kubeflow", "submit", shop)):  # for people
        result = CliRunner().invoke(cli, [*map(str, (*words, *root))], prog_name="drivetrain")
        assert result.exit_code == 0, result.output
        assert again["run"][:8] in result.output
    assert "note: the pods' artifacts, at s3://bucket/shop, are not this root's" in result.output


def test_a_run_that_pods_made_is_followed_and_closed_from_another_machine(
    shop: Path,
    server: KfpServer,
    kubernetes: KubernetesServer,
    home: Home,
    pipe: Callable[..., PipelineFunction[..., object]],
) -> None:
    """One of a schedule: its record names the project's folder in the image, which is not here."""
    server.experiments["e"] = {"experiment_id": "e", "display_name": "shop"}
    kfp_run = server.add_run(count=3)
    built = pipe(PLAIN).build()
    options = RunOptions("kubeflow")
    run = new_run(home, built, Path("/app/shop"), {"count": 3}, options)
    ownership.hand_over(home, run, ownership.Submission(kfp_run))
    place = ("--root", home.root)
    refused = _run("kubeflow", "status", *place, code=2)["stderr"]
    assert "the project of run" in refused
    assert "give --project DIR" in refused
    answer = _run("kubeflow", "status", kfp_run, "--project", shop, *place)
    assert (answer["run"], answer["kfp"]["state"]) == (run.id, "PENDING")
    assert "not on this machine" in _run("resume", run.id, *place, code=2)["stderr"]
    synced = _run("kubeflow", "sync", run.id, *place)
    assert synced["state"] == "RUNNING"
    assert "whether KFP has ended it is not known: the project of run" in synced["notes"][0]
    server.runs[kfp_run]["state"] = "FAILED"
    synced = _run("kubeflow", "sync", run.id, "--project", shop, *place)
    assert (synced["state"], synced["notes"]) == ("FAILED", [])
    states = {each.properties["node"]: each.state for each in home.store.executions(context=run.context)}
    assert states == {"Make": "FAILED", "First": "BLOCKED", "Second": "BLOCKED"}


@pytest.mark.slow
def test_submitting_and_waiting_leaves_with_the_runs_code(
    shop: Path, server: KfpServer, kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_ARTIFACTS", f"file://{tmp_path}/objects")
    (tmp_path / "objects").mkdir()
    root = tmp_path / "runs" / ".drivetrain"

    def advance(run: dict[str, Any]) -> None:  # the pods have their say, and the last one closes the run
        run["state"] = "FAILED"
        there = Home(root)
        ownership.end(there, open_run(there, run["runtime_config"]["parameters"]["drivetrain_run"]), RunState.STOPPED)
        there.close()

    server.advance = advance
    words = ["kubeflow", "submit", str(shop), "--wait", "--root", str(root)]
    result = CliRunner().invoke(cli, words, prog_name="drivetrain")
    assert result.exit_code == 3, result.output
    assert "3 nodes go to the cluster" in result.output
    assert "KFP: FAILED" in result.output
    assert "STOPPED" in result.output


def test_schedules_by_the_verbs(shop: Path, server: KfpServer) -> None:
    def verb(*words: str | Path, code: int = 0) -> dict[str, Any]:
        return _run("kubeflow", "schedule", *words, code=code)

    cron = ("--cron", "0 3 * * mon-fri", "--tz", "Asia/Tokyo")
    made = verb("create", shop, *cron, "-p", "count=7", "--max-concurrency", "2", "--no-catchup")
    assert (made["change"], made["cron"], made["when"]) == ("created", "0 0 18 * * 0-4", "0 3 * * mon-fri Asia/Tokyo")
    sent = server.recurring[made["id"]]
    assert sent["runtime_config"]["parameters"] == {"count": 7}
    assert (sent["max_concurrency"], sent["no_catchup"], sent["display_name"]) == ("2", True, "shop")
    same = ("-p", "count=7", "--max-concurrency", "2", "--no-catchup")
    assert verb("create", shop, *cron, *same)["change"] == "unchanged"
    refused = verb("create", shop, "--every", "6h", *same, code=2)["stderr"]
    assert "another schedule 'shop': it is due 0 3 * * mon-fri Asia/Tokyo" in refused
    replaced = verb("create", shop, "--every", "6h", "--replace", "--start", "2026-12-01")
    assert (replaced["change"], replaced["every"], replaced["start"]) == ("replaced", 21600, "2026-12-01T00:00:00Z")
    assert list(server.recurring) == [replaced["id"]]
    (shop / "parts.py").write_text((shop / "parts.py").read_text() + "\n\nEXTRA = 1\n")
    assert verb("pause", shop, "shop")["change"] == "disabled"
    assert [one["state"] for one in verb("list", shop)["schedules"]] == ["DISABLED"]
    assert verb("resume", shop, replaced["id"])["change"] == "enabled"
    assert verb("delete", shop, "shop")["change"] == "deleted"
    assert verb("list", shop)["schedules"] == []
    assert "has no schedule 'shop'" in verb("delete", shop, "shop", code=2)["stderr"]


def test_the_schedule_that_a_pipeline_declares_goes_to_the_cluster(shop: Path, server: KfpServer) -> None:
    source = shop / "pipeline.py"
    text = source.read_text()

    def declare(trigger: str) -> None:
        declared = f"@dt.pipeline(schedule=dt.triggers.Schedule({trigger}, parameters={{'count': 9}}, max_active=2))"
        source.write_text(text.replace("@dt.pipeline", declared, 1))

    declare("dt.triggers.Cron('0 3 * * *', tz='Asia/Tokyo', catch_up='none')")
    created = _run("kubeflow", "schedule", "create", shop)
    assert (created["cron"], created["max_concurrency"], created["catchup"]) == ("0 0 18 * * *", 2, False)
    assert server.recurring[created["id"]]["runtime_config"]["parameters"] == {"count": 9}
    declare("dt.triggers.Every('6h')")
    created = _run("kubeflow", "schedule", "create", shop, "--replace", "-p", "count=4")
    assert (created["every"], created["parameters"]["count"]) == (21600, 4)
    declare("dt.triggers.After('other')")
    refused = _run("kubeflow", "schedule", "create", shop, code=2)["stderr"]
    assert "Kubeflow knows times alone, not After('other')" in refused


def test_a_schedule_that_cannot_be_deleted_stands_beside_the_one_that_replaces_it(
    shop: Path, server: KfpServer
) -> None:
    made = _run("kubeflow", "schedule", "create", shop, "--every", "6h")
    answer = server.answer

    def kept(request: Request) -> dict[str, Any]:
        if request.method == "DELETE":
            raise Refused(403, "not yours")
        return answer(request)

    server.answer = kept  # type: ignore[method-assign]
    told = _run("kubeflow", "schedule", "create", shop, "--every", "5h", "--replace", code=2)["stderr"]
    assert "exists beside it, and both start runs" in told
    assert f"kubeflow schedule delete PROJECT {made['id']}" in told
    assert len(server.recurring) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cron", "0 3 * * *", "--tz", "Europe/Oslo"), "clocks of Europe/Oslo change"),
        (("--cron", "0 3 1 * *", "--tz", "+09:00"), "across the ends of months"),
        (("--cron", "0 3 * * *", "--every", "6h"), "by cron or at an interval"),
        ((), "by cron or at an interval"),
        (("--every", "6 hours"), "is not an interval"),
        (("--every", "6h", "--max-concurrency", "11"), "not for KFP"),
        (("--every", "6h", "--start", "2027-01-02", "--end", "2027-01-01"), "before it begins"),
        (("--every", "6h", "--start", "tomorrow"), "is not a moment"),
    ],
)
def test_times_that_kfp_cannot_keep_are_refused(
    shop: Path, server: KfpServer, words: tuple[str, ...], reason: str
) -> None:
    refused = _run("kubeflow", "schedule", "create", shop, *words, code=2)["stderr"]
    assert reason in refused
    assert "fix:" in refused
    assert server.requests == []
