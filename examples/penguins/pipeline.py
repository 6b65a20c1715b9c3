"""The penguins pipeline: raw data to a pushed model.

344 penguins of three species, measured near Palmer Station, Antarctica (palmerpenguins, CC0).
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
def penguins(data: str = "palmerpenguins", epochs: int = 30, destination: str = "served/penguins") -> None:
    """Learn from two thirds of the penguins, evaluate on the rest, push what is good enough."""
    examples = ExampleGen(data, splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs, batch_size=32)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
