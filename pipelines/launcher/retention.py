"""Retention of a root: the policy as a file says it, and what is kept whatever it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from ...errors import DrivetrainError, InputError
from ...metadata import NotFound, PushedModel
from ...metadata.registry import Registry
from ...metadata.retention import Protection, RetentionPolicy, RetentionRule
from ...yaml_lines import YamlValue, read_yaml
from ..ir.options import parse_bytes
from ..triggers.durations import seconds_of
from .home import Home
from .runs import UnreadableRun, recorded_runs
from .states import RunState

POLICY: Final = "retention.yaml"
"""The policy of a root's project where no other file is named."""
_RULE: Final = ("type", "pipeline", "node", "keep_last", "keep_for")


def read_policy(path: Path) -> RetentionPolicy:
    """The policy in a YAML file: `rules`, `grace`, `quota`, `lineage`; see `RetentionPolicy`.

    Raises:
        InputError: It cannot be read, or something in it is no policy; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="name the policy's file with --policy") from None
    document = read_yaml(text, path.name, name="the policy")
    if document is None:
        raise InputError(f"{path} is empty", fix="write `rules:` with a rule, e.g. `- keep_last: 5`")
    entries = document.mapping(("rules", "grace", "quota", "lineage"), required=("rules",))
    rules = tuple(_rule(item) for item in entries["rules"].items())
    if not rules:
        raise entries["rules"].error("rules is empty", "write a rule, e.g. `- keep_last: 5`")
    defaults = RetentionPolicy(rules)
    return RetentionPolicy(
        rules,
        grace=_length(entries["grace"], allow_zero=True) if "grace" in entries else defaults.grace,
        quota=_bytes(entries["quota"]) if "quota" in entries else None,
        lineage=entries["lineage"].boolean() if "lineage" in entries else True,
    )


def protections(home: Home) -> Iterator[Protection]:
    """What a collection leaves alone, as it is when they are asked for: of living runs, versions, models in service.

    Of each destination that models were pushed to, the newest is in service. What led to a registered version is kept
    while an alias stands for it.
    """
    for run in recorded_runs(home, None, lambda context: context.properties.get("state") == RunState.RUNNING):
        if isinstance(run, UnreadableRun) or run.state is RunState.RUNNING:
            yield _of_run(home, run.id, f"of run {run.id}, which is at work")
    pushed: dict[str, int] = {}
    for receipt in home.store.artifacts(type=PushedModel.__name__):  # the newest first
        pushed.setdefault(str(receipt.properties.get("destination")), receipt.id)
    for folder, number in pushed.items():
        yield Protection(frozenset([number]), f"pushed to {folder}")
    registry = Registry(home.store)
    for model in map(registry.model, registry.names()):
        for version in model.versions:
            named = ", ".join(model.aliases_of(version))
            with suppress(NotFound):  # of a store that was rebuilt
                artifact = frozenset([registry.artifact(version).id])
                reason = f"registered as {version}" + (f" ({named})" if named else "")
                yield Protection(artifact, reason, lineage=bool(named))


def _of_run(home: Home, run: str, reason: str) -> Protection:
    context = home.store.find_context("run", run)
    artifacts = {each.id for each in home.store.artifacts(state=None, context=context)} if context else set()
    # It may take as inputs what it will not make itself.
    executions = home.store.executions(context=context, state="RUNNING") if context else []
    for execution in executions:
        artifacts |= {each.id for several in home.store.inputs(execution).values() for each in several}
    return Protection(frozenset(artifacts), reason, lineage=False)


def _rule(item: YamlValue) -> RetentionRule:
    entries = item.mapping(_RULE, unknown="a rule has no key")
    if not entries:
        raise item.error(f"{item.name} is empty", "write e.g. `keep_last: 5`")
    keep_last = entries["keep_last"].whole() if "keep_last" in entries else None
    if keep_last is not None and keep_last < 1:
        raise entries["keep_last"].error("keep_last is less than 1", "give how many runs' outputs are kept, 1 or more")
    patterns = {name: entries[name].string() for name in ("type", "pipeline", "node") if name in entries}
    return RetentionRule(keep_last, _length(entries["keep_for"]) if "keep_for" in entries else None, **patterns)


def _length(value: YamlValue, *, allow_zero: bool = False) -> timedelta:
    if allow_zero and value.text() in ("0", "0s", "0d"):
        return timedelta(0)
    try:
        return timedelta(seconds=seconds_of(value.text()))
    except InputError as error:
        raise value.error(f"{value.name}: {error.message}", error.fix or "give e.g. 30d") from None


def _bytes(value: YamlValue) -> int:
    try:
        return parse_bytes(value.text())
    except DrivetrainError as error:
        raise value.error(f"{value.name}: {value.text()!r} is not an amount of bytes", "give e.g. 500GB") from error
