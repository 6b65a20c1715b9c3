"""How a query of the compiled form is answered from what earlier runs made: one function for each strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from ...digest import canonical_json
from ...errors import InputError
from ...metadata import ArtifactRecord
from ..ir.ir import Json, Query
from . import windows
from .answers import Answers
from .history import History
from .windows import Absent, Spanned


@dataclass(frozen=True)
class BoundQuery:
    """A query at the moment that it is asked.

    Attributes:
        query: The query.
        arguments: Its arguments' values.
        own: What this run made that it is chosen for.
        output: The key of the outputs it is about; any where empty.
        taken: Fingerprints of what the component gets anyway.
        candidates: Fingerprints of the models that are judged.
    """

    query: Query
    arguments: Mapping[str, Json]
    own: Sequence[ArtifactRecord] = ()
    output: str = ""
    taken: frozenset[str] = frozenset()
    candidates: frozenset[str] = frozenset()

    @property
    def question(self) -> Json:
        """All that the answer depends on, but for the history."""
        return [
            self.query.to_json(),
            dict(self.arguments),
            [record.uid for record in self.own],
            sorted(self.taken) if self.query.strategy in _NEVER_TAKEN else [],
            sorted(self.candidates) if self.query.strategy == "latest_blessed" else [],
        ]


Strategy: TypeAlias = Callable[[History, BoundQuery], Sequence[ArtifactRecord]]


def choose(past: History, answers: Answers, asked: BoundQuery) -> list[ArtifactRecord]:
    """The artifacts that a query finds; the same for the whole run, whatever is published meanwhile.

    Raises:
        Absent: There are fewer than it needs.
        InputError: What this run was given first has been deleted since, or an argument makes no sense.
    """
    whose = replace(past, pipeline=asked.arguments.get("pipeline", past.pipeline))

    def ask() -> Json:
        try:
            return {"uids": [record.uid for record in STRATEGIES[asked.query.strategy](whose, asked)]}
        except Absent as absent:
            return {"absent": absent.message}

    answer = answers.once(asked.question, ask)
    if "absent" in answer:
        raise Absent(f"{asked.query}: {answer['absent']}")
    records = [past.store.artifact(uid) for uid in answer["uids"]]
    for record in records:
        if record.state != "LIVE":
            raise InputError(
                f"{record.uri}, which {asked.query} gave this run, has been deleted since",
                fix="start a new run, which chooses again",
            )
    return records


def _latest(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    """The newest n that the component does not get anyway; by their making, or by span and version."""
    count = asked.arguments.get("count")
    windows.at_least("count", 1 if count is None else count, 1)
    found = _each_once(record for record in _history(past, asked) if record.fingerprint not in asked.taken)
    if asked.arguments.get("by") == "version":
        dated = windows.latest_version(_dated(reversed(list(found))), count or 1)
        return [one.item for one in dated]
    return list(islice(found, count or 1))


def _artifact(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    """The newest n with the properties that are wanted."""
    count = asked.arguments.get("count")
    windows.at_least("count", 1 if count is None else count, 1)
    tests = [tuple(test) for test in asked.arguments.get("where", [])]
    equal = {name: value for name, sign, value in tests if sign == "=="}
    found = past.made(asked.query.type, asked.query.made_by, where=equal)
    others = [test for test in tests if test[1] != "=="]
    return list(islice((one for one in found if all(_meets(one, *test) for test in others)), count or 1))


def _latest_blessed(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    for blessing in past.made("Evaluation", where={"blessed": True}):
        for model in past.judged(blessing):
            if model.fingerprint not in asked.candidates:
                return [model]
    return []


def _latest_model(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    """The newest model that was made, blessed or pushed, as the policy says."""
    policy, kind = asked.arguments["policy"], asked.query.type
    if policy == "exported":
        vouched: Iterator[ArtifactRecord] = past.made(kind, asked.query.made_by)
    else:
        verdicts = past.made("PushedModel") if policy == "pushed" else past.made("Evaluation", where={"blessed": True})
        by_id = {model.id: model for verdict in verdicts for model in past.judged(verdict) if model.type == kind}
        vouched = (by_id[number] for number in sorted(by_id, reverse=True))
    return list(islice((model for model in vouched if model.fingerprint not in asked.taken), 1))


def _not_trained_on(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    """The newest model none of whose ancestors is of the examples' span, or holds the same rows."""
    spans = {(record.type, record.properties.get("span")) for record in asked.own}
    contents = {record.fingerprint for record in asked.own}
    for model in past.made(asked.query.type, asked.query.made_by):
        if not any(
            (one.type, one.properties.get("span")) in spans or one.fingerprint in contents
            for one in past.ancestors(model)
        ):
            return [model]
    return []


def _rolling(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    return [one.item for one in windows.rolling_range(_up_to_now(past, asked), **_given(asked))]


def _static_range(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    return [one.item for one in windows.static_range(_up_to_now(past, asked), **_given(asked))]


def _all_spans(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    return [one.item for one in windows.all_spans(_up_to_now(past, asked), **_given(asked))]


def _previous(past: History, asked: BoundQuery) -> list[ArtifactRecord]:
    return [one.item for one in windows.all_spans(_before(past, asked))[-1:]]


def _up_to_now(past: History, asked: BoundQuery) -> list[Spanned[ArtifactRecord]]:
    """What there is of each span, oldest first.

    For outputs of this run: these, and of the spans before the last of them what earlier runs made.
    """
    if asked.arguments.get("before"):
        return _before(past, asked)
    earlier = _dated(reversed(list(_each_once(_history(past, asked)))))
    if asked.query.of is None:
        return earlier
    own = _dated(asked.own)
    mine = {one.span for one in own}
    last = max(mine, default=-1)
    return [one for one in earlier if one.span < last and one.span not in mine] + own


def _before(past: History, asked: BoundQuery) -> list[Spanned[ArtifactRecord]]:
    """What earlier runs made of the spans before the first of this run's outputs, oldest first."""
    first = min((one.span for one in _dated(asked.own)), default=0)
    return [one for one in _dated(reversed(list(_each_once(_history(past, asked))))) if one.span < first]


def _history(past: History, asked: BoundQuery) -> Iterator[ArtifactRecord]:
    if asked.arguments.get("passed") or asked.query.strategy == "latest_passed":
        return past.passed(asked.query.type, asked.query.made_by, output=asked.output)
    return past.made(asked.query.type, asked.query.made_by, output=asked.output)


def _given(asked: BoundQuery) -> dict[str, Any]:
    """The arguments of a window's function."""
    return {name: value for name, value in asked.arguments.items() if name not in ("passed", "before")}


def _dated(records: Iterator[ArtifactRecord] | Sequence[ArtifactRecord]) -> list[Spanned[ArtifactRecord]]:
    return [Spanned(one.properties.get("span") or 0, one.properties.get("version"), one) for one in records]


def _each_once(records: Iterator[ArtifactRecord]) -> Iterator[ArtifactRecord]:
    seen: set[str] = set()
    for record in records:
        if record.uid not in seen:
            seen.add(record.uid)
            yield record


_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {  # Any: JSON values
    "!=": lambda left, right: canonical_json(left) != canonical_json(right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
    "in": lambda left, right: canonical_json(left) in [canonical_json(one) for one in right],
}


def _meets(record: ArtifactRecord, name: str, sign: str, value: Json) -> bool:
    """Whether a property is what is wanted; one that is not set, or null, is only ever != to something."""
    held = record.properties.get(name)
    if held is None and sign not in ("!=", "in"):
        return False
    try:
        return _COMPARED[sign](held, value)
    except TypeError:
        raise InputError(
            f"{record.type}.{name} is {held!r:.40}, which is not compared by {sign} with {value!r:.40}",
            fix="compare it with a value of its type",
        ) from None


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "latest": _latest,
    "latest_passed": _latest,
    "latest_blessed": _latest_blessed,
    "latest_model": _latest_model,
    "artifact": _artifact,
    "newest_model_not_trained_on": _not_trained_on,
    "previous": _previous,
    "rolling": _rolling,
    "static_range": _static_range,
    "all_spans": _all_spans,
}
_NEVER_TAKEN: Final = ("latest", "latest_passed", "latest_model")
