"""The errors for a loss, a gradient or a parameter that is NaN or infinite: where, perhaps why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import InputError
from .model import first_broken

if TYPE_CHECKING:
    from .program import State

_NOT_DEFINED: Final = (
    "look for log(0), sqrt(0) or 0/0, also in what jnp.where leaves out, whose gradient is NaN all the same"
)


def broken_loss(what: str, at: str, batch: Mapping[str, Any]) -> InputError:
    """The error for a loss or a gradient: it names the column where the data is to blame.

    Args:
        what: What is wrong, such as "the loss is nan at".
        at: The step, in words.
        batch: What the step trained on: arrays, or what holds one as `values`, by column.
    """
    arrays = {name: getattr(column, "values", column) for name, column in batch.items()}
    bad = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if bad:
        fix = f"column {', '.join(map(repr, bad))} of that batch holds NaN or infinity: clean it in preprocess"
    else:
        fix = f"its batch is finite: lower the learning rate, clip gradients, or {_NOT_DEFINED}"
    return InputError(f"{what} {at}", fix=fix)


def exploded_state(state: State, at: str) -> InputError | None:
    """The error for parameters, or the model's state, that are no numbers; a finite loss may leave them behind.

    Args:
        state: After a step.
        at: That step, in words.
    """
    after = f"holds NaN or infinity after {at}, where the loss was finite"
    if (name := first_broken(state["params"])) is not None:
        return InputError(
            f"the parameter {name!r} {after}: its gradient exploded",
            fix="lower the learning rate, clip gradients (optax.clip_by_global_norm), use skip_nonfinite=True, or "
            f"{_NOT_DEFINED}",
        )
    if (name := first_broken(state["model"])) is not None:
        return InputError(
            f"the model's state {name!r} {after}: the model is evaluated and served with it",
            fix="look for values of a batch that are too large for it, such as for their squares in batch norm",
        )
    return None
