"""Registered models as a server follows them: each is the version that its reference stands for now.

A moved alias is to the server what an edited file is: the version is loaded, tried and switched to, and the one before
answers until then, forward and back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ..errors import DrivetrainError, InputError
from ..metadata import ArtifactRecord
from ..metadata.registry import Registry
from .config import ModelConfig

_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass
class RegisteredModels:
    """What configurations of registered models come to.

    Attributes:
        registry: Where they are registered.
        fetch: Gives the folder of an artifact's content on this machine.
        folder: Where links to the versions are: a folder for each model.
    """

    registry: Registry
    fetch: Callable[[ArtifactRecord], Path]
    folder: Path
    _served: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)

    def resolved(self, config: ModelConfig) -> ModelConfig:
        """A configuration with the version that its reference stands for now; of any other model it stays as it is.

        What goes wrong once there was one is logged, once, and the version stays.

        Raises:
            DrivetrainError: There is none, it cannot be fetched, or the store does not answer.
        """
        if (reference := config.registered) is None:
            return config
        served = self._served.get(config.name)
        known = served[1] if served is not None and served[0] == reference else None
        try:
            number = self._look(config.name, reference, known)
        except (DrivetrainError, OSError) as error:
            if known is None:
                raise
            if (problem := str(error)) != self._problems.get(config.name):
                _LOG.error("%s is served as it was: %s", reference, problem)
            self._problems[config.name] = problem
            number = known
        else:
            self._problems.pop(config.name, None)
            self._served[config.name] = reference, number
        versions = self.folder / config.name
        return replace(config, base_path=str(versions), policy="specific", versions=(number,))

    def _look(self, name: str, reference: str, known: int | None) -> int:
        version = self.registry.resolve(reference)
        if version.number == known:
            return known
        record = self.registry.artifact(version)
        if record.external is not None:
            raise InputError(
                f"{version} lies at {record.external}", fix=f"serve that: `drivetrain serve {record.external}`"
            )
        link = self.folder / name / str(version.number)
        link.parent.mkdir(parents=True, exist_ok=True)
        content = self.fetch(record)
        link.unlink(missing_ok=True)  # another model's, which had the name before
        link.symlink_to(content, target_is_directory=True)
        _LOG.info("%s is version %d", reference, version.number)
        return version.number
