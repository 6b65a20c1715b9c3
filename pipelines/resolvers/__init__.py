"""Artifacts chosen from what earlier runs made: by span, in windows, by what a model was trained on, by its name.

`dt.latest`, `dt.latest_blessed`, `dt.artifact` and `dt.registered` are what most pipelines need; the rarer ones are
`dt.resolvers.…`.
"""

from .queries import (
    all_spans,
    artifact,
    latest,
    latest_blessed,
    latest_model,
    newest_model_not_trained_on,
    previous,
    registered,
    rolling,
    static_range,
)

__all__ = [
    "all_spans",
    "artifact",
    "latest",
    "latest_blessed",
    "latest_model",
    "newest_model_not_trained_on",
    "previous",
    "registered",
    "rolling",
    "static_range",
]
