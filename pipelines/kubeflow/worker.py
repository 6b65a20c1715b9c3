"""One of the other processes of a node with replicas: `python -m drivetrain.pipelines.kubeflow.worker`.

It calls the component on the same inputs as the first process and discards the outputs, which the first one publishes.
Its standard output is its pod's log, so secrets are redacted there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import traceback
from pathlib import Path
from typing import TextIO

from ...errors import DrivetrainError, InputError
from ...redaction import redact
from ..dsl.pipeline import load_compiled
from ..ir.tasks import parse_task
from ..launcher import run_records as records
from ..launcher.node_secrets import redact_secrets
from ..launcher.runs import open_run
from ..launcher.spin import spin
from .joining import PodEnvironment
from .workers import PROCESS

_INDEX = "JOB_COMPLETION_INDEX"
"""The variable in which Kubernetes gives a pod of an indexed Job its number, from 0."""


class _RedactedStream(io.TextIOBase):
    """Writes to another stream, without the secrets that this process has revealed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        self._out.write(redact(text))
        return len(text)

    def flush(self) -> None:
        self._out.flush()


def main(argv: list[str] | None = None) -> int:
    """Run the component once as one of the task's processes.

    Returns:
        The exit status: 0 where it succeeded, 1 where it raised, 2 where the run or the image is wrong.
    """
    with (
        contextlib.redirect_stdout(_RedactedStream(sys.stdout)),
        contextlib.redirect_stderr(_RedactedStream(sys.stderr)),
    ):
        return _main(argv)


def _main(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m drivetrain.pipelines.kubeflow.worker",
        description="Take part in a task whose node has replicas.",
        epilog="example: python -m drivetrain.pipelines.kubeflow.worker --project /app/flights --ir 5f0c… "
        "--run 20261121-093000-1a2b --task Trainer",
    )
    parser.add_argument("--project", type=Path, required=True, help="the project's folder")
    parser.add_argument("--ir", required=True, help="digest of the compiled pipeline")
    parser.add_argument("--run", required=True, help="run id")
    parser.add_argument("--task", required=True, help="node id; Trainer[3] for an item of a loop")
    arguments = parser.parse_args(argv)
    if _INDEX in os.environ:  # the first process is the task's own
        os.environ[PROCESS] = str(int(os.environ[_INDEX]) + 1)
    try:
        environment = PodEnvironment.here()
        pipeline = load_compiled(arguments.project, arguments.ir)
        if pipeline.build().digest != arguments.ir:
            raise InputError("the image holds another version of the pipeline", fix="build the image again")
        home = environment.home(environment.store)
        try:
            records.sync(home, arguments.run)
            run = open_run(home, arguments.run)
            redact_secrets(run.pipeline[parse_task(arguments.task)[0]])
            folder = home.root / "work" / "replicas" / f"{arguments.task}-{os.environ[PROCESS]}"
            spun = spin(home, run, pipeline, arguments.task, folder=folder)
        finally:
            home.close()
    except DrivetrainError as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    except Exception:
        traceback.print_exc()
        return 1
    print(f"{arguments.task}, process {os.environ.get(PROCESS)}: done in {spun.seconds:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
