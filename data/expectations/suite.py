"""Great Expectations: a suite in a plain form, and the results of checking data against it, without importing GX.

`check` checks; every result says which way it went.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from ...digest import is_deep, write_durably
from ...errors import InputError
from ...redaction import printable
from ..frames import frame
from ..schemas.checks import GX_SEVERITIES, SQL_TYPE, Expectation
from .from_schema import GX_VERSION

Way = Literal["statistics", "rows", "sql"]
WAYS: Final[tuple[Way, ...]] = ("statistics", "rows", "sql")
SHOWN: Final = 20  # unexpected values listed per expectation, as GX lists by default


@dataclass(frozen=True)
class Suite:
    """A named list of expectations, and what its author noted; `read_suite` reads it."""

    name: str
    expectations: tuple[Expectation, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExpectationOutcome:
    """The outcome of one expectation on one data set.

    Attributes:
        success: Whether the data meets it.
        result: GX's details: `observed_value`, or `element_count`, `unexpected_count`, …; JSON-able.
        error: Why it could not be evaluated, or "".
    """

    success: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def read_suite(source: Mapping[str, Any] | Path | str, name: str | None = None) -> Suite:
    """The suite in a JSON file, in a GX project's folder, or given as GX's own dictionary.

    Args:
        source: The dictionary, the file, or a folder: of a GX project (with `great_expectations.yml`, or `gx/` in it),
            or one with suites' JSON files.
        name: Which suite, where a folder has more than one.

    Raises:
        InputError: There is no such file, or it is not a suite as GX 1.x writes them.
    """
    if isinstance(source, Mapping):
        return _suite(source, "the suite")
    path = Path(source)
    if path.is_dir():
        path = _in_folder(path, name)
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="give the suite's JSON file") from error
    if not isinstance(data, dict):
        raise InputError(f"{path} is not an expectation suite", fix="give the suite's JSON file")
    if is_deep(data):
        raise InputError(f"{path} is nested too deeply", fix="export the suite from GX 1.x")
    return _suite(data, str(path))


def _in_folder(folder: Path, name: str | None) -> Path:
    roots = (folder, folder / "gx", folder / "great_expectations")
    root = next((root for root in roots if (root / "great_expectations.yml").exists()), None)
    suite_folder = folder if root is None else root / "expectations"
    suites = {
        path.relative_to(suite_folder).with_suffix("").as_posix(): path
        for path in sorted(suite_folder.rglob("*.json"))
        if not path.name.startswith(".")
    }
    if name is not None and name in suites:
        return suites[name]
    listed = ", ".join(suites) or "none"
    if name is not None or len(suites) != 1:
        wanted = f"no suite {name!r}" if name is not None else "not just one suite"
        raise InputError(f"{suite_folder} has {wanted}; there are: {listed}", fix="name one of them")
    return next(iter(suites.values()))


def _suite(data: Mapping[str, Any], where: str) -> Suite:
    items = data.get("expectations")
    if not isinstance(items, list):
        raise InputError(f"{where} is not an expectation suite: it lists no expectations", fix="export it from GX 1.x")
    expectations = tuple(_expectation(item, f"{where}, expectation {number}") for number, item in enumerate(items, 1))
    name = str(data.get("name") or data.get("expectation_suite_name") or "suite")
    return Suite(name, expectations, _meta(data, where))


def _expectation(item: Any, where: str) -> Expectation:
    kind = (item.get("type") or item.get("expectation_type")) if isinstance(item, Mapping) else None
    kwargs = item.get("kwargs", {}) if isinstance(item, Mapping) else None
    if not isinstance(kind, str) or not isinstance(kwargs, Mapping):
        raise InputError(f"{where} has no type, or no kwargs", fix="export the suite from GX 1.x")
    for key, value in kwargs.items():
        if isinstance(value, Mapping) and "$PARAMETER" in value:
            raise InputError(
                f"{where} ({kind}): {key} is the suite parameter {value['$PARAMETER']!r}, which has no value here",
                fix="write the value into the suite",
            )
    severity = item.get("severity", "critical")
    if severity not in GX_SEVERITIES:
        raise InputError(f"{where} has the severity {severity!r}", fix=f"use one of {', '.join(GX_SEVERITIES)}")
    # Empty arguments mean the default; batch_id names data that is not ours.
    arguments = {key: value for key, value in kwargs.items() if value is not None and key != "batch_id"}
    described = {"description": item["description"]} if item.get("description") else {}
    return Expectation(kind, arguments, {**described, **_meta(item, where)}, severity)


def _meta(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    meta = data.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise InputError(f"{where} has the meta {meta!r}", fix="write `key: value` pairs, or none")
    return dict(meta)


class ExpectationResults:
    """The results of a suite on one or more data sets (splits).

    Attributes:
        document: A GX `ExpectationSuiteValidationResult` as JSON, without times and ids, so that equal data gives equal
            text. Each result's meta has `split` and `evaluated_on`: one of `WAYS`.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @classmethod
    def of(cls, name: str, rows: Mapping[str, int], results: Sequence[Mapping[str, Any]]) -> ExpectationResults:
        """The results of `result_of`, and the rows per data set, as one document."""
        good = sum(result["success"] for result in results)
        ways = [result["meta"]["evaluated_on"] for result in results]
        document = {
            "success": good == len(results),
            "suite_name": name,
            "suite_parameters": {},
            "statistics": {
                "evaluated_expectations": len(results),
                "successful_expectations": good,
                "unsuccessful_expectations": len(results) - good,
                "success_percent": good / len(results) * 100 if results else None,
            },
            "meta": {
                "great_expectations_version": GX_VERSION,
                "drivetrain": {
                    "rows": dict(rows),
                    "evaluated_on": {way: ways.count(way) for way in WAYS},
                },
            },
            "results": list(results),
            "id": None,
        }
        return cls(document)

    def __repr__(self) -> str:
        return printable(f"ExpectationResults({self.summary})")

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The results of expectations that are not met, critical ones first."""
        bad = [result for result in self.document["results"] if not result["success"]]
        return sorted(bad, key=lambda result: GX_SEVERITIES.index(result["expectation_config"]["severity"]))

    @property
    def errors(self) -> int:
        """Failed expectations that block: those of severity critical."""
        return sum(result["expectation_config"]["severity"] == "critical" for result in self.failed)

    @property
    def ways(self) -> Mapping[str, int]:
        """How many were decided from statistics, on rows (by GX), and by SQL."""
        ways: Mapping[str, int] = self.document["meta"]["drivetrain"]["evaluated_on"]
        return ways

    @property
    def passed(self) -> bool:
        """Whether no expectation of severity "critical" failed."""
        return not self.errors

    @property
    def summary(self) -> str:
        """One line for a table."""
        total, failed = self.document["statistics"]["evaluated_expectations"], self.failed
        if not failed:
            return f"{total} expectations met"
        seen = dict.fromkeys(_title(result["expectation_config"]) for result in failed)
        shown = list(seen)[:3]
        more = f"; {len(seen) - 3} more" if len(seen) > 3 else ""
        return f"{len(failed)} of {total} expectations not met ({'; '.join(shown)}{more})"

    def split(self, name: str) -> dict[str, Any]:
        """The document of one data set alone."""
        drivetrain = self.document["meta"]["drivetrain"]
        results = [result for result in self.document["results"] if result["meta"]["split"] == name]
        rows = {name: drivetrain["rows"][name]}
        return dict(ExpectationResults.of(self.document["suite_name"], rows, results).document)

    def to_json(self) -> str:
        """The document as indented JSON."""
        return json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: Path | str) -> None:
        """Write `to_json` to a file, durably: a crash leaves the old file or the new one."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_durably(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: Path | str) -> ExpectationResults:
        """What `save` wrote.

        Raises:
            InputError: No such file, or none of ours: GX's own results do not say which way each was decided.
        """
        try:
            document = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="check the expectations again") from error
        if not isinstance(document, dict) or "drivetrain" not in (document.get("meta") or {}):
            raise InputError(f"{path} holds no results of expectations", fix="check the expectations again")
        return cls(document)

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per data set and expectation, with which way it was decided.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        names = ("split", "expectation", "column", "success", "severity", "decided_by", "observed_value",
                 "unexpected_count", "unexpected_percent", "error")  # fmt: skip
        return frame(names, map(_line, self.document["results"]))

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.expectations import expectations_page

        return expectations_page(self.document)

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())


def _line(result: Mapping[str, Any]) -> tuple[Any, ...]:
    config, details = result["expectation_config"], result["result"]
    return (
        result["meta"]["split"], config["type"], config["kwargs"].get("column"), result["success"], config["severity"],
        result["meta"]["evaluated_on"], details.get("observed_value"), details.get("unexpected_count"),
        details.get("unexpected_percent"), result["exception_info"]["exception_message"],
    )  # fmt: skip


def result_of(expectation: Expectation, outcome: ExpectationOutcome, split: str, way: Way) -> dict[str, Any]:
    """A GX `ExpectationValidationResult` as JSON-able values."""
    return {
        "success": outcome.success,
        "expectation_config": {
            "type": expectation.type,
            "kwargs": plain(expectation.kwargs),
            "meta": plain(expectation.meta),
            "severity": expectation.severity,
        },
        "result": plain(outcome.result),
        "meta": {"split": split, "evaluated_on": way},
        "exception_info": {
            "raised_exception": bool(outcome.error),
            "exception_message": outcome.error or None,
            "exception_traceback": None,
        },
    }


def plain(value: Any) -> Any:
    """Values of GX, numpy and pandas as JSON-able ones; NaN and infinities become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _title(config: Mapping[str, Any]) -> str:
    if config["type"] == SQL_TYPE:
        return str(config["meta"].get("description") or config["kwargs"].get("unexpected_rows_query", ""))
    return f"{config['type'].removeprefix('expect_')} {subject(config['kwargs'])}".rstrip()


def subject(kwargs: Mapping[str, Any]) -> str:
    """The columns of an expectation for a message, e.g. "of carrier"; empty for the whole table."""
    if "column" in kwargs:
        return f"of {kwargs['column']}"
    names = kwargs.get("column_list") or [kwargs[key] for key in ("column_A", "column_B") if key in kwargs]
    return f"of {', '.join(map(str, names))}" if names else ""
