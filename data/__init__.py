"""Arrow record batches: sources, shards, executors, statistics, schema. Usable without any pipeline."""

from .anomalies import Anomalies, Anomaly
from .base import Accumulator, BatchFn, Executor, Progress, Route, no_progress
from .checks import Check, Expectation
from .custom_validation import checks_from_pbtxt, load_checks
from .drift_report import DriftReport, drift
from .example_diff import ExamplesDiff, diff_examples
from .examples import Manifest, Part, Sink, open_examples, sinks, splits
from .executors import executor
from .expectations import ExpectationResults, Suite, read_suite
from .expectations_check import check_expectations
from .files import open_files
from .local import LocalExecutor
from .schema import Bool, Count, Feature, Presence, Range, Ratio, Schema, Semantic, Time, Values
from .schema_check import Problem, SchemaError
from .schema_expectations import schema_to_expectations
from .schema_from_suite import schema_from_suite
from .schema_infer import infer_schema
from .schema_patch import Change, SchemaPatch
from .schema_pbtxt import load_pbtxt, schema_from_pbtxt
from .schema_pbtxt_write import schema_to_pbtxt
from .schema_update import update_schema
from .schema_yaml import load_schema, schema_from_yaml, schema_to_yaml
from .schema_yaml_edit import edit_yaml
from .source_of import source_of
from .sources import BATCH_ROWS, Shard, Source, open_parquet
from .split import ColumnSplit, HashSplit
from .sql_checks import check_sql
from .sql_rows import open_query
from .statistics_document import Statistics, merge_statistics, statistics
from .statistics_pass import StatisticsAccumulator
from .stream_directory import growing_directory
from .stream_kafka import kafka_topic
from .streams import Chunk, Stream, StreamSpan, stream, stream_spans
from .sums import ExactMoments, ExactSum
from .validation import validate
from .validation_instances import validate_instance
from .validation_rows import anomalous_rows, anomalous_table

__all__ = [
    "BATCH_ROWS",
    "Accumulator",
    "Anomalies",
    "Anomaly",
    "BatchFn",
    "Bool",
    "Change",
    "Check",
    "Chunk",
    "ColumnSplit",
    "Count",
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
    "anomalous_rows",
    "anomalous_table",
    "check_expectations",
    "check_sql",
    "checks_from_pbtxt",
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
