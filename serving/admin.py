"""Shares of a model's traffic, changed by request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias

from ..errors import InputError
from .api import ModelRef, RequestError, StatusCode, VersionState
from .config import ModelConfig
from .json_values import kind, object_of
from .manager import ModelManager
from .traffic import TrafficSplit

Json: TypeAlias = dict[str, Any]  # Any: JSON

_DIGITS: Final = 19  # of a number that no version has


async def change_traffic(models: ModelManager, name: str, body: bytes) -> None:
    """Give versions the shares of a body, `{"shares": {"3": 10}}`, and return when they can be asked.

    It lasts until the server ends, or is configured anew.

    Raises:
        RequestError: INVALID_ARGUMENT: they are no shares, or the model's rollout decides on them. NOT_FOUND: there is
            no such model, or a version with a share cannot be asked; the split is as it was.
    """
    before = models.config(name)
    if before.rollout is not None:
        message = f"the rollout of model {name!r} decides on its traffic"
        raise RequestError(StatusCode.INVALID_ARGUMENT, message, fix="hold, advance or abort the rollout")
    shares = _shares(object_of(body))
    try:
        traffic = replace(before.traffic or TrafficSplit({}), shares=shares) if shares else None
    except InputError as error:
        raise RequestError(StatusCode.INVALID_ARGUMENT, error.message, fix=error.fix) from error
    await _configure(models, replace(before, traffic=traffic))
    states = {each.version: each.state for each in models.statuses(ModelRef(name))}
    for version, share in shares.items():
        if share and states.get(version) is not VersionState.AVAILABLE:
            await _configure(models, before)
            raise RequestError(
                StatusCode.NOT_FOUND,
                f"model {name!r} has no version {version} that can be asked",
                fix=f"give a share to one of {', '.join(map(str, sorted(states))) or 'none'}",
            )


async def _configure(models: ModelManager, changed: ModelConfig) -> None:
    configs = [changed if each.name == changed.name else each for each in models.configs()]
    await models.configure(configs)


def _shares(request: Json) -> dict[int, float]:
    for key in request:
        if key != "shares":
            raise RequestError(
                StatusCode.INVALID_ARGUMENT, f"{key!r:.80} is not known", fix='send {"shares": {"3": 10}}'
            )
    shares = request.get("shares")
    if not isinstance(shares, dict):
        raise RequestError(StatusCode.INVALID_ARGUMENT, f"'shares' is {kind(shares)}", fix='send {"shares": {"3": 10}}')
    for version, share in shares.items():
        if not (version.isascii() and version.isdecimal() and len(version) < _DIGITS):
            raise RequestError(StatusCode.INVALID_ARGUMENT, f"{version!r:.80} is not a version", fix="write its number")
        if isinstance(share, bool) or not isinstance(share, int | float):
            message = f"the share of version {version} is {kind(share)}"
            raise RequestError(StatusCode.INVALID_ARGUMENT, message, fix="send 0 to 100")
    return {int(version): share for version, share in shares.items()}
