"""ImportModel: a model that was trained elsewhere, as an artifact that a pipeline can judge, apply and push."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, suggest
from ..metadata import Model, TransformGraph
from ..pipelines import Files, component, current, resolve_files
from ..pipelines.project.files import NoFileError

if TYPE_CHECKING:
    from ..engine.graphs.graph import FieldSpec

_MANIFEST: Final = "manifest.json"


_FIX: Final = "name the manifest.json of a bundle (a folder without manifest.json is none), or an ONNX file"


@component(absent=_FIX)
def ImportModel(
    graph: TransformGraph | None = None,
    *,
    path: Files,
    label: str | None = None,
    outputs: Mapping[str, str] | None = None,
) -> Model:
    """Take over a bundle as it is, or join an ONNX model to a preprocessing function, as Trainer would.

    The inputs of an ONNX model are the outputs of the preprocessing, by name: `Transform` with a function that returns
    them and the label. Models of scikit-learn, XGBoost and LightGBM become ONNX files by skl2onnx and onnxmltools.

    Args:
        graph: The preprocessing of an ONNX model.
        path: The `manifest.json` of a bundle, whose other files lie beside it, or one ONNX file.
        label: The output of the preprocessing that is the label, for an ONNX model.
        outputs: What the predictions of an ONNX model are called → which of its outputs each is, or which position of
            one: {"probability": "probabilities[1]"}. All, under their own names, where None.

    Returns:
        Model: A bundle. Of an ONNX model it has the signatures `predict`, its outputs by name, and `evaluate`, which
        gives the label too. An output of one number for each row, [rows, 1], is [rows].

    Raises:
        InputError: Not one such file; a graph, label or outputs where a bundle is named, or no graph and label where an
            ONNX file is; an ONNX file with operators that `hub.from_onnx` does not know, inputs that the preprocessing
            does not give, or without such outputs.
        BundleError: A file of the bundle is missing or was changed.
    """
    try:
        files = resolve_files(path).files
    except NoFileError as error:
        raise InputError(error.message, fix=error.likely_fix or _FIX) from None
    if len(files) != 1:
        raise InputError(f"a model is one file, {path} means {len(files)}", fix="name manifest.json, or an ONNX file")
    file, name = files[0].path, files[0].name or files[0].path.name
    model = Model.new()
    if name == _MANIFEST:
        if graph is not None or label is not None or outputs is not None:
            raise InputError(
                "a bundle has its preprocessing, label and outputs", fix="leave out graph, label= and outputs="
            )
        _copy(file.parent, model.content)
    elif name.endswith(".onnx"):
        if graph is None or label is None:
            raise InputError(
                f"{name} has neither preprocessing nor a label",
                fix='ImportModel(transform.graph, path="model.onnx", label="late")',
            )
        _join(file, name, graph.content, label, outputs, model.content)
    else:
        raise InputError(f"{name} is neither {_MANIFEST} nor an ONNX file", fix="export the model to ONNX: model.onnx")
    return model


def _copy(bundle: Path, content: Path) -> None:
    """Copy the files that a bundle's manifest lists, each of which matches its digest; see that it can be loaded."""
    from ..engine import Bundle
    from ..engine.bundles.manifest import verified_folder

    _, paths = verified_folder(bundle)
    for name, source in paths.items():
        target = content / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    current().note(f"the bundle's signatures are {', '.join(Bundle.load(content).signatures)}")


def _join(file: Path, name: str, graph: Path, label: str, outputs: Mapping[str, str] | None, content: Path) -> None:
    """Save an ONNX model behind a preprocessing graph as a bundle."""
    from .. import engine
    from ..engine.hub import from_onnx

    onnx_model = from_onnx(file)
    there = engine.Bundle.load(graph).signatures["transform"].outputs
    for wanted in onnx_model.inputs:
        if wanted not in there or wanted == label:
            raise InputError(
                f"{name} has the input {wanted!r}, which the preprocessing does not give",
                fix=suggest(wanted, [each for each in there if each != label], "it gives"),
            )
        if there[wanted].dtype == "string" or there[wanted].dtype.startswith("list"):
            raise InputError(
                f"{name} has the input {wanted!r}, which the preprocessing gives as {there[wanted].dtype}",
                fix="give a number, or an array of numbers, for each row",
            )

    def apply(params: Any, features: Mapping[str, Any]) -> Any:  # Any: arrays
        return onnx_model.apply(params, {key: _fitted(features[key], spec) for key, spec in onnx_model.inputs.items()})

    wanted_outputs = _outputs(name, onnx_model.outputs, outputs)

    def predict(results: Any) -> dict[str, Any]:
        named = results if isinstance(results, Mapping) else {onnx_model.outputs[0]: results}
        return {key: _part(named[output], output, position) for key, (output, position) in wanted_outputs.items()}

    engine.export_model(graph, apply, onnx_model.params, predict, label=label, out=content)


def _outputs(name: str, there: Sequence[str], wanted: Mapping[str, str] | None) -> dict[str, tuple[str, int | None]]:
    """What each prediction is: an output of the model, and a position in it or None."""
    parsed: dict[str, tuple[str, int | None]] = {}
    for key, text in ({each: each for each in there} if wanted is None else wanted).items():
        output, position = text, None
        if text not in there and (match := re.fullmatch(r"(.+)\[(\d+)\]", text)):
            output, position = match[1], int(match[2])
        if output not in there:
            raise InputError(f"{name} has no output {output!r}", fix=suggest(output, there))
        parsed[key] = output, position
    return parsed


def _part(values: Any, output: str, position: int | None) -> Any:  # Any: arrays
    """The output as one value or vector for each row, or the values at a position of it."""
    if position is None:
        return values[:, 0] if values.shape[1:] == (1,) else values
    if values.ndim != 2 or position >= values.shape[1]:
        shape = ", ".join(map(str, values.shape[1:]))
        raise InputError(f"the output {output!r} is [rows, {shape}] and has no position {position}", fix="count from 0")
    return values[:, position]


def _fitted(feature: Any, spec: FieldSpec) -> Any:  # Any: arrays
    """A feature as the model takes it: [rows, 1] of one number for each row, and of its type."""
    import jax

    column = feature[:, None] if feature.ndim == 1 and spec.shape in ((1,), (0,)) else feature
    return column.astype(jax.dtypes.canonicalize_dtype(spec.dtype))
