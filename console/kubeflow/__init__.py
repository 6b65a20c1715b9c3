"""`kubeflow`: the same pipeline on a cluster: compiled, checked and compared, simulated, submitted and followed."""

from __future__ import annotations

import click

from ..options import Verbs
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
    """The same pipeline for Kubeflow: compile it, see that it holds, compare it with what is deployed."""


for verb in (compile_, lint, diff, simulate, image, submit, status, logs, terminate, sync, schedule):
    kubeflow.add_command(verb)
