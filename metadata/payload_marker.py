"""To which store a folder of payloads belongs: a file in it says so, and so do the contexts of the store.

A folder that is not mounted looks like one from which all was deleted, and another host's root like one that lost all
that this store knows of. So nothing is taken for lost where the marker is not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..digest import write_durably
from ..errors import InputError
from .errors import StoreDamaged
from .records import ContextRecord
from .store import MetadataStore
from .uri import is_plain

FOLDER = "artifacts"
MARKER = f"{FOLDER}/.store.json"
_TREE = "payload folder"


def mark(store: MetadataStore, root: Path, *, is_new: bool) -> None:
    """Write the marker where there is none: into the folder of a new store, or one that has payloads of this store.

    Args:
        store: The store.
        root: The root that its URIs are relative to.
        is_new: Whether the store has recorded nothing yet.
    """
    path = root / MARKER
    if path.exists() or path.parent.is_symlink() or not (is_new or _has_payloads(store, root)):
        return
    tree = secrets.token_hex(8)
    identity = _identity(store)
    with suppress(OSError):  # a disk that is full: the next run writes it
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps({"store": identity, "folder": tree}).encode())
        store.context(_TREE, tree, {"root": str(root)})


def read_marker(root: Path) -> dict[str, str]:
    """What the marker in a root's folder of payloads says: `store`, the store's id, and `folder`, the folder's own.

    Raises:
        OSError: There is none, or it is no plain file: to read a pipe may wait for ever.
        ValueError: It is not JSON.
    """
    path = root / MARKER
    if path.exists() and not path.is_file():
        raise OSError("it is no plain file")
    marker: dict[str, str] = json.loads(path.read_bytes())
    return marker


def adopt(store: MetadataStore, marker: Mapping[str, str], root: Path) -> None:
    """Give a new store the identity of the one that a folder of payloads belonged to, and so the folder.

    Raises:
        KeyError: It is not a marker.
    """
    store.context("store", "self", {"id": marker["store"]})
    store.context(_TREE, marker["folder"], {"root": str(root)})


def require_marker(store: MetadataStore, root: Path) -> None:
    """See that the folder of payloads is there and this store's, so that what is missing in it is lost.

    Raises:
        InputError: It is not there, a link, another store's, or has neither a marker nor a payload of this store.
        StoreDamaged: The store has lost its own id.
    """
    folder = root / FOLDER
    fix = "mount or restore it; if all was deleted, run a pipeline first, then repair"
    if folder.is_symlink():
        raise InputError(f"{folder} is a link", fix="a root holds plain folders: move what it leads to here")
    if _marked(store, root) is None and not _has_payloads(store, root):
        raise InputError(f"{folder} holds nothing of this store: it may not be mounted", fix=fix)


def marker_problems(store: MetadataStore, root: Path) -> tuple[str, ...]:
    """What is wrong with the marker, and what to do about it; empty where there is none, or this store's."""
    try:
        _marked(store, root)
    except InputError as error:
        return (f"{error.message}; {error.fix}",)
    return ()


def _marked(store: MetadataStore, root: Path) -> str | None:
    """The store that the marker names, which is this one; None where there is no marker."""
    try:
        owner = read_marker(root)["store"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{root / MARKER} cannot be read ({error})", fix="delete it; the next run writes it") from None
    known = store.find_context("store", "self")  # not `_identity`: a store that is only looked at is not written to
    if known is None or owner != _id_in(known, store):
        raise InputError(
            f"{root / FOLDER} belongs to another store than {store.location}", fix="name its store by --store"
        )
    return str(owner)


def has_several(store: MetadataStore) -> bool:
    """Whether hosts have a folder of payloads each, so that what is missing here may lie in another one's."""
    return store.count_contexts(_TREE) > 1


def _identity(store: MetadataStore) -> str:
    return _id_in(store.context("store", "self", {"id": secrets.token_hex(16)}), store)


def _id_in(context: ContextRecord, store: MetadataStore) -> str:
    """The store's id in the context that keeps it.

    Raises:
        StoreDamaged: It is not there.
    """
    identity = context.properties.get("id")
    if not isinstance(identity, str):
        raise StoreDamaged(store.location, "it has lost its own id")
    return identity


def _has_payloads(store: MetadataStore, root: Path) -> bool:
    uris = (artifact.uri for artifact in store.artifacts(limit=100) if artifact.external is None)
    return any((root / uri).is_dir() for uri in uris if is_plain(uri))
