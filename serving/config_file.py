"""The file of `--config` while the server runs: what it says now is served, unless it is damaged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from ..errors import DrivetrainError, InputError
from .config import ModelConfig, read_models, require_surroundings
from .watched_file import stamp_of

_LOG: Final = logging.getLogger("drivetrain.serving")


class ConfigFile:
    """A file of models that is looked at again and again.

    Args:
        path: The file.
        configs: What it said when the server started.

    Attributes:
        is_served: Whether what it says is what is served; else the log has the reason, and what it said before is.
    """

    def __init__(self, path: Path, configs: Sequence[ModelConfig]) -> None:
        self.is_served = True
        self._path = path
        self._start = {config.name: config for config in configs}
        self._configs = list(configs)
        # Nobody has looked; what is no file, a shell's pipe say, has been read to its end.
        self._stamp: tuple[int, ...] | None = None if stamp_of(path) else ()
        self._problem = ""

    async def watch(self, configure: Callable[[Sequence[ModelConfig]], Awaitable[None]], seconds: float) -> None:
        """Have what the file says served whenever it says something else, for ever.

        One that has changed since the last look may be half written, and lack models without being damaged: it is left
        for the next.

        Args:
            configure: Serves these models, and no others.
            seconds: From one look to the next.
        """
        settled: tuple[int, ...] | None = None
        while True:
            await asyncio.sleep(seconds)
            stamp = await self._stamp_now()
            if stamp == settled:
                await self.look(configure)
            settled = stamp

    async def look(self, configure: Callable[[Sequence[ModelConfig]], Awaitable[None]]) -> None:
        """Have served what the file says, where it has changed; whatever goes wrong is tried again at the next look."""
        try:
            if (stamp := await self._stamp_now()) == self._stamp:
                return
            if not stamp:
                raise InputError(f"{self._path} cannot be read: there is no such file", fix="write it again")
            configs = await asyncio.get_running_loop().run_in_executor(None, self._read)
            if await self._stamp_now() != stamp:
                return  # it was written to meanwhile
            if configs != self._configs:
                await configure(configs)
                _LOG.info("%s was read again: it has %d models", self._path, len(configs))
        except DrivetrainError as error:
            self._refuse(str(error))
        except Exception as error:  # it must go on whatever happens
            self._refuse(f"{type(error).__name__}: {error}")
        else:
            self._stamp, self._configs, self._problem, self.is_served = stamp, configs, "", True

    async def _stamp_now(self) -> tuple[int, ...]:
        return await asyncio.get_running_loop().run_in_executor(None, stamp_of, self._path)

    def _read(self) -> list[ModelConfig]:
        configs = read_models(self._path)
        require_surroundings(configs)
        for config in configs:
            start = self._start.get(config.name) or ModelConfig(config.name, config.base_path)
            for field in ("request_log", "require_signed"):
                if getattr(config, field) != getattr(start, field):
                    raise InputError(
                        f"{self._path} changes {field} of model {config.name!r}, which holds from the start on",
                        fix="restart the server, or leave it as it was",
                    )
        return configs

    def _refuse(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.error("the models stay as they were: %s", problem)
        self._problem, self.is_served = problem, False
