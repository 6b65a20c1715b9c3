"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="lost",
    prediction="probability",
    slices=[[], ["origin"], ["month"]],
    thresholds=[Threshold("auc", lower=0.73), Threshold("auc", change_absolute=-0.005)],
)
