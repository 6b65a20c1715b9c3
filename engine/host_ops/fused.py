"""Several ops on one text as a single op: each looks at the distinct words of a column, and rows are gathered once.

A column that comes without a dictionary gets one first, so that each op looks at every distinct word once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ...data.types import is_list
from .columns import Assets, Kernel, Params

STEPS: Final = ("strip", "lower", "upper", "regex_replace", "substr")
"""Ops that make text of one text: what a fused op starts with."""
LAST: Final = (*STEPS, "matches", "starts_with", "ends_with", "length", "lookup", "hash", "compare", "parse")
"""Ops of one text that may also stand at its end."""


Find = Callable[[str], Any]  # name → HostOp; Any, as `kernels`, which defines it, imports this module


def _kernels(find: Find, kind: str, params: Params, assets: Assets) -> Sequence[Kernel]:
    kernels = []
    taken = 0
    for step in params["steps"]:
        count = int(step["assets"])
        if step["op"] not in LAST:
            raise ValueError(f"{step['op']!r:.80} is not an op of one text")
        kernels.append(getattr(find(step["op"]), kind)(step["params"], assets[taken : taken + count]))
        taken += count
    return kernels


def fused_batch(find: Find, params: Params, assets: Assets) -> Kernel:
    """All steps, on the distinct words of a column."""
    kernels = _kernels(find, "batch", params, assets)

    def kernel(column: pa.Array) -> Any:  # Any: a column, or an array of ids
        if not (is_list(column.type) or pa.types.is_dictionary(column.type)):
            column = column.dictionary_encode()
        for step in kernels:
            column = step(column)
        return column

    return kernel


def fused_row(find: Find, params: Params, assets: Assets) -> Kernel:
    """As `fused_batch`, for one value."""
    kernels = _kernels(find, "row", params, assets)

    def kernel(value: Any) -> Any:
        for step in kernels:
            value = step(value)
        return value

    return kernel
