"""The arguments of `fit`, looked at before anything is computed: what each of them must be, and how it is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from ...errors import InputError, suggest
from .callbacks import Callback, Monitor
from .input.dataset import Dataset
from .metrics import SplitMetric
from .model import Model
from .rollback import Rollback

_LOSSES = ("loss", "eval_loss")
_ARGUMENTS = {"loss": "outputs, batch", "predict": "outputs", "gradients": "params, state, batch, key"}
_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def check_functions(model: object, optimizer: object, functions: Mapping[str, object]) -> None:
    """Refuse what is no model, no optimizer, or no function.

    Args:
        model: A `Model`.
        optimizer: Of optax, or with its methods.
        functions: `loss`, `predict` and perhaps `gradients` by these names.

    Raises:
        InputError: One of them is something else.
    """
    if not isinstance(model, Model):
        raise InputError(
            f"the model is {_kind(model)}, not a Model",
            fix="wrap it by nnx_model, keras_model, equinox_model or haiku_model; or write Model(init, apply)",
        )
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        fix = "use one of optax, such as optax.adam(1e-3)"
        if callable(optimizer):
            fix = f"call it: optax.{getattr(optimizer, '__name__', 'adam')}(1e-3)"
        raise InputError(f"the optimizer is {_kind(optimizer)}", fix=fix)
    for name, function in functions.items():
        if not callable(function):
            raise InputError(
                f"{name} is {_kind(function)}, not a function", fix=f"write {name}=lambda {_ARGUMENTS[name]}: …"
            )
        _check_call(name, function, _ARGUMENTS[name], fix=f"write {name}=lambda {_ARGUMENTS[name]}: …")


def check_metrics(metrics: object) -> None:
    """Refuse metrics that are no functions by name.

    Raises:
        InputError: They are not, or one has the name of a loss.
    """
    if not isinstance(metrics, Mapping) or not all(callable(metric) for metric in metrics.values()):
        raise InputError(
            f"metrics is {metrics!r}, not functions by name", fix='write metrics={"mae": lambda outputs, batch: …}'
        )
    for name, metric in metrics.items():
        if inspect.isfunction(metric) and metric.__module__ == SplitMetric.__module__:
            raise InputError(
                f"the metric {name!r} is {_kind(metric)} of engine.metrics",
                fix=f"call it: metrics.{metric.__name__}(lambda outputs, batch: (predictions, labels))",
            )
        fix = f'write metrics={{"{name}": lambda outputs, batch: …}}'
        _check_call(f"the metric {name!r}", metric, _ARGUMENTS["loss"], fix)
    if taken := [name for name in metrics if name in _LOSSES]:
        raise InputError(f"a metric is called {taken[0]!r}, as the loss is", fix="give it another name")


def _check_call(what: str, function: Callable[..., object], arguments: str, fix: str) -> None:
    """Refuse a function that cannot be called with so many arguments; of one without a signature nothing is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments.split(", "))
    except TypeError as error:
        raise InputError(f"{what} is called with ({arguments}): {error}", fix=fix) from None


def check_callbacks(callbacks: object) -> None:
    """Refuse what is no list of callbacks, and a method that nothing would call.

    Raises:
        InputError: It is something else; a class in place of an instance; or a method `on_…` that no callback has.
    """
    if not isinstance(callbacks, Sequence):
        raise InputError(f"callbacks is {_kind(callbacks)}, not a list", fix="write callbacks=[…]")
    for callback in callbacks:
        if isinstance(callback, type):
            raise InputError(f"the callback {callback.__name__} is a class", fix=f"call it: {callback.__name__}(…)")
        if not isinstance(callback, Callback):
            raise InputError(f"a callback is {_kind(callback)}", fix="derive its class from drivetrain.engine.Callback")
        for name in dir(type(callback)):
            if name.startswith("on_") and name not in _HOOKS:
                raise InputError(
                    f"nothing calls {type(callback).__name__}.{name}", fix=suggest(name, _HOOKS, "a callback has")
                )


def check_rollback(rollback: object) -> None:
    """Refuse what says in another way that there are rollbacks.

    Raises:
        InputError: It is neither a `Rollback` nor None.
    """
    if rollback is not None and not isinstance(rollback, Rollback):
        times = rollback if isinstance(rollback, int) and not isinstance(rollback, bool) else 3
        raise InputError(
            f"rollback is {_kind(rollback)}", fix=f"write rollback=Rollback(times={times}), of drivetrain.engine"
        )


def monitor_of(option: str, wanted: object, metrics: Sequence[str]) -> Monitor | None:
    """What an option of `fit` names: "eval_loss", or a metric with its direction.

    Args:
        option: Its name, for errors.
        wanted: Its value; None where it is left out.
        metrics: The names of the metrics that there are.

    Raises:
        InputError: It is no name, or a metric's without a direction.
    """
    if wanted is None:
        return None
    if isinstance(wanted, tuple) and len(wanted) == 2:
        return Monitor(*wanted)
    if not isinstance(wanted, str):
        raise InputError(f"{option} is {wanted!r}", fix=f'write {option}="eval_loss", or ("accuracy", "max")')
    if wanted not in (*_LOSSES, *metrics):
        raise InputError(f"there is no {wanted!r} to monitor", fix=suggest(wanted, [*_LOSSES, *metrics], "there are"))
    if wanted not in _LOSSES:
        raise InputError(
            f"whether a smaller or a larger {wanted!r} is better is not known",
            fix=f'write {option}=("{wanted}", "max"), or "min"',
        )
    return Monitor(wanted)


def check_datasets(datasets: Mapping[str, object]) -> None:
    """Refuse what is no dataset of `engine.input`, by the names of the arguments.

    Raises:
        InputError: One of them is neither that nor None.
    """
    for name, value in datasets.items():
        if value is not None and not isinstance(value, Dataset):
            raise InputError(
                f"{name} is {_kind(value)}, not a dataset of engine.input",
                fix='write run.dataset("eval").batch(…); engine.input.from_arrays and from_grain make others',
            )


def _kind(value: object) -> str:
    """A value for a message: a short one as it is written, else by its type."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = getattr(value, "__name__", None) if callable(value) else None
    return f"the function {name}" if isinstance(name, str) else f"of type {type(value).__name__}"
