"""A node with `replicas=N`: its pod is the first of N processes, and starts the others while it works.

In a cluster they are an indexed Job with this pod's image, volumes, resources and node selection. Each of them runs the
same component on the same inputs, and only the first publishes. The first pod's address is the coordinator, so no
Service is needed. Outside of a cluster they are processes of this machine.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import DrivetrainError
from .api_errors import ApiError
from .connection import ApiSettings
from .kubernetes_api import MAIN, KubernetesApi, translated_errors

Json: TypeAlias = dict[str, Any]  # a JSON object, as Kubernetes reads it
PORT = 8476
COORDINATOR, PROCESSES, PROCESS = "DRIVETRAIN_COORDINATOR", "DRIVETRAIN_PROCESSES", "DRIVETRAIN_PROCESS"
"""The environment variables by which the processes of a training find each other."""
_LONGEST = 7 * 86400
_KEPT = 3600
"""Seconds that an ended Job stays where its pod could not remove it."""
_NOT_OURS = ("argo", "var-run-argo", "tmp-dir-argo", "kfp-", "kube-api-access", "input-artifacts")
"""Prefixes of the volumes that Argo, KFP and Kubernetes add to a pod; workers must not mount them."""
_VARIABLES = ("ARGO_", "KFP_", "KUBERNETES_")


@contextlib.contextmanager
def worker_processes(replicas: int, words: Sequence[str], *, timeout: float | None = None) -> Iterator[None]:
    """Run the other processes of a task while the block runs; in it, this process's environment makes it the first.

    Args:
        replicas: How many processes there are, this one among them.
        words: The arguments of `python -m drivetrain.pipelines.kubeflow.worker`.
        timeout: Seconds after which the cluster ends them.

    Raises:
        ApiError: Kubernetes does not create the Job.
    """
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    host, port = (_pod_address(), PORT) if in_cluster else ("127.0.0.1", _free_port())
    variables = {COORDINATOR: f"{host}:{port}", PROCESSES: str(replicas)}
    before = {name: os.environ.get(name) for name in (*variables, PROCESS)}
    os.environ.update(variables, **{PROCESS: "0"})
    try:
        with (_job if in_cluster else _local)(replicas - 1, words, variables, timeout):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def worker_job(
    pod: Json, replicas: int, words: Sequence[str], environment: Mapping[str, str], timeout: float | None = None
) -> Json:
    """The Job of a pod's other processes: `replicas` pods, each of which learns its number from its index.

    Args:
        pod: The pod, as the API gives it: what KFP's compiler, the platform document and the cluster made of it.
        replicas: How many, without the pod itself.
        words: The arguments of `python -m drivetrain.pipelines.kubeflow.worker`.
        environment: Variables that they get beside the pod's own.
        timeout: Seconds after which Kubernetes ends them.
    """
    spec, meta = pod["spec"], pod["metadata"]
    main = next(each for each in spec["containers"] if each["name"] == MAIN)
    volumes = [each for each in spec.get("volumes") or () if not each["name"].startswith(_NOT_OURS)]
    named = {each["name"] for each in volumes}
    pod_variables = [each for each in main.get("env") or () if not each["name"].startswith(_VARIABLES)]
    worker_variables = [{"name": name, "value": value} for name, value in environment.items()]
    container = {
        "name": MAIN,
        "image": main["image"],
        "command": ["python", "-m", "drivetrain.pipelines.kubeflow.worker"],
        "args": list(words),
        "env": [*(each for each in pod_variables if each["name"] not in environment), *worker_variables],
        "volumeMounts": [each for each in main.get("volumeMounts") or () if each["name"] in named],
        **{key: main[key] for key in ("imagePullPolicy", "resources", "securityContext", "envFrom") if main.get(key)},
    }
    placed = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "serviceAccountName", "securityContext")
    template = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        **{key: spec[key] for key in placed if spec.get(key)},
    }
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if "argoproj.io" not in key}
    name = f"drivetrain-workers-{meta['uid'][:8].strip('-')}"
    # Owned by the pod, so that Kubernetes removes the Job with it even where this process is killed.
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "completionMode": "Indexed",
            "completions": replicas,
            "parallelism": replicas,
            "backoffLimit": 0,  # a training that lost one begins again as a whole, by the node's own retries
            "activeDeadlineSeconds": math.ceil(timeout or _LONGEST),  # 0 is none, to Kubernetes
            "ttlSecondsAfterFinished": _KEPT,
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


@contextlib.contextmanager
def _job(replicas: int, words: Sequence[str], environment: Mapping[str, str], timeout: float | None) -> Iterator[None]:
    import kubernetes

    with contextlib.closing(KubernetesApi(ApiSettings())) as cluster:
        name = os.environ.get("KFP_POD_NAME") or socket.gethostname()
        jobs = kubernetes.client.BatchV1Api(cluster.core.api_client)
        with translated_errors(f"read {name}, to start {replicas} more like it", cluster.namespace):
            pod = cluster.core.read_namespaced_pod(name, cluster.namespace)
        body = worker_job(
            cluster.core.api_client.sanitize_for_serialization(pod), replicas, words, environment, timeout
        )
        job_name = body["metadata"]["name"]
        with translated_errors(f"start {replicas} more pods", cluster.namespace):
            jobs.create_namespaced_job(cluster.namespace, body)
        print(f"{replicas} more processes: Job {job_name}", flush=True)
        try:
            yield
        finally:
            with contextlib.suppress(ApiError), translated_errors(f"remove the Job {job_name}", cluster.namespace):
                jobs.delete_namespaced_job(job_name, cluster.namespace, propagation_policy="Background")


@contextlib.contextmanager
def _local(
    replicas: int, words: Sequence[str], environment: Mapping[str, str], timeout: float | None
) -> Iterator[None]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(replicas):
            variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
            variables |= {"JOB_COMPLETION_INDEX": str(index)}
            command = [sys.executable, "-m", f"{__package__}.worker", *words]
            started.append(subprocess.Popen(command, env=variables, start_new_session=True))  # noqa: S603
        yield
        for each in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(60)
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
                each.wait()


def _pod_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise DrivetrainError(f"this pod does not know its own address: {error}", fix="see its /etc/hosts") from None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
