"""The `drivetrain` command: a group of verbs, one clear line for every error, exit codes that say whose it is."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

import click

from ..errors import Canceled, DrivetrainError, InputError, missing_module
from ..interrupts import interrupt, was_terminated
from ..lazy import end_process
from .exit_codes import CANCELED, CRASH, OK, TERMINATED, USER_ERROR, complain
from .terminal import drop_output, echo, lost_output
from .verbs import LazyVerbs, Verbs

VERBS = {
    "new": "Make a project in the folder NAME that runs, with tests, from real data to a pushed model.",
    "run": "Run the pipeline in FOLDER/pipeline.py.",
    "resume": "Finish a run that failed, was stopped or was killed (the newest one unless RUN is given).",
    "rerun": "Run the pipeline of a run again (of the newest unless RUN is given): its parameters, today's code.",
    "spin": "Call one NODE (of a loop: NODE[3]) on an earlier run's inputs, with today's code.",
    "backfill": "Run the pipeline in FOLDER for each span, in order: what is unchanged comes from the cache.",
    "schedule": "Start runs automatically: by the clock, on new data, on drift, when a metric falls, after other runs.",
    "notify": "Tell people of failures, recoveries, stops, questions and new champions, by chat, mail or webhook.",
    "approve": "Approve the NODE of RUN that waits for it; where only one waits, it need not be named.",
    "bless": "Bless the model that NODE of RUN (the newest unless given) judged and did not bless.",
    "unbless": "Withdraw the blessing of the model that NODE of RUN (the newest unless given) blessed.",
    "registry": "Registered models: versions that never change, aliases that move, approvals, a version's history.",
    "runs": "List past runs, the newest first: state, when, blessing, metrics, parameters that differ, tags.",
    "find": "Find runs, executions or artifacts by a filter: on states, times, metrics, parameters, properties, "
    "lineage.",
    "cost": "Sum what executions used and cost: CPU, accelerators, memory, bytes, energy, money.",
    "tag": "Tag a run (the newest unless --run names one), or add a note to it; without either, show both.",
    "show": "Show a run (the newest unless RUN is given): nodes, states, seconds, reasons, artifacts, tracebacks.",
    "diff": "Say what changed from run FIRST to run SECOND: parameters, "
    "and of each node its state, code, data and metrics.",
    "why": "Say why NODE ran, or why not: which part of its cache key changed since its last "
    "execution before that run.",
    "logs": "Print what NODE printed in RUN; without NODE, list the logs of "
    "RUN (the newest unless given) and their sizes.",
    "lineage": "Trace what led to an artifact or a node, or with --down what was made from it, through all runs.",
    "trace": "Trace an ANSWER of the model server to the model, its evaluation, code and data, and who approved it.",
    "schema": "See, propose and accept the schema: what the data should look like.",
    "bundle": "See, check, sign and renew a bundle: a saved transform or model.",
    "evaluate-checkpoints": "Measure each checkpoint of a training as it comes: FOLDER is what "
    'Trainer(evaluator="elsewhere") prints.',
    "serve": "Serve the newest version at ADDRESS, a folder or URL that models are pushed to, until it is told to end.",
    "metadata-server": "Serve metadata stores over HTTP to machines without database passwords, until told to end.",
    "predict": "Ask the model at URL, as `serve` prints it, for predictions of the rows in FILE.",
    "ab-test": "Compare the versions of a served model by the request log in LOG and what came true, in LABELS.",
    "hub": "See, check and clean published modules: an ADDRESS is a folder or a URL prefix.",
    "kubeflow": "The same pipeline on Kubeflow: compile, lint, compare, simulate, submit, follow and schedule it.",
    "package": "Build a wheel of a project for other machines: its modules, and the files that it names.",
    "openlineage": "Send what ran as OpenLineage events, to where that client's settings say.",
    "mlflow": "Mirror runs into an MLflow tracking server: parameters, metrics with their steps, tags, how they ended.",
    "import-mlmd": "Import runs, artifacts and lineage from FILE, an ML Metadata store (SQLite) as TFX writes it.",
    "fsck": "Check every payload against its digest, and look for what crashes left behind.",
    "pin": "Keep an ARTIFACT, or all outputs of a run, whatever a retention policy says; without either, list the "
    "pins.",
    "gc": "Remove the payloads that a retention policy does not keep; without --apply, only say which.",
    "backup": "Copy the metadata to FILE while runs go on, and check the copy; or put a copy back.",
    "audit": "Verify the history against its journal, and export and sign the journal's head.",
    "namespace": "Namespaces of a PostgreSQL store: a schema for each project or person, and who may read, write, "
    "approve there.",
    "upgrade": "Migrate the metadata of an earlier release to this one's schema; a copy is kept beside it.",
    "doctor": "Check Python, the platform, installed extras, devices, the root and the disk.",
}
"""The verbs and the first sentence of each one's help, so that `--help` need not import them."""


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Shell(Verbs):
    """A group whose verbs return their exit code, and whose errors are for people."""

    def first_sentence(self, name: str) -> str:
        """The first sentence of a verb's help."""
        return VERBS[name]

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and import what it needs."""
        resolved = super().resolve_command(context, args)
        if not gc.isenabled():  # see `main`
            gc.freeze()
            gc.enable()
        return resolved

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a verb and leave with its exit code."""
        kwargs["standalone_mode"] = False
        sys.exit(self._code(*args, **kwargs))

    def _code(self, *args: Any, **kwargs: Any) -> int:
        try:
            code = super().main(*args, **kwargs) or OK
            if (error := lost_output()) is not None:
                raise error
            return code
        except click.ClickException as error:
            text = io.StringIO()
            error.show(text)
            echo(text.getvalue(), err=True, end="")
            return error.exit_code
        except (KeyboardInterrupt, click.Abort, Canceled):
            echo("cancelled", err=True)
            return CANCELED
        except DrivetrainError as error:
            complain(error)
            return USER_ERROR
        except BrokenPipeError:
            drop_output()  # the reader (`| head`) has seen enough
            return OK
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK_FULL and error.filename is None:
                drop_output()
                complain(InputError(f"what this prints cannot be written: {error.strerror}", fix="make room"))
                return USER_ERROR
            mistake = missing_module(error) or _gone(error)
            if mistake is not None:
                complain(mistake)
                return USER_ERROR
            if os.environ.get("DRIVETRAIN_DEBUG"):
                echo(traceback.format_exc(), err=True)
            else:
                echo(f"unexpected error: {type(error).__name__}: {error}", err=True)
                echo("  the traceback: set DRIVETRAIN_DEBUG=1 and run it again", err=True)
            return CRASH


def _gone(error: Exception) -> InputError | None:
    """What to say where nothing relative means anything: the folder that one stands in was removed."""
    if isinstance(error, FileNotFoundError):
        try:
            Path.cwd()
        except FileNotFoundError:
            return InputError("the working directory does not exist any more", fix="cd to a folder that does")
    return None


@click.group(
    cls=Shell,
    commands=LazyVerbs(__package__, VERBS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  drivetrain run examples/flights\n  drivetrain show\n",
)
@click.version_option(package_name="drivetrain", prog_name="drivetrain")
def cli() -> None:
    """Raw data to a served model and back: run pipelines, see what they did, and why."""


def _mend_streams() -> None:
    """Give standard streams that were closed a place to go, and those that are not UTF-8 a spelling of every letter.

    The number of a closed one would be that of the next file that is opened, such as the store's, and what is printed
    would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> NoReturn:
    """The command as the shell starts it: from the first line on SIGTERM cancels like Ctrl-C, with its own code."""
    signal.signal(signal.SIGTERM, interrupt)
    # What is imported stays until the end. To look for garbage among it, now and when Python ends, took a sixth of a
    # cached run.
    gc.disable()
    _mend_streams()
    try:
        cli.main(prog_name="drivetrain")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else OK
        if code == CANCELED and was_terminated():
            code = TERMINATED
        # A component that never checks for cancellation would keep this process alive, so it ends here. The store later
        # records such a task as the work of a dead process.
        runs_on = any(thread.name.startswith("drivetrain-node") for thread in threading.enumerate())
        end_process(code, wait=code not in (CANCELED, TERMINATED) or not runs_on)
