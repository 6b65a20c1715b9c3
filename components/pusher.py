"""Pusher: copies a model's bundle to where a server looks for it, as the next numbered version (`versions.py`)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..addresses import local_path
from ..digest import digest_files, paths_below, write_durably
from ..errors import InputError
from ..metadata import Artifact, InfraValidation, Model, PushedModel, summarize
from ..pipelines import component, current
from ..pipelines.dsl.component import Withdrawn
from ..pipelines.project.context import LaunchContext
from ..pipelines.project.secret import Secret
from ..progress import Progress, no_progress
from ..redaction import holds_credentials, without_credentials
from ..stores import Store
from ..versions import not_writable, versions_at


def push(
    bundle: Path,
    destination: Path | str,
    *,
    keep: int | None = None,
    progress: Progress = no_progress,
    trace: Mapping[str, str] | None = None,
    warmup: bytes | None = None,
    signature: bytes | None = None,
    provenance: bytes | None = None,
    used: Collection[tuple[int, str]] = (),
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
        signature: The bundle's; by default the one that lies beside it.
        provenance: Where the bundle comes from, as `engine.bundles.provenance` signs it.
        used: Versions that were pushed there before, with the digests of their files: no other bundle gets a number of
            theirs, also where they have been removed.

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
    if (sealed := _sealed_by(bundle)) is not None:
        facts["bundle"] = sealed
    from ..engine.bundles.signing import signature_of  # late: who only builds a pipeline needs no engine

    record = versions_at(destination).publish(
        files,
        facts=facts,
        signature=signature_of(bundle) if signature is None else signature,
        provenance=provenance,
        warmup=warmup,
        used=used,
        keep=keep,
        progress=progress,
    )
    return record.number, record.digest


def _sealed_by(bundle: Path) -> str | None:
    """The digest that seals a bundle's manifest, which `drivetrain bundle show` prints; None of what is no bundle."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((bundle / "manifest.json").read_bytes())["digest"])
    return None


def still_pushed(
    outputs: Mapping[str, Artifact], parameters: Mapping[str, object], base: Path
) -> str | Withdrawn | None:
    """Why an earlier push no longer stands; None if the destination still holds it, unchanged, as its newest.

    Where it was removed, so that an older version is the newest again, somebody has rolled it back, and it stays so.
    """
    for pushed in outputs.values():
        if not isinstance(pushed, PushedModel):
            continue
        destination = _resolved(pushed.destination, base)
        there = versions_at(destination)
        numbers = there.numbers()
        if pushed.version not in numbers:
            if pushed.folder and str(destination) != pushed.folder:
                return f"version {pushed.version} was pushed to {pushed.folder}, and is not at {destination}"
            if numbers and numbers[-1] < pushed.version:
                return Withdrawn(
                    f"version {pushed.version} was removed from {pushed.destination}, which goes back to version "
                    f"{numbers[-1]}, and is not pushed again"
                )
            return f"version {pushed.version} is no longer at {pushed.destination}"
        if there.digest(pushed.version) != pushed.digest:
            return f"version {pushed.version} at {pushed.destination} is no longer what was pushed"
        if numbers[-1] != pushed.version and there.digest(numbers[-1]) != pushed.digest:
            return f"version {numbers[-1]} was pushed to {pushed.destination} since"
    return None


def _pushed_to(destination: Path | str, receipts: Iterable[Mapping[str, object]]) -> Iterator[tuple[int, str]]:
    """The versions that receipts say were pushed to a folder or URL, with the digests of their files."""
    pushed = [
        (str(receipt.get("folder") or ""), str(receipt.get("destination")), number, str(receipt.get("digest")))
        for receipt in receipts
        if isinstance(number := receipt.get("version"), int)
    ]
    names = _names_of(destination, pushed) if isinstance(destination, Path) else set()
    for folder, written, number, digest in pushed:
        if folder in names if folder else str(destination).rstrip("/") == written.rstrip("/"):
            yield number, digest


def _names_of(destination: Path, pushed: Iterable[tuple[str, str, int, str]]) -> set[str]:
    """The folders, as receipts have them, that a destination is or was, before its project or a mount was moved.

    It was one of them where a version that was pushed there lies here, with the same files.
    """
    there = versions_at(destination)
    digests = {number: record.digest for number in there.recorded() if (record := there.known(number)) is not None}
    here = destination.resolve()
    return {
        folder
        for folder, _, number, digest in pushed
        if folder and (Path(folder).resolve() == here or digests.get(number) == digest)
    }


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
    _refuse_server(known)


def _refuse_server(known: Mapping[str, object]) -> None:
    """Refuse an address that is not a server's, and options of a server where none is named."""
    server, seconds = known.get("server"), known.get("max_load_seconds")
    if isinstance(seconds, int | float) and not seconds > 0:
        raise InputError(f"max_load_seconds must be above 0, not {seconds!r}", fix="leave it out, or raise it")
    if isinstance(server, str):
        if holds_credentials(server):
            raise InputError(
                f"the server {without_credentials(server)!r:.200} holds a password or a token",
                fix='give the key as api_key=dt.secret("NAME")',
            )
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"{server!r:.200} is not a server", fix='server="http://127.0.0.1:8501"')
        if known.get("tls_ca") is not None and parts.scheme != "https":
            raise InputError(f"tls_ca is given, and {server!r:.200} is asked in plain text", fix="write https://")
    elif server is None and "server" in known:
        for name in ("served_as", "api_key", "tls_ca"):
            if known.get(name) is not None:
                raise InputError(
                    f"{name} needs a server, and none is named",
                    fix=f'write server="https://host:8501", or leave {name} out',
                )


def _warmup_of(validation: InfraValidation) -> bytes | None:
    """The requests that a validation was made with; None of one that kept none.

    Raises:
        InputError: It was not passed.
    """
    if not validation.passed:
        raise InputError(
            f"the model may not be pushed: {validation.summary}", fix="see its server.log, then train again"
        )
    with contextlib.suppress(FileNotFoundError):  # of a release that kept none
        from .infra_validator import WARMUP_FILE  # late: a cached run needs none of it

        return (validation.content / WARMUP_FILE).read_bytes()
    return None


@component(verify=still_pushed, preflight=_refuse)
def Pusher(
    model: Model,
    validation: InfraValidation | None = None,
    *,
    destination: str,
    keep: int | None = None,
    server: str | None = None,
    served_as: str | None = None,
    api_key: Secret | None = None,
    tls_ca: str | None = None,
    max_load_seconds: float = 600.0,
    signing_key: str | None = None,
    signing_password: Secret | None = None,
) -> PushedModel:
    """Push a model's bundle to where a server looks for it: `destination/<version>/`, versions 1, 2, 3 and so on.

    A new version appears whole: in a folder by one rename, in a store by its record `<version>.json`, which is written
    last. A number that was pushed there before, by the receipts in the store, is never another bundle's, also after
    that version was removed. Pushing what is already the newest version adopts it. A cached push is believed only while
    the destination holds that version unchanged as its newest: what is pushed is what is served. A version that was
    removed to go back to an older one stays removed. The signature of a model that was signed before is copied to
    `destination/<version>.sig`.

    Beside the receipt lies where the model comes from, as `provenance.intoto.jsonl`: an in-toto statement with SLSA
    provenance in a DSSE envelope, of every file with its SHA-256, from which code, parameters, data and run. With
    `signing_key` it is signed, lies beside the version too, as `destination/<version>.intoto.jsonl`, and the bundle is
    signed by that key, as `drivetrain bundle sign` does.

    With `server`, a `drivetrain serve` that serves the destination is asked to load the version at once, and the node
    waits until it answers, through all steps of the server's rollout where it has one for the model. Where the server
    refuses the version, or its guard takes it back, the node fails with the server's reason, and the version before
    answers. Whatever dies meanwhile, the server or this, one of both versions answers.

    Args:
        model: What to push.
        validation: What InfraValidator says of it: the rows that it asked the model for go beside the version, as
            requests that servers try it with before they switch to it.
        destination: A folder; a relative one means the folder that the root lies in. Or the URL of a store that
            creates a file only where there is none: `s3://bucket/serving/flights`, `gs://…`, `abfs://…`.
        keep: How many of the newest versions stay; None keeps all.
        server: The address of a running server.
        served_as: What it calls the model; by default the last part of the destination.
        api_key: A key that may `admin` there, where the server asks for keys.
        tls_ca: A file of the certificates, in PEM, that have signed the server's; a relative one is looked for as a
            destination is; None: the system's.
        max_load_seconds: How long the server may take until the version can be asked, or be silent.
        signing_key: A file with a P-256 private key in PEM; a relative one is looked for as a destination is.
        signing_password: Of that file, if it has one.

    Returns:
        The receipt: destination as it was written, the folder that it meant, version, digests; the server, its version
            before, the steps.

    Raises:
        InputError: The destination or the server cannot be used, or the validation was not passed.
        StorageUnavailable: The store behind the URL does not answer.
        ServerError: The server does not answer, does not let us in, or does not serve the version.
    """
    known = {"server": server, "served_as": served_as, "api_key": api_key, "tls_ca": tls_ca}
    _refuse({"destination": destination, "keep": keep, "max_load_seconds": max_load_seconds, **known}, {})
    launch = current()
    trace = {"run": launch.run, "node": launch.node, "execution": launch.execution, "model": model.uri}
    resolved = _resolved(destination, launch.base)
    if "DRIVETRAIN_EFFECTS" in os.environ:
        launch.note(f"pushes to {resolved}, which stands for {destination}")
        server = None  # while a cluster is simulated, no real server is to be changed
    with contextlib.ExitStack() as stack:
        watch = None
        if server is not None:
            # Late: who pushes to a folder alone needs no client.
            from .rollout import ServerWatch, ServingReceipt

            name = served_as or re.split(r"[/\\]", destination.rstrip("/\\"))[-1]
            authority = None if tls_ca is None else launch.base / tls_ca
            secret = None if api_key is None else api_key.reveal()
            watch = stack.enter_context(
                ServerWatch.open(
                    server, name, api_key=secret, tls_ca=authority, seconds=max_load_seconds, launch=launch
                )
            )
            serving = ServingReceipt(server, name, watch.serving_now())
            watch.refuse_failed(_sealed_by(model.content))
        signature, provenance = _signed(model, launch, signing_key, signing_password)
        version, digest = push(
            model.content,
            resolved,
            keep=keep,
            progress=launch.progress,
            trace={name: text for name, text in trace.items() if text},
            warmup=None if validation is None else _warmup_of(validation),
            signature=signature,
            provenance=None if signing_key is None else provenance,
            used=list(_pushed_to(resolved, launch.pushed())),
        )
        bundle = _sealed_by(model.content)
        folder = str(resolved) if isinstance(resolved, Path) else ""
        pushed = PushedModel.new(
            destination=destination, folder=folder, version=version, digest=digest, bundle=bundle or ""
        )
        receipt = {"destination": destination, "digest": digest, "version": version}
        write_durably(pushed.content / "receipt.json", (json.dumps(receipt, indent=1) + "\n").encode())
        (pushed.extra / "provenance.intoto.jsonl").write_bytes(provenance)
        # What is relative means the root's surroundings: whoever stands elsewhere would look in the wrong folder.
        elsewhere = isinstance(resolved, Path) and not _stands_in(launch.base)
        launch.note(f"version {version} at {resolved if elsewhere else destination}")
        if watch is not None:
            serving.after = version
            watch.until_served(serving, destination, bundle)
            pushed.server, pushed.serving = serving.server, serving.to_json()
            launch.note(f"version {version} answers at {server}")
    return pushed


def _signed(
    model: Model, launch: LaunchContext, signing_key: str | None, password: Secret | None
) -> tuple[bytes | None, bytes]:
    """The signature of a bundle, None without a key or of what is no bundle, and where it comes from.

    Raises:
        InputError: The key cannot be used.
    """
    # Late: who only builds a pipeline needs no engine.
    from ..engine.bundles.provenance import provenance_envelope, provenance_statement
    from ..engine.bundles.signing import bundle_signature
    from ..signatures import private_key

    key = None
    if signing_key is not None:
        key = private_key(launch.base / signing_key, None if password is None else password.reveal().encode())
    facts = launch.provenance(model.uri) if model.uri is not None else {}
    statement = provenance_statement(digest_files(paths_below(model.content)), facts)
    signature = None if key is None or _sealed_by(model.content) is None else bundle_signature(model.content, key)
    return signature, provenance_envelope(statement, key)


def _stands_in(folder: Path) -> bool:
    """Whether a folder is the working directory, which may be gone."""
    with contextlib.suppress(OSError):
        return Path.cwd() == folder
    return False


@summarize.register
def _where_it_is_served(pushed: PushedModel) -> str:
    facts = pushed.properties
    where = f"model pushed: version {facts.get('version')} at {facts.get('destination')}/{facts.get('version')}"
    if not facts.get("server"):
        return where
    serving = facts.get("serving") or {}
    shares = [f"{step['share']:g} %" for step in serving.get("steps", ())]
    steps = f" by {', '.join(shares)}" if shares else ""
    return f"{where}; took over at {facts['server']} from version {serving.get('before')}{steps}"
