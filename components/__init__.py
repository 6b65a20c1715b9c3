"""The standard components, one file each, thin over the rooms below."""

from .approval import Approval
from .distribution_validator import DistributionValidator
from .evaluator import Evaluator
from .example_diff import ExampleDiff
from .example_gen import ExampleGen
from .example_validator import ExampleValidator
from .import_schema import ImportSchema
from .pusher import Pusher
from .schema_gen import SchemaGen
from .statistics_gen import StatisticsGen
from .trainer import Trainer
from .transform import Transform

__all__ = [
    "Approval",
    "DistributionValidator",
    "Evaluator",
    "ExampleDiff",
    "ExampleGen",
    "ExampleValidator",
    "ImportSchema",
    "Pusher",
    "SchemaGen",
    "StatisticsGen",
    "Trainer",
    "Transform",
]
