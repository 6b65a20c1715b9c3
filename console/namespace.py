"""`namespace`: schemas of a PostgreSQL database for projects and people, and who may do what in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..metadata.roles import ROLES, Role
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.namespaces import Namespace

_ROLE = click.Choice(ROLES)


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain namespace create team_a --store postgresql://postgres@db/ml\n"
    "  drivetrain namespace grant team_a ada writer --store postgresql://postgres@db/ml\n"
    "  drivetrain runs --store 'postgresql://ada@db/ml?namespace=team_a'\n",
)
def namespace() -> None:
    """Namespaces of a PostgreSQL store: a schema for each project or person, and who may read, write, approve there."""


@namespace.command(epilog="\b\nExample:\n  drivetrain namespace create team_a --store postgresql://postgres@db/ml\n")
@click.argument("name")
@click.option("--adopt", is_flag=True, help="Of a schema NAME that holds a store: its users need roles from then on.")
@shared
def create(settings: ConsoleSettings, name: str, adopt: bool) -> int:
    """Make the namespace NAME: its schema, its tables and its five roles; one that is there is put in order.

    Do it as a superuser, or as one who may make roles and schemas, who becomes its first admin. Users name it in the
    store's URL: ?namespace=NAME.
    """
    from ..metadata.namespaces import create_namespace

    new = create_namespace(_url(settings), name, adopt=adopt)
    said = f"made the namespace {name}" if new else f"the namespace {name} was there, and its rights are in order"
    settings.answer({"name": name, "new": new}, lambda console: print_text(console, said))
    return OK


@namespace.command("list", epilog="\b\nExample:\n  drivetrain namespace list --json\n")
@shared
def list_(settings: ConsoleSettings) -> int:
    """List the namespaces of the database, and who has which role in each."""
    from ..metadata.namespaces import list_namespaces

    namespaces = list_namespaces(_url(settings))
    answer = [
        {"name": each.name, "members": {role: list(users) for role, users in each.members.items()}}
        for each in namespaces
    ]
    settings.answer({"namespaces": answer}, lambda console: _show(console, namespaces))
    return OK


@namespace.command(
    epilog="\b\nExample:\n  drivetrain namespace grant team_a ada writer\n"
    "  drivetrain namespace grant team_a grace approver\n"
)
@click.argument("name")
@click.argument("user")
@click.argument("role", type=_ROLE)
@shared
def grant(settings: ConsoleSettings, name: str, user: str, role: Role) -> int:
    """Give USER of the database a role in NAME: reader, writer, approver, gc or admin.

    Each reads. A writer records runs, too; an approver decides, and moves aliases; gc removes payloads; an admin does
    all of that, changes the schema, and gives roles. A user may have several.
    """
    from ..metadata.namespaces import grant_role

    grant_role(_url(settings), name, user, role)
    answer = {"name": name, "user": user, "role": role}
    settings.answer(answer, lambda console: print_text(console, f"{user} is {role} in {name}"))
    return OK


@namespace.command(epilog="\b\nExample:\n  drivetrain namespace revoke team_a ada writer\n")
@click.argument("name")
@click.argument("user")
@click.argument("role", type=_ROLE)
@shared
def revoke(settings: ConsoleSettings, name: str, user: str, role: Role) -> int:
    """Take a role in NAME from USER; open sessions lose it at once."""
    from ..metadata.namespaces import revoke_role

    revoke_role(_url(settings), name, user, role)
    answer = {"name": name, "user": user, "role": role}
    settings.answer(answer, lambda console: print_text(console, f"{user} is no longer {role} in {name}"))
    return OK


def _url(settings: ConsoleSettings) -> str:
    if (store := settings.location.store) is None:
        raise InputError(
            "namespaces need a PostgreSQL database, and no store is named",
            fix="name it: --store postgresql://user@host/database",
        )
    return store


def _show(console: Console, namespaces: list[Namespace]) -> None:
    if not namespaces:
        print_text(console, "there are no namespaces: `drivetrain namespace create NAME`")
    for each in namespaces:
        print_text(console, each.name)
        for role, users in each.members.items():
            if users:
                print_text(console, f"  {role:<9} {', '.join(users)}")
