"""Publishing to folders and URLs: versions, adoption, two at once, a kill, and everything that can be wrong."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain import hub, stores
from drivetrain.components.pusher import push
from drivetrain.engine import Bundle
from drivetrain.errors import InputError
from drivetrain.owner import Owner
from drivetrain.versions import FolderVersions, versions_at

pytestmark = [pytest.mark.engine, pytest.mark.slow]  # many compilations


@pytest.fixture(scope="module")
def encoder_module(encoder: Any) -> Any:
    return hub.module(*encoder)


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """An address of each kind that can be written."""
    if request.param == "memory":
        fsspec = pytest.importorskip("fsspec")
        yield f"memory://hub/{tmp_path.name}"
        fsspec.filesystem("memory").rm("/hub", recursive=True)
    else:
        yield {"path": str(tmp_path / "a b"), "file": (tmp_path / "a b").as_uri()}[request.param]


EVERY = pytest.mark.parametrize("store", ["path", "file", "memory"], indirect=True)


@EVERY
def test_versions_are_counted_and_equal_ones_adopted(store: str, encoder_module: Any, encoder: Any) -> None:
    assert hub.versions(store) == ()
    first = hub.save(encoder_module, store)
    assert (first.number, hub.save(encoder_module, store)) == (1, first)
    card = hub.ModelCard("enc", "Encodes.", "CC0-1.0", "noise", {"accuracy": 0.5}, "tests", "all else", {"Who": "we"})
    second = hub.save(encoder_module, store, card=card)
    assert second.number == 2
    assert second.digest != first.digest
    assert hub.versions(store) == (first, second)
    assert second.card == card
    assert hub.save(encoder_module, store) == first  # the older one, as it is there
    assert hub.save(encoder_module, store, version=7, card=hub.ModelCard("seven")).number == 7
    assert hub.save(encoder_module, store, card=hub.ModelCard("eight")).number == 8
    with pytest.raises(InputError, match="has a version 2 already, of another program"):
        hub.save(encoder_module, store, version=2)
    fn, params, x = encoder
    np.testing.assert_allclose(hub.load(store, version=2, digest=second.digest)(x), fn(params, x), rtol=1e-5, atol=1e-6)
    assert all(check.ok for check in hub.verify(store))


def test_the_card_is_beside_the_program_as_a_page(tmp_path: Path, encoder_module: Any) -> None:
    card = hub.ModelCard("enc", "Encodes.", metrics={"accuracy": 0.5}, more={"Who": "we"})
    published = hub.save(encoder_module, tmp_path, card=card)
    folder = tmp_path / str(published.number)
    assert hub.ModelCard.from_json(json.loads((folder / "card.json").read_bytes())) == card
    page = (folder / "README.md").read_text()
    assert page.startswith("# enc\n\nEncodes.\n")
    assert "## Who\n\nwe\n" in page
    assert "- accuracy: 0.5" in page
    assert "call(inputs: float32[5]) -> output: float32[3]" in page
    assert Bundle.load(folder).signatures  # the bundle is one like any other
    with pytest.raises(InputError, match="metric 'loss' is nan"):
        hub.ModelCard(metrics={"loss": float("nan")})
    with pytest.raises(InputError, match="the card's name is 3"):
        hub.ModelCard(name=3)  # type: ignore[arg-type]


@EVERY
def test_cleaning_removes_what_a_publisher_elsewhere_left(store: str, encoder_module: Any) -> None:
    hub.save(encoder_module, store)
    there = versions_at(store)
    if isinstance(there, FolderVersions):
        left = [f".2.json.{'a' * 8}.tmp", f".incoming-{'b' * 16}", f".outgoing-{'b' * 16}"]
        (there.folder / left[0]).write_bytes(b"{")
        for name in left[1:]:
            (there.folder / name).mkdir()
        strange = there.folder / ".2.json.bak"
        strange.write_bytes(b"{}")
    else:
        elsewhere = {**Owner.current().to_dict(), "host": "elsewhere"}
        claim = {"version": 2, "owner": elsewhere, "begun": datetime.now(UTC).isoformat(), "token": "x"}
        there.store.write("2.claim", json.dumps(claim).encode())
        there.store.write("2/weights/w.bin", b"half")
        left = ["2"]
        assert hub.clean(store) == ()  # it may be at work still
    there.store.write("mine/notes", b"")
    before = there.store.names("")
    assert list(hub.clean(store, older_than=timedelta(0), dry_run=True)) == left
    assert there.store.names("") == before
    assert list(hub.clean(store, older_than=timedelta(0))) == left
    assert hub.clean(store, older_than=timedelta(0)) == ()
    assert {"1", "1.json", "mine"} <= set(there.store.names(""))
    assert not set(left) & set(there.store.names(""))
    if isinstance(there, FolderVersions):
        assert strange.exists()
    assert hub.load(store, version=1).params
    with pytest.raises(InputError, match="by HTTP"):
        hub.clean("https://example.org/model")


def _publish(folder: str, number: int, gate: Any, results: Any) -> None:
    import jax.numpy as jnp
    from drivetrain import hub

    module = hub.module(lambda p, x: jnp.sin(x) * p, np.float32(number), np.zeros((2, 3), np.float32))
    gate.wait()
    results.put((number, hub.save(module, folder).number))


@pytest.mark.slow
def test_publishers_at_once_get_versions_of_their_own(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(4), context.Queue()
    programs = [1, 2, 3, 3]  # the last two publish the same
    workers = [context.Process(target=_publish, args=(str(tmp_path), program, gate, results)) for program in programs]
    for worker in workers:
        worker.start()
    published = [results.get(timeout=280) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sorted({version for _, version in published}) == [1, 2, 3]
    assert len(set(published)) == 3
    # Who came second with the same program took its files back.
    names = [f"{number}{end}" for number in (1, 2, 3) for end in ("", ".json")]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == names
    for program, version in published:
        assert float(hub.load(tmp_path, version=version).params["value"]) == program


def test_one_number_is_claimed_once(tmp_path: Path, encoder_module: Any) -> None:
    """Threads that all saw the same versions: the record's creation decides."""
    versions: list[int] = []

    def publish(number: int) -> None:
        versions.append(hub.save(encoder_module, tmp_path, card=hub.ModelCard(str(number))).number)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == [1, 2, 3, 4, 5, 6]


KILLED = """
import sys, numpy as np
from pathlib import Path
from drivetrain import hub, versions
module = hub.module(lambda p, x: x * p, np.float32(2), np.zeros((2, 3), np.float32))
step = sys.argv[2]
def stop(*_):
    print("here", flush=True)
    sys.stdin.read()
if step == "files":
    def write(source, target):
        data = Path(source).read_bytes()
        Path(target).write_bytes(data[: len(data) // 2])
        stop()
    versions.shutil.copyfile = write
elif step == "sync":
    versions.sync_tree = stop
elif step == "record":
    Path.replace = stop
else:
    Path.rename = stop
hub.save(module, sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["files", "sync", "record", "rename"])
def test_a_killed_publisher_leaves_no_version(tmp_path: Path, encoder_module: Any, step: str) -> None:
    hub.save(encoder_module, tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), step], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "here\n"
    if step in ("files", "sync"):  # it holds no lock of the folder now
        assert hub.clean(tmp_path) == ()  # it is at work still
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    child.stdin.close()
    child.stdout.close()
    assert [version.number for version in hub.versions(tmp_path)] == [1]
    left = hub.clean(tmp_path, dry_run=True)
    assert [name.startswith(".incoming-") for name in left] == ([False, True] if step == "record" else [True])
    assert all((tmp_path / name).exists() for name in left)
    assert hub.clean(tmp_path) == left
    assert not any((tmp_path / name).exists() for name in left)
    assert hub.clean(tmp_path) == ()
    assert hub.load(tmp_path).params
    assert hub.save(encoder_module, tmp_path, card=hub.ModelCard("next")).number == 2
    names = ["1", "1.json", "2", "2.json"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == names


def damage(folder: Path, what: str) -> None:
    inner, record = folder / "1", folder / "1.json"
    body = json.loads(record.read_bytes())
    weights = inner / "weights" / "params.safetensors"
    if what == "flipped":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif what == "truncated":
        weights.write_bytes(weights.read_bytes()[:-4])
    elif what == "missing":
        weights.unlink()
    elif what == "emptied":
        shutil.rmtree(inner)
        inner.mkdir()
    elif what == "linked":
        shutil.move(weights, folder / "w")
        weights.symlink_to(folder / "w")
    elif what == "newer":
        record.write_text(json.dumps({**body, "format_version": 2}))
    elif what == "cut":
        record.write_bytes(record.read_bytes()[:-100])
    elif what == "empty":
        record.write_bytes(b"")
    elif what == "other":
        record.write_text("[]")
    elif what == "card":
        record.write_text(json.dumps({**body, "card": {**body["card"], "name": "another"}}))
    elif what in ("traversal", "absolute", "nested"):
        name = {"traversal": "../secret", "absolute": "/etc/passwd", "nested": "graph.json/x"}[what]
        entry = {"size": 1, "sha256": "0" * 64, "checksum": None}
        record.write_text(json.dumps({**body, "files": {**body["files"], name: entry}}))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("flipped", r"version 1 is damaged: weights/params\.safetensors does not match its digest"),
        ("truncated", r"version 1 is damaged: weights/params\.safetensors does not match its digest"),
        ("missing", r"version 1 is not whole: weights/params\.safetensors is missing"),
        ("emptied", r"version 1 is not whole: README\.md is missing"),
        ("linked", "leads through the link"),
        ("newer", "has format 2, this release reads up to 1"),
        ("cut", r"1\.json is damaged"),
        ("empty", r"1\.json is damaged"),
        ("other", r"1\.json is damaged"),
        ("card", r"1\.json is damaged: its card is not card\.json"),
        ("traversal", r"the name '\.\./secret' leads elsewhere"),
        ("absolute", "the name '/etc/passwd' leads elsewhere"),
        ("nested", "it names a file that is a folder too"),
    ],
)
def test_damage_is_one_clear_error(tmp_path: Path, encoder_module: Any, what: str, said: str) -> None:
    hub.save(encoder_module, tmp_path)
    damage(tmp_path, what)
    with pytest.raises(InputError, match=said):
        hub.load(tmp_path)


def test_a_damaged_file_of_a_store_is_not_cached(encoder_module: Any, tmp_path: Path) -> None:
    files = pytest.importorskip("fsspec").filesystem("memory")
    address = f"memory://hub/{tmp_path.name}"
    hub.save(encoder_module, address)
    path = f"/hub/{tmp_path.name}/1/graph.json"
    whole = files.cat_file(path)
    files.pipe_file(path, whole[:-1] + b"!")
    with pytest.raises(InputError, match=r"damaged: graph\.json does not match its digest"):
        hub.load(address)
    assert not hub.verify(address)[0].ok
    files.pipe_file(path, whole)
    assert hub.load(address).params
    files.rm("/hub", recursive=True)


@EVERY
def test_what_pusher_pushed_is_a_version_like_any_other(
    store: str, encoder_module: Any, encoder: Any, tmp_path: Path
) -> None:
    encoder_module.bundle.save(tmp_path / "bundle")
    pushed = push(tmp_path / "bundle", store)
    (version,) = hub.versions(store)
    assert (version.number, version.digest, version.card) == (*pushed, hub.ModelCard())
    fn, params, x = encoder
    np.testing.assert_allclose(hub.load(store, digest=pushed[1])(x), fn(params, x), rtol=1e-5, atol=1e-6)
    assert hub.save(encoder_module, store, card=hub.ModelCard("next")).number == 2
    there = versions_at(store)
    (tmp_path / "polled").mkdir()
    for name in there.store.entries("2"):  # as a server would take it
        target = tmp_path / "polled" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(there.store.read(f"2/{name}"))
    assert Bundle.load(tmp_path / "polled").signatures


@pytest.mark.parametrize("bad", ["0" * 64, "abc", ""])
def test_a_pin_must_match(tmp_path: Path, encoder_module: Any, bad: str) -> None:
    published = hub.save(encoder_module, tmp_path)
    assert hub.load(tmp_path, digest=published.digest.upper()).params
    with pytest.raises(InputError, match=f"has digest {published.digest}, not the pinned"):
        hub.load(tmp_path, digest=bad)


def test_what_is_not_there(tmp_path: Path, encoder_module: Any) -> None:
    with pytest.raises(InputError, match="holds no published version"):
        hub.load(tmp_path)
    hub.save(encoder_module, tmp_path)
    with pytest.raises(InputError, match="has no version 3"):
        hub.load(tmp_path, version=3)
    for number in (0, -1, True, 10**18, "1"):
        with pytest.raises(InputError, match="version is"):
            hub.load(tmp_path, version=number)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="version is"):
            hub.save(encoder_module, tmp_path, version=number)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no signature 'other'"):
        hub.load(tmp_path, signature="other")


def test_what_cannot_be_written_or_is_no_program(tmp_path: Path, encoder_module: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="there is a file in its place"):
        hub.save(encoder_module, tmp_path / "file")
    with pytest.raises(InputError, match="is not a program to publish"):
        hub.save(np.sin, tmp_path)  # type: ignore[arg-type]


def test_addresses_that_are_none(encoder_module: Any) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match="nosuch"):
        hub.save(encoder_module, "nosuch://place")
    with pytest.raises(InputError, match="holds a password"):
        hub.save(encoder_module, "s3://key:secret@bucket/x")
    with pytest.raises(InputError, match="names another machine"):
        hub.save(encoder_module, "file://elsewhere/x")
    with pytest.raises(InputError, match=r"nothing can be listed by HTTP"):
        hub.save(encoder_module, "http://localhost:1/x")
    with pytest.raises(InputError, match="cannot create a file only where there is none"):
        hub.save(encoder_module, "local:///tmp/x")


def test_the_cache_serves_two_processes_and_mends_itself(encoder_module: Any, tmp_path: Path, encoder: Any) -> None:
    fn, params, x = encoder
    files = pytest.importorskip("fsspec").filesystem("memory")
    address = f"memory://hub/{tmp_path.name}"
    published = hub.save(encoder_module, address)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(hub.load(address)(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    kept = tmp_path / "cache" / "drivetrain" / "hub" / published.digest
    assert [path.name for path in kept.parent.iterdir()] == [published.digest]
    (kept / "graph.json").write_bytes(b"broken")
    np.testing.assert_allclose(hub.load(address)(x), fn(params, x), rtol=1e-5, atol=1e-6)
    files.rm(f"/hub/{tmp_path.name}/1", recursive=True)  # what is kept needs no fetching
    np.testing.assert_allclose(hub.load(address)(x), fn(params, x), rtol=1e-5, atol=1e-6)
    assert [path.name for path in kept.parent.iterdir()] == [published.digest]


def test_by_http_a_version_is_named(
    tmp_path: Path, encoder_module: Any, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.0])
    hub.save(encoder_module, tmp_path / "site" / "enc")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "site"))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/enc"
        loaded = hub.load(address, version=1)
        with pytest.raises(InputError, match="nothing can be listed by HTTP"):
            hub.load(address)
        with pytest.raises(InputError, match="has no version 2"):
            hub.load(address, version=2)
        server.shutdown()
    fn, params, x = encoder
    np.testing.assert_allclose(loaded(x), fn(params, x), rtol=1e-5, atol=1e-6)
    with pytest.raises(stores.StorageUnavailable, match="cannot be read after 2 tries"):
        hub.load(address, version=1)


def test_nothing_of_a_hub_is_executed(tmp_path: Path, encoder_module: Any) -> None:
    """Code that lies among a version's files stays where it is."""
    hub.save(encoder_module, tmp_path / "x")
    inner = tmp_path / "x" / "1"
    mark = tmp_path / "executed"
    for name in ("conftest.py", "__init__.py", "graph.py", "weights/sitecustomize.py"):
        (inner / name).write_text(f"open({str(mark)!r}, 'w')")
    script = "import sys; from drivetrain import hub; print(hub.load(sys.argv[1]))"
    command = [sys.executable, "-P", "-c", script, str(tmp_path / "x")]
    done = subprocess.run(command, cwd=inner, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "frozen" in done.stdout
    assert not mark.exists()
