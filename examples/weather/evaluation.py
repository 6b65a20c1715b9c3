"""When each model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold, metric

temperature = EvaluationConfig(
    label="warmth",
    prediction="degrees",
    task="regression",
    slices=[[], ["origin"], ["month"]],
    thresholds=[Threshold("r2", lower=0.9, judge="strict"), Threshold("mae", change_relative=0.02, judge="lenient")],
    confidence="jackknife",
)

season = EvaluationConfig(
    label="season_id",
    prediction="probabilities",
    task="multiclass",
    slices=[[], ["origin"]],
    thresholds=[Threshold("accuracy", lower=0.5), Threshold("log_loss", change_absolute=0.02)],
)

conditions = EvaluationConfig(
    label="holds",
    prediction="probabilities",
    metrics=["hamming_loss", "micro_f1", metric("auc", average="macro", name="auc")],
    task="multilabel",
    slices=[[], ["origin"]],
    thresholds=[Threshold("auc", lower=0.8), Threshold("auc", change_absolute=-0.01)],
)

windiest = EvaluationConfig(
    label="wind",
    prediction="score",
    query="time_hour",
    metrics=["ndcg", metric("hit_rate", k=1, name="has wind"), "query_count", metric("ndcg", k=1, name="best airport")],
    slices=[[], ["month"]],
    thresholds=[Threshold("ndcg", lower=0.9, judge="strict"), Threshold("ndcg", change_absolute=-0.01)],
    confidence="bootstrap",
)
