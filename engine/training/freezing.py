"""Freezing: which arrays of a model a training leaves as they are, by patterns of their names."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax

from ...errors import InputError, suggest

Tree = Any  # a pytree of arrays


@dataclass(frozen=True)
class Freezing:
    """Patterns of names such as "encoder.layers.0.kernel"; `*` stands for any text, dots too.

    A part of a pytree has the same structure with None where the other part has an array: JAX and optax see no leaf
    there, so that nothing is computed or kept for it.
    """

    patterns: tuple[str, ...] = ()

    def check(self, params: Tree, state: Tree) -> None:
        """Refuse what makes no sense for a model.

        Args:
            params: Its parameters, or their shapes.
            state: Its own state, whose arrays can be frozen too.

        Raises:
            InputError: A pattern that fits no name, or patterns that leave no parameter to train.
        """
        trained = _names(params)
        names = [*trained, *_names(state)]
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                below = any(name.startswith(f"{pattern}.") for name in names)
                fix = f"did you mean {f'{pattern}.*'!r}?" if below else suggest(pattern, names, "its names are")
                raise InputError(f"no parameter of the model fits {pattern!r}, which is to be frozen", fix=fix)
        if self.patterns and all(map(self._fits, trained)):
            raise InputError("all parameters of the model are frozen", fix="leave one out of freeze= at least")

    def trained(self, tree: Tree) -> Tree:
        """The part that is not frozen."""
        if not self.patterns:
            return tree
        return jax.tree_util.tree_map_with_path(lambda path, leaf: None if self._fits(_name(path)) else leaf, tree)

    def merged(self, trained: Tree, before: Tree) -> Tree:
        """The whole, from the part that is not frozen and a whole whose frozen part is taken."""
        if not self.patterns:
            return trained
        return jax.tree.map(
            lambda new, old: old if new is None else new, trained, before, is_leaf=lambda leaf: leaf is None
        )

    def _fits(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _names(tree: Tree) -> list[str]:
    return [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
