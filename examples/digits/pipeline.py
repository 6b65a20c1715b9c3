"""Images: 1,797 handwritten digits as PNG files, a residual network, and its judgement on images that it has not seen.

They are of scikit-learn (BSD-3), which has them from the UCI repository: 8 × 8 grey pixels each.
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

from .pixels import Pixels


@dt.pipeline
def digits(data: str = "digits", epochs: int = 20, destination: str = "served/digits") -> None:
    """Learn from three fifths of the images, stop by another fifth, judge on the last and push what is good enough."""
    files = ExampleGen(data, splits={"train": 3, "eval": 1, "test": 1})
    examples = Pixels(files)
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs, batch_size=64)
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config", split="test")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
