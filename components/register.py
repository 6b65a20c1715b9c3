"""Register: a model becomes a version of a registered model, and an alias may move to it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..digest import write_durably
from ..metadata import Model, Registration, summarize
from ..metadata.registry import check_alias, check_name
from ..pipelines import component, current


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what cannot be a name or an alias."""
    name, alias = known.get("name"), known.get("alias")
    if isinstance(name, str):
        check_name(name)
    if isinstance(alias, str) and alias:
        check_alias(alias)


@component(deterministic=False, preflight=_refuse)
def Register(model: Model, *, name: str, alias: str = "", reason: str = "") -> Registration:
    """Make a model the next version of a registered model; `dt.registered("flights@challenger")` finds it from then on.

    The same model again is the version that it is already, so that runs may be repeated. It is registered by whoever
    started the run, who may not approve it later where the alias's rule says so.

    Args:
        model: What to register; of a model that has to be good, below `dt.when(evaluation.blessed)`.
        name: The registered model's name, made where there is none.
        alias: What is to stand for this version from now on: "challenger", say; "" for none.
        reason: Why; kept with the version.

    Returns:
        Registration: `name`, `version`, `alias`.

    Raises:
        InputError: The name or the alias cannot be one, or it is called outside a run.
        StateError: The alias's rule asks for approvals that are missing. The version is registered then: approve it,
            and move the alias by `drivetrain registry alias`, or `drivetrain resume` the run.
        ConflictError: Somebody else moves the alias at this moment.
    """
    _refuse({"name": name, "alias": alias}, {})
    launch = current()
    version = launch.register(model, name, alias, reason)
    registration = Registration.new(name=name, version=version, alias=alias)
    body = json.dumps(registration.properties, indent=1) + "\n"
    write_durably(registration.content / "registration.json", body.encode())
    launch.note(_what_it_is(registration))
    return registration


@summarize.register
def _what_it_is(registration: Registration) -> str:
    facts = registration.properties
    alias = f", which {facts['alias']} stands for" if facts.get("alias") else ""
    return f"registered: {facts.get('name')}@{facts.get('version')}{alias}"
