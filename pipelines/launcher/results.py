"""The result of a task, and how an error becomes the reason that it holds and the traceback that the store keeps."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import Canceled, InputError
from ...metadata import ArtifactRecord
from ...redaction import redact
from ...user_code import as_mistake, folded
from .states import EndState

_LONGEST_REASON = 4000
"""Characters."""
_LONGEST_TRACEBACK = 200_000


class AttemptTimeout(BaseException):
    """An attempt took longer than its `timeout`. A component cannot hold it up with `except Exception`."""


class PreflightError(InputError):
    """A node refuses, while an earlier one is about to begin, what it would refuse when its turn comes.

    Args:
        node: The node's id, which the message begins with.
        message, fix, where: As of any error.
    """

    def __init__(self, message: str, *, fix: str | None = None, where: str | None = None, node: str = "") -> None:
        super().__init__(message, fix=fix, where=where)
        self.node = node


@dataclass(frozen=True)
class NodeResult:
    """How a task ended.

    Attributes:
        node: The task's name.
        state: How it ended.
        seconds: Wall time of the launch, of a task that was tried again of its last attempt, as the store has it.
        reason: Why it ran, was reused, skipped or blocked, or what went wrong (then a second line may name the fix).
        outputs: The artifacts that it made or reused, by output key.
        vetoed: Whether it is a gate that said no.
        user_error: Whether the failure is one that the user can fix (bad input), not a crash.
        refused_by: The later node that refused what this one was about to make (`PreflightError`); "" where none did.
        again: Seconds until the next attempt is due, of an attempt that whoever launched it is to repeat.
    """

    node: str
    state: EndState
    seconds: float = 0.0
    reason: str = ""
    outputs: Mapping[str, tuple[ArtifactRecord, ...]] = field(default_factory=dict)
    vetoed: bool = False
    user_error: bool = False
    refused_by: str = ""
    again: float | None = None

    @classmethod
    def failed(cls, node: str, error: BaseException, seconds: float) -> NodeResult:
        """The result of a task that an error ended."""
        user_error, refused_by = as_mistake(error) is not None, _refused_by(error)
        return cls(node, EndState.FAILED, seconds, reason_of(error), user_error=user_error, refused_by=refused_by)

    def to_json(self) -> dict[str, object]:
        """Its entry in what `run --json` prints."""
        return {
            "state": self.state.value,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
            "outputs": {
                key: [{"uri": r.uri, "type": r.type, "fingerprint": r.fingerprint} for r in records]
                for key, records in self.outputs.items()
            },
            **({"refused_by": self.refused_by} if self.refused_by else {}),
        }


def reason_of(error: BaseException) -> str:
    """An error as the reason of a result: the user's mistake with its line and its fix, any other with its type."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped while running"
    if isinstance(error, Canceled):
        return "stopped while running"
    try:
        if isinstance(error, AttemptTimeout):
            text = str(error)
        elif (mistake := as_mistake(error)) is not None:
            text = str(mistake)
        else:
            text = f"{type(error).__name__}: {error}"
    except Exception as second:  # a user's exception whose __str__ raises
        text = f"{type(error).__name__}, whose text cannot be read: {type(second).__name__}"
    return _storable(text, _LONGEST_REASON)


def brief(error: BaseException) -> str:
    """The first line of the reason."""
    return reason_of(error).partition("\n")[0]


def format_traceback(error: BaseException, *, whole: bool = False) -> str:
    """The traceback that the store keeps as an execution's error: of a user's mistake with the user's lines alone.

    The task's log keeps the `whole` of it.
    """
    text = "".join(traceback.format_exception(error)) if whole or as_mistake(error) is None else folded(error)
    return _storable(text, _LONGEST_TRACEBACK)


def failure_properties(error: BaseException) -> dict[str, object]:
    """The properties of an execution that an error ended: what its result is read back from."""
    refused_by = {"refused_by": later} if (later := _refused_by(error)) else {}
    return {"reason": reason_of(error), "user_error": as_mistake(error) is not None, **refused_by}


def _refused_by(error: BaseException) -> str:
    return error.node if isinstance(error, PreflightError) else ""


def _storable(text: str, longest: int) -> str:
    """A text as any store takes it: without secrets, NULs and lone surrogates, its middle left out where it is long."""
    text = redact(text)  # before it is cut: half a secret would not be found
    if len(text) > longest:
        text = f"{text[: longest // 2]} [{len(text) - longest:,} characters are left out] {text[-(longest // 2) :]}"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
