"""Checkpoints of a training: what they hold, when they are due, and which one can be trusted after a crash."""

from __future__ import annotations

import errno
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...digest import canonical_json
from ...errors import DrivetrainError, InputError, missing_extra

FRACTIONS = 8  # a run of seconds is saved at each eighth, so that a kill in its second half loses little
_FIRST_COST = 1.0  # seconds: what a save is taken to cost until one is known; the first loads orbax
_FORMAT = 3
_FLOAT = "$float"
State = Any  # a pytree of arrays


@dataclass(frozen=True)
class CheckpointPolicy:
    """Which checkpoints of a training are kept; those that `best` or a period name stay when the training has ended.

    Attributes:
        max_to_keep: How many of the newest, to go on from: where one is damaged, the one before is there.
        best: A value of each epoch, as `keep_best` of `fit` names it ("eval_loss", or ("mae", "min")): a checkpoint is
            saved after each epoch in which it became better, and the best one is kept.
        keep_period: Steps: a checkpoint is saved at each multiple, after the dispatch that reaches it, and kept.
        keep_hours: Hours of training: likewise, counted anew where a training goes on from a checkpoint.

    Raises:
        InputError: A number that cannot be.
    """

    max_to_keep: int = 2
    best: str | tuple[str, Literal["min", "max"]] | None = None
    keep_period: int | None = None
    keep_hours: float | None = None

    @property
    def lasting(self) -> bool:
        """Whether any is kept beside the newest."""
        return (self.best, self.keep_period, self.keep_hours) != (None, None, None)

    def __post_init__(self) -> None:
        for name in ("max_to_keep", "keep_period"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise InputError(f"{name} of the checkpoints is {number}", fix="use 1 or more")
        if self.keep_hours is not None and not self.keep_hours > 0:
            raise InputError(f"keep_hours of the checkpoints is {self.keep_hours}", fix="use more than 0")


@dataclass(frozen=True)
class _Preserved:
    """What orbax asks which checkpoints to keep."""

    newest: int
    lasting: Callable[[Sequence[int]], list[int]]
    awaited: Callable[[Sequence[int]], Sequence[int]] | None

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:  # Any: orbax's own
        """Whether to, for each."""
        steps = [info.step for info in checkpoints]
        kept = {*steps[-self.newest :], *self.lasting(steps), *(self.awaited(steps) if self.awaited else ())}
        return [step in kept for step in steps]


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
        policy: CheckpointPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda text: None,
        awaited: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            folder: Where the checkpoints lie; made when the first is saved.
            seconds: Save at least this often.
            policy: Which are kept.
            clock: Seconds from any origin.
            note: Called with a line of text about a checkpoint that could not be used.
            awaited: Tells which of these steps somebody has yet to read: they stay until then.
        """
        self._folder, self._seconds, self._clock, self._note = folder, seconds, clock, note
        self._policy, self._awaited = policy or CheckpointPolicy(), awaited
        self._period_step, self._period_at = 0, clock()  # of the last one that a period has kept
        self._reasons: dict[int, list[str]] = {}  # why a checkpoint is kept, by step
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
        if step <= self._saved_step:
            return False
        if self._period_due(step):  # it is to be kept: the training waits for the one before
            return True
        if step >= total or (self._writing is not None and not self._writing.done()):
            return False
        if self._saved_at is None:
            self._saved_at = self._clock()
        waited = self._clock() - self._saved_at
        eighth = step * FRACTIONS // total > self._saved_step * FRACTIONS // total
        return (eighth and waited >= 3 * self._cost) or waited >= max(self._seconds, 9 * self._cost)

    def _period_due(self, step: int) -> bool:
        """Whether a checkpoint of this step is to be kept for its time."""
        steps, hours = self._policy.keep_period, self._policy.keep_hours
        if steps is not None and step // steps > self._period_step // steps:
            return True
        return hours is not None and self._clock() - self._period_at >= hours * 3600

    def save(self, step: int, state: State, record: Mapping[str, Any], *, best: bool = False) -> None:
        """Begin to save; what is written when `wait` returns is there. What the policy does not keep goes.

        Args:
            step: Its number; a checkpoint of the same step is kept as it is.
            state: A pytree of arrays; it is copied before this returns.
            record: JSON values; floats may be NaN or infinite.
            best: Whether it is better than those before.

        Raises:
            InputError: The record holds what is no JSON value.
            DrivetrainError: The checkpoint before could not be written.
        """
        _orbax()  # so that a training that lacks it says so
        self.wait()
        arrays = {name: array.copy() for name, array in _arrays(state).items()}  # the next step writes over the state
        self._saved_step = step
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "drivetrain-checkpoint")
        reasons = ["best"] if best else []
        if self._period_due(step):
            reasons.append("period")
            self._period_step, self._period_at = step, self._clock()
        self._writing = self._thread.submit(self._write, step, arrays, _finite(record), reasons)

    def wait(self) -> None:
        """Return when what was given to `save` is on the disk.

        Raises:
            DrivetrainError: It could not be written.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            try:
                writing.result()
            except Exception as error:  # orbax and tensorstore raise many kinds; the message carries it
                saved = [step for step in self.steps() if step < self._saved_step]
                goes_on = f"at step {saved[-1]}, the newest checkpoint" if saved else "at its begin"
                raise DrivetrainError(
                    f"the checkpoint of step {self._saved_step} could not be written to {self._folder}: {_line(error)}",
                    fix=f"make room there, or see to what it says; the next attempt goes on {goes_on}",
                ) from error

    def _write(self, step: int, arrays: Mapping[str, Any], record: Mapping[str, Any], reasons: list[str]) -> None:
        begin = self._clock()
        if step not in self.steps():
            ocp = _orbax()
            body = {"format": _FORMAT, "record": dict(record), "sha256": _digest(arrays, record), "reasons": reasons}
            args = ocp.args.Composite(state=ocp.args.StandardSave(arrays), record=ocp.args.JsonSave(body))
            self._reasons[step] = reasons
            self._open().save(step, args=args, force=True)  # `due` decides when to save, not orbax
        self._saved_at = self._clock()
        self._cost = self._saved_at - begin

    def restore(self, like: State) -> tuple[int, State, dict[str, Any]] | None:
        """The newest checkpoint that is whole, as (step, state as numpy arrays, record), or None.

        What cannot be used is noted and renamed to unusable-STEP.

        Args:
            like: A pytree of the structure, shapes and dtypes of the state (`jax.eval_shape` gives one).

        Raises:
            DrivetrainError: The machine lacks memory, open files or a permission, which says nothing of the checkpoint;
                or it is whole, and of another structure.
        """
        for step in reversed(self.steps()):
            try:
                state, record = self.read(step, like)
            except DrivetrainError:
                raise
            except Exception as error:  # orbax and tensorstore raise many kinds; the note carries it
                self._note(f"checkpoint {step} cannot be used ({_line(error)}): going back to the one before")
                self._set_aside(step)
            else:
                self._saved_at, self._saved_step = self._clock(), step
                self._period_step = max((kept for kept in self._lasting(self.steps()) if kept <= step), default=0)
                return step, state, record
        return None

    def kept(self) -> dict[int, Path]:
        """The folders of the checkpoints that stay when the training has ended, by step."""
        self.wait()
        return {step: self._path(step) for step in self._lasting(self.steps())}

    def _lasting(self, steps: Sequence[int]) -> list[int]:
        """Those of these steps whose checkpoints are kept though they are not the newest."""
        if not self._policy.lasting:
            return []
        for step in steps:
            if step not in self._reasons:
                self._reasons[step] = self._read_reasons(step)
        best = [step for step in steps if "best" in self._reasons[step]]  # each is better than those before
        return sorted({*best[-1:], *(step for step in steps if "period" in self._reasons[step])})

    def _read_reasons(self, step: int) -> list[str]:
        try:
            return list(self._body(step)["reasons"])
        except Exception:  # as in `restore`, which says so when it comes to this one
            return []

    def newest(self) -> Path | None:
        """The folder of the newest that is on the disk."""
        steps = self.steps()
        return self._path(steps[-1]) if steps else None

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and release the threads.

        Raises:
            DrivetrainError: It could not be written.
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

    def read(self, step: int, like: State) -> tuple[State, dict[str, Any]]:
        """The state of a checkpoint, as numpy arrays, and its record; nothing in the folder is changed.

        Orbax and tensorstore raise many kinds of errors where it is damaged, or goes meanwhile.

        Raises:
            DrivetrainError: As `restore`.
        """
        import jax

        try:
            arrays, record = self._read_arrays(step, _shapes(like))
            leaves = [_typed(arrays.get(name), leaf) for name, leaf in _named(like)]
        except Exception as error:
            if _is_of_machine(error):
                raise DrivetrainError(
                    f"the checkpoint of step {step} in {self._folder} cannot be read now: {_line(error)}",
                    fix="see to what it says and try again; the checkpoint stays as it is",
                ) from error
            self._refuse_other(step, like)
            raise
        return jax.tree.unflatten(jax.tree.structure(like), leaves), record

    def _refuse_other(self, step: int, like: State) -> None:
        """Refuse a checkpoint that is whole, and of another training: it is not to be set aside.

        Raises:
            InputError: It is.
        """
        try:
            arrays = self.arrays(step)
        except Exception:  # it is damaged, as in `restore`
            return
        saved = {name: f"{array.dtype} {list(array.shape)}" for name, array in arrays.items()}
        wanted = {name: f"{array.dtype} {list(array.shape)}" for name, array in _shapes(like).items()}
        for name in sorted({*saved, *wanted}):
            if saved.get(name) != wanted.get(name):
                raise InputError(
                    f"the checkpoint of step {step} in {self._folder} is of another training: its {name!r} is "
                    f"{saved.get(name, 'not there')}, here {wanted.get(name, 'not there')}",
                    fix="use the model and the options of `fit` with which it was saved, or another work_dir",
                )

    def _read_arrays(self, step: int, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        ocp = _orbax()
        with closing(ocp.StandardCheckpointHandler()) as handler:
            arrays = handler.restore(self._path(step) / "state", args=ocp.args.StandardRestore(wanted))
        saved = self._body(step)
        if saved["format"] != _FORMAT or saved["sha256"] != _digest(arrays, saved["record"]):
            raise ValueError("its digest does not match")
        return arrays, _float(saved["record"])

    def arrays(self, step: int) -> dict[str, Any]:
        """The arrays of a checkpoint by name; orbax and tensorstore raise many kinds of errors where it is damaged."""
        with closing(_orbax().StandardCheckpointHandler()) as handler:
            saved = handler.metadata(self._path(step) / "state")
        return self._read_arrays(step, {name: _broadcast(array) for name, array in saved.items()})[0]

    def _body(self, step: int) -> dict[str, Any]:
        ocp = _orbax()
        with closing(ocp.JsonCheckpointHandler()) as handler:
            body: dict[str, Any] = handler.restore(self._path(step) / "record", args=ocp.args.JsonRestore())
        return body

    def _path(self, step: int) -> Path:
        return self._folder.absolute() / str(step)

    def steps(self) -> list[int]:
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
                preservation_policy=_Preserved(self._policy.max_to_keep, self._lasting, self._awaited),
                enable_async_checkpointing=False,
                cleanup_tmp_directories=True,
            )
            self._folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(self._folder.absolute(), options=options)
        return self._manager


def _is_of_machine(error: Exception) -> bool:
    """Whether an error of reading a checkpoint has another cause than the checkpoint."""
    if isinstance(error, MemoryError):
        return True
    named = re.search(r"OS error (\d+)", str(error))  # as tensorstore writes it
    number = error.errno if isinstance(error, OSError) else int(named[1]) if named else None
    return number in (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM)


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

    def plain(leaf: Any) -> Any:
        return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf

    named = {name: plain(leaf) for name, leaf in _named(like)}
    return {name: _broadcast(array) for name, array in named.items() if array.size}


def _broadcast(array: Any) -> Any:
    """An array of a shape and dtype that takes no memory: orbax looks at these alone."""
    import numpy as np

    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _typed(array: Any, like: Any) -> Any:
    import jax
    import numpy as np

    if array is None:
        return np.zeros(like.shape, like.dtype)
    whole = jax.random.wrap_key_data(array) if _is_key(like) else array
    if (whole.dtype, whole.shape) != (like.dtype, like.shape):
        raise ValueError(f"an array of {whole.dtype} {whole.shape}, not {like.dtype} {like.shape}")
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


def read_checkpoint(folder: str | Path) -> dict[str, Any]:
    """The arrays of one checkpoint by name, such as "params.hidden.kernel", as numpy arrays.

    Args:
        folder: Of one step, as `CheckpointPolicy` keeps it in `extra/checkpoints` of a model.

    Raises:
        InputError: There is none, or it is damaged.
    """
    folder = Path(folder)
    checkpoints = Checkpoints(folder.parent)
    try:
        if not folder.name.isdecimal() or not folder.is_dir():
            raise FileNotFoundError("there is no such folder, named by a step")
        return checkpoints.arrays(int(folder.name))
    except Exception as error:  # as in `Checkpoints.restore`
        raise InputError(f"{folder} holds no checkpoint that can be used: {_line(error)}", fix="use another") from error
    finally:
        checkpoints.close()
