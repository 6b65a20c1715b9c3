"""Pusher: copies a model's bundle to where a server looks for it, as the next numbered version (`versions.py`)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..addresses import local_path
from ..digest import paths_below, write_durably
from ..errors import InputError
from ..metadata import Artifact, InfraValidation, Model, PushedModel, summarize
from ..pipelines import component, current
from ..progress import Progress, no_progress
from ..stores import Store
from ..versions import not_writable, versions_at
from .infra_validator import WARMUP_FILE


def push(
    bundle: Path,
    destination: Path | str,
    *,
    keep: int | None = None,
    progress: Progress = no_progress,
    trace: Mapping[str, str] | None = None,
    warmup: bytes | None = None,
) -> tuple[int, str]:
    """Copy a bundle to `destination/<version>/`, whole or not at all, as `Versions.publish` says.

    If the newest version already is this bundle, it is adopted and nothing is copied. (An older equal version is not: a
    server serves the newest, and the push would change nothing.) The signature of a signed bundle goes with it.

    Args:
        bundle: The folder to copy; its signature lies beside it (`engine.sign_bundle`).
        destination: Folder of versions, made if it does not exist; or a URL that can be written to.
        keep: How many of the newest versions stay; None keeps all.
        progress: Called with bytes uploaded; may raise to stop.
        trace: What the version's record says of where the bundle comes from, e.g. its run.
        warmup: Requests for a server to try the version with, as `serving.warmup.warmup_file` makes them.

    Returns:
        The version, and the bundle's digest.

    Raises:
        InputError: The destination cannot be used, or the bundle changed while it was copied.
        StorageUnavailable: The store behind the URL does not answer.
    """
    files = paths_below(bundle)
    if not files:
        raise InputError(f"there is no bundle in {bundle}", fix="push a trained model")
    facts = dict(trace or {})
    # The digest that seals the bundle's manifest, which `drivetrain bundle show` prints; what is pushed may be no
    # bundle of ours.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts["bundle"] = json.loads((bundle / "manifest.json").read_bytes())["digest"]
    from ..engine.bundles.signing import signature_of  # late: who only builds a pipeline needs no engine

    signature = signature_of(bundle)
    record = versions_at(destination).publish(
        files, facts=facts, signature=signature, warmup=warmup, keep=keep, progress=progress
    )
    return record.number, record.digest


def still_pushed(outputs: Mapping[str, Artifact], parameters: Mapping[str, object], base: Path) -> str | None:
    """Why an earlier push no longer stands; None if the destination still holds it, unchanged, as its newest."""
    for pushed in outputs.values():
        if not isinstance(pushed, PushedModel):
            continue
        there = versions_at(_resolved(pushed.destination, base))
        numbers = there.numbers()
        if pushed.version not in numbers:
            return f"version {pushed.version} is no longer at {pushed.destination}"
        if there.digest(pushed.version) != pushed.digest:
            return f"version {pushed.version} at {pushed.destination} is no longer what was pushed"
        if numbers[-1] != pushed.version and there.digest(numbers[-1]) != pushed.digest:
            return f"version {numbers[-1]} was pushed to {pushed.destination} since"
    return None


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
        raise not_writable(error, destination)


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what is not a destination, and to keep nothing."""
    destination, keep = known.get("destination"), known.get("keep")
    if isinstance(destination, str):
        if not destination or "\0" in destination:
            raise InputError(f"{destination!r} is not a destination", fix='destination="served/model"')
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


def _warmup_of(validation: InfraValidation) -> bytes | None:
    """The requests that a validation was made with; None of one that kept none.

    Raises:
        InputError: It was not passed.
    """
    if not validation.passed:
        raise InputError(f"the model may not be pushed: {validation.summary}", fix="see its server.log, and train anew")
    with contextlib.suppress(FileNotFoundError):  # of a release that kept none
        return (validation.content / WARMUP_FILE).read_bytes()
    return None


@component(verify=still_pushed, preflight=_refuse)
def Pusher(
    model: Model, validation: InfraValidation | None = None, *, destination: str, keep: int | None = None
) -> PushedModel:
    """Push a model's bundle to where a server looks for it: `destination/<version>/`, versions 1, 2, 3 and so on.

    A new version appears whole: in a folder by one rename, in a store by its record `<version>.json`, which is written
    last. Pushing what is already the newest version adopts it. A cached push is believed only while the destination
    holds that version unchanged as its newest: what is pushed is what is served. The signature of a model that was
    signed before is copied to `destination/<version>.sig`.

    Args:
        model: What to push.
        validation: What InfraValidator says of it: the rows that it asked the model for go beside the version, as
            requests that servers try it with before they switch to it.
        destination: A folder; a relative one means the folder that the root lies in. Or the URL of a store that
            creates a file only where there is none: `s3://bucket/serving/flights`, `gs://…`, `abfs://…`.
        keep: How many of the newest versions stay; None keeps all.

    Returns:
        The receipt: destination as it was written, version, digest of the bundle.

    Raises:
        InputError: The destination cannot be used, or the validation was not passed.
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
        warmup=None if validation is None else _warmup_of(validation),
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
