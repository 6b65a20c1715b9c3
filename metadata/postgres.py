"""PostgreSQL's answers: a store that machines share. Writers take turns, as with SQLite, by an advisory lock.

A store is a schema: the first of the search path, or the namespace that the URL names (`?namespace=team_a`), in which
users have roles (`namespaces.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..errors import DrivetrainError, InputError, missing_extra
from .dialect import Begun, JsonKind, Statement
from .errors import AccessDenied, AlreadyExists, StateError, StoreUnavailable
from .roles import Role

if TYPE_CHECKING:
    from .postgres_connection import PostgresConnection

_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now"
# One lock for each schema of a database. The number is "drps" in ASCII: other programs' locks should have another. A
# statement after it sees what the one before committed.
_ALONE = "pg_advisory_xact_lock(1685221491, hashtext(coalesce(current_schema(), '')))"
# A machine that vanishes amid a transaction must not hold the others up for longer than they wait. A commit that the
# server has not synced is lost when the server dies, and one that its standby does not have where that takes over, and
# with it a claim's token: each is synced, whatever is asked.
# What a role's limits would end is a writer that waits for its turn.
_SESSION = (
    "SET lock_timeout = '60s'; SET idle_in_transaction_session_timeout = '45s'; "
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout'); "
    "SELECT set_config(name, 'on', false) FROM pg_settings "
    "WHERE name = 'synchronous_commit' AND setting IN ('off', 'local')"
)
_CONNECTION_DEFAULTS = {
    "connect_timeout": "10", "application_name": "drivetrain",
    "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "30000",  # keepalives are for who idles; an answer is waited for, for 15 minutes
}  # fmt: skip
_OLDEST = 120000
_GRANTS = Path(__file__).parent / "migrations" / "postgres" / "namespace.sql"
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CAPITALS = f"'{ascii_uppercase}', '{ascii_lowercase}'"
_RESERVED = re.compile(r"pg_.*|public|information_schema")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")


class Postgres:
    """A schema of a PostgreSQL database; a commit that returned is never lost.

    Args:
        url: As libpq takes it, and `namespace` among its parameters.
        readonly: Refuse every write.

    Attributes:
        namespace: The schema's name, where the URL names it; else "", and it is the first of the search path.

    Raises:
        DrivetrainError: psycopg is not installed.
        InputError: PostgreSQL cannot parse the URL (it is not quoted: it may hold a password), or the namespace's name
            cannot be one.
    """

    migrations = "postgres"
    digest_of = "encode(sha256(convert_to({}, 'UTF8')), 'hex')"
    by_bytes = ' COLLATE "C"'

    def __init__(self, url: str, *, readonly: bool) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise missing_extra("psycopg", "postgres") from error
        self._driver: Any = psycopg  # Any: its types want SQL known before the program runs
        self.failure: type[Exception] = psycopg.Error
        self.readonly = readonly
        url, self.namespace = split_namespace(url)
        try:
            parameters = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            parameters = {"host": "@"}  # so that the error below is raised, which does not quote the URL
        user, host, port, name = (str(parameters.get(key) or "") for key in ("user", "host", "port", "dbname"))
        # A password with special characters takes the rest of the URL for something else, and would be quoted by it.
        if "@" in f"{host}{name}" or (port and not port.replace(",", "").isdigit()):
            raise InputError(
                "PostgreSQL cannot parse the metadata store's URL",
                fix="write it postgresql://user:password@host:port/database, "
                "with special characters of the password as %XX",
            )
        self._parameters = {**_CONNECTION_DEFAULTS, **parameters, "client_encoding": "utf8"}
        if self.namespace:
            options = str(parameters.get("options") or "")
            self._parameters["options"] = f"{options} -csearch_path={quoted(self.namespace)}".strip()
        self._user = user
        self._secrets = [str(parameters[key]) for key in _SECRETS if parameters.get(key)]
        self.location = f"postgresql://{user and f'{user}@'}{host}{port and f':{port}'}/{name}"
        self.location += self.namespace and f"?namespace={self.namespace}"

    def prepare(self, *, create: bool) -> None:
        """Nothing can be said before the server is asked."""

    def connect(self) -> PostgresConnection:
        """A new connection in autocommit mode: transactions are begun by name.

        Raises:
            StoreUnavailable: The server is too old.
            InputError: The database does not hold Unicode.
        """
        from psycopg.types.numeric import Int8Dumper
        from psycopg.types.string import TextLoader

        from .postgres_connection import PostgresConnection

        opened = self._driver.connect(**self._parameters, autocommit=True, row_factory=self._driver.rows.dict_row)
        try:
            if opened.info.server_version < _OLDEST:
                raise StoreUnavailable(f"the server of {self.location} is too old", fix="use PostgreSQL 12 or newer")
            if opened.info.parameter_status("server_encoding") != "UTF8":
                raise InputError(
                    f"the database {self.location} does not hold Unicode", fix="create it with ENCODING 'UTF8'"
                )
            opened.adapters.register_dumper(int, Int8Dumper)  # else a number's size would change a statement's types
            opened.adapters.register_loader("json", TextLoader)
            opened.execute(_SESSION, prepare=False)
            if self.readonly:
                opened.execute("SET default_transaction_read_only = on")
        except BaseException:
            opened.close()
            raise
        return PostgresConnection(opened)

    def begin_write(
        self, connection: PostgresConnection, first: Sequence[Statement] = (), *, durable: bool = True
    ) -> Begun:
        """Begin as the only writer; gives the server's time, and the rows of the first statements."""
        alone = f"SELECT set_config('synchronous_commit', 'off', true), {_ALONE}, {_NOW}"
        return connection.begin("BEGIN ISOLATION LEVEL READ COMMITTED", alone, first)

    def begin_read(self, connection: PostgresConnection) -> Begun:
        """Begin with a snapshot; gives the server's time."""
        return connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", f"SELECT {_NOW}")

    def now(self, connection: PostgresConnection) -> int:
        """The server's time, in microseconds since 1970, UTC: one clock for all machines."""
        return int(connection.execute(f"SELECT {_NOW}").fetchone()["now"])

    def enable(self, connection: PostgresConnection) -> None:
        """Nothing to do: a new schema needs no settings."""

    def become_owner(self, connection: PostgresConnection) -> None:
        """Act as the group that a namespace belongs to, until the transaction ends: what is made is then its own."""
        connection.execute(
            "SELECT set_config('role', r.rolname, true) FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner "
            "WHERE n.nspname = current_schema() AND r.rolname = current_database() || '.' || n.nspname || '.admin' "
            "AND pg_has_role(r.oid, 'MEMBER')"
        )

    def secure(self, connection: PostgresConnection) -> None:
        """Give the roles of a namespace their rights to all that is there now; nothing happens in another schema."""
        connection.execute(_GRANTS.read_text(encoding="utf-8"))

    def tables(self, connection: PostgresConnection) -> set[str]:
        """The names of the tables in the schema.

        Raises:
            StoreUnavailable: There is no such namespace.
            AccessDenied: The user has no role in it.
        """
        cursor = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = {row["tablename"] for row in cursor.fetchall()}
        if self.namespace and not names:
            visible = "SELECT has_schema_privilege(oid, 'USAGE') AS usable FROM pg_namespace WHERE nspname = :name"
            row = connection.execute(visible, {"name": self.namespace}).fetchone()
            if row is None:
                raise StoreUnavailable(
                    f"there is no namespace {self.namespace} in {self.location}",
                    fix=f"let who administers the database do `drivetrain namespace create {self.namespace}`",
                )
            if not row["usable"]:
                raise self._denied("reader", f"permission denied for schema {self.namespace}")
        return names

    def statements(self, script: str) -> Iterable[str]:
        """A migration whole: the server takes several statements at once."""
        return (script,)

    def json_equals(self, column: str, key: str, value: str) -> str:
        """SQL: the property whose name is bound as `key` has the canonical JSON text bound as `value`."""
        return f"CAST({column} -> CAST(:{key} AS TEXT) AS TEXT) = :{value}"

    def json_path(self, names: Sequence[str]) -> str:
        """A path of PostgreSQL: an array of texts, spelled."""
        quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
        return "{" + ",".join(f'"{name}"' for name in quoted) + "}"

    def json_value(self, column: str, path: str, kind: JsonKind) -> str:
        """SQL: the value at a path, where it is of a kind; see `Dialect.json_value`."""
        at = f"CAST({path} AS TEXT[])"
        text, type_ = f"({column} #>> {at})", f"json_typeof({column} #> {at})"
        if kind == "any":
            return f"nullif({type_}, 'null')"
        types = {"number": "number", "text": "string", "boolean": "boolean"}
        value = f"CAST({text} AS DOUBLE PRECISION)" if kind == "number" else text + self.by_bytes
        return f"CASE WHEN {type_} = '{types[kind]}' THEN {value} END"

    def as_json(self, text: str) -> str:
        """SQL: a text of JSON as a JSON column."""
        return f"CAST({text} AS JSON)"

    def like(self, value: str, pattern: str) -> str:
        """SQL: a text fits a pattern; see `Dialect.like`."""
        value, text = (f"translate({each}, {_CAPITALS})" for each in (value, f"CAST(:{pattern} AS TEXT)"))
        return f"{value} LIKE {text}{self.by_bytes} ESCAPE ''"

    def integrity(self, connection: PostgresConnection) -> list[str]:
        """Indexes and constraints that do not hold; the server itself checks its pages as it reads them."""
        cursor = connection.execute(
            "SELECT 'the index ' || c.relname || ' is not valid' AS problem FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT i.indisvalid AND c.relnamespace = "
            "CAST(quote_ident(current_schema()) AS regnamespace) UNION ALL "
            "SELECT 'the constraint ' || conname || ' is not validated' FROM pg_constraint WHERE NOT convalidated "
            "AND connamespace = CAST(quote_ident(current_schema()) AS regnamespace) ORDER BY 1"
        )
        return [row["problem"] for row in cursor.fetchall()]

    def files(self) -> dict[int, tuple[int, int]]:
        """None: a connection whose socket was closed is lost, and the next one is new."""
        return {}

    def is_busy(self, error: Exception) -> bool:
        """Whether the same statement may succeed a moment later: a conflict, a deadlock, a server that goes down."""
        return _code(error) in {"40001", "40P01", "57P01", "57P02", "57P03"}

    def is_lost(self, connection: PostgresConnection | None) -> bool:
        """Whether the server is no more at the other end, or was not there."""
        return connection is None or connection.closed

    def durability(self, connection: PostgresConnection) -> list[tuple[bool, str]]:
        """Whether commits survive a power loss of the server, and its loss where it has standbys."""
        settings = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
        shown = ", ".join(f"current_setting('{name}') AS {name}" for name in settings)
        standbys = "(SELECT count(*) FROM pg_stat_replication WHERE application_name <> 'pg_basebackup') AS standbys"
        row = connection.execute(f"SELECT {shown}, {standbys}, pg_is_in_recovery() AS recovering").fetchone()
        facts = []
        off = [name for name in ("fsync", "full_page_writes") if row[name] == "off"]
        if off:
            facts.append((False, f"{' and '.join(off)} off: a power loss of the server may damage the store; set on"))
        if row["recovering"]:
            facts.append((True, "a standby, which can be read"))
        elif row["standbys"] and not row["synchronous_standby_names"]:
            facts.append(
                (
                    False,
                    f"{row['standbys']} standby, and synchronous_standby_names is not set: when the server fails and a "
                    "standby takes over, what was stored last may be lost; name the standbys in it",
                )
            )
        elif row["synchronous_standby_names"]:
            names = row["synchronous_standby_names"]
            facts.append((True, f"commits wait for a standby: synchronous_standby_names = {names}"))
        else:
            facts.append((True, "commits wait for this server's disk; no standby is connected"))
        return facts

    def translate(self, error: Exception, needs: Role = "reader") -> DrivetrainError:
        """The one clear error for what the driver raised in something that needs a role; no password is in it."""
        code, text = _code(error), self._scrubbed(error)
        # What our own triggers raise has the SQLSTATE of any RAISE: its text tells it.
        if text.startswith("drivetrain: ") and code != "42501":
            return StateError(text.removeprefix("drivetrain: "), fix="publish every output once, by one execution")
        if code == "23505":
            return self._twice(error)
        if code.startswith(("22", "23", "54")) or (isinstance(error, self._driver.DataError) and not code):
            return InputError(f"the store refused a value: {text}")
        if code == "55P03":
            return StoreUnavailable(
                f"{self.location} has been locked by another process all the time", fix="end it, or try again later"
            )
        if code == "42501" and self.namespace:
            return self._denied(needs, text.removeprefix("drivetrain: "))
        if code in {"25006", "42501"}:
            return StoreUnavailable(
                f"{self.location} may not be written: {text}",
                fix="connect as a role that may, to the primary (of several hosts: ?target_session_attrs=read-write)",
            )
        if code == "3F000":
            return StoreUnavailable(
                f"{self.location} has no such schema: {text}",
                fix="create it: CREATE SCHEMA …, or correct the search_path",
            )
        if code == "53100":
            return StoreUnavailable(f"the server of {self.location} has no space left", fix="free space there")
        for words, fix in (
            (("too many clients", "connection slots", "too many connections"), "raise max_connections there"),
            (("authentication", "no password", "pg_hba"), "check the user and the password"),
            (("does not exist",), "create it: CREATE DATABASE … ENCODING 'UTF8'"),
        ):
            if not code and any(word in text for word in words):
                return StoreUnavailable(f"{self.location} cannot be opened: {text}", fix=fix)
        if isinstance(error, self._driver.OperationalError):
            return StoreUnavailable(
                f"{self.location} does not answer: {text}",
                fix="see that the server runs and can be reached, and try again",
            )
        return StoreUnavailable(f"{self.location}: {text}", fix="run `drivetrain fsck`")

    def _denied(self, needs: Role, text: str) -> AccessDenied:
        user = self._user or "USER"
        return AccessDenied(
            f"{self._user or 'this user'} may not do this in {self.location}, which needs the role {needs}: {text}",
            fix=f"ask an admin of it for `drivetrain namespace grant {self.namespace} {user} {needs}`",
        )

    def _twice(self, error: Any) -> DrivetrainError:
        table, detail = error.diag.table_name or "", error.diag.message_detail or ""
        if table == "event":
            return StateError("an artifact has one producer, and a key and index of an execution one artifact")
        columns = re.match(r".*?\((.*?)\)=", detail)
        named = f"{table}.{columns[1]}" if columns else table
        return AlreadyExists(f"there is already a row with the same {named}", fix="choose another name or uid")

    def _scrubbed(self, error: Any) -> str:
        diag = getattr(error, "diag", None)
        text = (diag and diag.message_primary) or (str(error).splitlines() or [type(error).__name__])[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def check_namespace(name: str) -> str:
    """A name that a namespace can have: a letter, then letters, digits and _, all small, 40 at most.

    Raises:
        InputError: It cannot.
    """
    if _NAMESPACE.fullmatch(name) is None or _RESERVED.fullmatch(name):
        raise InputError(
            f"{name!r:.80} cannot be the name of a namespace",
            fix="give a small letter, then small letters, digits and _, 40 at most; not public, nor pg_…",
        )
    return name


def split_namespace(url: str) -> tuple[str, str]:
    """A URL as libpq takes it, and the namespace that it named besides; "" where it named none.

    Raises:
        InputError: Such a name cannot be one, or there are two.
    """
    head, mark, query = url.rpartition("?")
    if not mark:
        return url, ""
    parts = query.split("&")
    names = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == "namespace"]
    if not names:
        return url, ""
    if len(names) > 1:
        raise InputError("the metadata store's URL names several namespaces", fix="name one")
    rest = "&".join(part for part in parts if part.partition("=")[0] != "namespace")
    return f"{head}?{rest}" if rest else head, check_namespace(names[0])


def holds_password(url: str) -> bool:
    """Whether a URL that PostgreSQL takes holds a password, wherever libpq looks for one.

    Raises:
        DrivetrainError: psycopg is not installed.
        InputError: PostgreSQL cannot parse the URL.
    """
    return bool(Postgres(url, readonly=True)._secrets)


def _code(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""
