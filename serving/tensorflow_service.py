"""TensorFlow Serving's PredictionService and ModelService over a server's models: messages in, messages out."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from ..errors import suggest
from .api import (
    DEFAULT_SIGNATURE,
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    Models,
    RequestError,
    StatusCode,
    counting_refusals,
)
from .calls import CallFacts
from .config import ModelConfig
from .protos import (
    ClassificationResponse,
    ClassificationResult,
    GetModelMetadataResponse,
    GetModelStatusResponse,
    Message,
    MultiInferenceResponse,
    PredictResponse,
    RegressionResponse,
    RegressionResult,
    ReloadConfigResponse,
    SignatureDef,
    SignatureDefMap,
)
from .tensor_columns import Allowance, columns_of, dense, dense_outputs, invalid, shown_shape
from .tensor_proto import data_type, example_columns, to_array, to_tensor_proto
from .tensorflow_config import models_of
from .tfs import classifications, regressions

PREDICT: Final = "tensorflow/serving/predict"
CLASSIFY: Final = "tensorflow/serving/classify"
REGRESS: Final = "tensorflow/serving/regress"

Reload: TypeAlias = Callable[[Sequence[ModelConfig]], Awaitable[None]]
"""What puts a whole new configuration in the place of the old one, and returns when its models can be asked."""


class TensorFlowServing:
    """Answers for both services. Each method takes a request's message, and raises RequestError.

    Args:
        models: Whom to ask.
        reload: What HandleReloadConfigRequest calls; None: it is not implemented.
        max_bytes: The largest request, and as much again for what it only claims (`Allowance`).
    """

    def __init__(self, models: Models, reload: Reload | None, max_bytes: int) -> None:
        self._models = models
        self._reload = reload
        self._max_bytes = max_bytes

    # --- PredictionService ---

    async def predict(self, request: Message, facts: CallFacts) -> Message:
        """Tensors by name in, tensors by name out."""
        ref, described = self._described(request, facts)
        wanted = request.model_spec.signature_name
        with counting_refusals(self._models, ref):
            name, signature = described.signature(wanted or None)
            allowance = Allowance(self._max_bytes)
            tensors = {
                key: to_array(request.inputs[key], key, allowance) for key in signature.inputs if key in request.inputs
            }
            columns, rows = columns_of(tensors, signature)
            outputs = wanted_outputs(request.output_filter, signature)
        answer = await infer(self._models, InferenceRequest(ref, name, columns, rows, outputs), facts)
        response = PredictResponse()
        _fill_spec(response.model_spec, answer, wanted or name)
        for key, values in dense_outputs(answer, signature).items():
            response.outputs[key].CopyFrom(to_tensor_proto(values, key))
        return response

    async def classify(self, request: Message, facts: CallFacts) -> Message:
        """Examples in, labels and their scores out."""
        response = ClassificationResponse()
        answer = await self._of_examples(request, request.input, facts, response.model_spec)
        response.result.CopyFrom(_classification(answer))
        return response

    async def regress(self, request: Message, facts: CallFacts) -> Message:
        """Examples in, one number for each out."""
        response = RegressionResponse()
        answer = await self._of_examples(request, request.input, facts, response.model_spec)
        response.result.CopyFrom(_regression(answer))
        return response

    async def multi_inference(self, request: Message, facts: CallFacts) -> Message:
        """Several signatures of one version of a model for the same examples."""
        if not request.tasks:
            raise invalid("the request has no tasks")
        names = {task.model_spec.name for task in request.tasks}
        if len(names) > 1:
            raise invalid("the tasks ask several models", fix="ask each in a request of its own")
        asked = [(task.model_spec.signature_name, task.method_name) for task in request.tasks]
        if len(set(asked)) < len(asked):
            raise invalid("two tasks ask the same")
        for _, method in asked:
            if method not in (CLASSIFY, REGRESS):
                raise RequestError(
                    StatusCode.UNIMPLEMENTED, f"a task's method is {method!r:.80}", fix=f"{CLASSIFY}, {REGRESS}"
                )
        response = MultiInferenceResponse()
        for task in request.tasks:
            result = response.results.add()
            # The version that answered the task before: the tasks' answers are of one.
            if facts.version is not None and task.model_spec.WhichOneof("version_choice") is None:
                task.model_spec.version.value = facts.version
            answer = await self._of_examples(task, request.input, facts, result.model_spec)
            if task.method_name == CLASSIFY:
                result.classification_result.CopyFrom(_classification(answer))
            else:
                result.regression_result.CopyFrom(_regression(answer))
        return response

    async def get_model_metadata(self, request: Message, facts: CallFacts) -> Message:
        """What a version can be asked: its signatures."""
        described = self._models.describe(_ref(request))
        if not request.metadata_field:
            raise invalid("the request names no metadata_field", fix="name signature_def")
        for name in request.metadata_field:
            if name != "signature_def":
                raise invalid(f"there is no metadata field {name!r:.80}", fix="name signature_def")
        facts.version = described.version
        response = GetModelMetadataResponse()
        response.model_spec.name = described.name
        response.model_spec.version.value = described.version
        described_fields = response.metadata["signature_def"]
        described_fields.type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        described_fields.value = signature_defs(described).SerializeToString()
        return response

    # --- ModelService ---

    async def get_model_status(self, request: Message, facts: CallFacts) -> Message:
        """Where a model's versions are in their lives."""
        response = GetModelStatusResponse()
        for status in self._models.statuses(_ref(request)):
            entry = response.model_version_status.add(version=status.version, state=int(status.state))
            entry.status.error_code = int(status.code)
            entry.status.error_message = status.message
        return response

    async def handle_reload_config_request(self, request: Message, facts: CallFacts) -> Message:
        """Serve these models, and no others."""
        if self._reload is None:
            raise RequestError(StatusCode.UNIMPLEMENTED, "this server's models cannot be changed by a request")
        await self._reload(models_of(request.config))
        response = ReloadConfigResponse()
        response.status.error_code = int(StatusCode.OK)
        return response

    # --- what they share ---

    def _described(self, message: Message, facts: CallFacts) -> tuple[ModelRef, Described]:
        """Whom a request for predictions means, the traffic split looked at."""
        ref = self._models.route(_ref(message), facts.key)
        facts.model = ref.name
        return ref, self._models.describe(ref)

    async def _of_examples(
        self, asked: Message, examples: Message, facts: CallFacts, answered: Message
    ) -> InferenceAnswer:
        """What a signature says to examples; fills the ModelSpec of the answer."""
        ref, described = self._described(asked, facts)
        with counting_refusals(self._models, ref):
            name, signature = described.signature(asked.model_spec.signature_name or None)
            columns, rows = example_columns(examples, signature, Allowance(self._max_bytes))
        answer = await infer(self._models, InferenceRequest(ref, name, columns, rows), facts)
        _fill_spec(answered, answer, asked.model_spec.signature_name or name)
        return answer


async def infer(models: Models, request: InferenceRequest, facts: CallFacts) -> InferenceAnswer:
    """The answer to a request, with what the call says beside its rows; who answered is put down."""
    request.deadline, request.request_id = facts.deadline, facts.request_id
    answer = await models.infer(request)
    facts.version, facts.digest, facts.rows = answer.version, answer.digest, request.rows
    return answer


def _classification(answer: InferenceAnswer) -> Message:
    """Labels and scores, a list of pairs for each row."""
    result = ClassificationResult()
    for pairs in classifications(answer):
        row = result.classifications.add()
        for label, score in pairs:
            row.classes.add(label=label, score=score)
    return result


def _regression(answer: InferenceAnswer) -> Message:
    """A number for each row."""
    result = RegressionResult()
    for value in regressions(answer):
        result.regressions.add(value=value)
    return result


def _ref(message: Message) -> ModelRef:
    """Whom a request means, by its ModelSpec."""
    spec = message.model_spec
    if not spec.name:
        raise invalid("the request names no model: its model_spec has no name")
    match spec.WhichOneof("version_choice"):
        case "version":
            return ModelRef(spec.name, version=spec.version.value)
        case "version_label":
            return ModelRef(spec.name, label=spec.version_label)
    return ModelRef(spec.name)


def _fill_spec(spec: Message, answer: InferenceAnswer, signature: str) -> None:
    spec.name = answer.name
    spec.version.value = answer.version
    spec.signature_name = signature


def wanted_outputs(names: Sequence[str], signature: Signature) -> list[str] | None:
    """The outputs to return, each once; None for all.

    Raises:
        RequestError: INVALID_ARGUMENT: the signature has no such output.
    """
    for name in names:
        if name not in signature.outputs:
            raise invalid(f"there is no output {name!r:.80}", fix=suggest(name, [*signature.outputs]))
    return list(dict.fromkeys(names)) or None


# --- metadata ---


def signature_defs(described: Described) -> Message:
    """A version's signatures as a SignatureDefMap; the default one under TensorFlow's name for it too."""
    signatures = dict(described.signatures)
    if DEFAULT_SIGNATURE not in signatures:
        with contextlib.suppress(RequestError):  # it has none
            signatures[DEFAULT_SIGNATURE] = described.signature(None)[1]
    message = SignatureDefMap()
    for name, signature in signatures.items():
        message.signature_def[name].CopyFrom(_signature_def(signature))
    return message


def _signature_def(signature: Signature) -> Message:
    message = SignatureDef(method_name=PREDICT)
    for fields, specs in ((message.inputs, signature.inputs), (message.outputs, signature.outputs)):
        for name, spec in specs.items():
            _fill_info(fields[name], name, spec)
    for name, default in signature.defaults.items():
        if default is not None:
            row = np.empty(1, object)
            row[0] = default
            values = dense(row, signature.inputs[name], name)
            message.defaults[name].CopyFrom(to_tensor_proto(values.reshape(values.shape[1:]), name))
    return message


def _fill_info(info: Message, name: str, spec: FieldSpec) -> None:
    info.name = name
    info.dtype = data_type(spec.value_dtype)
    for size in shown_shape(spec):
        info.tensor_shape.dim.add(size=size)
