"""`doctor`: whether this machine is fit: Python, extras, devices, plugins, the root, the disk."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from ..errors import DrivetrainError
from ..pipelines.launcher.root import holds_runs
from .exit_codes import CRASH, OK
from .options import ConsoleSettings, shared

if TYPE_CHECKING:
    from rich.console import Console


_LOW: Final = 2 * 1024**3
OPS: Final = "drivetrain.ops"
"""The group by which distributions offer ops to the engine (`engine.custom_ops`)."""
PLUGINS: Final = "jax_plugins"
"""The group of entry points by which PJRT plugins offer devices to JAX."""


@dataclass(frozen=True)
class HealthCheck:
    """One thing that was looked at: "ok", "missing" (something optional), "warning", or "bad" (it will not work)."""

    what: str
    state: Literal["ok", "missing", "warning", "bad"]
    text: str


@click.command(
    epilog="\b\nExit codes:\n  0  fit\n  1  something will not work\n\n\b\nExample:\n  drivetrain doctor\n"
    "  drivetrain doctor --json\n"
)
@shared
def doctor(settings: ConsoleSettings) -> int:
    """Check Python, the platform, installed extras, devices, the root and the disk. Nothing leaves this machine."""
    findings = [*_python(), *_packages(), *_devices(), *_root(settings)]
    bad = any(finding.state == "bad" for finding in findings)
    answer = {"fit": not bad, "findings": [asdict(finding) for finding in findings]}
    settings.answer(answer, lambda console: _show_findings(console, findings))
    return CRASH if bad else OK


def _python() -> Iterator[HealthCheck]:
    yield HealthCheck(
        "drivetrain", "ok", f"{importlib.metadata.version('drivetrain')} in {Path(__file__).resolve().parent.parent}"
    )
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    version = f"{platform.python_version()} at {sys.executable}"
    yield HealthCheck(
        "python", "ok" if fits else "bad", version if fits else f"{version}; drivetrain needs 3.11 to 3.13"
    )
    posix = sys.platform != "win32"
    yield HealthCheck("platform", "ok" if posix else "bad", platform.platform() + ("" if posix else "; use WSL"))


def _packages() -> Iterator[HealthCheck]:
    needed = _needed()
    for name in needed.pop("", []):
        version = _version(name)
        yield HealthCheck(name, "ok" if version else "bad", version or "not installed; reinstall drivetrain")
    for extra, names in needed.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            text = f"without {', '.join(missing)}; pip install 'drivetrain[{extra}]'"
            yield HealthCheck(f"extra {extra}", "missing", text)
        else:
            yield HealthCheck(
                f"extra {extra}", "ok", ", ".join(f"{name} {version}" for name, version in versions.items())
            )


def _needed() -> dict[str, list[str]]:
    """The distributions of each extra, and under "" those that are always needed, as drivetrain was installed."""
    distributions: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("drivetrain") or ():
        name = re.split(r"[\s\[;<>=!~]", line, maxsplit=1)[0]
        extra = re.search(r'extra == "([^"]+)"', line)
        if name != "drivetrain":  # `all` names our own extras
            distributions.setdefault(extra[1] if extra else "", []).append(name)
    return distributions


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[HealthCheck]:
    """JAX, each device, each PJRT plugin and each distribution of ops; nothing where JAX is not installed."""
    if importlib.util.find_spec("jax") is None:
        return
    import jax
    from jax.extend.backend import backends

    window = (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )
    jaxlib = importlib.metadata.version("jaxlib")
    versions = f"{jaxlib} under jax {jax.__version__}; reads exports of calling convention {window[0]} to {window[1]}"
    yield HealthCheck("jaxlib", "ok", versions)
    try:
        default = jax.default_backend()
        platforms = sorted(backends(), key=lambda platform: platform != default)
        jax_devices = [device for platform in platforms for device in jax.devices(platform)]
    except RuntimeError as error:  # a backend was asked for (JAX_PLATFORMS) that is not there
        yield HealthCheck("devices", "bad", str(error).partition("\n")[0])
        jax_devices = []
    for device in jax_devices:
        facts = [str(device.device_kind), _memory(device), "" if device.platform == default else "not the default"]
        yield HealthCheck(f"device {device.platform}:{device.id}", "ok", ", ".join(filter(None, facts)))
    for group, kind in ((PLUGINS, "PJRT plugin"), (OPS, "ops of")):
        for point in sorted(importlib.metadata.entry_points(group=group)):
            by = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
            importable = importlib.util.find_spec(point.module.partition(".")[0]) is not None
            yield HealthCheck(
                f"{kind} {point.name}",
                "ok" if importable else "bad",
                by if importable else f"{by}: its module is missing",
            )


def _memory(device: Any) -> str:  # Any: jax.Device, whose statistics JAX does not type
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return f"{stats.get('bytes_in_use', 0) / 2**30:.1f} of {stats['bytes_limit'] / 2**30:.1f} GiB in use"
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB of the machine"
    return ""


def _root(settings: ConsoleSettings) -> Iterator[HealthCheck]:
    try:
        location = settings.location
    except DrivetrainError as error:
        yield HealthCheck("root", "bad", str(error).replace("\n ", ";"))
        return
    root = location.root
    others = "".join(f"; runs are in {other} too" for other in location.others)
    if location.store or holds_runs(root):
        try:
            with settings.home() as home:
                from ..pipelines import list_runs

                problems = home.store.integrity()
                artifacts = home.store.artifacts()
                whole = {entry.uri for entry in home.payloads.published() if entry.whole}
                gone = [artifact.uri for artifact in artifacts if artifact.uri not in whole]
                runs = len(list_runs(home, 10_000))
                durability = home.store.durability()
            state = f"{root}{f' (by {location.named_by})' if location.named_by else ''}: "
            state += f"{runs} runs, {len(artifacts)} artifacts"
            state += f" in {home.payloads.url}" if home.payloads.url else ""
            if problems or gone:
                state += "".join(f"; {problem}" for problem in problems[:3])
                state += f"; payloads missing: {len(gone)}" if gone else ""
                yield HealthCheck("root", "bad", f"{state}; see `drivetrain fsck`")
            else:
                yield HealthCheck("root", "ok", state + others)
            for fine, text in durability:
                yield HealthCheck("store", "ok" if fine else "warning", text)
        except DrivetrainError as error:
            yield HealthCheck("root", "bad", str(error).replace("\n ", ";"))
    else:
        yield HealthCheck("root", "ok", f"{root} is made by the first run{others}")
    existing = next(folder for folder in (root, *root.parents) if folder.is_dir())
    usage = shutil.disk_usage(existing)
    state = f"{usage.free / 1024**3:,.1f} GiB of {usage.total / 1024**3:,.1f} GiB free at {existing}"
    yield HealthCheck("disk", "ok" if usage.free > _LOW else "bad", state if usage.free > _LOW else f"only {state}")


def _show_findings(console: Console, findings: list[HealthCheck]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    marks = {"ok": "[green]ok[/]", "missing": "[dim]–[/]", "warning": "[yellow]warning[/]", "bad": "[red]bad[/]"}
    for finding in findings:
        table.add_row(marks[finding.state], finding.what, escape(finding.text))
    console.print(table)
