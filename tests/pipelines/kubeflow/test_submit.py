"""Submitting: what KFP gets, what gets no pod, and what a submission leaves behind that fails on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, open_run, run_pipeline
from drivetrain.pipelines.ir.ir import Pipeline
from drivetrain.pipelines.kubeflow import ownership
from drivetrain.pipelines.kubeflow.api_errors import ApiError
from drivetrain.pipelines.kubeflow.client import KfpClient
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, PodSettings
from drivetrain.pipelines.kubeflow.submit import arguments_of, resubmit, submit
from drivetrain.pipelines.launcher.runs import new_run
from drivetrain.pipelines.launcher.states import RunState

from .api_server import KfpServer, Request
from .shop import PLAIN

pytest.importorskip("kfp")


def _tasks(run: dict[str, Any]) -> dict[str, Any]:
    """The tasks of the DAG that does the work."""
    spec = run["pipeline_spec"]["pipeline_spec"]
    work = spec["root"]["dag"]["tasks"]["work"]["componentRef"]["name"]
    tasks: dict[str, Any] = spec["components"][work]["dag"]["tasks"]
    return tasks


def test_a_run_is_recorded_and_handed_over(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    done = submit(home, pipe(PLAIN), settings, {"count": 4}, experiment="trials")
    (sent,) = server.runs.values()
    assert done.kfp is not None
    assert (done.state, done.kfp.id, done.pods, done.ended) == ("RUNNING", sent["run_id"], 3, {})
    assert sent["runtime_config"]["parameters"] == {"count": 4, "drivetrain_run": done.run}
    assert sent["display_name"] == f"shop {done.run}"
    assert set(_tasks(sent)) == {"make", "first", "second"}
    run = open_run(home, done.run)
    assert (run.state, run.options.runner) == ("RUNNING", "kubeflow")
    assert ownership.on_cluster(run)
    there = ownership.submission(run)
    assert (there.run, there.host) == (sent["run_id"], server.url)
    assert there.tasks == {"make": "Make", "first": "First", "second": "Second"}
    assert json.loads(json.dumps(done.to_json()))["kfp"]["link"].startswith(server.url)


def test_what_is_cached_gets_no_pod(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    pipeline = pipe(PLAIN)
    assert run_pipeline(home, pipeline).state == "COMPLETE"
    changed = pipe(PLAIN.replace("amount=5", "amount=6"))
    done = submit(home, changed, settings)
    assert {name: result.state for name, result in done.ended.items()} == {"Make": "CACHED", "First": "CACHED"}
    (sent,) = server.runs.values()
    assert set(_tasks(sent)) == {"second"}
    assert not _tasks(sent)["second"].get("dependentTasks")
    executors = sent["pipeline_spec"]["pipeline_spec"]["deploymentSpec"]["executors"]
    assert any(changed.build().digest in executor["container"]["args"] for executor in executors.values())
    run = open_run(home, done.run)
    states = {e.properties["node"]: e.state for e in home.store.executions(context=run.context)}
    assert states == {"Make": "CACHED", "First": "CACHED"}
    names = sorted(Path(home.root.parents[1], "bucket", "records", done.run).glob("*"))
    assert [name.name.partition(".")[0] for name in names] == ["First", "Make", "run"]  # for pods without the store
    server.runs.clear()
    everything = submit(home, changed, settings, cache=False)
    assert everything.ended == {}
    assert set(_tasks(next(iter(server.runs.values())))) == {"make", "first", "second"}


def test_a_run_of_cached_nodes_alone_needs_no_cluster(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    pipeline = pipe(PLAIN)
    run_pipeline(home, pipeline)
    done = submit(home, pipeline, settings)
    assert (done.state, done.kfp, len(done.ended)) == ("COMPLETE", None, 3)
    assert open_run(home, done.run).state == "COMPLETE"
    assert server.runs == {}


def test_what_runs_on_exit_always_has_its_pod(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    pipeline = pipe(f"{PLAIN}\nwith dt.on_exit():\n    Say()")
    run_pipeline(home, pipeline)
    done = submit(home, pipeline, settings)
    assert (done.state, done.pods) == ("RUNNING", 1)
    assert len(server.runs) == 1


def test_values_of_cached_nodes_stand_in_conditions_and_loops(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    body = """
        made = Make(count=count)
        score = Score(made)
        items = Items(count=2)
        with dt.when(score > 0.1):
            Use.options(id="Good")(made, amount=AMOUNT)
        with dt.when(score > 0.5):
            Use.options(id="Never")(made, amount=AMOUNT)
        each = dt.map_(lambda item: Use.options(id="Each")(made, amount=item), over=items)
        Sum(each)
    """
    run_pipeline(home, pipe(body.replace("AMOUNT", "1").replace("amount=item", "amount=7")))
    done = submit(home, pipe(body.replace("AMOUNT", "2")), settings)
    states = {name: result.state for name, result in done.ended.items()}
    assert states == {"Make": "CACHED", "Score": "CACHED", "Items": "CACHED", "Never": "SKIPPED"}
    tasks = _tasks(next(iter(server.runs.values())))
    assert {"good", "sum"} < set(tasks)
    assert not tasks["good"].get("triggerPolicy")  # it is true
    loop = next(task for task in tasks.values() if "parameterIterator" in task)
    assert json.loads(loop["parameterIterator"]["items"]["raw"]) == [0, 1]


def test_a_loop_is_left_out_as_a_whole(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    body = """
        items = Items(count=2)
        first = dt.map_(lambda item: Make(count=item), over=items)
        Use(Sum(first), amount=AMOUNT)
    """
    run_pipeline(home, pipe(body.replace("AMOUNT", "1")))
    done = submit(home, pipe(body.replace("AMOUNT", "2")), settings)
    assert set(done.ended) == {"Items", "Make[0]", "Make[1]", "Sum"}
    assert set(_tasks(next(iter(server.runs.values())))) == {"use"}


def test_settings_of_nodes_without_a_pod_are_no_error(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    pipeline = pipe(PLAIN)
    run_pipeline(home, pipeline)
    told = replace(settings, nodes={"Make": PodSettings(shm="1Gi"), "Second": PodSettings(shm="1Gi")})
    done = submit(home, pipe(PLAIN.replace("amount=5", "amount=6")), told)
    assert done.pods == 1
    with pytest.raises(InputError, match="has no node 'Nobody'"):
        submit(home, pipeline, replace(settings, nodes={"Nobody": PodSettings()}))


def test_what_the_linter_finds_is_not_sent(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    wrong = replace(settings, defaults=PodSettings(image_pull_policy="Sometimes"))
    with pytest.raises(InputError, match="a cluster would fail at") as caught:
        submit(home, pipe(PLAIN), wrong)
    assert "Sometimes" in caught.value.message
    assert server.requests == []
    assert home.store.contexts("run") == []


def test_values_that_may_be_none_are_handed_over_as_text() -> None:
    parameters = (("a", "int | None", None), ("b", "str | None", None), ("c", "int", 1), ("d", "float | None", None))
    pipeline = Pipeline("shop", parameters, ())
    values = {"a": None, "b": "null-ish", "c": 2, "d": 0.5}
    assert arguments_of(pipeline, values) == {"a": "null", "b": "null-ish", "c": 2, "d": "0.5"}


def test_payloads_that_pods_do_not_see_are_not_reused(
    tmp_path: Path, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    with_local = Home(tmp_path / "local" / ".drivetrain")
    pipeline = pipe(PLAIN)
    run_pipeline(with_local, pipeline)
    assert submit(with_local, pipeline, settings).ended == {}
    with_local.close()


def test_nothing_is_recorded_where_the_api_cannot_be_asked(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    server.token = "t"
    with pytest.raises(ApiError, match="does not accept the credentials"):
        submit(home, pipe(PLAIN), settings)
    assert home.store.contexts("run") == []


def test_a_submission_that_is_refused_leaves_no_running_ghost(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    server.faults = [None, None, None, 400]  # asked, looked up, made the experiment; then the run
    with pytest.raises(ApiError, match="cannot start shop"):
        submit(home, pipe(PLAIN), settings)
    assert open_run(home, None).state == "FAILED"
    assert server.runs == {}


def test_an_answer_that_was_lost_is_found_again(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    class Deaf(KfpClient):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            super().submit(*args, **kwargs)
            raise ApiError("no answer came", sent=True)

    done = submit(home, pipe(PLAIN), settings, connect=lambda settings: Deaf(settings.api))
    assert done.state == "RUNNING"
    assert ownership.submission(open_run(home, done.run)).run in server.runs

    class Unsent(KfpClient):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            raise ApiError("no answer came", sent=True)

    with pytest.raises(ApiError, match="no answer came"):
        submit(home, pipe(PLAIN), settings, connect=lambda settings: Unsent(settings.api))
    assert open_run(home, None).state == "FAILED"


def test_ctrl_c_takes_the_run_back(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    class Impatient(KfpClient):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            super().submit(*args, **kwargs)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(home, pipe(PLAIN), settings, connect=lambda settings: Impatient(settings.api))
    assert open_run(home, None).state == "CANCELED"
    assert [run["state"] for run in server.runs.values()] == ["CANCELED"]


def test_a_killed_submitter_is_told_from_a_cluster_at_work(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    done = submit(home, pipe(PLAIN), settings)
    run = open_run(home, done.run)
    assert run.state == "RUNNING"  # no process of this host has it
    dead = {"host": ownership.CLUSTER.host, "boot_id": "", "pid": 0, "start_time": ""}
    assert run.context.properties["owner"] == dead
    from drivetrain.metadata import Owner

    own = Owner.current()
    gone = Owner(own.host, own.boot_id, 2**22 - 1, "0")
    home.store.update_context(run.context, {"owner": gone.to_dict()})
    assert open_run(home, done.run).state == "INTERRUPTED"


def test_resuming_submits_what_did_not_end_well(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    from drivetrain.pipelines.launcher.launcher import Launcher

    done = submit(home, pipe(PLAIN), settings)
    with pytest.raises(InputError, match="is being worked on by the KFP run"):
        resubmit(home, open_run(home, done.run), settings)
    run = open_run(home, done.run)
    assert Launcher(home, run, resuming=True).launch("Make").state == "COMPLETE"  # as its pod does
    ownership.end(home, run, RunState.FAILED)
    server.runs[done.kfp.id]["state"] = "FAILED"  # type: ignore[union-attr]
    again = resubmit(home, open_run(home, done.run), settings)
    assert again.run == done.run
    assert {name: result.state for name, result in again.ended.items()} == {"Make": "COMPLETE"}
    assert again.kfp is not None
    assert set(_tasks(server.runs[again.kfp.id])) == {"first", "second"}
    run = open_run(home, done.run)
    assert run.state == "RUNNING"
    assert ownership.submission(run).run == again.kfp.id


def test_a_run_whose_submitter_was_killed_is_not_submitted_twice(
    tmp_path: Path, server: KfpServer, settings: ClusterSettings, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    """The server kills the submitter, a process of its own, once it has taken the run and before it answers."""
    folder = pipe(PLAIN).project
    (folder / "kubeflow.yaml").write_text(
        "image: x\nartifacts: s3://bucket/shop\nstore: {secret: store, key: url}\n"
        f'api: {{host: "{server.url}", timeout: 60, retries: 0}}\n'
    )
    root = tmp_path / "local" / ".drivetrain"
    words = [sys.executable, "-m", "drivetrain", "kubeflow", "submit", str(folder), "--root", str(root)]
    (tmp_path / "objects").mkdir()
    answer = server.answer

    def killing(request: Request) -> dict[str, Any]:
        answered = answer(request)
        if server.runs:
            process.kill()
        return answered

    server.answer = killing  # type: ignore[method-assign]
    process = subprocess.Popen(words, env={**os.environ, "DRIVETRAIN_ARTIFACTS": f"file://{tmp_path}/objects"})
    assert process.wait() == -signal.SIGKILL
    server.answer = answer  # type: ignore[method-assign]
    home = Home(root)
    run = open_run(home, None)
    assert run.state == "INTERRUPTED"
    with pytest.raises(InputError, match="is being worked on by the KFP run"):
        resubmit(home, run, settings)
    (sent,) = server.runs.values()
    assert ownership.submission(open_run(home, run.id)).run == sent["run_id"]
    sent["state"] = "FAILED"
    assert resubmit(home, open_run(home, run.id), settings).kfp is not None
    assert len(server.runs) == 2
    home.close()


def test_what_ended_here_stands_in_for_nothing_that_pods_cannot_see(
    tmp_path: Path, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    home, pipeline = Home(tmp_path / "local" / ".drivetrain"), pipe(PLAIN)
    run_pipeline(home, pipeline)
    done = submit(home, pipeline, settings)
    server.runs[done.kfp.id]["state"] = "FAILED"  # type: ignore[union-attr]
    ownership.end(home, open_run(home, done.run), RunState.FAILED)
    again = resubmit(home, open_run(home, done.run), settings)
    assert (again.ended, again.pods) == ({}, 3)
    home.close()


def test_an_answer_that_was_lost_when_resuming_is_not_the_runs_before(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    done = submit(home, pipe(PLAIN), settings)
    server.runs[done.kfp.id]["state"] = "FAILED"  # type: ignore[union-attr]
    ownership.end(home, open_run(home, done.run), RunState.FAILED)
    # Asked of the old run, asked whether it lets this one in, experiment looked up; then the run's connection drops.
    server.faults = [None, None, None, "drop"]
    with pytest.raises(ApiError, match="the connection broke"):
        resubmit(home, open_run(home, done.run), settings)
    assert server.faults == []
    assert open_run(home, done.run).state == "FAILED"


def test_a_run_that_kfp_no_longer_has_can_be_resumed(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    done = submit(home, pipe(PLAIN), settings)
    ownership.end(home, open_run(home, done.run), RunState.FAILED)
    server.runs.clear()
    assert resubmit(home, open_run(home, done.run), settings).kfp is not None


def test_what_was_simulated_is_sent_to_no_cluster(
    home: Home, settings: ClusterSettings, server: KfpServer, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    pipeline = pipe(PLAIN)
    options = RunOptions("kubeflow", (ownership.SIMULATED,))
    run = new_run(home, pipeline.build(), pipeline.project, {"count": 3}, options)
    with pytest.raises(InputError, match="was simulated on this machine"):
        resubmit(home, run, settings)
    assert server.requests == []


def test_a_run_of_this_machine_is_not_resubmitted(
    home: Home, settings: ClusterSettings, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    result = run_pipeline(home, pipe(PLAIN), options=RunOptions())
    with pytest.raises(InputError, match="is not a cluster's"):
        resubmit(home, open_run(home, result.run), settings)


def test_a_used_up_budget_stops_a_submission(
    home: Home,
    settings: ClusterSettings,
    server: KfpServer,
    pipe: Callable[..., PipelineFunction[..., object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (home.base / "costs.yaml").write_text("budgets:\n- {period: day, kwh: 0, action: stop}")
    pipeline = pipe(PLAIN)
    with pytest.raises(InputError, match="is used up"):
        submit(home, pipeline, settings)
    assert (server.runs, home.store.count_contexts("run")) == ({}, 0)
    monkeypatch.setenv("DRIVETRAIN_OVER_BUDGET", "1")
    done = submit(home, pipeline, settings)
    assert open_run(home, done.run).context.properties["over_budget"]
    monkeypatch.delenv("DRIVETRAIN_OVER_BUDGET")
    with pytest.raises(InputError, match="is used up"):
        resubmit(home, open_run(home, done.run), settings)
