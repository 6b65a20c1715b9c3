"""Training by several processes, which the environment configures: the same result; in a cluster, an indexed Job."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.engine.training.processes import ClusterSpec
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.kubeflow import workers
from drivetrain.pipelines.kubeflow.api_errors import ApiError
from drivetrain.pipelines.kubeflow.kubernetes_api import KubernetesApi
from drivetrain.tests.beam.servers import free_port

from . import kubernetes_server
from .go import build
from .kubernetes_server import KubernetesServer

PROBLEM = Path(__file__).parents[2] / "engine" / "training_problem.py"
SCRIPT = f"""
import importlib.util, json, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("problem", {str(PROBLEM)!r})
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)
from drivetrain.engine.training.processes import ClusterSpec
together = ClusterSpec.from_environment()
if together is not None:
    together.join(120)
import jax
from drivetrain.engine.training.strategy import strategy
from drivetrain.engine.training.training import TrainingRun
both = strategy("data_parallel")
trained = problem.fit(TrainingRun(problem.SPECS, Path(sys.argv[1]), epochs=2, batch_size=128, seed=3, strategy=both))
params = [leaf.tolist() for leaf in jax.tree.leaves(trained.params)]
losses = [[record.loss, record.eval_loss] for record in trained.history]
print(json.dumps({{"devices": jax.device_count(), "losses": losses, "params": params}}))
"""


def _train(content: Path, **environment: str) -> subprocess.Popen[str]:
    told = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(content)],
        env=told,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0, error[-2000:]
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


@pytest.mark.slow
@pytest.mark.engine
def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    import numpy as np

    spec = importlib.util.spec_from_file_location("training_problem", PROBLEM)
    assert spec is not None
    assert spec.loader is not None
    problem = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(problem)
    content = problem.examples(tmp_path)
    alone = _answer(_train(content))
    address = f"127.0.0.1:{free_port()}"
    both = [_train(content, **ClusterSpec(address, 2, number).environment()) for number in range(2)]
    first, second = (_answer(process) for process in both)
    assert (alone["devices"], first["devices"]) == (1, 2)
    assert first == second  # to the bit: they hold the same state
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=1e-5)
    for ours, reference in zip(first["params"], alone["params"], strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-4)


def test_the_environment_says_who_trains_together() -> None:
    told = ClusterSpec("10.0.0.1:8476", 4, 3)
    assert ClusterSpec.from_environment(told.environment()) == told
    assert ClusterSpec.from_environment({}) is None
    assert ClusterSpec.from_environment({"DRIVETRAIN_PROCESSES": "1"}) is None
    for wrong in (
        {"DRIVETRAIN_PROCESSES": "2"},
        {**told.environment(), "DRIVETRAIN_PROCESS": "4"},
        {**told.environment(), "DRIVETRAIN_COORDINATOR": "nowhere"},
        {**told.environment(), "DRIVETRAIN_PROCESSES": "many"},
    ):
        with pytest.raises(InputError, match="describes no training of several processes"):
            ClusterSpec.from_environment(wrong)


@pytest.mark.slow
@pytest.mark.engine
def test_one_that_waits_in_vain_says_so() -> None:
    told = ClusterSpec(f"127.0.0.1:{free_port()}", 2, 1)
    script = "from drivetrain.engine.training.processes import ClusterSpec; ClusterSpec.from_environment().join(3)"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **told.environment()}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 1
    assert f"process 1 of 2 finds nobody at {told.coordinator}" in ended.stderr


@pytest.mark.engine
def test_a_mesh_that_leaves_processes_idle_is_refused() -> None:
    from drivetrain.engine.training.strategy import strategy

    class Device:
        platform = "cpu"

        def __init__(self, process: int) -> None:
            self.process_index = process

    devices: Any = [Device(0), Device(1)]
    with pytest.raises(InputError, match="leaves 1 of the processes nothing to do"):
        strategy("single").placement(devices)


# -- the node


ONE = """
    import drivetrain as dt
    from .parts import Count

    @dt.pipeline
    def shop() -> None:
        Count.options(replicas={replicas})()
"""
PARTS = """
    import os
    import drivetrain as dt

    @dt.component
    def Count() -> int:
        return int(os.environ.get("DRIVETRAIN_PROCESSES", "1"))
"""


@pytest.mark.parametrize("runner", ["inline", "process", "beam"])
def test_other_runners_refuse_replicas(project: Callable[..., Path], tmp_path: Path, runner: str) -> None:
    pipeline = load_pipeline(project("shop", parts=PARTS, pipeline=ONE.format(replicas=2)))
    home = Home(tmp_path / ".drivetrain")
    with pytest.raises(InputError, match="Count has several processes at its work, which the") as caught:
        run_pipeline(home, pipeline, options=RunOptions(runner=runner))
    assert "kubeflow submit" in (caught.value.fix or "")
    home.close()


@pytest.mark.parametrize("replicas", ["0", "1.5", "'two'"])
def test_replicas_that_make_no_sense(project: Callable[..., Path], replicas: str) -> None:
    with pytest.raises(BuildError, match="replicas="):
        load_pipeline(project("shop", parts=PARTS, pipeline=ONE.format(replicas=replicas))).build()


# -- the Job


POD: dict[str, Any] = {
    "metadata": {
        "name": "flights-abc-system-container-impl-123", "namespace": "team",
        "uid": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "labels": {"pipeline/runid": "r1", "workflows.argoproj.io/workflow": "flights-abc", "team": "ml"},
    },
    "spec": {
        "serviceAccountName": "runner",
        "nodeSelector": {"gpu": "a100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "var-run-argo", "emptyDir": {}},
            {"name": "kfp-launcher", "emptyDir": {}},
            {"name": "kube-api-access-x", "projected": {"sources": []}},
        ],
        "containers": [
            {"name": "wait", "image": "argoexec"},
            {
                "name": "main", "image": "registry/flights@sha256:1", "imagePullPolicy": "IfNotPresent",
                "command": ["/var/run/argo/argoexec", "emissary"], "args": ["--", "python"],
                "env": [
                    {"name": "DRIVETRAIN_STORE", "valueFrom": {"secretKeyRef": {"name": "store", "key": "url"}}},
                    {"name": "DRIVETRAIN_KUBEFLOW_RUN",
                     "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['pipeline/runid']"}}},
                    {"name": "ARGO_TEMPLATE", "value": "{}"}, {"name": "KFP_POD_NAME", "value": "x"},
                ],
                "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}},
                "volumeMounts": [
                    {"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/data"},
                    {"name": "var-run-argo", "mountPath": "/var/run/argo"},
                ],
            },
        ],
    },
}  # fmt: skip
WORDS = ["--project", "/app/flights", "--ir", "5f0c", "--run", "r", "--task", "Trainer"]
TOLD = {"DRIVETRAIN_COORDINATOR": "10.0.0.1:8476", "DRIVETRAIN_PROCESSES": "4"}


def test_the_job_is_made_after_its_pods_likeness() -> None:
    assert workers.worker_job(POD, 3, WORDS, TOLD, timeout=0.5)["spec"]["activeDeadlineSeconds"] == 1
    job = workers.worker_job(POD, 3, WORDS, TOLD, timeout=7200.0)
    spec, template = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], template["restartPolicy"]) == (0, 7200, "Never")
    assert job["metadata"]["ownerReferences"][0]["uid"] == POD["metadata"]["uid"]  # it goes when the pod does
    assert job["metadata"]["labels"] == {"pipeline/runid": "r1", "team": "ml"}
    (container,) = template["containers"]
    assert container["image"] == "registry/flights@sha256:1"
    assert container["command"] == ["python", "-m", "drivetrain.pipelines.kubeflow.worker"]
    assert container["args"] == WORDS
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}}
    assert [each["name"] for each in container["env"]] == [
        "DRIVETRAIN_STORE", "DRIVETRAIN_KUBEFLOW_RUN", "DRIVETRAIN_COORDINATOR", "DRIVETRAIN_PROCESSES"
    ]  # fmt: skip
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/dev/shm", "/data"]
    assert [each["name"] for each in template["volumes"]] == ["shm", "data"]
    assert template["nodeSelector"] == {"gpu": "a100"}
    assert template["serviceAccountName"] == "runner"
    secrets = json.dumps([each for each in container["env"] if "value" in each])
    assert "DRIVETRAIN_STORE" not in secrets  # its value stays in its Secret


@pytest.mark.slow
def test_kubernetes_own_types_take_the_job(tmp_path: Path) -> None:
    """k8s.io/api, strictly: an unknown field or a wrong type is an error, as the fault that is planted shows."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    for file in (Path(__file__).parent / "job_peer").iterdir():
        shutil.copy(file, tmp_path)
    build(tmp_path)

    def check(body: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tmp_path / "peer"], input=json.dumps(body), capture_output=True, text=True, check=False, timeout=120
        )

    job = workers.worker_job(POD, 3, WORDS, TOLD)
    assert check(job).stdout == "drivetrain-workers-0f8fad5b 3 Indexed\n"
    wrong = json.loads(json.dumps(job))
    wrong["spec"]["completionsMode"] = wrong["spec"].pop("completionMode")
    assert 'unknown field "completionsMode"' in check(wrong).stderr
    wrong = json.loads(json.dumps(job))
    wrong["spec"]["template"]["spec"]["containers"][0]["env"][0]["valueFrom"] = "secret"
    assert "cannot unmarshal string" in check(wrong).stderr


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    """A cluster that this process is a pod of, as far as it can tell."""
    pytest.importorskip("kubernetes")
    with kubernetes_server.serving(tmp_path) as found:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KFP_POD_NAME", POD["metadata"]["name"])
        import kubernetes

        def load(client_configuration: Any) -> None:  # its own reads a mounted token and needs TLS
            client_configuration.host = found.url

        monkeypatch.setattr(kubernetes.config, "load_incluster_config", load)
        monkeypatch.setattr(workers, "KubernetesApi", lambda api: KubernetesApi(api, "team"))
        found.objects["pods", POD["metadata"]["name"]] = {"apiVersion": "v1", "kind": "Pod", **POD}
        yield found


def test_the_job_lives_as_long_as_the_work(cluster: KubernetesServer, capsys: pytest.CaptureFixture[str]) -> None:
    name = "drivetrain-workers-0f8fad5b"
    with workers.worker_processes(4, WORDS):
        made = cluster.objects["jobs", name]
        told = {each["name"]: each.get("value") for each in made["spec"]["template"]["spec"]["containers"][0]["env"]}
        spec = ClusterSpec.from_environment()
        assert spec is not None
        assert (spec.process, spec.processes) == (0, 4)
        assert told["DRIVETRAIN_COORDINATOR"] == spec.coordinator
        assert spec.coordinator.endswith(":8476")
        assert made["spec"]["completions"] == 3
    assert ("jobs", name) not in cluster.objects
    assert ClusterSpec.from_environment() is None
    with pytest.raises(ZeroDivisionError), workers.worker_processes(2, WORDS):
        _ = 1 / 0
    assert ("jobs", name) not in cluster.objects
    assert cluster.asked == ["GET pods", "POST jobs", "DELETE jobs"] * 2  # what a role has to allow


@pytest.mark.parametrize(("verb", "what"), [("GET pods", "read"), ("POST jobs", "start 1 more pods")])
def test_a_role_that_is_missing_is_named(cluster: KubernetesServer, verb: str, what: str) -> None:
    cluster.denied.add(verb)
    with pytest.raises(ApiError, match=what) as caught, workers.worker_processes(2, WORDS):
        pytest.fail("nothing was started")
    assert "docs/kubeflow.md lists what is needed" in (caught.value.fix or "")


# -- a whole node


TRAIN = """
    import drivetrain as dt
    from .parts import Examples2, Learn

    @dt.pipeline
    def shop() -> None:
        Learn.options(replicas=2)(Examples2())
"""
LEARN = """
    import os
    import drivetrain as dt

    @dt.component
    def Examples2() -> int:
        return 20

    @dt.component
    def Learn(number: int) -> list[int]:
        from drivetrain.engine.training.processes import ClusterSpec

        together = ClusterSpec.from_environment()
        together.join(120)
        import jax
        import numpy as np
        from jax.experimental import multihost_utils

        everyone = multihost_utils.process_allgather(np.array([number + jax.process_index()]))
        return [int(each) for each in everyone.ravel()]
"""


@pytest.mark.slow
@pytest.mark.engine
def test_a_node_with_replicas_runs_in_the_simulator(project: Callable[..., Path], tmp_path: Path) -> None:
    """Its pod starts the others as processes here, which resolve the same inputs and take part."""
    from click.testing import CliRunner
    from drivetrain.console.cli import cli

    folder = project("shop", parts=LEARN, pipeline=TRAIN)
    (folder / "kubeflow.yaml").write_text(
        textwrap.dedent("""
        image: shop
        artifacts: s3://bucket/shop
        store: {secret: store, key: url}
        """)
    )
    root = tmp_path / "runs" / ".drivetrain"
    words = ["kubeflow", "simulate", str(folder), "--root", str(root), "--json"]
    result = CliRunner().invoke(cli, words, prog_name="drivetrain", env={"JAX_PLATFORMS": "cpu"})
    assert result.exit_code == 0, result.output
    home = Home(root, readonly=True)
    made = [each for each in home.store.artifacts() if each.properties.get("value") == [20, 21]]
    assert len(made) == 1  # the first alone publishes
    home.close()
