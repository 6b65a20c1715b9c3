"""What a component has registered: a model under a name, and an alias moved to it."""

from __future__ import annotations

from ...errors import InputError
from ...metadata import Artifact, StoreUnavailable
from .home import Home
from .runs import Run


def register(home: Home, run: Run, model: Artifact, name: str, alias: str, why: str) -> int:
    """Register an input of a task, by whoever started the run, and move an alias to it unless that is "".

    Returns:
        The version.

    Raises:
        InputError: The name or the alias cannot be one.
        StateError: The alias's rule asks for approvals that are missing; the version is registered.
        ConflictError: Somebody else moves the alias at this moment; the version is registered.
        StoreUnavailable: Only this pod would know of it.
    """
    from ...metadata.registry import Registry  # late: few runs register anything

    if model.uid is None:
        raise InputError("what is registered was not published", fix="register the output of another node")
    if home.is_alone:
        raise StoreUnavailable("a model is registered in the store, which cannot be reached", fix="bring it back")
    registry, by = Registry(home.store), run.by or f"run {run.id}"
    version = registry.register(name, home.store.artifact(model.uid), by=by, why=why)
    if alias:
        registry.set_alias(name, alias, version.number, by=by, why=why or f"run {run.id}")
    return version.number
