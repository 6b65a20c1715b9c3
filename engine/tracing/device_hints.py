"""Hints of where a part of a function is to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import jax

from ...errors import InputError
from .._caller import caller

_DEVICE: Final = re.compile(r"(cpu|gpu|cuda|tpu|[a-z_]+)(:\d+)?")


@contextmanager
def on(device: str) -> Iterator[None]:
    """What is computed inside runs on this device, when the graph is lowered and run.

    Each change of device ends a stage and begins another, whose inputs are copied there; in a process without such a
    device the stage runs on the default one, with a warning.

        with engine.on("cpu"):
            looked_up = table[ids]

    Args:
        device: A platform of JAX, with or without the number of the device: "cpu", "gpu:1", "tpu".

    Raises:
        InputError: It is not such a name.
    """
    if not _DEVICE.fullmatch(device):
        advice = 'use a platform, or one device of it: "gpu", "cpu:1"'
        raise InputError(f"no device {device!r:.40}", fix=advice, where=caller())
    with jax.named_scope(f"on={device}"):
        yield
