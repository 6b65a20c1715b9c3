"""Ask a server: rows in, predictions out, by HTTP/1.1 over one connection that is kept."""

from __future__ import annotations

import http.client
import json
import math
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

from ..errors import DrivetrainError, InputError

_CHUNK: Final = 1000  # rows of a request


class ServerError(DrivetrainError):
    """A server did not answer a request as asked.

    Attributes:
        status: The HTTP status; 0 where there was no answer.
    """

    def __init__(self, message: str, *, status: int = 0, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.status = status


@dataclass(frozen=True)
class Prediction:
    """What a server predicted for some rows.

    Attributes:
        rows: For each row, output name → value; of a model with one output its value alone.
        version: The version that answered.
        digest: The digest of its bundle.
        request_id: What the request is called in the server's logs.
    """

    rows: tuple[Any, ...]  # Any: JSON
    version: int
    digest: str
    request_id: str


class Client:
    """One model of a server.

    ```python
    with Client("http://127.0.0.1:8501", "flights") as client:
        client.predict([{"carrier": "UA", "hour": 17}]).rows
    ```

    Not for several threads at once: each has its own.

    Args:
        url: The server, "http://host:port".
        model: What the server calls the model.
        version: Its number; None: the newest, or what the server's split decides.
        label: Or a name for one.
        key: What keeps this caller on one side of a split.
        api_key: What the server lets this caller in by; None: what DRIVETRAIN_API_KEY holds, if it does.
        tls: For https: an `ssl.SSLContext`, of `ssl.create_default_context(cafile=...)` say; None: the system's roots.
        timeout: Seconds until an answer is given up.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        key: str | None = None,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r:.200} is no server", fix="give http://host:port")
        if version is not None and label is not None:
            raise InputError("a version and a label are both named", fix="name one of them")
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        )
        which = f"/versions/{version}" if version is not None else f"/labels/{quote(label, safe='')}" if label else ""
        root, name = parts.path.rstrip("/"), quote(model, safe="")
        self._model_path = f"{root}/v1/models/{name}"
        self._path = f"{self._model_path}{which}"
        self._repository_path = f"{root}/v2/repository/models/{name}"
        self._v2_path = f"{root}/v2/models/{name}"
        self._headers = {"content-type": "application/json"} | ({"x-drivetrain-key": key} if key is not None else {})
        api_key = os.environ.get("DRIVETRAIN_API_KEY") if api_key is None else api_key
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
                raise InputError("the API key has characters that no key has", fix="is there a space or a line end?")
            self._headers["authorization"] = f"Bearer {api_key}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def predict(self, rows: Sequence[Mapping[str, Any]], *, signature: str | None = None) -> Prediction:
        """The predictions for some rows, each a mapping from input to value (None and NaN: missing).

        Raises:
            InputError: A value has no JSON: a date, say.
            ServerError: The server refuses the rows, has no such model, or does not answer.
        """
        body, headers = self._ask("POST", f"{self._path}:predict", request_body(rows, signature))
        version = int(headers.get("x-drivetrain-version", 0))
        digest, request_id = headers.get("x-drivetrain-digest", ""), headers.get("x-request-id", "")
        return Prediction(tuple(body["predictions"]), version, digest, request_id)

    def predict_all(self, rows: Sequence[Mapping[str, Any]], *, signature: str | None = None) -> Iterator[Prediction]:
        """`predict` for any number of rows, a thousand at a time."""
        for start in range(0, len(rows), _CHUNK):
            yield self.predict(rows[start : start + _CHUNK], signature=signature)

    def metadata(self) -> dict[str, Any]:  # Any: JSON
        """The model's signatures, as TensorFlow Serving describes them."""
        return self._ask("GET", f"{self._path}/metadata")[0]

    def status(self) -> list[dict[str, Any]]:  # Any: JSON
        """The model's versions: `version`, `state`, and the `status` of loading it."""
        versions: list[dict[str, Any]] = self._ask("GET", self._path)[0]["model_version_status"]
        return versions

    def load(self) -> None:
        """Have the server look for the model's versions now, and load them; needs a key that may `admin`.

        Raises:
            ServerError: It does not let this caller, or none of the model's versions can be used (503).
        """
        self._ask("POST", f"{self._repository_path}/load")

    def digest(self, version: int) -> str:
        """The digest of the bundle that the server has as a version; "" from a release that does not say."""
        return self._ask("GET", f"{self._v2_path}/versions/{version}")[1].get("x-drivetrain-digest", "")

    def traffic(self) -> dict[str, Any]:  # Any: JSON
        """Which version gets which share of the requests, and how far a rollout is."""
        return self._ask("GET", f"{self._model_path}/traffic")[0]

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[dict[str, Any], Mapping[str, str]]:
        try:
            status, headers, data = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerError(
                f"{self._url} does not answer: {str(error) or type(error).__name__}",
                fix="is `drivetrain serve` running there?",
            ) from error
        answer: Any = None
        with suppress(ValueError):
            answer = json.loads(data)
        if status != 200 or not isinstance(answer, dict):
            reason = answer.get("error") if isinstance(answer, dict) else None
            message = f"{self._url}{path} answers {status}: {reason or data[:200]!r}"
            raise ServerError(message, status=status, fix=self._key_advice() if status == 401 else None)
        return answer, headers

    def _key_advice(self) -> str:
        """What to do where the server knows no such key."""
        if "authorization" in self._headers:
            return "the key that was sent is not one of the server's: see --key-file, DRIVETRAIN_API_KEY or api_key="
        return "give the server's API key: --key-file FILE or DRIVETRAIN_API_KEY; in Python api_key="

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        for attempt in (1, 2):
            fresh = self._connection.sock is None
            try:
                self._connection.request(method, path, body, self._headers)
                response = self._connection.getresponse()
                return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # A connection that was kept may have been closed meanwhile; predicting twice does no harm.
                self.close()
                if fresh or attempt == 2:
                    raise
        raise AssertionError("unreachable")


def request_body(rows: Sequence[Mapping[str, Any]], signature: str | None = None) -> bytes:
    """The body of a request for the predictions of some rows.

    Raises:
        InputError: A value has no JSON: a date, say.
    """
    request: dict[str, Any] = {"instances": [{name: _json(value) for name, value in row.items()} for row in rows]}
    if signature is not None:
        request["signature_name"] = signature
    try:
        return json.dumps(request).encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the rows have no JSON: {error!s:.200}", fix="send numbers, text, true, false, lists"
        ) from error


def _json(value: Any) -> Any:  # Any: what a row holds
    """A value as JSON has it."""
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
