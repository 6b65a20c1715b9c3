"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="type_error",
    prediction="probability",
    slices=[[], ["library"]],
    thresholds=[Threshold("auc", lower=0.8), Threshold("auc", change_absolute=-0.01)],
)
