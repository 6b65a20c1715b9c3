"""A bundle that runs in a process of its own, within limits: for untrusted bundles."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError
from ..host_ops.columns import as_value, item_dtype
from ..lowering.programs import BundleError
from .child import Answer, ChildEndedError, LimitedChild, Limits
from .manifest import Signature, signatures_of
from .runner import as_batch, check_name, check_row
from .values import batch_of_bytes, bytes_of_batch, decoded

if TYPE_CHECKING:
    from .bundle import Rows

_UNREADABLE: Final = (LookupError, TypeError, ValueError, OSError, pa.ArrowException, AttributeError)


class IsolatedBundle:
    """What `Bundle.load(path, isolated=True)` gives: the bundle's signatures, evaluated in a child process on the CPU.

    The child runs within `Limits`, can write no file, and gets none of this process's secrets from the environment. A
    call ends in a result or an error: where the program ends the child or exceeds a limit, that is a `BundleError`, and
    each later call raises one too. Close it, or use it in a `with` statement; the child ends with this process at the
    latest. Calls from several threads wait for each other.
    """

    def __init__(self, path: Path, limits: Limits, manifest: str | None = None) -> None:
        """Start the child and load the bundle in it; raises as `Bundle.load`.

        Args:
            path: The bundle's folder.
            limits: What the child may take.
            manifest: The SHA-256 that the manifest must have, of which a signature was checked.
        """
        self.path = path
        self._child = LimitedChild(limits)
        try:
            (answer,) = self._ask("loading it", {"do": "load", "path": str(path.absolute()), "manifest": manifest})
            with self._reading(answer):
                self._signatures = signatures_of({"signatures": answer.head["signatures"]}, str(path))
                texts = [str(text) for text in answer.head["warnings"]]
        except BaseException:
            self.close()
            raise
        for text in texts:
            warnings.warn(text, FutureWarning, stacklevel=3)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures by name."""
        return self._signatures

    def describe(self) -> dict[str, Any]:  # Any: JSON
        """As `Bundle.describe`."""
        (answer,) = self._ask("describing it", {"do": "describe"})
        with self._reading(answer):
            return dict(answer.head["description"])

    def run(self, name: str, batch: Rows) -> dict[str, NDArray[Any]]:
        """As `Bundle.run`.

        Raises:
            BundleError: The program ends the process that runs it, or exceeds a limit.
            InputError: As `Bundle.run`.
        """
        answer = self._evaluate("run", name, batch)
        with self._reading(answer):
            return decoded(answer.head["outputs"], answer.parts)

    def run_arrow(self, name: str, batch: Rows) -> pa.RecordBatch:
        """As `Bundle.run_arrow`; raises as `run`."""
        answer = self._evaluate("run_arrow", name, batch)
        with self._reading(answer):
            return batch_of_bytes(answer.parts[0])

    def run_each(
        self, name: str, batch: Rows
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], dict[int, InputError]]:
        """As `Bundle.run_each`; raises as `run`."""
        answer = self._evaluate("run_each", name, batch)
        with self._reading(answer):
            errors: dict[int, InputError] = {}
            for row, reported in answer.head["errors"]:
                error = _error_of(reported)
                errors[int(row)] = error if isinstance(error, InputError) else InputError(error.message, fix=error.fix)
            kept = np.array(answer.head["kept"], np.int64)
            return decoded(answer.head["outputs"], answer.parts), kept, errors

    def run_row(self, name: str, row: Mapping[str, object]) -> dict[str, object]:
        """As `Bundle.run_row`; raises as `run`."""
        check_name(name, self.signatures)
        inputs = self.signatures[name].inputs
        check_row(row, inputs)
        names: Iterable[object] = row  # whatever they are; the error for one that is missing lists the others
        plain: dict[str, object] = {name: None for name in names if isinstance(name, str)}
        plain |= {column: _plain(row[column], spec.dtype, column) for column, spec in inputs.items() if column in row}
        (answer,) = self._ask(f"running {name!r}", {"do": "run_row", "signature": name, "row": plain})
        with self._reading(answer):
            return decoded(answer.head["outputs"], answer.parts)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def __enter__(self) -> IsolatedBundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _evaluate(self, what: str, name: str, batch: Rows) -> Answer:
        check_name(name, self.signatures)
        (answer,) = self._ask(f"running {name!r}", {"do": what, "signature": name}, [bytes_of_batch(as_batch(batch))])
        return answer

    def _ask(self, what: str, request: Mapping[str, object], parts: Sequence[bytes] = ()) -> list[Answer]:
        try:
            answers = list(ask(self._child, request, parts))
        except ChildEndedError as error:
            raise ended(self.path, what, error) from error
        if len(answers) != 1:
            raise ended(self.path, what, ChildEndedError("gives what cannot be read"))
        return answers

    @contextmanager
    def _reading(self, answer: Answer) -> Iterator[None]:
        """Whatever the child gives that is no answer to what it was asked is an error, and its last."""
        try:
            yield
        except _UNREADABLE as error:
            self.close()
            raise ended(self.path, "running it", ChildEndedError("gives what cannot be read")) from error


def ask(child: LimitedChild, request: Mapping[str, object], parts: Sequence[bytes] = ()) -> Iterator[Answer]:
    """The child's answers, as they come; an error that it reports is raised here.

    Raises:
        ChildEndedError: As `LimitedChild.ask`.
        DrivetrainError: What the request raised in the child.
    """
    for answer in child.ask(request, parts):
        if "error" not in answer.head:
            yield answer
            continue
        if answer.head["error"]["kind"] == "MemoryError":
            raise ChildEndedError(f"takes more memory than {child.limits.bytes >> 20} MiB")
        raise _error_of(answer.head["error"])


def ended(path: Path, what: str, why: ChildEndedError) -> BundleError:
    """The error for a bundle whose child ended."""
    return BundleError(f"{path}: {what} {why}", fix="fetch the bundle again from who made it, or raise the limits")


def _error_of(reported: Any) -> DrivetrainError:  # Any: JSON
    kinds: dict[str, type[DrivetrainError]] = {"BundleError": BundleError, "InputError": InputError}
    texts = [None if reported[key] is None else str(reported[key])[:4000] for key in ("message", "fix", "where")]
    return kinds.get(reported["kind"], DrivetrainError)(texts[0] or "", fix=texts[1], where=texts[2])


def _plain(value: object, dtype: str, column: str) -> object:
    """A value of a row as JSON has it; raises InputError as `run_row`, which it is not sent to find that out."""
    item = item_dtype(dtype)
    checked = as_value(value, dtype, column)
    if item is None or checked is None:
        return checked
    assert isinstance(value, Iterable)
    return [as_value(each, item, column) for each in value]
