"""Artifact types: what passes between components, declared as classes with a few JSON properties."""

from __future__ import annotations

import atexit
import copy
import inspect
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..digest import canonical_json
from ..errors import InputError

if TYPE_CHECKING:
    from typing import Self

    from .records import ArtifactRecord

__all__ = [
    "AnalyzerCache",
    "Anomalies",
    "Artifact",
    "Decision",
    "Evaluation",
    "Examples",
    "ExamplesDiff",
    "Explanation",
    "InfraValidation",
    "Model",
    "Predictions",
    "PushedModel",
    "Registration",
    "Schema",
    "Statistics",
    "TransformGraph",
    "TuningResults",
    "Value",
    "artifact_type",
    "staging",
]

# Gives a fresh folder for an artifact of that type; the launcher sets it while a component runs.
staging: ContextVar[Callable[[type[Artifact]], Path] | None] = ContextVar("drivetrain_staging", default=None)

_OWN = {"path", "uid", "uri", "fingerprint"}
_TYPES: dict[str, type[Artifact]] = {}


class _Property:
    """A declared property: of the class its default, of an artifact its value, and then that it was read."""

    def __init__(self, name: str, default: Any) -> None:
        self._name = name
        self._default = default

    def __get__(self, artifact: Artifact | None, owner: type[Artifact]) -> Any:
        return self._default if artifact is None else artifact._read(self._name)


class Artifact:
    """A folder with a type: `content/` is fingerprinted, `extra/` is not.

    A subclass declares its properties as annotated attributes with JSON defaults, and is a type of its own wherever it
    is defined:

        class Report(Artifact):
            pages: int = 0

    Attributes:
        uid: Its identity in the store; None until published, as are `uri` and `fingerprint`.
        uri: Where its payload lies below the root.
        fingerprint: SHA-256 (hex) of `content/`.
    """

    uid: str | None
    uri: str | None
    fingerprint: str | None
    _declared: ClassVar[Mapping[str, Any]] = {}
    _nullable: ClassVar[frozenset[str]] = frozenset()
    _fresh = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared, nullable = dict(cls._declared), set(cls._nullable)
        for name, annotation in inspect.get_annotations(cls).items():
            spelled = annotation if isinstance(annotation, str) else repr(annotation)
            if name.startswith("_") or "ClassVar" in spelled:
                continue
            if name in _OWN or hasattr(Artifact, name):
                raise InputError(f"{cls.__name__}.{name} is a name that every artifact has", fix="choose another name")
            if name not in cls.__dict__:
                raise InputError(f"{cls.__name__}.{name} has no default", fix=f"write `{name}: {spelled} = …`")
            declared[name] = _checked(cls, name, cls.__dict__[name])
            setattr(cls, name, _Property(name, cls.__dict__[name]))
            if "None" in spelled or "Optional" in spelled or "Any" in spelled:
                nullable.add(name)
        cls._declared, cls._nullable = declared, frozenset(nullable)
        _TYPES[cls.__name__] = cls

    def __init__(self, path: Path | Callable[[], Path], **properties: Any) -> None:
        self.__dict__["_path"] = path  # past `__setattr__`, which takes declared properties alone
        self.__dict__["_values"] = copy.deepcopy(dict(self._declared))
        self.__dict__["_names_read"] = set()
        self.uid = self.uri = self.fingerprint = None
        for name, value in properties.items():
            setattr(self, name, value)

    @classmethod
    def new(cls, **properties: Any) -> Self:
        """A fresh artifact to write to, with an empty `content/`; `extra/` is made when it is asked for.

        The running launch gives the folder and publishes it; elsewhere it is temporary and goes with the process.

        Raises:
            InputError: A property that the type does not declare, or a value that is not JSON or of another type.
        """
        provider = staging.get()
        path = Path(tempfile.mkdtemp(prefix=f"{cls.__name__}-", dir=_scratch())) if provider is None else provider(cls)
        artifact = cls(path, **properties)
        artifact.__dict__["_fresh"] = True
        if not artifact.content.is_dir():
            artifact.content.mkdir(parents=True)
        return artifact

    @classmethod
    def from_record(cls, record: ArtifactRecord, path: Path | Callable[[], Path]) -> Self:
        """The published artifact of a record, whose payload lies at path; its properties can no longer be set.

        A function that gives the path, of a payload that has to be fetched first, is called when it is asked for.

        Raises:
            InputError: The record is of another type (the base class takes any).
        """
        if cls is not Artifact and record.type not in {known.__name__ for known in _family(cls)}:
            raise InputError(f"{record.uri} is of type {record.type}, not {cls.__name__}")
        artifact = cls(path)
        artifact.__dict__["_values"].update(copy.deepcopy(record.properties))
        artifact.__dict__.update(uid=record.uid, uri=record.uri, fingerprint=record.fingerprint)
        return artifact

    @classmethod
    def declared(cls) -> Mapping[str, Any]:
        """The declared properties by name, with their defaults."""
        return cls._declared

    @property
    def path(self) -> Path:
        """The local folder. Raises what fetching raises, where it is fetched now."""
        path: Path | Callable[[], Path] = self.__dict__["_path"]
        if not isinstance(path, Path):
            path = self.__dict__["_path"] = path()
        return path

    @property
    def content(self) -> Path:
        """The folder that counts: equal inputs give equal bytes here."""
        return self.path / "content"

    @property
    def extra(self) -> Path:
        """The folder for reports, logs and caches, which no fingerprint covers; there may be none to read."""
        folder = self.path / "extra"
        if self._fresh:
            folder.mkdir(exist_ok=True)
        return folder

    @property
    def properties(self) -> dict[str, Any]:
        """The properties by name, checked.

        Raises:
            InputError: One was changed in place to something that is not JSON.
        """
        return {name: _checked(type(self), name, self._read(name)) for name in self.__dict__["_values"]}

    @property
    def properties_read(self) -> frozenset[str]:
        """The names of the properties that were asked for so far: a result may depend on them."""
        return frozenset(self.__dict__["_names_read"])

    def _read(self, name: str) -> Any:
        self.__dict__["_names_read"].add(name)
        return self.__dict__["_values"][name]

    if not TYPE_CHECKING:  # to a type checker an artifact has what its class declares

        def __getattr__(self, name: str) -> Any:
            if name in self.__dict__.get("_values", ()):  # of a type whose code is not loaded
                return self._read(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        self.__dict__["_names_read"].update(self.__dict__["_values"])  # what a copy is asked for is not seen here
        return self.__dict__

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
            return
        cls = type(self)
        if name not in self._declared:
            known = ", ".join(self._declared) or "none"
            raise InputError(f"{cls.__name__} has no property {name!r}", fix=f"declare it; there are: {known}")
        if self.uid is not None:
            raise InputError(f"{cls.__name__}.{name} cannot be set: the artifact is published", fix="make a new one")
        self.__dict__["_values"][name] = _of_kind(cls, name, _checked(cls, name, value))

    def __repr__(self) -> str:
        properties = "".join(f", {name}={value!r}" for name, value in self.properties.items())
        return f"{type(self).__name__}({self.uri or self.path}{properties})"

    def _repr_html_(self) -> str:
        import html

        report = self.extra / "report.html"
        if report.is_file():
            from ..report import framed

            return framed(report.read_text(encoding="utf-8"))
        facts = {"uri": self.uri, "path": self.path, "fingerprint": self.fingerprint, **self.properties}
        cells = "".join(
            f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in facts.items()
            if value is not None
        )
        from .summary import summary_of  # it imports this module

        table = f"<table><caption>{html.escape(type(self).__name__)}</caption>{cells}</table>"
        return table + summary_of(self)._repr_html_()


def artifact_type(name: str) -> type[Artifact]:
    """The newest loaded class of that name; the base class for a type whose code is not loaded."""
    return _TYPES.get(name, Artifact)


def _checked(cls: type[Artifact], name: str, value: Any) -> Any:
    try:
        canonical_json(value)
    except InputError as error:
        raise InputError(f"{cls.__name__}.{name}: {error.message}", fix=error.fix) from error
    return copy.deepcopy(value)


def _of_kind(cls: type[Artifact], name: str, value: Any) -> Any:
    """The value, if it is of its default's JSON type; a whole number becomes the float that is declared."""
    default = cls._declared[name]
    wanted = _kind(default)
    if default is None or _kind(value) == wanted or (value is None and name in cls._nullable):
        return value
    if wanted == "number" and _kind(value) == "integer":
        return float(value)
    raise InputError(f"{cls.__name__}.{name} is {'an' if wanted[0] in 'aio' else 'a'} {wanted}, not {value!r:.80}")


def _kind(value: object) -> str:
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "text"), (Mapping, "mapping"))
    return next((kind for known, kind in kinds if isinstance(value, known)), "nothing" if value is None else "list")


def _family(cls: type[Artifact]) -> set[type[Artifact]]:
    return {cls}.union(*(_family(known) for known in cls.__subclasses__()))


@cache
def _scratch() -> str:
    folder = tempfile.mkdtemp(prefix="drivetrain-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Value(Artifact):
    """A JSON value that a component returned."""

    value: Any = None

    @classmethod
    def of(cls, value: Any) -> Self:
        """A fresh artifact that holds a JSON value.

        Raises:
            InputError: It is not a JSON value.
        """
        artifact = cls.new(value=value)
        (artifact.content / "value.json").write_bytes(canonical_json(value))
        return artifact


class Decision(Artifact):
    """What a person said when asked."""

    approved: bool = False
    by: str = ""
    comment: str = ""

    def as_json(self) -> str:
        """The properties as canonical JSON."""
        return canonical_json(self.properties).decode()


class Examples(Artifact):
    """Rows in splits, as Parquet. `rows`: how many in each split. `version`: of the span, if file names have one."""

    span: int = 0
    version: int | None = None
    rows: dict[str, int] = {}  # noqa: RUF012  # a declaration: every artifact gets its own copy


class Statistics(Artifact):
    """Full-pass statistics of every split."""

    span: int = 0


class Schema(Artifact):
    """What the data should look like."""


class Anomalies(Artifact):
    """Where the data is not what the schema says. `passed`: whether it may be used.

    `drifted`: the features beyond a bound on drift or skew.
    """

    passed: bool = True
    errors: int = 0
    summary: str = ""
    drifted: list[str] = []  # noqa: RUF012  # a declaration: every artifact gets its own copy


class ExamplesDiff(Artifact):
    """How rows of the same key differ. `pairs`: of rows that were compared; `different`: those that are not equal."""

    pairs: int = 0
    different: int = 0
    summary: str = ""


class TransformGraph(Artifact):
    """The preprocessing, as a bundle."""


class AnalyzerCache(Artifact):
    """What analyzers kept of each span. It spares reading spans again and changes no result, so it lies in `extra/`.

    `states`: how many it holds of this run's spans together.
    """

    states: int = 0


class Model(Artifact):
    """Preprocessing and model in one program, as a bundle.

    `graph`: of the preprocessing, as the examples that it made record it; None where that is not said.
    """

    graph: str | None = None


class TuningResults(Artifact):
    """The trials of a search for hyperparameters.

    `best`: the hyperparameters of the best trial, as `Trainer` takes them. `values`: of its objectives, by name.
    `trials`: how many there were.
    """

    best: dict[str, object] = {}  # noqa: RUF012  # declarations: every artifact gets its own copies
    values: dict[str, float] = {}  # noqa: RUF012
    trials: int = 0
    summary: str = ""


class Registration(Artifact):
    """What came of registering a model: the version that it is of a registered model, and the alias that moved to it.

    `alias`: "" where none did.
    """

    name: str = ""
    version: int = 0
    alias: str = ""


class Evaluation(Artifact):
    """Metrics by slice. `blessed`: whether every threshold was met. `metrics`: over all examples, by name.

    `compared`: whether there was a baseline to compare with; None where that is not said. `judged`: the fingerprint of
    the model that was judged; "" where that is not said.
    """

    blessed: bool = False
    summary: str = ""
    compared: bool | None = None
    judged: str = ""
    metrics: dict[str, float] = {}  # noqa: RUF012  # a declaration: every artifact gets its own copy


class Explanation(Artifact):
    """Which columns matter to a model. `importance`: over all examples, by column, of `metric`."""

    metric: str = ""
    importance: dict[str, float] = {}  # noqa: RUF012  # a declaration: every artifact gets its own copy
    summary: str = ""


class Predictions(Examples):
    """What models say of examples, in the same splits: kept columns and a column for each of `outputs`, as Parquet.

    They can be used wherever examples can. `rejected`: how many rows of each split no model was used on, as one of them
    could not use it; these rows, each with its `reason`, are the examples in `content/rejected`, if there are any.
    """

    outputs: list[str] = []  # noqa: RUF012  # declarations: every artifact gets its own copies
    rejected: dict[str, int] = {}  # noqa: RUF012
    summary: str = ""


class InfraValidation(Artifact):
    """Whether a model, as the server serves it, may be pushed. `passed`: it answers, as the bundle itself predicts."""

    passed: bool = False
    summary: str = ""


class PushedModel(Artifact):
    """The receipt of a model that was pushed: where to, as which version, with which digest.

    Attributes:
        destination: As it was written: a URL, or a folder, relative to the one that the root lies in.
        folder: The folder that it meant then, absolute; "" behind a URL.
        bundle: The digest that its manifest is sealed by, which servers name in their answers; "" where it has none.
        server: The server that was asked to serve it; "" where none was.
        serving: What came of it there: `model`, the versions `before` and `after`, `load_seconds`, and `steps` with the
            figures of each.
    """

    destination: str = ""
    folder: str = ""
    version: int = 0
    digest: str = ""
    bundle: str = ""
    server: str = ""
    serving: dict[str, object] = {}  # noqa: RUF012  # a declaration: every artifact gets its own copy
