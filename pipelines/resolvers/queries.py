"""What a pipeline takes from history: the newest of a type, by property, windows over spans, models by what they saw.

All of it is chosen when the node is launched, from what earlier runs of the pipeline made, and once for the whole run:
what another run publishes meanwhile, or this one, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from ...errors import BuildError, InputError
from ...metadata import Artifact, Model
from ..dsl.handles import Handle, QueryHandle, operand
from ..dsl.hints import is_artifact
from ..ir.ir import Edge, Query
from ..project.functions import user_line

T = TypeVar("T", bound=Artifact)

Policy: TypeAlias = Literal["exported", "blessed", "pushed"]

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in")


@overload
def latest(
    kind: type[T],
    *,
    node: str | None = None,
    passed: bool = False,
    by: Literal["created", "version"] = "created",
    pipeline: str | None = None,
    count: None = None,
) -> T | None: ...
@overload
def latest(
    kind: type[T],
    *,
    node: str | None = None,
    passed: bool = False,
    by: Literal["created", "version"] = "created",
    pipeline: str | None = None,
    count: int,
) -> list[T]: ...
def latest(
    kind: type[T],
    *,
    node: str | None = None,
    passed: bool = False,
    by: Literal["created", "version"] = "created",
    pipeline: str | None = None,
    count: int | None = None,
) -> T | list[T] | None:
    """The newest live artifact of a type that an earlier run of this pipeline made; None where there is none yet.

    Never one that the component already gets by another input: of its statistics, `DistributionValidator` is given
    those of other data, so a second run on the same data finds the same ones as the first, and is a cache hit.

    Args:
        kind: Its type.
        node: The id of the node that made it; any where None. Name it where several nodes make artifacts of the type.
        passed: Only of runs that ended COMPLETE, in which no gate objected to anything and nothing failed.
        by: What "newest" means: made last, or of the largest span and its largest version.
        pipeline: Of runs of this pipeline, by its name, instead of the one that asks; they are in the same store.
        count: So many of them, the newest first, as a list; fewer where there are fewer.

    Raises:
        BuildError: By version, of a type that has no span; or a count less than 1.
    """
    arguments: dict[str, object] = _of_another("dt.latest", pipeline)
    if by != "created":
        if by != "version":
            raise BuildError(f"dt.latest: by={by!r}", where=user_line(), fix='say "created" or "version"')
        _spanned("dt.latest", kind)
        arguments["by"] = by
    if count is not None:
        arguments["count"] = _at_least("dt.latest", "count", count, 1)
    query = _query("latest_passed" if passed else "latest", kind, node, arguments)
    return cast("T | None", QueryHandle(query, many=count is not None))


def latest_blessed() -> Any:  # Any: the type is the input's it is given to
    """The newest blessed model of earlier runs whose fingerprint is not the candidate's; None where there is none.

    So a second identical run finds the same baseline as the first, and is a cache hit. The candidate, and the model
    that an `Evaluation` blessed, is the input called "model" of the component that made it.
    """
    return QueryHandle(Query("latest_blessed", "Model"))


@overload
def latest_model(policy: Policy, *, pipeline: str | None = None) -> Model | None: ...
@overload
def latest_model(policy: Policy, *, kind: type[T], pipeline: str | None = None) -> T | None: ...
def latest_model(policy: Policy, *, kind: type[Artifact] = Model, pipeline: str | None = None) -> Artifact | None:
    """The newest model of earlier runs that came so far; None where there is none.

    As of `latest`, never one that the component already gets by another input.

    Args:
        policy: "exported": it was made; "blessed": an `Evaluation` of it, by the input "model", was; "pushed": there is
            a `PushedModel` of it.
        kind: The model's type.
        pipeline: As of `latest`: `dt.resolvers.latest_model("blessed", pipeline="flights")` where that trains.

    Raises:
        BuildError: There is no such policy.
    """
    if policy not in ("exported", "blessed", "pushed"):
        raise BuildError(
            f"dt.resolvers.latest_model: there is no policy {policy!r}",
            where=user_line(),
            fix="say exported, blessed or pushed",
        )
    arguments = {"policy": policy, **_of_another("dt.resolvers.latest_model", pipeline)}
    return cast("Artifact | None", QueryHandle(_query("latest_model", kind, None, arguments)))


@overload
def newest_model_not_trained_on(examples: Artifact, *, node: str | None = None) -> Model | None: ...
@overload
def newest_model_not_trained_on(examples: Artifact, *, kind: type[T], node: str | None = None) -> T | None: ...
def newest_model_not_trained_on(
    examples: Artifact, *, kind: type[Artifact] = Model, node: str | None = None
) -> Artifact | None:
    """The newest model of earlier runs that has never seen this span; None where there is none.

    Its lineage is walked to the first ancestors: one that is of the type and the span of `examples`, whichever version,
    or that holds the same rows, rules the model out. What only an `AnalyzerCache` saw does not: it changes no result.

    Args:
        examples: What the model is to be judged on: an output of this pipeline.
        kind: The model's type.
        node: The id of the node that made it; any where None.

    Raises:
        BuildError: It is not an output, or is of a type that has no span.
    """
    of = output_of("dt.resolvers.newest_model_not_trained_on", examples)
    _spanned("dt.resolvers.newest_model_not_trained_on", of._type)
    query = _query("newest_model_not_trained_on", kind, node, {}, of)
    return cast("Artifact | None", QueryHandle(query, collected=of._collected))


@overload
def artifact(
    kind: type[T],
    *,
    where: Mapping[str, object],
    node: str | None = None,
    pipeline: str | None = None,
    count: None = None,
) -> T | None: ...
@overload
def artifact(
    kind: type[T], *, where: Mapping[str, object], node: str | None = None, pipeline: str | None = None, count: int
) -> list[T]: ...
def artifact(
    kind: type[T],
    *,
    where: Mapping[str, object],
    node: str | None = None,
    pipeline: str | None = None,
    count: int | None = None,
) -> T | list[T] | None:
    """The newest live artifact of earlier runs with these properties; None where there is none.

    Example: `dt.artifact(Evaluation, where={"blessed": True})`, `dt.artifact(Examples, where={"span": (">=", first)})`,
    `dt.artifact(Evaluation, where={"metrics.auc": (">=", 0.8)})`.

    Args:
        kind: Its type.
        where: Property -> value that it equals, or a pair of an operator (`==`, `!=`, `<`, `<=`, `>`, `>=`, `in`) and a
            value; a value may be a parameter of the pipeline or another scalar of the run. Equal is equal JSON: `True`
            is not `1`. A property that is null is `!=` to everything and otherwise never what is wanted. After a dot
            stands an entry of a property that is a mapping. `metrics.NAME` of a type without that property is what the
            component that made the artifact recorded by `current().metric`.
        node: The id of the node that made it; any where None.
        pipeline: As of `latest`.
        count: So many of them, the newest first, as a list; fewer where there are fewer.

    Raises:
        BuildError: The type declares no such property, or there is no such operator.
    """
    tests: list[object] = []
    for name, wanted in where.items():
        _check_asked(kind, name)
        sign, value = wanted if isinstance(wanted, tuple) and len(wanted) == 2 else ("==", wanted)
        if sign not in OPERATORS:
            raise BuildError(
                f"dt.artifact: {name!r} is compared by {sign!r:.40}",
                where=user_line(),
                fix=f"write e.g. ('>=', 3), with one of {', '.join(OPERATORS)}",
            )
        if sign == "in" and isinstance(value, str):
            raise BuildError(f"dt.artifact: {name!r} in {value!r:.40}", where=user_line(), fix="give a list")
        tests.append([name, sign, value])
    arguments: dict[str, object] = {"where": tests, **_of_another("dt.artifact", pipeline)}
    if count is not None:
        arguments["count"] = _at_least("dt.artifact", "count", count, 1)
    return cast("T | None", QueryHandle(_query("artifact", kind, node, arguments), many=count is not None))


def _check_asked(kind: type[Artifact], name: str) -> None:
    """Check that artifacts of a type may have what `dt.artifact` asks for: a property, or an entry of one."""
    first, dot, _ = name.partition(".")
    if dot and first == "metrics" and first not in kind.declared():
        return  # those of the execution that made it
    declares("dt.artifact", kind, first if dot else name)
    if dot and not isinstance(kind.declared()[first], (Mapping, type(None))):
        raise BuildError(
            f"dt.artifact: {kind.__name__}.{first} is not a mapping, and has no entry {name!r:.60}",
            where=user_line(),
            fix=f"ask for {first!r}",
        )


@overload
def registered(name: str) -> Model: ...
@overload
def registered(name: str, *, kind: type[T]) -> T: ...
def registered(name: str, *, kind: type[Artifact] = Model) -> Artifact:
    """The version of a registered model that a name stands for, as it was when the run began.

    `Evaluator(examples, model, baseline=dt.registered("flights@champion"))`, `BulkInferrer(examples,
    [dt.registered("flights@3")])`. The model may come from any pipeline of the store. An input that may be None gets
    None where there is no such model, version or alias; another one is an error there.

    Args:
        name: "flights@champion" by an alias, "flights@3" by a version, "flights" for the newest version.
        kind: The model's type.

    Raises:
        BuildError: It is no such name.
    """
    from ...metadata.registry import split_reference  # late: few pipelines ask for one

    try:
        split_reference(name)
    except (InputError, AttributeError) as error:
        cause = error.message if isinstance(error, InputError) else f"{name!r:.80} is not text"
        raise BuildError(
            f"dt.registered: {cause}", where=user_line(), fix='write "flights", "flights@champion" or "flights@3"'
        ) from None
    return cast("Artifact", QueryHandle(_query("registered", kind, None, {"name": name})))


def previous(what: T, *, passed: bool | None = None) -> T | None:
    """What earlier runs made, by the same node, of the last span before this output's; None where there is none.

    Of that span the newest version. `ExampleValidator(..., previous=dt.resolvers.previous(statistics))` compares a
    month with the one before it, in a run on an old month too; `dt.latest` is what was made last.

    Args:
        what: An output.
        passed: As of `rolling`.

    Raises:
        BuildError: It is not an output, or is of a type that has no span.
    """
    of = output_of("dt.resolvers.previous", what)
    _spanned("dt.resolvers.previous", of._type)
    query = _query("previous", of._type, of._node, _passed(passed), of)
    return cast("T | None", QueryHandle(query, collected=of._collected))


def rolling(
    what: T | type[T] | list[T],
    n: int,
    *,
    start: int = 0,
    skip: int = 0,
    exclude: Sequence[int] = (),
    min_spans: int | None = None,
    keep_all_versions: bool = False,
    before: bool = False,
    node: str | None = None,
    passed: bool | None = None,
) -> list[T]:
    """The last n spans, ascending: `Trainer(dt.resolvers.rolling(examples, 3))`, which takes `list[Examples]`.

    Given an output: this run's, and what earlier runs of its node made of the spans before it, of each the newest
    version. Never of later spans, so that a run on an old month finds what its first run found. Given a type: history
    alone.

    Args:
        what: An output, the list of outputs of a `dt.map_`, or a type.
        n: How many spans.
        start: Earlier spans do not count.
        skip: So many of the newest spans are passed over.
        exclude: Spans that are left out.
        min_spans: How many there must be, else the node is skipped: n where None; 1 for as many as there are, 0 where
            an empty list will do.
        keep_all_versions: Whether all versions of a span are taken.
        before: Given an output: only the spans before its own, e.g. for the `history` of `Transform`.
        node: Given a type: the id of the node that made them; any where None.
        passed: Which artifacts of earlier runs count. None: all that no gate of this pipeline vetoed when it last
            judged them, or what of their span they were made of. True: only those of runs that ended COMPLETE. False:
            all.

    Raises:
        BuildError: It is neither an output nor a type that has a span, or a number makes no sense.
    """
    name = "dt.resolvers.rolling"
    arguments: dict[str, object] = {
        "n": _at_least(name, "n", n, 1),
        "start": start,
        "skip": _at_least(name, "skip", skip, 0),
        "exclude": exclude,
        "min_spans": min_spans,
        "keep_all_versions": keep_all_versions,
        "before": before,
    }
    if before and isinstance(what, type):
        raise BuildError(f"{name}: a type has no span to be before", where=user_line(), fix="give an output")
    return _window(name, "rolling", what, node, passed, arguments)


def static_range(
    what: T | type[T] | list[T],
    start: int | None = None,
    end: int | None = None,
    *,
    exclude: Sequence[int] = (),
    min_spans: int | None = None,
    keep_all_versions: bool = False,
    node: str | None = None,
    passed: bool | None = None,
) -> list[T]:
    """The spans from `start` to `end`, both included, ascending; of each the newest version. See `rolling`.

    Args:
        what: An output (then never of later spans than its own), the list of a `dt.map_`, or a type.
        start: The first span; any where None.
        end: The last span; any where None.
        exclude: Spans that are left out.
        min_spans: How many there must be, else the node is skipped: where None, every one of the range that is not
            excluded, and 1 where the range has an open end.
        keep_all_versions: Whether all versions of a span are taken.
        node: Given a type: the id of the node that made them; any where None.
        passed: As of `rolling`.

    Raises:
        BuildError: It is neither an output nor a type that has a span.
    """
    arguments: dict[str, object] = {
        "start": start,
        "end": end,
        "exclude": exclude,
        "min_spans": min_spans,
        "keep_all_versions": keep_all_versions,
    }
    return _window("dt.resolvers.static_range", "static_range", what, node, passed, arguments)


def all_spans(
    what: T | type[T] | list[T],
    *,
    keep_all_versions: bool = False,
    node: str | None = None,
    passed: bool | None = None,
) -> list[T]:
    """Every span there is, ascending, of each the newest version; an empty list where there is none. See `rolling`.

    Args:
        what: An output (then never of later spans than its own), the list of a `dt.map_`, or a type.
        keep_all_versions: Whether all versions of a span are taken.
        node: Given a type: the id of the node that made them; any where None.
        passed: As of `rolling`.

    Raises:
        BuildError: It is neither an output nor a type that has a span.
    """
    arguments = {"keep_all_versions": keep_all_versions}
    return _window("dt.resolvers.all_spans", "all_spans", what, node, passed, arguments)


def _window(
    name: str, strategy: str, what: object, node: str | None, passed: bool | None, arguments: Mapping[str, object]
) -> list[Any]:
    if isinstance(what, type) and issubclass(what, Artifact):
        _spanned(name, what)
        return cast("list[Any]", QueryHandle(_query(strategy, what, node, {**arguments, **_passed(passed)}), many=True))
    handle = output_of(name, what)
    _spanned(name, handle._type)
    if node is not None:
        raise BuildError(
            f"{name}: node= is for a type; {handle!r} says itself which node it is of",
            where=user_line(),
            fix="leave one of them out",
        )
    query = _query(strategy, handle._type, handle._node, {**arguments, **_passed(passed)}, handle)
    return cast("list[Any]", QueryHandle(query, many=True, collected=handle._collected))


def _passed(passed: bool | None) -> dict[str, object]:
    """What a query says of `passed`; nothing where it is None."""
    return {} if passed is None else {"passed": True} if passed else {"vetoed": True}


def _query(
    strategy: str, kind: type[Artifact], node: str | None, arguments: Mapping[str, object], of: Handle | None = None
) -> Query:
    if not is_artifact(kind):
        raise BuildError(
            f"{kind!r:.60} is not an artifact type", where=user_line(), fix="give the class, e.g. `dt.latest(Model)`"
        )
    edge = None if of is None else Edge(of._node, of._output)
    # Arguments at their defaults are left out, so that one which a later release adds changes neither the IR nor the
    # question under which a run's answer is recorded.
    pairs = tuple(
        (name, operand(list(value) if isinstance(value, range) else value))
        for name, value in arguments.items()
        if not (value is None or value is False or (isinstance(value, (list, tuple)) and not value))
    )
    return Query(strategy, kind.__name__, node or "", pairs, edge)


def _of_another(name: str, pipeline: object) -> dict[str, object]:
    """The argument of a query that names another pipeline; none where it asks its own."""
    if pipeline is None:
        return {}
    if not isinstance(pipeline, str) or not pipeline:
        raise BuildError(f"{name}: pipeline is {pipeline!r:.40}", where=user_line(), fix="give its name, as text")
    return {"pipeline": pipeline}


def output_of(name: str, what: object) -> Handle:
    """The output that is given, by itself or as the only one with a span of a node with several.

    Raises:
        BuildError: It is not a component's output.
    """
    # A NamedTuple is what a component with several outputs returned; any other tuple is the user's, and refused below.
    if isinstance(what, tuple) and hasattr(what, "_fields"):
        fitting = [output for output in what if isinstance(output, Handle) and "span" in output._type.declared()]
        what = fitting[0] if len(fitting) == 1 else what
    if not isinstance(what, Handle):
        raise BuildError(
            f"{name} takes a component's output or an artifact type, not {what!r:.60}",
            where=user_line(),
            fix="give e.g. the output of ExampleGen, or Examples with node=",
        )
    return what


def _spanned(name: str, kind: type[Artifact]) -> None:
    declares(name, kind, "span")


def declares(name: str, kind: type[Artifact], wanted: str) -> None:
    """Check that artifacts of a type have a property.

    Raises:
        BuildError: They do not.
    """
    if wanted not in kind.declared():
        raise BuildError(
            f"{name}: {kind.__name__} has no property {wanted!r}",
            where=user_line(),
            fix=f"it has {', '.join(kind.declared()) or 'none'}",
        )


def _at_least(name: str, what: str, value: object, least: int) -> object:
    """A whole number that is large enough, or a symbolic one, which is checked when the pipeline runs."""
    if isinstance(value, (int, float, str, type(None))) and (
        not isinstance(value, int) or isinstance(value, bool) or value < least
    ):
        raise BuildError(
            f"{name}: {what} is {value!r:.40}", where=user_line(), fix=f"give a whole number, {least} or more"
        )
    return value
