"""Join a frozen preprocessing graph and a trained model into one bundle: from raw columns to predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex
from numpy.typing import NDArray

from ..errors import DrivetrainError, InputError
from ._caller import raised_at
from .bundles.bundle import Bundle
from .bundles.manifest import export_facts
from .graphs.graph import Graph, Output
from .graphs.nodes import ARRAY_DTYPES, BATCH, DeviceStage, Tensor
from .lowering.lower import PLATFORMS, export_program
from .lowering.programs import Payload
from .tracing.primitives import in_32_bits, shaped
from .transform import TRANSFORM

PREDICT = "predict"
EVALUATE = "evaluate"


@in_32_bits
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

    Args:
        transform: The folder of the preprocessing bundle.
        apply: `apply(params, features) -> outputs`; features are the transform's outputs without the label.
        params: Any pytree of arrays.
        predict: Turns apply's outputs into a dict from name to an array with one row per row.
        label: The transform's output that is the label.
        out: The folder to write; new or empty.
        platforms: What the program is lowered for.

    Returns:
        The bundle as saved.

    Raises:
        InputError: The label is no output of the transform, the model fails on its features, or does not give a dict
            of arrays with one row per row.
    """
    source = Bundle.load(transform)
    outputs = source.graph.signatures.get(TRANSFORM)
    if outputs is None:
        raise InputError(f"{transform} has no signature {TRANSFORM!r}", fix="name the folder of a TransformGraph")
    if label not in outputs:
        raise InputError(f"the transform has no output {label!r}", fix=f"its outputs are {', '.join(outputs)}")
    model = _Model(apply, params, predict, _features(source, label))
    if label in model.names:
        raise InputError(f"the prediction {label!r} has the label's name", fix="name it otherwise, e.g. 'probability'")
    stage, program = model.export(platforms, source)
    predicted = {name: Output(tensor.id) for name, tensor in zip(model.names, stage.outputs, strict=True)}
    signatures = {PREDICT: predicted, EVALUATE: {**predicted, label: outputs[label]}}
    whole = Graph(source.graph.inputs, (*source.graph.nodes, stage), signatures)
    graph = whole.needed(output.tensor for output in signatures[EVALUATE].values())
    bundle = Bundle(
        graph, _payload(graph, source, stage.program, program, model.weights), export_facts(tuple(platforms))
    )
    bundle.save(out)
    return bundle


def _features(source: Bundle, label: str) -> dict[str, Tensor]:
    tensors = source.graph.tensors()
    found = {
        name: tensors[output.tensor] for name, output in source.graph.signatures[TRANSFORM].items() if name != label
    }
    return {name: tensor for name, tensor in found.items() if not tensor.column}


def _payload(graph: Graph, source: Bundle, name: str, program: bytes, weights: Mapping[str, NDArray[Any]]) -> Payload:
    """Only what the joined graph still refers to."""
    stages = [node for node in graph.nodes if isinstance(node, DeviceStage)]
    programs = {**source.payload.programs, name: program}
    arrays = {**source.payload.weights, **weights}
    assets = {asset for node in graph.nodes for asset in getattr(node, "assets", ())}
    return Payload(
        {stage.program: programs[stage.program] for stage in stages},
        {weight: arrays[weight] for stage in stages for weight in stage.weights},
        {asset: source.payload.assets[asset] for asset in sorted(assets)},
    )


class _Model:
    """Apply and predict, traced with a symbolic batch; knows which features and params each prediction needs."""

    def __init__(self, apply: Any, params: Any, predict: Any, features: Mapping[str, Tensor]) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(params)
        arrays = {_weight_name(path): _array(path, leaf) for path, leaf in leaves}
        if len(arrays) != len(leaves):
            raise InputError("two of the model's params have the same path", fix="name them apart")
        self._apply, self._predict, self._features = apply, predict, features
        (batch,) = jax.export.symbolic_shape(BATCH)
        shapes = [shaped((batch, *t.shape[1:]), t.dtype) for t in features.values()]
        shapes += [shaped(array.shape, array.dtype) for array in arrays.values()]
        self.names = tuple[str, ...]()
        try:
            self._closed = jax.make_jaxpr(self._run)(*shapes)
        except DrivetrainError:
            raise
        except Exception as error:  # the user's model failed: whatever it is, name his line
            text = str(error).splitlines()[0] if str(error) else ""
            raise InputError(
                f"the model failed on its features: {type(error).__name__}: {text}",
                fix=f"apply gets {', '.join(features)}; the label is left out",
                where=raised_at(error.__traceback__),
            ) from error
        self._reach = _reach(self._closed.jaxpr)
        used = set().union(*self._reach)
        count = len(features)
        self._read = [place for place in range(count) if place in used or (place == 0 and not used & set(range(count)))]
        self._kept = [place for place in range(count, len(shapes)) if place in used]
        self._shapes = shapes
        self._all = list(arrays)
        self.weights: dict[str, NDArray[Any]] = {
            self._all[place - count]: arrays[self._all[place - count]] for place in self._kept
        }
        for name, aval in zip(self.names, self._closed.out_avals, strict=True):
            if not aval.shape or aval.shape[0] != batch or str(aval.dtype) not in ARRAY_DTYPES:
                raise InputError(
                    f"prediction {name!r} is {aval.dtype}{list(map(str, aval.shape))}",
                    fix="give one value or vector per row",
                )

    def _run(self, *arrays: Any) -> list[Any]:
        features = dict(zip(self._features, arrays, strict=False))
        params = jax.tree_util.tree_unflatten(self._tree, arrays[len(self._features) :])
        given = self._predict(self._apply(params, features))
        if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
            raise InputError(
                f"predict returned {type(given).__name__}",
                fix='return a dict, e.g. {"probability": jax.nn.sigmoid(logits)}',
            )
        for name, value in given.items():
            if not hasattr(value, "shape"):
                raise InputError(f"prediction {name!r} is {value!r:.60}", fix="give one value or vector per row")
        self.names = tuple(given)
        return list(given.values())

    def export(self, platforms: Sequence[str], source: Bundle) -> tuple[DeviceStage, bytes]:
        """The model as a device stage, and its program.

        The transform's device stages that feed it are inlined, so that a prediction is one call on the device.
        """
        features = list(self._features.values())
        read = [features[place].id for place in self._read]
        feeding = _feeding(source.graph, read)
        made = {tensor.id for stage in feeding for tensor in stage.outputs}
        slots = {
            name: slot
            for stage in feeding
            for name, slot in zip(stage.inputs, stage.slots, strict=True)
            if name is not None
        }
        slots.update((t.id, (t.dtype, t.shape)) for t in features if t.id in read and t.id not in made)
        weights = dict.fromkeys(name for stage in feeding for name in stage.weights)
        arrays = {name: source.payload.weights[name] for name in weights} | self.weights
        calls: list[Any] = [
            jax.export.deserialize(bytearray(source.payload.programs[stage.program])).call for stage in feeding
        ]

        def program(*given: Any) -> list[Any]:
            env = dict(zip([*slots, *arrays], given, strict=True))
            (rows,) = {env[name].shape[0] for name, (_, shape) in slots.items() if shape[:1] == (BATCH,)}
            for stage, call in zip(feeding, calls, strict=True):
                inputs = [
                    _zeros(slot, rows) if name is None else env[name]
                    for name, slot in zip(stage.inputs, stage.slots, strict=True)
                ]
                results = call(*inputs, *(env[name] for name in stage.weights))
                env.update(zip((tensor.id for tensor in stage.outputs), results, strict=True))
            # What no prediction depends on is not given; any value does.
            model = [env.get(t.id) for t in features] + [env.get(name) for name in self._all]
            whole = [
                _zeros((shape.dtype, (BATCH, *shape.shape[1:]) if place < len(features) else shape.shape), rows)
                if value is None
                else value
                for place, (value, shape) in enumerate(zip(model, self._shapes, strict=True))
            ]
            return list(jex.jaxpr_as_fun(self._closed)(*whole))

        batch = self._shapes[0].shape[0]
        shapes = [shaped([batch if d == BATCH else d for d in shape], dtype) for dtype, shape in slots.values()]
        shapes += [shaped(array.shape, array.dtype) for array in arrays.values()]
        exported = export_program(program, shapes, platforms)
        outputs = tuple(
            Tensor(f"model/{name}", str(aval.dtype), (BATCH, *map(int, aval.shape[1:])))
            for name, aval in zip(self.names, self._closed.out_avals, strict=True)
        )
        sources = _sources(feeding)
        places = {name: place for place, name in enumerate(slots)}
        needs = []
        for reach in self._reach:
            tensors = [features[place].id for place in reach if place < len(features)] or read[:1]
            needs.append(tuple(sorted({places[name] for t in tensors for name in sources.get(t, (t,))})))
        stage = DeviceStage("model", tuple(slots), tuple(slots.values()), tuple(arrays), outputs, tuple(needs))
        return stage, exported


def _feeding(graph: Graph, wanted: Sequence[str]) -> list[DeviceStage]:
    """The device stages, pruned, that make any of the wanted tensors directly."""
    stages = [node for node in graph.needed(wanted).nodes if isinstance(node, DeviceStage)]
    direct = [stage for stage in stages if any(tensor.id in wanted for tensor in stage.outputs)]
    # Not one that waits for another: host nodes may stand between the two.
    made = {tensor.id for stage in direct for tensor in stage.outputs}
    return [stage for stage in direct if not made & set(stage.inputs)]


def _sources(stages: Sequence[DeviceStage]) -> dict[str, tuple[str, ...]]:
    """The stages' inputs that each of their outputs depends on."""
    found: dict[str, tuple[str, ...]] = {}
    for stage in stages:
        for tensor, positions in zip(stage.outputs, stage.needs, strict=True):
            found[tensor.id] = tuple(name for name in (stage.inputs[place] for place in positions) if name is not None)
    return found


def _zeros(slot: tuple[Any, tuple[str | int, ...]], rows: Any) -> Any:  # Any: rows may be symbolic
    dtype, shape = slot
    return jax.numpy.zeros(tuple(rows if dim == BATCH else dim for dim in shape), dtype)


def _reach(jaxpr: Any) -> list[set[int]]:
    """For each output, the places of the inputs it depends on, equation by equation."""
    reach: dict[Any, set[int]] = {var: {place} for place, var in enumerate(jaxpr.invars)}
    for equation in jaxpr.eqns:
        read = [reach.get(var, set()) for var in equation.invars if not isinstance(var, jex.Literal)]
        union = set().union(*read)
        reach.update((var, union) for var in equation.outvars)
    return [set() if isinstance(var, jex.Literal) else reach.get(var, set()) for var in jaxpr.outvars]


def _weight_name(path: Any) -> str:
    return "model/" + (jax.tree_util.keystr(path, simple=True, separator="/") or "params")


def _array(path: Any, leaf: Any) -> NDArray[Any]:
    array = np.asarray(leaf) if hasattr(leaf, "dtype") or isinstance(leaf, (int, float)) else None
    if array is not None and array.dtype in (np.float64, np.int64) and not hasattr(leaf, "dtype"):
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    if array is None or (str(array.dtype) not in ARRAY_DTYPES and array.dtype != bool):
        raise InputError(
            f"param {_weight_name(path)} is {type(leaf).__name__}, no array of numbers",
            fix="keep only arrays in params",
        )
    return array
