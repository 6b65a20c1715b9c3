"""When the model is good enough to be pushed: its perplexity beside that of bigrams."""

import numpy as np
from drivetrain.components.evaluation import EvaluationConfig, Metric, SliceRows, Threshold


def perplexity() -> Metric:
    """Of a character, from the log-likelihood of each row and how many characters it has."""

    def value(rows: SliceRows) -> float:
        log_loss = -np.sum(rows.weight * rows.prediction) / np.sum(rows.weight * rows.label)
        return float(np.exp(log_loss))

    return Metric.of_rows("Perplexity", value, direction="lower", tasks=("regression",))


config = EvaluationConfig(
    label="characters",
    prediction="log_likelihood",
    task="regression",
    metrics=[perplexity],
    thresholds=[Threshold("perplexity", change_relative=-0.2)],
)
