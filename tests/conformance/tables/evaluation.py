"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold

config = EvaluationConfig(
    label="heavy", prediction="probability", slices=[[], ["species"]], thresholds=[Threshold("auc", lower=0.7)]
)
