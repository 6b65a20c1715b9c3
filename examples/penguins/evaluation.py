"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="adelie",
    prediction="probability",
    slices=[[], ["island"]],
    thresholds=[Threshold("auc", lower=0.95), Threshold("auc", change_absolute=-0.01)],
)
