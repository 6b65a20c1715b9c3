"""How much memory of the GPU is in use."""

from __future__ import annotations

import threading
from typing import Any

import pynvml  # of nvidia-ml-py, which machines with a GPU have


def _first() -> Any:  # pynvml has no types
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def total_memory() -> int:
    """Bytes of the first GPU."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(_first()).total)


def uuid() -> str:
    """Of the first GPU, as CUDA_VISIBLE_DEVICES takes it."""
    name = pynvml.nvmlDeviceGetUUID(_first())
    return name if isinstance(name, str) else name.decode()


class Peak:
    """The most memory of the first GPU that was taken at once in a block, beyond what was taken before.

    Attributes:
        bytes: That, after the block.
    """

    def __enter__(self) -> Peak:
        self._device = _first()
        self._before = self._used()
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._device).used)

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.bytes = max(self.bytes, self._used() - self._before)
