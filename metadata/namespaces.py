"""Namespaces: a PostgreSQL schema for each project or person, with five roles that the database itself holds users to.

A role is a group, `database.namespace.role`, to which the database's users are granted; what it may do is in
`migrations/postgres/namespace.sql`. Whoever takes a client's password gets what that user's role may do, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import InputError
from .database import Database, Transaction
from .dialect import parse
from .errors import StoreUnavailable
from .postgres import Postgres, check_namespace, quoted, split_namespace
from .roles import ROLES, Role

_LONGEST = 63  # bytes of a name in PostgreSQL, which cuts a longer one
_ROLE = "SELECT rolname, rolinherit, rolsuper FROM pg_roles WHERE rolname = :name"
_MEMBERS = (
    "SELECT g.rolname AS group, u.rolname AS member FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid "
    "JOIN pg_roles u ON u.oid = m.member"
)
_OWNERS = "SELECT n.nspname AS name, r.rolname AS owner FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner"


class Namespace(NamedTuple):
    """A namespace of a database.

    Attributes:
        name: The schema's name.
        members: Role → the users that have it, sorted.
    """

    name: str
    members: Mapping[Role, tuple[str, ...]]


def create_namespace(url: str, name: str) -> bool:
    """Make a namespace: its roles, its schema and the tables in it; False where it was there, and was put in order.

    The user has to be able to make roles and schemas: a superuser, or one with CREATEROLE, and CREATE on the database,
    who becomes the first admin.

    Args:
        url: The database's, as that user; a namespace in it counts for nothing.
        name: See `postgres.check_namespace`.

    Raises:
        InputError: The name cannot be one, or there is a schema or a role of that name which is not a namespace's.
        StoreUnavailable: The user may not do it, or the server does not answer.
    """
    check_namespace(name)
    with _changing(url) as (tx, database):
        owner = tx.first(f"{_OWNERS} WHERE n.nspname = :name", name=name)
        if owner is None:
            _create(tx, database, name)
        elif owner["owner"] != _group(database, name, "admin"):
            raise InputError(f"{database} has a schema {name} that is not a namespace", fix="choose another name")
    plain, _ = split_namespace(url)
    tables = Database(Postgres(f"{plain}{'&' if '?' in plain else '?'}namespace={name}", readonly=False))
    try:
        tables.migrate(upgrade=True, create=True)
        tables.secure()
    finally:
        tables.close()
    return owner is None


def list_namespaces(url: str) -> list[Namespace]:
    """The namespaces of a database by name, and who has which role; the user need not have any."""
    with _changing(url) as (tx, database):
        members = tx.all(f"{_MEMBERS} ORDER BY 2")
        owners = tx.all(f"{_OWNERS} ORDER BY 1")
    names = [row["name"] for row in owners if row["owner"] == f"{database}.{row['name']}.admin"]
    groups = {f"{database}.{name}.{role}" for name in names for role in ROLES}

    def who(group: str) -> tuple[str, ...]:
        return tuple(row["member"] for row in members if row["group"] == group and row["member"] not in groups)

    return [Namespace(name, {role: who(f"{database}.{name}.{role}") for role in ROLES}) for name in names]


def grant_role(url: str, name: str, user: str, role: Role) -> None:
    """Give a user of the database a role in a namespace. What an admin is given, an admin may give on.

    Raises:
        InputError: There is no such namespace or user, or the user does not inherit what its groups may do.
        StoreUnavailable: The user of the URL may not.
    """
    with _changing(url) as (tx, database):
        group = _existing(tx, database, name, role)
        known = tx.first(_ROLE, name=user)
        if known is None:
            raise InputError(
                f"the database {database} has no user {user!r:.80}", fix="make it there: CREATE ROLE … LOGIN"
            )
        if not known["rolinherit"]:
            raise InputError(f"the user {user} does not inherit what its groups may do", fix="ALTER ROLE … INHERIT")
        tx.run(f"GRANT {quoted(group)} TO {quoted(user)}{' WITH ADMIN OPTION' if role == 'admin' else ''}")


def revoke_role(url: str, name: str, user: str, role: Role) -> None:
    """Take a role in a namespace from a user, whose open sessions lose it at once.

    Raises:
        InputError: There is no such namespace, or the user does not have the role.
        StoreUnavailable: The user of the URL may not.
    """
    with _changing(url) as (tx, database):
        group = _existing(tx, database, name, role)
        has = f"{_MEMBERS} WHERE g.rolname = :group AND u.rolname = :user"
        if tx.first(has, group=group, user=user) is None:
            raise InputError(f"{user} does not have the role {role} in {name}", fix="see `drivetrain namespace list`")
        tx.run(f"REVOKE {quoted(group)} FROM {quoted(user)}")
        if tx.first(has, group=group, user=user) is not None:  # from PostgreSQL 16 on, a grant is its grantor's
            raise StoreUnavailable(
                f"{user} was given the role {role} in {name} by another", fix="let that one, or a superuser, revoke it"
            )


@contextmanager
def _changing(url: str) -> Iterator[tuple[Transaction, str]]:
    """A transaction in the database that a URL names, and the database's name."""
    dialect = parse(url, readonly=False)
    if not isinstance(dialect, Postgres):
        raise InputError(
            f"{dialect.location} is a file, and its permissions say who may read and write it",
            fix="namespaces need a PostgreSQL database: --store postgresql://user@host/database",
        )
    database = Database(Postgres(split_namespace(url)[0], readonly=False))
    try:
        with database.write("namespaces", needs="admin") as tx:
            yield tx, str(tx.all("SELECT current_database() AS name")[0]["name"])
    finally:
        database.close()


def _create(tx: Transaction, database: str, name: str) -> None:
    groups = {role: _group(database, name, role) for role in ROLES}
    for group in groups.values():
        if len(group.encode()) > _LONGEST:
            raise InputError(f"{group} is too long for the name of a role", fix="choose a shorter name")
        if tx.first(_ROLE, name=group) is not None:
            raise InputError(
                f"the server has a role {group}, whose members would have rights in {name}",
                fix="drop the role, or choose another name",
            )
        tx.run(f"CREATE ROLE {quoted(group)} NOLOGIN")
    for role in ROLES[1:]:
        tx.run(f"GRANT {quoted(groups['reader'])} TO {quoted(groups[role])}")
    for role in ROLES[:-1]:
        tx.run(f"GRANT {quoted(groups[role])} TO {quoted(groups['admin'])} WITH ADMIN OPTION")
    if not tx.all("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")[0]["rolsuper"]:
        tx.run(f"GRANT {quoted(groups['admin'])} TO CURRENT_USER WITH ADMIN OPTION")
    tx.run(f"CREATE SCHEMA {quoted(name)} AUTHORIZATION {quoted(groups['admin'])}")


def _existing(tx: Transaction, database: str, name: str, role: Role) -> str:
    """The group that is a role of a namespace, which has to be there."""
    owner = tx.first(f"{_OWNERS} WHERE n.nspname = :name", name=name)
    if owner is None or owner["owner"] != _group(database, name, "admin"):
        raise InputError(
            f"the database {database} has no namespace {name!r:.80}", fix="see `drivetrain namespace list`"
        )
    return _group(database, name, role)


def _group(database: str, name: str, role: Role) -> str:
    return f"{database}.{name}.{role}"
