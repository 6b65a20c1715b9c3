"""When the model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="digit",
    prediction="probabilities",
    task="multiclass",
    slices=[[], ["label"]],
    thresholds=[Threshold("accuracy", lower=0.95), Threshold("log_loss", change_absolute=0.05)],
)
