"""Read and compile each untrusted program once in a child process, before this process reads it.

JAX's native reader and XLA trust their input, and damaged bytes can crash the process. Only reading and compiling a
program shows whether it does. So a child process tries each program that is new to this user, and this process reads
only those that the child survived. The digests of these programs, and of those that this user wrote, are the names of
empty files in `$XDG_CACHE_HOME/drivetrain/programs/jaxlib-VERSION/` (`~/.cache/…`); the folder may be deleted at any
time.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from ...errors import InputError
from .._user_cache import cache_home, private_folder
from ..graphs.nodes import DeviceStage, Tensor
from ..lowering.programs import Payload, Programs
from .child import READING, ChildEndedError, LimitedChild, Limits
from .manifest import broken

SECONDS: Final = 600.0
"""How long a child may take: a large model takes minutes to compile."""

_ROWS: Final = 512  # the size at which the runner calls programs on batches
_tried: set[str] = set()  # in this process: the folder may not be writable


def remember(programs: Iterable[bytes]) -> None:
    """Record programs that this process wrote as tried."""
    _keep_as_tried(sha256(program).hexdigest() for program in programs)


def probe(programs: Mapping[str, bytes], where: str) -> None:
    """Let a child process read and compile the programs that are new to this user; return at once if there are none.

    A program that raises in the child counts as tried: it raises here too, when it is read, and does no harm.

    Args:
        programs: By name.
        where: The bundle's folder, for the error.

    Raises:
        BundleError: A program ends the process that reads it, or takes longer than `READING` or `SECONDS`.
    """
    names = {sha256(program).hexdigest(): name for name, program in programs.items()}
    new = sorted(_untried(names))
    if not new:
        return
    child = LimitedChild(replace(Limits(), seconds=SECONDS))
    survived: list[str] = []
    try:
        try:
            import jax as jax  # what these programs need here too, while the child does the same
        except ImportError:  # the error comes when a program is called
            return
        for answer in child.ask({"do": "try_programs"}, [programs[names[digest]] for digest in new]):
            survived.append(str(answer.head["survived"]))
    except ChildEndedError as error:
        # The child gives a digest after each program, in this order: the first that is missing is what ended it.
        for digest in new:
            if digest not in survived:
                raise broken(f"{where}: device/{names[digest]}.stablehlo", f"reading it {error}") from error
        raise
    finally:
        child.close()
        _keep_as_tried(digest for digest in new if digest in survived)


# --- what was tried ---


def _folder() -> Path | None:
    """Where digests are kept; None where there is no folder that only this user can write to."""
    try:
        return private_folder(private_folder(cache_home() / "programs") / f"jaxlib-{version('jaxlib')}")
    except (InputError, PackageNotFoundError):  # then each process tries for itself
        return None


def _untried(digests: Iterable[str]) -> set[str]:
    new = set(digests) - _tried
    folder = _folder() if new else None
    if folder is not None:
        _tried.update(digest for digest in new if (folder / digest).exists())
    return new - _tried


def _keep_as_tried(digests: Iterable[str]) -> None:
    new = set(digests) - _tried
    _tried.update(new)
    folder = _folder() if new else None
    if folder is not None:
        with suppress(OSError):  # a full disk, or one that may only be read: the next process tries again
            for digest in new:
                (folder / digest).touch(mode=0o600)


# --- the child ---


def _try(program: bytes) -> None:
    """Read, check and compile a program, and its gradient, as a bundle that holds it would."""
    import jax

    signal.alarm(READING)  # ends the process, as no exception could: native code does not return
    try:
        exported = jax.export.deserialize(bytearray(program))
        slots = tuple((str(aval.dtype), tuple(map(_dim, aval.shape))) for aval in exported.in_avals)
        outputs = [Tensor(f"o{i}", str(a.dtype), tuple(map(_dim, a.shape))) for i, a in enumerate(exported.out_avals)]
        stage = DeviceStage(
            "p", tuple(f"i{i}" for i in range(len(slots))), slots, (), tuple(outputs), ((),) * len(outputs)
        )
        Programs(Payload({"p": program}, {}, {})).prepare(stage)
    finally:
        signal.alarm(0)
    for each in (exported, exported.vjp()) if exported.has_vjp() else (exported,):
        sizes = [[dim if isinstance(dim, int) else _ROWS for dim in aval.shape] for aval in each.in_avals]
        avals = [jax.ShapeDtypeStruct(shape, a.dtype) for shape, a in zip(sizes, each.in_avals, strict=True)]  # type: ignore[no-untyped-call]
        jax.jit(each.call).lower(*avals).compile()


def _dim(dim: object) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def tried(programs: Iterable[bytes]) -> Iterator[str]:
    """The digest of each program that this process survives."""
    for program in programs:
        try:
            _try(program)
        except Exception as error:  # untrusted bytes may raise anything: only whether this process survives matters
            print(f"{type(error).__name__}: {error}"[:500], file=sys.stderr)
        yield sha256(program).hexdigest()
