"""A Beam job: its options checked before it starts, and an end in every case, on any runner.

What the executor of data passes and the runner of pipelines share. Beam itself waits for ever where a worker cannot
start, prefers a runner that it has to download, and knows runners that say DONE without having done it.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import logging
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .errors import DrivetrainError, InputError, missing_extra

try:
    _logging_before = logging.root.manager.disable
    with warnings.catch_warnings():  # Beam's own imports warn of optional parts and of what its dependencies deprecate
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        import apache_beam as beam
        import grpc  # comes with Beam
        from apache_beam.options.pipeline_options import (
            DebugOptions,
            FlinkRunnerOptions,
            PipelineOptions,
            PortableOptions,
            SparkRunnerOptions,
            StandardOptions,
        )
        from apache_beam.runners.runner import PipelineState
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("apache_beam", "grpc"):
        raise
    raise missing_extra("apache_beam", "beam") from error
finally:
    logging.disable(_logging_before)

IN_PROCESS: Final = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_REFUSED: Final = {
    "dask": "says DONE though it computes only the last of a pipeline's outputs, and writes empty files",
    "render": "draws a pipeline, and runs nothing of it",
}
_POLL_SECONDS: Final = 0.05  # at first; a long job is asked less often
_LONGEST_POLL: Final = 1.0
_REACH_SECONDS: Final = 10.0
_ADDRESS: Final = re.compile(r"(?:https?://)?(\[[^\]]+\]|[^:/\s]+):(\d+)/?")


class JobOptions(PipelineOptions):
    """Our own flag among Beam's options."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:  # Any: Beam's parser has no type
        parser.add_argument(
            "--worker_start_timeout",
            type=float,
            default=300.0,
            help="Seconds until the first worker must have begun; the job is given up where none has.",
        )


def job_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options of a job: on this process's own runner unless another is named.

    Raises:
        InputError: A runner is named that is known to do other than it says, or a flag has no value of its kind.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), _quiet():
            options = PipelineOptions(list(flags))
            options.get_all_options()
    except SystemExit:  # argparse's way, after it has said what is wrong
        why = said.getvalue().strip().rpartition("error: ")[2]
        raise InputError(f"Beam cannot read its options: {why}", fix="see Beam's own documentation of them") from None
    standard, portable = options.view_as(StandardOptions), options.view_as(PortableOptions)
    name = (standard.runner or "").rpartition(".")[2].lower().removesuffix("runner")
    if name in _REFUSED:
        raise InputError(f"Beam's {standard.runner} {_REFUSED[name]}", fix="take another of Beam's runners")
    if name in ("", "direct", "switchingdirect"):  # Beam's default first tries to download another
        standard.runner = IN_PROCESS
    if name == "portable" and not portable.environment_type and _is_here(portable.job_endpoint or ""):
        portable.environment_type = "LOOPBACK"  # Beam's default is a container
        # The workers are this process: `pip freeze` would tell them of it what they know, which takes half a second.
        options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    return options


def elsewhere(options: PipelineOptions) -> str:
    """What of a job is not on this machine, so that it cannot share a file with it; "" where all is here."""
    standard, portable = options.view_as(StandardOptions), options.view_as(PortableOptions)
    kind = (portable.environment_type or "").rpartition(":")[2].upper()
    if "dataflow" in (standard.runner or "").lower():
        return "Dataflow's machines"
    if kind == "DOCKER":
        return "containers (--environment_type=DOCKER)"
    named = {
        "--job_endpoint": portable.job_endpoint,
        "--environment_config": portable.environment_config if kind == "EXTERNAL" else "",
        "--flink_master": options.view_as(FlinkRunnerOptions).flink_master,
        "--spark_master_url": options.view_as(SparkRunnerOptions).spark_master_url,
    }
    return next((f"{name}={value}" for name, value in named.items() if not _is_here(value or "")), "")


def run_job(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    begun: Path,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Run a pipeline to its end.

    Args:
        build: Adds the transforms to an empty one.
        options: From `job_options`.
        begun: The file that a worker makes when it begins; removed by the caller.
        watch: Called now and then; what it raises stops the job first.

    Raises:
        InputError: Nobody answers where the options say that the job service or the workers are.
        DrivetrainError: The job failed, its service went away, or no worker has begun in time.
    """
    _reach(options)
    try:
        with _quiet():
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            _finish(pipeline.run(), options, begun, watch)
    except grpc.RpcError as error:
        where = options.view_as(PortableOptions).job_endpoint or "the job service"
        cause = error.details() if isinstance(error, grpc.Call) else str(error)
        raise DrivetrainError(
            f"{where} does not answer any more ({_brief(cause or type(error).__name__)})",
            fix="see its own log, start it again and resume: what has ended well stays",
        ) from error


def _finish(result: Any, options: PipelineOptions, begun: Path, watch: Callable[[], None]) -> None:
    """Wait for a submitted pipeline. Any: each runner has its own result class."""
    most, start, pause = options.view_as(JobOptions).worker_start_timeout, time.monotonic(), _POLL_SECONDS
    waiting = True
    try:
        while not PipelineState.is_terminal(result.state):
            watch()
            waiting = waiting and not begun.exists()
            if waiting and time.monotonic() - start > most:
                raise DrivetrainError(
                    f"no worker of the Beam job has begun in {most:g} s, or none shares {begun.parent} with us",
                    fix="see what the workers' host says: a worker pool starts the first `python` on its PATH, which "
                    "must have apache-beam and drivetrain; where workers wait for machines, raise "
                    "--worker_start_timeout",
                )
            time.sleep(pause)
            pause = min(pause * 1.2, _LONGEST_POLL)
    except BaseException:
        with contextlib.suppress(grpc.RpcError):
            result.cancel()
        raise
    watch()
    try:
        result.wait_until_finish()
    except RuntimeError as error:
        raise DrivetrainError(f"the Beam job failed: {_brief(str(error))}", fix="see the runner's own log") from error
    if result.state != PipelineState.DONE:
        raise DrivetrainError(f"the Beam job ended as {result.state}", fix="see the runner's own log")


def _reach(options: PipelineOptions) -> None:
    """See that somebody listens where the options say so: Beam itself asks for minutes, or waits for ever."""
    portable = options.view_as(PortableOptions)
    named = {"--job_endpoint": portable.job_endpoint}
    if (portable.environment_type or "").upper() == "EXTERNAL":
        named["--environment_config"] = portable.environment_config
    for name, value in named.items():
        address = _ADDRESS.fullmatch(value or "")
        if address is None:  # "embed", or parameters in JSON
            continue
        try:
            socket.create_connection((address[1].strip("[]"), int(address[2])), _REACH_SECONDS).close()
        except OSError as error:
            raise InputError(
                f"nobody answers at {value}, which {name} names ({error.strerror or error})",
                fix="start the job service, or the worker pool, there first",
            ) from None


def _is_here(address: str) -> bool:
    """Whether an address, as Beam's options have them, means this machine."""
    parts = _ADDRESS.fullmatch(address)
    host = parts[1].strip("[]") if parts else address
    if host in ("", "embed", "[local]", "[auto]", "localhost", socket.gethostname()) or re.match(r"local\b", host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _brief(text: str) -> str:
    """The line of a failure's text that says most: the last exception's own, without Java's and Python's stacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (exceptions[-1] if exceptions else lines[0] if lines else "it does not say why")[:300]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Beam logs every stage at INFO and the lack of optional parts as warnings; errors come back as errors."""
    logger, root = logging.getLogger("apache_beam"), logging.getLogger()
    before = logger.level

    def of_a_job(record: logging.LogRecord) -> bool:
        return record.module != "portable_runner"  # which tells the root logger what the error then says

    logger.setLevel(logging.ERROR)
    root.addFilter(of_a_job)
    try:
        yield
    finally:
        logger.setLevel(before)
        root.removeFilter(of_a_job)
