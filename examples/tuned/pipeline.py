"""The weight of penguins: twelve trials, two at a time, and a model of the best hyperparameters.

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
    Tuner,
)

SPACE = {
    "learning_rate": dt.log_uniform(1e-4, 1e-1),
    "layers": dt.choice([16], [64], [64, 32]),
    "optimizer": dt.choice("adam", "sgd"),
    "momentum": dt.uniform(0.0, 0.9, only_if={"optimizer": "sgd"}),
}


@dt.pipeline
def tuned(
    data: str = "palmerpenguins", trials: int = 12, epochs: int = 27, destination: str = "served/penguin_weights"
) -> None:
    """Search on four fifths of the penguins, train with what was best, judge and push it."""
    examples = ExampleGen(data, splits={"train": 3, "eval": 1, "test": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema)
    transform = Transform(examples, schema, fn="features:preprocess")
    search = Tuner(
        transform.examples,
        transform.graph,
        fn="model:train",
        space=SPACE,
        trials=trials,
        epochs=epochs,
        batch_size=16,
        pruner="median",
        parallel=2,
    )
    model = Trainer(
        transform.examples,
        transform.graph,
        fn="model:train",
        epochs=epochs,
        batch_size=16,
        hyperparameters=search.best_hyperparameters,
    )
    evaluation = Evaluator(examples, model, baseline=dt.latest_blessed(), config="evaluation:config", split="test")
    with dt.when(evaluation.blessed):
        Pusher(model, destination=destination)
