"""Registered models as MLflow's registry tells of them: its REST API 2.0, for reading, by MLflow's own clients."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from ..errors import InputError
from ..metadata import ArtifactRecord, NotFound, StoreUnavailable
from ..metadata.registry import ModelVersion, RegisteredModel, Registry

Json: TypeAlias = dict[str, Any]  # Any: JSON values
T = TypeVar("T")

_PREFIXES: Final = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
_MOST: Final = {"registered-models/search": (100, 1000), "model-versions/search": (10_000, 200_000)}
"""How many a search gives where the client does not say, and at most, as in MLflow."""
_TERM: Final = re.compile(
    r"\s*(?P<key>[a-z_]+|tags?\.(?:\w[\w.-]*|`[^`]+`|\"[^\"]+\"))\s*"
    r"(?P<sign>!=|>=|<=|=|>|<|\bI?LIKE\b|\bIN\b)\s*"
    r"(?P<value>'(?:[^']|'')*'|\"[^\"]*\"|-?\d{1,18}|\(\s*(?:'[^']*'|\"[^\"]*\")\s*(?:,\s*(?:'[^']*'|\"[^\"]*\")\s*)*\))\s*",
    re.IGNORECASE,
)
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"")


class MlflowError(Exception):
    """What MLflow's server would refuse.

    Args:
        status: Of the answer.
        code: MLflow's name of the error.
        message: What is wrong.
    """

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class MlflowRegistry:
    """Answers requests of MLflow's clients; it changes nothing.

    Attributes:
        registry: The registered models.
        locate: The URI of the folder that a version's bundle is in.
    """

    registry: Registry
    locate: Callable[[ArtifactRecord], str]

    def answer(self, method: str, target: str, body: bytes = b"") -> tuple[int, Json]:
        """The status and the JSON that a request is answered with.

        Args:
            method: "GET", say.
            target: The path with its query, as it came.
            body: Its bytes.
        """
        try:
            return HTTPStatus.OK, self._answer(method, target, body)
        except MlflowError as error:
            return error.status, {"error_code": error.code, "message": str(error)}
        except NotFound as error:
            return HTTPStatus.NOT_FOUND, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": str(error)}
        except InputError as error:
            return HTTPStatus.BAD_REQUEST, {"error_code": "INVALID_PARAMETER_VALUE", "message": str(error)}
        except StoreUnavailable as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": error.message}

    def _answer(self, method: str, target: str, body: bytes) -> Json:
        url = urlsplit(target)
        path = next((url.path[len(each) :] for each in _PREFIXES if url.path.startswith(each)), "")
        reads = {
            "registered-models/get": self._get_model,
            "registered-models/search": self._search_models,
            "registered-models/alias": self._get_by_alias,
            "registered-models/get-latest-versions": self._latest_versions,
            "model-versions/get": self._get_version,
            "model-versions/search": self._search_versions,
            "model-versions/get-download-uri": self._download_uri,
        }
        may_post = path == "registered-models/get-latest-versions"  # MLflow reads by POST there
        if not path.startswith(("registered-models/", "model-versions/")):
            raise MlflowError(HTTPStatus.NOT_FOUND, "ENDPOINT_NOT_FOUND", "this server has a model registry alone")
        if path not in reads or not (method == "GET" or (may_post and method == "POST")):
            raise MlflowError(
                HTTPStatus.FORBIDDEN,
                "PERMISSION_DENIED",
                "this registry is read-only: models are registered, and aliases moved, by `drivetrain registry`",
            )
        return reads[path](_Arguments.of(url.query, body if method == "POST" else b""))

    def _get_model(self, arguments: _Arguments) -> Json:
        return {"registered_model": self._model(self.registry.model(arguments.text("name")))}

    def _get_by_alias(self, arguments: _Arguments) -> Json:
        model = self.registry.model(arguments.text("name"))
        return {"model_version": self._version(model, model.version(arguments.text("alias")))}

    def _get_version(self, arguments: _Arguments) -> Json:
        model, number = self.registry.model(arguments.text("name")), arguments.text("version")
        if re.fullmatch(r"[0-9]{1,9}", number) is None:
            raise InputError(f"{number!r:.40} is not a version", fix="write its number")
        return {"model_version": self._version(model, model.version(int(number)))}

    def _download_uri(self, arguments: _Arguments) -> Json:
        return {"artifact_uri": self._get_version(arguments)["model_version"]["source"]}

    def _latest_versions(self, arguments: _Arguments) -> Json:
        model = self.registry.model(arguments.text("name"))
        stages = {stage.lower() for stage in arguments.texts("stages")}
        newest = model.versions[-1:] if not stages or "none" in stages else ()  # aliases have taken the place of stages
        return {"model_versions": [self._version(model, version) for version in newest]}

    def _search_models(self, arguments: _Arguments) -> Json:
        models = [self.registry.model(name) for name in self.registry.names()]
        kept = _matching(models, arguments.text("filter", ""), _model_value, ("name",))
        ordered = _ordered(kept, arguments.texts("order_by"), _model_value, ("name", *_TIMES), ("name ASC",))
        return _page(
            "registered-models/search", "registered_models", [self._model(each) for each in ordered], arguments
        )

    def _search_versions(self, arguments: _Arguments) -> Json:
        models = [self.registry.model(name) for name in self.registry.names()]
        rows = [self._version(model, version) for model in models for version in model.versions]
        fields = ("name", "version_number", "run_id", "source_path")
        kept = _matching(rows, arguments.text("filter", ""), _version_value, fields)
        default = ("last_updated_timestamp DESC", "name ASC", "version_number DESC")
        keys = ("name", "version_number", *_TIMES)
        ordered = _ordered(kept, arguments.texts("order_by"), _version_value, keys, default)
        return _page("model-versions/search", "model_versions", ordered, arguments)

    def _model(self, model: RegisteredModel) -> Json:
        return {
            "name": model.name,
            "creation_timestamp": _milliseconds(model.log[0].at) if model.log else 0,
            "last_updated_timestamp": _milliseconds(model.log[-1].at) if model.log else 0,
            "description": model.description,
            "latest_versions": [self._version(model, version) for version in model.versions[-1:]],
            "tags": _tags(model.tags),
            "aliases": [{"alias": alias, "version": str(number)} for alias, number in sorted(model.aliases.items())],
        }

    def _version(self, model: RegisteredModel, version: ModelVersion) -> Json:
        record = self.registry.artifact(version)
        changed = [entry.at for entry in model.log if entry.facts.get("version") == version.number]
        return {
            "name": version.model,
            "version": str(version.number),
            "creation_timestamp": _milliseconds(version.at),
            "last_updated_timestamp": _milliseconds(changed[-1]),
            "user_id": version.by,
            "current_stage": "None",
            "description": version.description or version.why,
            "source": self.locate(record),
            "run_id": self._run(record),
            "status": "READY" if record.state in ("LIVE", "REFERENCE") else "FAILED_REGISTRATION",
            "status_message": "" if record.state in ("LIVE", "REFERENCE") else f"its files are {record.state}",
            "tags": _tags(version.tags),
            "aliases": model.aliases_of(version),
        }

    def _run(self, record: ArtifactRecord) -> str:
        if record.producer is None:
            return ""
        store = self.registry.store
        contexts = store.contexts_of(store.execution(record.producer))
        return next((context.name for context in contexts if context.type == "run"), "")


_TIMES: Final = ("creation_timestamp", "last_updated_timestamp", "timestamp")


@dataclass(frozen=True)
class _Arguments:
    """What a request asks with: its query, or its body."""

    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, query: str, body: bytes) -> _Arguments:
        try:
            values = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=100)
            known = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            raise InputError("the request's arguments cannot be read", fix="send a query, or a JSON object") from None
        if not isinstance(known, dict):
            raise InputError("the request's body is not a JSON object", fix="send one")
        more = {name: value if isinstance(value, list) else [value] for name, value in known.items()}
        return cls(values | {name: [str(each) for each in several] for name, several in more.items()})

    def texts(self, name: str) -> Sequence[str]:
        return [text for text in self.values.get(name, ()) if text]

    def text(self, name: str, default: str | None = None) -> str:
        texts = self.texts(name)
        if len(texts) > 1 or (not texts and default is None):
            raise InputError(
                f"the argument {name!r} is {'missing' if not texts else 'there twice'}", fix="send it once"
            )
        return texts[0] if texts else str(default)


def _milliseconds(moment: Any) -> int:  # Any: a datetime
    return int(moment.timestamp() * 1000)


def _tags(tags: Mapping[str, str]) -> list[Json]:
    return [{"key": name, "value": text} for name, text in sorted(tags.items())]


def _model_value(model: RegisteredModel, key: str) -> object:
    if key == "name":
        return model.name
    if key in _TIMES:
        return _milliseconds(model.log[0 if key == "creation_timestamp" else -1].at) if model.log else 0
    return model.tags.get(key.partition(".")[2])


def _version_value(version: Json, key: str) -> object:
    names = {"version_number": "version", "source_path": "source", "timestamp": "last_updated_timestamp"}
    if key == "version_number":
        return int(version["version"])
    if key.startswith("tag"):
        tag = key.partition(".")[2]
        return next((each["value"] for each in version["tags"] if each["key"] == tag), None)
    return version[names.get(key, key)]


def _matching(rows: Iterable[T], text: str, value_of: Callable[[T, str], object], fields: Sequence[str]) -> list[T]:
    """Those that a filter of MLflow's search language describes: comparisons, joined by AND."""
    tests: list[tuple[str, str, Any]] = []  # Any: a text, a number or texts
    position = 0
    while position < len(text) and text.strip():
        if tests:
            joint = re.compile(r"AND\b", re.IGNORECASE).match(text, position)
            if joint is None:
                raise _bad_filter(text, fields)
            position = joint.end()
        term = _TERM.match(text, position)
        if term is None:
            raise _bad_filter(text, fields)
        tests.append(_test(term, text, fields))
        position = term.end()
    return [row for row in rows if all(_holds(value_of(row, key), sign, value) for key, sign, value in tests)]


def _test(term: re.Match[str], text: str, fields: Sequence[str]) -> tuple[str, str, Any]:  # Any: as in _matching
    key, sign, value = term["key"], term["sign"].upper(), term["value"]
    first, dot, rest = key.partition(".")
    if dot:
        key = f"tags.{rest.strip('`')}" if rest[0] == "`" else f"tags.{rest.strip(chr(34))}"
    elif first not in fields:
        raise _bad_filter(text, fields)
    is_number = key == "version_number"
    if (sign in ("<", "<=", ">", ">=") and not is_number) or (sign == "IN") is not value.startswith("("):
        raise _bad_filter(text, fields)
    if sign == "IN":
        return key, sign, [each[0].replace("''", "'") or each[1] for each in _TEXT.findall(value)]
    if is_number:
        if sign.endswith("LIKE") or not value.strip("'\"").isdecimal():
            raise _bad_filter(text, fields)
        return key, sign, int(value.strip("'\""))
    quoted = _TEXT.fullmatch(value)
    if quoted is None:
        raise _bad_filter(text, fields)
    return key, sign, quoted[2] if quoted[1] is None else quoted[1].replace("''", "'")


def _holds(held: object, sign: str, value: Any) -> bool:  # Any: as in _matching
    if held is None:  # a tag that is not there: MLflow's client asks for all models that are not tagged as prompts
        return sign == "!="
    match sign:
        case "=":
            return bool(held == value)
        case "!=":
            return bool(held != value)
        case "IN":
            return str(held) in value
        case "LIKE" | "ILIKE":
            # By fnmatch, whose patterns never take long: many wildcards in a regular expression would.
            pattern = re.sub(r"[\[*?]", r"[\g<0>]", value).replace("%", "*").replace("_", "?")
            flags = re.IGNORECASE if sign == "ILIKE" else re.NOFLAG
            return re.match(translate(pattern), str(held), flags) is not None
    number = held if isinstance(held, int) else 0
    return bool({"<": number < value, "<=": number <= value, ">": number > value, ">=": number >= value}[sign])


def _bad_filter(text: str, fields: Sequence[str]) -> InputError:
    return InputError(
        f"the filter {text!r:.200} cannot be read", fix=f"compare {', '.join(fields)} or tags.NAME, joined by AND"
    )


def _ordered(
    rows: Sequence[T],
    wanted: Sequence[str],
    value_of: Callable[[T, str], Any],
    keys: Sequence[str],
    default: Sequence[str],
) -> list[T]:
    ordered = list(rows)
    for clause in reversed([*wanted, *default]):  # sorting is stable: the first clause last
        key, _, direction = clause.strip().partition(" ")
        key, direction = key.strip('`"'), direction.strip().upper() or "ASC"
        if key not in keys or direction not in ("ASC", "DESC"):
            raise InputError(f"order_by {clause!r:.80} cannot be read", fix=f"order by {', '.join(keys)}, ASC or DESC")
        ordered.sort(key=lambda row: value_of(row, key), reverse=direction == "DESC")
    return ordered


def _page(search: str, name: str, rows: Sequence[Json], arguments: _Arguments) -> Json:
    default, most = _MOST[search]
    size, token = arguments.text("max_results", str(default)), arguments.text("page_token", "0")
    if not (size.isascii() and size.isdecimal() and len(size) < 10 and 1 <= int(size) <= most):
        raise InputError(f"max_results is {size!r:.40}", fix=f"give 1 to {most:,}")
    if not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise InputError(
            f"{token!r:.40} is not a page_token of this server", fix="send the one that the last page gave"
        )
    end = int(token) + int(size)
    more = {"next_page_token": str(end)} if end < len(rows) else {}
    return {name: list(rows[int(token) : end]), **more}
