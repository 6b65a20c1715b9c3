"""The Kubernetes API behind KFP: why a pod does not run, and what it printed; KFP's own API has neither.

Pods of a run are found by the label that KFP puts on them, and their tasks by our arguments in their containers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import missing_extra
from ...redaction import redact
from ..ir.ir import Pipeline
from ..ir.tasks import task_name
from .api_errors import ApiError
from .connection import ApiSettings

RUN_LABEL = "pipeline/runid"
MAIN = "main"
"""The name of the container that does a task's work; the others in the pod are Argo's."""
_TIMEOUT = (5, 30)
"""Seconds to connect, and to answer."""
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_WORDS = {
    "ImagePullBackOff": "its image cannot be pulled",
    "ErrImagePull": "its image cannot be pulled",
    "InvalidImageName": "its image has no valid name",
    "CreateContainerConfigError": "a Secret, a ConfigMap or a key that it names is not there",
    "CrashLoopBackOff": "it ends again and again",
    "Unschedulable": "no machine of the cluster has room for it",
    "OOMKilled": "it used more memory than it may",
    "Evicted": "its machine needed the room for others",
    "DeadlineExceeded": "it took longer than it may",
}


@dataclass(frozen=True)
class PodStatus:
    """A pod of a run.

    Attributes:
        name: Its name.
        task: Our task that it does, "" where it is one of KFP's own.
        phase: Pending, Running, Succeeded, Failed or Unknown.
        reason: Why it does not run, or failed: Kubernetes' word, what that means, what it says. Empty otherwise.
    """

    name: str
    task: str
    phase: str
    reason: str = ""


class KubernetesApi:
    """A connection to the Kubernetes API, by the pod that this is or by the kube config.

    Raises:
        DrivetrainError: The extra is not installed.
        ApiError: No cluster is configured on this machine.
    """

    def __init__(self, api: ApiSettings, namespace: str = "") -> None:
        try:
            import kubernetes
        except ImportError:
            raise missing_extra("kubernetes", "kubeflow") from None
        configuration = kubernetes.client.Configuration()
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ:
                kubernetes.config.load_incluster_config(client_configuration=configuration)
            else:
                kubernetes.config.load_kube_config(
                    os.environ.get("KUBECONFIG"),  # which the library reads when it is imported
                    context=api.kube_context or None,
                    client_configuration=configuration,
                )
        except (kubernetes.config.ConfigException, OSError) as error:
            raise ApiError(f"no Kubernetes cluster can be asked: {error}", fix="give a kube config") from None
        self._client = kubernetes.client.ApiClient(configuration)
        self.core = kubernetes.client.CoreV1Api(self._client)
        self.namespace = namespace or api.namespace or _own_namespace() or "kubeflow"

    def close(self) -> None:
        """Close the HTTP connections to the cluster."""
        self._client.close()

    def pods(self, kfp_run: str, pipeline: Pipeline) -> list[PodStatus]:
        """The pods of a KFP run of a pipeline, the newest last.

        Raises:
            ApiError: They cannot be listed.
        """
        with translated_errors("list pods", self.namespace):
            pod_list = self.core.list_namespaced_pod(
                self.namespace, label_selector=f"{RUN_LABEL}={kfp_run}", _request_timeout=_TIMEOUT
            )
        items = sorted(pod_list.items, key=lambda pod: str(pod.metadata.creation_timestamp))
        return [_pod(self._client.sanitize_for_serialization(pod), pipeline) for pod in items]

    def log(self, pod: str, lines: int | None = None) -> str:
        """What the main container of a pod printed, its last lines only where a number is given.

        Raises:
            ApiError: The pod is gone, or its log may not be read.
        """
        with translated_errors(f"read the log of {pod}", self.namespace):
            more = {} if lines is None else {"tail_lines": lines}
            text = self.core.read_namespaced_pod_log(
                pod, self.namespace, container=MAIN, _request_timeout=_TIMEOUT, **more
            )
        return redact(str(text or ""))


@contextlib.contextmanager
def translated_errors(what: str, namespace: str) -> Iterator[None]:
    """Turn whatever the Kubernetes client raises in the block into an `ApiError`."""
    import urllib3
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as error:
        message = error.reason
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            message = json.loads(error.body)["message"]
        fix = f"ask for a role that may, in {namespace} (docs/kubeflow.md lists what is needed)"
        raise ApiError(
            f"Kubernetes cannot {what} in {namespace}: {message} ({error.status})",
            fix=fix if error.status in (401, 403) else "see `kubectl get pods`",
            status=int(error.status or 0),
        ) from None
    except urllib3.exceptions.HTTPError as error:
        raise ApiError(f"Kubernetes cannot {what}: {redact(str(error)):.200}", fix="see the kube config") from None


def _pod(body: Mapping[str, Any], pipeline: Pipeline) -> PodStatus:  # Any: JSON
    status = body.get("status") or {}
    phase = str(status.get("phase") or "Unknown")
    reason = "" if phase == "Succeeded" else _reason(status)
    return PodStatus(str(body["metadata"]["name"]), _task(body, pipeline), phase, redact(reason))


def _reason(status: Mapping[str, Any]) -> str:  # Any: JSON
    """Why a pod does not run, or failed: by the first container with a reason (the main one first), else the pod."""
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in sorted(containers, key=lambda each: each.get("name") != MAIN):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            last = f"; before that {before['reason']}" if before.get("reason") else ""
            return _explained(waiting["reason"], waiting.get("message")) + last
        if ended.get("exitCode"):
            message = ended.get("message") or f"exit code {ended['exitCode']}"
            return _explained(ended.get("reason") or "Error", message)
    if status.get("reason"):
        return _explained(status["reason"], status.get("message"))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _explained(condition.get("reason") or "Unschedulable", condition.get("message"))
    return ""


def _explained(word: str, message: object) -> str:
    meaning = f" ({_WORDS[word]})" if word in _WORDS else ""
    return f"{word}{meaning}" + (f": {str(message).strip()}" if message else "")


def _task(body: Mapping[str, Any], pipeline: Pipeline) -> str:  # Any: JSON
    """Our task, by the arguments that the compiler gave its container, which KFP's launcher puts after its own."""
    for container in (body.get("spec") or {}).get("containers") or ():
        words: Sequence[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
        if "--node" in words and "--ir" in words:
            node = words[words.index("--node") + 1]
            return task_name(node, _index(words, pipeline.scope(node))) if node in pipeline.ids else ""
    return ""


def _index(words: Sequence[str], loops: Sequence[str]) -> tuple[int, ...]:
    """The items of its loops, by the inputs that KFP hands on to its launcher."""
    for word in words:
        if not word.startswith("{") or "loop--" not in word:
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            values = json.loads(word)["inputs"]["parameterValues"]
            return tuple(int(values[f"loop--{loop}"]) for loop in loops)
    return ()


def _own_namespace() -> str:
    with contextlib.suppress(OSError):
        return _NAMESPACE.read_text(encoding="utf-8").strip()
    return ""
