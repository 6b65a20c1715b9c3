"""Months as spans: each run takes one month, compares it with the one before, and learns from it and the two before."""

import drivetrain as dt
from drivetrain.components import (
    Evaluator,
    ExampleGen,
    ExampleValidator,
    ImportSchema,
    StatisticsGen,
    Trainer,
    Transform,
)


@dt.pipeline
def months(span: int | None = None, epochs: int = 1) -> None:
    """Train on the month `span` (the newest that there is where None) and the two before it, evaluate on `span`."""
    examples = ExampleGen(dt.files("data/month-{SPAN:2}.parquet", span=span), splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema, previous=dt.resolvers.previous(statistics))
    before = dt.resolvers.rolling(examples, 2, before=True, min_spans=0)
    transform = Transform(examples, schema, history=before, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs)
    Evaluator(examples, model, config="evaluation:config")
