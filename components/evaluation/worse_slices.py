"""What `find_slices` names: slices that are worse than the rest, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...data.frames import frame
from ...redaction import printable
from .config import Slice


@dataclass(frozen=True)
class WorseSlice:
    """A slice on which the model is worse than on the rest.

    Attributes:
        name: For people: "carrier=AA, distance >= 900".
        sql: Its condition, a DuckDB expression over the columns.
        columns: What it is made of.
        rows: How many it has.
        share: Its share of all rows, or of their weight.
        loss: Its mean loss.
        rest_loss: That of all other rows.
        effect: (loss − rest_loss) / √((s² + r²) / 2), where s and r are the standard deviations of the losses within
            and without (Chung et al. 2019).
        p_value: The larger of Welch's test and of a permutation test, times the number of slices that could be
            looked at. It is of what the slices named before it leave.
    """

    name: str
    sql: str
    columns: tuple[str, ...]
    rows: int
    share: float
    loss: float
    rest_loss: float
    effect: float
    p_value: float

    @property
    def slice(self) -> Slice:
        """What `EvaluationConfig(slices=[…])` and `evaluate(slices=[…])` take."""
        return Slice(self.name, sql=self.sql)


_FIELDS: Final = ("slice", "rows", "share", "loss", "rest_loss", "effect", "p_value", "sql")


@dataclass(frozen=True)
class WorstSlices(Sequence[WorseSlice]):
    """The slices that `find_slices` names, the strongest evidence first.

    Attributes:
        findings: The slices.
        measure: What the losses are: "log-loss", "excess log-loss" or "squared error".
        loss: The mean loss of all rows.
        rows: How many rows were searched.
        of_rows: How many the data have; more than `rows` of a sample or where weights are 0.
        looked_at: The slices that could be looked at, for which p-values are corrected.
        level: The family-wise error.
        left_out: Columns that were not searched, and why; or which of their values were not.
    """

    findings: tuple[WorseSlice, ...]
    measure: str
    loss: float
    rows: int
    of_rows: int
    looked_at: int
    level: float
    left_out: Mapping[str, str]

    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def slices(self) -> list[Slice]:
        """All of them, for `EvaluationConfig(slices=…)` and `evaluate(slices=…)`."""
        return [finding.slice for finding in self.findings]

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row for each slice: what `WorseSlice` has.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        return frame(_FIELDS, self._cells())

    def _cells(self) -> list[tuple[Any, ...]]:
        return [
            (each.name, each.rows, each.share, each.loss, each.rest_loss, each.effect, each.p_value, each.sql)
            for each in self.findings
        ]

    @property
    def summary(self) -> str:
        """One line: how many slices are worse, and over what was searched."""
        count = len(self.findings)
        worse = f"{count or 'no'} slice{' is' if count == 1 else 's are'} worse than the rest"
        sampled = f" of {self.of_rows:,}" if self.of_rows > self.rows else ""
        return (
            f"{worse}: {self.rows:,}{sampled} rows, {self.measure} {self.loss:.4g}, {self.looked_at:,} slices searched"
        )

    def __repr__(self) -> str:
        lines = [
            f"  {each.name}: {each.rows:,} rows ({each.share:.1%}), {self.measure} {each.loss:.4g} against "
            f"{each.rest_loss:.4g}, effect {each.effect:.2f}, "
            + (f"p = {each.p_value:.1g}" if each.p_value else "p < 1e-300")
            for each in self.findings
        ]
        left_out = (f"  left out: {name} ({why})" for name, why in self.left_out.items())
        return printable("\n".join([self.summary, *lines, *left_out]))

    def _repr_html_(self) -> str:
        from ...report import TableColumn, framed, join, page, percent, section, table

        numbers = ("Rows", "Share", self.measure.capitalize(), "Rest", "Effect", "p-value")
        heads: list[TableColumn | str] = ["Slice", *(TableColumn(name, numeric=True) for name in numbers), "SQL"]
        rows = [(name, n, percent(share), *others) for name, n, share, *others in self._cells()]
        parts = [section("The worst slices", table(heads, rows, empty="No slice is worse than the rest."))]
        if self.left_out:
            parts.append(section("Left out", table(["Column", "Why"], list(self.left_out.items()))))
        return framed(page("Slices", join(parts), subtitle=self.summary))
