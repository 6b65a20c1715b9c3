"""What a user of a shared store may do: five roles, the same for a database's users and for the server's API keys."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Role: TypeAlias = Literal["reader", "writer", "approver", "gc", "admin"]
"""Reads everything; records runs too; gives verdicts and moves aliases too; removes payloads too; all of it."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)


def allows(role: Role, needed: Role) -> bool:
    """Whether a role may do what another is needed for: each may read, and an admin may do everything."""
    return role in (needed, "admin") or needed == "reader"
