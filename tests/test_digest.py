"""One spelling per value, one digest per content, writes that survive."""

from __future__ import annotations

import hashlib
import json
import math
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.digest import (
    _encode,
    _plain,
    canonical_json,
    digest,
    digest_file,
    digest_tree,
    is_deep,
    json_encoder,
    sync_tree,
    write_durably,
)
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
NAMES = TEXT.map(lambda text: unicodedata.normalize("NFC", text))
JSON = st.recursive(LEAVES, lambda x: st.lists(x, max_size=4) | st.dictionaries(NAMES, x, max_size=4), max_leaves=12)


@given(JSON | st.floats(), st.booleans(), st.booleans())
def test_an_encoder_of_many_values_writes_as_the_library_does(value: Any, ascii_alone: bool, ordered: bool) -> None:
    encoder = json.JSONEncoder(ensure_ascii=ascii_alone, sort_keys=ordered, separators=(",", ":"), default=repr)
    assert json_encoder(encoder)(value) == encoder.encode(value)
    assert json_encoder(encoder)([value, {"odd": b"\xff"}]) == encoder.encode([value, {"odd": b"\xff"}])


def test_an_encoder_of_many_values_refuses_as_the_library_does() -> None:
    encode = json_encoder(json.JSONEncoder(allow_nan=False))
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode([math.nan])
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode({"a": object()})
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(RecursionError):
        encode(circle)


def normal(value: Any) -> Any:
    """The value with its text in NFC: what comes back."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, dict):
        return {normal(key): normal(item) for key, item in value.items()}
    return value


def tagged(value: Any) -> Any:
    """A value in which 1, 1.0 and True differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: tagged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [tagged(item) for item in value]
    return (type(value).__name__, repr(value))


@given(JSON)
def test_canonical_json_is_json_and_comes_back(value: Any) -> None:
    data = canonical_json(value)
    assert tagged(json.loads(data)) == tagged(normal(value))
    assert canonical_json(json.loads(data)) == data


@given(JSON, JSON)
def test_values_are_equal_exactly_when_their_spelling_is(one: Any, two: Any) -> None:
    same = tagged(normal(one)) == tagged(normal(two))
    assert (canonical_json(one) == canonical_json(two)) == same
    assert (digest("d", one) == digest("d", two)) == same


@given(st.dictionaries(NAMES, LEAVES, max_size=6))
def test_the_order_of_a_mapping_does_not_count(value: dict[str, Any]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_canonical_json_against_the_standard_library() -> None:
    value = {"b": [1, 2.5, True, None, "é"], "a": {}}
    assert canonical_json(value) == b'{"a":{},"b":[1,2.5,true,null,"\xc3\xa9"]}'
    assert canonical_json((1, 2)) == b"[1,2]"
    assert canonical_json("e\u0301") == canonical_json("\u00e9")


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, 2**63, -(2**63) - 1, "\0", "a\ud800", {"\0": 1}, {1: 2}, {None: 1}, b"x",
        bytearray(b"x"), {1}, object(), 1j, [math.nan], {"a": {"b": b""}}, {"e\u0301": 1, "\u00e9": 2},
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        canonical_json(value)


def test_digests_are_framed_and_have_a_domain() -> None:
    assert digest("a", "bc") != digest("ab", "c")
    assert digest("a", 1) != digest("b", 1)
    assert digest("d", [1]) == hashlib.sha256(b"d\x003\x00[1]").hexdigest()


@given(st.dictionaries(st.from_regex(r"[a-c]{1,2}(/[a-c]{1,2})?", fullmatch=True), st.binary(max_size=20), max_size=6))
def test_a_tree_is_its_files(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    wanted = {}
    for name, data in files.items():
        if any(other != name and other.startswith(f"{name}/") for other in files):
            continue
        wanted[name] = data
    for root, names in ((one, list(wanted)), (two, list(wanted)[::-1])):
        for name in names:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(wanted[name])
    (two / "empty-folder").mkdir()
    tree = digest_tree(one)
    assert tree == digest_tree(two)
    assert tree.size == sum(map(len, wanted.values()))
    assert {file.path: file.sha256 for file in tree.files} == {
        name: hashlib.sha256(data).hexdigest() for name, data in wanted.items()
    }
    assert [file.path for file in tree.files] == sorted(wanted)
    (two / "another").write_bytes(b"")
    assert digest_tree(two).fingerprint != tree.fingerprint


def test_names_and_contents_are_not_confused(tmp_path: Path) -> None:
    trees = []
    for index, (name, data) in enumerate([("a", b"b"), ("ab", b""), ("a", b""), ("b", b"a")]):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / name).write_bytes(data)
        trees.append(digest_tree(tmp_path / str(index)).fingerprint)
    assert len(set(trees)) == 4


def test_links_are_no_content(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(InputError, match="is a link"):
        digest_tree(tmp_path)


def test_digest_file(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "f").write_bytes(data)
    assert digest_file(tmp_path / "f") == hashlib.sha256(data).hexdigest()


def test_write_durably_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"

    def broken(_: int) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="no"):
            write_durably(path, b"three")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]
    sync_tree(tmp_path)


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.text(alphabet='ab\\"\0\u0301e\ud800')
)


@given(
    st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner)
        ),
        max_leaves=8,
    )
)
def test_the_short_way_to_canonical_json_gives_what_the_long_one_does(value: Any) -> None:
    def spelled(work: Callable[[], bytes]) -> bytes | type[Exception]:
        try:
            return work()
        except Exception as error:
            return type(error)

    long = spelled(lambda: _encode(_plain(value)).encode())
    assert spelled(lambda: canonical_json(value)) == long


def test_what_is_nested_deeply_is_told_without_recursion() -> None:
    value: object = 1
    for _ in range(200):
        value = [value] if isinstance(value, dict) else {"a": value}
    assert not is_deep(value)
    for _ in range(10_000):
        value = [value]
    assert is_deep(value)
    assert not is_deep("text")
