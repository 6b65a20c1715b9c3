"""The anomalies of a validation, by TFDV's names, with evidence, the rows that show them, and the fix."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...digest import write_durably
from ...errors import InputError
from ...redaction import printable
from ..frames import frame
from ..schemas.comparators import COMPARATORS

if TYPE_CHECKING:  # schemas import Arrow, which who only says what is wrong does without
    from ..schemas.schema import Severity

FORMAT: Final = "drivetrain.anomalies/1"
_DISTANCES: Final = {comparator.anomaly for comparator in COMPARATORS.values()}
"""What an anomaly is called whose number is above its bound."""
_ORDER: Final = {"ERROR": 0, "WARNING": 1, "INFO": 2}


@dataclass(frozen=True)
class Anomaly:
    """One condition of the schema that a data set does not meet.

    Attributes:
        type: One of `schema.ANOMALIES`.
        severity: An ERROR blocks; a WARNING or an INFO is only shown.
        split: The data set.
        feature: The column, or the weighted feature; None where it is about the whole data set.
        message: What is wrong, in one line.
        expected: What the schema wants.
        observed: What the data has.
        values: Values that break the condition with their rows, `{"value", "count"}`, most frequent first; the first
            twenty.
        fix: What to do about it.
        rows: Example rows, `{"row": number within the data set from 0, "values": {column: value}}`.
        path: Of a field of a struct the column's name and those of the fields down to it, which `feature` spells "a.b";
            else ().
        level: Of a number of values: which lists have it; 0: the rows' own, 1: those within these, …
    """

    type: str
    severity: Severity
    split: str
    feature: str | None
    message: str
    expected: str
    observed: str
    fix: str
    values: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    path: tuple[str, ...] = ()
    level: int = 0

    @property
    def feature_path(self) -> tuple[str, ...]:
        """The path to the feature; () where it is about the whole data set."""
        return self.path or (() if self.feature is None else (self.feature,))


NewAnomaly: TypeAlias = Callable[..., Anomaly]
"""Makes an anomaly of one data set: takes its type, feature and message, and by keyword what else it has."""


class Anomalies:
    """All anomalies of a validation, errors first, else by data set and in the schema's order.

    Attributes:
        splits: Rows per data set that was checked, in order.
        anomalies: All of them.
        notes: What passed though it is of another type than the schema says, and what was not checked; a line each.
        sampled: Rows that a data set has, where only a sample of them was checked.
    """

    def __init__(
        self,
        splits: Mapping[str, int],
        anomalies: Iterable[Anomaly],
        notes: Iterable[str] = (),
        sampled: Mapping[str, int] | None = None,
    ) -> None:
        self.splits = dict(splits)
        self.sampled = dict(sampled or {})
        self.notes = tuple(notes)
        self.anomalies = tuple(sorted(anomalies, key=lambda anomaly: _ORDER[anomaly.severity]))

    def __repr__(self) -> str:
        more = f"; {len(self.notes) - 3} more" if len(self.notes) > 3 else ""
        return printable(f"Anomalies({'; '.join([self.summary, *self.notes[:3]])}{more})")

    @property
    def errors(self) -> int:
        """How many anomalies are of severity ERROR: these stop a pipeline."""
        return sum(anomaly.severity == "ERROR" for anomaly in self.anomalies)

    @property
    def passed(self) -> bool:
        """Whether there is no anomaly of severity ERROR; warnings pass."""
        return not self.errors

    @property
    def drifted(self) -> list[str]:
        """The features beyond a bound on drift or skew, in any data set; sorted."""
        return sorted({each.feature for each in self.anomalies if each.type in _DISTANCES and each.feature is not None})

    @property
    def summary(self) -> str:
        """One line for a table: how many, and which; what several data sets have is counted once."""
        if not self.anomalies:
            return f"no anomalies in {self.rows_checked}"
        distinct = {(anomaly.severity, anomaly.type, anomaly.feature) for anomaly in self.anomalies}
        problems = Counter[str](severity for severity, _, _ in distinct)
        counts = ", ".join(
            f"{number} {name.lower()}{'s' if number > 1 and name != 'INFO' else ''}"
            for name in _ORDER
            if (number := problems[name])
        )
        seen = dict.fromkeys(f"{anomaly.feature or anomaly.split}: {anomaly.type}" for anomaly in self.anomalies)
        shown = list(seen)[:5]
        more = f"; {len(seen) - len(shown)} more" if len(seen) > len(shown) else ""
        sample = f" in {self.rows_checked}" if self.sampled else ""
        return f"{counts} ({'; '.join(shown)}{more}){sample}"

    @property
    def rows_checked(self) -> str:
        """E.g. "53,940 rows", or of a sample "519 of 53,940 rows"."""
        of = f" of {sum((self.splits | self.sampled).values()):,}" if self.sampled else ""
        return f"{sum(self.splits.values()):,}{of} rows"

    def with_rows(self, rows: Mapping[int, Iterable[Mapping[str, Any]]]) -> Anomalies:
        """The same anomalies with example rows, by the anomaly's index in `anomalies`."""
        return Anomalies(
            self.splits,
            [
                replace(anomaly, rows=tuple(rows[index])) if index in rows else anomaly
                for index, anomaly in enumerate(self.anomalies)
            ],
            self.notes,
            self.sampled,
        )

    @property
    def document(self) -> dict[str, Any]:
        """What `to_json` writes: rows per data set, anomalies, notes and the verdict, as JSON values."""
        return {
            "format": FORMAT,
            "passed": self.passed,
            "errors": self.errors,
            "summary": self.summary,
            "datasets": [
                {"name": name, "rows": rows, **({"of": self.sampled[name]} if name in self.sampled else {})}
                for name, rows in self.splits.items()
            ],
            "anomalies": [_plain(anomaly) for anomaly in self.anomalies],
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def to_json(self) -> str:
        """The document as indented JSON; equal anomalies give equal text."""
        return json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per anomaly; `values` are the values that break the condition, `rows` the numbers of example rows.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        columns = ("severity", "type", "dataset", "feature", "message", "expected", "observed", "fix", "values", "rows")
        fields = ("severity", "type", "split", "feature", "message", "expected", "observed", "fix")
        return frame(
            columns,
            (
                (
                    *(getattr(anomaly, field) for field in fields),
                    [item["value"] for item in anomaly.values],
                    [item["row"] for item in anomaly.rows],
                )
                for anomaly in self.anomalies
            ),
        )

    def save(self, path: Path | str) -> None:
        """Write `to_json` to a file, durably: a crash leaves the old file or the new one."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_durably(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: Path | str) -> Anomalies:
        """What `save` wrote.

        Raises:
            InputError: No such file, or of a format this release does not read.
        """
        try:
            document = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="validate again") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{path} is not of the format {FORMAT}", fix="validate again")
        anomalies = [
            Anomaly(**item | {key: tuple(item.get(key, ())) for key in ("values", "rows", "path")})
            for item in document["anomalies"]
        ]
        splits = {dataset["name"]: dataset["rows"] for dataset in document["datasets"]}
        sampled = {dataset["name"]: dataset["of"] for dataset in document["datasets"] if "of" in dataset}
        return cls(splits, anomalies, document.get("notes", ()), sampled)

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.anomalies import anomalies_page

        return anomalies_page(self.document)

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())


def _plain(anomaly: Anomaly) -> dict[str, Any]:
    fields = asdict(anomaly) | {key: list(getattr(anomaly, key)) for key in ("values", "rows", "path")}
    return {key: value for key, value in fields.items() if value or key not in ("path", "level")}
