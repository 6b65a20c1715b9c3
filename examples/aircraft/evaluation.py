"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="new",
    prediction="probability",
    slices=[[], ["type"], ["engine"]],
    thresholds=[Threshold("auc", lower=0.93), Threshold("auc", change_absolute=-0.01)],
)
