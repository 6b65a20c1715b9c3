"""What runs in the child (`child`): tries programs, loads a bundle, evaluates and verifies it, within limits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...errors import DrivetrainError
from ...lazy import kept_imports
from ..lowering.lapack import load_lapack
from .child import Answer, framed, read_message

if TYPE_CHECKING:
    from .bundle import Bundle

Reply: TypeAlias = "tuple[dict[str, Any], list[bytes]]"  # Any: JSON


def _limit_files() -> None:
    """No file is written, no dump of memory either, and few are open at once."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256 if most == resource.RLIM_INFINITY else min(256, most), most))


def _limit_memory(extra: int) -> None:
    """Let the process map so many bytes more than it has by now, with all that a bundle needs and its threads."""
    with kept_imports():
        from ...data.arrays import spare_pandas

        spare_pandas()
        from . import bundle  # noqa: F401 - a library that does not fit any more ends the process in a way of its own

        with contextlib.suppress(ImportError):  # a graph of host nodes alone runs without these
            import jax

            load_lapack()  # JAX would do so later, and OpenBLAS without room for threads raises SIGINT
            jax.local_devices()
    if sys.platform == "linux":  # elsewhere the system does not hold to it
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra, mapped + extra))


def _limit_time(seconds: float) -> None:
    """A bound on the processors' time: should the process that waits be gone, an endless loop ends all the same."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used, most = usage.ru_utime + usage.ru_stime, resource.getrlimit(resource.RLIMIT_CPU)[1]
    more = int(used + seconds * (os.cpu_count() or 1)) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (more if most == resource.RLIM_INFINITY else min(more, most), most))


@contextlib.contextmanager
def _ending_with_whoever_asks(requests: int) -> Iterator[None]:
    """While it is open, the end of the process that asks ends this one, even in native code that does not return.

    Nothing comes before the answer is given, so that the only thing the pipe can have to say is that its other end is
    closed. The system says it by SIGIO, which ends a process that does not handle it.
    """
    if sys.platform != "linux":
        yield
        return
    flags = fcntl.fcntl(requests, fcntl.F_GETFL)
    fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(requests, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        if select.select([requests], [], [], 0)[0]:  # it ended before the system was asked to say so
            os.kill(os.getpid(), signal.SIGIO)
        yield
    finally:
        fcntl.fcntl(requests, fcntl.F_SETFL, flags)


class _Served:
    """What the requests of one process share: the bundle that it loaded."""

    def __init__(self) -> None:
        self.bundle: Bundle | None = None

    def load(self, request: Answer) -> Iterator[Reply]:
        """Read a bundle, which must have a certain manifest; the first answer describes it."""
        import warnings

        from .bundle import Bundle, check_window_of, files_of
        from .manifest import described

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            files = files_of(Path(request.head["path"]), request.head["manifest"])
            self.bundle = Bundle.from_files(files, request.head["path"])
            check_window_of(files, request.head["path"])
        yield (
            {
                "signatures": described(self.bundle.signatures),
                "warnings": [str(each.message) for each in caught if each.category is FutureWarning],
            },
            [],
        )

    def describe(self, request: Answer) -> Iterator[Reply]:
        yield {"description": self._loaded().describe()}, []

    def run(self, request: Answer) -> Iterator[Reply]:
        from .values import batch_of_bytes, encoded

        outputs = self._loaded().run(request.head["signature"], batch_of_bytes(request.parts[0]))
        parts: list[bytes] = []
        yield {"outputs": encoded(outputs, parts)}, parts

    def run_arrow(self, request: Answer) -> Iterator[Reply]:
        from .values import batch_of_bytes, bytes_of_batch

        batch = self._loaded().run_arrow(request.head["signature"], batch_of_bytes(request.parts[0]))
        yield {}, [bytes_of_batch(batch)]

    def run_each(self, request: Answer) -> Iterator[Reply]:
        from .values import batch_of_bytes, encoded

        outputs, kept, errors = self._loaded().run_each(request.head["signature"], batch_of_bytes(request.parts[0]))
        parts: list[bytes] = []
        reported = [[row, error_json(error)] for row, error in errors.items()]
        yield {"outputs": encoded(outputs, parts), "kept": kept.tolist(), "errors": reported}, parts

    def run_row(self, request: Answer) -> Iterator[Reply]:
        from .values import encoded

        outputs = self._loaded().run_row(request.head["signature"], request.head["row"])
        parts: list[bytes] = []
        yield {"outputs": encoded(outputs, parts)}, parts

    def verify(self, request: Answer) -> Iterator[Reply]:
        from .verifying import checks_of

        for check in checks_of(Path(request.head["path"]), request.head["manifest"]):
            yield {"begun": check} if isinstance(check, str) else {"check": [check.what, check.ok, check.text]}, []

    def refresh(self, request: Answer) -> Iterator[Reply]:
        from .bundle import Bundle, files_of
        from .refreshing import rewritten_programs

        path = request.head["path"]
        bundle = Bundle.from_files(files_of(Path(path), request.head["manifest"]), path)
        for name, program in rewritten_programs(bundle, path):
            yield {"program": name}, [program]

    def try_programs(self, request: Answer) -> Iterator[Reply]:
        from .probing import tried

        for digest in tried(request.parts):
            yield {"survived": digest}, []

    def _loaded(self) -> Bundle:
        assert self.bundle is not None
        return self.bundle


_REQUESTS: Final = ("load", "describe", "run", "run_arrow", "run_each", "run_row", "verify", "refresh", "try_programs")


def error_json(error: DrivetrainError) -> dict[str, object]:
    """An error for the process that asked, which makes it again."""
    return {"kind": type(error).__name__, "message": error.message, "fix": error.fix, "where": error.where}


def main(memory: int) -> None:
    """Answer the requests on standard input until it ends."""
    _limit_files()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what native code prints is no answer
    served, limited = _Served(), False
    while (request := read_message(requests)) is not None:
        _limit_time(request.head["seconds"])
        with _ending_with_whoever_asks(requests.fileno()):
            if not limited:
                _limit_memory(memory)
                limited = True
            assert request.head["do"] in _REQUESTS
            handle: Callable[[Answer], Iterator[Reply]] = getattr(served, request.head["do"])
            try:
                for head, parts in handle(request):
                    answers.write(framed(head, parts))
                    answers.flush()
                end: dict[str, object] = {"done": True}
            except DrivetrainError as error:
                end = {"error": error_json(error)}
            except MemoryError:
                end = {"error": {"kind": "MemoryError", "message": "", "fix": None, "where": None}}
        answers.write(framed(end))
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # nobody waits for the answer any more
        main(int(sys.argv[1]))
