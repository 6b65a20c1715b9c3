"""Language: a decoder learns the characters of Python's help texts, and is pushed where it is better than bigrams."""

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

from .topics import Topics

SHAPE = {"width": 96, "layers": 2, "heads": 3}


@dt.pipeline
def language(epochs: int = 2, learning_rate: float = 4e-3, destination: str = "served/language") -> None:
    """Learn from twelve of thirteen passages, and judge on the rest beside a model that only counts pairs."""
    examples = Topics()
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    bigrams = Trainer.options(id="Bigrams")(transform.examples, transform.graph, fn="bigrams:train")
    model = Trainer(
        transform.examples,
        transform.graph,
        fn="model:train",
        epochs=epochs,
        batch_size=8,
        hyperparameters={"learning_rate": learning_rate, "shape": SHAPE},
    )
    evaluation = Evaluator(examples, model, baseline=bigrams, config="evaluation:config")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
