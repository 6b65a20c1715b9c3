"""`audit`: whether the history is as it was written, and its head, to be kept and signed elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ..errors import InputError
from .exit_codes import CRASH, OK
from .options import ConsoleSettings, print_text, shared
from .terminal import terminal
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.audit import AuditHead, AuditReport
    from ..metadata.fsck import FsckReport

_Answer = TypeVar("_Answer")
_FILE = click.Path(path_type=Path, dir_okay=False)
_MEDIA = "application/vnd.drivetrain.audit-head+json"


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain audit verify\n  drivetrain audit export head.json\n"
    "  drivetrain audit sign head.json --key key.pem\n"
    "  drivetrain audit verify --head head.json --public-key pub.pem\n",
)
def audit() -> None:
    """Verify the history against its journal, and export and sign the journal's head."""


@audit.command(
    epilog="\b\nExit codes:\n  0  as it was written\n  1  something was found\n"
    "\n\b\nExample:\n  drivetrain audit verify\n  drivetrain audit verify --head head.json --public-key pub.pem\n"
    "  drivetrain audit verify --payloads --json\n"
)
@click.option(
    "--head", "head_file", type=_FILE, metavar="FILE", help="A head that `audit export` wrote, kept elsewhere."
)
@click.option(
    "--public-key",
    type=_FILE,
    metavar="PEM",
    help="The head must be signed by this key, in FILE.sig: see `audit sign`.",
)
@click.option("--payloads", is_flag=True, help="Check every payload against its digest too, as `fsck` does.")
@shared
def verify(settings: ConsoleSettings, head_file: Path | None, public_key: Path | None, payloads: bool) -> int:
    """Recompute the journal's chain and compare each row with its last entry, naming what was changed past it.

    That its end was cut off, or all of it rewritten, shows only beside a head that was kept elsewhere.
    """
    from ..metadata.audit import verify as check
    from ..metadata.fsck import fsck

    if public_key is not None and head_file is None:
        raise click.UsageError("--public-key needs --head FILE, which it has signed")
    known = None if head_file is None else _read_head(head_file, public_key)
    with settings.home() as home:
        report = _watched(lambda progress: check(home.store, known, progress=progress))
        stored = _watched(lambda progress: fsck(home.store, home.root, progress=progress)) if payloads else None
    answer = report.to_dict() | ({} if stored is None else {"payloads": stored.to_dict()})
    settings.answer(answer, lambda console: _show(console, settings, report, stored))
    return OK if report.sound and (stored is None or stored.clean) else CRASH


@audit.command(epilog="\b\nExample:\n  drivetrain audit head\n  drivetrain audit head --json\n")
@shared
def head(settings: ConsoleSettings) -> int:
    """Print where the journal stands: how many entries it has, and the hash of the last."""
    current = _head(settings)
    settings.answer(asdict(current), lambda console: print_text(console, f"{current.entries} {current.hash}"))
    return OK


@audit.command(epilog="\b\nExample:\n  drivetrain audit export /mnt/elsewhere/head.json\n")
@click.argument("file", type=_FILE)
@click.option("--replace", is_flag=True, help="Replace the head that FILE holds, which then proves nothing any more.")
@shared
def export(settings: ConsoleSettings, file: Path, replace: bool) -> int:
    """Write where the journal stands to FILE, a JSON to be kept where who may write to the store may not.

    A head that was exported before is kept: it shows what was done to the history until now.
    """
    if file.exists() and not replace:
        raise InputError(
            f"{file} is there already",
            fix=f"name another file; or `drivetrain audit verify --head {file}`, and then --replace",
        )
    current = _head(settings)
    _write(file, current.to_json())
    text = f"{file}: {current.entries:,} entries, the last with hash {current.hash}"
    settings.answer({"file": str(file), **asdict(current)}, lambda console: print_text(console, text))
    return OK


@audit.command(epilog="\b\nExample:\n  drivetrain audit sign head.json --key key.pem\n")
@click.argument("file", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="A private key in PEM (P-256).")
@click.option(
    "--password-from", metavar="VARIABLE", help="The environment variable that holds the key's password, if it has one."
)
@shared
def sign(settings: ConsoleSettings, file: Path, key: Path, password_from: str | None) -> int:
    """Sign a head that `audit export` wrote: write FILE.sig beside it, a DSSE envelope that holds the head too."""
    import json

    from ..metadata.audit import AuditHead
    from ..signatures import envelope, private_key

    password = os.environ.get(password_from) if password_from else None
    if password_from and password is None:
        raise InputError(f"the environment variable {password_from} is not set", fix="set it to the key's password")
    data = _read(file)
    AuditHead.from_json(data, file)
    private = private_key(key, None if password is None else password.encode())
    target = _signature(file)
    _write(target, json.dumps(envelope(data, _MEDIA, private)).encode() + b"\n")
    settings.answer({"file": str(file), "signature": str(target)}, lambda console: print_text(console, str(target)))
    return OK


def _head(settings: ConsoleSettings) -> AuditHead:
    from ..metadata.audit import head as current

    with settings.home() as home:
        return current(home.store)


def _watched(work: Callable[[Callable[[int, int | None, str], None]], _Answer]) -> _Answer:
    with terminal(stderr=True).status("reading") as status:
        return work(
            lambda done, total, what: (
                status.update(f"{done:,}{f' of {total:,}' if total else ''} {what}") if done % 1000 == 0 else None
            )
        )


def _read_head(file: Path, public_key: Path | None) -> AuditHead:
    """The head that a file holds; of a key, that its signature beside it holds too.

    Raises:
        InputError: It is no head, not signed, or not by that key.
    """
    from ..metadata.audit import AuditHead

    data = _read(file)
    if public_key is not None:
        import json

        from ..signatures import public_key as read_key
        from ..signatures import signed_payload

        signature, key = _signature(file), read_key(public_key)
        try:
            signed = signed_payload(json.loads(_read(signature)), _MEDIA, key)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{signature} is not a signature of {file} by the key of {public_key} ({error!s:.80})",
                fix="use the public key of who signed it, and the files as they were kept",
            ) from error
        if signed != data:
            raise InputError(f"{file} is not as it was signed", fix="use the files as they were kept")
    return AuditHead.from_json(data, file)


def _signature(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", fix="name a file that is there") from error


def _write(file: Path, data: bytes) -> None:
    from ..digest import write_durably

    try:
        write_durably(file, data)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", fix="name another file") from error


def _show(console: Console, settings: ConsoleSettings, report: AuditReport, stored: FsckReport | None) -> None:
    from rich.markup import escape

    for finding in report.findings:
        console.print(f"[red]{finding.kind}[/]: {escape(finding.text)}", soft_wrap=True)
    if more := report.count - len(report.findings):
        console.print(f"and {more:,} more")
    checked = f"{report.rows:,} rows and {report.entries:,} entries of the journal compared; its head is {report.hash}"
    if report.sound:
        console.print(f"[green]as it was written[/]: {escape(checked)}", soft_wrap=True)
    else:
        print_text(console, checked)
    if stored is None:
        print_text(console, f"payloads: `drivetrain audit verify --payloads{settings.as_options}` compares them too")
    elif stored.clean:
        print_text(console, f"{stored.checked:,} payloads are as their artifacts say")
    else:
        print_text(
            console, f"payloads are not as their artifacts say: `drivetrain fsck{settings.as_options}` names them"
        )
