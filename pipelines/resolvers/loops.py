"""What `dt.map_` can go over: the spans of a pattern, windows of artifacts, pairs of them; the splits of examples.

Each is a node whose output is the list, so that it is recorded: every process of the run, and whoever resumes it, goes
over the same items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from ...digest import canonical_json
from ...errors import BuildError
from ...metadata import Artifact, Examples, Value, artifact_type
from ..dsl.builder import PipelineBuilder
from ..dsl.component import component, recorder
from ..dsl.control import unzip
from ..dsl.handles import Expression, Handle, QueryHandle, operand
from ..project.files import FileSet
from ..project.functions import user_line
from .queries import all_spans, declares, output_of
from .windows import Spanned, paired_spans, sequential_rolling_range, sliding_window
from .windows import all_spans as every_span

__all__ = ["paired", "sequential", "sliding", "spans", "splits", "unzip"]

T = TypeVar("T", bound=Artifact)


@component
def Spans(*, found: list[int]) -> list[int]:  # the parameter's name stands in stored pipelines and in cache keys
    """The spans that the files of a pattern have."""
    return found


@component
def Splits(*, rows: dict[str, int], exclude: list[str]) -> list[str]:
    """The names of the splits of examples."""
    return [split for split in sorted(rows) if split not in exclude]


# Not from the cache: these give uids, which differ between artifacts of equal content and may name deleted ones.
@component(deterministic=False)
def SlidingWindows(artifacts: list[Artifact], *, size: int, stride: int) -> Value:
    """Windows over artifacts of different spans."""
    return _lists(sliding_window(every_span(_spanned(artifacts)), size, stride=stride))


@component(deterministic=False)
def SequentialWindows(
    artifacts: list[Artifact], *, size: int, stride: int, start: int | None, skip: int, exclude: list[int]
) -> Value:
    """Windows over the spans that follow each other without a gap."""
    spanned = _spanned(artifacts)
    return _lists(sequential_rolling_range(spanned, size, start=start, skip=skip, exclude=exclude, stride=stride))


@component(deterministic=False)
def PairedSpans(
    first: list[Artifact], second: list[Artifact], *, names: list[str], match_version: bool, keep_all_versions: bool
) -> Value:
    """Artifacts of two kinds of the same span, by name."""
    named = dict(zip(names, (_spanned(first), _spanned(second)), strict=True))
    pairs = paired_spans(named, match_version=match_version, keep_all_versions=keep_all_versions)
    return _items(
        [{name: _uid(spanned) for name, spanned in pair.items()} for pair in pairs],
        [{name: _content(spanned) for name, spanned in pair.items()} for pair in pairs],
    )


def spans(pattern: str | Mapping[str, str], *, id: str = "") -> list[int]:  # noqa: A002 - as of components
    """The spans that are there when the run asks, ascending: `dt.map_(month, over=dt.loops.spans(pattern))`.

    Args:
        pattern: As of `dt.files`; or patterns by split: the spans that all of them have.
        id: The id of the node that finds them; where empty, what it is called, numbered from the second on.

    Returns:
        What stands for the list of them.

    Raises:
        BuildError: It is not a pattern.
    """
    patterns = list(pattern.values()) if isinstance(pattern, Mapping) else [pattern]
    for each in patterns:
        if isinstance(each, FileSet):
            raise BuildError(
                "dt.loops.spans takes the pattern itself", where=user_line(), fix="leave dt.files(...) out"
            )
    asked_for = Expression({"$spans": [operand(each) for each in patterns]}, list[int])
    return Spans.options(id=_id(id, "Spans", "dt.loops.spans"))(found=cast("list[int]", asked_for))


def splits(examples: Examples, *, exclude: Sequence[str] = (), id: str = "") -> list[str]:  # noqa: A002 - as of components
    """The names of the splits that examples have, for `dt.map_`: `lambda split: SchemaGen(statistics, split=split)`.

    Args:
        examples: An output, which need not be known by its splits while the pipeline is built.
        exclude: Splits that are left out.
        id: The id of the node that finds them; where empty, what it is called, numbered from the second on.

    Returns:
        What stands for the list of them, by name.

    Raises:
        BuildError: It is not an output that has splits.
    """
    node = _id(id, "Splits", "dt.loops.splits")
    output = output_of("dt.loops.splits", examples)
    declares("dt.loops.splits", output._type, "rows")
    if isinstance(exclude, str):
        raise BuildError(f"dt.loops.splits: exclude is {exclude!r:.40}", where=user_line(), fix="give a list")
    return Splits.options(id=node)(rows=cast("dict[str, int]", output.rows), exclude=list(exclude))


def sliding(
    what: T | type[T] | list[T],
    size: int,
    *,
    stride: int = 1,
    node: str | None = None,
    passed: bool | None = None,
    id: str = "",  # noqa: A002 - as of components
) -> list[list[T]]:
    """Windows of so many spans: `dt.map_(lambda window: Trainer(window), over=dt.loops.sliding(months, 3))`.

    Of A, B, C and D with `size=2`: AB, BC, CD. None is shorter; of each span the newest version is taken.

    Args:
        what: The list of outputs of a `dt.map_`, and nothing else; an output, with the spans of earlier runs before it;
            a type, of earlier runs; or another choice, such as `dt.resolvers.static_range(...)`.
        size: Spans in a window.
        stride: Spans between the begin of one window and the next.
        node: Given a type: the id of the node that made them; any where None.
        passed: As of `dt.resolvers.rolling`.
        id: The id of the node that finds them; where empty, what it is called, numbered from the second on.

    Returns:
        What stands for the list of windows; an item of it is an input that takes a list.
    """
    artifacts = _listed("dt.loops.sliding", what, node, passed, keep_all_versions=False)
    windows = SlidingWindows.options(id=_id(id, "Sliding", "dt.loops.sliding"), cache=False)(
        artifacts, size=size, stride=stride
    )
    return cast("list[list[T]]", Expression(operand(windows.value), list[list[str]]))


def sequential(
    what: T | type[T] | list[T],
    size: int,
    *,
    stride: int = 1,
    start: int | None = None,
    skip: int = 0,
    exclude: Sequence[int] = (),
    node: str | None = None,
    passed: bool | None = None,
    id: str = "",  # noqa: A002 - as of components
) -> list[list[T]]:
    """Windows, as of `sliding`, over the spans that follow each other without a gap, from the oldest on.

    Args:
        what: As of `sliding`.
        size: Spans in a window.
        stride: Spans between the begin of one window and the next.
        start: The first span; the smallest there is where None. What lies behind a gap does not count.
        skip: The last span that counts is the largest there is less this.
        exclude: Spans that are left out; they make no gap.
        node: Given a type: the id of the node that made them; any where None.
        passed: As of `dt.resolvers.rolling`.
        id: The id of the node that finds them; where empty, what it is called, numbered from the second on.

    Returns:
        What stands for the list of windows; an item of it is an input that takes a list.
    """
    artifacts = _listed("dt.loops.sequential", what, node, passed, keep_all_versions=False)
    windows = SequentialWindows.options(id=_id(id, "Sequential", "dt.loops.sequential"), cache=False)(
        artifacts, size=size, stride=stride, start=start, skip=skip, exclude=list(exclude)
    )
    return cast("list[list[T]]", Expression(operand(windows.value), list[list[str]]))


def paired(
    named: Mapping[str, Any],  # Any: outputs, lists or types, each of its own type
    *,
    match_version: bool = True,
    keep_all_versions: bool = False,
    passed: bool | None = None,
    id: str = "",  # noqa: A002 - as of components
) -> list[dict[str, Any]]:
    """Two kinds of artifacts by span, for `dt.map_`: `lambda pair: Join(pair["clicks"], pair["views"])`.

    Args:
        named: Name -> as of `sliding`, twice.
        match_version: Whether their versions must be equal too; otherwise the newest ones of the span are paired.
        keep_all_versions: Whether every version that both have makes a pair, or only the newest.
        passed: As of `dt.resolvers.rolling`.
        id: The id of the node that finds them; where empty, what it is called, numbered from the second on.

    Returns:
        What stands for the list of pairs; a part of an item is an input that takes one artifact.

    Raises:
        BuildError: There are not two names; or all versions are to be kept without being matched.
    """
    if len(named) != 2:
        raise BuildError(
            f"dt.loops.paired takes two names, not {len(named)}", where=user_line(), fix="pair two at a time"
        )
    if keep_all_versions and not match_version:
        raise BuildError(
            "dt.loops.paired: keep_all_versions needs match_version", where=user_line(), fix="leave one of them out"
        )
    first, second = (_listed("dt.loops.paired", what, None, passed, keep_all_versions=True) for what in named.values())
    pairs = PairedSpans.options(id=_id(id, "Paired", "dt.loops.paired"), cache=False)(
        first, second, names=list(named), match_version=match_version, keep_all_versions=keep_all_versions
    )
    return cast("list[dict[str, Any]]", Expression(operand(pairs.value), list[dict[str, str]]))


def _id(chosen: str, name: str, function: str) -> str:
    """The id of a node: the one that the user chose, else one that no other node has.

    Raises:
        BuildError: No pipeline is being built.
    """
    builder = recorder.get()
    if not isinstance(builder, PipelineBuilder):
        raise BuildError(f"{function} is used outside a pipeline", where=user_line(), fix="move it into a @dt.pipeline")
    taken = {node.rpartition(".")[2] for node in builder.nodes}
    number = 1
    while (free := f"{name}{number if number > 1 else ''}") in taken:
        number += 1
    return chosen or free


def _listed(
    name: str, what: object, node: str | None, passed: bool | None, *, keep_all_versions: bool
) -> list[Artifact]:
    if isinstance(what, QueryHandle) or (isinstance(what, Handle) and what._collected):
        kind = artifact_type(what.query.type) if isinstance(what, QueryHandle) else what._type
        declares(name, kind, "span")
        if node is not None or passed is not None:
            raise BuildError(
                f"node= and passed= are for a type, and {what!r} is chosen already",
                where=user_line(),
                fix="leave them out",
            )
        return cast("list[Artifact]", what)
    return all_spans(cast(Artifact, what), keep_all_versions=keep_all_versions, node=node, passed=passed)


def _spanned(artifacts: Sequence[Artifact]) -> list[Spanned[Artifact]]:
    return [
        Spanned(artifact.properties.get("span") or 0, artifact.properties.get("version"), artifact)
        for artifact in artifacts
    ]


def _lists(windows: Sequence[Sequence[Spanned[Artifact]]]) -> Value:
    return _items(
        [[_uid(spanned) for spanned in window] for window in windows],
        [[_content(spanned) for spanned in window] for window in windows],
    )


def _items(uids: list[Any], contents: list[Any]) -> Value:  # Any: lists and maps of them
    """The items of a loop.

    Nodes look them up by uid, in the property. The content, which is fingerprinted, holds what is the same in every
    store instead: spans, versions and fingerprints.
    """
    value = Value.new(value=uids)
    (value.content / "value.json").write_bytes(canonical_json(contents))
    return value


def _uid(spanned: Spanned[Artifact]) -> str:
    assert spanned.item.uid is not None
    return spanned.item.uid


def _content(spanned: Spanned[Artifact]) -> list[Any]:  # Any: JSON
    return [spanned.span, spanned.version, spanned.item.fingerprint]
