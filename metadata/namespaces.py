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
from .journal import KEYS
from .postgres import Postgres, check_namespace, quoted, split_namespace
from .roles import ROLES, Role

_LONGEST = 63  # bytes of a name in PostgreSQL, which cuts a longer one
_ROLE = "SELECT rolname, rolinherit, rolsuper FROM pg_roles WHERE rolname = :name"
_MEMBERS = (
    "SELECT g.rolname AS group, u.rolname AS member FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid "
    "JOIN pg_roles u ON u.oid = m.member"
)
_TABLES = frozenset({*KEYS, "schema_version", "claim", "journal", "answered"})
_RELATIONS = (
    "SELECT c.relname AS name, c.relkind = 'r' AS plain FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = :name AND c.relkind NOT IN ('i', 'S', 't') ORDER BY 1"
)
_FUNCTIONS = (
    "SELECT p.proname AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :name"
)
_GRANTEES = (  # whom the schema, or a table, a column or a sequence in it, gives a right
    "SELECT DISTINCT r.rolname AS name FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid "
    "JOIN pg_attribute a ON a.attrelid = c.oid CROSS JOIN LATERAL unnest(ARRAY["
    "CAST(n.nspacl AS TEXT), CAST(c.relacl AS TEXT), CAST(a.attacl AS TEXT)]) acl "
    "CROSS JOIN LATERAL aclexplode(CAST(nullif(acl, '{}') AS ACLITEM[])) g JOIN pg_roles r ON r.oid = g.grantee "
    "WHERE n.nspname = :name"
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


def create_namespace(url: str, name: str, *, adopt: bool = False) -> bool:
    """Make a namespace: its roles, its schema and the tables in it; False where it was there, and was put in order.

    The user has to be able to make roles and schemas: a superuser, or one with CREATEROLE, and CREATE on the database,
    who becomes the first admin.

    Args:
        url: The database's, as that user; a namespace in it counts for nothing.
        name: See `postgres.check_namespace`.
        adopt: Make a schema of that name, which holds a store and nothing else, the namespace: the store stays as it
            is, and whoever had rights in it needs a role from then on.

    Raises:
        InputError: The name cannot be one, or there is a schema or a role of that name which is not a namespace's.
        StoreUnavailable: The user may not do it, or the server does not answer.
    """
    check_namespace(name)
    with _changing(url) as (tx, database):
        owner = tx.first(f"{_OWNERS} WHERE n.nspname = :name", name=name)
        new = owner is None or owner["owner"] != _group(database, name, "admin")
        if owner is None:
            _make_roles(tx, database, name)
            tx.run(f"CREATE SCHEMA {quoted(name)} AUTHORIZATION {quoted(_group(database, name, 'admin'))}")
        elif new:
            _adopt(tx, database, name, adopt)
    plain, _ = split_namespace(url)
    tables = Database(Postgres(f"{plain}{'&' if '?' in plain else '?'}namespace={name}", readonly=False))
    try:
        tables.migrate(upgrade=True, create=True)
        tables.secure()
    finally:
        tables.close()
    return new


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


def _adopt(tx: Transaction, database: str, name: str, agreed: bool) -> None:
    """Give what is in a schema to the admins of a namespace of its name, and take every right from all others."""
    relations = {row["name"]: row["plain"] for row in tx.all(_RELATIONS, name=name)}
    if not {"schema_version", "artifact", "execution"} <= relations.keys():
        raise InputError(
            f"{database} has a schema {name} that is neither a namespace nor a store", fix="choose another name"
        )
    functions = {row["name"] for row in tx.all(_FUNCTIONS, name=name)}
    strange = [each for each, plain in relations.items() if each not in _TABLES or not plain]
    if strange := [*strange, *sorted(functions - {"event_law", "journal_law"})]:
        raise InputError(
            f"the schema {name} of {database} holds other things beside a store: {', '.join(strange[:3])}",
            fix=f"move them: ALTER … {strange[0]} SET SCHEMA …",
        )
    if not agreed:
        raise InputError(
            f"{database} has a schema {name} with a store in it, which is not a namespace",
            fix=f"choose another name; or make it the namespace, whose users then need roles: "
            f"`drivetrain namespace create {name} --adopt`",
        )
    _make_roles(tx, database, name)
    schema, admins = quoted(name), quoted(_group(database, name, "admin"))
    tx.run(f"ALTER SCHEMA {schema} OWNER TO {admins}")
    for table in relations:
        tx.run(f"ALTER TABLE {schema}.{quoted(table)} OWNER TO {admins}")
    for function in functions:
        tx.run(f"ALTER FUNCTION {schema}.{quoted(function)}() OWNER TO {admins}")
    for grantee in ["PUBLIC", *(quoted(row["name"]) for row in tx.all(_GRANTEES, name=name))]:
        if grantee != admins:
            tx.run(f"REVOKE ALL ON SCHEMA {schema} FROM {grantee} CASCADE")
            for kind in ("TABLES", "SEQUENCES"):
                tx.run(f"REVOKE ALL ON ALL {kind} IN SCHEMA {schema} FROM {grantee} CASCADE")


def _make_roles(tx: Transaction, database: str, name: str) -> None:
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
