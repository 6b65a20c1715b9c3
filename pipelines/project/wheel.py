"""A project's folder as a wheel, for other machines: its modules, and other files only where the user names them.

The same files give the same bytes, wherever and whenever it is built.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Final

from ...digest import digest
from ...errors import InputError
from .functions import package_name

LARGEST: Final = 10 * 1000**2
"""Bytes of a file, at most."""
_EPOCH: Final = 315532800  # 1980-01-01, the first date that a zip file can hold
_SECRET: Final = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "id_rsa*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".git-credentials", "credentials", "credentials.*",
    "*secret*",
)  # fmt: skip
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_BUILT: Final = ("__pycache__", "build", "dist", "*.egg-info", "*.dist-info")


@dataclass(frozen=True)
class Wheel:
    """A built wheel.

    Attributes:
        name: Its file's name.
        package: The folder in it that is the project.
        data: Its bytes.
        files: The project's files in it, sorted, with their sizes in bytes; paths relative to the project.
        left_out: The files and folders that are not in it, sorted, with the reason.
    """

    name: str
    package: str
    data: bytes
    files: tuple[tuple[str, int], ...]
    left_out: tuple[tuple[str, str], ...]


def build_wheel(
    folder: Path,
    include: Iterable[str] = (),
    largest: int = LARGEST,
    *,
    files: Iterable[str] = (),
    allow: Iterable[str] = (),
) -> Wheel:
    """A wheel of a project.

    In it are all Python modules below the folder, the given files, and those that glob patterns name: the given ones,
    and those of `[tool.drivetrain.package] include` in its pyproject.toml, whose `[project]` table gives name, version
    and dependencies. Without a version it is one of the content. Dates are `SOURCE_DATE_EPOCH`, or 1980-01-01.

    Args:
        folder: The project.
        include: More patterns, relative to the folder.
        largest: Bytes that a file may have.
        files: More files, relative to the folder, e.g. those that its pipeline names.
        allow: Patterns of files that hold no secret, whatever their names say; `allow` of the same table, too.

    Raises:
        InputError: There is no pipeline.py; a pattern matches nothing, or leads out of the folder; a file that is to be
            in it may hold a secret, is a link, is too large or cannot be read.
    """
    folder = folder.resolve()
    if not (folder / "pipeline.py").is_file():
        raise InputError(f"{folder} holds no pipeline.py", fix="name the folder of a pipeline, e.g. examples/flights")
    pyproject = _pyproject(folder)
    table = _table(pyproject, folder)
    patterns = [*table["include"], *include]
    harmless = [*table["allow"], *allow]
    there, left_out = _walk(folder)
    named = {*files, *(path for pattern in patterns for path in _matches(folder, pattern))}
    content: dict[str, bytes] = {}
    for path in sorted({*there, *named}):
        if path in named or path.endswith(".py"):
            content[path] = _read(folder / path, path, largest, harmless)
        else:
            left_out[path] = _reason(path)
    package = package_name(folder)
    name, version = _named(pyproject, package, content)
    archived = {f"{package}/{path}": data for path, data in content.items()}
    stem = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}"
    return Wheel(
        f"{stem}-py3-none-any.whl",
        package,
        _zipped(archived, stem, _metadata(pyproject, name, version)),
        tuple((path, len(data)) for path, data in content.items()),
        tuple(sorted((path, reason) for path, reason in left_out.items() if path not in content)),
    )


def module_files(folder: Path) -> list[str]:
    """The paths of a project's modules below its folder, as a wheel has them."""
    return [path for path in _walk(folder)[0] if path.endswith(".py")]


def _pyproject(folder: Path) -> Mapping[str, Any]:
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="correct it") from None


def _table(pyproject: Mapping[str, Any], folder: Path) -> dict[str, list[str]]:
    """`include` and `allow` of [tool.drivetrain.package]."""
    table = pyproject.get("tool", {}).get("drivetrain", {}).get("package", {})
    known: dict[str, list[str]] = {"include": [], "allow": []}
    for name, value in dict(table).items():
        if name not in known or not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InputError(
                f"{folder / 'pyproject.toml'}: [tool.drivetrain.package] has {name} = {value!r}",
                fix='write include = ["schema.yaml", "sql/*.sql"], allow = ["secretary.csv"], and nothing else',
            )
        known[name] = value
    return known


def _walk(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The plain files below a folder; and what is left out, with the reason."""
    files: list[str] = []
    left_out: dict[str, str] = {}
    for here, folders, names in os.walk(folder):
        inside = Path(here).relative_to(folder)
        for name in list(folders):
            path, relative = Path(here, name), (inside / name).as_posix()
            reason = "a link" if path.is_symlink() else "hidden" if name.startswith(".") else ""
            if not reason and any(fnmatchcase(name, built) for built in _BUILT):
                reason = "made by tools"
            if not reason and (path / "pyvenv.cfg").exists():
                reason = "a virtual environment"
            if reason:
                folders.remove(name)
                left_out[f"{relative}/"] = reason
        for name in names:
            relative = (inside / name).as_posix()
            if Path(here, name).is_symlink():
                left_out[relative] = "a link"
            elif Path(here, name).is_file():
                files.append(relative)
    return files, {path: reason for path, reason in left_out.items() if not path.endswith("__pycache__/")}


def _matches(folder: Path, pattern: str) -> Iterator[str]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise InputError(f"the pattern {pattern!r} leads out of the project", fix="name files below its folder")
    matches = [path for path in folder.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]
    if not matches:
        raise InputError(f"no file of {folder} matches {pattern!r}", fix="correct the pattern, or remove it")
    for path in matches:
        if not path.resolve().is_relative_to(folder):
            raise InputError(f"{path} leads out of the project", fix="put the file itself there")
        yield path.relative_to(folder).as_posix()


def _read(path: Path, relative: str, largest: int, harmless: Iterable[str]) -> bytes:
    if path.is_symlink():
        raise InputError(f"{relative} is a link", fix="put the file itself there")
    if _secret(relative) and not any(fnmatchcase(relative, pattern) for pattern in harmless):
        raise InputError(
            f"{relative} may hold a secret, by its name",
            fix=f"leave it out, and name the secret: dt.secret(...); if it holds none, say --allow {relative}",
        )
    try:
        size = path.stat().st_size
        if size > largest:
            raise InputError(
                f"{relative} has {size / 1e6:.3g} MB, and a file may have {largest / 1e6:.3g}",
                fix="leave data where every machine can reach it, or raise --max-size",
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}", fix="make it readable") from None
    if _PRIVATE_KEY.search(data):
        raise InputError(f"{relative} holds a private key", fix="remove it, and name it as a secret: dt.secret(...)")
    return data


def _secret(relative: str) -> bool:
    name = Path(relative).name.lower()
    return not name.endswith(".py") and any(fnmatchcase(name, pattern) for pattern in _SECRET)


def _reason(relative: str) -> str:
    return "may hold a secret" if _secret(relative) else "not named by include"


def _named(pyproject: Mapping[str, Any], package: str, content: Mapping[str, bytes]) -> tuple[str, str]:
    """The distribution's name and version."""
    project = pyproject.get("project", {})
    name, version = project.get("name", package), project.get("version")
    if version is None:
        parts = [[path, hashlib.sha256(data).hexdigest()] for path, data in content.items()]
        version = f"0+{digest('drivetrain-wheel-v1', parts)[:12]}"
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", str(name)):
        raise InputError(f"{name!r} is not a valid name of a distribution", fix="give another in pyproject.toml")
    if not re.fullmatch(r"\d[0-9A-Za-z.!+]*", str(version)):
        raise InputError(f"{version!r} is not a valid version", fix="give another in pyproject.toml")
    return str(name), str(version)


def _metadata(pyproject: Mapping[str, Any], name: str, version: str) -> str:
    project = pyproject.get("project", {})
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Summary: {project['description']}".splitlines()[0]] if project.get("description") else []
    lines += [f"Requires-Python: {project['requires-python']}"] if project.get("requires-python") else []
    wanted = list(project.get("dependencies", []))
    if not any(re.match(r"drivetrain\b(?!-)", each) for each in wanted):
        wanted.append(f"drivetrain>={installed('drivetrain')}")
    return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in wanted)]) + "\n"


def _zipped(files: Mapping[str, bytes], stem: str, metadata: str) -> bytes:
    """The archive, not compressed: what a compressor writes depends on its release, and equal files must stay equal."""
    info = f"{stem}.dist-info"
    tag = "Wheel-Version: 1.0\nGenerator: drivetrain\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": tag.encode()}
    record = "".join(f"{_field(name)},{_hash(data)},{len(data)}\n" for name, data in whole.items())
    whole[f"{info}/RECORD"] = f"{record}{_field(f'{info}/RECORD')},,\n".encode()
    date = time.gmtime(max(_EPOCH, _source_date()))[:6]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in whole.items():
            entry = zipfile.ZipInfo(name, date)
            # The rights of a plain file, and Unix as the system, whatever this machine has: both stand in the bytes.
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return target.getvalue()


def _source_date() -> int:
    seconds = os.environ.get("SOURCE_DATE_EPOCH", str(_EPOCH))
    if not seconds.isdecimal():
        raise InputError(f"SOURCE_DATE_EPOCH is {seconds!r}", fix="give seconds since 1970")
    return int(seconds)


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _field(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"\n') else name
