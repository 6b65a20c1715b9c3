"""The pipeline builds, and what it names is there."""

from pathlib import Path

from drivetrain import data
from drivetrain.pipelines import load_pipeline

from ..evaluation import config

FOLDER = Path(__file__).parent.parent


def test_the_pipeline_builds() -> None:
    pipeline = load_pipeline(FOLDER).build()
    assert pipeline.name == FOLDER.name
    assert {"Trainer", "Evaluator", "Pusher"} <= set(pipeline.ids)


def test_the_schema_can_be_read() -> None:
    assert data.load_schema(FOLDER / "schema.yaml").features


def test_a_model_must_meet_a_threshold() -> None:
    assert config.thresholds
