"""The file of `--config`, and registered models, while the server runs: what they say now is served, unless damaged."""

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
    """A file of models that is looked at again and again, and the registered models in it.

    Args:
        path: The file; None: there is none, and the models are these.
        configs: What it said when the server started.
        resolve: Gives what is served of a configuration now, where that is a registered model's.

    Attributes:
        configs: What is served.
        is_served: Whether what it says is what is served; else the log has the reason, and what it said before is.
    """

    def __init__(
        self,
        path: Path | None,
        configs: Sequence[ModelConfig],
        resolve: Callable[[ModelConfig], ModelConfig] = lambda config: config,
    ) -> None:
        self.is_served = True
        self.configs = [resolve(config) for config in configs]
        self._path = path
        self._resolve = resolve
        self._start = {config.name: config for config in configs}
        self._said = list(configs)
        # Nobody has looked; what is no file, a shell's pipe say, has been read to its end.
        self._stamp: tuple[int, ...] | None = None if self._stamp_of() else ()
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
            stamp, follows = await self._stamp_now(), any(each.registered is not None for each in self._said)
            if stamp == self._stamp and not follows:
                return
            if not stamp and stamp != self._stamp:
                raise InputError(f"{self._path} cannot be read: there is no such file", fix="write it again")
            said, configs = await asyncio.get_running_loop().run_in_executor(None, self._read, stamp != self._stamp)
            if await self._stamp_now() != stamp:
                return  # it was written to meanwhile
            if configs != self.configs:
                await configure(configs)
                if stamp != self._stamp and self._path is not None:
                    _LOG.info("%s was read again: it has %d models", self._path, len(configs))
        except DrivetrainError as error:
            self._refuse(str(error))
        except Exception as error:  # it must go on whatever happens
            self._refuse(f"{type(error).__name__}: {error}")
        else:
            self._stamp, self._said, self.configs, self._problem, self.is_served = stamp, said, configs, "", True

    async def _stamp_now(self) -> tuple[int, ...]:
        return await asyncio.get_running_loop().run_in_executor(None, self._stamp_of)

    def _stamp_of(self) -> tuple[int, ...]:
        return (0,) if self._path is None else stamp_of(self._path)

    def _read(self, changed: bool) -> tuple[list[ModelConfig], list[ModelConfig]]:
        """What the file says, and what of it is served now."""
        if self._path is None or not changed:
            return self._said, [self._resolve(config) for config in self._said]
        said = read_models(self._path)
        require_surroundings(said)
        for config in said:
            start = self._start.get(config.name) or ModelConfig(config.name, config.base_path)
            for field in ("request_log", "require_signed"):
                if getattr(config, field) != getattr(start, field):
                    raise InputError(
                        f"{self._path} changes {field} of model {config.name!r}, which holds from the start on",
                        fix="restart the server, or leave it as it was",
                    )
        return said, [self._resolve(config) for config in said]

    def _refuse(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.error("the models stay as they were: %s", problem)
        self._problem, self.is_served = problem, False
