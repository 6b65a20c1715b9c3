"""SQL over statistics: TFDV's custom validation, by DuckDB. A false expression is the anomaly CUSTOM_VALIDATION.

TFDV's expressions are ZetaSQL. What they usually need of it is understood beside DuckDB's own SQL: text in double
quotes, `[OFFSET(0)]`, `FROM UNNEST(list) AS item`, `x IN UNNEST(list)`, SAFE_DIVIDE and COUNTIF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...errors import InputError
from ..duckdb_session import (
    ctrl_c,
    guarded,
    lock,
    open_session,
    require_select,
)
from ..schemas.checks import Check
from ..stats.document import Statistics
from .anomalies import Anomaly
from .feature_name_statistics import DUCKDB_TYPE, proto_of

if TYPE_CHECKING:
    import duckdb

TIMEOUT: Final = 60.0  # seconds per expression
_TEXT: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"\\]|\\.)*")""")
_ARRAY_INDEX: Final = re.compile(r"\[\s*(?:SAFE_)?(OFFSET|ORDINAL)\s*\(\s*(\d+)\s*\)\s*\]", re.IGNORECASE)
_UNNEST: Final = re.compile(
    r"\b(FROM|JOIN|IN)\s+UNNEST\s*\(([\w.\s\[\]]+)\)"
    r"(?:\s+(?:AS\s+)?(?!(?:WHERE|ON|AND|OR|CROSS|INNER|LEFT|JOIN|GROUP|ORDER|LIMIT)\b)(\w+))?",
    re.IGNORECASE,
)
_MACROS: Final = (
    "CREATE MACRO safe_divide(a, b) AS a / nullif(b, 0)",
    "CREATE MACRO ieee_divide(a, b) AS CASE WHEN b <> 0 THEN a / b WHEN a > 0 THEN 'inf'::DOUBLE "
    "WHEN a < 0 THEN '-inf'::DOUBLE ELSE 'nan'::DOUBLE END",
)
_FIELD: Final = re.compile(r"\bfeature(?:_test|_base)?(?:\.\w+)+")
_ALL: Final = ("", "All Examples")  # TFDV's names of the rows that are not a slice


def check_statistics(
    statistics: Statistics,
    checks: Sequence[Check],
    *,
    previous: Statistics | None = None,
    environment: str | None = None,
) -> Iterator[Anomaly]:
    """An anomaly for each check that is not true of a data set, or that its statistics do not decide.

    Args:
        statistics: What is validated.
        checks: In the order they are checked, by data set.
        previous: Statistics of an earlier span, for checks with a `base`; None: those are left out, as drift is.
        environment: Only checks of this environment, and those of none.

    Raises:
        InputError: An expression is not SQL, or none that is true or false; or there is no such slice.
        DrivetrainError: DuckDB is not installed.
    """
    wanted = [
        check for check in checks
        if (not check.environments or environment in check.environments) and (not check.base or previous is not None)
    ]  # fmt: skip
    if not wanted:
        return
    session = open_session()
    with ctrl_c():
        for macro in _MACROS:
            session.execute(macro)
    lock(session)
    names = _FeatureStatistics(statistics)
    bases = None if previous is None else _FeatureStatistics(previous)
    for check in wanted:
        names.require(check.slice)
        if bases is not None and check.base:
            bases.require(check.base_slice)
    for split, rows in statistics.splits.items():
        for check in wanted:
            if rows and names.covers(split, check.slice):
                yield from _judge(session, check, split, names, bases)


def _judge(
    session: duckdb.DuckDBPyConnection,
    check: Check,
    split: str,
    current: _FeatureStatistics,
    previous: _FeatureStatistics | None,
) -> Iterator[Anomaly]:
    test = current.feature(split, check.slice, check.feature)
    if check.base and previous is not None:
        base = previous.feature(previous.like(split, check.base_slice), check.base_slice, check.base)
        bound = {"feature_test": test, "feature_base": base}
        gone = f"{check.base} of the earlier span" if base is None else check.feature
    else:
        bound = {"feature": test}
        gone = check.feature
    if None in bound.values():
        yield _anomaly(check, split, f"there are no statistics of {gone}", "no such feature")
        return
    known = {name: value for name, value in bound.items() if value is not None}
    answer = _evaluate(session, check, known)
    if answer is None:
        observed = "NULL, as a statistic it uses is not there"
    elif not isinstance(answer, bool):
        raise InputError(
            f"check of {check.feature}: {check.sql} is {answer!r}, neither true nor false",
            fix="write a condition, such as feature.num_stats.max < 500",
        )
    elif answer:
        return
    else:
        observed = "FALSE"
    used = ", ".join(_used(check.sql, known))
    yield _anomaly(
        check, split, check.description or f"{check.sql} is not true", f"{observed}: {used}" if used else observed
    )


def _used(sql: str, bound: Mapping[str, Any]) -> Iterator[str]:
    """The statistics that an expression names, with their values."""
    for path in dict.fromkeys(_FIELD.findall(sql)):
        value: Any = bound
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or isinstance(value, (str, int, float)):
            yield f"{path} is " + (f"{value:.10g}" if isinstance(value, float) else repr(value))


def _anomaly(check: Check, split: str, message: str, observed: str) -> Anomaly:
    base = f" Base dataset: {check.base_slice} Base path: {check.base}" if check.base else ""
    where = check.slice if check.slice not in _ALL else "default slice"
    return Anomaly(
        type="CUSTOM_VALIDATION", severity=check.severity, split=split, feature=check.feature, message=message,
        expected=check.sql,
        # TFDV's own words.
        observed=f"{observed}. Query: {check.sql} Test dataset: {where}{base}",
        fix=f"find what changed in {check.feature}, or correct the check in the schema",
    )  # fmt: skip


def _evaluate(session: duckdb.DuckDBPyConnection, check: Check, bound: Mapping[str, Mapping[str, Any]]) -> Any:
    what = f"check of {check.feature}"
    values = ", ".join(f"CAST(${name} AS {DUCKDB_TYPE}) AS {name}" for name in bound)
    query = f"SELECT ({_dialect(check.sql)}) FROM (SELECT {values}) AS statistics"  # noqa: S608 - the user's own SQL
    with guarded(session, what, timeout=TIMEOUT):
        require_select(session, query, what)
        rows = session.execute(query, dict(bound)).fetchall()
    if len(rows) != 1:
        raise InputError(f"{what}: {check.sql} is not one expression", fix="write one condition")
    return rows[0][0]


def _dialect(sql: str) -> str:
    """A condition as TFDV has it, in ZetaSQL, as DuckDB spells it: quotes, indices from 0 or 1, UNNEST."""
    pieces = []
    for index, piece in enumerate(_TEXT.split(sql)):
        if index % 2:  # a text
            inner = piece[1:-1].replace('\\"', '"').replace("'", "''") if piece[0] == '"' else piece[1:-1]
            pieces.append(f"'{inner}'")
            continue
        # DuckDB counts from 1, as ORDINAL does; OFFSET counts from 0.
        piece = _ARRAY_INDEX.sub(lambda at: f"[{int(at[2]) + (at[1].upper() == 'OFFSET')}]", piece)
        pieces.append(_UNNEST.sub(_unnested, piece))
    return "".join(pieces)


def _unnested(match: re.Match[str]) -> str:
    """The items of a list under their name, and, as in ZetaSQL, each field of theirs under its own."""
    word, values, item = match[1], match[2].strip(), match[3] or "item"
    # UNNEST of an item gives the fields of a struct; `step` (of a path) is a list of texts.
    fields = "" if values.endswith(".step") or word.upper() == "IN" else f", UNNEST({item})"
    items = f"(SELECT {item}{fields} FROM (SELECT UNNEST({values}) AS {item}))"  # noqa: S608 - the user's own SQL
    return f"{word} {items}" if word.upper() == "IN" else f"{word} {items} AS _{item}"


class _FeatureStatistics:
    """The statistics of features by data set, slice and path, as TFDV names them."""

    def __init__(self, statistics: Statistics) -> None:
        self.datasets: dict[str, Mapping[str, Any]] = {
            dataset["name"]: dataset for dataset in statistics.document["datasets"]
        }

    def require(self, name: str) -> None:
        """Refuse a name that neither a data set nor a slice has."""
        if name not in _ALL and not any(self.covers(split, name) for split in self.datasets):
            slices = {
                slice_statistics["name"]
                for dataset in self.datasets.values()
                for slice_statistics in dataset.get("slices", ())
            }
            raise InputError(
                f"a check names the slice {name!r}, which has no statistics",
                fix=f"use one of {', '.join([*self.datasets, *sorted(slices)])}",
            )

    def covers(self, split: str, name: str) -> bool:
        """Whether a check of the slice `name` is about this data set."""
        return name in _ALL or name == split or self._slice(split, name) is not None

    def like(self, split: str, name: str) -> str:
        """The data set to compare another's `split` with: that of the name, else the only one."""
        return name if name in self.datasets else split if split in self.datasets else next(iter(self.datasets))

    def feature(self, split: str, slice_: str, name: str) -> dict[str, Any] | None:
        """Its statistics by TFDV's names; None where there are none."""
        part = self.datasets.get(split, {})
        if slice_ not in _ALL and slice_ != split:
            part = self._slice(split, slice_) or {}
        return _feature(part.get("features", ()), name)

    def _slice(self, split: str, name: str) -> Mapping[str, Any] | None:
        slices: Sequence[Mapping[str, Any]] = self.datasets.get(split, {}).get("slices", ())
        for slice_statistics in slices:
            # TFDV's name of a slice is its features and values with underscores between.
            tfdv = "_".join(f"{key}_{value}" for key, value in slice_statistics.get("key", ()))
            if name in (slice_statistics["name"], tfdv):
                return slice_statistics
        return None


def _feature(features: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """The feature of that name, else the field of a struct that the name's first step names."""
    for feature in features:
        if feature["name"] == name:
            return proto_of(feature, (name,))
    for feature in features:
        if "fields" in feature and name.startswith(feature["name"] + "."):
            field = _feature(feature["fields"], name[len(feature["name"]) + 1 :])
            if field is not None:
                return field | {"name": name, "path": {"step": [feature["name"], *field["path"]["step"]]}}
    return None
