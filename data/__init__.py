"""Arrow record batches: sources, shards, executors, statistics, schema. Usable without any pipeline."""

from ..progress import Progress, no_progress
from .aggregates.sums import ExactMoments, ExactSum
from .base import Accumulator, BatchFn, Executor, Route
from .derived import Derive, derived
from .drift_skew.report import DriftReport, drift
from .example_diff.diff import ExamplesDiff, diff_examples
from .examples import Manifest, Part, Sink, open_examples, sinks, splits
from .executors import executor
from .expectations.check import check_expectations
from .expectations.from_schema import schema_to_expectations
from .expectations.suite import ExpectationResults, Suite, read_suite
from .expectations.to_schema import schema_from_suite
from .expectations.unexpected_rows import check_sql
from .local import LocalExecutor
from .reading.files import open_files
from .reading.source_of import source_of
from .reading.sql_rows import open_query
from .schema_inference.infer import infer_schema
from .schema_inference.patch import SchemaChange, SchemaPatch
from .schema_inference.update import update_schema
from .schemas.checks import Check, Expectation
from .schemas.pbtxt_read import load_pbtxt, schema_from_pbtxt
from .schemas.pbtxt_write import schema_to_pbtxt
from .schemas.problems import Problem, SchemaError
from .schemas.schema import Bool, Count, Feature, Presence, Range, Ratio, Schema, Semantic, Time, Values
from .schemas.weighted_feature import WeightedFeature
from .schemas.yaml_edit import edit_yaml
from .schemas.yaml_read import load_schema, schema_from_yaml
from .schemas.yaml_write import schema_to_yaml
from .sources import BATCH_ROWS, Shard, Source, open_parquet
from .split import ColumnSplit, HashSplit
from .stats.accumulator import StatisticsAccumulator
from .stats.document import Statistics, merge_statistics, statistics
from .streams.directory import growing_directory
from .streams.kafka import kafka_topic
from .streams.micro_spans import Chunk, Stream, StreamSpan, stream, stream_spans
from .validation.anomalies import Anomalies, Anomaly
from .validation.anomalous_rows import anomalous_rows, anomalous_table
from .validation.custom_validation import checks_from_pbtxt, load_checks
from .validation.instances import validate_instance
from .validation.validate import validate

__all__ = [
    "BATCH_ROWS",
    "Accumulator",
    "Anomalies",
    "Anomaly",
    "BatchFn",
    "Bool",
    "Check",
    "Chunk",
    "ColumnSplit",
    "Count",
    "Derive",
    "DriftReport",
    "ExactMoments",
    "ExactSum",
    "ExamplesDiff",
    "Executor",
    "Expectation",
    "ExpectationResults",
    "Feature",
    "HashSplit",
    "LocalExecutor",
    "Manifest",
    "Part",
    "Presence",
    "Problem",
    "Progress",
    "Range",
    "Ratio",
    "Route",
    "Schema",
    "SchemaChange",
    "SchemaError",
    "SchemaPatch",
    "Semantic",
    "Shard",
    "Sink",
    "Source",
    "Statistics",
    "StatisticsAccumulator",
    "Stream",
    "StreamSpan",
    "Suite",
    "Time",
    "Values",
    "WeightedFeature",
    "anomalous_rows",
    "anomalous_table",
    "check_expectations",
    "check_sql",
    "checks_from_pbtxt",
    "derived",
    "diff_examples",
    "drift",
    "edit_yaml",
    "executor",
    "growing_directory",
    "infer_schema",
    "kafka_topic",
    "load_checks",
    "load_pbtxt",
    "load_schema",
    "merge_statistics",
    "no_progress",
    "open_examples",
    "open_files",
    "open_parquet",
    "open_query",
    "read_suite",
    "schema_from_pbtxt",
    "schema_from_suite",
    "schema_from_yaml",
    "schema_to_expectations",
    "schema_to_pbtxt",
    "schema_to_yaml",
    "sinks",
    "source_of",
    "splits",
    "statistics",
    "stream",
    "stream_spans",
    "update_schema",
    "validate",
    "validate_instance",
]
