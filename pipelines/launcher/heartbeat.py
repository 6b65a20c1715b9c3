"""Renews the leases of claims while work is done under them: one thread for all claims of a process.

A claim is a lease because its holder may die or stand still on a host that nobody can look at: after so many seconds
without a beat another process takes the work over. Beats come every third of a lease, so that two may be lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from ...errors import DrivetrainError
from ...metadata import Claim, MetadataStore


class Heartbeat:
    """Renews leases. Its thread starts with the first launcher and ends with the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._claims: dict[Claim, tuple[MetadataStore, float, Callable[[], None]]] = {}  # and when its next beat is due
        self._wakes = float("inf")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="drivetrain-heartbeat", daemon=True)
                self._thread.start()

    @contextlib.contextmanager
    def of(self, store: MetadataStore, claim: Claim, at_beat: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within the block the claim's lease is renewed, and `at_beat` called at each beat, which raises nothing."""
        due = time.monotonic() + claim.lease / 3
        with self._changed:
            self.start()  # a forked process has lost it
            self._claims[claim] = store, due, at_beat
            if due < self._wakes:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:  # waits for a beat that is under way: the caller may close the store next
                self._claims.pop(claim, None)

    def _run(self) -> None:
        # A signal that lands in this thread would not wake the main one from a sleep or a wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        with self._changed:
            while True:
                self._wakes = min((due for _, due, _ in self._claims.values()), default=float("inf"))
                pause = self._wakes - time.monotonic()
                if pause > 0:
                    self._changed.wait(min(pause, threading.TIMEOUT_MAX))
                for claim, (store, due, at_beat) in list(self._claims.items()):
                    if due > time.monotonic():
                        continue
                    # A lost lease shows when publishing, which is fenced; a busy store is tried again at the next beat.
                    with contextlib.suppress(DrivetrainError):
                        store.heartbeat(claim)
                    at_beat()
                    self._claims[claim] = store, time.monotonic() + claim.lease / 3, at_beat


heartbeat = Heartbeat()
os.register_at_fork(after_in_child=heartbeat.__init__)  # type: ignore[misc]
