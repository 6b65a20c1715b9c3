"""A registered model as a server follows it: the version that its alias stands for now, as the file of `--config`.

The server itself only watches a file and a folder, as for models that are pushed; so a moved alias is what an edited
file is: the version is loaded, tried and switched to, and the one before answers until then, forward and back.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..digest import write_durably
from ..errors import DrivetrainError, InputError
from ..metadata import ArtifactRecord
from ..metadata.registry import ModelVersion, Registry, split_reference

PREFIX: Final = "registered:"
"""What the address of a registered model begins with: "registered:flights@champion"."""
_LOG: Final = logging.getLogger("drivetrain.serving")


class AliasFollower:
    """Keeps a file of models at the version that a reference stands for.

    Args:
        registry: Where the model is registered.
        reference: "flights@champion", "flights@3", or "flights": the newest version.
        fetch: Gives the folder of an artifact's content on this machine.
        folder: Where the file and links to the versions are.
        settings: What the file says of the model beside its versions, e.g. its `request_log`.

    Attributes:
        config: The file.
        name: What requests call the model.

    Raises:
        InputError: It names nothing that could be registered.
    """

    def __init__(
        self,
        registry: Registry,
        reference: str,
        fetch: Callable[[ArtifactRecord], Path],
        folder: Path,
        settings: Mapping[str, Any],
        name: str | None = None,
    ) -> None:
        self.name = name or split_reference(reference)[0]
        self.config = folder / "models.yaml"
        self._registry = registry
        self._reference = reference
        self._fetch = fetch
        self._versions = folder / "versions"
        self._settings = settings
        self._number = 0
        self._problem = ""

    def look(self) -> ModelVersion:
        """Have the file name the version that the reference stands for now.

        Raises:
            DrivetrainError: There is none, it cannot be fetched, or the store does not answer.
        """
        version = self._registry.resolve(self._reference)
        if version.number == self._number:
            return version
        record = self._registry.artifact(version)
        if record.external is not None:
            raise InputError(
                f"{version} lies at {record.external}", fix=f"serve that: `drivetrain serve {record.external}`"
            )
        link = self._versions / str(version.number)
        self._versions.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(self._fetch(record), target_is_directory=True)
        model = {"base_path": str(self._versions), "versions": [version.number], **self._settings}
        write_durably(self.config, json.dumps({"models": {self.name: model}}).encode())  # JSON is YAML
        _LOG.info("%s is version %d", self._reference, version.number)
        self._number = version.number
        return version

    def follow(self, seconds: float, ended: threading.Event) -> None:
        """Look every so many seconds until it is ended; what goes wrong is logged once, and the version stays."""
        while not ended.wait(seconds):
            try:
                self.look()
                self._problem = ""
            except (DrivetrainError, OSError) as error:
                problem = str(error)
                if problem != self._problem:
                    _LOG.error("%s is served as it was: %s", self._reference, problem)
                self._problem = problem
