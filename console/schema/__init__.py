"""`schema`: see what the data should look like, have it proposed from statistics, accept it, move it from and to TFX.

The schema is a file of the user's project, under version control; validation is always against what was accepted.
"""

from __future__ import annotations

import click

from ..verbs import Verbs
from .accept import accept
from .diff import diff
from .infer import infer
from .show import show
from .tfx import export, import_
from .update import update


@click.group(
    cls=Verbs, epilog="\b\nExample:\n  drivetrain schema infer\n  drivetrain schema accept\n  drivetrain schema diff\n"
)
def schema() -> None:
    """See, propose and accept the schema: what the data should look like."""


for verb in (show, infer, accept, import_, export, diff, update):
    schema.add_command(verb)
