"""Months as spans: each run takes one month, compares it with the one before, and learns from it and the two before.

`serve_months` has a running server take the model over; `watch_months` says when what is served is no longer what the
model learned from.
"""

import drivetrain as dt
from drivetrain.components import (
    Evaluator,
    ExampleGen,
    ExampleValidator,
    ImportSchema,
    InfraValidator,
    Pusher,
    ServedExamples,
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


@dt.pipeline
def serve_months(span: int, server: str = "http://127.0.0.1:8501", epochs: int = 1) -> None:
    """Train on the month `span`; where the model is good enough, the server serves it."""
    examples = ExampleGen(dt.files("data/month-{SPAN:2}.parquet", span=span), splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    model = Trainer(transform.examples, transform.graph, fn="model:train", epochs=epochs)
    evaluation = Evaluator(examples, model, config="evaluation:config")
    with dt.when(evaluation.blessed):
        validation = InfraValidator(model, examples, rows=50)
        Pusher(model, validation, destination="served/months", server=server)


@dt.pipeline
def watch_months(span: int, log: str = "request-log/months/*/*/*.parquet", since: str | None = None) -> None:
    """Compare what the server was asked with the month `span` that its model learned from: the schema's `skew`."""
    examples = ExampleGen(dt.files("data/month-{SPAN:2}.parquet", span=span), splits={"train": 2, "eval": 1})
    served = StatisticsGen.options(id="ServedStatistics")(ServedExamples(log, since=since, inputs_only=True))
    ExampleValidator(examples, StatisticsGen(examples), ImportSchema("schema.yaml"), serving=served)
