"""Arrow record batches: sources, shards, executors, statistics, schema; usable without any pipeline.

Each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ..progress import Progress as Progress
    from ..progress import no_progress as no_progress
    from .aggregates.sums import ExactMoments as ExactMoments
    from .aggregates.sums import ExactSum as ExactSum
    from .base import Accumulator as Accumulator
    from .base import BatchFn as BatchFn
    from .base import Executor as Executor
    from .base import Route as Route
    from .derivation import Derive as Derive
    from .derivation import derived as derived
    from .drift_skew.report import DriftReport as DriftReport
    from .drift_skew.report import drift as drift
    from .example_diff.diff import ExamplesDiff as ExamplesDiff
    from .example_diff.diff import diff_examples as diff_examples
    from .examples import Manifest as Manifest
    from .examples import Part as Part
    from .examples import Sink as Sink
    from .examples import open_examples as open_examples
    from .examples import sinks as sinks
    from .examples import splits as splits
    from .executors import executor as executor
    from .expectations.check import check_expectations as check_expectations
    from .expectations.from_schema import schema_to_expectations as schema_to_expectations
    from .expectations.suite import ExpectationResults as ExpectationResults
    from .expectations.suite import Suite as Suite
    from .expectations.suite import read_suite as read_suite
    from .expectations.to_schema import schema_from_suite as schema_from_suite
    from .expectations.unexpected_rows import check_sql as check_sql
    from .local import LocalExecutor as LocalExecutor
    from .reading.files import open_files as open_files
    from .reading.source_of import source_of as source_of
    from .reading.sql_rows import open_query as open_query
    from .schema_inference.infer import infer_schema as infer_schema
    from .schema_inference.patch import SchemaChange as SchemaChange
    from .schema_inference.patch import SchemaPatch as SchemaPatch
    from .schema_inference.update import update_schema as update_schema
    from .schemas.checks import Check as Check
    from .schemas.checks import Expectation as Expectation
    from .schemas.pbtxt_read import load_pbtxt as load_pbtxt
    from .schemas.pbtxt_read import schema_from_pbtxt as schema_from_pbtxt
    from .schemas.pbtxt_write import schema_to_pbtxt as schema_to_pbtxt
    from .schemas.problems import Problem as Problem
    from .schemas.problems import SchemaError as SchemaError
    from .schemas.schema import Bool as Bool
    from .schemas.schema import Count as Count
    from .schemas.schema import Feature as Feature
    from .schemas.schema import Presence as Presence
    from .schemas.schema import Range as Range
    from .schemas.schema import Ratio as Ratio
    from .schemas.schema import Schema as Schema
    from .schemas.schema import Semantic as Semantic
    from .schemas.schema import Time as Time
    from .schemas.schema import Values as Values
    from .schemas.weighted_feature import WeightedFeature as WeightedFeature
    from .schemas.yaml_edit import edit_yaml as edit_yaml
    from .schemas.yaml_read import load_schema as load_schema
    from .schemas.yaml_read import schema_from_yaml as schema_from_yaml
    from .schemas.yaml_write import schema_to_yaml as schema_to_yaml
    from .sources import BATCH_ROWS as BATCH_ROWS
    from .sources import Shard as Shard
    from .sources import Source as Source
    from .sources import open_parquet as open_parquet
    from .split import ColumnSplit as ColumnSplit
    from .split import HashSplit as HashSplit
    from .stats.accumulator import StatisticsAccumulator as StatisticsAccumulator
    from .stats.document import Statistics as Statistics
    from .stats.document import merge_statistics as merge_statistics
    from .stats.document import statistics as statistics
    from .streams.directory import growing_directory as growing_directory
    from .streams.kafka import kafka_topic as kafka_topic
    from .streams.micro_spans import Chunk as Chunk
    from .streams.micro_spans import Stream as Stream
    from .streams.micro_spans import StreamSpan as StreamSpan
    from .streams.micro_spans import stream as stream
    from .streams.micro_spans import stream_spans as stream_spans
    from .validation.anomalies import Anomalies as Anomalies
    from .validation.anomalies import Anomaly as Anomaly
    from .validation.anomalous_rows import anomalous_rows as anomalous_rows
    from .validation.anomalous_rows import anomalous_table as anomalous_table
    from .validation.custom_validation import checks_from_pbtxt as checks_from_pbtxt
    from .validation.custom_validation import load_checks as load_checks
    from .validation.instances import validate_instance as validate_instance
    from .validation.validate import validate as validate

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        ".progress": "Progress no_progress",
        "aggregates.sums": "ExactMoments ExactSum",
        "base": "Accumulator BatchFn Executor Route",
        "derivation": "Derive derived",
        "drift_skew.report": "DriftReport drift",
        "example_diff.diff": "ExamplesDiff diff_examples",
        "examples": "Manifest Part Sink open_examples sinks splits",
        "executors": "executor",
        "expectations.check": "check_expectations",
        "expectations.from_schema": "schema_to_expectations",
        "expectations.suite": "ExpectationResults Suite read_suite",
        "expectations.to_schema": "schema_from_suite",
        "expectations.unexpected_rows": "check_sql",
        "local": "LocalExecutor",
        "reading.files": "open_files",
        "reading.source_of": "source_of",
        "reading.sql_rows": "open_query",
        "schema_inference.infer": "infer_schema",
        "schema_inference.patch": "SchemaChange SchemaPatch",
        "schema_inference.update": "update_schema",
        "schemas.checks": "Check Expectation",
        "schemas.pbtxt_read": "load_pbtxt schema_from_pbtxt",
        "schemas.pbtxt_write": "schema_to_pbtxt",
        "schemas.problems": "Problem SchemaError",
        "schemas.schema": "Bool Count Feature Presence Range Ratio Schema Semantic Time Values",
        "schemas.weighted_feature": "WeightedFeature",
        "schemas.yaml_edit": "edit_yaml",
        "schemas.yaml_read": "load_schema schema_from_yaml",
        "schemas.yaml_write": "schema_to_yaml",
        "sources": "BATCH_ROWS Shard Source open_parquet",
        "split": "ColumnSplit HashSplit",
        "stats.accumulator": "StatisticsAccumulator",
        "stats.document": "Statistics merge_statistics statistics",
        "streams.directory": "growing_directory",
        "streams.kafka": "kafka_topic",
        "streams.micro_spans": "Chunk Stream StreamSpan stream stream_spans",
        "validation.anomalies": "Anomalies Anomaly",
        "validation.anomalous_rows": "anomalous_rows anomalous_table",
        "validation.custom_validation": "checks_from_pbtxt load_checks",
        "validation.instances": "validate_instance",
        "validation.validate": "validate",
    },
)
