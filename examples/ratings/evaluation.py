"""When a model is good enough to be pushed; a change here trains nothing anew."""

from drivetrain.components.evaluation import EvaluationConfig, Threshold, metric

ranking = EvaluationConfig(
    label="rating",
    prediction="predicted",
    query="tailnum",
    metrics=[metric("ndcg", k=10), metric("recall_at_k", k=10), "mean_reciprocal_rank"],
    thresholds=[Threshold("ndcg(k=10)", lower=0.85), Threshold("ndcg(k=10)", change_absolute=-0.01)],
)
"""The airports that an aircraft flies to before those that it does not, the most frequent first."""

error = EvaluationConfig(
    label="rating",
    prediction="predicted",
    task="regression",
    metrics=["rmse", "mae", "r2"],
    thresholds=[Threshold("rmse", upper=0.35)],
)
