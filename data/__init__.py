"""Arrow record batches: sources, shards, executors, statistics, schema. Usable without any pipeline."""

from .base import Accumulator, BatchFn, Executor, Progress, Route, no_progress
from .examples import Manifest, Part, Sink, open_examples, sinks, splits
from .executors import executor
from .local import LocalExecutor
from .sources import BATCH_ROWS, Shard, Source, open_files, open_parquet
from .split import HashSplit
from .sums import ExactMoments, ExactSum

__all__ = [
    "BATCH_ROWS",
    "Accumulator",
    "BatchFn",
    "ExactMoments",
    "ExactSum",
    "Executor",
    "HashSplit",
    "LocalExecutor",
    "Manifest",
    "Part",
    "Progress",
    "Route",
    "Shard",
    "Sink",
    "Source",
    "executor",
    "no_progress",
    "open_examples",
    "open_files",
    "open_parquet",
    "sinks",
    "splits",
]
