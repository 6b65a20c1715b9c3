"""What a call brings beside its message, and what its answer says beside it, whatever the protocol."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

VERSION_HEADER: Final = "x-drivetrain-version"
DIGEST_HEADER: Final = "x-drivetrain-digest"
KEY_HEADER: Final = "x-drivetrain-key"
REQUEST_ID: Final = "x-request-id"
_PLAIN: Final = re.compile(r"[ -~]{1,200}")


def request_id_of(*known: str | None) -> str:
    """The first of what the client may have called its request that is plain text; else a new one."""
    for each in known:
        if each is not None and _PLAIN.fullmatch(each):
            return each
    return f"{random.getrandbits(64):016x}"  # that nobody can know it beforehand is not needed


@dataclass(slots=True)
class CallFacts:
    """What a request says beside its rows, and by whom it was answered.

    Attributes:
        key: What keeps a caller on one side of a traffic split.
        deadline: When the client stops waiting, by `time.monotonic`; None: never.
        request_id: The client's, or one that was drawn.
        is_drawn: Whether it was: an id in the message itself takes its place.
        model: The model that was asked for predictions; "" for none.
        version: The version that answered, once one has.
        digest: Of its bundle.
        rows: How many rows it predicted.
    """

    key: str | None = None
    deadline: float | None = None
    request_id: str = ""
    is_drawn: bool = False
    model: str = ""
    version: int | None = None
    digest: str = ""
    rows: int = 0

    def begin(self, call: CallFacts) -> None:
        """Start with the next message of a stream: what it says, and nobody who answered."""
        for name in self.__slots__:
            setattr(self, name, getattr(call, name))
