"""What every protocol of the server speaks: models by name and version, rows as columns, errors with a code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..engine.bundles.manifest import Signature
from ..errors import DrivetrainError, suggest

if TYPE_CHECKING:
    from .usual import Baseline

DEFAULT_SIGNATURE: Final = "serving_default"
"""TensorFlow Serving's name for the signature that answers where none is named: ours is `predict`, or the only one."""

ColumnValues: TypeAlias = Any
"""A column of a request with one value a row: an array of (rows, …), an Arrow array, or a list, None where missing."""


class StatusCode(IntEnum):
    """How a request ended: gRPC's codes, and their numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HTTP_STATUS: Final[Mapping[StatusCode, int]] = {
    StatusCode.OK: 200,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.CANCELLED: 499,
    StatusCode.UNKNOWN: 500,
    StatusCode.INTERNAL: 500,
    StatusCode.DATA_LOSS: 500,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
"""The status of each code, as TensorFlow Serving maps them."""


class RequestError(DrivetrainError):
    """A request that is not answered.

    Args:
        code: What kind of error it is.
        message: One line that names the thing and the cause.
        fix: What the client can do about it.
    """

    def __init__(self, code: StatusCode, message: str, *, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.code = code


class VersionState(IntEnum):
    """Where a version is in its life: TensorFlow Serving's numbers."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A version of a model, and why it is not served, if it is not.

    Attributes:
        version: Its number.
        state: Where it is in its life.
        code: OK, or how loading it ended.
        message: Why.
        labels: The names that stand for it, "stable" say.
    """

    version: int
    state: VersionState
    code: StatusCode = StatusCode.OK
    message: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRef:
    """What a request names: a model, and at most one of a version and a label."""

    name: str
    version: int | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """A loaded version.

    Attributes:
        name: Of the model.
        version: Its number.
        signatures: What it can be asked, by name.
        digest: The bundle's, which `drivetrain bundle show` prints.
        usual: What is usual in the rows of its warm-up file, by signature; of a signature without rows there is none.
    """

    name: str
    version: int
    signatures: Mapping[str, Signature]
    digest: str = ""
    usual: Mapping[str, Baseline] = field(default_factory=dict)

    def signature(self, name: str | None) -> tuple[str, Signature]:
        """A signature and its name; without one (or by TensorFlow Serving's name for it) the default.

        Raises:
            RequestError: INVALID_ARGUMENT: it has no such signature, or several and no default.
        """
        if name and name in self.signatures:
            return name, self.signatures[name]
        if not name or name == DEFAULT_SIGNATURE:
            if "predict" in self.signatures:
                return "predict", self.signatures["predict"]
            if len(self.signatures) == 1:
                return next(iter(self.signatures.items()))
            raise RequestError(
                StatusCode.INVALID_ARGUMENT,
                f"model {self.name!r} has no default signature",
                fix=f"name one of {', '.join(self.signatures)}",
            )
        raise RequestError(
            StatusCode.INVALID_ARGUMENT,
            f"model {self.name!r} has no signature {name!r:.80}",
            fix=suggest(name, [*self.signatures]),
        )


@dataclass(slots=True)
class InferenceRequest:
    """Rows to be predicted.

    Attributes:
        model: Whom to ask.
        signature: What to ask, as `Described.signature` takes it.
        columns: Input name → one value a row. Names that the signature does not read are ignored.
        rows: How many.
        outputs: The outputs to return, in this order; None for all.
        deadline: When the client stops waiting, by `time.monotonic`; None: never.
        request_id: As the client gave it, or drawn by the server.
    """

    model: ModelRef
    signature: str | None
    columns: Mapping[str, ColumnValues]
    rows: int
    outputs: Sequence[str] | None = None
    deadline: float | None = None
    request_id: str = ""


@dataclass(slots=True)  # a frozen one takes three times as long to make
class InferenceAnswer:
    """What a model predicted; not to be changed.

    Attributes:
        name: Of the model.
        version: The version that answered.
        outputs: Output name → an array of (rows, …); text and lists as objects, None where missing.
        digest: Of its bundle.
    """

    name: str
    version: int
    outputs: Mapping[str, NDArray[np.generic]]
    digest: str = ""


@dataclass(slots=True)  # one made of a generator takes several times as long, in every call
class counting_refusals:  # noqa: N801 - it is used as a function is
    """A request is read in the block: where it is refused there, the version that it was routed to has refused it."""

    models: Models
    ref: ModelRef

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RequestError):
            self.models.refuse(self.ref, error.code)


class Models(Protocol):
    """The models that a server holds: the one interface between protocols and what is behind them.

    Each method raises RequestError: NOT_FOUND for a model, version or label that is not there, INVALID_ARGUMENT for
    rows that cannot be used, UNAVAILABLE for a model that is not loaded, RESOURCE_EXHAUSTED where too much waits,
    DEADLINE_EXCEEDED.
    """

    @property
    def ready(self) -> bool:
        """Whether each configured model has a version that can be asked, and the server is not ending."""
        ...

    def names(self) -> list[str]:
        """Every model, by name."""
        ...

    def statuses(self, ref: ModelRef) -> list[VersionStatus]:
        """A model's versions, the newest first; of a version or label that alone."""
        ...

    def route(self, ref: ModelRef, key: str | None) -> ModelRef:
        """The reference with the version that a caller's request goes to, by its key; as it is where it names one."""
        ...

    def describe(self, ref: ModelRef) -> Described:
        """The version that a reference means."""
        ...

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        """The predictions for a request's rows."""
        ...

    def refuse(self, ref: ModelRef, code: StatusCode) -> None:
        """Count a request that was refused before `infer`, by the version that it was routed to."""
        ...

    async def load(self, name: str) -> None:
        """Load a model that is configured, and return when it can be asked."""
        ...

    async def unload(self, name: str) -> None:
        """Unload a model; requests that run are answered."""
        ...
