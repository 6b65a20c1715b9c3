"""How a node ended, and who is told while it runs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import Canceled, DrivetrainError
from ...metadata import ArtifactRecord
from ..project.secret import redact
from .states import EndState

_REASON = 4000
"""Characters of a reason that are kept."""
_TRACEBACK = 200_000
"""And of a traceback."""


class Overtime(BaseException):
    """An attempt took longer than it may. No `except Exception` of a component holds it up."""


@dataclass(frozen=True)
class NodeResult:
    """How a node ended.

    Attributes:
        seconds: Wall time of the launch.
        reason: Why it ran, was reused, skipped or blocked, or what went wrong (then a second line may name the fix).
        outputs: What it made or reused.
        vetoed: Whether it is a gate that said no.
        user_error: Whether the failure is one that the user can mend (bad input), not a crash.
        again: Seconds after which the next attempt is due, of an attempt that whoever launched it is to repeat.
    """

    node: str
    state: EndState
    seconds: float = 0.0
    reason: str = ""
    outputs: Mapping[str, tuple[ArtifactRecord, ...]] = field(default_factory=dict)
    vetoed: bool = False
    user_error: bool = False
    again: float | None = None

    @classmethod
    def failed(cls, node: str, error: BaseException) -> NodeResult:
        """A node that an error ended."""
        return cls(node, EndState.FAILED, reason=told(error), user_error=isinstance(error, DrivetrainError))

    def to_json(self) -> dict[str, object]:
        """As `run --json` prints it."""
        return {
            "state": self.state.value,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
            "outputs": {
                key: [{"uri": r.uri, "type": r.type, "fingerprint": r.fingerprint} for r in records]
                for key, records in self.outputs.items()
            },
        }


class Observer(Protocol):
    """Told what happens in a run, from any thread."""

    def started(self, node: str) -> None:
        """A node is launched."""

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """A node says how far it is."""

    def note(self, node: str, text: str) -> None:
        """A node has something to say."""

    def ended(self, result: NodeResult) -> None:
        """A node is done."""


class Silent:
    """The observer that looks away."""

    def started(self, node: str) -> None:
        """Nothing."""

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Nothing."""

    def note(self, node: str, text: str) -> None:
        """Nothing."""

    def ended(self, result: NodeResult) -> None:
        """Nothing."""


class Guarded:
    """Passes on what happens; an observer that fails is told no more, because who looks on must not end the work."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def started(self, node: str) -> None:
        """Pass it on."""
        self._tell(lambda: self._observer.started(node))

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Pass it on."""
        self._tell(lambda: self._observer.progress(node, done, total, unit))

    def note(self, node: str, text: str) -> None:
        """Pass it on."""
        self._tell(lambda: self._observer.note(node, text))

    def ended(self, result: NodeResult) -> None:
        """Pass it on."""
        self._tell(lambda: self._observer.ended(result))

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception:
            self._observer = Silent()
            logging.getLogger(__name__).warning("the run goes on unobserved: its observer failed", exc_info=True)


def told(error: BaseException) -> str:
    """An error as the reason of a node's state: a user's with its fix, any other with its type."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped while running"
    if isinstance(error, Canceled):
        return "stopped while running"
    ours = isinstance(error, (DrivetrainError, Overtime))
    try:
        text = str(error) if ours else f"{type(error).__name__}: {error}"
    except Exception as wrong:
        text = f"{type(error).__name__}, whose text cannot be told: {type(wrong).__name__}"
    return _kept(text, _REASON)


def brief(error: BaseException) -> str:
    """The first line of that."""
    return told(error).partition("\n")[0]


def traced(error: BaseException) -> str:
    """What the store keeps as an execution's error: the traceback."""
    return _kept("".join(traceback.format_exception(error)), _TRACEBACK)


def _kept(text: str, most: int) -> str:
    """A text as any store takes it: without secrets, NULs and halves of characters, its middle left out where long."""
    text = redact(text)
    if len(text) > most:
        text = f"{text[: most // 2]} [{len(text) - most:,} characters are left out] {text[-(most // 2) :]}"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def facts(error: BaseException) -> dict[str, object]:
    """And what it keeps beside the traceback, to tell the node's result again."""
    return {"reason": told(error), "user_error": isinstance(error, DrivetrainError)}
