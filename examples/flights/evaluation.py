"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="late",
    prediction="probability",
    slices=[[], ["carrier"], ["origin"], ["month"]],
    thresholds=[
        Threshold("auc", lower=0.88),
        Threshold("log_loss", upper=0.33),
        Threshold("auc", change_absolute=-0.005),
    ],
)
