"""The resolver: what other stores were attacked with is refused, at write, read and delete."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import LocalPayloads, MetadataStore, NewArtifact, check_uri, resolve_uri
from hypothesis import given
from hypothesis import strategies as st

BAD = [
    "", ".", "..", "/", "../secret", "ok/../../secret", "/../secret", "ok/..", "./ok", "ok/./x", "ok/", "/ok",
    "//etc/passwd", "/etc/passwd", "ok//x", "%2e%2e/secret", "..%2fsecret", "%252e%252e%252fsecret", "ok%2f..%2f..",
    "..\\secret", "ok\\..\\..\\secret", "C:\\x", "C:/x", "ok#/../secret", "ok#fragment", "ok?path=../secret",
    "ok;/../secret", "ok;param=1", "~", "~root/x", "ok/~", "file:///etc/passwd", "FILE:///etc/passwd", "file:etc", "http://host/x",
    "s3://bucket/prefix_evil", "user:pw@host/x", "zip::file:///x", "simplecache::http://x", "ok\0", "ok\0/../x",
    "ok\n", "ok\n../x", "ok\r", "ok\tx", " ok", "ok ", "ok/ x", ".hidden", "ok/.git/config", "-rf", "ok/-rf",
    "o\u0301k", "ｏｋ", "ok/\u2025/x", "ok/\u2215x", "\ud800", "*", "ok/*.bin", "$HOME", "`id`", "a|b", "ok/'", 'ok/"',
    "x" * 256, "a/" * 600 + "a",
]  # fmt: skip


@pytest.mark.parametrize("uri", BAD)
def test_bad_uris_are_refused_everywhere(tmp_path: Path, uri: str) -> None:
    root = tmp_path / "root"
    (root / "ok").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    payloads = LocalPayloads(root)
    staged = payloads.stage("Node", "uid", "out")
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        execution = store.start("Make")
        for call in (
            lambda: check_uri(uri),
            lambda: resolve_uri(root, uri),
            lambda: payloads.path(uri),
            lambda: payloads.publish(staged, uri),
            lambda: payloads.remove(uri),
            lambda: payloads.problems(uri),
            lambda: payloads.present(uri),
            lambda: payloads.stage(uri, "uid", "out"),
            lambda: store.publish(execution, {"out": [NewArtifact("Thing", uri, "f", 1)]}),
        ):
            with pytest.raises(InputError):
                call()
    assert (tmp_path / "secret").is_dir()
    assert staged.is_dir()


@pytest.mark.parametrize("uri", ["a", "artifacts/Trainer/0b7e-1/model", "split=train/part-00000.parquet", "_x/a+b@c,d"])
def test_good_uris_resolve(tmp_path: Path, uri: str) -> None:
    assert check_uri(uri) == uri
    assert resolve_uri(tmp_path, uri) == tmp_path / uri


@given(st.text(max_size=30) | st.from_regex(r"[a./%\\~:;#?]{1,12}", fullmatch=True))
def test_whatever_resolves_lies_below_the_root(uri: str) -> None:
    root = Path("/nowhere/root")
    try:
        path = resolve_uri(root, uri)
    except InputError:
        return
    assert root in path.parents
    assert path.relative_to(root).as_posix() == uri
    assert ".." not in PurePosixPath(uri).parts


def test_links_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "root_evil"
    outside.mkdir()
    (outside / "x").mkdir()
    (root / "inside").mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (root / "in").symlink_to(root / "inside")
    (root / "dangling").symlink_to(tmp_path / "nothing")
    for uri in ("out", "out/x", "in", "in/x", "dangling", "dangling/x"):
        with pytest.raises(InputError, match="leads through the link"):
            resolve_uri(root, uri)
    with pytest.raises(InputError):
        LocalPayloads(root).remove("out/x")
    assert (outside / "x").is_dir()


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    payloads = LocalPayloads(tmp_path / "root")
    staged = payloads.stage("Node", "uid", "out")
    payloads.publish(staged, "artifacts/x")
    assert (tmp_path / "real" / "artifacts" / "x" / "content").is_dir()
