"""The standard components, one file each, thin over the packages below; each is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .approval import Approval as Approval
    from .bulk_inferrer import BulkInferrer as BulkInferrer
    from .distribution_validator import DistributionValidator as DistributionValidator
    from .evaluator import Evaluator as Evaluator
    from .example_diff import ExampleDiff as ExampleDiff
    from .example_gen import ExampleGen as ExampleGen
    from .example_validator import ExampleValidator as ExampleValidator
    from .explainer import Explainer as Explainer
    from .import_model import ImportModel as ImportModel
    from .import_schema import ImportSchema as ImportSchema
    from .infra_validator import InfraValidator as InfraValidator
    from .pusher import Pusher as Pusher
    from .register import Register as Register
    from .schema_gen import SchemaGen as SchemaGen
    from .served_evaluator import ServedEvaluator as ServedEvaluator
    from .served_examples import ServedExamples as ServedExamples
    from .statistics_gen import StatisticsGen as StatisticsGen
    from .trainer import Trainer as Trainer
    from .transform import Transform as Transform
    from .tuner import Tuner as Tuner

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "approval": "Approval",
        "bulk_inferrer": "BulkInferrer",
        "distribution_validator": "DistributionValidator",
        "evaluator": "Evaluator",
        "example_diff": "ExampleDiff",
        "example_gen": "ExampleGen",
        "example_validator": "ExampleValidator",
        "explainer": "Explainer",
        "import_model": "ImportModel",
        "import_schema": "ImportSchema",
        "infra_validator": "InfraValidator",
        "pusher": "Pusher",
        "register": "Register",
        "schema_gen": "SchemaGen",
        "served_evaluator": "ServedEvaluator",
        "served_examples": "ServedExamples",
        "statistics_gen": "StatisticsGen",
        "trainer": "Trainer",
        "transform": "Transform",
        "tuner": "Tuner",
    },
)
