"""The callbacks of one training, called in their order: what they raise names them, and what they remember is saved."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...user_code import mistakes_named
from .callbacks import Callback


class CallbackList:
    """Calls all of them. Each method takes how many steps have run, and raises an InputError that says it."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        """None is called yet."""
        self._callbacks = tuple(callbacks)

    def call(self, method: str, step: int, *arguments: object) -> None:
        """Call a method of each."""
        for callback in self._callbacks:
            with _named(callback, method, step):
                getattr(callback, method)(*arguments)

    def state_dicts(self, step: int) -> list[dict[str, Any]]:
        """What each has saved with it: a copy, for it goes on to change what it gave.

        Raises:
            InputError: A `state_dict` raises something, or gives what JSON does not hold.
        """
        states = []
        for callback in self._callbacks:
            with _named(callback, "state_dict", step):
                states.append(json.loads(json.dumps(dict(callback.state_dict()))))
        return states

    def load_state_dicts(self, states: Iterable[dict[str, Any]], step: int) -> None:
        """Give back to each what `state_dicts` took."""
        for callback, state in zip(self._callbacks, states, strict=True):
            with _named(callback, "load_state_dict", step):
                callback.load_state_dict(state)


def _named(callback: Callback, method: str, step: int) -> AbstractContextManager[None]:
    """What a callback raises, as an error of the user's code that names the callback and the step."""
    return mistakes_named(f"{type(callback).__name__}.{method} failed after step {step}")
