"""Which models a server holds, of which versions: one from the command line, or many from a YAML file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from ..addresses import local_path
from ..errors import InputError
from ..redaction import CREDENTIALS, holds_credentials, without_credentials
from ..yaml_lines import YamlValue, read_yaml
from .batching import BatchingOptions
from .request_log import RequestLogOptions
from .rollout import Guard, RampStep, Rollout
from .shadow import ShadowTraffic
from .traffic import TrafficSplit
from .watched_file import text_of

REGISTERED: Final = "registered:"
"""What the address of a registered model begins with: "registered:flights@champion"."""
_OF_PUSHED: Final = ("versions", "labels", "traffic", "require_signed", "rollout", "shadow")
_DIGITS: Final = 19  # of a number that no version has
_FIX: Final = "see docs/serving.md for what it holds"
_OF_TENSORFLOW: Final = re.compile(r"(\s|#.*\n)*model_config_list\b")  # what its text format begins with


@dataclass(frozen=True)
class ModelConfig:
    """One model.

    Attributes:
        name: What requests call it.
        base_path: The folder or URL below which its versions are: what Pusher pushes to; or a registered model.
        policy: Which versions are served: the `num_versions` latest, all, or those of `versions`.
        num_versions: For "latest".
        versions: For "specific".
        labels: Names for versions: requests to "stable" go to the version that it stands for.
        batching: How requests are put together.
        traffic: Shares of the requests that name no version for some versions; the rest goes to the newest without one.
        request_log: What is logged of its requests and their answers; None: nothing.
        require_signed: A file with the public key of who must have signed each version; None: none need be signed.
        rollout: How new versions take over; None: at once.
        shadow: A version that answers silently beside the one that is asked; None: none.
    """

    name: str
    base_path: str
    policy: Literal["latest", "all", "specific"] = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    batching: BatchingOptions = field(default_factory=BatchingOptions)
    traffic: TrafficSplit | None = None
    request_log: RequestLogOptions | None = None
    require_signed: str | None = None
    rollout: Rollout | None = None
    shadow: ShadowTraffic | None = None

    def __post_init__(self) -> None:
        # What clients take for a step in a path, in "/v2/models/../infer", never comes to the server.
        if self.name in ("", ".", "..") or any(char in self.name for char in "/:?#%") or not self.name.isprintable():
            raise InputError(f"{self.name!r:.80} is not a valid name for a model", fix="use letters, digits, - and _")
        if holds_credentials(self.base_path):
            raise InputError(f"the address {without_credentials(self.base_path)!r:.200} holds a password or a token",
                             fix=CREDENTIALS)  # fmt: skip
        if self.num_versions < 1:
            raise InputError(f"num_versions is {self.num_versions}", fix="serve at least one version")
        if self.policy == "specific" and not self.versions:
            raise InputError(f"model {self.name!r} is served in specific versions, but none is named")
        for label in self.labels:
            if not label.isascii() or not label.replace("_", "").isalnum():
                raise InputError(f"{label!r:.80} is not a label", fix="use letters, digits and _")
        if self.traffic is not None and self.rollout is not None:
            raise InputError(
                f"model {self.name!r} has shares of traffic and a rollout", fix="keep one: a step without minutes stays"
            )
        if self.shadow is not None and self.shadow.version is None and self.rollout is None:
            raise InputError(
                f"the shadow of model {self.name!r} names no version, and no version takes over by a rollout",
                fix="name its version",
            )

    @property
    def registered(self) -> str | None:
        """What the registry is asked for, "flights@champion", of a registered model; else None."""
        return self.base_path.removeprefix(REGISTERED) if self.base_path.startswith(REGISTERED) else None

    def wanted(self, numbers: list[int], others: Collection[int] = ()) -> list[int]:
        """The versions to serve of those that are there, ascending.

        Args:
            numbers: Those that are there, ascending.
            others: Those that a rollout needs.
        """
        if self.policy == "all":
            return numbers
        canaries = set(self.traffic.shares if self.traffic else ())
        versions = [each.version for each in (self.rollout, self.shadow) if each is not None]
        canaries |= {version for version in versions if version is not None}
        # A canary is often the newest version, and the others are still to be answered by the one before.
        rest = [] if self.policy == "specific" else [number for number in numbers if number not in canaries]
        return sorted((canaries | set(others) | set(self.versions)) & set(numbers) | set(rest[-self.num_versions :]))


def kept(config: ModelConfig, known: ModelConfig | None) -> ModelConfig:
    """A configuration in TensorFlow Serving's words, with what these do not say of a model that stays where it was."""
    if known is None or known.base_path != config.base_path or config.traffic is not None:
        return config
    return replace(config, rollout=config.rollout or known.rollout, shadow=config.shadow or known.shadow)


def require_surroundings(configs: Sequence[ModelConfig]) -> None:
    """See that each folder of versions is there, or may come by a push: one whose surroundings are missing is a typo.

    Raises:
        InputError: It is not so.
    """
    for config in configs:
        if config.registered is not None or (address := local_path(config.base_path)) is None:
            continue
        folder = Path(os.path.abspath(address))  # noqa: PTH100 - without its ..
        if not folder.is_dir() and not folder.parent.is_dir():
            raise InputError(
                f"there is no folder {folder.parent}, in which the versions of model {config.name!r} would "
                f"be pushed to {folder.name}",
                fix="mend the path, or make that folder if the first push is still to come",
            )


class SigningKeys:
    """Who must have signed which model's versions: said when the server starts, and not undone by a request.

    Args:
        configs: The models as they are at the start.
        default: The file of the key for every model that names none; None: those need not be signed.

    Raises:
        InputError: A file holds no key that signatures can be checked with.
        DrivetrainError: `cryptography` is not installed.
    """

    def __init__(self, configs: Sequence[ModelConfig], default: Path | None) -> None:
        self._by_model = {config.name: config.require_signed for config in configs if config.require_signed}
        self._default = None if default is None else str(default)
        if paths := {*self._by_model.values(), *([self._default] if self._default else [])}:
            from ..engine.bundles.signing import check_public_key  # late: the supervisor of workers needs no engine

            for path in sorted(paths):
                check_public_key(Path(path))

    def applied(self, configs: Sequence[ModelConfig]) -> list[ModelConfig]:
        """Configurations with the keys that their models' versions must be signed by."""
        return [replace(each, require_signed=self._by_model.get(each.name, self._default)) for each in configs]


def read_models(path: Path) -> list[ModelConfig]:
    """The models of a file: YAML, or TensorFlow Serving's `model_config_list` as protobuf writes it as text.

    The `models` of YAML map names to `base_path` (a URL, a folder, from the file's own folder on, or a registered
    model, whose alias says which version is served), `versions` ("all", "latest 2", or a list of numbers), `labels`,
    `batching` with the fields of `BatchingOptions`, `traffic`, from versions (by number or label) to percentages,
    `request_log` with the fields of `RequestLogOptions`, `require_signed`, the file of a public key, `rollout` with the
    fields of `Rollout`, and `shadow` with those of `ShadowTraffic`.

    Raises:
        InputError: It is no such file; the line is named.
    """
    text = text_of(path, _FIX)
    if _OF_TENSORFLOW.match(text):
        from .tensorflow_config import models_of_text  # late: a YAML file needs no protobuf

        return models_of_text(text, path)
    top = read_yaml(text, str(path), name="the file")
    if top is None:
        raise InputError(f"{path} is empty", fix=_FIX)
    models = top.mapping(("models",), required=("models",))["models"].mapping()
    if not models:
        raise InputError(f"{path} has no model", fix=_FIX)
    return [_model(name, value, path.parent) for name, value in models.items()]


def _model(name: str, value: YamlValue, folder: Path) -> ModelConfig:
    known = (
        "base_path", "versions", "labels", "batching", "traffic", "request_log", "require_signed", "rollout", "shadow",
    )  # fmt: skip
    entries = value.mapping(known, required=("base_path",))
    fields: dict[str, Any] = {}  # Any: by the field's type
    base_path = entries["base_path"].string()
    if base_path.startswith(REGISTERED):
        for key in (key for key in _OF_PUSHED if key in entries):
            raise entries[key].error(
                f"{entries[key].name} is of a model that is pushed, and {base_path} is registered",
                "take it out: its alias says which version is served",
            )
        from ..metadata.registry import split_reference  # late: most files have none

        with _at_line_of(entries["base_path"]):
            split_reference(base_path.removeprefix(REGISTERED))
    elif "://" not in base_path:
        base_path = str(folder / base_path)
    if "versions" in entries:
        fields |= _versions(entries["versions"])
    if "labels" in entries:
        fields["labels"] = {label: number.whole() for label, number in entries["labels"].mapping().items()}
    if "batching" in entries:
        parameters = entries["batching"].mapping(tuple(BatchingOptions.__dataclass_fields__))
        fields["batching"] = BatchingOptions(**{key: number.whole() for key, number in parameters.items()})
    if "traffic" in entries:
        fields["traffic"] = _traffic(entries["traffic"], fields.get("labels", {}), name)
    if "request_log" in entries:
        fields["request_log"] = _request_log(entries["request_log"], folder)
    if "require_signed" in entries:
        fields["require_signed"] = str(folder / entries["require_signed"].string())
    if "rollout" in entries:
        fields["rollout"] = _rollout(entries["rollout"], fields.get("labels", {}), folder)
    if "shadow" in entries:
        fields["shadow"] = _shadow(entries["shadow"], fields.get("labels", {}))
    with _at_line_of(value):
        return ModelConfig(name, base_path, **fields)


def _traffic(value: YamlValue, labels: Mapping[str, int], salt: str) -> TrafficSplit:
    shares: dict[int, float] = {}
    for key, share in value.mapping().items():
        shares[_version_of(key, labels, share, value.name)] = share.number()
    with _at_line_of(value):
        return TrafficSplit(shares, salt)


def _version_of(text: str, labels: Mapping[str, int], value: YamlValue, name: str) -> int:
    """The version that a number or a label stands for; an error stands at the value."""
    version = labels.get(text, int(text) if text.isdecimal() and len(text) < _DIGITS else None)
    if version is None:
        raise value.error(f"{name} names {text!r:.80}, no version or label", "write a number, or a label")
    return version


def _rollout(value: YamlValue, labels: Mapping[str, int], folder: Path) -> Rollout:
    entries = value.mapping(("steps", "version", "guard", "state"), required=("steps",))
    steps = tuple(_step(each) for each in entries["steps"].items())
    state = entries["state"].string() if "state" in entries else "rollouts"
    version = _named_version(entries, labels)
    guard = _guard(entries["guard"]) if "guard" in entries else None
    with _at_line_of(value):
        return Rollout(steps, state if "://" in state else str(folder / state), version, guard)


def _step(value: YamlValue) -> RampStep:
    entries = value.mapping(("share", "minutes"), required=("share",))
    minutes = entries["minutes"].number() if "minutes" in entries else None
    with _at_line_of(value):
        return RampStep(entries["share"].number(), minutes)


def _guard(value: YamlValue) -> Guard:
    fields: dict[str, Any] = {}  # Any: by the field's type
    for key, entry in value.mapping(tuple(Guard.__dataclass_fields__)).items():
        if key in ("min_requests", "min_predictions"):
            fields[key] = entry.whole()
        elif key == "window_seconds":
            fields[key] = entry.number()
        else:
            fields[key] = None if entry.is_scalar and entry.scalar() is None else entry.number()
    with _at_line_of(value):
        return Guard(**fields)


def _shadow(value: YamlValue, labels: Mapping[str, int]) -> ShadowTraffic:
    entries = value.mapping(tuple(ShadowTraffic.__dataclass_fields__))
    fields: dict[str, Any] = {"version": _named_version(entries, labels)}  # Any: by the field's type
    for key in ("sample", "tolerance"):
        if key in entries:
            fields[key] = entries[key].number()
    if "max_queue" in entries:
        fields["max_queue"] = entries["max_queue"].whole()
    with _at_line_of(value):
        return ShadowTraffic(**fields)


def _named_version(entries: Mapping[str, YamlValue], labels: Mapping[str, int]) -> int | None:
    if "version" not in entries:
        return None
    entry = entries["version"]
    return _version_of(entry.text(), labels, entry, entry.name)


def _request_log(value: YamlValue, folder: Path) -> RequestLogOptions:
    entries = value.mapping(tuple(RequestLogOptions.__dataclass_fields__), required=("folder",))
    fields: dict[str, Any] = {}  # Any: by the field's type
    for key, entry in entries.items():
        match key:
            case "deny" | "hash":
                fields[key] = entry.texts()
            case "sample" | "write_seconds":
                fields[key] = entry.number()
            case "keep_days":
                fields[key] = entry.whole()
            case _:
                fields[key] = entry.string()
    if "://" not in fields["folder"]:
        fields["folder"] = str(folder / fields["folder"])
    with _at_line_of(value):
        return RequestLogOptions(**fields)


@contextlib.contextmanager
def _at_line_of(value: YamlValue) -> Iterator[None]:
    """Errors of what is made in the block name the line of a value."""
    try:
        yield
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=value.where) from error


def _versions(value: YamlValue) -> dict[str, Any]:
    if value.is_list:
        return {"policy": "specific", "versions": tuple(number.whole() for number in value.items())}
    text = value.text()
    if text == "all":
        return {"policy": "all"}
    word, _, count = text.partition(" ")
    if word != "latest" or (count and not count.isdecimal()):
        raise value.error(f"{value.name} is {text!r:.80}", 'write all, latest, "latest 2", or a list of numbers')
    return {"num_versions": int(count or 1)}
