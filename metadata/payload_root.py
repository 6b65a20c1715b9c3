"""Where the payloads of a store lie: said once, when it is new, and remembered in the store itself."""

from __future__ import annotations

from pathlib import Path

from ..addresses import scheme_of
from ..errors import InputError
from ..owner import Owner
from .payload import Payloads
from .payload_local import LocalPayloads
from .store import MetadataStore
from .uri import check_root

_KEY = ("payloads", "root")


def payloads_at(store: MetadataStore) -> str | None:
    """The URL that the payloads of a store lie behind; None where they lie in its root.

    Raises:
        InputError: They lie in the memory of another process.
    """
    context = store.find_context(*_KEY)
    if context is None:
        return None
    url = check_root(context.properties["url"])
    if not scheme_of(url).shared and Owner.from_dict(context.properties["owner"]) != Owner.current():
        raise InputError(
            f"the artifacts are in {url}, in the memory of another process",
            fix="use it with the inline runner, in one process; file:///path is for more",
        )
    return url


def keep_payloads_at(store: MetadataStore, url: str) -> None:
    """Remember where the payloads of a new store lie.

    Raises:
        InputError: The URL cannot be used, or they lie elsewhere.
    """
    url = check_root(url)
    store.context(*_KEY, {"url": url, "owner": Owner.current().to_dict()})
    if (there := payloads_at(store)) != url:
        raise _elsewhere(there, url)


def open_payloads(store: MetadataStore, root: Path, url: str | None = None) -> Payloads:
    """The payloads of a store, wherever they lie.

    Args:
        store: The store.
        root: Its root folder, where they are staged.
        url: Where they are said to lie; where they do if None. A store that nothing was run in takes its word.

    Raises:
        InputError: The URL cannot be used; they lie elsewhere; those of another store lie there.
        DrivetrainError: The package for its scheme is not installed.
        StorageUnavailable: Nothing answers there.
    """
    there = payloads_at(store)
    if url is not None and there is None:
        there = _begin(store, check_root(url))
    if url is not None and check_root(url) != there:
        raise _elsewhere(there, check_root(url))
    if there is None:
        return LocalPayloads(root)
    from .payload_remote import RemotePayloads  # with it comes what moves files, which a local root never does

    return RemotePayloads(root, there)


def _begin(store: MetadataStore, url: str) -> str | None:
    """Remember a URL with a store that is new; gives where its payloads lie, which another process may have said."""
    from .payload_remote import store_at

    new = not store.executions(limit=1) and not store.contexts("run", limit=1)
    taken = bool(new and store_at(url).names("artifacts"))
    if (there := payloads_at(store)) is not None or not new:
        return there
    if taken:
        raise InputError(
            f"artifacts of another store are in {url}",
            fix="name that store with --store, or give another prefix with --artifacts",
        )
    if not store.readonly:
        keep_payloads_at(store, url)
    return url


def _elsewhere(there: str | None, url: str) -> InputError:
    return InputError(
        f"the artifacts of this store are {f'in {there}' if there else 'in its root folder'}, not in {url}",
        fix=f"leave --artifacts {url} (or DRIVETRAIN_ARTIFACTS) away, or begin again with another --root",
    )
