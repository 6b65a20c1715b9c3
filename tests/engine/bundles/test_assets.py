"""Vocabularies and the like: read without a copy, and refused where few bytes stand for many."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("flatbuffers")
from drivetrain.engine.bundles.assets import read_asset, write_asset

pytestmark = pytest.mark.engine
WORDS = ["carrier"] * 100_000


def written(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"value": WORDS}),
        pa.table({"value": pa.array([True, None, False] * 1000)}),
        pa.table({"value": pa.array([], pa.int64())}),
        pa.table({"key": ["a", None], "mean": [1.5, 2.5], "bounds": pa.array([[1.0], []], pa.list_(pa.float32()))}),
        pa.table({"value": pa.chunked_array([["a"], ["b", "c"]])}).replace_schema_metadata({"column": "carrier"}),
        pa.table({"value": pa.array([1, 2], pa.decimal128(10, 2)), "s": pa.array([{"a": 1}, None])}),
    ],
)
def test_what_was_written_is_read_without_a_copy(table: pa.Table) -> None:
    data = write_asset(table)
    before = pa.total_allocated_bytes()
    read = read_asset(data)
    assert read.equals(table, check_metadata=True)
    assert pa.total_allocated_bytes() - before < 1000


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (written(pa.table({"value": WORDS}), compression="zstd"), "compressed"),
        (written(pa.table({"value": WORDS}), compression="lz4"), "compressed"),
        (written(pa.table({"value": pa.array(WORDS).dictionary_encode()})), "dictionary"),
        (written(pa.table({"value": pa.array(WORDS, pa.string_view())})), "type string_view"),
        (written(pa.table({"value": pa.nulls(10**6)})), "type null"),
        (
            written(pa.table({"value": pa.array([[]] * 10, pa.list_(pa.int8(), 0))})),
            "fixed_size_list",
        ),
        (written(pa.table({"value": pa.RunEndEncodedArray.from_arrays([10**6], ["word"])})), "run_end_encoded"),
        (b"", "."),
        (b"ARROW1\0\0", "."),
        (written(pa.table({"value": WORDS}))[:200_000], "."),
    ],
    ids=["zstd", "lz4", "dictionary", "views", "nulls", "lists of nothing", "runs", "empty", "no message", "cut"],
)
def test_few_bytes_that_stand_for_many_are_refused(data: bytes, says: str) -> None:
    before = pa.default_memory_pool().max_memory()
    with pytest.raises((ValueError, OSError), match=says):
        read_asset(data)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_a_bundle_with_a_compressed_vocabulary_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from drivetrain.engine import Bundle, BundleError
    from drivetrain.tests.engine.bundles.resealing import reseal

    released = Path(__file__).parents[2] / "fixtures" / "bundles"
    vocabulary = next(released.rglob("*.arrow"))
    bundle = next(path for path in vocabulary.parents if (path / "manifest.json").is_file())
    shutil.copytree(bundle, tmp_path / "bundle")
    asset = tmp_path / "bundle" / vocabulary.relative_to(bundle)
    asset.chmod(0o644)
    (tmp_path / "bundle" / "manifest.json").chmod(0o644)
    asset.write_bytes(written(pa.table({"value": ["x" * 1000] * 100_000}), compression="zstd"))
    reseal(tmp_path / "bundle")
    with pytest.raises(BundleError, match="compressed"):
        Bundle.load(tmp_path / "bundle")
