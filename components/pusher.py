"""Pusher: copies a model's bundle to where a server looks for it, as the next numbered version.

    DESTINATION/3/…      the bundle's files, its manifest.json last
    DESTINATION/3.json   its record: its digests, and which execution of which run pushed it; behind a URL also its
                         files and what the store says of them, there it is written last of all and makes 3 a version
    DESTINATION/3.claim  behind a URL, while 3 is pushed or removed: by whom, since when

A folder of this machine needs no claim: there a version appears and vanishes by one rename, its record lies there just
before. A store of objects has no rename, so a pusher first claims a number that nobody has, which a store can grant in
one step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..digest import TreeDigest, digest_tree, sync_folder, sync_tree, write_durably
from ..errors import DrivetrainError, InputError
from ..metadata import Artifact, Model, Owner, PushedModel, summarize
from ..pipelines import component, current
from ..progress import Progress, no_progress
from ..stores import CountBytes, Store, Transfer, local_path

_INCOMING: Final = ".incoming-"
_OUTGOING: Final = ".outgoing-"
_VERSION: Final = re.compile(r"[1-9][0-9]{0,17}")
_MANIFEST: Final = "manifest.json"
_TRIES: Final = 1000  # other pushers that were quicker
_ABANDONED: Final = timedelta(days=1)
"""How long after its last write a push of another machine counts as dead."""


def push(
    bundle: Path,
    destination: Path | str,
    *,
    keep: int | None = None,
    progress: Progress = no_progress,
    trace: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Copy a bundle to `destination/<version>/`, whole or not at all.

    The version is the newest one plus one; if the newest version already is this bundle, it is adopted and nothing is
    copied. (An older equal version is not: a server serves the newest, and the push would change nothing.) Several
    pushers at once get different versions, and what a killed one left behind is removed.

    Args:
        bundle: The folder to copy.
        destination: Folder of versions, made if it does not exist; as text a URL that can be written to.
        keep: How many of the newest versions stay; None keeps all.
        progress: Called with bytes uploaded; may raise to stop.
        trace: What the version's record says of where the bundle comes from, e.g. its run.

    Returns:
        The version, and the bundle's digest.

    Raises:
        InputError: The destination cannot be used, or the bundle changed while it was copied.
        StorageUnavailable: The store behind the URL does not answer.
    """
    if isinstance(destination, str):
        return _push_to_store(bundle, Store(destination), keep, progress, trace or {})
    try:
        destination.mkdir(parents=True, exist_ok=True)
        return _push_to_folder(bundle, destination, keep, trace or {})
    except OSError as error:
        raise _unusable(error, destination) from error


def _bundle_digest(bundle: Path) -> TreeDigest:
    tree = digest_tree(bundle)
    if not tree.files:
        raise InputError(f"there is no bundle in {bundle}", fix="push a trained model")
    return tree


def _record_of(version: int, bundle: Path, tree: TreeDigest, trace: Mapping[str, str]) -> dict[str, object]:
    """What the record of a version says wherever it lies.

    `digest` is that of the files, as an artifact's fingerprint; `bundle` the one in the bundle's manifest, which
    `drivetrain bundle show` prints.
    """
    sealed = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # what is pushed may be no bundle of ours
        sealed = json.loads((bundle / _MANIFEST).read_bytes())["digest"]
    return {"version": version, "digest": tree.fingerprint, **({"bundle": sealed} if sealed else {}), **trace}


def _record_bytes(record: Mapping[str, object]) -> bytes:
    return (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()


def _changed_meanwhile(bundle: Path) -> InputError:
    return InputError(f"{bundle} changed while it was pushed", fix="push it again")


# --- a folder of this machine ---


def _push_to_folder(bundle: Path, destination: Path, keep: int | None, trace: Mapping[str, str]) -> tuple[int, str]:
    tree = _bundle_digest(bundle)
    with _locked(destination):
        _sweep(destination)
        newest = _newest(destination)
        if newest and _folder_digest(destination, newest) == tree.fingerprint:
            _prune(destination, keep)
            return newest, tree.fingerprint
        incoming = destination / f"{_INCOMING}{secrets.token_hex(8)}"
        incoming.mkdir()
        # Held from here on without the destination's lock, so that others may push meanwhile: the lock on what comes
        # in says that its pusher lives (see `_sweep`).
        incoming_lock = contextlib.ExitStack()
        incoming_lock.enter_context(_locked(incoming))
    with incoming_lock:
        try:
            for file in tree.files:
                target = incoming / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle / file.path, target)
            if digest_tree(incoming).fingerprint != tree.fingerprint:
                raise _changed_meanwhile(bundle)
            sync_tree(incoming)
            with _locked(destination):
                # Another may have pushed since the first look: the number is only taken now.
                version = _newest(destination)
                if not version or _folder_digest(destination, version) != tree.fingerprint:
                    version += 1
                    record = _record_of(version, bundle, tree, trace)
                    write_durably(destination / f"{version}.json", _record_bytes(record))
                    incoming.rename(destination / str(version))
                    sync_folder(destination)
                _prune(destination, keep)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)  # gone already if it was renamed
    return version, tree.fingerprint


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system frees it when the process dies."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(destination: Path) -> None:
    """Remove what dead pushers left: folders whose lock nobody holds."""
    for entry in destination.iterdir():
        if entry.name.startswith(_OUTGOING):
            shutil.rmtree(entry)
        elif entry.name.startswith(_INCOMING):
            handle = os.open(entry, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry)
            except BlockingIOError:
                continue
            finally:
                os.close(handle)


def _versions(destination: Path) -> list[int]:
    return sorted(int(entry.name) for entry in destination.iterdir() if _VERSION.fullmatch(entry.name))


def _newest(destination: Path) -> int:
    return max(_versions(destination), default=0)


def _folder_digest(destination: Path, number: int) -> str | None:
    """The digest of a version's files; None for what no push can have made (a file, a link, a folder with links)."""
    version = destination / str(number)
    if version.is_symlink() or not version.is_dir():
        return None
    try:
        return digest_tree(version).fingerprint
    except InputError:
        return None


def _prune(destination: Path, keep: int | None) -> None:
    if keep is None:
        return
    for version in _versions(destination)[:-keep]:
        outgoing = destination / f"{_OUTGOING}{secrets.token_hex(8)}"
        (destination / str(version)).rename(outgoing)  # it vanishes at once, not file by file
        (destination / f"{version}.json").unlink(missing_ok=True)
        if outgoing.is_dir():
            shutil.rmtree(outgoing)
        else:
            outgoing.unlink()


def _reason(error: OSError, destination: Path) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "there is a file in its place"
    if error.errno == errno.EROFS:
        return "the file system is read-only"
    where = f" ({error.filename})" if error.filename and str(error.filename) != str(destination) else ""
    return f"{error.strerror or error}{where}"


# --- behind a URL ---


@dataclass(frozen=True)
class _PushedFile:
    """A file of a version: bytes, SHA-256, and the store's own checksum, which changes with its bytes."""

    size: int
    sha256: str
    checksum: str | None


@dataclass(frozen=True)
class _Record:
    """What makes a number a version: the digest of what was pushed, and its files by path."""

    version: int
    digest: str
    files: Mapping[str, _PushedFile]


@dataclass(frozen=True)
class _Listing:
    """The numbers below a destination by what there is of each: its record, its claim, anything."""

    recorded: list[int]
    claimed: list[int]
    taken: list[int]

    @classmethod
    def of(cls, store: Store) -> _Listing:
        """What lies there now; everything ascending."""
        names = store.names("")
        recorded, claimed, folders = (
            sorted(int(name.removesuffix(end)) for name in names if _is_version(name, end))
            for end in (".json", ".claim", "")
        )
        return cls(recorded, claimed, sorted({*recorded, *claimed, *folders}))


def _is_version(name: str, end: str) -> bool:
    return name.endswith(end) and _VERSION.fullmatch(name.removesuffix(end)) is not None


def _push_to_store(
    bundle: Path, store: Store, keep: int | None, progress: Progress, trace: Mapping[str, str]
) -> tuple[int, str]:
    tree = _bundle_digest(bundle)
    store.require_exclusive_creation()
    _sweep_store(store)
    newest = _newest_record(store)
    if newest is not None and newest.digest == tree.fingerprint and _stands(store, newest):
        _prune_store(store, keep)
        return newest.version, tree.fingerprint
    version, claim = _claim(store)
    recorded = False
    try:
        files = _upload(store, version, bundle, tree, progress)
        newest = _newest_record(store)
        if newest is not None and newest.digest == tree.fingerprint and _stands(store, newest):
            version = newest.version  # another pushed the same meanwhile, and what was sent goes again
        else:
            # Who slept for so long that another took him for dead must not make a version of what was removed.
            if not store.exists(f"{version}.claim") or store.read(f"{version}.claim") != claim:
                raise InputError(
                    f"version {version} at {store.address} was taken for abandoned, and removed", fix="push it again"
                )
            record = _record_of(version, bundle, tree, trace) | {"claim": json.loads(claim)["token"]}
            record["files"] = {path: asdict(file) for path, file in files.items()}
            recorded = store.create(f"{version}.json", _record_bytes(record))
            if not recorded:
                raise InputError(f"{store.address}/{version}.json was there already", fix="push it again")
    finally:
        claimed = json.loads(claim)["version"]  # `version` is another's where that pushed the same bundle first
        with contextlib.suppress(DrivetrainError, OSError):  # then the next pusher cleans up
            if not recorded:
                _remove_files(store, claimed)
            store.delete(f"{claimed}.claim")
    _prune_store(store, keep)
    return version, tree.fingerprint


def _claim(store: Store) -> tuple[int, bytes]:
    """Claim a number that nobody used: the number, and the claim's bytes."""
    version = 0
    for _ in range(_TRIES):
        # Upwards even where the listing does not show what was in the way the last time.
        version = max(version, *_Listing.of(store).taken, 0) + 1
        body = {"version": version, "begun": datetime.now(UTC).isoformat(), "owner": Owner.current().to_dict()}
        claim = json.dumps({**body, "token": secrets.token_hex(16)}).encode()
        if store.create(f"{version}.claim", claim):
            # A pusher that ended between our listing and our claim has left its files and taken its claim away.
            if not store.entries(str(version)) and not store.exists(f"{version}.json"):
                return version, claim
            store.delete(f"{version}.claim")
    raise InputError(
        f"{store.address} refused {_TRIES} numbers in turn: what was pushed there is not listed",
        fix="see that you may list it, and try again",
    )


def _upload(
    store: Store,
    version: int,
    bundle: Path,
    tree: TreeDigest,
    progress: Progress,
) -> dict[str, _PushedFile]:
    """Send a bundle's files, see that they lie there as they are here, and return what the store says of them."""
    transfer = Transfer(tree.size, "bytes uploaded", progress)

    def send(path: str, count: CountBytes) -> None:
        store.send(bundle / path, f"{version}/{path}", count, transfer.pause, transfer.parts)

    paths = sorted((file.path for file in tree.files), key=lambda path: -(bundle / path).stat().st_size)
    transfer.each([path for path in paths if path != _MANIFEST], send)
    # A server that asks for the manifest alone finds none before all that it names is there.
    transfer.each([path for path in paths if path == _MANIFEST], send)
    entries = store.entries(str(version))
    for file in tree.files:
        entry, name = entries.get(file.path), f"{version}/{file.path}"
        whole = entry is not None and entry.size == file.size
        if whole and entry is not None and entry.md5 is not None:
            whole = entry.md5 == _md5(bundle / file.path)
        if whole and entry is not None and entry.checksum is None:
            whole = store.digest(name, file.size) == file.sha256
        # What looks like an MD5 is none where S3 encrypts by a key of the user's: then the bytes are read back.
        if not whole and (entry is None or entry.size != file.size or store.digest(name, file.size) != file.sha256):
            if digest_tree(bundle) != tree:
                raise _changed_meanwhile(bundle)
            raise InputError(
                f"{store.address}/{name} does not lie there as it was sent",
                fix="check the store: something changes what is written to it",
            )
    if digest_tree(bundle) != tree:
        raise _changed_meanwhile(bundle)
    return {file.path: _PushedFile(file.size, file.sha256, entries[file.path].checksum) for file in tree.files}


def _stands(store: Store, record: _Record) -> bool:
    """Whether a version's files lie there as they were pushed: by the store's checksums, else by reading them."""
    entries = store.entries(str(record.version))
    if entries.keys() != record.files.keys():
        return False
    for path, file in record.files.items():
        entry = entries[path]
        if entry.size != file.size:
            return False
        if entry.checksum is not None and file.checksum is not None:
            if entry.checksum != file.checksum:
                return False
        elif store.digest(f"{record.version}/{path}", file.size) != file.sha256:
            return False
    return True


def _read_record(store: Store, version: int) -> _Record | None:
    """A version's record; None where it is no version, or what lies there is no record of ours."""
    try:
        body = json.loads(store.read(f"{version}.json"))
        files = {str(path): _PushedFile(**file) for path, file in body["files"].items()}
        return _Record(int(body["version"]), str(body["digest"]), files)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _newest_record(store: Store) -> _Record | None:
    versions = _Listing.of(store).recorded
    return _read_record(store, versions[-1]) if versions else None


def _sweep_store(store: Store) -> None:
    """Finish what dead pushers began: remove the files of pushes that made no version, and what was being removed."""
    listing = _Listing.of(store)
    for version in listing.claimed:
        claim = _read_claim(store, version)
        if claim is None:
            continue
        if claim.get("removing"):
            _remove_version(store, version)
        elif version in listing.recorded:  # whole; only its claim was left
            store.delete(f"{version}.claim")
        elif _is_dead(store, version, claim):
            # Only now that it can write no more: it may have made its version since the listing, and died then.
            if store.exists(f"{version}.json"):
                store.delete(f"{version}.claim")
                continue
            # One that was only asleep finds by this that it must not make a version of what is removed here.
            store.write(f"{version}.claim", json.dumps({"abandoned": True}).encode())
            _remove_files(store, version)
            # The claim of the highest number stays, so that the number is not used again: another sweeper, slower
            # than this one, may still be removing its files.
            if listing.recorded and version < listing.recorded[-1]:
                store.delete(f"{version}.claim")


def _read_claim(store: Store, version: int) -> dict[str, Any] | None:
    """What a claim says, nothing where it is no claim of ours or half-written; None where there is none any more."""
    try:
        claim = json.loads(store.read(f"{version}.claim"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return claim if isinstance(claim, dict) else {}


def _is_dead(store: Store, version: int, claim: Mapping[str, Any]) -> bool:
    """Whether a claim's pusher died on this machine, or wrote nothing for a day."""
    with contextlib.suppress(KeyError, ValueError, TypeError):
        if Owner.from_dict(claim["owner"]).liveness() == "dead":
            return True
    times = [entry.changed for entry in store.entries(str(version)).values()]
    with contextlib.suppress(KeyError, ValueError, TypeError):
        times.append(datetime.fromisoformat(claim["begun"]).timestamp())
    if not claim:
        with contextlib.suppress(FileNotFoundError):
            times.append(store.stat(f"{version}.claim").changed)
    before = (datetime.now(UTC) - _ABANDONED).timestamp()
    return all(time is not None and time < before for time in times)


def _prune_store(store: Store, keep: int | None) -> None:
    if keep is None:
        return
    for version in _Listing.of(store).recorded[:-keep]:
        # So that the next pusher finishes the removal if this one is killed.
        store.write(f"{version}.claim", json.dumps({"removing": True}).encode())
        _remove_version(store, version)


def _remove_version(store: Store, version: int) -> None:
    """Remove a version: its record first, by which it is one, and the claim last, which says that it is not done."""
    store.delete(f"{version}.json")
    _remove_files(store, version)
    store.delete(f"{version}.claim")


def _remove_files(store: Store, version: int) -> None:
    store.delete(f"{version}/{_MANIFEST}")  # first, for who looks for nothing else
    store.remove(str(version))


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


# --- the component ---


def still_pushed(outputs: Mapping[str, Artifact], parameters: Mapping[str, object], base: Path) -> str | None:
    """Why an earlier push no longer stands; None if the destination still holds it, unchanged, as its newest."""
    for pushed in outputs.values():
        if not isinstance(pushed, PushedModel):
            continue
        destination = _resolved(pushed.destination, base)
        digest_of: Callable[[int], str | None]
        if isinstance(destination, Path):
            versions = _versions(destination) if destination.is_dir() else []
            digest_of = partial(_folder_digest, destination)
        else:
            store = Store(destination)
            versions = _Listing.of(store).recorded
            digest_of = partial(_stored_digest, store)
        if pushed.version not in versions:
            return f"version {pushed.version} is no longer at {pushed.destination}"
        if digest_of(pushed.version) != pushed.digest:
            return f"version {pushed.version} at {pushed.destination} is no longer what was pushed"
        if versions[-1] != pushed.version and digest_of(versions[-1]) != pushed.digest:
            return f"version {versions[-1]} was pushed to {pushed.destination} since"
    return None


def _stored_digest(store: Store, version: int) -> str | None:
    record = _read_record(store, version)
    return record.digest if record is not None and _stands(store, record) else None


def _resolved(destination: str, base: Path) -> Path | str:
    """The folder that a destination means, or its URL; while a cluster is simulated, the folder that stands for it."""
    if instead := os.environ.get("DRIVETRAIN_EFFECTS"):
        return Path(instead, *(part for part in re.split("[:/]+", destination) if part not in ("", ".", "..")))
    folder = local_path(destination)
    return destination if folder is None else base / folder


def _check_place(destination: Path | str) -> None:
    """See that nothing but the network and the store's rights stands in the way of a push.

    What is not there yet may still come: in a pod, a volume that only the pusher mounts.
    """
    if isinstance(destination, str):
        Store(destination)
        return
    nearest = next(folder for folder in (destination, *destination.parents) if folder.exists())
    if not nearest.is_dir() or (nearest == destination and not os.access(destination, os.W_OK)):
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES)) if nearest.is_dir() else NotADirectoryError()
        raise _unusable(error, destination)


def _unusable(error: OSError, destination: Path) -> InputError:
    return InputError(
        f"cannot push to {destination}: {_reason(error, destination)}",
        fix="choose a folder that can be written to, with room for the bundle",
    )


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what is no destination, and to keep nothing."""
    destination, keep = known.get("destination"), known.get("keep")
    if isinstance(destination, str):
        if not destination or "\0" in destination:
            raise InputError(f"{destination!r} is no destination", fix='destination="serving/model"')
        if destination.lower().startswith(("http://", "https://")):
            raise InputError(
                f"cannot push to {destination} by HTTP", fix="give a folder, or the URL of a store: s3://…"
            )
        if "://" not in destination and re.match(r"[a-z][a-z0-9]{1,9}:/", destination):
            scheme, _, rest = destination.partition(":")
            raise InputError(
                f"{destination!r} is neither a folder nor a URL", fix=f"did you mean '{scheme}://{rest.lstrip('/')}'?"
            )
        if coming:  # who looks at a store or a disk while a pipeline is built, makes building slow
            _check_place(_resolved(destination, current().base))
    if isinstance(keep, int) and keep < 1:
        raise InputError(f"keep must be at least 1, not {keep}", fix="leave it out to keep every version")


@component(verify=still_pushed, foresee=_refuse)
def Pusher(model: Model, *, destination: str, keep: int | None = None) -> PushedModel:
    """Push a model's bundle to where a server looks for it: `destination/<version>/`, versions 1, 2, 3 and so on.

    A new version appears whole: in a folder by one rename, in a store by its record `<version>.json`, which is written
    last. Pushing what is already the newest version adopts it. A cached push is believed only while the destination
    holds that version unchanged as its newest: what is pushed is what is served.

    Args:
        model: What to push.
        destination: A folder; a relative one means the folder that the root lies in. Or the URL of a store that
            creates a file only where there is none: `s3://bucket/serving/flights`, `gs://…`, `abfs://…`.
        keep: How many of the newest versions stay; None keeps all.

    Returns:
        The receipt: destination as it was written, version, digest of the bundle.

    Raises:
        InputError: The destination cannot be used.
        StorageUnavailable: The store behind the URL does not answer.
    """
    _refuse({"destination": destination, "keep": keep}, {})
    launch = current()
    trace = {"run": launch.run, "node": launch.node, "execution": launch.execution, "model": model.uri}
    resolved = _resolved(destination, launch.base)
    if "DRIVETRAIN_EFFECTS" in os.environ:
        launch.note(f"pushes to {resolved}, which stands for {destination}")
    version, digest = push(
        model.content,
        resolved,
        keep=keep,
        progress=launch.progress,
        trace={name: text for name, text in trace.items() if text},
    )
    pushed = PushedModel.new(destination=destination, version=version, digest=digest)
    receipt = {"destination": destination, "digest": digest, "version": version}
    write_durably(pushed.content / "receipt.json", (json.dumps(receipt, indent=1) + "\n").encode())
    launch.note(f"version {version} at {destination}")
    return pushed


@summarize.register
def _where_it_is_served(pushed: PushedModel) -> str:
    facts = pushed.properties
    return f"model pushed: version {facts.get('version')} at {facts.get('destination')}/{facts.get('version')}"
