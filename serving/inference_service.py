"""The Open Inference Protocol's GRPCInferenceService over a server's models, with Triton's repository and streams."""

from __future__ import annotations

import re
from typing import Final

from ..engine.graphs.graph import FieldSpec
from ..redaction import printable
from .api import InferenceRequest, ModelRef, Models, RequestError, StatusCode, VersionState, counting_refusals
from .calls import CallFacts, request_id_of
from .infer_tensors import add_outputs, check_parameters, datatype, request_tensors
from .protos import (
    Message,
    ModelInferResponse,
    ModelMetadataResponse,
    ModelReadyResponse,
    ModelStreamInferResponse,
    RepositoryIndexResponse,
    RepositoryModelLoadResponse,
    RepositoryModelUnloadResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from .tensor_columns import columns_of, dense_outputs, invalid, shown_shape
from .tensorflow_service import infer, wanted_outputs

SIGNATURE_PARAMETER: Final = "signature_name"
"""The parameter of a request that names a signature; the protocol itself has only one for each model."""

_STATES: Final = {
    VersionState.START: "LOADING",
    VersionState.LOADING: "LOADING",
    VersionState.AVAILABLE: "READY",
    VersionState.UNLOADING: "UNLOADING",
    VersionState.END: "UNAVAILABLE",
}
_MOST: Final = 600
"""Characters of an error's text: clients take headers of 8 KiB, and in one a character may be 12 bytes."""
_VERSION: Final = re.compile(r"[0-9]{1,18}")


class OpenInference:
    """Answers for the service. Each method takes a request's message, and raises RequestError.

    Args:
        models: Whom to ask.
        release: The server's own version, as its metadata shows it.
        admin: Whether models may be loaded and unloaded by request.
    """

    def __init__(self, models: Models, release: str, *, admin: bool) -> None:
        self._models = models
        self._release = release
        self._admin = admin

    async def server_live(self, request: Message, facts: CallFacts) -> Message:
        """Whether the server answers at all."""
        return ServerLiveResponse(live=True)

    async def server_ready(self, request: Message, facts: CallFacts) -> Message:
        """Whether every model can be asked."""
        return ServerReadyResponse(ready=self._models.ready)

    async def server_metadata(self, request: Message, facts: CallFacts) -> Message:
        """What the server is."""
        return ServerMetadataResponse(name="drivetrain", version=self._release, extensions=["model_repository"])

    async def model_ready(self, request: Message, facts: CallFacts) -> Message:
        """Whether a model can be asked; one that is not there cannot."""
        try:
            statuses = self._models.statuses(model_ref(request.name, request.version))
        except RequestError as error:
            if error.code not in (StatusCode.NOT_FOUND, StatusCode.UNAVAILABLE):
                raise
            statuses = []
        return ModelReadyResponse(ready=any(status.state == VersionState.AVAILABLE for status in statuses))

    async def model_metadata(self, request: Message, facts: CallFacts) -> Message:
        """The inputs and outputs of a model's default signature."""
        described = self._models.describe(model_ref(request.name, request.version))
        _, signature = described.signature(None)
        facts.version = described.version
        versions = sorted(
            status.version
            for status in self._models.statuses(ModelRef(request.name))
            if status.state == VersionState.AVAILABLE
        )
        response = ModelMetadataResponse(
            name=described.name, versions=[str(version) for version in versions], platform="drivetrain_bundle"
        )
        for name, spec in signature.inputs.items():
            _fill_metadata(response.inputs.add(), name, spec)
        for name, spec in signature.outputs.items():
            _fill_metadata(response.outputs.add(), name, spec)
        return response

    async def model_infer(self, request: Message, facts: CallFacts) -> Message:
        """Tensors in, tensors out: raw where the request's are."""
        ref = self._models.route(model_ref(request.model_name, request.model_version), facts.key)
        facts.model = ref.name
        request_id, parameters = request.id, request.parameters
        if facts.is_drawn and request_id:
            facts.request_id = request_id_of(request_id)
        described = self._models.describe(ref)
        wanted = parameters[SIGNATURE_PARAMETER].string_param if SIGNATURE_PARAMETER in parameters else ""
        with counting_refusals(self._models, ref):
            name, signature = described.signature(wanted or None)
            check_parameters(parameters)
            for part in (*request.inputs, *request.outputs):
                check_parameters(part.parameters)
            columns, rows = columns_of(request_tensors(request), signature)
            outputs = wanted_outputs([output.name for output in request.outputs], signature)
        answer = await infer(self._models, InferenceRequest(ref, name, columns, rows, outputs), facts)
        response = ModelInferResponse(model_name=answer.name, model_version=str(answer.version), id=request_id)
        add_outputs(response, dense_outputs(answer, signature), raw=bool(request.raw_input_contents))
        return response

    async def model_stream_infer(self, request: Message, facts: CallFacts) -> Message:
        """The answer to one request of a stream, which goes on after an error."""
        try:
            answer = await self.model_infer(request, facts)
        except RequestError as error:
            failed = ModelStreamInferResponse(error_message=error_text(error))
            failed.infer_response.id = request.id
            failed.infer_response.model_name = request.model_name
            return failed
        answer.parameters["triton_final_response"].bool_param = True
        return ModelStreamInferResponse(infer_response=answer)

    async def repository_index(self, request: Message, facts: CallFacts) -> Message:
        """Every version of every model."""
        response = RepositoryIndexResponse()
        for name in self._models.names():
            try:
                statuses = self._models.statuses(ModelRef(name))
            except RequestError as error:  # its versions cannot be listed
                if not request.ready:
                    response.models.add(name=name, state="UNAVAILABLE", reason=error.message)
                continue
            for status in statuses:
                state = _STATES[status.state]
                if state == "READY" or not request.ready:
                    response.models.add(name=name, version=str(status.version), state=state, reason=status.message)
        return response

    async def repository_model_load(self, request: Message, facts: CallFacts) -> Message:
        """Load a model that is configured."""
        self._check_admin()
        if request.parameters:
            raise invalid("a model is loaded as it is configured: parameters are not served")
        await self._models.load(request.model_name)
        return RepositoryModelLoadResponse()

    async def repository_model_unload(self, request: Message, facts: CallFacts) -> Message:
        """Unload a model, which stays configured and can be loaded again."""
        self._check_admin()
        await self._models.unload(request.model_name)
        return RepositoryModelUnloadResponse()

    def _check_admin(self) -> None:
        if not self._admin:
            raise RequestError(
                StatusCode.PERMISSION_DENIED,
                "this server loads and unloads nothing by request",
                fix="start it with --admin",
            )


def model_ref(name: str, version: str) -> ModelRef:
    """Whom a request means: a version is a number, or a label.

    Raises:
        RequestError: INVALID_ARGUMENT: it names no model.
    """
    if not name:
        raise invalid("the request names no model")
    if _VERSION.fullmatch(version):
        return ModelRef(name, version=int(version))
    return ModelRef(name, label=version) if version else ModelRef(name)


def error_text(error: RequestError) -> str:
    """What a client is told of an error, on one line."""
    text = error.message if error.fix is None else f"{error.message}; {error.fix}"
    return printable(" ".join(text.split()))[:_MOST]


def _fill_metadata(metadata: Message, name: str, spec: FieldSpec) -> None:
    metadata.name = name
    metadata.datatype = datatype(spec.value_dtype, name)
    metadata.shape.extend(shown_shape(spec))
