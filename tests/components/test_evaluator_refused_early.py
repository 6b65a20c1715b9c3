"""A configuration that cannot be is refused before the first work of a run whose Evaluator comes late."""

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, RunResult, load_pipeline, run_pipeline
from drivetrain.pipelines.launcher.states import EndState

pytestmark = pytest.mark.engine

PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import Evaluator, ExampleGen, SchemaGen, StatisticsGen, Trainer, Transform

    @dt.pipeline
    def shop() -> None:
        examples = ExampleGen("rows.csv", splits={"train": 1, "eval": 1})
        schema = SchemaGen(StatisticsGen(examples))
        transform = Transform(examples, schema, fn="features:preprocess")
        model = Trainer(transform.examples, transform.graph, fn="model:train")
        Evaluator(examples, model, config="evaluation:config")
"""
CONFIG = """
    from drivetrain.components.evaluation import EvaluationConfig

    config = EvaluationConfig(
        label="late",
        prediction="probability",
        {},
    )
"""


@pytest.fixture
def run(project: Callable[..., Path], tmp_path: Path) -> Callable[[str], RunResult]:
    """Runs the pipeline with these arguments of its configuration."""

    def go(arguments: str) -> RunResult:
        modules = {"features": "def preprocess(columns): ...", "model": "def train(data): ..."}
        folder = project(pipeline=PIPELINE, evaluation=CONFIG.format(arguments), **modules)
        (folder / "rows.csv").write_text("speed,late\n" + "".join(f"{row},{row % 2}\n" for row in range(40)))
        return run_pipeline(Home(tmp_path / ".drivetrain"), load_pipeline(folder), {})

    return go


def failed(result: RunResult) -> dict[str, str]:
    return {name: node.reason for name, node in result.nodes.items() if node.state is EndState.FAILED}


def test_a_wrong_metric_is_refused_before_anything_is_read(run: Callable[[str], RunResult], tmp_path: Path) -> None:
    [(name, reason)] = failed(run('metrics=["auc", "log_los"]')).items()
    assert name == "ExampleGen"
    assert "Evaluator: there is no metric 'log_los'" in reason
    assert "did you mean 'log_loss'?" in reason
    assert f"{tmp_path / 'shop' / 'evaluation.py'}:4" in reason


def test_a_slice_that_cannot_be_is_refused_once_the_examples_are_there(run: Callable[[str], RunResult]) -> None:
    [(name, reason)] = failed(run('slices=[["sped"]]')).items()
    assert name == "StatisticsGen"
    assert "Evaluator: the slice ['sped'] needs the column 'sped', which the examples do not have" in reason
    assert "did you mean 'speed'?" in reason
