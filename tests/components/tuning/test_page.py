"""The page on tuning, docs/tuning.md: its pipeline builds, and its function is one that Trainer and Tuner call."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.components.tuning.space import SearchSpace
from drivetrain.pipelines import load_pipeline

PAGE = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text("utf-8")
PIPELINE, TRAIN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_pages_pipeline_builds(project: Callable[..., Path]) -> None:
    head = "import drivetrain as dt\nfrom drivetrain.components import *\n"
    folder = project(
        "tuned", pipeline=head + PIPELINE, features="def preprocess(columns): ...", model="def train(run): ..."
    )
    nodes = {node.id: dict(node.parameters) for node in load_pipeline(folder).build().nodes}
    assert "best_hyperparameters" in str(nodes["Trainer"]["hyperparameters"])
    pairs = dict(nodes["Tuner"]["space"]["$map"])
    assert list(pairs) == ["learning_rate", "units", "optimizer", "momentum"]


@pytest.mark.engine
def test_the_pages_function_reads_what_is_searched() -> None:
    import optax
    from drivetrain.components.tuning.trial import ReadHyperparameters

    fitted: list[Any] = []

    class Run:
        def __init__(self, hyperparameters: Any) -> None:
            self.hyperparameters = ReadHyperparameters(hyperparameters)

        def fit(self, model: Any, **options: Any) -> None:
            fitted.append(options["optimizer"])

    names: dict[str, Any] = {"optax": optax, "OPTIONS": {}, "Net": lambda units, rngs: None}
    names |= {"nnx_model": lambda build: build(None), "TrainingRun": Run, "Trained": None}
    exec(TRAIN, names)
    (block,) = re.findall(r"space=(\{\n.*?\n        \}),", PIPELINE, re.DOTALL)
    space = SearchSpace.read(eval(block, {"dt": dt}))
    for optimizer in ("adam", "sgd"):
        values = {"learning_rate": 0.1, "units": 16, "optimizer": optimizer, "momentum": 0.5}
        hyperparameters = space.draw(lambda name, domain, values=values: values[name])  # type: ignore[misc]
        run = Run(hyperparameters)
        names["train"](run)
        assert run.hyperparameters.read == set(hyperparameters)
    assert len(fitted) == 2
