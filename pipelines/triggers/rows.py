"""A trigger by a database: a query whose answer says whether there is something new."""

from __future__ import annotations

from dataclasses import dataclass

from ..project.files import refuse_password
from .durations import seconds_of
from .trigger import Marks, Signal, Trigger, TriggerView


@dataclass(frozen=True)
class NewRows(Trigger):
    """Due when a cheap query gives another answer than when it last started a run.

    Attributes:
        watermark: E.g. "SELECT max(updated_at) FROM orders"; 100 rows at most.
        connection: As `dt.query` takes it: `env:NAME`, or a URL without a password.
        poll: How often it is asked, e.g. "5m"; seconds in the IR.
    """

    watermark: str
    connection: str
    poll: str | int = 300

    def __post_init__(self) -> None:
        object.__setattr__(self, "poll", seconds_of(self.poll))
        refuse_password(self.connection)

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`. Its mark is the answer."""
        answer = [list(row) for row in view.watermark(self.connection, self.watermark)]
        mark, poll = marks.get(self.key), seconds_of(self.poll)
        now = {self.key: answer}
        if mark is None:
            return Signal(False, f"{self} watches from now on", now, now, poll=poll)
        if answer == mark:
            return Signal(False, f"{self}: the same answer", now, now, poll=poll)
        values = ", ".join("NULL" if value is None else value for value in (answer[0] if answer else ["no row"]))
        return Signal(True, f"{self}: the answer is {values:.80}", {self.key: mark}, now, poll=poll)
