"""LocalPayloads are published whole, once, read-only, with digests of every byte."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.digest import TreeDigest, digest_tree, sync_files
from drivetrain.errors import InputError
from drivetrain.metadata import AlreadyExists, DiskFull, LocalPayloads, payload_checks
from drivetrain.metadata import payload_local as payload_module
from drivetrain.metadata.payload import digests_of
from drivetrain.tests.metadata.payloads import staged

URI = "artifacts/Node/uid/out"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on a disk, where tests' folders may lie in memory: there payloads are compared at each use."""
    with tempfile.TemporaryDirectory(prefix="drivetrain-payloads-") as folder:
        yield Path(folder)


@pytest.fixture
def payloads(tmp_path: Path) -> LocalPayloads:
    return LocalPayloads(tmp_path)


def test_publish_moves_whole_and_read_only(payloads: LocalPayloads) -> None:
    path = staged(payloads)
    expected = digest_tree(path / "content")
    tree = payloads.publish(path, URI)
    target = payloads.local(URI)
    assert tree == expected
    assert tree.size == 5
    assert list(payloads.staging.iterdir()) == []
    assert (target / "content" / "deep" / "file.txt").read_text() == "hello"
    assert all(file.stat().st_mode & 0o777 == 0o444 for file in target.rglob("*") if file.is_file())
    assert payloads.present(URI)
    assert payloads.problems(URI, tree.fingerprint) == []
    manifest = json.loads((target / "manifest.json").read_text())
    assert manifest["content"]["fingerprint"] == tree.fingerprint
    assert manifest["content"]["files"][0] == {
        "path": "deep/file.txt", "size": 5, "sha256": hashlib.sha256(b"hello").hexdigest(),
    }  # fmt: skip
    assert [file["path"] for file in manifest["extra"]["files"]] == ["report.html"]


def test_a_name_keeps_its_spelling(payloads: LocalPayloads) -> None:
    path = payloads.stage("Node", "uid", "out")
    for name in ("e\u0301.txt", "\u00e9.txt", "\uf900"):  # one of two spellings each; a text of ours has the other
        (path / "content" / name).write_text(name)
    payloads.publish(path, URI)
    assert payloads.problems(URI) == []


def test_content_alone_makes_the_fingerprint(payloads: LocalPayloads) -> None:
    tree = payloads.publish(staged(payloads), "artifacts/one")
    other = staged(payloads)
    (other / "extra" / "log.txt").write_text("another time")
    assert payloads.publish(other, "artifacts/two").fingerprint == tree.fingerprint
    assert payloads.publish(staged(payloads, "hullo"), "artifacts/three").fingerprint != tree.fingerprint


def test_the_same_again_is_no_error_and_another_is(payloads: LocalPayloads) -> None:
    first = payloads.publish(staged(payloads), URI)
    again = staged(payloads)
    assert payloads.publish(again, URI) == first
    assert not again.exists()
    other = staged(payloads, "other")
    with pytest.raises(AlreadyExists, match="another payload"):
        payloads.publish(other, URI)
    assert other.exists()
    assert payloads.problems(URI, first.fingerprint) == []


def test_two_outputs_share_an_execution(payloads: LocalPayloads, tmp_path: Path) -> None:
    first, second = staged(payloads, key="one"), staged(payloads, key="two")
    assert payloads.staging_folder("uid") in first.parents
    payloads.publish(first, "artifacts/Node/uid/one")
    payloads.publish(second, "artifacts/Node/uid/two")
    payloads.remove("artifacts/Node/uid/one")
    assert payloads.present("artifacts/Node/uid/two")
    payloads.remove("artifacts/Node/uid/two")
    payloads.remove("artifacts/Node/uid/two")
    assert not (tmp_path / "artifacts" / "Node" / "uid").exists()
    assert list(payloads.staging_folder("uid").iterdir()) == []


def test_stage_begins_anew_and_discard_forgives(payloads: LocalPayloads) -> None:
    path = staged(payloads)
    assert payloads.stage("Node", "uid", "out") == path
    assert list((path / "content").iterdir()) == []
    payloads.discard(path)
    payloads.discard(path)
    assert not path.exists()


def test_what_is_no_payload_is_refused(payloads: LocalPayloads, tmp_path: Path) -> None:
    path = staged(payloads)
    (path / "content" / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="a link or a special file"):
        payloads.publish(path, URI)
    (path / "content" / "link").unlink()
    (path / "stray.txt").write_text("x")
    with pytest.raises(InputError, match=r"'stray.txt' beside content"):
        payloads.publish(path, URI)
    (path / "stray.txt").unlink()
    os.mkfifo(path / "extra" / "pipe")
    with pytest.raises(InputError, match="a link or a special file"):
        payloads.publish(path, URI)
    assert not payloads.local(URI).exists()
    with pytest.raises(InputError, match="no content folder"):
        payloads.publish(tmp_path / "nothing", URI)


@pytest.mark.parametrize("part", ["content", "extra"])
def test_a_folder_of_somebody_else_is_not_published(payloads: LocalPayloads, tmp_path: Path, part: str) -> None:
    path = staged(payloads)
    (path / part).rename(tmp_path / "mine")
    (path / part).symlink_to(tmp_path / "mine")
    modes = {file: file.stat().st_mode for file in (tmp_path / "mine").rglob("*")}
    with pytest.raises(InputError, match=f"{part} is a link"):
        payloads.publish(path, URI)
    assert {file: file.stat().st_mode for file in (tmp_path / "mine").rglob("*")} == modes


def test_a_file_with_another_name_elsewhere_is_copied(payloads: LocalPayloads, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    mode = mine.stat().st_mode
    path = staged(payloads)
    os.link(mine, path / "content" / "linked.txt")
    fingerprint = payloads.publish(path, URI).fingerprint
    assert mine.stat().st_mode == mode
    mine.write_text("changed")
    assert (payloads.local(URI, fingerprint) / "content" / "linked.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: _rewrite(path / "content" / "deep" / "file.txt", b"hellO"), ["content/deep/file.txt changed"]),
        (lambda path: (path / "content" / "empty.txt").unlink(), ["content/empty.txt is missing"]),
        (lambda path: (path / "extra" / "more.txt").write_text("x"), ["extra/more.txt is new"]),
        (lambda path: _rewrite(path / "extra" / "report.html", b""), ["extra/report.html changed"]),
        (lambda path: (path / "manifest.json").unlink(), ["cannot be read"]),
        (lambda path: _rewrite(path / "manifest.json", b"{}"), ["cannot be read"]),
        (lambda path: (path / "content" / "link").symlink_to("/etc/passwd"), ["cannot be read"]),
    ],
)
def test_every_change_is_seen(payloads: LocalPayloads, damage: object, said: list[str]) -> None:
    payloads.publish(staged(payloads), URI)
    damage(payloads.local(URI))  # type: ignore[operator]
    problems = payloads.problems(URI)
    assert len(problems) == len(said)
    assert all(text in problem for text, problem in zip(said, problems, strict=True))


def test_content_and_manifest_changed_together_are_seen_by_the_stores_word(payloads: LocalPayloads) -> None:
    tree = payloads.publish(staged(payloads), URI)
    payloads.remove(URI)
    payloads.publish(staged(payloads, "forged"), URI)
    assert payloads.problems(URI) == []
    assert payloads.problems(URI, tree.fingerprint) == ["content is not what the store says"]


@pytest.mark.parametrize("note", [b"\xff\xfe", b"", b"\0" * 64])
def test_a_damaged_note_of_a_check_has_the_bytes_read_again(payloads: LocalPayloads, note: bytes) -> None:
    fingerprint = payloads.publish(staged(payloads), URI).fingerprint
    (file,) = [path for path in payloads.root.rglob("checked/*") if path.is_file()]
    file.write_bytes(note)
    again = LocalPayloads(payloads.root)  # another process, which remembers nothing
    assert again.changes(URI, fingerprint) == []
    assert file.read_bytes() != note


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[LocalPayloads]:
    """Payloads on a file system in memory."""
    folder = tmp_path / "memory"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    yield LocalPayloads(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _mapped(payloads: LocalPayloads) -> tuple[str, mmap.mmap]:
    """The fingerprint of a payload, and a mapping of a file of it that was written to before it was published."""
    path = staged(payloads)
    with (path / "content" / "deep" / "file.txt").open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    mapping[:1] = b"H"
    return payloads.publish(path, URI).fingerprint, mapping


def test_what_is_written_through_a_mapping_in_memory_is_seen(in_memory: LocalPayloads) -> None:
    """No date changes there: see `payload_checks`."""
    fingerprint, mapping = _mapped(in_memory)
    assert in_memory.changes(URI, fingerprint) == []
    file = in_memory.path(URI) / "content" / "deep" / "file.txt"
    before = file.stat()
    mapping[1:2] = b"E"
    assert (file.stat().st_mtime_ns, file.stat().st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert in_memory.changes(URI, fingerprint) == ["content/deep/file.txt changed"]
    with pytest.raises(InputError, match="is not what was published"):
        in_memory.local(URI, fingerprint)


def test_what_is_written_through_a_mapping_is_seen(payloads: LocalPayloads) -> None:
    fingerprint, mapping = _mapped(payloads)
    assert payloads.changes(URI, fingerprint) == []
    mapping[1:2] = b"E"
    assert payloads.changes(URI, fingerprint) == ["content/deep/file.txt changed"]


def test_what_a_check_finds_changed_is_not_known_as_whole_any_more(
    in_memory: LocalPayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where dates tell nothing, though they are believed to, as of a file system that is not known."""
    monkeypatch.setattr("drivetrain.metadata.payload_checks._UNDATED", ())
    fingerprint, mapping = _mapped(in_memory)
    assert in_memory.changes(URI, fingerprint) == []
    mapping[1:2] = b"E"
    assert in_memory.changes(URI, fingerprint) == []
    assert in_memory.problems(URI, fingerprint) == ["content/deep/file.txt changed"]
    assert in_memory.changes(URI, fingerprint) == ["content/deep/file.txt changed"]
    assert LocalPayloads(in_memory.root).changes(URI, fingerprint) == ["content/deep/file.txt changed"]


def test_a_manifest_that_lists_a_file_twice_is_damaged(payloads: LocalPayloads) -> None:
    payloads.publish(staged(payloads), URI)
    path = payloads.local(URI) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["extra"]["files"] *= 2
    path.chmod(0o644)
    path.write_text(json.dumps(manifest))
    assert len(payloads.problems(URI)) == 1
    assert "a file of extra is listed twice" in payloads.problems(URI)[0]


def test_a_signature_beside_what_was_published_is_no_change(payloads: LocalPayloads) -> None:
    fingerprint = payloads.publish(staged(payloads), URI).fingerprint
    (payloads.local(URI) / "content.sig").write_text("{}")  # as `drivetrain bundle sign` does
    assert payloads.problems(URI, fingerprint) == []
    path = staged(payloads)
    (path / "content.sig").write_text("{}")
    with pytest.raises(InputError, match=r"holds 'content\.sig' beside content and extra"):
        payloads.publish(path, "artifacts/Node/uid/other")


def _rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("step", ["sync_files", "sync_folder"])
def test_a_full_disk_publishes_nothing(
    payloads: LocalPayloads, monkeypatch: pytest.MonkeyPatch, code: int, step: str
) -> None:
    path = staged(payloads)

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(payload_module, step, full)
        with pytest.raises(DiskFull, match=rf"disk full while publishing {URI}.*\n.*drivetrain resume"):
            payloads.publish(path, URI)
    assert not payloads.local(URI).exists()
    payloads.publish(path, URI)  # space was freed: the same staging folder can be published


def test_a_stop_as_the_folder_moves_stays_a_stop(payloads: LocalPayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = staged(payloads), Path.rename

    def stopped(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if self == path.parent:
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(Path, "rename", stopped)
    with pytest.raises(KeyboardInterrupt):
        payloads.publish(path, "artifacts/Node/uid/out")
    assert payloads.problems("artifacts/Node/uid/out") == []  # whoever was stopped takes it back


def test_other_errors_keep_their_name(payloads: LocalPayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(payload_module, "sync_files", denied)
    with pytest.raises(PermissionError):
        payloads.publish(staged(payloads), URI)


def changed(file: Path, text: str) -> None:
    file.chmod(0o644)
    file.write_text(text)


def test_a_payload_is_compared_before_it_is_read_unless_none_of_its_files_was_written(
    payloads: LocalPayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[Path] = []

    def counted(path: Path, **options: bool) -> dict[str, TreeDigest]:
        digested.append(path)
        return digests_of(path, **options)

    monkeypatch.setattr(payload_checks, "digests_of", counted)
    staged = payloads.stage("Make", "u1", "out")
    (staged / "content" / "a.txt").write_text("hello")
    (staged / "extra").mkdir()
    (staged / "extra" / "log.txt").write_text("log")
    uri = "artifacts/Make/u1/out"
    fingerprint = payloads.publish(staged, uri).fingerprint
    for process in (payloads, LocalPayloads(tmp_path)):
        assert process.local(uri, fingerprint).is_dir()
    assert not digested
    file = payloads.local(uri) / "content" / "a.txt"
    file.touch()
    for process in (LocalPayloads(tmp_path), payloads, LocalPayloads(tmp_path)):
        assert process.local(uri, fingerprint).is_dir()
    assert len(digested) == 1  # its date says that it was written, its bytes that it is the same
    for name in ("content/a.txt", "extra/log.txt"):
        file = payloads.local(uri) / name
        before = file.stat()
        changed(file, file.read_text().upper())
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # a date is easily set back
        for process in (payloads, LocalPayloads(tmp_path)):
            with pytest.raises(InputError, match=rf"not what was published: {name} changed"):
                process.local(uri, fingerprint)
        changed(file, file.read_text().lower())
    assert payloads.local(uri, fingerprint).is_dir()
    payloads.remove(uri)
    with pytest.raises(InputError, match="cannot be read"):
        payloads.local(uri, fingerprint)


def test_a_manifest_that_is_a_pipe_is_not_waited_for(payloads: LocalPayloads) -> None:
    payloads.publish(staged(payloads), URI)
    manifest = payloads.path(URI) / "manifest.json"
    manifest.parent.chmod(0o755)
    manifest.unlink()
    os.mkfifo(manifest)
    assert payloads.problems(URI) == ["cannot be read: manifest.json is not a file"]


def test_a_size_that_lies_is_told(payloads: LocalPayloads) -> None:
    tree = payloads.publish(staged(payloads), URI)
    manifest = payloads.path(URI) / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text().replace('"size":5}', '"size":6}', 1))
    assert payloads.problems(URI, tree.fingerprint) == ["content/deep/file.txt changed"]


def test_a_write_while_a_payload_is_compared_is_found_the_next_time(
    payloads: LocalPayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = payloads.stage("Make", "u1", "out")
    (staged / "content" / "a.txt").write_text("hello")
    uri = "artifacts/Make/u1/out"
    fingerprint = payloads.publish(staged, uri).fingerprint
    file = payloads.local(uri) / "content" / "a.txt"
    file.touch()

    def overtaken(path: Path, **options: bool) -> dict[str, TreeDigest]:
        digests = digests_of(path, **options)
        changed(file, "HELLO")
        return digests

    monkeypatch.setattr(payload_checks, "digests_of", overtaken)
    assert LocalPayloads(tmp_path).local(uri, fingerprint).is_dir()
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"content/a.txt changed"):
        LocalPayloads(tmp_path).local(uri, fingerprint)


def test_a_write_while_it_is_published_is_not_taken_for_compared(
    payloads: LocalPayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a child of the component, say, after the digests were taken."""
    path = staged(payloads)

    def late(folder: Path, names: list[str]) -> None:
        sync_files(folder, names)
        file = path / "content" / "deep" / "file.txt"
        file.chmod(0o644)
        file.write_text("other")
        file.chmod(0o444)

    monkeypatch.setattr(payload_module, "sync_files", late)
    tree = payloads.publish(path, URI)
    assert payloads.changes(URI, tree.fingerprint) == ["content/deep/file.txt changed"]


def test_removal_follows_no_link(payloads: LocalPayloads, tmp_path: Path) -> None:
    payloads.publish(staged(payloads), URI)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("x")
    (payloads.path(URI) / "extra").mkdir(exist_ok=True)
    (payloads.path(URI) / "extra" / "folder").symlink_to(elsewhere)
    (payloads.path(URI) / "content" / "file").symlink_to(elsewhere / "kept")
    payloads.remove(URI)
    assert (elsewhere / "kept").read_text() == "x"
    assert not payloads.path(URI).exists()
    assert not list(payloads.staging.iterdir())


def test_a_part_that_became_a_link_is_not_as_it_was(payloads: LocalPayloads, tmp_path: Path) -> None:
    tree = payloads.publish(staged(payloads), URI)
    assert payloads.changes(URI, tree.fingerprint) == []
    content = payloads.path(URI) / "content"
    content.rename(tmp_path / "outside")
    content.symlink_to(tmp_path / "outside")
    assert payloads.changes(URI, tree.fingerprint)
