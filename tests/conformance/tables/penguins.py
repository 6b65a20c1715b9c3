"""344 penguins (palmerpenguins, CC0) from a CSV to a pushed model, in parts."""

from __future__ import annotations

import drivetrain as dt
import pyarrow.parquet as pq
from drivetrain.components import (
    Evaluator,
    ExampleDiff,
    ExampleGen,
    ExampleValidator,
    ImportSchema,
    Pusher,
    SchemaGen,
    StatisticsGen,
    Trainer,
    Transform,
)
from drivetrain.metadata import Evaluation, Examples, Model
from drivetrain.pipelines import current


@dt.component
def Hold(examples: Examples) -> int:
    """Says that it has begun, and ends once it may."""
    import time

    (current().base / "begun").touch()
    while not (current().base / "go").exists():
        current().progress(0, None, "looks")
        time.sleep(0.05)
    return sum(examples.rows.values())


@dt.component
def Best(evaluations: list[Evaluation]) -> int:
    """Which of them has the highest AUC."""
    found = []
    for evaluation in evaluations:
        rows = pq.read_table(evaluation.content / "metrics.parquet").to_pylist()
        found += [row["value"] for row in rows if row["metric"] == "auc" and row["slice"] == "overall"]
    return found.index(max(found))


@dt.pipeline
def described(data: str = "palmerpenguins") -> None:
    examples = ExampleGen(data)
    statistics = StatisticsGen(examples, slices=["species"])
    SchemaGen(statistics)


@dt.pipeline
def by_split(data: str = "palmerpenguins", split: dict[str, int] = {"train": 2, "eval": 1}) -> None:  # noqa: B006 - as it is
    examples = ExampleGen(data, splits=split)
    statistics = StatisticsGen(examples)
    dt.map_(lambda name: SchemaGen(statistics, split=name), over=dt.loops.splits(examples), max_parallel=1)
    few = dt.loops.splits(examples, exclude=["eval"])
    Names(names=dt.map_(lambda name: Told.options(id="Each")(state=name), over=few))


@dt.component
def Names(*, names: list[str]) -> str:
    return " ".join(names)


@dt.pipeline
def checked(data: str = "palmerpenguins") -> None:
    examples = ExampleGen(data)
    statistics = StatisticsGen(examples)
    ExampleValidator(examples, statistics, SchemaGen(statistics))
    StatisticsGen.options(id="Behind")(examples, columns=["species"])


@dt.pipeline
def refused(data: str = "palmerpenguins") -> None:
    examples = ExampleGen(data)
    statistics = StatisticsGen(examples)
    ExampleValidator(examples, statistics, ImportSchema("few_species.yaml"))
    StatisticsGen.options(id="Behind")(examples, columns=["species"])
    with dt.on_exit() as run:
        Told(state=run.state)


@dt.component
def Told(*, state: str) -> str:
    return state


@dt.pipeline
def compared(data: str = "palmerpenguins") -> None:
    one = ExampleGen(data, splits={"all": 1})
    other = ExampleGen.options(id="Other")(data, splits={"all": 1}, span=1)
    ExampleDiff(one, other, key=["species", "island", "bill_length_mm", "body_mass_g", "year"], allow_duplicates=True)


@dt.pipeline
def transformed(data: str = "palmerpenguins") -> None:
    examples = ExampleGen(data)
    transform = Transform(examples, SchemaGen(StatisticsGen(examples)), fn="features:preprocess")
    StatisticsGen.options(id="After")(transform.examples)


@dt.pipeline
def trained(data: str = "palmerpenguins", epochs: int = 5) -> None:
    examples = ExampleGen(data)
    transform = Transform(examples, SchemaGen(StatisticsGen(examples)), fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs, batch_size=64)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination="serving/penguins")
    with dt.otherwise():
        Told(state="not blessed")


@dt.pipeline
def searched(rates: list[float]) -> None:
    examples = ExampleGen("palmerpenguins")
    transform = Transform(examples, SchemaGen(StatisticsGen(examples)), fn="features:preprocess")

    def one(rate: float) -> tuple[Model, Evaluation]:
        model = Trainer(
            transform.examples, transform.graph, fn="model:train", batch_size=64, hyperparameters={"rate": rate}
        )
        return model, Evaluator(examples, model, config="evaluation:config")

    _, evaluations = dt.loops.unzip(dt.map_(one, over=rates, max_parallel=1))
    Best(evaluations)


@dt.pipeline
def held() -> None:
    examples = ExampleGen("palmerpenguins")
    statistics = StatisticsGen(examples)
    rows = Hold(examples)
    with dt.when(rows > 300):
        schema = SchemaGen(statistics)
    ExampleValidator(examples, statistics, dt.one_of(schema, schema))
    dt.map_(lambda name: StatisticsGen.options(id="Each")(examples, columns=[name]), over=["species", "year"])
