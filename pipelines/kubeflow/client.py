"""KFP's own client made safe to use: bounded waits, retried reads, plain dataclasses, one error for every fault.

By itself kfp's `Client` has no timeout at all, asks an unreachable server for its health five times with five seconds
in between, prints links to standard output, and waits for ever for a run that was cancelled.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from ...errors import missing_extra
from ...redaction import redact
from .api_errors import ApiError, NotAnApi, translated
from .connection import ApiSettings

ENDED = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")
"""The states in which a KFP run stays."""
_PAGE = 100
_BACKOFF: Final = 0.25  # seconds, doubled with each retry; none before the first


@dataclass(frozen=True)
class KfpTask:
    """A task of a KFP run, as the API returns it.

    Attributes:
        name: KFP's name of it: the pod-less parts of a pipeline (drivers, sub-DAGs) are among them.
        state: PENDING, RUNNING, SUCCEEDED, SKIPPED, FAILED, CANCELING, CANCELED, PAUSED or "".
        error: Why it failed, or waits; most releases of KFP leave it empty.
        pods: The names of its pods.
        parent: The id of the task it is in.
    """

    id: str
    name: str
    state: str = ""
    error: str = ""
    pods: tuple[str, ...] = ()
    parent: str = ""


@dataclass(frozen=True)
class KfpRun:
    """A KFP run.

    Attributes:
        id: KFP's id, a UUID.
        state: As of its tasks.
        parameters: What it was started with.
        link: Its page in the UI, "" where that is not known.
    """

    id: str
    name: str
    state: str
    error: str = ""
    created: datetime | None = None
    finished: datetime | None = None
    parameters: Mapping[str, object] | None = None
    tasks: tuple[KfpTask, ...] = ()
    link: str = ""
    recurring: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run has ended: its state does not change any more."""
        return self.state in ENDED


@dataclass(frozen=True)
class RecurringRun:
    """A recurring run as KFP has it.

    Attributes:
        cron: The six fields of cron, "" for a schedule at an interval.
        every: Seconds between two runs, 0 for a schedule by cron.
        state: ENABLED or DISABLED.
        spec: The compiled pipeline, as it was sent.
    """

    id: str
    name: str
    description: str
    state: str
    cron: str = ""
    every: int = 0
    start: datetime | None = None
    end: datetime | None = None
    max_concurrency: int = 1
    no_catchup: bool = False
    experiment: str = ""
    parameters: Mapping[str, object] | None = None
    spec: Mapping[str, Any] | None = None  # Any: JSON, compared as a whole


class KfpClient:
    """A connection to KFP's API; made late, because it imports kfp (2 to 3 s).

    Raises:
        DrivetrainError: The extra is not installed.
        InputError: It is not said where the API is, or a secret is not there.
        ApiError: It cannot be asked.
    """

    def __init__(self, api: ApiSettings) -> None:
        self.api = api
        self.host = api.url
        self._kfp = connect(api, self.host)
        self._in_namespace = {"namespace": api.namespace} if api.namespace else {}

    def greet(self) -> None:
        """Check that the API answers and accepts the credentials; raises an `ApiError` where it does not."""
        with self._asking("be asked"):
            self._kfp.list_runs(page_size=1, **self._in_namespace)

    def submit(
        self,
        package: Path,
        *,
        name: str,
        experiment: str,
        arguments: Mapping[str, object],
        service_account: str = "",
    ) -> KfpRun:
        """Start a run of a compiled pipeline (`*.yaml`), in an experiment made if need be. KFP's own cache is off."""
        with self._asking(f"start {name}", changes=True):
            result = retry_on_conflict(
                lambda: self._kfp.create_run_from_pipeline_package(
                    str(package),
                    arguments=dict(arguments),
                    run_name=name,
                    experiment_name=experiment,
                    **self._in_namespace,
                    service_account=service_account or None,
                    enable_caching=False,
                )
            )
            return self._run(result.run_info)

    def run(self, run: str) -> KfpRun:
        """A run with its tasks; raises an `ApiError` of status 404 where KFP has no such run."""
        with self._asking(f"tell of its run {run}"):
            return self._run(self._kfp.get_run(run))

    def find(self, parameter: str, value: str, since: datetime | None = None) -> KfpRun | None:
        """The newest run that was started with a value of a parameter; looks no further back than `since`."""
        with self._asking("list its runs"):
            for api_run in self._pages(self._kfp.list_runs, "runs", sort_by="created_at desc", **self._in_namespace):
                run = self._run(api_run)
                if (run.parameters or {}).get(parameter) == value:
                    return run
                if since and run.created and run.created < since:
                    break
        return None

    def terminate(self, run: str) -> None:
        """Ask KFP to end a run; its pods get SIGTERM, and the run ends some time later."""
        with self._asking(f"end its run {run}", changes=True):
            self._kfp.terminate_run(run)

    def wait(
        self,
        run: str,
        *,
        seen: Callable[[KfpRun], None] = lambda run: None,
        every: float = 5.0,
        timeout: float | None = None,
    ) -> KfpRun:
        """Look at a run until it has ended.

        Args:
            run: Its id.
            seen: Called with the run at each poll.
            every: Seconds between two polls.
            timeout: Seconds at most, None for any time.

        Raises:
            ApiError: It did not end in time; it goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            current = self._run_with_current_token(run)
            seen(current)
            if current.ended:
                return current
            if deadline is not None and time.monotonic() + every > deadline:
                raise ApiError(
                    f"the KFP run {run} is still {current.state} after {timeout:g} s", fix="it goes on; ask again later"
                )
            time.sleep(every)

    def _run_with_current_token(self, run: str) -> KfpRun:
        """The run; on a 401 once more with the token read anew, because tokens are rotated during a long wait."""
        try:
            return self.run(run)
        except ApiError as error:
            if error.status != 401:
                raise
        self._kfp = connect(self.api, self.host)
        return self.run(run)

    def recur(
        self,
        package: Path,
        *,
        name: str,
        description: str,
        experiment: str,
        arguments: Mapping[str, object],
        cron: str = "",
        every: int = 0,
        start: str = "",
        end: str = "",
        max_concurrency: int = 1,
        no_catchup: bool = False,
        service_account: str = "",
    ) -> RecurringRun:
        """Start a recurring run, by six fields of cron or an interval in seconds."""
        with self._asking(f"schedule {name}", changes=True):
            kfp_experiment = retry_on_conflict(lambda: self._kfp.create_experiment(experiment, **self._in_namespace))
            recurring_run = self._kfp.create_recurring_run(
                experiment_id=kfp_experiment.experiment_id,
                job_name=name,
                description=description,
                cron_expression=cron or None,
                interval_second=every or None,
                start_time=start or None,
                end_time=end or None,
                max_concurrency=max_concurrency,
                no_catchup=no_catchup,
                params=dict(arguments),
                pipeline_package_path=str(package),
                enable_caching=False,
                service_account=service_account or None,
            )
            return _recurring(recurring_run)

    def schedules(self) -> list[RecurringRun]:
        """All recurring runs of the namespace."""
        with self._asking("list its recurring runs"):
            recurring_runs = self._pages(self._kfp.list_recurring_runs, "recurring_runs", **self._in_namespace)
            return [_recurring(each) for each in recurring_runs]

    def change_schedule(self, schedule: str, to: str) -> None:
        """Have a recurring run "enabled", "disabled" or "deleted"."""
        verbs = {
            "enabled": self._kfp.enable_recurring_run,
            "disabled": self._kfp.disable_recurring_run,
            "deleted": self._kfp.delete_recurring_run,
        }
        with self._asking(f"have the recurring run {schedule} {to}", changes=True):
            verbs[to](schedule)

    def _pages(self, ask: Callable[..., Any], key: str, **more: object) -> Iterator[Any]:  # Any: kfp's models
        token = ""
        while True:
            answer = ask(page_token=token, page_size=_PAGE, **more)
            yield from getattr(answer, key) or ()
            token = answer.next_page_token or ""
            if not token:
                return

    def _run(self, api_run: Any) -> KfpRun:  # Any: kfp's model
        details = api_run.run_details.task_details if api_run.run_details else None
        ui = self.api.ui_host or self.host
        return KfpRun(
            id=api_run.run_id,
            name=api_run.display_name or "",
            state=api_run.state or "",
            error=_message(api_run.error),
            created=api_run.created_at,
            finished=api_run.finished_at,
            parameters=api_run.runtime_config.parameters if api_run.runtime_config else None,
            tasks=tuple(_task(each) for each in details or ()),
            link=f"{ui.rstrip('/')}/#/runs/details/{api_run.run_id}" if ui else "",
            recurring=api_run.recurring_run_id or "",
        )

    def _asking(self, what: str, *, changes: bool = False) -> contextlib.AbstractContextManager[None]:
        return translated(self.api, self.host, what, changes=changes)


def _recurring(api_recurring: Any) -> RecurringRun:  # Any: kfp's model
    trigger = api_recurring.trigger
    schedule = (trigger.cron_schedule or trigger.periodic_schedule) if trigger else None
    return RecurringRun(
        id=api_recurring.recurring_run_id,
        name=api_recurring.display_name or "",
        description=api_recurring.description or "",
        state=api_recurring.status or "",
        cron=trigger.cron_schedule.cron if trigger and trigger.cron_schedule else "",
        every=int(trigger.periodic_schedule.interval_second or 0) if trigger and trigger.periodic_schedule else 0,
        start=schedule.start_time if schedule else None,
        end=schedule.end_time if schedule else None,
        max_concurrency=int(api_recurring.max_concurrency or 1),
        no_catchup=bool(api_recurring.no_catchup),
        experiment=api_recurring.experiment_id or "",
        parameters=api_recurring.runtime_config.parameters if api_recurring.runtime_config else None,
        spec=api_recurring.pipeline_spec,
    )


def _task(api_task: Any) -> KfpTask:  # Any: kfp's model
    histories = [status.error for status in api_task.state_history or () if status.error is not None]
    children = [child.pod_name for child in api_task.child_tasks or () if child.pod_name]
    return KfpTask(
        id=api_task.task_id or "",
        name=api_task.display_name or "",
        state=api_task.state or "",
        error=_message(api_task.error) or (_message(histories[-1]) if histories else ""),
        pods=tuple(filter(None, [api_task.pod_name, *children])),
        parent=api_task.parent_task_id or "",
    )


def _message(error: Any) -> str:  # Any: kfp's model
    return redact(str(error.message or "")) if error is not None else ""


def retry_on_conflict(ask: Callable[[], Any]) -> Any:  # Any: kfp's models
    """Call `ask`, and once more on a conflict: another may create the experiment after kfp looked for it."""
    from kfp_server_api.exceptions import ApiException

    try:
        return ask()
    except ApiException as error:
        if error.status != 409:
            raise
    return ask()


def connect(api: ApiSettings, host: str) -> Any:  # Any: kfp has no types
    """The SDK's client for an API, with bounds on its requests.

    Raises:
        DrivetrainError: The extra is not installed.
        InputError: A secret is not there.
        ApiError: It cannot be asked.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations within kfp
        try:
            # By its own name: kfp lacks its parts where only its protobufs were asked for before (`protobufs.py`).
            from kfp.client import Client as SdkClient
            from kfp.client import set_volume_credentials
        except ImportError:
            raise missing_extra("kfp", "kubeflow") from None

    class NoHealthCheckClient(SdkClient):  # type: ignore[misc]  # no types
        """Skips the health check by which kfp guesses a namespace: ours is always explicit."""

        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:  # Any: kfp's model
            return SimpleNamespace(multi_user=False)

    credentials = None
    if api.service_account_token:
        credentials = set_volume_credentials.ServiceAccountTokenVolumeCredentials(api.service_account_token)
    # For the Identity-Aware Proxy kfp may ask a person to log in: on stderr, as stdout is for the --json answer.
    with translated(api, host, "be asked"), contextlib.redirect_stdout(sys.stderr):
        sdk_client = NoHealthCheckClient(
            host=host or None,
            ui_host=api.ui_host or None,
            existing_token=api.token() or None,
            cookies=api.cookies() or None,
            credentials=credentials,
            client_id=api.iap_client_id or None,
            other_client_id=api.iap_other_client_id or None,
            other_client_secret=api.iap_secret() or None,
            ssl_ca_cert=api.ca_cert or None,
            verify_ssl=None if api.verify_ssl else False,
            proxy=api.proxy or None,
            kube_context=api.kube_context or None,
        )
    _bound(sdk_client, api)
    return sdk_client


def _bound(client: Any, api: ApiSettings) -> None:  # Any: kfp has no types
    """Give all requests of the client a timeout and retries, and raise `NotAnApi` on an answer that is not JSON."""
    import urllib3

    rest = client.runs.api_client.rest_client
    rest.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(
        api.retries,
        backoff_factor=_BACKOFF,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=("GET", "HEAD"),  # others might be carried out twice; urllib3 resends those that never left
        raise_on_status=False,
    )
    send = rest.request

    def request(method: str, url: str, **more: Any) -> Any:  # Any: what the generated client passes on
        more["_request_timeout"] = more.get("_request_timeout") or (min(10.0, api.timeout), api.timeout)
        answer = send(method, url, **more)
        kind = answer.getheader("content-type") or "nothing"
        if "json" not in kind:
            raise NotAnApi(kind)
        return answer

    rest.request = request
