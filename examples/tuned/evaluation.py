"""When the model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="kilograms",
    prediction="predicted",
    task="regression",
    slices=[[], ["island"]],
    thresholds=[Threshold("r2", lower=0.7), Threshold("mae", change_relative=0.05)],
)
