"""The messages pipeline: sentences out of source code, made examples by a component of the project's own."""

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

from .messages import Messages


@dt.pipeline
def messages(epochs: int = 10, destination: str = "served/messages") -> None:
    """Learn from two thirds of the messages, evaluate on the rest, push what is good enough."""
    examples = Messages()
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs, batch_size=128)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
