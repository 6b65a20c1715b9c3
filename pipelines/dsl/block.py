"""A block that must be opened by `with`: forgotten, that would leave no trace in the pipeline."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Block(AbstractContextManager[T]):
    """What `dt.when` and its like give.

    Attributes:
        name: The word that the user wrote.
        inner: What it does.
        unopened: The blocks not opened yet, with the user's line of each; itself among them until it is.
    """

    name: str
    inner: AbstractContextManager[T]
    unopened: dict[Block[T], str]

    def __enter__(self) -> T:
        self.unopened.pop(self, None)
        return self.inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self.inner.__exit__(kind, error, trace)
