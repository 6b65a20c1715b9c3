"""What a user of a shared store may do: five roles, the same for a database's users and for the server's API keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

Role: TypeAlias = Literal["reader", "writer", "approver", "gc", "admin"]
"""Reads everything; records runs too; gives verdicts and moves aliases too; removes payloads too; all of it."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)

REGISTRY_LOG: Final = "registry of "
"""How the type of a context begins that is an entry of a registered model's log."""


def allows(role: Role, needed: Role) -> bool:
    """Whether a role may do what another is needed for: each may read, and an admin may do everything."""
    return role in (needed, "admin") or needed == "reader"


def role_for_context(type: str, properties: Mapping[str, object] | None = None) -> Role:  # noqa: A002
    """The role that may record a context of a type; the same as the policies of `namespace.sql`.

    What people decide and what a registered model's aliases, approvals and rules are is an approver's; that there is
    a model and what its versions are, a writer's too.
    """
    if type.startswith(REGISTRY_LOG):
        return "writer" if (properties or {}).get("kind") in ("version", "words") else "approver"
    return "gc" if type in ("garbage_collection", "repair") else "approver" if type == "decision" else "writer"


def role_for_artifact(state: str | None, properties: Mapping[str, object] | None) -> Role:
    """The role that may change an artifact: to another state, or its pin or mark, gc; what people say of it, approver.

    The same as the trigger of `namespace.sql`.
    """
    return "gc" if state is not None or {"pinned", "collected"} & (properties or {}).keys() else "approver"
