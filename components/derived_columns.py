"""Columns that a project's function computes, for the components that look at examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..pipelines import Fn, FunctionRef, load

if TYPE_CHECKING:
    from ..data import Source


def with_derived(sources: Mapping[str, Source], derive: Fn | None) -> dict[str, Source]:
    """The sources with the columns that `derive` (see `data.derived`) makes; as they are where it is None."""
    if derive is None:
        return dict(sources)
    from ..data import derived

    function: Any = _Derive(derive) if isinstance(derive, FunctionRef) else load(derive)  # Any: whatever the user wrote
    return {name: derived(source, function) for name, source in sources.items()}


@dataclass(frozen=True)
class _Derive:
    """A project's function by name, so that a worker elsewhere loads the project before it calls it."""

    reference: FunctionRef

    @property
    def name(self) -> str:
        return self.reference.name

    def __call__(self, batch: Any) -> Any:
        return self.reference.load()(batch)
