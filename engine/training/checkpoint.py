"""Checkpoints of a training: what they hold, when they are due, and which one can be trusted after a crash."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...digest import canonical_json
from ...errors import missing_extra

KEEP = 2  # where the newest is damaged, the one before is there to go back to
FRACTIONS = 8  # a run of seconds is saved at each eighth, so that a kill in its second half loses little
_FIRST_COST = 1.0  # seconds: what a save is taken to cost until one is known; the first loads orbax
_FORMAT = 2
_FLOAT = "$float"
State = Any  # a pytree of arrays


class Checkpoints:
    """A folder of checkpoints, one subfolder per step, written by orbax.

    A checkpoint is the training state (parameters and optimizer) and a JSON record (position in the data, history).
    Orbax writes into a temporary folder and renames it, so a killed process leaves whole checkpoints only. A digest
    over state and record, checked when restoring, catches what a disk does afterwards. Saving copies the state to the
    host and goes on in a thread: the training waits for the copy alone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            folder: Where the checkpoints lie; made when the first is saved.
            seconds: Save at least this often.
            clock: Seconds from any origin.
            note: Called with a line of text about a checkpoint that could not be used.
        """
        self._folder, self._seconds, self._clock, self._note = folder, seconds, clock, note
        self._saved_at: float | None = None  # until steps have run: what compiling them took is in no checkpoint
        self._saved_step = 0
        self._cost = min(_FIRST_COST, seconds / 3)  # seconds that the last save took; before, a guess
        self._manager: Any = None  # orbax ships no types
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def due(self, step: int, total: int) -> bool:
        """Whether to save at this step of `total`: each eighth of the run, and every `seconds`.

        Where saving is slow it comes less often: it takes at most a quarter of a short run, a tenth of a long one. So
        a run of a second saves none: to train it anew is cheaper.
        """
        if step <= self._saved_step or step >= total or (self._writing is not None and not self._writing.done()):
            return False
        if self._saved_at is None:
            self._saved_at = self._clock()
        waited = self._clock() - self._saved_at
        eighth = step * FRACTIONS // total > self._saved_step * FRACTIONS // total
        return (eighth and waited >= 3 * self._cost) or waited >= max(self._seconds, 9 * self._cost)

    def save(self, step: int, state: State, record: Mapping[str, Any]) -> None:
        """Begin to save; what is not written when `wait` returns is there. Older checkpoints than the last two go.

        Args:
            step: Its number; a checkpoint of the same step is kept as it is.
            state: A pytree of arrays; it is copied before this returns.
            record: JSON values; floats may be NaN or infinite.

        Raises:
            InputError: The record holds what is no JSON value.
            OSError: The checkpoint before could not be written; orbax may raise others.
        """
        _orbax()  # so that a training that lacks it says so
        self.wait()
        arrays = {name: array.copy() for name, array in _arrays(state).items()}  # the next step writes over the state
        self._saved_step = step
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "drivetrain-checkpoint")
        self._writing = self._thread.submit(self._write, step, arrays, _finite(record))

    def wait(self) -> None:
        """Return when what was given to `save` is on the disk.

        Raises:
            OSError: It could not be written; orbax may raise others.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, step: int, arrays: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        begin = self._clock()
        if step not in self._steps():
            ocp = _orbax()
            body = {"format": _FORMAT, "record": dict(record), "sha256": _digest(arrays, record)}
            args = ocp.args.Composite(state=ocp.args.StandardSave(arrays), record=ocp.args.JsonSave(body))
            self._open().save(step, args=args, force=True)  # `due` decides when to save, not orbax
        self._saved_at = self._clock()
        self._cost = self._saved_at - begin

    def restore(self, like: State) -> tuple[int, State, dict[str, Any]] | None:
        """The newest checkpoint that is whole, as (step, state as numpy arrays, record), or None.

        What cannot be used is noted and renamed to unusable-STEP.

        Args:
            like: A pytree of the structure, shapes and dtypes of the state (`jax.eval_shape` gives one).
        """
        for step in reversed(self._steps()):
            try:
                state, record = self._read(step, like)
            except Exception as error:  # orbax and tensorstore raise many kinds; the note carries it
                self._note(f"checkpoint {step} cannot be used ({_line(error)}): going back to the one before")
                self._set_aside(step)
            else:
                self._saved_at, self._saved_step = self._clock(), step
                return step, state, record
        return None

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and release the threads.

        Raises:
            OSError: It could not be written; orbax may raise others.
        """
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
            self._release()

    def _release(self) -> None:
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _read(self, step: int, like: State) -> tuple[State, dict[str, Any]]:
        import jax

        ocp = _orbax()
        wanted = _shapes(like)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(wanted), record=ocp.args.JsonRestore())
        restored = self._open().restore(step, args=args)
        arrays, saved = restored["state"], restored["record"]
        if saved["format"] != _FORMAT or saved["sha256"] != _digest(arrays, saved["record"]):
            raise ValueError("its digest does not match")
        leaves = [_typed(arrays.get(name), leaf) for name, leaf in _named(like)]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), _float(saved["record"])

    def _steps(self) -> list[int]:
        """Steps of the committed checkpoints, ascending; the temporary folders of orbax have other names."""
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())

    def _set_aside(self, step: int) -> None:
        self._release()  # its list of steps is read when it opens
        aside = self._folder / f"unusable-{step}"
        shutil.rmtree(aside, ignore_errors=True)
        (self._folder / str(step)).rename(aside)

    def _open(self) -> Any:
        if self._manager is None:
            ocp = _orbax()
            options = ocp.CheckpointManagerOptions(
                max_to_keep=KEEP, enable_async_checkpointing=False, cleanup_tmp_directories=True
            )
            self._folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(self._folder.absolute(), options=options)
        return self._manager


def _finite(value: Any) -> Any:
    """A JSON value in which floats that JSON does not know are written as {_FLOAT: text}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _float(value: Any) -> Any:
    """What `_finite` was given."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {name: _float(each) for name, each in value.items()}
    return [_float(each) for each in value] if isinstance(value, list) else value


def _orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise missing_extra("orbax-checkpoint", "engine") from error
    return ocp


def _named(tree: State) -> list[tuple[str, Any]]:
    import jax

    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]


def _is_key(leaf: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _arrays(state: State) -> dict[str, Any]:
    """The leaves as numpy arrays by path, PRNG keys as their key data; without empty ones, which orbax refuses."""
    import jax
    import numpy as np

    named = _named(state)
    plain = {name: jax.random.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in named}
    if len(plain) != len(named):
        raise ValueError("two arrays of the training state have the same path")
    return {name: np.asarray(leaf) for name, leaf in plain.items() if leaf.size}


def _shapes(like: State) -> dict[str, Any]:
    """What restoring to numpy wants: arrays of the right shape and dtype by path."""
    import jax
    import numpy as np

    def plain(leaf: Any) -> Any:
        return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf

    named = {name: plain(leaf) for name, leaf in _named(like)}
    # Broadcast, so that they take no memory: orbax looks at shape and dtype alone.
    return {name: np.broadcast_to(np.zeros((), a.dtype), a.shape) for name, a in named.items() if a.size}


def _typed(array: Any, like: Any) -> Any:
    import jax
    import numpy as np

    if array is None:
        return np.zeros(like.shape, like.dtype)
    whole = jax.random.wrap_key_data(array) if _is_key(like) else array
    if whole.dtype != like.dtype:
        raise ValueError(f"an array of {whole.dtype}, not {like.dtype}")
    return whole


def _digest(arrays: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    import hashlib

    import numpy as np

    body = hashlib.sha256(canonical_json(record))
    for name, array in sorted(arrays.items()):
        whole = np.ascontiguousarray(array)
        body.update(f"\0{name} {whole.dtype} {np.shape(array)}\0".encode())
        body.update(whole.reshape(-1).view(np.uint8).data)
    return body.hexdigest()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"[:200]
