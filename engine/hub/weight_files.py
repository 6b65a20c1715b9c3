"""Weights that others published, as safetensors: renamed, turned and taken apart to be a model's own params."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .modules import Params, flattened

_KINDS: Final = {"b": "bool", "i": "integer", "u": "integer", "f": "float", "V": "float"}  # V: bfloat16 and the like


def weights(
    path: str | Path | Sequence[str | Path],
    like: Params,
    *,
    names: Mapping[str, str] | None = None,
    transposes: Mapping[str, Sequence[int]] | None = None,
    splits: Mapping[str, tuple[Sequence[str], int]] | None = None,
    ignore: Sequence[str] = (),
) -> Params:
    r"""Read safetensors files into a model's params, and see that they fit.

    Patterns are regular expressions of a whole name; the first that fits counts. A tensor is first taken apart, then
    each part renamed, then transposed; so `transposes` speaks of the model's own paths.

    Args:
        path: A file, or the parts of a model in several files.
        like: The model's params, or their shapes (`jax.eval_shape(model.init, key)`): tree, shapes and dtypes wanted.
        names: Pattern of the file's name → the model's path, "dense/kernel"; groups as `\1`. Others keep their name,
            with "/" for ".".
        transposes: Pattern of the model's path → axes: `{r".*/kernel": (1, 0)}`.
        splits: Pattern of the file's name → (names of the equal parts, axis), before renaming:
            `{r"(.*)\.qkv": ([r"\1.q", r"\1.k", r"\1.v"], 0)}`.
        ignore: Patterns of the file's names that the model does not need.

    Returns:
        A tree like `like`, of NumPy arrays. Floats are cast to the dtype wanted.

    Raises:
        InputError: Tensors are missing, unexpected, of another shape or kind, or given twice: all are listed. A file
            is not a safetensors file; a pattern is not a regular expression.
    """
    leaves = dict(flattened(like))
    wanted = {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in leaves.items()}
    rules = _RenamingRules(names or {}, transposes or {}, splits or {}, ignore)
    tensors: dict[str, NDArray[Any]] = {}
    problems: list[str] = []
    for file_name, tensor in _tensors([path] if isinstance(path, (str, Path)) else path, rules):
        for part_name, part in rules.parts(file_name, tensor):
            target = rules.target(part_name)
            if target not in wanted:
                problems.append(f"{part_name} ({target}) is unexpected")
            elif target in tensors:
                problems.append(f"{target} is given twice, by {part_name} the second time")
            else:
                tensors[target] = rules.turned(target, part)
    for name, (shape, dtype) in wanted.items():
        if name not in tensors:
            problems.append(f"{name} is missing")
        elif tensors[name].shape != shape:
            problems.append(f"{name} is {list(tensors[name].shape)}, not {list(shape)}")
        elif _kind(tensors[name].dtype) != _kind(dtype):
            problems.append(f"{name} is {tensors[name].dtype}, not {dtype}")
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise InputError(
            f"these weights do not fit the model: {'; '.join(problems[:20])}{more}",
            fix="names= renames, transposes= turns, splits= takes apart, ignore= leaves out",
        )
    tree = jax.tree_util.tree_structure(like)
    return jax.tree_util.tree_unflatten(tree, [tensors[name].astype(dtype) for name, (_, dtype) in wanted.items()])


class _RenamingRules:
    """The patterns by which tensors are split, renamed and transposed, compiled."""

    def __init__(
        self,
        names: Mapping[str, str],
        transposes: Mapping[str, Sequence[int]],
        splits: Mapping[str, tuple[Sequence[str], int]],
        ignore: Sequence[str],
    ) -> None:
        self._names = [(_pattern(pattern), to) for pattern, to in names.items()]
        self._transposes = [(_pattern(pattern), tuple(axes)) for pattern, axes in transposes.items()]
        self._splits = [(_pattern(pattern), list(parts), axis) for pattern, (parts, axis) in splits.items()]
        self._ignore = [_pattern(pattern) for pattern in ignore]

    def ignored(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self._ignore)

    def parts(self, name: str, tensor: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
        for pattern, parts, axis in self._splits:
            if match := pattern.fullmatch(name):
                if not -tensor.ndim <= axis < tensor.ndim or tensor.shape[axis] % len(parts):
                    raise InputError(
                        f"{name} is {list(tensor.shape)}: it has no {len(parts)} equal parts along axis {axis}",
                        fix="correct splits=",
                    )
                pieces = np.split(tensor, len(parts), axis)
                return [(_expanded(match, to), piece) for to, piece in zip(parts, pieces, strict=True)]
        return [(name, tensor)]

    def target(self, name: str) -> str:
        for pattern, to in self._names:
            if match := pattern.fullmatch(name):
                return _expanded(match, to)
        return name.replace(".", "/")

    def turned(self, name: str, tensor: NDArray[Any]) -> NDArray[Any]:
        for pattern, axes in self._transposes:
            if pattern.fullmatch(name):
                if sorted(axes) != list(range(tensor.ndim)):
                    raise InputError(
                        f"{name} is {list(tensor.shape)}, and cannot be transposed by {axes}", fix="correct transposes="
                    )
                return tensor.transpose(axes)
        return tensor


def _tensors(paths: Sequence[str | Path], rules: _RenamingRules) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor that is not ignored, by its name; one is in memory at a time."""
    from safetensors import SafetensorError, safe_open

    for path in paths:
        try:
            with safe_open(str(path), "np") as file:
                for name in sorted(file.keys()):
                    if not rules.ignored(name):
                        yield name, np.asarray(file.get_tensor(name))
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist", fix="name a safetensors file") from error
        except (SafetensorError, OSError, TypeError, AttributeError) as error:  # the last two: a dtype unknown to numpy
            raise InputError(f"{path} cannot be read as safetensors: {error!s:.160}", fix="fetch it again") from error


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InputError(f"the pattern {text!r:.80} is not a regular expression: {error}", fix="correct it") from error


def _expanded(match: re.Match[str], to: str) -> str:
    try:
        return match.expand(to)
    except (re.error, IndexError) as error:
        raise InputError(
            f"the name {to!r:.80} cannot be made: {error}", fix="use groups of its pattern: \\1"
        ) from error


def _kind(dtype: Any) -> str:  # Any: a NumPy or ml_dtypes dtype
    return "float" if jnp.issubdtype(dtype, jnp.floating) else _KINDS.get(np.dtype(dtype).kind, str(dtype))
