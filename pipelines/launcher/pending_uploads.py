"""Outputs on their way to a store elsewhere: kept until all are there, so that an upload goes on where it stopped.

They outlive the attempt that made them, in the folder of their cache key. The next attempt at the same work, by a
retry, `drivetrain resume` or a later run, sends what is missing and does not call the component again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...digest import canonical_json, digest_tree, write_durably
from ...errors import DrivetrainError, InputError
from ...metadata import Artifact, Payloads, StagedArtifact, check_uri
from ...progress import Progress
from ...redaction import redacted_json

_MADE: Final = "made.json"
_UNUSED: Final = 7 * 86400.0
"""Seconds after which outputs that nobody went on with are removed, on both sides."""


class PendingUpload(NamedTuple):
    """The outputs of one execution that are not, or not all, in the store yet.

    Attributes:
        folder: Where they are until they are sent, each in a folder named by its key.
        run: The run that made them.
        outputs: By key, as the store will record them.
        extra: By key, the fingerprint of the files beside its content.
        about: What the execution is to record of itself once they are sent: see `attempt`.
    """

    folder: Path
    run: str
    outputs: Mapping[str, StagedArtifact]
    extra: Mapping[str, str]
    about: Mapping[str, Any]

    def send(self, payloads: Payloads, progress: Progress) -> dict[str, list[StagedArtifact]]:
        """Publish what is not published yet; gives what to commit. See `Payloads.publish` for what it raises."""
        os.utime(self.folder)  # its time says that it is still in use: see `clear`
        for key, output in self.outputs.items():
            staged = self.folder / key
            try:
                if staged.is_dir():
                    payloads.publish(staged, output.uri, progress)
            except (FileNotFoundError, InputError):
                # Another process, whose lease ran out, may have sent the same from here meanwhile.
                if staged.is_dir() or not payloads.present(output.uri):
                    raise
        return {key: [output] for key, output in self.outputs.items()}

    def artifacts(self, payloads: Payloads, types: Mapping[str, type[Artifact]]) -> dict[str, Artifact]:
        """The outputs as their component gave them."""
        artifacts = {}
        for key, output in self.outputs.items():
            staged = self.folder / key
            path = staged if staged.is_dir() else payloads.local(output.uri, output.fingerprint)
            artifacts[key] = types[key](path, **output.properties)
        return artifacts


def pack(
    work: Path,
    uid: str,
    run: str,
    outputs: Mapping[str, Artifact],
    uris: Mapping[str, str],
    about: Mapping[str, Any],
) -> PendingUpload:
    """Move staged outputs to the folder of a pending upload, and write beside them what they are.

    Args:
        work: The folder of the cache key.
        uid: Of the execution that made them.
        run: Its run.
        outputs: By key.
        uris: Where each is to be published.
        about: Properties of the execution, as JSON.

    Raises:
        InputError: One is not a payload.
    """
    folder = work / f"outputs-{uid}"
    folder.mkdir(parents=True)
    packed, extra = {}, {}
    for key, artifact in outputs.items():
        content = digest_tree(artifact.content)
        extra[key] = digest_tree(artifact.path / "extra").fingerprint
        properties = redacted_json(artifact.properties)
        packed[key] = StagedArtifact(type(artifact).__name__, uris[key], content.fingerprint, content.size, properties)
    for key, artifact in outputs.items():
        artifact.path.rename(folder / key)
    body = {"run": run, "outputs": {key: asdict(output) for key, output in packed.items()}, "extra": extra}
    body["about"] = about
    write_durably(folder / _MADE, canonical_json(body))
    return PendingUpload(folder, run, packed, extra, about)


def unsent(work: Path, payloads: Payloads, run: str | None = None) -> PendingUpload | None:
    """Outputs in the folder of a cache key that are whole, here or where they were sent; of one run only where named.

    What cannot be used is left to `drop`.
    """
    for path in sorted(work.glob(f"outputs-*/{_MADE}")):
        with suppress(OSError, ValueError, KeyError, TypeError, InputError):
            upload = _read(path)
            if run in (None, upload.run) and all(_whole(upload, payloads, key) for key in upload.outputs):
                return upload
    return None


def clear(payloads: Payloads, known: Callable[[str], object], now: float | None = None) -> None:
    """Remove the pending uploads of a root that nobody went on with for a week, and what was sent of them.

    Args:
        payloads: Of the root.
        known: Whether the store knows a URI.
        now: Seconds since 1970; the clock's where None.
    """
    oldest = (time.time() if now is None else now) - _UNUSED
    for work in payloads.root.glob("work/nodes/*"):
        drop(work, payloads, known, oldest)


def drop(work: Path, payloads: Payloads, known: Callable[[str], object], before: float = inf) -> None:
    """Remove the pending uploads of a cache key from before a time, and what was sent that the store does not know."""
    for folder in work.glob("outputs-*"):
        with suppress(OSError, DrivetrainError):  # another process removes it too; fsck finds what is left
            if folder.stat().st_mtime > before:
                continue
            with suppress(ValueError, KeyError, TypeError):
                for output in _read(folder / _MADE).outputs.values():
                    if not known(output.uri):
                        payloads.remove(output.uri)
            shutil.rmtree(folder)


def _read(path: Path) -> PendingUpload:
    body: dict[str, Any] = json.loads(path.read_bytes())
    outputs = {key: StagedArtifact(**output) for key, output in body["outputs"].items()}
    for key, output in outputs.items():
        check_uri(f"{key}/{output.uri}")
    return PendingUpload(
        path.parent,
        str(body["run"]),
        outputs,
        {key: str(body["extra"][key]) for key in outputs},
        body.get("about", {}),
    )


def _whole(upload: PendingUpload, payloads: Payloads, key: str) -> bool:
    """Whether an output is as it was made: a power loss may have torn its files."""
    output, path = upload.outputs[key], upload.folder / key
    if path.is_dir():
        fingerprints = [digest_tree(path / part).fingerprint for part in ("content", "extra")]
        return fingerprints == [output.fingerprint, upload.extra[key]]
    return payloads.present(output.uri)
