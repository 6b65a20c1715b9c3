"""TFRecord input against bytes that the protobuf package serialised and a bitwise CRC-32C framed."""

import base64
import functools
import gzip
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import Source, open_files
from drivetrain.data.reading import tf_example, tfrecord_files
from drivetrain.data.reading.tf_example import NotAnExampleError, parse_example
from drivetrain.data.reading.tf_example_block import parse_block
from drivetrain.data.reading.tfrecord_files import open_tfrecord
from drivetrain.errors import DrivetrainError, InputError
from hypothesis import given, settings
from hypothesis import strategies as st

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")
message_factory = pytest.importorskip("google.protobuf.message_factory")
pytest.importorskip("google_crc32c")

Feature = tuple[str, list[Any]] | None  # e.g. ("int64", [1, 2]); None: a feature without a list


def _messages(packed: bool) -> tuple[Any, Any]:
    """tf.Example and tf.SequenceExample as tensorflow/core/example/*.proto define them."""
    proto = descriptor_pb2.FileDescriptorProto(name=f"example{packed}.proto", package="tf", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, str | int, bool], into: Any = None) -> Any:
        made = (proto.message_type if into is None else into).add(name=name)
        for field, number, kind, repeated in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".tf.{kind}"
            else:
                added.type = kind
                if kind != kinds.TYPE_BYTES and kind != kinds.TYPE_STRING:
                    added.options.packed = packed
        return made

    message("BytesList", ("value", 1, kinds.TYPE_BYTES, True))
    message("FloatList", ("value", 1, kinds.TYPE_FLOAT, True))
    message("Int64List", ("value", 1, kinds.TYPE_INT64, True))
    names = ("bytes", "float", "int64")
    feature = message(
        "Feature",
        *((f"{name}_list", number, f"{name.capitalize()}List", False) for number, name in enumerate(names, 1)),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    message("FeatureList", ("feature", 1, "Feature", True))
    for outer, field, value in (("Features", "feature", "Feature"), ("FeatureLists", "feature_list", "FeatureList")):
        made = message(outer, (field, 1, f"{outer}.{value}Entry", True))
        entry = message(
            f"{value}Entry", ("key", 1, kinds.TYPE_STRING, False), ("value", 2, value, False), into=made.nested_type
        )
        entry.options.map_entry = True
    message("Example", ("features", 1, "Features", False))
    message("SequenceExample", ("context", 1, "Features", False), ("feature_lists", 2, "FeatureLists", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    example, sequence = (pool.FindMessageTypeByName(f"tf.{name}") for name in ("Example", "SequenceExample"))
    return message_factory.GetMessageClass(example), message_factory.GetMessageClass(sequence)


@pytest.fixture(scope="module", name="make", params=["packed", "unpacked"])
def _make(request: pytest.FixtureRequest) -> Any:
    example, _ = _messages(request.param == "packed")

    def make(features: dict[str, Feature]) -> bytes:
        message = example()
        for name, feature in features.items():
            made = message.features.feature[name]
            if feature is not None:
                values = getattr(made, f"{feature[0]}_list")
                values.SetInParent()
                values.value.extend(feature[1])
        return bytes(message.SerializeToString())

    return make


def crc32c(data: bytes) -> int:
    """Byte by byte, from the polynomial (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _divided(crc & 0xFF ^ byte)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _divided(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(*records: bytes) -> bytes:
    heads = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(head + masked(head) + record + masked(record) for head, record in zip(heads, records, strict=True))


def write(folder: Path, data: bytes, name: str = "x.tfrecord") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.schema}


def test_the_checksum_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C/iSCSI


def test_a_record_that_tensorflow_wrote(tmp_path: Path) -> None:
    r"""`TFRecordWriter.write(b"foo")`, as quoted in Apache Beam's tests (Apache-2.0)."""
    foo = base64.b64decode("AwAAAAAAAACwmUkOZm9vYYq+/g==")
    assert framed(b"foo") == foo
    assert list(tfrecord_files._records(write(tmp_path, foo + foo))) == [b"foo", b"foo"]


@pytest.mark.parametrize(
    ("features", "kind", "values"),
    [
        ([("int64", [1]), ("int64", [-(2**63)]), ("int64", []), None], "int64", [1, -(2**63), None, None]),
        ([("float", [0.5]), ("float", [3.0])], "float", [0.5, 3.0]),
        ([("int64", [2**62]), ("float", [0.5])], "double", [2.0**62, 0.5]),
        ([("bytes", [b"a"]), ("bytes", ["ü".encode()])], "string", ["a", "ü"]),
        ([("bytes", [b"a"]), ("bytes", [b"\xff\x00"])], "binary", [b"a", b"\xff\x00"]),
        ([("int64", [1, 2]), ("int64", []), None], "list<element: int64>", [[1, 2], [], None]),
        ([("float", [0.5, -1.0]), ("int64", [3])], "list<element: double>", [[0.5, -1.0], [3.0]]),
        ([("bytes", [b"a", b"b"])], "list<element: string>", [["a", "b"]]),
        ([("bytes", [b"a", b"\xff"])], "list<element: binary>", [[b"a", b"\xff"]]),
        ([None, None], "string", [None, None]),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_types_fit_all_rows_of_all_files_in_any_order(
    tmp_path: Path, make: Any, features: list[Feature], kind: str, values: list[Any], files: int
) -> None:
    for step in (1, -1):
        records = [make({"v": feature, "k": ("int64", [7])}) for feature in features[::step]]
        parts = [records] if files == 1 else [records[:1], records[1:]]
        source = open_tfrecord(
            [write(tmp_path, framed(*part), f"{number}.tfrecord") for number, part in enumerate(parts)]
        )
        assert types(source) == {"k": "int64", "v": kind}
        assert [row["v"] for row in rows(source)] == values[::step]


def test_columns_are_the_names_of_all_rows(tmp_path: Path, make: Any) -> None:
    plain = framed(make({"b": ("int64", [1])}), make({}), make({"a": ("bytes", [b"x"])}))
    for name in ("x.tfrecord", "data_tfrecord-00000-of-00002.gz"):
        source = open_files([write(tmp_path, gzip.compress(plain) if name.endswith(".gz") else plain, name)])
        assert source.rows == 3
        assert rows(source) == [{"a": None, "b": 1}, {"a": None, "b": None}, {"a": "x", "b": None}]
        assert rows(source.select(["b"]))[0] == {"b": 1}


int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)
floats = st.lists(st.floats(width=32), max_size=4)
texts = st.lists(st.binary(max_size=5), max_size=4)


@settings(max_examples=60, deadline=None)
@given(table=st.lists(st.fixed_dictionaries({"b": texts, "f": floats, "i": int64s}), max_size=8))
def test_what_protobuf_writes_comes_back(tmp_path_factory: pytest.TempPathFactory, make: Any, table: Any) -> None:
    first = {"b": [b"\xff", b""], "f": [0.5, 0.5], "i": [1, 2]}
    records = [
        make({"i": ("int64", row["i"]), "f": ("float", row["f"]), "b": ("bytes", row["b"])}) for row in [first, *table]
    ]
    source = open_tfrecord([write(tmp_path_factory.mktemp("tfrecord"), framed(*records))])
    expected = [dict(sorted(row.items())) for row in [first, *table]]
    assert repr(rows(source)) == repr(expected)  # repr: NaN equals itself


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=40))
def test_any_bytes_are_an_example_or_an_error(data: bytes) -> None:
    try:
        parse_example(data)
    except NotAnExampleError:
        return
    example, _ = _EXAMPLE
    message = example()
    message.ParseFromString(data)  # what we take, protobuf takes


@settings(max_examples=400, deadline=None)
@given(
    features=st.dictionaries(st.text(max_size=3), st.sampled_from(["bytes", "float", "int64", None]), max_size=3),
    values=st.lists(st.integers(0, 300), max_size=3),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2),
)
def test_the_short_way_gives_what_the_long_way_gives(
    features: dict[str, Any], values: list[int], edits: list[tuple[int, int]]
) -> None:
    message = _EXAMPLE[0]()
    for name, kind in features.items():
        made = message.features.feature[name]
        if kind:
            getattr(made, f"{kind}_list").value.extend([b"x" * v for v in values] if kind == "bytes" else values)
    data = bytearray(message.SerializeToString())
    for place, byte in edits:
        if data:
            data[place % len(data)] = byte
    parsed = []
    for parse in (tf_example._parse_any, parse_example):
        try:
            parsed.append(parse(bytes(data), None))
        except NotAnExampleError:
            parsed.append({"": ("no", [])})
    assert repr(parsed[0]) == repr(parsed[1])  # repr: NaN equals itself


_EXAMPLE = _messages(packed=True)


def test_a_cut_file_names_the_record(tmp_path: Path, make: Any) -> None:
    one = framed(make({"a": ("int64", [1])}))
    for kept in range(1, len(one)):
        with pytest.raises(InputError, match=rf"record 2, at byte {len(one)}, is cut off"):
            open_tfrecord([write(tmp_path, one + one[:kept])])


def test_any_flipped_bit_is_found(tmp_path: Path, make: Any) -> None:
    one = framed(make({"a": ("int64", [1])}))
    for place in range(len(one)):
        bad = bytearray(one)
        bad[place] ^= 1 << place % 8
        with pytest.raises(InputError, match="record 2, at byte"):
            open_tfrecord([write(tmp_path, one + bytes(bad))])
        with pytest.raises(InputError, match=r"not a TFRecord file|record 1, at byte 0, is damaged"):
            open_tfrecord([write(tmp_path, bytes(bad))])


def test_other_records_and_mixed_kinds_are_errors(tmp_path: Path, make: Any) -> None:
    good = make({"a": ("int64", [1])})
    sequence = _EXAMPLE[1]()
    sequence.feature_lists.feature_list["s"].SetInParent()
    with pytest.raises(InputError, match=r"record 2 is not a tf.Example \(it is a tf.SequenceExample\)"):
        open_tfrecord([write(tmp_path, framed(good, sequence.SerializeToString()))])
    with pytest.raises(InputError, match=r"record 2 is not a tf\.Example"):
        open_tfrecord([write(tmp_path, framed(good, b"any text"))])
    with pytest.raises(InputError, match="record 3: column 'a' holds bytes, but int64"):
        open_tfrecord([write(tmp_path, framed(good, good, make({"a": ("bytes", [b"x"])})))])
    with pytest.raises(InputError, match="no features"):
        open_tfrecord([write(tmp_path, framed(make({})))])
    with pytest.raises(InputError, match="not a TFRecord file"):
        open_tfrecord([write(tmp_path, gzip.compress(framed(good)))])
    with pytest.raises(InputError, match="record 1 cannot be read"):
        open_tfrecord([write(tmp_path, framed(good), "x.tfrecord.gz")])
    with pytest.raises(InputError, match="does not exist"):
        open_tfrecord([tmp_path / "none.tfrecord"])


def test_a_file_that_changes_is_noticed(tmp_path: Path, make: Any) -> None:
    source = open_tfrecord([write(tmp_path, framed(make({"a": ("int64", [1])})))])
    others: list[Feature] = [("bytes", [b"1"]), ("int64", [1, 2]), ("float", [0.5])]
    for records in [[make({"a": other})] for other in others] + [[]]:
        write(tmp_path, framed(*records))
        with pytest.raises(InputError, match="changed while in use"):
            rows(source)


def test_blocks_bound_the_memory(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord_files, "_BLOCK_ROWS", 3)
    source = open_tfrecord([write(tmp_path, framed(*(make({"a": ("int64", [i])}) for i in range(8))))])
    shard = source.shards[0]
    assert [len(batch) for batch in shard.read(source.schema, 65536, False)] == [3, 3, 2]
    assert pa.Table.from_batches(source.read(0))["a"].to_pylist() == list(range(8))


def test_without_the_checksum_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google_crc32c", None)
    with pytest.raises(DrivetrainError, match=r"drivetrain\[tfrecord\]"):
        open_tfrecord([write(tmp_path, framed(b""))])


FLAT = st.one_of(
    st.tuples(st.just("bytes"), st.binary(max_size=200)),
    st.tuples(st.just("int64"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("float"), st.floats(width=32, allow_nan=False)),
)


def flat_values(records: list[bytes]) -> list[dict[str, Any]] | None:
    """What `parse_block` says each record holds."""
    block = parse_block(records)
    if block is None:
        return None
    found: list[dict[str, Any]] = [{} for _ in records]
    for name, column in block.columns.items():
        ints = block.ints(column)
        if ints is None:
            return None
        values = {1: block.texts(column), 2: block.floats(column).tolist(), 3: ints.tolist()}
        for row, kind in enumerate(column.kinds.tolist()):
            if kind:
                found[row][name] = ({1: "bytes", 2: "float", 3: "int64"}[kind], [values[kind][row]])
    return found


def by_protobuf(example: Any, data: bytes) -> dict[str, Any]:
    message = example()
    message.ParseFromString(data)
    kinds = {name: feature.WhichOneof("kind") for name, feature in message.features.feature.items()}
    return {
        name: (kind.removesuffix("_list"), list(getattr(message.features.feature[name], kind).value))
        for name, kind in kinds.items()
    }


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), FLAT, min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_block_of_flat_rows_is_read_at_once(rows: list[dict[str, tuple[str, Any]]]) -> None:
    example, _ = _messages(True)
    records = []
    for row in rows:
        message = example()
        for name, (kind, value) in row.items():
            getattr(message.features.feature[name], f"{kind}_list").value.append(value)
        records.append(message.SerializeToString())
    expected = [{name: (kind, [value]) for name, (kind, value) in row.items()} for row in rows]
    assert flat_values(records) == expected
    assert [by_protobuf(example, record) for record in records] == expected


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_block_with_any_byte_changed_is_left_alone_or_read_right(data: st.DataObject) -> None:
    example, _ = _messages(True)
    message = example()
    message.features.feature["n"].int64_list.value.append(-5)
    message.features.feature["s"].bytes_list.value.append(b"text")
    message.features.feature["x"].float_list.value.append(0.5)
    whole = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 2))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = flat_values([bytes(whole), message.SerializeToString()])
    if found is not None:
        expected = by_protobuf(example, bytes(whole))
        assert repr(found[0]) == repr({name: expected[name] for name in found[0]})
        assert found[0].keys() == expected.keys()


def test_flat_rows_and_others_give_one_table(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord_files, "_BLOCK_ROWS", 3)
    flat = [{"n": ("int64", [i]), "s": ("bytes", [b"x"]), "x": ("float", [i / 2])} for i in range(7)]
    late: list[dict[str, Feature]] = [{"n": ("float", [0.5]), "s": ("bytes", [b"\xff"])}, {"x": ("float", [1.0, 2.0])}]
    path = write(tmp_path, framed(*(make(row) for row in [*flat, *late])))
    source = open_tfrecord([path])
    assert types(source) == {"n": "double", "s": "binary", "x": "list<element: float>"}
    read = rows(source)
    assert [row["n"] for row in read] == [*map(float, range(7)), 0.5, None]
    assert [row["x"] for row in read] == [*([i / 2] for i in range(7)), None, [1.0, 2.0]]


def test_a_large_file_is_several_shards(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord_files, "_BLOCK_ROWS", 10)
    monkeypatch.setattr(tfrecord_files, "_SHARD_BYTES", 900)
    data = framed(*(make({"n": ("int64", [i])}) for i in range(100)))
    path = write(tmp_path, data)
    source = open_tfrecord([path])
    assert [shard.rows for shard in source.shards] in ([30, 30, 30, 10], [40, 40, 20])  # unpacked numbers are shorter
    assert [row["n"] for row in rows(source)] == list(range(100))
    (zipped := tmp_path / "x.tfrecord.gz").write_bytes(gzip.compress(data))
    assert len(open_tfrecord([zipped]).shards) == 1
    damaged = bytearray(data)
    damaged[len(data) * 99 // 100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"record (99|100), at byte \d+, is damaged"):
        rows(source)
    path.write_bytes(data + framed(make({"n": ("int64", [7])})))
    with pytest.raises(InputError, match="changed while in use"):
        rows(source)
