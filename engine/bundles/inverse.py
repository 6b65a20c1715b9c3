"""Inverses: what a frozen transform made of a column, turned back, by the name of the output."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.nodes import HostNode
from .bundle import Bundle

INVERSES: Final = "inverses"
"""The asset with what is needed to turn scaled outputs back: columns output, rule, settings (JSON).

Older bundles have a column "of" too, which nothing reads.
"""

Inverse = Callable[[Any], Any]  # Any: a numpy or JAX array


def inverse_table(rules: Mapping[str, tuple[str, Mapping[str, float], Sequence[Any]]]) -> pa.Table:
    """The asset: output name → rule, settings, and the analyzers' results (numbers, or lists of them)."""
    settings = [
        json.dumps([dict(constants), _plain(results)], sort_keys=True) for _, constants, results in rules.values()
    ]
    kinds = [rule for rule, _, _ in rules.values()]
    return pa.table({"output": pa.array(list(rules), pa.string()), "rule": kinds, "settings": settings})


def inverse(bundle: Bundle, output: str, signature: str = "transform") -> Inverse:
    """The function that turns an output of a frozen transform back into what it was made from.

    Args:
        bundle: What `analyze` gave, or loaded again.
        output: An output that is what `ops.z_score`, `ops.min_max`, `ops.vocabulary` or `ops.apply_vocabulary` gave,
            unchanged.
        signature: The signature it is an output of.

    Returns:
        A function of an array. Scaled values: float32, NumPy's or JAX's as given. Ids: an object array of words, None
        for an id that is not a word's (unknown, missing).

    Raises:
        InputError: There is no such output, or it cannot be turned back.
    """
    outputs = bundle.graph.signatures.get(signature, {})
    if output not in outputs:
        raise InputError(f"no output {output!r}", fix=f"use one of {', '.join(outputs)[:200] or 'another bundle'}")
    table = bundle.payload.assets.get(INVERSES)
    if table is not None:
        for row in table.to_pylist():
            if row["output"] == output:
                settings, results = json.loads(row["settings"])
                return _scaled(row["rule"], settings, [_array(result) for result in results])
    tensor = outputs[output].tensor
    for node in bundle.graph.nodes:
        if isinstance(node, HostNode) and node.op == "lookup" and node.outputs[0].id == tensor and node.assets:
            words = [*bundle.payload.assets[node.assets[0]].column("value").to_pylist(), None]
            return _words(np.array(words, dtype=object))
    raise InputError(
        f"output {output!r} cannot be turned back",
        fix="give out what ops.z_score, ops.min_max or ops.vocabulary gave, unchanged",
    )


def _scaled(rule: str, settings: Mapping[str, float], results: Sequence[Any]) -> Inverse:
    offset, scale = _numbers(rule, settings, results)
    return lambda values: values * scale + offset


def _numbers(
    rule: str, settings: Mapping[str, float], results: Sequence[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The offset and the scale that a rule took away."""
    if rule == "z_score":
        centre, spread = (np.asarray(result, np.float32) for result in results)  # as the device has them
        scale = np.where(spread > 0, np.sqrt(np.maximum(spread, 0)), np.float32(1))
        offset = np.nan_to_num(centre)
    elif rule == "min_max":
        least, most = results
        scale = (most - least) / (settings["high"] - settings["low"])
        offset = least - settings["low"] * (most - least) / (settings["high"] - settings["low"])
    else:
        raise InputError(f"no inverse rule {rule!r:.40} in this release", fix="upgrade drivetrain")
    return np.asarray(offset, np.float32), np.asarray(scale, np.float32)


def _words(words: Any) -> Inverse:
    last = len(words) - 1

    def turned(ids: Any) -> Any:
        indices = np.asarray(ids).astype(np.int64)
        return words[np.where((indices >= 0) & (indices < last), indices, last)]

    return turned


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: None for NaN."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _array(value: Any) -> Any:
    return np.asarray(value, dtype=np.float64)  # None becomes NaN
