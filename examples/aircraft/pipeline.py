"""The aircraft pipeline: the register's entries to a pushed model."""

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
def aircraft(data: str = "nycflights13/planes", epochs: int = 20, destination: str = "served/aircraft") -> None:
    """Learn from two thirds of the entries, evaluate on the rest, push what is good enough."""
    examples = ExampleGen(data, splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs, batch_size=64)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
