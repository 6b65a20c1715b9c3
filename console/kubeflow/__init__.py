"""`kubeflow`: the verbs by which a pipeline runs on a cluster, one module each."""

from __future__ import annotations

import click

from ..verbs import Verbs
from .compile import compile_
from .diff import diff
from .image import image
from .lint import lint
from .logs import logs
from .schedule import schedule
from .simulate import simulate
from .status import status
from .submit import submit
from .sync import sync
from .terminate import terminate


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain kubeflow compile examples/flights -o flights.yaml\n"
    "  drivetrain kubeflow lint flights.yaml\n",
)
def kubeflow() -> None:
    """The same pipeline on Kubeflow: compile, lint, compare, simulate, submit, follow and schedule it."""


for verb in (compile_, lint, diff, simulate, image, submit, status, logs, terminate, sync, schedule):
    kubeflow.add_command(verb)
