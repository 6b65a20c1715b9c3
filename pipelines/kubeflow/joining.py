"""How a pod joins its run: in the store that its environment names, or in one of its own where that is away."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from ...errors import InputError
from ...metadata import MetadataStore, StoreUnavailable, keep_payloads_at
from ..ir.ir import Pipeline
from ..launcher import run_records as records
from ..launcher.home import ALONE, Home
from ..launcher.root import find_root
from ..launcher.runs import Run, RunOptions, open_run
from ..launcher.states import RunState
from .manifests import RUN
from .ownership import CLUSTER, Submission, hand_over, submission

T = TypeVar("T")
_PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries to reach the store, before the pod goes on without it."""
_CLONED = f"leave the parameter {RUN} empty where a run is cloned in KFP: it then gets a record of its own"
PATIENCE = "DRIVETRAIN_STORE_PATIENCE"
"""The environment variable that scales those seconds."""


@dataclass(frozen=True)
class PodEnvironment:
    """What a pod's environment variables say.

    Attributes:
        root: Its own folder.
        store: Where the metadata lies, None for the root's.
        artifacts: Where the payloads lie, None for the root.
        kfp_run: KFP's id of its run.
    """

    root: Path
    store: str | None
    artifacts: str | None
    kfp_run: str

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> PodEnvironment:
        """Read the variables of this process.

        Raises:
            InputError: They name no run of KFP's.
        """
        kfp_run = environment.get("DRIVETRAIN_KUBEFLOW_RUN", "")
        if not kfp_run:
            raise InputError(
                "DRIVETRAIN_KUBEFLOW_RUN is not set",
                fix="submit both documents of the compiled pipeline: the second sets it",
            )
        artifacts = environment.get("DRIVETRAIN_ARTIFACTS", "")
        location = find_root(environment=environment)
        return cls(
            location.root,
            location.store,
            Path(artifacts).as_uri() if artifacts.startswith("/") else artifacts or None,
            kfp_run,
        )

    def home(self, store: str | None) -> Home:
        """A home in the pod's folder, with this store and the run's artifacts."""
        return Home(self.root, store=store, artifacts=self.artifacts)


@dataclass(frozen=True)
class JoinedRun:
    """A run as a pod works on it.

    Attributes:
        alone: Whether the store is the pod's own, whose contents reach others through the records only.
    """

    home: Home
    run: Run
    alone: bool


def join_run(
    environment: PodEnvironment, name: str, pipeline: Pipeline, project: Path, parameters: Mapping[str, object]
) -> JoinedRun:
    """Open the run of that name, or create it, in the shared store; where that is away, in one of the pod's own.

    Pods that create it at the same time get the same one. A store of the pod's own first takes in the records.

    Raises:
        InputError: The run is of another pipeline, has other parameters, or was ended by another run of KFP's.
    """
    facts = _facts(pipeline, project, parameters) | {"kubeflow": {"run": environment.kfp_run}}
    body = {"id": name, "facts": facts, "ir": pipeline.to_json()}
    try:
        joined = retry_while_unavailable(lambda: _join_in_shared_store(environment, body))
    except StoreUnavailable as error:
        print(f"the store cannot be reached, this pod goes on without it: {error.message}", flush=True)
        joined = join_in_own_store(environment, body)
    # The run has the paths of the machine where it was submitted; in the image the project is another one.
    return replace(joined, run=replace(joined.run, project=project, directories={}))


def join_in_own_store(environment: PodEnvironment, body: records.Body) -> JoinedRun:
    """A run in a new store of the pod's own, filled from the records.

    Args:
        environment: The pod's.
        body: The run's "id", "facts" and "ir", for where the records do not have them.
    """
    path = environment.root / ALONE / secrets.token_hex(4) / "metadata.db"
    with MetadataStore.open(path) as store:
        if environment.artifacts is not None:
            keep_payloads_at(store, environment.artifacts)
        records.create_run(store, body)
    home = environment.home(str(path))
    try:
        run = _checked_same(open_run(home, body["id"]), body, environment)
        recorded = records.read_run(home, run.id)
        if recorded is not None:
            run = replace(
                run, context=home.store.update_context(run.context, {"options": recorded["facts"]["options"]})
            )
        records.sync(home, run.id)
        records.write_run(home, run)
        return JoinedRun(home, open_run(home, run.id), alone=True)
    except BaseException:
        home.close()
        raise


def retry_while_unavailable(ask: Callable[[], T]) -> T:
    """Call `ask`, again after each of `_PAUSES` while the store cannot be reached; returns its result.

    Raises:
        StoreUnavailable: The store was still away at the last try.
    """
    patience = float(os.environ.get(PATIENCE) or 1)
    for pause in _PAUSES:
        try:
            return ask()
        except StoreUnavailable:
            time.sleep(pause * patience)
    return ask()


def _join_in_shared_store(environment: PodEnvironment, body: records.Body) -> JoinedRun:
    home = environment.home(environment.store)
    try:
        if home.store.find_context("run", body["id"]) is None:
            records.create_run(home.store, records.read_run(home, body["id"]) or body)
        run = _checked_same(open_run(home, body["id"]), body, environment)
        records.write_run(home, run)
        return JoinedRun(home, hand_over(home, run, Submission(environment.kfp_run)), alone=False)
    except BaseException:
        home.close()
        raise


def _checked_same(run: Run, body: records.Body, environment: PodEnvironment) -> Run:
    """The run, checked to be the one that is meant: KFP's pages copy its id into whatever is cloned from it."""
    if run.pipeline.digest != body["facts"]["ir"]:
        raise InputError(
            f"run {run.id} has the pipeline {run.pipeline.digest[:12]}, the image holds {body['facts']['ir'][:12]}",
            fix="submit what was compiled from the sources that the image was built of",
        )
    parameters, recorded_kfp_run = json.loads(body["facts"]["parameters"]), submission(run).run
    for name, value in parameters.items():
        if _plain(value) != _plain(run.parameters.get(name)):
            raise InputError(
                f"run {run.id} has {name}={run.parameters.get(name)!r}, and KFP's run {environment.kfp_run} has "
                f"{name}={value!r}",
                fix=_CLONED,
            )
    if (
        run.context.properties["state"] != RunState.RUNNING
        and recorded_kfp_run
        and recorded_kfp_run != environment.kfp_run
    ):
        raise InputError(
            f"run {run.id} has ended, as KFP's run {recorded_kfp_run}; this is KFP's run {environment.kfp_run}",
            fix=_CLONED,
        )
    return run


def _plain(value: object) -> object:
    """A parameter as KFP hands it on, for comparing: numbers are doubles, and None is the text "null"."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number else "null" if value is None else value  # type: ignore[arg-type]  # it is a number


def _facts(pipeline: Pipeline, project: Path, parameters: Mapping[str, object]) -> dict[str, object]:
    return {
        "pipeline": pipeline.name,
        "ir": pipeline.digest,
        "project": str(project),
        "parameters": json.dumps(dict(parameters)),
        "options": json.dumps(vars(RunOptions(runner="kubeflow"))),
        "state": RunState.RUNNING,
        "owner": CLUSTER.to_dict(),
        "started": datetime.now(UTC).isoformat(),
        "newest": 0,  # replaced by `create_run`: an id of the store that the run is created in
    }
