"""The resolver: what other stores were attacked with is refused, at write, read and delete."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import cast
from urllib.parse import unquote, urlsplit

import pytest
from drivetrain.addresses import SCHEMES, Scheme
from drivetrain.errors import InputError
from drivetrain.metadata import LocalPayloads, MetadataStore, StagedArtifact, check_uri, open_payloads, resolve_uri
from drivetrain.metadata.uri import check_root
from hypothesis import example, given
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path_factory.mktemp("uris") / "metadata.db") as opened:
        yield opened


@pytest.mark.parametrize("uri", BAD)
def test_bad_uris_are_refused_everywhere(tmp_path: Path, store: MetadataStore, uri: str) -> None:
    root = tmp_path / "root"
    (root / "ok").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    payloads = LocalPayloads(root)
    staged = payloads.stage("Node", "uid", "out")
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
        lambda: store.publish(execution, {"out": [StagedArtifact("Thing", uri, "f", 1)]}),
    ):
        with pytest.raises(InputError):
            call()
    assert (tmp_path / "secret").is_dir()
    assert staged.is_dir()


@pytest.mark.parametrize("where", ["file://{}/share", "memory://bucket/share"])
def test_bad_uris_are_refused_behind_a_url(tmp_path: Path, where: str) -> None:
    pytest.importorskip("fsspec")
    from drivetrain.metadata.payload_remote import RemotePayloads

    for folder in ("root", "share", "share_evil"):
        (tmp_path / folder).mkdir()
    payloads = RemotePayloads(tmp_path / "root", where.format(tmp_path))
    objects = payloads.objects
    staged = payloads.stage("Node", "uid", "out")
    calls: list[Callable[[str], object]] = [
        lambda uri: payloads.publish(staged, uri),
        lambda uri: objects.write(uri, b""),
        lambda uri: objects.send(Path(__file__), uri, lambda _: None, lambda _: None),
        lambda uri: list(objects.blocks(uri, 1)),
        *(payloads.local, payloads.remove, payloads.problems, payloads.present),
        *(objects.read, objects.exists, objects.entries, objects.names, objects.delete, objects.remove),
    ]
    for uri in BAD:
        for call in calls:
            with pytest.raises(InputError):
                call(uri)
    assert staged.is_dir()
    assert not payloads.published()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "share", "share_evil"]
    assert not any([*(tmp_path / "share").iterdir(), *(tmp_path / "share_evil").iterdir()])


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


BAD_ROOTS = [
    "", "artifacts", "/artifacts", "s3:/bucket/x", "s3//bucket", "://bucket", "http://host/x", "https://host/x",
    "ftp://host/x", "zip://x.zip", "dir://x", "simplecache::s3://bucket/x", "s3://bucket/x::file:///etc",
    "filecache://bucket", "github://org:repo@main/x", "data:text", "data://x", "javascript://x", "s3://", "s3:///x",
    "s3:///", "gs://", "s3://me:hunter2@bucket/x", "s3://hunter2@bucket/x", "gs://hunter2@bucket",
    "abfs://me:hunter2@host/x", "sftp://me:hunter2@host/x", "sftp://me%3Ahunter2@host/x", "s3://bucket/x?sig=hunter2",
    "s3://bucket/x?versionId=1", "s3://bucket?x", "s3://bucket/x#1", "s3://bucket#x", "s3://bucket/x;hunter2",
    "s3://bucket/../evil", "s3://bucket/x/../../evil", "s3://bucket/x/..", "s3://bucket/./x", "s3://../bucket",
    "s3://bucket//x", "s3://bucket/x//", "s3://bucket/%2e%2e/x", "s3://bucket/x%2f..%2f", "s3://bucket/%252e", "s3://bucket/~",
    "s3://bucket/~root/x", "s3://~/x", "s3://bucket\\x", "s3://bucket/x\\..\\y", "s3://bucket/x\n", "s3://bucket\n/x",
    "s3://bucket/x\r\ny", "s3://bucket/\0", "s3://bucket/ x", " s3://bucket/x", "s3://bucket/x ", "s3://bucket/*",
    "s3://bucket/x[1]", "s3://bucket/x?", "s3://bucket/{x}", "s3://bucket:x/y", "s3://bucket:123456/y", "s3://-bucket/x",
    "s3://b\u00fccket/x", "s3://bucket/\u2025/x", "file://host/x", "file://", "file:x", "file:///", "file:///a/../b",
    "memory://", "memory:///../x", "\ud800", "s3://bucket/" + "x" * 256, "s3://bucket/" + "a/" * 600,
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_ROOTS)
def test_bad_roots_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InputError, match=r"\n  fix: ") as caught:
        check_root(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b=1/", "s3://bucket/a/b=1"),
        ("gs://b.u-c_ket/a", "gs://b.u-c_ket/a"),
        ("abfs://container@account.dfs.core.windows.net/x", "abfs://container@account.dfs.core.windows.net/x"),
        ("sftp://me@host:2222/x", "sftp://me@host:2222/x"),
        ("file:///mnt/.shared/a+b", "file:///mnt/.shared/a+b"),
        ("memory://x", "memory://x"),
    ],
)
def test_good_roots_have_one_spelling(url: str, spelled: str) -> None:
    assert check_root(url) == spelled
    assert check_root(spelled) == spelled


@given(
    st.sampled_from(["s3", "file", "memory", "abfs", "sftp", "gs", "http", "S3"]),
    st.text(max_size=20) | st.from_regex(r"[a./%\\~:;#?@* ]{1,12}", fullmatch=True),
)
@example("file", "/0")
def test_whatever_is_a_root_reads_as_nothing_else(scheme: str, rest: str) -> None:
    """What two readers of URLs that are not ours make of it: a scheme, a host, and a path without turns."""
    try:
        url = check_root(f"{scheme}://{rest}")
    except InputError:
        return
    parts = urlsplit(url)
    assert parts.scheme == scheme.lower() != "http"
    assert not parts.query
    assert not parts.fragment
    assert parts.password is None
    assert unquote(url) == url
    assert posixpath.normpath(url) == url.replace("://" if parts.netloc else ":///", ":/", 1)


def test_a_new_object_store_is_one_line_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = pytest.importorskip("fsspec.implementations.memory")

    class TapeFileSystem(memory.MemoryFileSystem):  # type: ignore[misc, name-defined]  # untyped
        protocol = "tape"

    fsspec.register_implementation("tape", TapeFileSystem, clobber=True)
    with pytest.raises(InputError, match="artifacts cannot be kept behind 'tape'"):
        check_root("tape://shelf/x")
    monkeypatch.setitem(cast("dict[str, Scheme]", SCHEMES), "tape", Scheme())
    assert check_root("TAPE://shelf/x/") == "tape://shelf/x"
    for refused in ("tape:///x", "tape://me@shelf/x"):
        with pytest.raises(InputError):
            check_root(refused)
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        payloads = open_payloads(store, tmp_path, "tape://shelf/x")
        staged = payloads.stage("Make", "uid", "numbers")
        (staged / "content" / "total.txt").write_text("4")
        payloads.publish(staged, "artifacts/Make/uid/numbers")
        assert [(lying.uri, lying.whole) for lying in payloads.published()] == [("artifacts/Make/uid/numbers", True)]
        payloads.close()


def test_what_could_hold_artifacts_in_the_last_release_still_can() -> None:
    allowed = {name for name, scheme in SCHEMES.items() if scheme.artifacts}
    assert allowed >= {
        "abfs", "abfss", "adl", "az", "dbfs", "file", "gcs", "gs", "hdfs", "memory", "oci", "oss", "s3", "s3a", "sftp",
        "smb", "ssh", "webhdfs",
    }  # fmt: skip
