"""Why a row is predicted so: what each input adds to its prediction, beside a baseline row.

    POST /v1/models/delays:explain
    {"instances": [{"delay": 45.0, "carrier": "EV"}]}

Numbers have integrated gradients, whose sum is the difference to the baseline's prediction; any other input is replaced
alone. Explanations are computed one at a time, in a thread that rests as long as it has worked.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ..engine.attribution import Floats, checked_scores, integrated_gradients, replaced
from ..engine.bundles.manifest import Signature
from ..engine.bundles.runner import SMALL
from ..engine.graphs.graph import FieldSpec
from ..engine.lowering.programs import BundleError
from ..errors import InputError, suggest
from .api import ColumnValues, Described, RequestError, StatusCode
from .batching import Predict, Rest
from .json_values import kind, object_of
from .tensor_columns import invalid, numpy_dtype
from .tfs import columns_of_rows, signature_name
from .usual import Baseline, baseline_of, typed_columns
from .version import LoadedVersion

Json: TypeAlias = dict[str, Any]  # Any: JSON

STEPS: Final = 32
"""Parts of the line that gradients are integrated along, where the request does not say."""
MOST_STEPS: Final = 128
MOST_ROWS: Final = SMALL
"""Rows of a baseline."""
MOST_SECONDS: Final = 10.0
"""How long an explanation may take, with the time that it waits for others."""
_MOST_WAITING: Final = 4  # explanations that wait or are computed

_NO_GRADIENTS: Final = (
    "This row has no input to integrate gradients along, a float that is not missing: each input was replaced alone."
)


@dataclass(frozen=True, slots=True)
class ExplanationRequest:
    """A row whose prediction is to be explained.

    Attributes:
        signature: What predicts it, by name.
        row: Input → a list of its value.
        baseline: Input → its values in the rows that say what is usual; None: none were sent.
        output: Which output.
        steps: Parts of the line that gradients are integrated along.
    """

    signature: str
    row: Mapping[str, ColumnValues]
    baseline: Mapping[str, ColumnValues] | None
    output: str
    steps: int


def decode_explanation(body: bytes, described: Described) -> ExplanationRequest:
    """The row of a body, and how it is to be explained.

    Raises:
        RequestError: INVALID_ARGUMENT: it is no such body; the part that is wrong is named.
    """
    request = object_of(body)
    name, signature = described.signature(signature_name(request))
    if "instances" not in request:
        raise invalid("the body has no 'instances'", 'send {"instances": [{…}]}')
    row, rows = columns_of_rows(request["instances"], signature, "instances")
    if rows > 1:
        raise invalid(f"'instances' has {rows} rows", "send one: a row is explained by itself")
    baseline = None
    if "baseline" in request:
        baseline, rows = columns_of_rows(request["baseline"], signature, "baseline")
        if rows > MOST_ROWS:
            raise invalid(f"'baseline' has {rows} rows", f"send {MOST_ROWS} at most")
        for column in signature.inputs:
            if column not in baseline and column not in signature.defaults:
                raise invalid(f"'baseline' lacks {column!r}", "send it in each row, null if missing")
    outputs = explained_outputs(signature)
    if not outputs:
        raise invalid(f"{name!r} has no output of numbers", "ask another signature: only numbers are explained")
    output = request.get("output", outputs[0])
    if not isinstance(output, str):
        raise invalid(f"'output' is {kind(output)}", f"name one of {', '.join(outputs):.200}")
    if output not in outputs:
        raise invalid(f"{name!r} has no output {output!r:.80} of numbers", suggest(output, outputs))
    steps = request.get("steps", STEPS)
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise invalid(f"'steps' is {steps!r:.40}", f"send a whole number from 1 to {MOST_STEPS}")
    return ExplanationRequest(name, row, baseline, output, steps)


def explained_outputs(signature: Signature) -> list[str]:
    """The outputs that can be explained: a number for each row, or one for each class."""
    return [name for name, spec in signature.outputs.items() if _is_number(spec) and len(spec.shape) <= 1]


def _is_number(spec: FieldSpec) -> bool:
    return spec.value_dtype != "string" and not spec.ragged and numpy_dtype(spec.value_dtype).kind in "biufV"


class RowExplainer:
    """Explains rows, one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "drivetrain-explain")
        self._rest = Rest()
        self._room = threading.BoundedSemaphore(_MOST_WAITING)

    async def explain(self, request: ExplanationRequest, loaded: LoadedVersion, seconds: float | None) -> Json:
        """The explanation of a row.

        Args:
            request: The row.
            loaded: The version that predicts it.
            seconds: How long it may take; None: as long as any.

        Raises:
            RequestError: RESOURCE_EXHAUSTED: others wait. DEADLINE_EXCEEDED. INVALID_ARGUMENT: the row, or the
                baseline, cannot be predicted.
        """
        if not self._room.acquire(blocking=False):
            raise RequestError(StatusCode.RESOURCE_EXHAUSTED, "other explanations wait already", fix="try again")
        seconds = min(MOST_SECONDS, math.inf if seconds is None else seconds)
        work = self._thread.submit(self._explained, request, loaded, time.monotonic() + seconds)
        work.add_done_callback(lambda _: self._room.release())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), seconds)
        except TimeoutError as error:
            raise _late() from error

    def close(self) -> None:
        """Begin no further explanation."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _explained(self, request: ExplanationRequest, loaded: LoadedVersion, deadline: float) -> Json:
        predict = self._rest(loaded.predictors[request.signature])

        def in_time(columns: Mapping[str, ColumnValues], rows: int) -> Mapping[str, Any]:
            if time.monotonic() > deadline:
                raise _late()
            return predict(columns, rows)

        in_time(request.row, 1)  # a row that cannot be used is refused in the words of any other
        signature = loaded.described.signatures[request.signature]
        if request.baseline is not None:
            baseline = baseline_of(typed_columns(request.baseline, signature), signature, "request")
        else:
            baseline = loaded.described.usual.get(request.signature) or baseline_of({}, signature, "warm-up file")
        return explained(request, signature, in_time, baseline)


def explained(request: ExplanationRequest, signature: Signature, predict: Predict, baseline: Baseline) -> Json:
    """The explanation of a row that the model predicts.

    Args:
        request: The row.
        signature: What the model reads and answers.
        predict: The model.
        baseline: What the row is compared with.

    Raises:
        RequestError: INVALID_ARGUMENT: a prediction on the way is not finite.
        InputError: The model refuses the baseline.
    """

    def scorer(rows: pa.Table) -> Floats:
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        values = np.asarray(predict(columns, rows.num_rows)[request.output])
        if values.dtype.kind == "V":  # bfloat16
            values = values.astype(np.float32)
        try:
            return checked_scores(values, rows.num_rows)
        except InputError as error:
            message = f"{request.output!r} cannot be explained: {error.message}"
            raise invalid(message, "send another row or baseline") from error

    sent = {name: request.row.get(name, [signature.defaults.get(name)]) for name in signature.inputs}
    row = pa.table(typed_columns(sent, signature))
    values = {name: row[name][0].as_py() for name in row.column_names}
    prediction = scorer(row)
    numbers = [name for name, spec in signature.inputs.items() if spec.dtype == "float64" and _is_finite(values[name])]
    attributions: dict[str, Floats] = {}
    gap = there = None
    if numbers:
        spread = {name: baseline.spread[name] or abs(values[name] - baseline.values[name]) for name in numbers}
        with np.errstate(over="ignore", invalid="ignore"):
            shares, off = integrated_gradients(
                row, scorer, numbers, baseline.values, spread, steps=request.steps, batch=SMALL
            )
        if not np.isfinite(off).all():
            raise invalid("the row is too far from the baseline for gradients", "send another row or baseline")
        attributions = dict(zip(numbers, shares[0], strict=True))
        gap, there = off[0], prediction[0] - shares[0].sum(axis=0) - off[0]
    inputs = []
    for name, value in values.items():
        problem = ""
        if name not in attributions:
            try:
                attributions[name] = np.atleast_1d((prediction - scorer(replaced(row, name, baseline.values[name])))[0])
            except BundleError:
                raise
            except (InputError, RequestError) as error:
                if isinstance(error, RequestError) and error.code is StatusCode.DEADLINE_EXCEEDED:
                    raise
                problem = error.message
        each = attributions.get(name)
        inputs.append(
            {
                "name": name,
                "value": value,
                "baseline": baseline.values[name],
                "by": "gradients" if name in numbers else "replacement",
                "attribution": None if each is None else _of_classes(each, prediction),
                "problem": problem,
            }
        )
    return {
        "output": request.output,
        "prediction": _of_classes(np.atleast_1d(prediction[0]), prediction),
        "baseline_prediction": None if there is None else _of_classes(there, prediction),
        "gap": None if gap is None else _of_classes(gap, prediction),
        "baseline": {"source": baseline.source, "rows": baseline.rows},
        "inputs": inputs,
        "note": "" if numbers else _NO_GRADIENTS,
    }


def _of_classes(numbers: Floats, prediction: Floats) -> float | list[float]:
    """Numbers by class; of a prediction without classes, the number."""
    return float(numbers[0]) if prediction.ndim == 1 else [float(number) for number in numbers]


def _is_finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _late() -> RequestError:
    message = "the deadline passed before the row was explained"
    return RequestError(StatusCode.DEADLINE_EXCEEDED, message, fix="ask for fewer steps")
