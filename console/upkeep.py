"""`fsck` and `doctor`: whether what is stored is whole, and whether this machine is fit."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from ..errors import DrivetrainError
from .devices import devices
from .settings import CRASH, OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata import FsckReport

_LOW: Final = 2 * 1024**3


@click.command(
    epilog="\b\nExit codes:\n  0  clean, or repaired\n  1  something was found\n"
    "\n\b\nExample:\n  drivetrain fsck\n  drivetrain fsck --repair\n"
)
@click.option("--repair", is_flag=True, help="Put in order what was found; the next run makes lost artifacts anew.")
@shared
def fsck(settings: Settings, repair: bool) -> int:
    """Check every payload against its digest, and look for what crashes left behind.

    Safe while pipelines run.
    """
    from ..metadata import fsck as check
    from ..pipelines.kubeflow.records import sync_all

    with settings.home() as home:
        report = check(home.store, home.root, repair, take_in=lambda: sync_all(home))
        settings.answer(report.to_dict(), lambda console: _show_report(console, report))
    return OK if report.clean or (report.repaired and not report.database) else CRASH


def _show_report(console: Console, report: FsckReport) -> None:
    from rich.markup import escape

    found: dict[str, list[str]] = {
        "the database is damaged": list(report.database),
        "payload missing": list(report.missing),
        "payload changed": [f"{uri}: {problem}" for uri, problem in report.corrupt],
        "payload that no artifact names": list(report.orphans),
        "left in staging": list(report.staging),
        "claim of a dead process": list(report.claims),
        "execution of a dead process": [str(number) for number in report.executions],
    }
    for what, items in found.items():
        for item in items:
            console.print(f"[red]{what}[/]: {escape(item)}", soft_wrap=True)
    checked = f"{report.checked} payloads checked" + (f", {report.external} external" if report.external else "")
    if report.clean:
        console.print(f"[green]clean[/]: {checked}")
    elif report.repaired:
        console.print(f"{checked}; put in order" + (", but for the database" if report.database else ""))
    else:
        console.print(f"{checked}; `drivetrain fsck --repair` puts this in order", markup=False)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: "ok", "missing" (something optional), or "bad" (something will not work)."""

    what: str
    state: Literal["ok", "missing", "bad"]
    text: str


@click.command(
    epilog="\b\nExit codes:\n  0  fit\n  1  something will not work\n\n\b\nExample:\n  drivetrain doctor\n"
    "  drivetrain doctor --json\n"
)
@shared
def doctor(settings: Settings) -> int:
    """Look at Python, the platform, installed extras, devices, the root and the disk. Nothing leaves this machine."""
    findings = [*_python(), *_packages(), *_devices(), *_root(settings)]
    bad = any(finding.state == "bad" for finding in findings)
    answer = {"fit": not bad, "findings": [asdict(finding) for finding in findings]}
    settings.answer(answer, lambda console: _show_findings(console, findings))
    return CRASH if bad else OK


def _python() -> Iterator[Finding]:
    yield Finding("drivetrain", "ok", f"{importlib.metadata.version('drivetrain')} in {Path(__file__).parent.parent}")
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    said = f"{platform.python_version()} at {sys.executable}"
    yield Finding("python", "ok" if fits else "bad", said if fits else f"{said}; drivetrain needs 3.11 to 3.13")
    posix = sys.platform != "win32"
    yield Finding("platform", "ok" if posix else "bad", platform.platform() + ("" if posix else "; use WSL"))


def _packages() -> Iterator[Finding]:
    needed = _needed()
    for name in needed.pop("", []):
        version = _version(name)
        yield Finding(name, "ok" if version else "bad", version or "not installed; reinstall drivetrain")
    for extra, names in needed.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            text = f"without {', '.join(missing)}; pip install 'drivetrain[{extra}]'"
            yield Finding(f"extra {extra}", "missing", text)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _needed() -> dict[str, list[str]]:
    """The distributions of each extra, and under "" those that are always needed, as drivetrain was installed."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("drivetrain") or ():
        name = re.split(r"[\s\[;<>=!~]", line, maxsplit=1)[0]
        extra = re.search(r'extra == "([^"]+)"', line)
        if name != "drivetrain":  # `all` names our own extras
            found.setdefault(extra[1] if extra else "", []).append(name)
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[Finding]:
    for what, state, text in devices():
        yield Finding(what, state, text)


def _root(settings: Settings) -> Iterator[Finding]:
    place = settings.root.absolute()
    if place.is_dir():
        try:
            with settings.home() as home:
                from ..pipelines import list_runs

                problems = home.store.integrity()
                artifacts = home.store.artifacts()
                whole = {lying.uri for lying in home.payloads.published() if lying.whole}
                gone = [artifact.uri for artifact in artifacts if artifact.uri not in whole]
                runs = len(list_runs(home, 10_000))
            said = f"{place}: {runs} runs, {len(artifacts)} artifacts"
            said += f" in {home.payloads.url}" if home.payloads.url else ""
            if problems or gone:
                said += "".join(f"; {problem}" for problem in problems[:3])
                said += f"; payloads missing: {len(gone)}" if gone else ""
                yield Finding("root", "bad", f"{said}; see `drivetrain fsck`")
            else:
                yield Finding("root", "ok", said)
        except DrivetrainError as error:
            yield Finding("root", "bad", str(error).replace("\n ", ";"))
    else:
        yield Finding("root", "ok", f"{place} is made by the first run")
    there = next(folder for folder in (place, *place.parents) if folder.is_dir())
    usage = shutil.disk_usage(there)
    said = f"{usage.free / 1024**3:,.1f} GiB of {usage.total / 1024**3:,.1f} GiB free at {there}"
    yield Finding("disk", "ok" if usage.free > _LOW else "bad", said if usage.free > _LOW else f"only {said}")


def _show_findings(console: Console, findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    marks = {"ok": "[green]ok[/]", "missing": "[dim]–[/]", "bad": "[red]bad[/]"}
    for finding in findings:
        table.add_row(marks[finding.state], finding.what, escape(finding.text))
    console.print(table)
