"""What corruption of data is found: forty kinds planted in eight real tables, beside TFDV.

    python benchmarks/detection.py [--record] [--tfdv PYTHON]

A table is the span before: the schema is inferred from it, by default (a) and with slack (b); with drift (c) it also
has bounds, twice the largest number that the comparator has on twenty clean spans, and the number of rows may change by
5 %. A span is as many rows drawn from the table with replacement. Every kind of `corruptions.py` is planted in spans,
in two columns that it fits, in 10 %, 1 % and, of 10,000 rows and more, 0.1 % of the rows. It is found if an anomaly
names a damaged column, or the number of rows where that is the damage. Twenty clean spans count false alarms; and,
apart, twenty random halves against a schema inferred from the other half, whose rare values it has not seen.

`detection.json` keeps, for each case, who found it: ours, and TFDV's answers with a digest of the damaged tables, so
that the benchmark runs without TFDV. `--record` writes ours and the tables of docs/detection.md anew; `--tfdv` asks the
TFDV of another Python (`tensorflow-data-validation==1.16.1 dill==0.4.1 "setuptools<81"` on Python 3.11), configured as
`detection_tfdv.py` says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from drivetrain import data
from drivetrain.benchmarks.common import report
from drivetrain.benchmarks.corruptions import KINDS, OWNERS, Case, cases, resample
from drivetrain.benchmarks.detection_data import DATA
from drivetrain.data.rowhash import hash_rows

RECORD: Final = Path(__file__).with_name("detection.json")
PAGE: Final = Path(__file__).parent.parent / "docs" / "detection.md"
SHARES: Final = (0.001, 0.01, 0.1)
LARGE: Final = 10_000  # rows from which the smallest share is planted
COLUMNS: Final = 2
SLACK: Final = 0.25
CALIBRATION, CLEAN = 20, 20
FACTOR: Final = 2.0
ROWS: Final = (0.95, 1.05)
# Of texts what TFDV has too; of numbers its divergence, which the loss of an outlier moves, and what no outlier moves.
COMPARATORS: Final = {
    "text": ("l_infinity", "missing_rate"),
    "number": ("jensen_shannon", "jensen_shannon_quantiles", "l_infinity", "missing_rate"),
}

Answers = dict[str, Any]  # as JSON: "cases" to the letters of who found them, "clean" and "unseen" alarms by letter


@dataclass(frozen=True)
class Trial:
    """The spans of a table, all drawn from one seed; equal calls give equal spans.

    Attributes:
        name: The table's, of `DATA`.
        rows: The span before.
        label: The column that a model would predict.
    """

    name: str
    rows: pa.Table
    label: str

    def calibration(self) -> Iterator[pa.Table]:
        """Clean spans to learn bounds from."""
        return self._spans("calibration", CALIBRATION)

    def clean(self) -> Iterator[pa.Table]:
        """Clean spans to count false alarms on."""
        return self._spans("clean", CLEAN)

    def unseen(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Random halves: what a schema is inferred from, and rows that it has not seen."""
        random = self._random("unseen")
        for _ in range(CLEAN):
            order = random.permutation(self.rows.num_rows)
            halves = (np.sort(half) for half in np.array_split(order, 2))
            old, new = (self.rows.take(pa.array(half)) for half in halves)
            yield old, new

    def cases(self) -> Iterator[Case]:
        """Spans with something planted."""
        shares = SHARES if self.rows.num_rows >= LARGE else SHARES[1:]
        return cases(self.rows, self.label, shares, COLUMNS, zlib.crc32(self.name.encode()))

    def _random(self, what: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{self.name}: {what}".encode()))

    def _spans(self, what: str, count: int) -> Iterator[pa.Table]:
        random = self._random(what)
        return (resample(self.rows, random) for _ in range(count))

    def digest(self) -> str:
        """Of all damaged rows: answers about others say nothing of these.

        Floats count to seven digits: the last ones depend on the CPU and on pyarrow's version.
        """
        digest = hashlib.sha256()
        for case in self.cases():
            digest.update(case.name.encode())
            kinds = [pa.float32() if pa.types.is_floating(kind) else kind for kind in case.rows.schema.types]
            rounded = case.rows.cast(pa.schema(list(zip(case.rows.column_names, kinds, strict=True))), safe=False)
            for batch in rounded.combine_chunks().to_batches():
                digest.update(hash_rows(batch).tobytes())
        return digest.hexdigest()[:16]


def trial(name: str) -> Trial:
    """The trial of one of `DATA`."""
    table = DATA[name]()
    return Trial(name, table.rows, table.label)


class Gate:
    """What drivetrain checks spans with: three schemas, from the span before."""

    def __init__(self, reference: pa.Table) -> None:
        self.reference = data.statistics(reference)
        self.default = data.infer_schema(self.reference)
        self.slack = data.infer_schema(self.reference, slack=SLACK)

    @cached_property
    def drift(self) -> data.Schema:
        """With slack and bounds on drift, from `bound`."""
        raise AttributeError("call bound first")

    def bound(self, spans: Iterable[pa.Table]) -> None:
        """Set the bounds on drift from clean spans."""
        largest: dict[str, dict[str, float]] = {}
        for span in spans:
            changes = data.drift(span, self.reference)
            for feature in self.slack.features:
                for comparator in COMPARATORS["number" if feature.type in ("int", "float") else "text"]:
                    number = changes[feature.name].number(comparator)
                    if number is not None:
                        bounds = largest.setdefault(feature.name, {})
                        bounds[comparator] = max(bounds.get(comparator, 0.0), FACTOR * number)
        features = (replace(feature, drift=largest.get(feature.name, {})) for feature in self.slack.features)
        self.drift = replace(self.slack, features=tuple(features), rows_drift=data.Ratio(*ROWS))

    def letters(self, span: pa.Table, touched: frozenset[str] | None = None, asked: str = "abc") -> str:
        """Which of those asked has an anomaly: of a touched column, or any where None."""
        statistics = data.statistics(span)

        def anomalies(letter: str) -> tuple[data.Anomaly, ...]:
            if letter == "c":
                return data.validate(statistics, self.drift, previous=self.reference).anomalies
            return data.validate(statistics, self.default if letter == "a" else self.slack).anomalies

        return "".join(
            letter
            for letter in asked
            if any(touched is None or (anomaly.feature or "") in touched for anomaly in anomalies(letter))
        )


def ours(of: Trial) -> Answers:
    """What drivetrain finds."""
    gate = Gate(of.rows)
    gate.bound(of.calibration())
    clean = [gate.letters(span) for span in of.clean()]
    unseen = {"a": 0, "b": 0}
    for old, new in of.unseen():
        before, statistics = data.statistics(old), data.statistics(new)
        for letter, slack in (("a", None), ("b", SLACK)):
            schema = data.infer_schema(before, slack=slack)
            unseen[letter] += bool(data.validate(statistics, schema).anomalies)
    return {
        "cases": {case.name: gate.letters(case.rows, case.touched) for case in of.cases()},
        "clean": {letter: sum(letter in letters for letters in clean) for letter in "abc"},
        "unseen": unseen,
    }


def ask_tfdv(python: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """TFDV's version and answers, from a process of another Python."""
    with tempfile.TemporaryDirectory() as folder:
        for of in trials:
            _write(of, Path(folder) / of.name)
        script = Path(__file__).with_name("detection_tfdv.py")
        subprocess.run([python, str(script), folder], check=True)
        answers: dict[str, Any] = json.loads((Path(folder) / "answers.json").read_text("utf-8"))
        return answers


def _write(of: Trial, folder: Path) -> None:
    folder.mkdir()
    number = 0

    def write(table: pa.Table, name: str = "") -> str:
        nonlocal number
        number += 1
        with pa.ipc.new_file(folder / f"{name or number}.arrow", table.schema) as file:
            file.write_table(table)
        return name or str(number)

    write(of.rows, "reference")
    described = {
        "factor": FACTOR,
        "rows": ROWS,
        "calibration": [write(span) for span in of.calibration()],
        "clean": [write(span) for span in of.clean()],
        "unseen": [[write(half) for half in halves] for halves in of.unseen()],
        "cases": {case.name: (write(case.rows), sorted(case.touched)) for case in of.cases()},
    }
    (folder / "trial.json").write_text(json.dumps(described), "utf-8")


# --- what is recorded, and shown


@dataclass(frozen=True)
class Record:
    """The answers of both, as `detection.json` holds them.

    Attributes:
        version: TFDV's.
        digests: Of each table's damaged rows.
        ours: Our answers by table.
        tfdv: TFDV's answers by table.
    """

    version: str
    digests: Mapping[str, str]
    ours: Mapping[str, Answers]
    tfdv: Mapping[str, Answers]

    @classmethod
    def load(cls) -> Record:
        """As it was recorded."""
        document = json.loads(RECORD.read_text("utf-8"))
        ours_of, tfdv_of, digests = {}, {}, {}
        for name, table in document["tables"].items():
            digests[name] = table["digest"]
            both = {case: pair.split("|") for case, pair in table["cases"].items()}
            ours_of[name] = table["ours"] | {"cases": {case: pair[0] for case, pair in both.items()}}
            tfdv_of[name] = table["tfdv"] | {"cases": {case: pair[1] for case, pair in both.items()}}
        return cls(document["tfdv"], digests, ours_of, tfdv_of)

    def save(self) -> None:
        """Write it: of each case who found it, ours | TFDV's."""
        tables = {}
        for name, digest in self.digests.items():
            ours_of, tfdv_of = self.ours[name], self.tfdv[name]
            both = {case: f"{letters}|{tfdv_of['cases'][case]}" for case, letters in ours_of["cases"].items()}
            alarms = [{key: side[key] for key in ("clean", "unseen")} for side in (ours_of, tfdv_of)]
            tables[name] = {"digest": digest, "ours": alarms[0], "tfdv": alarms[1], "cases": both}
        RECORD.write_text(json.dumps({"tfdv": self.version, "tables": tables}, indent=0, ensure_ascii=False) + "\n")

    def share(self, kinds: Iterable[str], side: str, letter: str, shares: Sequence[float | None]) -> float | None:
        """Share of the cases that a side found at some shares of rows; None where there is no case."""
        wanted = set(kinds)
        answers = self.ours if side == "ours" else self.tfdv
        hits = [
            letter in letters
            for table in answers.values()
            for case, letters in table["cases"].items()
            if kind_of(case) in wanted and share_of(case) in shares
        ]
        return sum(hits) / len(hits) if hits else None


def kind_of(case: str) -> str:
    """The name of a case's kind."""
    return case.partition(", ")[0]


def share_of(case: str) -> float | None:
    """The share of rows that a case damages; None: all."""
    last = case.rpartition(", ")[2]
    return float(last.removesuffix("%")) / 100 if last.endswith("%") else None


COLUMNS_OF_TABLES: Final = (("ours", "a"), ("tfdv", "a"), ("ours", "b"), ("ours", "c"), ("tfdv", "c"))
HEADS: Final = ("default", "TFDV, default", "slack", "drift", "TFDV, drift")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def kinds_table(record: Record) -> list[list[str]]:
    """One line for each kind: percent found at 1 % / 10 % of the rows, or once where all rows are damaged."""
    lines = [["what is planted", "whose", "cases", *HEADS]]
    for kind in KINDS:
        shares: list[tuple[float | None]] = [(None,)] if kind.whole else [(0.01,), (0.1,)]
        planted = sum(kind_of(case) == kind.name for table in record.ours.values() for case in table["cases"])
        cells = [
            " / ".join(_percent(record.share([kind.name], side, letter, share)) for share in shares)
            for side, letter in COLUMNS_OF_TABLES
        ]
        lines.append([kind.name, kind.owner, str(planted), *cells])
    return lines


def owners_table(record: Record) -> list[list[str]]:
    """One line for each owner and share of rows: percent found."""
    lines = [["whose", "rows damaged", *HEADS]]
    for owner in OWNERS:
        names = [kind.name for kind in KINDS if kind.owner == owner]
        for share in (*SHARES, None):
            cells = [_percent(record.share(names, side, letter, (share,))) for side, letter in COLUMNS_OF_TABLES]
            if any(cell != "–" for cell in cells):
                lines.append([owner, "all" if share is None else f"{share:.1%}".replace(".0%", "%"), *cells])
    return lines


def alarms_table(record: Record) -> list[list[str]]:
    """One line for each table: false alarms of twenty clean spans, and of twenty halves not seen."""
    lines = [["table", *HEADS, "halves: default", "halves: TFDV", "halves: slack"]]
    for name, table in record.ours.items():
        peer = record.tfdv[name]
        sides = {"ours": table, "tfdv": peer}
        cells = [sides[side]["clean"][letter] for side, letter in COLUMNS_OF_TABLES]
        halves = [table["unseen"]["a"], peer["unseen"]["a"], table["unseen"]["b"]]
        lines.append([name, *map(str, [*cells, *halves])])
    return lines


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table of lines, the first its head."""
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body]) + "\n"


TABLES: Final[Mapping[str, Callable[[Record], list[list[str]]]]] = {
    "kinds": kinds_table,
    "owners": owners_table,
    "alarms": alarms_table,
}


def page(record: Record, text: str) -> str:
    """The page with its tables written anew: each stands between its marks."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + "\n" + markdown(table(record)) + "\n" + end + rest.partition(end)[2]
    return text


def behind(record: Record, letter: str) -> list[str]:
    """The kinds of which TFDV finds more."""
    shares = (*SHARES, None)
    numbers = {
        kind.name: [record.share([kind.name], side, letter, shares) or 0.0 for side in ("ours", "tfdv")]
        for kind in KINDS
    }
    return [name for name, (mine, peers) in numbers.items() if mine < peers]


def figures(record: Record) -> dict[str, float]:
    """What the ledger keeps."""
    numbers: dict[str, float] = {}
    for owner, letter in (("schema", "a"), ("slack", "b"), ("drift", "c")):
        names = [kind.name for kind in KINDS if kind.owner == owner]
        for side, title in (("ours", ""), ("tfdv", "TFDV, ")):
            asked = "c" if side == "tfdv" and letter == "b" else letter  # it infers no ranges
            share = record.share(names, side, asked, (*SHARES, None))
            numbers[f"{title}share found, kinds of {OWNERS[owner].partition(',')[0]}"] = share or 0.0
    for letter, title in (("a", "default"), ("c", "drift")):
        numbers[f"kinds that TFDV finds more of, {title}"] = len(behind(record, letter))
    for letter, title in (("a", "default"), ("b", "slack"), ("c", "drift")):
        alarms = [table["clean"][letter] for table in record.ours.values()]
        numbers[f"false alarms of {CLEAN} clean spans, {title}, worst table"] = max(alarms)
    return numbers


BARS = {  # figure: bound, and whether it is an upper one
    "kinds that TFDV finds more of, default": (0, True),
    "kinds that TFDV finds more of, drift": (0, True),
    "false alarms of 20 clean spans, default, worst table": (1, True),
    "false alarms of 20 clean spans, slack, worst table": (1, True),
    "false alarms of 20 clean spans, drift, worst table": (1, True),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write detection.json and docs/detection.md anew")
    parser.add_argument("--tfdv", metavar="PYTHON", help="ask the TFDV of this Python, and record what it says")
    arguments = parser.parse_args()
    trials = [trial(name) for name in DATA]
    digests = {of.name: of.digest() for of in trials}
    if arguments.tfdv:
        peer = ask_tfdv(arguments.tfdv, trials)
        version, answers = peer["version"], peer["answers"]
    else:
        recorded = Record.load()
        version, answers = recorded.version, recorded.tfdv
        stale = [name for name, digest in digests.items() if recorded.digests.get(name) != digest]
        if stale:
            parser.error(f"TFDV's answers are about other tables ({', '.join(stale)}); ask it again with --tfdv PYTHON")
    record = Record(version, digests, {of.name: ours(of) for of in trials}, answers)
    for table in TABLES.values():
        lines = table(record)
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        for line in lines:
            print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
        print()
    for letter in "ac":
        for name in behind(record, letter):
            print(f"TFDV finds more of ({letter}): {name}")
    report("detection", figures(record), BARS)
    if arguments.record or arguments.tfdv:
        record.save()
        PAGE.write_text(page(record, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
