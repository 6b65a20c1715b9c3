"""Warm starts: the variables that a training begins with, from a model that was trained before.

A bundle holds what serving needs, where some arrays are folded into others. Those that are not in it as they were
trained are saved beside it, so that both together have all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..bundles.bundle import Bundle
from ..bundles.weights import mapped, read_weights, weight_name
from .checkpoint import read_checkpoint

FILE: Final = "variables.safetensors"
_LISTED: Final = 5

Arrays = Mapping[str, NDArray[Any]]


def save_variables(variables: Any, content: Path, extra: Path) -> None:  # Any: a pytree
    """Save what a bundle does not hold of the variables it was made from.

    Args:
        variables: A pytree of arrays.
        content: The bundle.
        extra: The folder beside it, for the file.
    """
    from safetensors.numpy import save_file

    weights = Bundle.load(content).payload.weights
    missing = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(variables)[0]:
        name, array = weight_name(path), np.ascontiguousarray(leaf)
        if not _same(weights.get(name), array):
            missing[name] = array
    if missing:
        save_file(missing, extra / FILE)


def read_variables(content: Path, extra: Path) -> dict[str, NDArray[Any]]:
    """The variables of a model by name, from its bundle and what was saved beside it.

    Raises:
        InputError: The bundle, or the file, is damaged.
    """
    arrays = dict(Bundle.load(content).payload.weights)
    file = extra / FILE
    if file.exists():
        try:
            arrays |= read_weights(mapped(file))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{file} is damaged: {error!s:.200}", fix="train that model again") from error
    return arrays


def fitting(arrays: Arrays, shapes: Any, note: Callable[[str], None]) -> dict[str, NDArray[Any]]:  # Any: a pytree
    """Those arrays that fit a model's variables, by name.

    Args:
        arrays: Of the base model.
        shapes: The variables' shapes and dtypes, a pytree; their names are the paths in it.
        note: Told which variables keep their initial values, and why: another shape, as of a vocabulary that grew, or
            not in the base model.

    Raises:
        InputError: None of them fits.
    """
    arrays = {_dotted(name): array for name, array in arrays.items()}
    leaves = {weight_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]}
    chosen, problems = {}, []
    for name, leaf in leaves.items():
        array = arrays.get(_dotted(name))
        if array is None:
            problems.append(f"{name} is not in it")
        elif (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            problems.append(f"{name} is {array.dtype} {list(array.shape)} there, not {leaf.dtype} {list(leaf.shape)}")
        else:
            chosen[name] = array
    listed = "; ".join(problems[:_LISTED]) + (f"; and {len(problems) - _LISTED} more" if problems[_LISTED:] else "")
    if leaves and not chosen:
        raise InputError(
            f"the base model has no array that this model begins with: {listed}",
            fix="give a model that the same `train` made, or none",
        )
    rest = f"; the others keep their initial values: {listed}" if problems else ""
    note(f"{len(chosen)} of {len(leaves)} arrays are those of the base model{rest}")
    return chosen


def checkpoint_variables(folder: str | Path) -> dict[str, NDArray[Any]]:
    """The variables of a checkpoint by name, for `TrainingRun.base_model`: a warm start from a training that broke.

    Args:
        folder: Of one step, such as `…/checkpoints/16900`.

    Returns:
        Parameters and the model's own state, without optimizer and averages.

    Raises:
        InputError: There is no checkpoint, or it is damaged.
    """
    variables = {}
    for name, array in read_checkpoint(Path(folder)).items():
        part, _, rest = name.partition(".")
        if part == "params":  # a model without a state has no such level
            variables["model/" + (rest or part)] = variables["model/params/" + rest] = array
        elif part == "model":
            variables["model/state/" + rest] = array
    return variables


def _dotted(name: str) -> str:
    """A name in which levels are told apart as checkpoints do it, whatever the names of a level hold."""
    return name.replace("/", ".")


def replaced(variables: Any, arrays: Mapping[str, Any]) -> Any:
    """Variables of which some are others, by name."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: arrays.get(weight_name(path), leaf), variables)


def _same(held: NDArray[Any] | None, array: NDArray[Any]) -> bool:
    return held is not None and held.dtype == array.dtype and np.array_equal(held, array)
