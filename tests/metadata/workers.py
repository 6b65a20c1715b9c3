"""What the fault tests run as processes of their own: `python workers.py VERB ARGUMENTS`."""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from pathlib import Path

from drivetrain.metadata import (
    ConflictError,
    LeaseLost,
    LocalPayloads,
    MetadataStore,
    Owner,
    StagedArtifact,
    StoreUnavailable,
)
from drivetrain.metadata.fetched import Fetched
from drivetrain.metadata.payload import explain_full_disk
from drivetrain.metadata.registry import Registry


def first_open(meetings: str, workers: str, *addresses: str) -> None:
    """Open stores that do not exist yet, each as so many other workers do at this moment, and write to them."""
    for number, address in enumerate(addresses):
        Path(meetings, f"{number}-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while len(list(Path(meetings).glob(f"{number}-*"))) < int(workers):
            assert time.monotonic() < deadline, "another worker is gone"
            time.sleep(0.001)
        with MetadataStore.open(address) as store:
            store.context("pipeline", "one")


def publish(path: str, worker: str, count: str) -> None:
    """Publish so many executions with one output each, and count on one shared context meanwhile."""
    with MetadataStore.open(path) as store:
        run = store.context("run", "shared")
        for index in range(int(count)):
            execution = store.start("Producer", name=f"{worker}-{index}", contexts=[run])
            new = StagedArtifact(
                "Thing", f"artifacts/Producer/{execution.uid}/out", "f" * 64, 1, {"worker": int(worker)}
            )
            store.publish(execution, {"out": [new]})


def register_and_move(path: str, worker: str, count: str) -> None:
    """Register models under one name and move its champion on, as whoever is fastest; print how often that was us."""
    won = lost = 0
    with MetadataStore.open(path) as store:
        registry = Registry(store)
        for index in range(int(count)):
            execution = store.start("Trainer", name=f"{worker}-{index}")
            new = StagedArtifact("Model", f"artifacts/Trainer/{execution.uid}/model", f"{worker}-{index}", 1)
            model = store.publish(execution, {"model": [new]})["model"][0]
            number = registry.register("flights", model, by=worker).number
            expected = registry.model("flights").aliases.get("champion")
            try:
                registry.set_alias("flights", "champion", number, by=worker, expected=expected)
            except ConflictError:
                lost += 1
            else:
                won += 1
    print(won, lost)


def work_on_keys(path: str, keys: str, seed: str) -> None:
    """Claim keys and publish once under each; slowly enough to be killed in between, now and then past the lease."""
    chance = random.Random(int(seed))
    with MetadataStore.open(path) as store:
        todo = [f"key-{index}" for index in range(int(keys))]
        chance.shuffle(todo)
        while todo:
            key = todo.pop(0)
            if store.find_cached(key) is not None:
                continue
            claim = store.claim(key, lease=0.4)
            if claim is None:
                todo.append(key)
                time.sleep(0.002)
                continue
            if store.find_cached(key) is not None:
                store.release(claim)
                continue
            execution = store.start("Worker", cache_key=key, preimage={"key": key})
            time.sleep(1.0 if chance.random() < 0.05 else chance.uniform(0, 0.1))
            new = StagedArtifact("Thing", f"artifacts/Worker/{execution.uid}/out", "f" * 64, 1)
            try:
                store.publish(execution, {"out": [new]}, claim=claim)
            except LeaseLost:
                todo.append(key)


def publish_payloads(root: str, address: str) -> None:
    """Stage, publish and commit for ever, until killed; say how many seconds the first took."""
    folder = Path(root)
    payloads = LocalPayloads(folder)
    store = MetadataStore.open(address)
    count = 0
    while True:
        begun = time.monotonic()
        execution = store.start("Producer")
        staged = payloads.stage("Producer", execution.uid, "out")
        for name in ("a.bin", "nested/b.bin"):
            target = staged / "content" / name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(f"{count} {name}".encode() * 500)
        (staged / "extra").mkdir()
        (staged / "extra" / "report.html").write_text("<p>report</p>")
        uri = f"artifacts/Producer/{execution.uid}/out"
        tree = payloads.publish(staged, uri)
        store.publish(execution, {"out": [StagedArtifact("Thing", uri, tree.fingerprint, tree.size)]})
        if not count:
            print(time.monotonic() - begun, flush=True)
        count += 1


def fill_disk(root: str, size: str) -> None:
    """Publish a payload of so many bytes where a file holds no more than 100,000, and say which error came."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    folder = Path(root)
    payloads = LocalPayloads(folder)
    staged = payloads.stage("Producer", "11111111-1111-4111-8111-111111111111", "out")
    try:
        with explain_full_disk("writing"):
            (staged / "content" / "big.bin").write_bytes(b"x" * int(size))
        payloads.publish(staged, "artifacts/Producer/1/out")
    except Exception as error:
        print(type(error).__name__, error, sep=": ")
    else:
        print("published")


def upload(root: str, url: str, staged: str, uri: str) -> None:
    """Publish a staged payload behind a URL, and print the most memory that this took, in KiB."""
    from drivetrain.metadata.payload_remote import RemotePayloads

    RemotePayloads(Path(root), url).publish(Path(staged), uri)
    print(_peak())


def fetch(root: str, url: str, uri: str) -> None:
    """Fetch a payload from behind a URL, and print the most memory that this took, in KiB."""
    from drivetrain.metadata.payload_remote import RemotePayloads

    RemotePayloads(Path(root), url).local(uri)
    print(_peak())


def send_little(url: str, path: str, name: str) -> None:
    """Send a file where a file holds no more than 100,000 bytes, both ways, and say which errors came."""
    from drivetrain.metadata.payload_remote import store_at

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    objects = store_at(url)

    def send() -> None:
        objects.send(Path(path), name, lambda done: None, lambda seconds: None)

    def write() -> None:
        objects.write(name, Path(path).read_bytes())

    for each in (send, write):
        try:
            each()
        except OSError as error:
            print(error)


def go_on_as_nobody(root: str, url: str) -> None:
    """Publish and fetch, as a user who owns nothing, where processes were killed that had made files read-only."""
    from drivetrain.metadata.payload_remote import RemotePayloads

    payloads, other = RemotePayloads(Path(root, "one"), url), RemotePayloads(Path(root, "other"), url)
    Owner.current()  # by libraries that the other user may not read
    if os.geteuid() == 0:
        os.setuid(65534)
    staged = payloads.stage("Node", "uid", "out")
    (staged / "content" / "file.txt").write_text("hello")
    left = [staged / "manifest.json"]
    for again in range(2):
        for path in left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
            path.chmod(0o444)
        if not again:
            payloads.publish(staged, "artifacts/Node/uid/out")
            (key,) = (path.name for path in payloads.fetched.folder.glob("[!.]*"))
            part = other.fetched.folder / f".part-{key}"
            left = [part / "manifest.json", part / ".half" / "0"]
    print((other.local("artifacts/Node/uid/out") / "content" / "file.txt").read_text())


def copy_slowly(folder: str, seconds: str, log: str) -> None:
    """Get a copy that takes so long to make, and note that it is made."""

    def fill(path: Path) -> None:
        with Path(log).open("a") as notes:
            notes.write("begun\n")
        time.sleep(float(seconds))
        (path / "data").write_text("whole")
        with Path(log).open("a") as notes:
            notes.write("made\n")

    Fetched(Path(folder), 1000).get("key", 1, fill, lambda: None)


def fork(path: str) -> None:
    """Write to a store from a forked child, and then from its parent."""
    with MetadataStore.open(path) as store:
        store.context("run", "parent")
        child = os.fork()
        if child == 0:
            store.context("run", "child")
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            store.context("run", "parent again")


def open_as_nobody(path: str, readonly: str) -> None:
    """Open a store, and write to it, as a user who owns nothing; say which error came."""
    os.setuid(65534)
    try:
        with MetadataStore.open(path, readonly=bool(readonly)) as store:
            store.context("run", "r")
    except StoreUnavailable as error:
        print(error)


def close_files(path: str) -> None:
    """Close the files of a store that is open, as a component may; say what comes of it."""
    with MetadataStore.open(path) as store:
        store.context("run", "before")
        try:
            with store.files_kept("Closer"):
                os.closerange(3, 100)
        except StoreUnavailable as error:
            print(error)
        with Path(f"{path}.log").open("w"):  # has the number of the database by now
            try:
                store.context("run", "after")
            except StoreUnavailable as error:
                print(error.message)


def _peak() -> int:
    """The most memory that this program held, in KiB; `getrusage` counts that of who started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
