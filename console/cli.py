"""The `drivetrain` command: a group of verbs, one clear line for every error, exit codes that say whose it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

import click

from ..errors import Canceled, DrivetrainError, missing_module
from .approve import approve
from .backfill import backfill
from .bundle import bundle
from .diff import diff
from .doctor import doctor
from .fsck import fsck
from .hub import hub
from .import_mlmd import import_mlmd
from .kubeflow import kubeflow
from .lineage import lineage
from .logs import logs
from .options import CANCELED, CRASH, OK, USER_ERROR, Verbs, complain
from .package import package
from .rerun import rerun
from .resume import resume
from .run import run
from .runs import runs
from .schema import schema
from .show import show
from .spin import spin
from .why import why


class Shell(Verbs):
    """A group whose verbs return their exit code, and whose errors are for people."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a verb and leave with its exit code."""
        kwargs["standalone_mode"] = False
        sys.exit(self._code(*args, **kwargs))

    def _code(self, *args: Any, **kwargs: Any) -> int:
        try:
            return super().main(*args, **kwargs) or OK
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (KeyboardInterrupt, click.Abort, Canceled):
            click.echo("cancelled", err=True)
            return CANCELED
        except DrivetrainError as error:
            complain(error)
            return USER_ERROR
        except BrokenPipeError:
            # The reader (`| head`) has seen enough; leave no second error when Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except Exception as error:
            if (missing := missing_module(error)) is not None:
                complain(missing)
                return USER_ERROR
            if os.environ.get("DRIVETRAIN_DEBUG"):
                traceback.print_exc()
            else:
                click.echo(f"unexpected error: {type(error).__name__}: {error}", err=True)
                click.echo("  the traceback: set DRIVETRAIN_DEBUG=1 and run it again", err=True)
            return CRASH


@click.group(
    cls=Shell,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  drivetrain run examples/flights\n  drivetrain show\n",
)
@click.version_option(package_name="drivetrain", prog_name="drivetrain")
def cli() -> None:
    """Raw data to a served model and back: run pipelines, see what they did, and why."""


_RUNS = (run, resume, rerun, spin, backfill, approve, runs, show, diff, why, logs, lineage)
for verb in (*_RUNS, schema, bundle, hub, kubeflow, package, import_mlmd, fsck, doctor):
    cli.add_command(verb)


def main() -> NoReturn:
    """The command as the shell starts it: SIGTERM cancels like Ctrl-C, from the first line on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli.main(prog_name="drivetrain")
    except SystemExit as end:
        # Python waits for its threads at exit. A component that never checks for cancellation would keep this process
        # alive, so it ends here. The store later records such a task as the work of a dead process.
        if end.code == CANCELED and any(thread.name.startswith("drivetrain-node") for thread in threading.enumerate()):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(CANCELED)
        raise
