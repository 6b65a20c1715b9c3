"""What came of a search, as JSON: equal trials give equal bytes, and times and deaths lie beside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ...digest import canonical_json
from ...errors import InputError
from ...machine import spell_bytes
from .objective import Objective, pareto, sign_of
from .search import best_of
from .space import SearchSpace
from .study import Outcome, StudySettings, Trial

FILE: Final = "study.json"
_VERSION: Final = 1
_LOGS: Final = 2**28
"""Bytes of all trials' logs together, beyond which those of the worse trials are left out."""


def document(
    settings: StudySettings, trials: Sequence[Trial], static: Mapping[str, Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """A search as JSON.

    Args:
        settings: What was searched, and how.
        trials: What came of it; one of them completed.
        static: The hyperparameters that all trials have.
        about: Further settings, as JSON.

    Returns:
        `settings` and `space`; `objectives`, each a name and its mode, the one that decides first; `hyperparameters`,
        those of all; `trials`, each with its number, state, hyperparameters, values by objective, the curve of values
        after each epoch, and the reason why it did not complete; `pareto`, the numbers of those that no other beats;
        `best`, the best one's.
    """
    outcomes = [(trial, trial.outcome or _unfinished(trial)) for trial in trials]
    complete = {trial.number: outcome.values for trial, outcome in outcomes if outcome.state == "COMPLETE"}
    best = best_of(settings.objectives, trials)
    assert best is not None
    names = [each.name for each in settings.objectives]
    return {
        "version": _VERSION,
        "settings": {"sampler": settings.sampler, "pruner": settings.pruner, "sampler_seed": settings.seed, **about},
        "space": dict(settings.space.domains),
        "objectives": [asdict(each) for each in settings.objectives],
        "hyperparameters": dict(static),
        "trials": [
            {
                "number": trial.number,
                "state": outcome.state,
                "hyperparameters": dict(trial.hyperparameters),
                "values": dict(zip(names, outcome.to_json()["values"], strict=False)),
                "curve": outcome.to_json()["curve"],
                "reason": outcome.reason,
            }
            for trial, outcome in outcomes
        ],
        "pareto": pareto(settings.objectives, complete),
        "best": best.number,
    }


def _unfinished(trial: Trial) -> Outcome:
    killed = f", as its process died: {trial.kills[-1]}" if trial.kills else ""
    return Outcome("FAILED", reason=f"the time was up before it could be repeated{killed}")


def write(
    body: Mapping[str, Any], trials: Sequence[Trial], importances: Mapping[str, Any], content: Path, extra: Path
) -> None:
    """Write a search into an artifact: study.json; in `extra` attempts.json (seconds, deaths), importance.json, a page.

    Args:
        body: See `document`.
        trials: Of which the times come.
        importances: `method`, and `importances` by objective and hyperparameter.
        content: The artifact's folder.
        extra: The other.
    """
    from ...report.tuning import tuning_page

    (content / FILE).write_bytes(canonical_json(body) + b"\n")
    attempts = [
        {"trial": t.number, "seconds": None if t.outcome is None else t.outcome.seconds, "deaths": list(t.kills)}
        for t in trials
    ]
    (extra / "attempts.json").write_text(json.dumps(attempts, indent=1) + "\n", encoding="utf-8")
    (extra / "importance.json").write_text(json.dumps(importances, indent=1) + "\n", encoding="utf-8")
    (extra / "report.html").write_text(tuning_page(body, attempts, importances), encoding="utf-8")


def ranked(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The trials that have values, the best first: those that completed before those that were stopped early."""
    signs = {each["name"]: sign_of(each["mode"]) for each in body["objectives"]}
    trials = [trial for trial in body["trials"] if trial["state"] != "FAILED"]
    return sorted(trials, key=lambda t: (t["state"], *(sign * (t["values"][n] or 0) for n, sign in signs.items())))


def keep_logs(body: Mapping[str, Any], logs: Path, kept: Path, note: Callable[[str], None]) -> None:
    """Copy what callbacks left in each trial's folder into the artifact, as far as there is room.

    Args:
        body: See `document`.
        logs: A folder for each trial that left files, by its number.
        kept: Where they are copied to; made where there are any.
        note: Told of those that are left out.
    """
    failed = [trial for trial in body["trials"] if trial["state"] == "FAILED"]
    size, left_out = 0, 0
    for trial in (*ranked(body), *failed):
        folder = logs / str(trial["number"])
        if not folder.is_dir():
            continue
        much = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if size + much > _LOGS:
            left_out += 1
            continue
        shutil.copytree(folder, kept / folder.name)
        size += much
    if left_out:
        note(f"the logs of {left_out} trials are left out, of the worse ones: all have more than {spell_bytes(_LOGS)}")


def read(content: Path) -> dict[str, Any]:
    """The document of a search.

    Raises:
        InputError: It is of a later version.
    """
    body: dict[str, Any] = json.loads((content / FILE).read_text(encoding="utf-8"))
    if body["version"] > _VERSION:
        raise InputError(
            f"the results of the search have the format {body['version']}, which is newer than this drivetrain",
            fix="install a newer drivetrain",
        )
    return body


def earlier_trials(
    body: Mapping[str, Any], space: SearchSpace, objectives: Sequence[Objective], note: Callable[[str], None]
) -> tuple[list[tuple[Mapping[str, Any], Outcome]], list[Mapping[str, Any]]]:
    """What a new search may know of an earlier one.

    Args:
        body: Of the earlier search.
        space: Of the new one.
        objectives: Of the new one.
        note: Told what is of no use to it.

    Returns:
        The trials that are of this space and have these objectives; and the best hyperparameters, if they are.
    """
    best = next(trial for trial in body["trials"] if trial["number"] == body["best"])["hyperparameters"]
    first = [] if (problem := space.problem_of(best)) is not None else [best]
    if problem is not None:
        note(f"the best hyperparameters of the earlier search are not tried: {problem}")
    if body["objectives"] != [asdict(each) for each in objectives]:
        note("the trials of the earlier search have other objectives: the sampler begins without them")
        return [], first
    known: list[tuple[Mapping[str, Any], Outcome]] = []
    others = 0
    for trial in body["trials"]:
        if trial["state"] == "FAILED":
            continue
        if space.problem_of(trial["hyperparameters"]) is not None:
            others += 1
            continue
        values = tuple(trial["values"][each.name] for each in objectives)
        curve = tuple(tuple(float("nan") if v is None else v for v in values) for values in trial["curve"])
        known.append((trial["hyperparameters"], Outcome(trial["state"], values, curve)))
    if others:
        note(f"{others} trials of the earlier search are not of this space: the sampler does not know them")
    return known, first
