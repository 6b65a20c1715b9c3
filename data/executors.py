"""Executors by name, as a command line or a pipeline names them; the one place to register another.

An executor obeys `base.Executor`. Whatever it runs on, it reads shards with `local.shard_state`, `writing.write_shard`
and `exchange.spill_shard`, which do the work of one shard, and merges states along `tree.MergeTree`.
"""

from __future__ import annotations

from ..errors import InputError
from .base import Executor
from .local import LocalExecutor


def executor(name: str = "local", options: tuple[str, ...] = ()) -> Executor:
    """The executor of that name.

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
