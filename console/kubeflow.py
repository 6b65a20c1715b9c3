"""`kubeflow`: the same pipeline on a cluster: compiled, checked and compared before anything is sent."""

from __future__ import annotations

import click


@click.group(
    epilog="\b\nExample:\n  drivetrain kubeflow compile examples/flights -o flights.yaml\n"
    "  drivetrain kubeflow lint flights.yaml\n"
)
def kubeflow() -> None:
    """The same pipeline for Kubeflow: compile it, see that it holds, compare it with what is deployed."""
