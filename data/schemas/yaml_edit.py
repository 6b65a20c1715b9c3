"""A changed schema written into its own `schema.yaml`: comments and order stay, only what changed is spelled anew.

What stands within a value that changes (comments inside a list of values) goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from ...errors import InputError
from ...yaml_lines import compose
from .schema import Feature, Schema
from .yaml_read import schema_from_yaml
from .yaml_write import FEATURE_KEYS, feature_lines, rows_lines, schema_to_yaml


class EditedYaml(NamedTuple):
    """A schema's text after an edit.

    Attributes:
        text: The new text; it reads as the new schema.
        kept: Whether only the lines that changed were touched; else the file is written anew, without its comments.
    """

    text: str
    kept: bool


class _Edit(NamedTuple):
    """Characters `start` to before `end` of the old text, and what stands there in the new."""

    start: int
    end: int
    text: str


def edit_yaml(text: str, new: Schema, where: str = "schema.yaml") -> EditedYaml:
    """The text of a schema with those lines changed that differ in another schema.

    Args:
        text: What stands in the file.
        new: The other schema: features in the same order, new ones last.
        where: The file's name, for messages.

    Raises:
        InputError: The text is not a schema.
    """
    old = schema_from_yaml(text, where)
    if old == new:
        return EditedYaml(text, kept=True)
    root: Any = compose(text)  # a mapping of blocks or flow, as was read above
    keys = {key.value: (key, value) for key, value in root.value}
    features = keys["features"][1]
    if not (root.flow_style or features.flow_style) and "\t" not in text:
        edits = [*_rows(text, keys, new), *_features(text, features, old, new)]
        changed = text
        # From the end on, so that the positions of the edits before stay right.
        for edit in sorted(edits, reverse=True):
            changed = changed[: edit.start] + edit.text + changed[edit.end :]
        # Reading it back is the proof: whatever layout a person chose, the file never says another schema than `new`.
        try:
            if schema_from_yaml(changed) == new:
                return EditedYaml(changed, kept=True)
        except InputError:
            pass  # a layout that the edits do not handle: written anew below
    return EditedYaml(schema_to_yaml(new), kept=False)


def _rows(text: str, keys: dict[str, tuple[yaml.Node, yaml.Node]], new: Schema) -> Iterator[_Edit]:
    before = rows_lines(schema_from_yaml(text))
    if before != rows_lines(new):
        yield from _key(text, keys, "rows", rows_lines(new), ["format"], 0)


def _features(text: str, node: Any, old: Schema, new: Schema) -> Iterator[_Edit]:
    entries = {key.value: (key, value) for key, value in node.value}
    column = node.value[0][0].start_mark.column if node.value else 2
    added: list[str] = []
    for feature in new.features:
        before = old.find_feature(feature.name)
        if before is None:
            added += _shifted(feature_lines(feature), column - 2)
        elif before != feature:
            yield from _feature(text, *entries[feature.name], before, feature)
    if added:
        at = _line_end(text, max((_end(value) for _, value in node.value), default=node.end_mark.index))
        yield _Edit(at, at, "\n" + "\n".join(added))


def _feature(text: str, name: Any, node: Any, before: Feature, after: Feature) -> Iterator[_Edit]:
    if node.flow_style or not node.value:
        lines = _shifted(feature_lines(after), name.start_mark.column - 2)
        yield _Edit(name.start_mark.index, _end(node), "\n".join(lines).lstrip())
        return
    keys = {key.value: (key, value) for key, value in node.value}
    column = node.value[0][0].start_mark.column
    old, new = _parts(before), _parts(after)
    for index, key in enumerate(FEATURE_KEYS):
        if old.get(key) != new.get(key):
            lines = _shifted(new.get(key, []), column - 4)
            yield from _key(text, keys, key, lines, FEATURE_KEYS[:index], column)


def _key(
    text: str,
    keys: dict[str, tuple[yaml.Node, yaml.Node]],
    key: str,
    lines: list[str],
    earlier: Sequence[str],
    column: int,
) -> Iterator[_Edit]:
    """One key of a mapping put in, replaced or (no lines) taken out."""
    if key in keys:
        name, value = keys[key]
        start, end = name.start_mark.index, _end(value)
        if lines:
            yield _Edit(start, end, "\n".join(lines)[column:])
        else:
            yield _Edit(start - name.start_mark.column, min(_line_end(text, end) + 1, len(text)), "")
    elif lines:
        before = [keys[name][1] for name in earlier if name in keys]
        if before:
            at = _line_end(text, _end(before[-1]))
            yield _Edit(at, at, "\n" + "\n".join(lines))
        else:
            first = min(name.start_mark.index - name.start_mark.column for name, _ in keys.values())
            yield _Edit(first, first, "\n".join(lines) + "\n")


def _parts(feature: Feature) -> dict[str, list[str]]:
    """A feature's lines by key."""
    parts: dict[str, list[str]] = {}
    for line in feature_lines(feature)[1:]:
        if line[4] != " ":
            parts[line[4:].partition(":")[0]] = [line]
        else:
            parts[list(parts)[-1]].append(line)
    return parts


def _shifted(lines: list[str], by: int) -> list[str]:
    return [" " * by + line if by >= 0 else line[-by:] for line in lines]


def _end(node: yaml.Node) -> int:
    """Where a node ends: of a block, where its last value does, before any comment that follows."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _line_end(text: str, at: int) -> int:
    line_feed = text.find("\n", at)
    return len(text) if line_feed < 0 else line_feed
