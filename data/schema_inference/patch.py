"""A schema's update as a patch: what must be relaxed so that the data has no anomaly, one change each, to be reviewed.

Every change stands by itself: accepting some and not others gives a schema of those alone. After all are accepted the
same data has no error, but for those in `unresolved`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from ...digest import write_durably
from ...errors import InputError
from ...redaction import printable
from ...yaml_lines import load_documents
from ..frames import frame
from ..schemas.schema import Feature, Schema, Severity
from ..schemas.yaml_read import schema_from_yaml
from ..schemas.yaml_write import feature_lines, rows_lines, schema_to_yaml
from ..validation.anomalies import Anomaly

FORMAT: Final = "drivetrain.schema-patch/1"
_ROWS: Final = ("min_rows", "max_rows", "rows_drift", "rows_version")
_HEAD: Final = """\
# What a schema must allow so that the data passes. Delete the changes that you do not want, or name the others:
# drivetrain schema accept THIS_FILE [--only 1,3]. What `after` says is taken over; `diff` is for reading.
"""


@dataclass(frozen=True)
class SchemaChange:
    """One change of a schema.

    Attributes:
        id: Its number in the patch, from 1.
        feature: Which feature; None: the rows of the data sets.
        anomalies: What it does away with, by name.
        severity: The gravest of them.
        reasons: The anomalies' messages.
        before: A schema of the feature alone (or of the rows alone) as it was; without it where it is new.
        after: The same relaxed.
    """

    id: int
    feature: str | None
    anomalies: tuple[str, ...]
    severity: Severity
    reasons: tuple[str, ...]
    before: Schema
    after: Schema

    @property
    def diff(self) -> str:
        """The lines of the schema's file that go (-) and come (+)."""
        lines = difflib.unified_diff(_lines(self.before), _lines(self.after), n=99, lineterm="")
        return "".join(f"{line}\n" for line in list(lines)[3:])

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON-able values."""
        return {
            "id": self.id,
            "feature": self.feature,
            "anomalies": list(self.anomalies),
            "severity": self.severity,
            "reasons": list(self.reasons),
            "diff": self.diff,
            "before": schema_to_yaml(self.before),
            "after": schema_to_yaml(self.after),
        }


def _lines(part: Schema) -> list[str]:
    return [*rows_lines(part), *(line for feature in part.features for line in feature_lines(feature))]


def _check_ids(ids: object) -> None:
    if isinstance(ids, str) or not isinstance(ids, Collection) or not all(isinstance(each, int) for each in ids):
        raise InputError(f"changes are named by a list of their numbers, not {ids!r}", fix="write e.g. [1, 3]")


@dataclass(frozen=True)
class SchemaPatch:
    """Changes of a schema, proposed by `update_schema`, each of which may be accepted or rejected by itself.

    Attributes:
        schema: What the patch is of.
        changes: In the order of the anomalies, the gravest first.
        unresolved: Errors that no change of the schema does away with: a data set without rows, an SQL check.
    """

    schema: Schema
    changes: tuple[SchemaChange, ...]
    unresolved: tuple[Anomaly, ...] = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{change.id}. {change.feature or 'rows'}" for change in self.changes)
        return printable(f"SchemaPatch({shown or 'no changes'}; {len(self.unresolved)} unresolved)")

    def accept(self, ids: Collection[int] | None = None) -> Schema:
        """The schema with some of the changes made; all where None.

        Raises:
            InputError: There is no such change.
        """
        return self.apply(self.schema, ids)

    def reject(self, ids: Collection[int]) -> SchemaPatch:
        """The patch without some of the changes.

        Raises:
            InputError: There is no such change.
        """
        out = {change.id for change in self._chosen(ids)}
        return replace(self, changes=tuple(change for change in self.changes if change.id not in out))

    def apply(self, schema: Schema, ids: Collection[int] | None = None) -> Schema:
        """Another schema with some of the changes made: the one in a file, which may have been edited since.

        Raises:
            InputError: There is no such change, or the schema says neither what it said
                before the change nor what it says after.
        """
        chosen = self._chosen(ids)
        # All are tried on the schema as it is before any is made: of two changes of one feature the second would else
        # meet what the first has changed.
        for change in chosen:
            merged(schema, change.before, change.after, f"change {change.id}", strict=True)
        for change in chosen:
            schema = merged(schema, change.before, change.after)
        return schema

    def _chosen(self, ids: Collection[int] | None) -> list[SchemaChange]:
        if ids is None:
            return list(self.changes)
        known = {change.id for change in self.changes}
        _check_ids(ids)
        unknown = sorted(set(ids) - known)
        if unknown:
            raise InputError(
                f"the patch has no change {unknown[0]}",
                fix=f"it has {', '.join(map(str, sorted(known)))}" if known else "it has none",
            )
        return [change for change in self.changes if change.id in set(ids)]

    @property
    def diff(self) -> str:
        """All changes as text, each with its number, its anomalies and its lines."""
        return "\n".join(
            f"{change.id}. {change.feature or 'rows'}: {', '.join(change.anomalies)} ({change.severity})\n"
            + "".join(f"   {reason}\n" for reason in change.reasons)
            + change.diff
            for change in self.changes
        )

    def to_dict(self) -> dict[str, Any]:
        """The patch as JSON-able values."""
        return {
            "format": FORMAT,
            "schema": schema_to_yaml(self.schema),
            "changes": [change.to_dict() for change in self.changes],
            "unresolved": [f"{anomaly.type}: {anomaly.message}" for anomaly in self.unresolved],
        }

    def to_json(self) -> str:
        """`to_dict` as indented JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per change: id, feature, anomalies, severity, reasons, diff."""
        rows = [
            (c.id, c.feature, ", ".join(c.anomalies), c.severity, "\n".join(c.reasons), c.diff) for c in self.changes
        ]
        return frame(("id", "feature", "anomalies", "severity", "reasons", "diff"), rows)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.diff or 'nothing to change')}</pre>"

    def save(self, path: Path | str) -> None:
        """Write the patch as YAML, for `SchemaPatch.load` and for a person to cut down."""
        text = yaml.dump(self.to_dict(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_durably(Path(path), (_HEAD + text).encode())

    @classmethod
    def load(cls, path: Path | str) -> SchemaPatch:
        """The patch in a file, without the anomalies in `unresolved`.

        Raises:
            InputError: It cannot be read, or is not a patch.
        """
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise InputError(
                f"the patch {path} cannot be read: {error}", fix="write one with `drivetrain schema update`"
            ) from error
        document = next(iter(load_documents(text, str(path), name="the patch")), None)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{path} is not a patch of the format {FORMAT}", fix="name what `schema update` wrote")
        try:
            changes = tuple(
                SchemaChange(
                    int(item["id"]),
                    item["feature"],
                    tuple(item["anomalies"]),
                    item["severity"],
                    tuple(item["reasons"]),
                    schema_from_yaml(_text(item["before"]), f"{path}, change {item['id']}, before"),
                    schema_from_yaml(_text(item["after"]), f"{path}, change {item['id']}, after"),
                )
                for item in document["changes"] or ()
            )
            return cls(schema_from_yaml(_text(document["schema"]), f"{path}, schema"), changes)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the patch {path} lacks a part: {error}", fix="write it again with `drivetrain schema update`"
            ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a schema")
    return value


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as such."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text.rstrip("\n") else None
    ),
)


def merged(now: Any, before: Any, after: Any, what: str = "", *, strict: bool = False) -> Any:
    """`now` with what differs between `before` and `after`, part by part; what `now` has already lost stays away.

    A three-way merge of values rather than of lines, so that each change of a patch stands by itself, in any order.

    Raises:
        InputError: `strict`, and a part is neither as it was before nor as it is to be.
    """
    if before == after or now == after:
        return now
    if isinstance(now, Schema):
        known = {new.name: (before.find_feature(new.name), new) for new in after.features}
        features = [
            merged(feature, *known.pop(feature.name), f"{what}, {feature.name}", strict=strict)
            if feature.name in known
            else feature
            for feature in now.features
        ]
        gone = next((name for name, (old, _) in known.items() if old is not None), None)
        if strict and gone is not None:
            raise InputError(f"{what}: the schema has no feature {gone!r}", fix="write the patch again")
        return replace(
            now,
            **_parts(now, before, after, _ROWS, what, strict),
            features=(*features, *(new for _, new in known.values())),
        )
    if is_dataclass(now) and type(now) is type(before) is type(after):
        names = [field.name for field in fields(now) if field.compare]
        changed: Any = replace(now, **_parts(now, before, after, names, what, strict))  # type: ignore[type-var]
        return without_stale(now, changed) if isinstance(now, Feature) else changed
    sides = now, before, after
    if all(isinstance(side, tuple) and all(isinstance(field, Feature) for field in side) for side in sides):
        ours, old, new = ({field.name: field for field in side} for side in sides)
        return tuple(merged(ours, old, new, what, strict=strict).values())
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        both = {
            key: merged(now.get(key), before.get(key), after.get(key), f"{what}, {key}", strict=strict)
            for key in dict.fromkeys((*now, *after))
        }
        return {key: value for key, value in both.items() if value is not None}
    if strict and now != before:
        raise InputError(
            f"{what}: the schema now says {now!r}, where the patch expects {before!r}",
            fix="write the patch again",
        )
    # Something that somebody removed since the patch was written is not brought back.
    return None if now is None and before is not None else after


def without_stale(before: Feature, after: Feature) -> Feature:
    """The feature without the evidence of lines that have changed: it was for what they said before."""
    changed = {field.name for field in fields(after) if getattr(before, field.name) != getattr(after, field.name)}
    lines = after.evidence.split("\n")
    kept = [line for line in lines if line.partition(":")[0].replace("value_count", "value_counts") not in changed]
    return replace(after, evidence="\n".join(kept))


def _parts(now: Any, before: Any, after: Any, names: Iterable[str], what: str, strict: bool) -> dict[str, Any]:
    return {
        name: merged(getattr(now, name), getattr(before, name), getattr(after, name), f"{what}, {name}", strict=strict)
        for name in names
    }
