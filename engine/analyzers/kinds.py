"""Kinds of analyzers: what each module of this folder declares, and the registry picks up.

A module beside this one holds a mergeable state that a pass keeps, and the analyzers that are read off that state. It
ends with two tables. `STATES` has a maker for each kind of state; its names stand in stored states
and in the keys of the analyzer cache, so they never change. `ANALYZERS` has an `AnalyzerKind` for each name that
`bind_analyzer` is called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Params = Mapping[str, Any]  # Any: JSON
StateNeed = tuple[str, tuple[str, ...]]
"""The kind of state that an analyzer reads, and the names of the parameters that such a state is made with."""

StateMaker = Callable[[Params, Any], Any]
"""(the parameters of its `StateNeed`, a user's reducer or None) → an empty `State`."""


@dataclass(frozen=True)
class AnalyzerKind:
    """How an analyzer is computed.

    Attributes:
        need: The state that it reads, from its parameters. Analyzers with equal needs of equal columns share a state.
        finish: (parameters, state) → its value: a number, an array, or a table that becomes an asset of the bundle.
            Boundaries of quantiles, medians and the like are NaN where no value was seen.
    """

    need: Callable[[Params], StateNeed]
    finish: Callable[[Params, Any], Any]
