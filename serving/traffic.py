"""Which version answers a request that names none: a sticky split between versions, by percentage."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from ..errors import InputError

_PARTS: Final = 10_000  # a hundredth of a percent


@dataclass(frozen=True)
class TrafficSplit:
    """Shares of a model's requests that go to some of its versions; the rest goes to the newest of the others.

    A key always falls on one point of a line, whatever the server, and the shares are laid on it from 0 on. So a caller
    stays on its side over restarts and workers, and where a share grows nobody leaves it.

    Attributes:
        shares: Version → percentage of the requests, at most 100 together.
        salt: Other salts give other callers to the shares.
    """

    shares: Mapping[int, float]
    salt: str = ""

    def __post_init__(self) -> None:
        for version, share in self.shares.items():
            if not 0 <= share <= 100:
                raise InputError(f"version {version} gets {share!r} percent of the traffic", fix="write 0 to 100")
        if sum(self.shares.values()) > 100:
            raise InputError(f"the shares add up to {sum(self.shares.values()):g} percent", fix="share 100 or less")

    def version_for(self, key: str | None) -> int | None:
        """The version that a caller's requests go to; None: one without a share. Without a key it is drawn."""
        point = secrets.randbelow(_PARTS) if key is None else point_of(self.salt, key)
        end = 0.0
        for version, share in self.shares.items():
            end += share * _PARTS / 100
            if point < end:
                return version
        return None


def point_of(salt: str, key: str) -> int:
    """Where a key falls, from 0 to 9,999: BLAKE2b of salt and key."""
    digest = blake2b(f"{len(salt)}:{salt}{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % _PARTS
