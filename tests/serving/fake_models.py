"""Models in numpy for the tests of the server's protocols."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.serving.api import (
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    RequestError,
    StatusCode,
    VersionState,
    VersionStatus,
)

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

PREDICT = Signature(
    {"words": FieldSpec("string"), "amount": FieldSpec("float64"), "vector": FieldSpec("float32", (3,))},
    {"total": FieldSpec("float64"), "shout": FieldSpec("string"), "double": FieldSpec("float32", (3,))},
)
CLASSIFY = Signature(
    {"words": FieldSpec("string"), "amount": FieldSpec("float64"), "tags": FieldSpec("list<string>")},
    {"scores": FieldSpec("float32", (3,)), "classes": FieldSpec("string", (3,))},
    {"tags": None},
)
REGRESS = Signature({"amount": FieldSpec("float64")}, {"value": FieldSpec("float32")})
ECHO = Signature(
    {
        **{name: FieldSpec(name, (2,)) for name in DTYPES},
        "text": FieldSpec("string"),
        "lists": FieldSpec("list<int64>"),
        "count": FieldSpec("int64"),
        "flag": FieldSpec("bool"),
    },
    {"answered": FieldSpec("int64")},
    dict.fromkeys((*DTYPES, "text", "lists", "count", "flag")),
)
ECHO.outputs.update(ECHO.inputs)  # type: ignore[attr-defined] # a dict

Columns = Mapping[str, Any]


def _predict(columns: Columns, rows: int) -> dict[str, Any]:
    words = np.array([None if word is None else word.upper() for word in columns["words"]], object)
    return {
        "total": np.asarray(columns["amount"], np.float64) + columns["vector"].sum(axis=1),
        "shout": words,
        "double": columns["vector"] * 2,
    }


def _classify(columns: Columns, rows: int) -> dict[str, Any]:
    amounts = np.array([np.nan if each is None else each for each in columns["amount"]], np.float32)
    tags = columns.get("tags", [None] * rows)
    marks = [word.encode() if word else b"" for word in columns["words"]]
    lengths = np.array([[len(mark), len(tag or ())] for mark, tag in zip(marks, tags, strict=True)], np.float32)
    classes = np.array([["amount", "words", "tags"]] * rows, object)
    return {"scores": np.column_stack([amounts, lengths.reshape(rows, 2)]), "classes": classes}


def _regress(columns: Columns, rows: int) -> dict[str, Any]:
    return {"value": (np.array(columns["amount"], np.float64) * 2).astype(np.float32)}


def _echo(columns: Columns, rows: int) -> dict[str, Any]:
    outputs: dict[str, Any] = {"answered": np.arange(rows)}
    for name, values in columns.items():
        array = values if isinstance(values, np.ndarray) else np.empty(rows, object)
        if array is not values:
            array[:] = values
        outputs[name] = array
    return outputs


MODELS: Mapping[str, Mapping[str, tuple[Signature, Callable[[Columns, int], dict[str, Any]]]]] = {
    "iris": {"predict": (PREDICT, _predict), "classify": (CLASSIFY, _classify), "regress": (REGRESS, _regress)},
    "echo": {"echo": (ECHO, _echo)},
    "broken": {"regress": (REGRESS, _regress)},
    "slow": {"regress": (REGRESS, _regress)},
    "busy": {"regress": (REGRESS, _regress)},
}
VERSIONS = {"iris": (2, 1)}
LABELS = {"stable": 1}


class FakeModels:
    """Models, of which `iris` has two versions; `broken`, `slow` and `busy` do not answer.

    Attributes:
        asked: Every request, the last one last.
        loads: What was loaded and unloaded, in order.
        refusals: What was refused before it was asked: the model, and the code.
    """

    def __init__(self) -> None:
        self.asked: list[InferenceRequest] = []
        self.loads: list[tuple[str, str]] = []
        self.ready = True
        self.refusals: list[tuple[str, StatusCode]] = []

    def names(self) -> list[str]:
        return [*MODELS]

    def statuses(self, ref: ModelRef) -> list[VersionStatus]:
        if ref.name not in MODELS:
            raise RequestError(StatusCode.NOT_FOUND, f"there is no model {ref.name!r:.80}")
        versions = VERSIONS.get(ref.name, (1,))
        wanted = LABELS.get(ref.label, -1) if ref.label is not None else ref.version
        if wanted is not None and wanted not in versions:
            raise RequestError(StatusCode.NOT_FOUND, f"model {ref.name!r} has no version {wanted}")
        statuses = [
            VersionStatus(each, VersionState.AVAILABLE, labels=("stable",) if each == 1 else ()) for each in versions
        ]
        if ref.name == "iris":
            statuses.insert(0, VersionStatus(3, VersionState.END, StatusCode.DATA_LOSS, "a file is damaged"))
        return [each for each in statuses if wanted in (None, each.version)]

    def route(self, ref: ModelRef, key: str | None) -> ModelRef:
        return ModelRef(ref.name, 1) if key == "old" and ref == ModelRef("iris") else ref

    def describe(self, ref: ModelRef) -> Described:
        version = next(each.version for each in self.statuses(ref) if each.state == VersionState.AVAILABLE)
        return Described(ref.name, version, {name: signature for name, (signature, _) in MODELS[ref.name].items()})

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        self.asked.append(request)
        described = self.describe(request.model)
        await self._misbehave(request)
        name, _ = described.signature(request.signature)
        outputs = MODELS[described.name][name][1](request.columns, request.rows)
        wanted = request.outputs or [*outputs]
        return InferenceAnswer(described.name, described.version, {each: outputs[each] for each in wanted})

    def refuse(self, ref: ModelRef, code: StatusCode) -> None:
        self.refusals.append((ref.name, code))

    async def _misbehave(self, request: InferenceRequest) -> None:
        match request.model.name:
            case "broken":
                raise ValueError("a secret of the model's")
            case "busy":
                raise RequestError(StatusCode.RESOURCE_EXHAUSTED, "too much waits", fix="ask later")
            case "slow":
                deadline = request.deadline or time.monotonic()
                await asyncio.sleep(max(0, deadline - time.monotonic() - 0.2))
                raise RequestError(StatusCode.DEADLINE_EXCEEDED, "the client's time is over")

    async def load(self, name: str) -> None:
        self.statuses(ModelRef(name))
        self.loads.append(("load", name))

    async def unload(self, name: str) -> None:
        self.statuses(ModelRef(name))
        self.loads.append(("unload", name))
