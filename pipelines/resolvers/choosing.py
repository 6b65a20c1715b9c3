"""How a query of the IR is answered from what earlier runs made: one function for each strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from ...digest import canonical_json
from ...errors import InputError
from ...metadata import ArtifactRecord, NotFound
from ..ir.ir import Json, Query
from . import windows
from .answers import Answers
from .history import History
from .windows import Absent, Spanned


class BoundQuery(NamedTuple):
    """A query whose arguments have values, and what else its answer depends on.

    Attributes:
        query: The query.
        arguments: Its arguments' values.
        this_run: What this run made that it is chosen for.
        output: The key of the outputs it is about; any where empty.
        taken: Fingerprints of what the component gets by its other inputs.
        candidates: Fingerprints of the models that are judged.
    """

    query: Query
    arguments: Mapping[str, Json]
    this_run: Sequence[ArtifactRecord] = ()
    output: str = ""
    taken: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()

    @property
    def question(self) -> Json:
        """All that the answer depends on except the history, as JSON: the key under which it is recorded."""
        # Only what the strategy looks at: other inputs may differ after a retry upstream, and must not make this a new
        # question, which might get another answer.
        return [
            self.query.to_json(),
            dict(self.arguments),
            [record.uid for record in self.this_run],
            sorted(self.taken) if self.query.strategy in _NEVER_TAKEN else [],
            sorted(self.candidates) if self.query.strategy == "latest_blessed" else [],
        ]


Strategy: TypeAlias = Callable[[History, BoundQuery], Sequence[ArtifactRecord]]


def choose(
    history: History, answers: Answers, bound: BoundQuery, note: Callable[[str], None] = lambda _: None
) -> list[ArtifactRecord]:
    """The artifacts that a query finds; the same for the whole run, whatever is published meanwhile.

    Args:
        history: What there is.
        answers: What this run was answered already.
        bound: The query.
        note: Hears what was left out because a gate had vetoed it.

    Raises:
        Absent: There are fewer than it needs.
        InputError: What this run was given first has been deleted since, or an argument makes no sense.
    """
    whose = history._replace(pipeline=bound.arguments.get("pipeline", history.pipeline))

    def ask() -> Json:
        try:
            records, left_out = _without_vetoed(whose, bound)
        except Absent as absent:
            return {"absent": absent.message}
        answer = {"uids": [record.uid for record in records]}
        return {**answer, "vetoed": left_out} if left_out else answer

    answer = answers.once(bound.question, ask)
    if "absent" in answer:
        raise Absent(f"{bound.query}: {answer['absent']}")
    if "vetoed" in answer:
        note(f"{bound.query} leaves out what a gate vetoed: span {', '.join(map(str, answer['vetoed']))}")
    records = [history.store.artifact(uid) for uid in answer["uids"]]
    for record in records:
        if record.state != "LIVE":
            raise InputError(
                f"{record.uri}, which {bound.query} gave this run, has been deleted since",
                fix="start a new run, which chooses again",
            )
    return records


def _without_vetoed(history: History, bound: BoundQuery) -> tuple[Sequence[ArtifactRecord], list[int]]:
    """What a query finds, and the spans for which it would find more, or others, if no gate had vetoed them."""
    strategy = STRATEGIES[bound.query.strategy]
    if strategy not in _WINDOWS or not history.gates or not _heeds_gates(bound):
        return strategy(history, bound), []
    # First as if no gate had objected: only what is chosen then is looked up, not each artifact that there ever was.
    everything = strategy(history, bound._replace(arguments={**bound.arguments, "vetoed": True}))
    vetoed = [each for each in everything if each not in bound.this_run and history.vetoed(each)]
    if not vetoed:
        return everything, []
    spans = sorted({spanned.span for spanned in _dated(vetoed)})
    try:
        return strategy(history, bound), spans
    except Absent as absent:
        raise Absent(f"{absent.message}; a gate vetoed {', '.join(map(str, spans))}") from None


def _heeds_gates(bound: BoundQuery) -> bool:
    """Whether what a gate vetoed is left out; of runs that ended COMPLETE there is no such thing."""
    return not bound.arguments.get("vetoed") and not bound.arguments.get("passed")


def _latest(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    """The newest n, by creation or by span and version, without what the component gets by its other inputs."""
    count = bound.arguments.get("count")
    windows.at_least("count", 1 if count is None else count, 1)
    candidates = _each_once(record for record in _history(history, bound) if record.fingerprint not in bound.taken)
    if bound.arguments.get("by") == "version":
        return _records(windows.latest_version(_dated(reversed(list(candidates))), count or 1))
    return list(islice(candidates, count or 1))


def _artifact(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    """The newest n with the properties that are wanted."""
    count = bound.arguments.get("count")
    windows.at_least("count", 1 if count is None else count, 1)
    # What is equal to a whole property the database looks up; entries of properties and other comparisons are tested
    # here, newest first, and only until there are enough.
    tests = [tuple(test) for test in bound.arguments.get("where", [])]
    equal = {name: value for name, sign, value in tests if sign == "==" and "." not in name}
    candidates = history.artifacts(bound.query.type, bound.query.made_by, where=equal)
    others = [test for test in tests if test[0] not in equal or test[1] != "=="]
    fitting = (record for record in candidates if all(_meets(history, record, *test) for test in others))
    return list(islice(fitting, count or 1))


def _latest_blessed(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    for blessing in history.artifacts("Evaluation", where={"blessed": True}):
        for model in history.judged(blessing):
            if model.fingerprint not in bound.candidates:
                return [model]
    return []


def _latest_model(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    """The newest model that was made, blessed or pushed, as the policy says."""
    policy, kind = bound.arguments["policy"], bound.query.type
    if policy == "exported":
        vouched: Iterator[ArtifactRecord] = history.artifacts(kind, bound.query.made_by)
    else:
        type_, properties = ("PushedModel", None) if policy == "pushed" else ("Evaluation", {"blessed": True})
        verdicts = history.artifacts(type_, where=properties)
        # The model that was made last, which is not always the one that was blessed or pushed last.
        by_id = {model.id: model for verdict in verdicts for model in history.judged(verdict) if model.type == kind}
        vouched = (by_id[number] for number in sorted(by_id, reverse=True))
    return list(islice((model for model in vouched if model.fingerprint not in bound.taken), 1))


def _registered(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    """The version that a name stood for when the run began."""
    from ...metadata.registry import Registry  # late: few runs ask for one

    registry, name = Registry(history.store), bound.arguments["name"]
    try:
        record = registry.artifact(registry.resolve(name, before=history.run))
    except NotFound as error:
        if bound.arguments.get("required"):
            raise InputError(
                f"{bound.query}: {error.message}, when run {history.run.name} began",
                fix=("register one (`drivetrain registry`), and run the pipeline again"),
            ) from None
        return []
    if record.type != bound.query.type:
        raise InputError(f"{name} is of type {record.type}, not {bound.query.type}", fix=f"kind={record.type}")
    if record.state != "LIVE" or not history.present(record.uri):
        raise InputError(f"{name} is no longer there: {record.uri}", fix="have it stand for another version")
    return [record]


def _not_trained_on(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    """The newest model none of whose ancestors is of the examples' span, or holds the same rows."""
    spans = {(record.type, record.properties.get("span")) for record in bound.this_run}
    contents = {record.fingerprint for record in bound.this_run}
    for model in history.artifacts(bound.query.type, bound.query.made_by):
        if not any(
            (ancestor.type, ancestor.properties.get("span")) in spans or ancestor.fingerprint in contents
            for ancestor in history.ancestors(model)
        ):
            return [model]
    return []


def _rolling(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    return _records(windows.rolling_range(_up_to_now(history, bound), **_window_arguments(bound)))


def _static_range(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    return _records(windows.static_range(_up_to_now(history, bound), **_window_arguments(bound)))


def _all_spans(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    return _records(windows.all_spans(_up_to_now(history, bound), **_window_arguments(bound)))


def _previous(history: History, bound: BoundQuery) -> list[ArtifactRecord]:
    return _records(windows.all_spans(_before(history, bound))[-1:])


def _up_to_now(history: History, bound: BoundQuery) -> list[Spanned[ArtifactRecord]]:
    """What there is of each span, oldest first.

    For outputs of this run: these, and of the spans before the last of them what earlier runs made.
    """
    if bound.arguments.get("before"):
        return _before(history, bound)
    earlier = _dated(reversed(list(_each_once(_history(history, bound)))))
    if bound.query.of is None:
        return earlier
    # Of its own spans only what this run made, which may be a new version; and nothing later than the last of them, so
    # that a run on an old month finds what its first run found.
    outputs = _dated(bound.this_run)
    spans = {output.span for output in outputs}
    last = max(spans, default=-1)
    return [spanned for spanned in earlier if spanned.span < last and spanned.span not in spans] + outputs


def _before(history: History, bound: BoundQuery) -> list[Spanned[ArtifactRecord]]:
    """What earlier runs made of the spans before the first of this run's outputs, oldest first."""
    first = min((output.span for output in _dated(bound.this_run)), default=0)
    earlier = _dated(reversed(list(_each_once(_history(history, bound)))))
    return [spanned for spanned in earlier if spanned.span < first]


def _history(history: History, bound: BoundQuery) -> Iterator[ArtifactRecord]:
    if bound.arguments.get("passed") or bound.query.strategy == "latest_passed":
        return history.passed(bound.query.type, bound.query.made_by, output=bound.output)
    records = history.artifacts(bound.query.type, bound.query.made_by, output=bound.output)
    if STRATEGIES[bound.query.strategy] in _WINDOWS and _heeds_gates(bound):
        return (record for record in records if not history.vetoed(record))
    return records


def _window_arguments(bound: BoundQuery) -> dict[str, Any]:
    """The arguments of a window's function."""
    return {name: value for name, value in bound.arguments.items() if name not in ("passed", "vetoed", "before")}


def _records(window: Sequence[Spanned[ArtifactRecord]]) -> list[ArtifactRecord]:
    return [spanned.item for spanned in window]


def _dated(records: Iterator[ArtifactRecord] | Sequence[ArtifactRecord]) -> list[Spanned[ArtifactRecord]]:
    return [Spanned(record.properties.get("span") or 0, record.properties.get("version"), record) for record in records]


def _each_once(records: Iterator[ArtifactRecord]) -> Iterator[ArtifactRecord]:
    seen: set[str] = set()
    for record in records:
        if record.uid not in seen:
            seen.add(record.uid)
            yield record


_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {  # Any: JSON values
    "==": lambda left, right: canonical_json(left) == canonical_json(right),
    "!=": lambda left, right: canonical_json(left) != canonical_json(right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
    "in": lambda left, right: canonical_json(left) in [canonical_json(member) for member in right],
}


def _meets(history: History, record: ArtifactRecord, name: str, sign: str, value: Json) -> bool:
    """Whether a property passes a test. One that is unset or null is != to everything, and passes no other test."""
    held = _held(history, record, name)
    if held is None and sign not in ("!=", "in"):
        return False
    try:
        return _COMPARED[sign](held, value)
    except TypeError:
        raise InputError(
            f"{record.type}.{name} is {held!r:.40}, which is not compared by {sign} with {value!r:.40}",
            fix="compare it with a value of its type",
        ) from None


def _held(history: History, record: ArtifactRecord, name: str) -> Json:
    """A property; after a dot, an entry of it. Metrics of an artifact without any are its execution's."""
    name, _, entry = name.partition(".")
    value = record.properties.get(name)
    if not entry:
        return value
    if name == "metrics" and name not in record.properties and record.producer is not None:
        value = history.store.execution(record.producer).properties.get(name)
    return value.get(entry) if isinstance(value, dict) else None


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "latest": _latest,
    "latest_passed": _latest,
    "latest_blessed": _latest_blessed,
    "latest_model": _latest_model,
    "artifact": _artifact,
    "newest_model_not_trained_on": _not_trained_on,
    "registered": _registered,
    "previous": _previous,
    "rolling": _rolling,
    "static_range": _static_range,
    "all_spans": _all_spans,
}
_WINDOWS: Final = (_previous, _rolling, _static_range, _all_spans)  # they leave out what a gate vetoed
_NEVER_TAKEN: Final = ("latest", "latest_passed", "latest_model")
