"""What a pipeline's image is built from: a Dockerfile, pinned versions and the project; the same bytes twice.

`kubeflow.yaml` is not in it: it holds the image's own digest, and facts of a cluster that change without the pipeline.
Of these the scheme of `artifacts` counts, by whose package pods reach their payloads.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from ...addresses import SCHEMES
from ...digest import write_durably
from ...errors import InputError
from ..project.wheel import Wheel

EPOCH = 315532800
"""1980-01-01 in seconds since 1970: the date of every file, as in our wheels."""
EXTRAS = ("cloud", "engine", "kubeflow", "postgres")
"""What pods usually need: payloads behind a URL, jax, the command of pods, a shared store."""
STORAGE = {name: scheme.package for name, scheme in SCHEMES.items() if scheme.package is not None}
"""The package by which a pod reaches the payloads, by the scheme of their URL."""
_OURS = "drivetrain"
_USER = 65532

_DOCKERFILE = """\
# The image of the pipeline {name}, written by `drivetrain kubeflow image`. Give BASE by its digest: a tag moves.
ARG BASE={base}

FROM ${{BASE}} AS build
ARG SOURCE_DATE_EPOCH={epoch}
ENV SOURCE_DATE_EPOCH=${{SOURCE_DATE_EPOCH}} PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
COPY constraints.txt requirements.txt /build/
{wheels}RUN /opt/venv/bin/pip install --no-cache-dir \\
    --constraint /build/constraints.txt --requirement /build/requirements.txt

FROM ${{BASE}}
LABEL org.opencontainers.image.title="{name}" drivetrain.pipeline="{digest}"
COPY --from=build /opt/venv /opt/venv
COPY project/ {project}/
ENV PATH=/opt/venv/bin:${{PATH}} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app
USER {user}:{user}
CMD ["python", "-m", "drivetrain.pipelines.kubeflow.pod", "--help"]
"""


@dataclass(frozen=True)
class BuildContext:
    """A build context.

    Attributes:
        files: Path -> bytes.
        tag: What the image may be called: the pipeline's name and the beginning of its digest.
    """

    files: Mapping[str, bytes]
    tag: str

    def tar(self) -> bytes:
        """The context as a tar file: sorted, without times or owners, so the same files give the same bytes."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in sorted(self.files):
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.mode = len(self.files[name]), EPOCH, 0o644
                archive.addfile(info, io.BytesIO(self.files[name]))
        return out.getvalue()

    def write(self, folder: Path) -> None:
        """Write the context below a folder, all with the same date; files of an earlier context are removed.

        Raises:
            InputError: Something is in the folder that was not written so, or it cannot be written.
        """
        try:
            existing = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
            ours = "Dockerfile" in existing and _written_by_us(existing["Dockerfile"])
            old = {name: path for name, path in existing.items() if not (ours and name in self.files)}
            # What somebody put beside a Dockerfile of ours, or copied one to, has a date of its own.
            others = sorted(name for name, path in old.items() if not ours or path.lstat().st_mtime != EPOCH)
            if others:
                raise InputError(
                    f"{folder} holds {others[0]}, which was not written here for an image",
                    fix="name a folder that does not exist yet",
                )
            for path in old.values():
                path.unlink()
            for name, data in self.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_durably(path, data)
                path.chmod(0o644)
                os.utime(path, (EPOCH, EPOCH))
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}", fix="name another folder") from None


def context(
    wheel: Wheel,
    digest: str,
    *,
    name: str,
    project: str = "",
    base: str = "",
    drivetrain: Path | None = None,
    extras: Iterable[str] = EXTRAS,
    artifacts: str = "",
) -> BuildContext:
    """The build context of a project's image.

    Args:
        wheel: The project; the caller checked that it builds the pipeline by itself.
        digest: The pipeline's.
        name: The pipeline's.
        project: The project's folder in the image; `/app/` and its name where empty.
        base: The image to start from, by its digest; the slim one of this Python by its tag where empty.
        drivetrain: A wheel of drivetrain, where it does not come from an index.
        extras: The extras of drivetrain to install.
        artifacts: Where the pods' payloads lie.

    Raises:
        InputError: drivetrain is installed from a checkout and no wheel is given, or a name is not one for an image.
    """
    project = project or f"/app/{wheel.package}"
    if Path(project).name != wheel.package or not re.fullmatch(r"/[\w./-]+", project):
        raise InputError(
            f"the project would be in {project}, and is imported by the name of its folder, {wheel.package}",
            fix=f"write project: /app/{wheel.package} in kubeflow.yaml, or leave it out",
        )
    if base and not re.fullmatch(r"[\w./:-]+(@sha256:[0-9a-f]{64})?", base):
        raise InputError(f"{base!r} names no image", fix="give e.g. python:3.11-slim@sha256:… of 64 hex digits")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = f"{_OURS}[{','.join(sorted(extras))}]"
    files: dict[str, bytes] = {}
    if drivetrain is not None:
        file_name = _wheel_name(drivetrain)
        files[f"wheels/{file_name}"] = drivetrain.read_bytes()
        wanted += f" @ file:///build/wheels/{file_name}"
    else:
        wanted += f"=={_released(distribution(_OURS))}"
    modules, requirements = _project(wheel)
    if (package := STORAGE.get(artifacts.partition("://")[0])) is not None:
        requirements.append(package)
    files |= modules
    files["requirements.txt"] = "".join(f"{each}\n" for each in [wanted, *requirements]).encode()
    files["constraints.txt"] = "".join(f"{each}\n" for each in _constraints()).encode()
    files["Dockerfile"] = _DOCKERFILE.format(
        name=name,
        base=base or f"docker.io/library/python:{version}-slim",
        epoch=EPOCH,
        wheels="COPY wheels/ /build/wheels/\n" if drivetrain is not None else "",
        digest=digest,
        project=project,
        user=_USER,
    ).encode()
    tag = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "pipeline"
    return BuildContext(files, f"{tag}:{digest[:12]}")


def commands(tag: str, folder: Path) -> tuple[str, str]:
    """The podman and docker commands with which a second build gives the same image."""
    to = f"--output type=image,name={tag},rewrite-timestamp=true"
    docker = f"docker buildx build --build-arg SOURCE_DATE_EPOCH={EPOCH} {to} {folder}"
    return f"podman build --timestamp {EPOCH} -t {tag} {folder}", docker


def _project(wheel: Wheel) -> tuple[dict[str, bytes], list[str]]:
    """The project's files, and the requirements of its pyproject.toml without drivetrain."""
    files: dict[str, bytes] = {}
    requirements: list[str] = []
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        for name in archive.namelist():
            if name.startswith(f"{wheel.package}/"):
                files[f"project/{name.removeprefix(f'{wheel.package}/')}"] = archive.read(name)
            elif name.endswith(".dist-info/METADATA"):
                lines = archive.read(name).decode().splitlines()
                requirements = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    mine = re.compile(rf"{_OURS}\b(?![-_.])", re.IGNORECASE)
    return files, [each for each in requirements if not mine.match(each)]


def _constraints() -> list[str]:
    """The versions that are installed here: the pipeline was tried with them, and cache keys hold them."""
    pinned: dict[str, str] = {}
    for each in distributions():
        text = each.read_text("METADATA") or each.read_text("PKG-INFO") or ""
        # By their lines: `each.metadata` and `each.version` would each parse the whole text as an e-mail.
        header = text.partition("\n\n")[0]
        fields = dict(re.findall(r"(?m)^(Name|Version):[ \t]*(\S+)", header))
        name = re.sub(r"[-_.]+", "-", fields.get("Name", "")).lower()
        if name and name != _OURS and each.read_text("direct_url.json") is None:
            pinned.setdefault(name, f"{name}=={fields['Version']}")
    return [pinned[name] for name in sorted(pinned)]


def _released(distribution: Distribution) -> str:
    """The version of drivetrain, if it can come from an index."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin or "dev" in distribution.version:
        raise InputError(
            f"drivetrain {distribution.version} is installed from {origin.get('url', 'a checkout')}, "
            "which no image can reach",
            fix="give its wheel with --wheel: `python -m build --wheel` in the checkout makes one in dist/",
        )
    return distribution.version


def _wheel_name(wheel: Path) -> str:
    if not wheel.is_file() or not re.fullmatch(rf"{_OURS}-[\w.+]+-py3-none-any\.whl", wheel.name):
        raise InputError(f"{wheel} is not a wheel of drivetrain", fix="give dist/drivetrain-…-py3-none-any.whl")
    return wheel.name


def _written_by_us(dockerfile: Path) -> bool:
    return "written by `drivetrain kubeflow image`" in dockerfile.read_text(encoding="utf-8", errors="replace")
