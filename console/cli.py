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
from .exit_codes import CANCELED, CRASH, OK, USER_ERROR, complain
from .verbs import LazyVerbs, Verbs

VERBS = {
    "new": "Make a project in the folder NAME that runs, with tests, from real data to a pushed model.",
    "run": "Run the pipeline in FOLDER/pipeline.py.",
    "resume": "Finish a run that failed, was stopped or was killed (the newest one unless RUN is given).",
    "rerun": "Run the pipeline of a run again (of the newest unless RUN is given): its parameters, today's code.",
    "spin": "Call one NODE (of a loop: NODE[3]) on an earlier run's inputs, with today's code.",
    "backfill": "Run the pipeline in FOLDER for each span, in order: what is unchanged comes from the cache.",
    "approve": "Approve the NODE of RUN that waits for it; where only one waits, it need not be named.",
    "runs": "List past runs, the newest first: state, when, blessing, metrics, parameters that differ, tags.",
    "tag": "Tag a run (the newest unless --run names one), or note something of it; without either, show both.",
    "show": "Show a run (the newest unless RUN is given): nodes, states, seconds, reasons, artifacts, tracebacks.",
    "diff": "Say what changed from run FIRST to run SECOND: parameters, "
    "and of each node its state, code, data and metrics.",
    "why": "Say why NODE ran, or why not: which part of its cache key changed since its last "
    "execution before that run.",
    "logs": "Print what NODE printed in RUN; without NODE, list the logs of "
    "RUN (the newest unless given) and their sizes.",
    "lineage": "Trace what led to an artifact or a node, or with --down what was made from it, through all runs.",
    "schema": "See, propose and accept the schema: what the data should look like.",
    "bundle": "See, check and renew a bundle: a saved transform or model.",
    "hub": "See, check and clean published modules: an ADDRESS is a folder or a URL prefix.",
    "kubeflow": "The same pipeline on Kubeflow: compile, lint, compare, simulate, submit, follow and schedule it.",
    "package": "Build a wheel of a project for other machines: its modules, and the files that it names.",
    "import-mlmd": "Take runs, artifacts and lineage out of FILE, an ML Metadata store (SQLite) as TFX writes it.",
    "fsck": "Check every payload against its digest, and look for what crashes left behind.",
    "doctor": "Look at Python, the platform, installed extras, devices, the root and the disk.",
}
"""The verbs and the first sentence of each one's help, so that `--help` need not import them."""


class Shell(Verbs):
    """A group whose verbs return their exit code, and whose errors are for people."""

    def first_sentence(self, name: str) -> str:
        """The first sentence of a verb's help."""
        return VERBS[name]

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
    commands=LazyVerbs(__package__, VERBS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  drivetrain run examples/flights\n  drivetrain show\n",
)
@click.version_option(package_name="drivetrain", prog_name="drivetrain")
def cli() -> None:
    """Raw data to a served model and back: run pipelines, see what they did, and why."""


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
