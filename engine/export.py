"""Join a frozen preprocessing graph and a trained model into one bundle: from raw columns to predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..errors import DrivetrainError, InputError
from ..user_code import mistake
from .bundles.bundle import Bundle
from .bundles.manifest import export_facts
from .bundles.weights import weight_name
from .custom_ops.device import exporting
from .graphs.graph import Graph, RowCheck
from .graphs.nodes import ARRAY_DTYPES, BATCH, SYMBOL, HostNode, Tensor
from .lowering.lower import PLATFORMS, lower
from .lowering.programs import Payload
from .passes import FROZEN, optimize
from .ragged.convert import from_lengths
from .ragged.feeding import DEVICE, UNFLATTEN, flattened, lengths_of, lists_by_lengths
from .ragged.ragged import Ragged
from .tracing.equations import graph_of_jaxpr
from .tracing.primitives import bind_host, in_32_bits, shaped
from .transform.rowwise import PREDICT_FIX, check_rowwise
from .transform.transform import TRANSFORM

PREDICT = "predict"
EVALUATE = "evaluate"


@in_32_bits
@exporting()
def export_model(
    transform: Path,
    apply: Callable[[Any, Mapping[str, Any]], Any],
    params: Any,
    predict: Callable[[Any], Mapping[str, Any]],
    *,
    label: str,
    out: Path,
    platforms: Sequence[str] = PLATFORMS,
) -> Bundle:
    """Save a model bundle with two signatures.

    `predict` gives what the user's `predict` gives, from only the raw columns that this takes; `evaluate` gives the
    same and the label column. Params become safetensors weights, arguments of the program, under their path names.
    Rows come padded to fixed batch sizes, so a prediction must not look at other rows; training may.

    Args:
        transform: The folder of the preprocessing bundle.
        apply: `apply(params, features) -> outputs`; features are the transform's outputs without the label, lists of
            numbers as `Ragged`.
        params: Any pytree of arrays.
        predict: Turns apply's outputs into a dict from name to an array with one row per row, or a `Ragged` with one
            number per value of a feature's lists: a column of lists, list<float64> or list<int64>.
        label: The transform's output that is the label.
        out: The folder to write; new or empty.
        platforms: What the program is lowered for.

    Returns:
        The bundle as saved.

    Raises:
        InputError: The label is not an output of the transform; the model fails on its features, does not give a dict
            of arrays with one row per row and lists, or lets a row's prediction depend on other rows (with the line).
    """
    source, features, feeding = _transform(transform, label)
    model, _ = optimize(_Model(apply, params, predict, features, label).graph(), FROZEN)
    graph, programs = lower(
        _joined(source, feeding, model, label),
        "predict",
        programs=source.payload.programs,
        columns=tuple(source.graph.inputs.values()),
        platforms=platforms,
    )
    arrays = {**source.payload.weights, **model.values}
    weights = {name: arrays[name] for node in graph.nodes for name in getattr(node, "weights", ())}
    assets = {name: source.payload.assets[name] for node in graph.nodes for name in getattr(node, "assets", ())}
    bundle = Bundle(graph, Payload(programs, weights, assets), export_facts(tuple(platforms)), source.defaults,
                    source.request_log, source.times)  # fmt: skip
    bundle.save(out)
    return bundle


@dataclass(frozen=True)
class Rehearsal:
    """What is known of a bundle before its model is trained.

    Attributes:
        outputs: What its signature `evaluate` will give: the predictions, then the label.
        label_columns: The raw columns that the label is made of.
    """

    outputs: tuple[str, ...]
    label_columns: tuple[str, ...]


@in_32_bits
@exporting()
def rehearse(
    transform: Path,
    apply: Callable[[Any, Mapping[str, Any]], Any],
    params: Any,
    predict: Callable[[Any], Mapping[str, Any]],
    label: str,
) -> Rehearsal:
    """Trace a model as `export_model` does, and save nothing, so that an unfit model raises before it is trained.

    The arguments are those of `export_model`; params may be of `jax.ShapeDtypeStruct` in place of arrays.

    Raises:
        InputError: The model is one that `export_model` would refuse.
    """
    source, features, _ = _transform(transform, label)
    names = _Model(apply, params, predict, features, label).names
    needed = source.graph.needed([source.graph.signatures[TRANSFORM][label].tensor])
    return Rehearsal((*names, label), tuple(needed.inputs))


def _transform(transform: Path, label: str) -> tuple[Bundle, dict[str, tuple[Tensor, ...]], list[HostNode]]:
    """The preprocessing, the tensors of its features, and the nodes that feed its lists to the device."""
    source = Bundle.load(transform)
    outputs = source.graph.signatures.get(TRANSFORM)
    if outputs is None:
        raise InputError(f"{transform} has no signature {TRANSFORM!r}", fix="name the folder of a TransformGraph")
    if label not in outputs:
        raise InputError(f"the transform has no output {label!r}", fix=f"its outputs are {', '.join(outputs)}")
    return source, *_features(source, label)


def _features(source: Bundle, label: str) -> tuple[dict[str, tuple[Tensor, ...]], list[HostNode]]:
    """The tensors of each feature (of lists two: values and lengths), and the nodes that make those of lists."""
    tensors = source.graph.tensors()
    # Dimensions that count values are n1, n2 …: the model's go on where the transform's end, as both will be one graph.
    first = max((int(dim[1:]) for dim in lengths_of(source.graph.nodes)), default=0) + 1
    tensors_of_features: dict[str, tuple[Tensor, ...]] = {}
    feeding: list[HostNode] = []
    alike = lists_by_lengths(source.graph.nodes)
    dims: dict[str, str] = {}
    for name, output in source.graph.signatures[TRANSFORM].items():
        tensor = tensors[output.tensor]
        if name == label:
            continue
        if not tensor.column:
            tensors_of_features[name] = (tensor,)
        elif tensor.dtype in DEVICE:
            # Lists that one op made equally long (terms and their weights) share a dimension, so that the model may
            # combine them value by value.
            dim = dims.setdefault(alike.get(tensor.id, tensor.id), f"n{first + len(dims)}")
            feeding.append(flattened(tensor, name, dim))
            tensors_of_features[name] = feeding[-1].outputs
    return tensors_of_features, feeding


def _joined(source: Bundle, feeding: Sequence[HostNode], model: Graph, label: str) -> Graph:
    """One graph from raw columns to predictions: the transform's programs are called by the model's."""
    predicted, truth = model.signatures[PREDICT], source.graph.signatures[TRANSFORM][label]
    signatures = {PREDICT: predicted, EVALUATE: {**predicted, label: truth}}
    checks = source.graph.checks.get(TRANSFORM, ())
    frozen = {name: Tensor(name, str(array.dtype), array.shape) for name, array in source.payload.weights.items()}
    whole = replace(
        model,
        inputs=source.graph.inputs,
        nodes=(*source.graph.nodes, *feeding, *model.nodes),
        signatures=signatures,
        dims={name: _dim(name, model.dims[BATCH]) for name in (BATCH, *lengths_of((*source.graph.nodes, *feeding)))},
        weights={**frozen, **model.weights},
        checks={PREDICT: _served(source.graph, checks, label), EVALUATE: checks},
    )
    return whole.signature(EVALUATE)


def _served(transform: Graph, checks: tuple[RowCheck, ...], label: str) -> tuple[RowCheck, ...]:
    """The checks that a prediction makes: all but those of columns that nothing but the label needs."""
    outputs = transform.signatures[TRANSFORM]
    rest = [output.tensor for name, output in outputs.items() if name != label]
    alone = transform.needed([outputs[label].tensor]).inputs.keys() - transform.needed(rest).inputs.keys()
    return tuple(check for check in checks if not alone & transform.needed([check.tensor]).inputs.keys())


class _Model:
    """Apply and predict, traced with a symbolic batch: a jaxpr of features and params, refused if it mixes rows."""

    def __init__(
        self,
        apply: Any,
        params: Any,
        predict: Any,
        features: Mapping[str, tuple[Tensor, ...]],
        label: str,
    ) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(params)
        self._count = len(leaves)
        self._arrays = {weight_name(path): _array(path, leaf) for path, leaf in leaves}
        if len(self._arrays) != len(leaves):
            raise InputError("two of the model's params have the same path", fix="name them apart")
        self._apply, self._predict, self._features = apply, predict, features
        (batch,) = jax.export.symbolic_shape(BATCH)
        self._inputs = [tensor for tensors in self._features.values() for tensor in tensors]
        shapes = [shaped((_dim(str(t.shape[0]), batch), *t.shape[1:]), t.dtype) for t in self._inputs]
        shapes += [shaped(array.shape, array.dtype) for array in self._arrays.values()]
        self.names = tuple[str, ...]()
        try:
            self._closed = jax.make_jaxpr(self._run)(*shapes)
        except DrivetrainError:
            raise
        except Exception as error:  # the user's model failed: whatever it is, name his line
            raise mistake(error) from error
        if label in self.names:
            raise InputError(
                f"the prediction {label!r} has the label's name", fix="name it otherwise, e.g. 'probability'"
            )
        for name, aval in zip(self.names, self._closed.out_avals, strict=True):
            if not aval.shape or aval.shape[0] != batch or 0 in aval.shape or str(aval.dtype) not in ARRAY_DTYPES:
                raise InputError(
                    f"prediction {name!r} is {aval.dtype}{list(map(str, aval.shape))}",
                    fix="give one value or vector per row" + (", of one place or more" if 0 in aval.shape else ""),
                )
        check_rowwise(self._closed, PREDICT_FIX, exported=True)

    def graph(self) -> Graph:
        """From features to predictions, params its weights."""
        places = {name: position for position, name in enumerate(self.names)}
        inputs = [(tensor.id, tensor) for tensor in self._inputs]
        return graph_of_jaxpr(self._closed, inputs, places, weights=self._arrays, signature=PREDICT, prefix="model/")

    def _run(self, *arrays: Any) -> list[Any]:
        remaining = iter(arrays)
        features = {}
        for name, tensors in self._features.items():
            values = [next(remaining) for _ in tensors]
            features[name] = from_lengths(*values) if len(values) == 2 else values[0]
        params = jax.tree_util.tree_unflatten(self._tree, list(islice(remaining, self._count)))
        predictions = self._predict(self._apply(params, features))
        if (
            not isinstance(predictions, Mapping)
            or not predictions
            or not all(isinstance(name, str) for name in predictions)
        ):
            raise InputError(
                f"predict returned {'one array' if hasattr(predictions, 'shape') else type(predictions).__name__}",
                fix='return a dict, e.g. {"probability": jax.nn.sigmoid(logits)}',
            )
        self.names = tuple(predictions)
        return [_output(name, value) for name, value in predictions.items()]


def _output(name: str, value: Any) -> Any:  # Any: what the user's function gave; a tracer
    """A prediction as an array, or of a `Ragged` the handle of a column of lists."""
    if not isinstance(value, Ragged):
        if not hasattr(value, "shape"):
            raise InputError(f"prediction {name!r} is {value!r:.60}", fix="give one value or vector per row")
        return value
    kind = {"f": "list<float64>", "i": "list<int64>", "u": "list<int64>"}.get(value.values.dtype.kind)
    if kind is None or value.values.ndim != 1 or not SYMBOL.fullmatch(str(value.segment_ids.shape[0])):
        raise InputError(
            f"prediction {name!r} is {value!r}, which is not a column of lists of numbers",
            fix="give one number per value of a feature's lists; pool or to_dense what else there is",
        )
    params = {"dtype": kind, "output": name}
    (column,) = bind_host(UNFLATTEN, [value.lengths, value.values], [(kind, (BATCH,), True)], params)
    return column


def _dim(name: str, batch: Any) -> Any:  # symbolic dimensions
    """The dimension of that name, in the scope of the batch."""
    (dim,) = jax.export.symbolic_shape(name, scope=batch.scope)
    return dim


def _array(path: Any, leaf: Any) -> NDArray[Any]:
    if isinstance(leaf, jax.ShapeDtypeStruct) and isinstance(leaf.dtype, np.dtype):
        leaf = np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)  # one element in memory
    array = np.asarray(leaf) if hasattr(leaf, "dtype") or isinstance(leaf, (int, float)) else None
    if array is not None and array.dtype in (np.float64, np.int64) and not hasattr(leaf, "dtype"):
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    if array is None or (str(array.dtype) not in ARRAY_DTYPES and array.dtype != bool):
        raise InputError(
            f"param {weight_name(path)} is {type(leaf).__name__}, no array of numbers",
            fix="keep only arrays in params",
        )
    return array
