"""Load a published version as a module, or check it: every file against its digest."""

from __future__ import annotations

from pathlib import Path

from ...errors import InputError
from ...versions import versions_at
from ..bundles.bundle import Bundle
from ..bundles.verifying import BundleCheck, verify_bundle
from .fetching import local_bundle
from .modules import CALL, HubModule
from .publishing import chosen

_PREFERRED = (CALL, "predict", "transform")


def load(
    address: str | Path,
    *,
    version: int | None = None,
    digest: str | None = None,
    trainable: bool = False,
    signature: str | None = None,
) -> HubModule:
    """Load what `save` published or Pusher pushed. Nothing of it is executed: programs are checked, then XLA runs them.

    What lies behind a URL is kept in `$XDG_CACHE_HOME/drivetrain/hub/DIGEST` (`~/.cache/…`), which may be deleted at
    any time, and checked again at each load.

    Args:
        address: The folder or URL prefix that it was published to.
        version: Its number; by default the newest.
        digest: What `save` gave as `Version.digest`: anything else is refused. Pin it where the address is not yours.
        trainable: Whether gradients are to reach its params.
        signature: Of its bundle, where it has several; by default "call", "predict", "transform", or the only one.

    Raises:
        InputError: No such version or signature; another digest than pinned; a file is missing or damaged; it is of a
            newer format, or requires an extension that is not installed; it cannot be trained.
    """
    there = versions_at(address)
    published = chosen(there, version)
    if digest is not None and published.digest != digest.strip().lower():
        raise InputError(
            f"{published.address} version {published.number} has digest {published.digest}, "
            f"not the pinned {digest:.80}",
            fix="see what changed, then pin its digest; or name the version that you pinned",
        )
    bundle = Bundle.load(local_bundle(there, published))
    names = list(bundle.signatures)
    signature = signature or next((name for name in _PREFERRED if name in names), names[0])
    return HubModule(bundle, signature, trainable, f"{published.card.name or published.address}@{published.number}")


def verify(address: str | Path, *, version: int | None = None) -> tuple[BundleCheck, ...]:
    """Check a published version: every file's digest, every program, each signature once; raises as `load`."""
    there = versions_at(address)
    published = chosen(there, version)
    try:
        folder = local_bundle(there, published)
    except InputError as error:
        return (BundleCheck("files", False, error.message),)
    return verify_bundle(folder)
