"""Inverses: what a frozen transform made of a column, turned back, by the name of the output."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.nodes import HostNode, Tensor
from .bundle import Bundle
from .manifest import broken

INVERSES: Final = "inverses"
"""The asset with what is needed to turn scaled outputs back: columns output, rule, settings (JSON), and "of", the
tensor of the graph that a scaled output was made from."""

Inverse = Callable[[Any], Any]  # Any: a numpy or JAX array


def inverse_table(
    rules: Mapping[str, tuple[str, Mapping[str, float], Sequence[Any]]], bases: Mapping[str, str]
) -> pa.Table:
    """The asset: output name → rule, settings, and the analyzers' results (numbers, or lists of them); → tensor."""
    settings = [
        json.dumps([dict(constants), _plain(results)], sort_keys=True) for _, constants, results in rules.values()
    ]
    kinds = [rule for rule, _, _ in rules.values()]
    made_of = pa.array([bases.get(name) for name in rules], pa.string())
    return pa.table({"output": pa.array(list(rules), pa.string()), "rule": kinds, "settings": settings, "of": made_of})


@dataclass(frozen=True)
class Scaling:
    """An output that is `(base − offset) ÷ scale`, with float32 numbers, or one per place of a vector."""

    base: Tensor
    offset: NDArray[np.float32]
    scale: NDArray[np.float32]


def scalings(bundle: Bundle) -> dict[str, Scaling]:
    """The scaled outputs of which the graph still has what they were made from, by output name.

    A column of one value, which min-max puts midway, is none of them: no scale leads there.

    Raises:
        BundleError: The bundle says what cannot be.
    """
    table = bundle.payload.assets.get(INVERSES)
    tensors = bundle.graph.tensors()
    output_tensors = {
        name: tensors[out.tensor] for outputs in bundle.graph.signatures.values() for name, out in outputs.items()
    }
    scalings_by_output = {}
    for row in table.to_pylist() if table is not None else ():
        if row.get("of") is not None:
            try:
                settings, results = json.loads(row["settings"])
                base, output = tensors[row["of"]], output_tensors[row["output"]]
                with np.errstate(all="ignore"):  # what is no number is no scaling
                    numbers = _numbers(row["rule"], settings, [_array(result) for result in results])
                if any(number.shape not in ((), output.shape[1:]) for number in numbers) or base.column:
                    raise ValueError("its numbers are not one per place")
                if (base.dtype, base.shape) != (output.dtype, output.shape) or base.dtype != "float32":
                    raise ValueError("it is made of another shape")
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                raise broken(f"assets/{INVERSES}.arrow", f"output {row['output']!r:.80}: {error!s:.80}") from error
            offset, scale = numbers
            if np.isfinite(offset).all() and np.isfinite(scale).all() and scale.all():
                scalings_by_output[row["output"]] = Scaling(base, offset, scale)
    return scalings_by_output


def inverse(bundle: Bundle, output: str, signature: str = "transform") -> Inverse:
    """The function that turns an output of a frozen transform back into what it was made from.

    Args:
        bundle: What `analyze` gave, or loaded again.
        output: An output that is what `ops.z_score`, `ops.min_max`, `ops.vocabulary` or `ops.apply_vocabulary` gave,
            unchanged.
        signature: The signature it is an output of.

    Returns:
        A function of an array. Scaled values: float32, NumPy's or JAX's as given. Ids: an object array of words, None
        for an id that is no word's (unknown, missing).

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
