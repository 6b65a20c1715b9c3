"""What a client of a model does, step by step, without doing it: who runs the steps sends, waits, and may be async.

A step is a request, whose answer comes back into the generator (or the error that it caused), or seconds to wait.
"""

from __future__ import annotations

import json
import os
import random
import re
import ssl
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from http.client import HTTPException
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import quote, urlsplit

from ..errors import DrivetrainError, InputError
from .client_answers import (
    AnswerError,
    binary_outputs,
    grpc_metadata,
    grpc_outputs,
    grpc_version_states,
    json_object,
    json_outputs,
    signatures,
    traffic_state,
    version_number,
    version_states,
)
from .client_columns import ServedSignature, check, column_tensor, json_ready, plain, said
from .times import in_milliseconds

Transport: TypeAlias = Literal["json", "binary", "grpc"]
"""How rows travel: TensorFlow Serving's JSON; the Open Inference Protocol's binary tensors, over HTTP or gRPC."""

MOST_BYTES: Final = 256 << 20
"""Of an answer: more is given up."""
_FIRST_WAIT: Final = 0.1  # seconds; each time twice as many
_LONGEST_WAIT: Final = 5.0
_OK: Final = 200
_UNAVAILABLE: Final = 503
_INVALID: Final = 400
_LONGEST_REASON: Final = 2000  # characters
_UNAUTHENTICATED: Final = 401
_HEADER_LENGTH: Final = "inference-header-content-length"
_PREDICTION: Final = "tensorflow.serving.PredictionService"
_INFERENCE: Final = "inference.GRPCInferenceService"


class ServerError(DrivetrainError):
    """A server did not answer a request as asked.

    Attributes:
        status: The HTTP status, over gRPC that of its code; 0 where there was no answer.
    """

    def __init__(self, message: str, *, status: int = 0, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.status = status


def too_long() -> ServerError:
    """Of an answer that does not end."""
    return ServerError(f"the server answers with more than {MOST_BYTES >> 20} MiB", fix="ask for fewer rows at a time")


@dataclass(frozen=True)
class Prediction:
    """What a server predicted for some rows.

    Attributes:
        outputs: Output name → one value a row: a list by JSON, an array by the other transports.
        version: The version that answered.
        digest: The digest of its bundle.
        request_id: What the request is called in the server's logs.
    """

    outputs: Mapping[str, Any]  # Any: a list, or an array
    version: int
    digest: str
    request_id: str

    @property
    def rows(self) -> tuple[Any, ...]:  # Any: JSON
        """For each row, output name → value; of a model with one output its value alone."""
        lists = [values.tolist() if hasattr(values, "tolist") else values for values in self.outputs.values()]
        if len(lists) == 1:
            return tuple(lists[0])
        return tuple(dict(zip(self.outputs, row, strict=True)) for row in zip(*lists, strict=True))


@dataclass(frozen=True)
class ModelAddress:
    """Which model of which server, and who asks.

    Attributes:
        url: The server, "http://host:port"; gRPC's too.
        model: What the server calls the model.
        version: Its number; None: the newest, or what the server's split decides.
        label: Or a name for one.
        headers: Of each request.
    """

    url: str
    model: str
    version: int | None
    label: str | None
    headers: Mapping[str, str]

    @classmethod
    def of(
        cls, url: str, model: str, version: int | None, label: str | None, key: str | None, api_key: str | None
    ) -> ModelAddress:
        """From what users write; without an API key what DRIVETRAIN_API_KEY holds, if it does.

        Raises:
            InputError: The URL is not a server's, two versions are named, or the key is not valid.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r:.200} is not a server", fix="give http://host:port")
        if version is not None and label is not None:
            raise InputError("a version and a label are both named", fix="name one of them")
        headers = {} if key is None else {"x-drivetrain-key": key}
        api_key = os.environ.get("DRIVETRAIN_API_KEY") if api_key is None else api_key
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
                raise InputError("the API key has characters that no key has", fix="is there a space or a line end?")
            headers["authorization"] = f"Bearer {api_key}"
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        if path := re.search(r"/v[12]/models(/.*)?$", shown):
            raise InputError(
                f"{shown:.200} is not the server alone", fix=f"give {shown[: path.start()]}, and the model by its name"
            )
        return cls(shown, model, version, label, headers)

    @property
    def which(self) -> str:
        """The version's or label's part of TensorFlow Serving's paths."""
        if self.version is not None:
            return f"/versions/{self.version}"
        return f"/labels/{quote(self.label, safe='')}" if self.label else ""


@dataclass(frozen=True)
class ClientCall:
    """A request.

    Attributes:
        target: The path over HTTP, from the server's root on; the method's full name over gRPC.
        body: Its bytes; None: it is a GET.
        headers: Besides those of the address.
    """

    target: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ClientAnswer:
    """An answer.

    Attributes:
        status: The HTTP status, or that of gRPC's code.
        headers: By name in small letters.
        body: Its bytes; over gRPC of what is no answer the details, in JSON as over HTTP.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


T = TypeVar("T")
Steps: TypeAlias = Generator[ClientCall | float, ClientAnswer, T]
Columns: TypeAlias = Mapping[str, Any]
"""Column name → one value a row: a list, or an array."""


class ModelSteps:
    """The steps of a client of one model.

    Args:
        address: Which model.
        transport: How rows travel.
        retries: How often a request is tried again where the server refuses the connection, or answers 503.

    Raises:
        InputError: There is no such transport, or the retries are fewer than none.
    """

    def __init__(self, address: ModelAddress, transport: Transport, retries: int) -> None:
        if transport not in get_args(Transport):
            raise InputError(
                f"{transport!r:.80} is not a transport", fix=f"use one of {', '.join(get_args(Transport))}"
            )
        if retries < 0:
            raise InputError(f"retries is {retries}", fix="write 0 or more")
        self._address = address
        self._transport = transport
        self._retries = retries
        self._signatures: dict[str, ServedSignature] = {}

    # --- what is asked ---

    def predict(self, rows: Sequence[Mapping[str, Any]] | Columns, signature: str | None) -> Steps[Prediction]:
        """The predictions for rows, or for columns.

        Raises:
            InputError: A column is not what the model reads, by its metadata; nothing was sent.
            ServerError: The server refuses the rows, has no such model, or does not answer, or not what was asked.
        """
        columns = _columns(rows) if isinstance(rows, Mapping) else None
        plain_rows = [] if isinstance(rows, Mapping) else _plain_rows(rows)
        fresh = not self._signatures
        while True:
            served = yield from self._signature(signature)
            try:
                call = self._predict_call(plain_rows, columns, signature, served)
                answer = yield from self._ask(call)
                if columns is None:
                    return self._prediction(answer, len(rows), served, by_column=False)
                read = next((values for name, values in columns.items() if name in served.inputs), ())
                return self._prediction(answer, len(read), served, by_column=True)
            except (InputError, ServerError) as error:
                # The model may be another one by now.
                if fresh or (isinstance(error, ServerError) and error.status not in (_OK, _INVALID)):
                    raise
                self._signatures, fresh = {}, True
                if (yield from self._signature(signature)) == served:
                    raise

    def metadata(self) -> Steps[dict[str, Any]]:  # Any: JSON
        """The model's signatures, as TensorFlow Serving describes them."""
        if self._transport != "grpc":
            answer = yield from self._ask(ClientCall(f"{self._path}/metadata"))
            with self._reading():
                return json_object(answer.body)
        from . import protos

        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._specify(request.model_spec)
        answer = yield from self._ask(ClientCall(f"/{_PREDICTION}/GetModelMetadata", request.SerializeToString()))
        with self._reading():
            return grpc_metadata(answer.body)

    def status(self) -> Steps[list[dict[str, Any]]]:  # Any: JSON
        """The model's versions: `version`, `state`, and the `status` of loading it."""
        if self._transport != "grpc":
            answer = yield from self._ask(ClientCall(self._path))
            with self._reading():
                return version_states(json_object(answer.body))
        from . import protos

        request = protos.GetModelStatusRequest()
        self._specify(request.model_spec)
        call = ClientCall("/tensorflow.serving.ModelService/GetModelStatus", request.SerializeToString())
        answer = yield from self._ask(call)
        with self._reading():
            return grpc_version_states(answer.body)

    def load(self) -> Steps[None]:
        """Have the server look for the model's versions now, and load them.

        Raises:
            InputError: Over gRPC.
            ServerError: It does not let this caller, or none of the model's versions can be used (503).
        """
        yield from self._ask(ClientCall(f"/v2/repository/models/{self._over_http}/load", b"{}"), retries=0)

    def digest(self, version: int) -> Steps[str]:
        """The digest of the bundle that the server has as a version; "" from a release that does not say.

        Raises:
            InputError: Over gRPC.
        """
        answer = yield from self._ask(ClientCall(f"/v2/models/{self._over_http}/versions/{version}"), retries=0)
        return answer.headers.get("x-drivetrain-digest", "")

    def traffic(self) -> Steps[dict[str, Any]]:  # Any: JSON
        """Which version gets which share of the requests, and how far a rollout is.

        Raises:
            InputError: Over gRPC.
        """
        answer = yield from self._ask(ClientCall(f"/v1/models/{self._over_http}/traffic"), retries=0)
        with self._reading():
            return traffic_state(json_object(answer.body))

    @property
    def has_signatures(self) -> bool:
        """Whether the model's signatures were read already."""
        return bool(self._signatures)

    def read_signatures(self) -> Steps[None]:
        """Read them, so that many predictions that begin together need not."""
        yield from self._signature(None)

    # --- how ---

    @property
    def _path(self) -> str:
        return f"/v1/models/{quote(self._address.model, safe='')}{self._address.which}"

    @property
    def _over_http(self) -> str:
        """The model's name in a path."""
        if self._transport == "grpc":
            raise InputError("gRPC has no word for this", fix="use another transport, at the server's HTTP port")
        return quote(self._address.model, safe="")

    def _specify(self, spec: Any) -> None:  # Any: a ModelSpec
        spec.name = self._address.model
        if self._address.version is not None:
            spec.version.value = self._address.version
        elif self._address.label:
            spec.version_label = self._address.label

    def _signature(self, name: str | None) -> Steps[ServedSignature]:
        """A signature of the model, which is asked for once."""
        if not self._signatures:
            metadata = yield from self.metadata()
            with self._reading():
                self._signatures = signatures(metadata)
        # One that is not there is for the server to refuse: it names those that are.
        return self._signatures.get(name or "serving_default", ServedSignature())

    def _predict_call(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Columns | None,
        signature: str | None,
        served: ServedSignature,
    ) -> ClientCall:
        rows, columns = _with_numbers_for_times(rows, columns, served)
        for name, of in served.inputs.items():
            if columns is None:
                having = [at for at, row in enumerate(rows) if name in row]
                check([rows[at][name] for at in having], of, having)
            elif name in columns:
                check(plain(columns[name]), of)
        if self._transport == "json":
            return self._json_call(rows, columns, signature)
        sent = columns if columns is not None else _columns_of(rows, served)
        tensors = [column_tensor(values, served.inputs[name]) for name, values in sent.items() if name in served.inputs]
        parameters = {} if signature is None else {"signature_name": signature}
        if self._transport == "grpc":
            return self._grpc_call(tensors, parameters)
        head = json.dumps(
            {
                "inputs": [
                    {"name": each.name, "datatype": each.datatype, "shape": each.shape}
                    | (
                        {"data": each.data}
                        if each.content is None
                        else {"parameters": {"binary_data_size": len(each.content)}}
                    )
                    for each in tensors
                ],
                "parameters": {"binary_data_output": True, **parameters},
            }
        ).encode()
        address = self._address
        version = address.label if address.version is None else str(address.version)
        which = f"/versions/{quote(version, safe='')}" if version else ""
        return ClientCall(
            f"/v2/models/{quote(address.model, safe='')}{which}/infer",
            head + b"".join(each.content or b"" for each in tensors),
            (("content-type", "application/octet-stream"), (_HEADER_LENGTH, str(len(head)))),
        )

    def _json_call(
        self, rows: Sequence[Mapping[str, Any]], columns: Columns | None, signature: str | None
    ) -> ClientCall:
        content = (
            request_body(rows, signature)
            if columns is None
            else _json_bytes(
                {"inputs": {name: json_ready(plain(values)) for name, values in columns.items()}}, signature
            )
        )
        return ClientCall(f"{self._path}:predict", content, (("content-type", "application/json"),))

    def _grpc_call(self, tensors: Sequence[Any], parameters: Mapping[str, str]) -> ClientCall:
        from . import protos

        address = self._address
        version = address.label or "" if address.version is None else str(address.version)
        request = protos.ModelInferRequest(model_name=address.model, model_version=version)
        for name, value in parameters.items():
            request.parameters[name].string_param = value
        for tensor in tensors:
            if tensor.content is None:
                raise InputError(
                    f"column {tensor.name!r:.80} is string and has a missing value, which gRPC's tensors cannot say",
                    fix='use transport="binary" or "json"',
                )
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            request.raw_input_contents.append(tensor.content)
        return ClientCall(f"/{_INFERENCE}/ModelInfer", request.SerializeToString())

    def _prediction(self, answer: ClientAnswer, rows: int, served: ServedSignature, *, by_column: bool) -> Prediction:
        headers = answer.headers
        with self._reading():
            if self._transport == "grpc":
                outputs = grpc_outputs(answer.body, rows)
            elif self._transport == "binary":
                outputs = binary_outputs(answer.body, headers.get(_HEADER_LENGTH), rows)
            else:
                outputs = json_outputs(json_object(answer.body), rows, served, by_column=by_column)
            return Prediction(
                outputs,
                version_number(headers),
                headers.get("x-drivetrain-digest", ""),
                headers.get("x-request-id", ""),
            )

    def _whether_it_runs(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return "say who signed its certificate: tls=, or --tls-ca of the command line"
        if isinstance(error, ssl.SSLError):
            return "does it speak TLS? Without --tls-cert its address begins with http://"
        return "is `drivetrain serve` running there" + (
            ", and is this its --grpc-port?" if self._transport == "grpc" else "?"
        )

    def _ask(self, call: ClientCall, retries: int | None = None) -> Steps[ClientAnswer]:
        """An answer of status 200, after as many tries as it takes, or may."""
        wait = _FIRST_WAIT
        retries = self._retries if retries is None else retries
        for attempt in range(retries + 1):
            is_last = attempt == retries
            try:
                answer = yield call
            except (OSError, HTTPException, EOFError) as error:
                # Predicting twice does no harm, but what took too long once would again.
                if is_last or isinstance(error, TimeoutError | ssl.SSLError):
                    raise ServerError(
                        f"{self._address.url} does not answer: {str(error) or type(error).__name__}",
                        fix=self._whether_it_runs(error),
                    ) from error
                asked = 0.0
            else:
                if answer.status != _UNAVAILABLE or is_last:
                    break
                asked = _retry_after(answer)
            yield min(_LONGEST_WAIT, max(asked, wait * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            wait *= 2
        if answer.status == _OK:
            return answer
        reason: Any = None
        with suppress(ValueError, RecursionError):
            reason = json.loads(answer.body)
        reason = reason.get("error") if isinstance(reason, dict) else None
        shown = reason[:_LONGEST_REASON] if reason and isinstance(reason, str) else answer.body[:200]
        raise ServerError(
            f"{self._address.url}{call.target} answers {answer.status}: {shown!r}",
            status=answer.status,
            fix=self._key_advice() if answer.status == _UNAUTHENTICATED else None,
        )

    def _key_advice(self) -> str:
        """What to do where the server knows no such key."""
        if "authorization" in self._address.headers:
            return "the key that was sent is not one of the server's: see --key-file, DRIVETRAIN_API_KEY or api_key="
        return "give the server's API key: --key-file FILE or DRIVETRAIN_API_KEY; in Python api_key="

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except AnswerError as error:
            raise ServerError(
                f"{self._address.url} answers 200, but {error}",
                status=_OK,
                fix="is a model server there, and does a proxy before it leave its answers as they are?",
            ) from None


def request_body(rows: Sequence[Mapping[str, Any]], signature: str | None = None) -> bytes:
    """The body of a request for the predictions of some rows, as TensorFlow Serving has it.

    Raises:
        InputError: A value has no JSON: a set, say.
    """
    instances = [{name: json_ready(plain(value)) for name, value in row.items()} for row in rows]
    return _json_bytes({"instances": instances}, signature)


def _json_bytes(request: dict[str, Any], signature: str | None) -> bytes:
    try:
        whole = request if signature is None else {**request, "signature_name": signature}
        return json.dumps(whole, default=_iso).encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the rows have no JSON: {error!s:.200}", fix="send numbers, text, true, false, lists"
        ) from error


def _iso(value: object) -> str:
    """A date that no model reads, else it were a number by now."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _with_numbers_for_times(
    rows: Sequence[Mapping[str, Any]], columns: Columns | None, served: ServedSignature
) -> tuple[Sequence[Mapping[str, Any]], Columns | None]:
    """Rows or columns in which a date is the number that the model reads."""

    def number(name: str, value: Any) -> Any:  # Any: a value, or a column
        if name not in served.inputs or served.inputs[name].dtype != "int64":
            return value
        return in_milliseconds(value, texts=bool(served.inputs[name].time))

    if columns is not None:
        return rows, {name: number(name, values) for name, values in columns.items()}
    return [{name: number(name, value) for name, value in row.items()} for row in rows], None


def _plain_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of plain values; a table, which is no sequence of them, is refused."""
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(
                f"a {type(rows).__name__} is not rows: its item {at} is {said(plain(row))}",
                fix='send [{…}, …], or columns by name: frame.to_dict("series") of pandas, table.to_pydict() of Arrow',
            )
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def _columns(columns: Columns) -> dict[str, Any]:
    """Columns as lists, or as arrays of numbers."""
    lists = {name: _numbers(values) if _kind(values) not in "MO" else plain(values) for name, values in columns.items()}
    for name, values in lists.items():
        if not (isinstance(values, list) or getattr(values, "shape", None)):
            raise InputError(
                f"column {name!r:.80} is {said(plain(values))}, no list", fix="send one value a row; one row is [{…}]"
            )
    return lists


def _kind(values: Any) -> str:  # Any: what a caller has
    """The kind of an array's dtype, of pandas' too; "O" of what has none."""
    kind: str = getattr(getattr(values, "dtype", None), "kind", "O")
    return kind


def _numbers(values: Any) -> Any:  # Any: an array, of pandas as well
    """Numbers as numpy's array; as a list where some are missing in another way than NaN."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    return array if _kind(array) not in "MO" else plain(array)


def _columns_of(rows: Sequence[Mapping[str, Any]], served: ServedSignature) -> dict[str, list[Any]]:
    columns = {}
    for name, of in served.inputs.items():
        if not any(name in row for row in rows):
            continue
        lacking = next((at for at, row in enumerate(rows) if name not in row), None)
        if lacking is not None:
            raise InputError(
                f"row {lacking} lacks the column {name!r:.80} ({of}), which other rows have",
                fix="send it in each, None if missing",
            )
        columns[name] = [row[name] for row in rows]
    return columns


def _retry_after(answer: ClientAnswer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if re.fullmatch(r"\d{1,6}", text) else 0.0
