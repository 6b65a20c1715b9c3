"""Executors by name, as a command line or a pipeline gives them."""

from __future__ import annotations

from ..errors import InputError
from .base import Executor
from .local import LocalExecutor


def executor(name: str = "local", options: tuple[str, ...] = ()) -> Executor:
    """The executor of a data pass.

    Args:
        name: "local" (threads of this process) or "beam".
        options: For "beam", its pipeline options, e.g. ("--runner=PortableRunner", "--job_endpoint=localhost:8099").

    Raises:
        InputError: An unknown name, or options for "local", which takes none.
        DrivetrainError: "beam" without apache-beam installed.
    """
    if name == "local":
        if options:
            raise InputError(f"the local executor takes no options, got {options[0]!r}", fix="use --executor beam")
        return LocalExecutor()
    if name == "beam":
        from .beam import BeamExecutor

        return BeamExecutor(options)
    raise InputError(f"there is no executor {name!r}", fix="use local or beam")
