"""The study: Optuna's own decisions, whoever left it half way; a journal that a killed process damaged."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import pytest
from drivetrain.components.tuning.objective import objectives_of
from drivetrain.components.tuning.space import SearchSpace
from drivetrain.components.tuning.study import ATTEMPTS, Outcome, Study, StudySettings, TrialAttempt, check_installed
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.redaction import mark_secret

optuna = pytest.importorskip("optuna")

SPACE = {
    "rate": dt.log_uniform(1e-4, 1.0),
    "units": dt.integers(16, 128, step=16),
    "optimizer": dt.choice("adam", "sgd"),
}


def settings(space: Any = SPACE, objective: Any = "eval_loss", **options: Any) -> StudySettings:
    chosen = StudySettings(SearchSpace.read(space), objectives_of(objective), **options)
    chosen.check()
    return chosen


def value(hyperparameters: Any) -> float:
    """Smallest at a rate of 0.01, 64 units and sgd."""
    offset = abs(math.log10(hyperparameters["rate"]) + 2) + abs(hyperparameters["units"] - 64) / 64
    return float(offset + (hyperparameters["optimizer"] == "adam"))


def curve(hyperparameters: Any, epochs: int) -> list[list[float]]:
    return [[value(hyperparameters) + 1 / epoch] for epoch in range(1, epochs + 1)]


def work(study: Study, attempt: TrialAttempt, epochs: int = 4) -> Outcome:
    """Do an attempt as a trial would."""
    reached: Sequence[Sequence[float]] = ()
    for epoch in range(1, epochs + 1):
        reached = curve(attempt.hyperparameters, epoch)
        if (reason := study.report(attempt, reached)) is not None:
            break
    outcome = Outcome(
        "COMPLETE" if reason is None else "PRUNED", tuple(reached[-1]), tuple(map(tuple, reached)), reason or ""
    )
    study.end(attempt, outcome)
    return outcome


def run(study: Study, trials: int) -> list[tuple[Any, str, tuple[float, ...]]]:
    while (attempt := study.next(trials)) is not None:
        with study.here(attempt):
            work(study, attempt)
    return results(study)


def results(study: Study) -> list[tuple[Any, str, tuple[float, ...]]]:
    """What each trial tried, how it ended, and with which values."""
    return [(t.hyperparameters, t.outcome.state, t.outcome.values) for t in study.trials() if t.outcome is not None]


def optunas(sampler: Any, pruner: Any, trials: int) -> list[tuple[Any, str, tuple[float, ...]]]:
    """The same search by Optuna alone, in memory."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="tuning", pruner=pruner)
    kinds = list(SPACE["optimizer"]["values"])
    ended: list[tuple[Any, str, tuple[float, ...]]] = []
    for number in range(trials):
        study.sampler = sampler(int(np.random.SeedSequence([7, number]).generate_state(1)[0]))
        trial = study.ask()
        drawn = {
            "rate": trial.suggest_float("rate", 1e-4, 1.0, log=True),
            "units": trial.suggest_int("units", 16, 128, step=16),
            "optimizer": kinds[trial.suggest_categorical("optimizer", [0, 1])],
        }
        state = "COMPLETE"
        for epoch in range(1, 5):
            reached = curve(drawn, epoch)[-1][0]
            trial.report(reached, epoch)
            if epoch < 4 and trial.should_prune():
                state = "PRUNED"
                break
        if state == "PRUNED":
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, reached)
        ended.append((drawn, state, (reached,)))
    return ended


SAMPLERS = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
}
PRUNERS = {
    "none": lambda: optuna.pruners.NopPruner(),
    "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4, reduction_factor=3),
    "median": lambda: optuna.pruners.MedianPruner(),
}


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [("tpe", "none"), ("tpe", "hyperband"), ("random", "asha"), ("random", "median"), ("cmaes", "asha")],
)
def test_optuna_decides(sampler: Any, pruner: Any, tmp_path: Path) -> None:
    chosen = settings(sampler=sampler, pruner=pruner, seed=7, epochs=4)
    ended = run(Study(tmp_path / "journal.log", chosen), 16)
    assert ended == optunas(SAMPLERS[sampler], PRUNERS[pruner](), 16)
    assert ("PRUNED" in [state for _, state, _ in ended]) == (pruner != "none")


def test_pruning_finds_the_best_in_less_than_half_of_the_epochs(tmp_path: Path) -> None:
    """Curves that fall at different paces and cross: within 1 % of the full search."""
    reached, epochs = {}, {}
    for pruner in ("none", "asha", "hyperband"):
        study = Study(tmp_path / pruner, settings(sampler="random", pruner=pruner, seed=11, epochs=27))
        while (attempt := study.next(60)) is not None:
            pace = 1 + attempt.hyperparameters["units"] / 64
            falling = [[1 + value(attempt.hyperparameters) + epoch**-pace] for epoch in range(1, 28)]
            last = next(epoch for epoch in range(1, 28) if study.report(attempt, falling[:epoch]) or epoch == 27)
            seen = falling[:last]
            state: Any = "COMPLETE" if last == 27 else "PRUNED"
            study.end(attempt, Outcome(state, tuple(seen[-1]), tuple(map(tuple, seen))))
        outcomes = [trial.outcome for trial in study.trials() if trial.outcome is not None]
        reached[pruner] = min(outcome.values[0] for outcome in outcomes if outcome.state == "COMPLETE")
        epochs[pruner] = sum(len(outcome.curve) for outcome in outcomes)
    for pruner in ("asha", "hyperband"):
        assert reached[pruner] <= 1.01 * reached["none"]
        assert epochs[pruner] < epochs["none"] / 2


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
def test_a_study_that_was_left_goes_on_as_if_it_had_not_been(sampler: Any, tmp_path: Path) -> None:
    """CMA-ES draws by Optuna's count of attempts, so it goes on to the budget, and not to the same bits."""
    chosen = settings(sampler=sampler, seed=7, epochs=4)
    whole = run(Study(tmp_path / "whole.log", chosen), 14)
    journal = tmp_path / "left.log"
    for left in (0, 3, 9):
        study = Study(journal, chosen)
        while len(results(study)) < left:
            attempt = study.next(14)
            assert attempt is not None
            work(study, attempt)
        study.next(14)  # begun, and left
    again = run(Study(journal, chosen), 14)
    assert len(again) == 14
    assert sampler == "cmaes" or again == whole


def test_a_journal_cut_anywhere_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """A process may be killed after any byte that it wrote, with the lock of the journal in its hands."""
    chosen = settings(sampler="random", seed=7, epochs=4, first=({"rate": 0.1, "units": 16, "optimizer": "sgd"},))
    whole = run(Study(tmp_path / "whole.log", chosen), 4)
    body = (tmp_path / "whole.log").read_bytes()
    random = np.random.default_rng(0)
    cuts = {
        0,
        1,
        len(body) - 1,
        *(at + 1 for at, byte in enumerate(body) if byte == 10),
        *random.integers(0, len(body), 20),
    }
    for cut in sorted(map(int, cuts)):
        journal = tmp_path / f"{cut}.log"
        journal.write_bytes(body[:cut])
        (tmp_path / f"{cut}.log.lock").symlink_to(journal)
        assert run(Study(journal, chosen), 4) == whole, cut


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body.replace(b"\n", b"\nxx\n", 3),
        lambda body: b"\xff\0\n" + body,
        lambda body: body + b"\0" * 100 + b"\n",
        lambda body: body + b"[]\n",
        lambda body: body.replace(b'"values"', b'"valves"'),
        lambda body: body.replace(b'"rate"', b'"tare"'),
    ],
)
def test_a_damaged_journal_is_named(damage: Any, tmp_path: Path) -> None:
    journal = tmp_path / "study" / "journal.log"
    run(Study(journal, settings()), 3)
    journal.write_bytes(damage(journal.read_bytes()))
    with pytest.raises(InputError, match="the journal of the search is damaged") as error:
        Study(journal, settings())
    assert str(journal) in error.value.message
    assert error.value.fix == f"remove {journal.parent}: the search begins anew"


@pytest.mark.parametrize(
    "space",
    [
        {**SPACE, "rate": dt.log_uniform(2.0, 3.0)},
        {**SPACE, "units": dt.choice("few", "many")},
        {**SPACE, "more": dt.uniform(0, 1)},
    ],
)
def test_a_journal_of_another_space_is_refused(space: Any, tmp_path: Path) -> None:
    chosen = settings(first=({"rate": 0.1, "units": 64, "optimizer": "sgd"},))
    run(Study(tmp_path / "journal.log", chosen), 3)
    with pytest.raises(InputError, match="is damaged, or another search's"):
        Study(tmp_path / "journal.log", settings(space))


def test_a_journal_holds_no_secret(tmp_path: Path) -> None:
    mark_secret("hunter-two-of-a-trial")
    study = Study(tmp_path / "journal.log", settings())
    for attempt in (study.next(2), study.next(2)):
        assert attempt is not None
        reason = "cannot log in with hunter-two-of-a-trial at https://user:password-of-it@host"
        study.end(attempt, Outcome("FAILED", reason=reason)) if attempt.trial else study.killed(attempt, reason)
    body = (tmp_path / "journal.log").read_text()
    assert "cannot log in" in body
    assert "hunter" not in body
    assert "password-of-it" not in body


def test_a_grid_has_what_only_looks_like_a_first_trial(tmp_path: Path) -> None:
    chosen = settings({"flag": dt.choice(1, True, 0, False)}, sampler="grid", first=({"flag": True},))
    study = Study(tmp_path / "journal.log", chosen)
    tried = []
    while (attempt := study.next(None)) is not None:
        study.end(attempt, Outcome("COMPLETE", (1.0,)))
        tried.append(attempt.hyperparameters["flag"])
    assert list(map(repr, tried)) == ["True", "1", "0", "False"]


def test_a_killed_trial_is_tried_again_as_it_was(tmp_path: Path) -> None:
    study = Study(tmp_path / "journal.log", settings(sampler="random", seed=1, epochs=4))
    first, second = study.next(3), study.next(3)
    assert first is not None
    assert second is not None
    study.report(first, curve(first.hyperparameters, 2))
    study.killed(first, "it was ended by SIGKILL")
    again = study.next(3)
    assert again is not None
    assert (again.trial, again.hyperparameters) == (first.trial, first.hyperparameters)
    work(study, again)
    work(study, second)
    trial = study.trials()[0]
    assert trial.kills == ("it was ended by SIGKILL",)
    assert trial.outcome is not None
    assert trial.outcome.state == "COMPLETE"


def test_a_trial_that_is_always_killed_fails_and_blocks_nothing(tmp_path: Path) -> None:
    study = Study(tmp_path / "journal.log", settings(sampler="tpe", epochs=4))
    attempts = 0
    while (attempt := study.next(4)) is not None:
        if attempt.trial == 1:
            attempts += 1
            study.killed(attempt, "it was ended by SIGKILL")
        else:
            work(study, attempt)
    assert attempts == ATTEMPTS
    outcomes = [trial.outcome for trial in study.trials()]
    assert [outcome.state for outcome in outcomes if outcome] == ["COMPLETE", "FAILED", "COMPLETE", "COMPLETE"]
    assert outcomes[1] is not None
    assert outcomes[1].reason == f"its process was ended {ATTEMPTS} times: it was ended by SIGKILL"


def test_a_trial_that_always_dies_with_the_search_fails_and_blocks_nothing(tmp_path: Path) -> None:
    """And a search that is stopped in order, or dies between two trials, has not died of a trial."""
    chosen, journal = settings(sampler="random", seed=1, epochs=4), tmp_path / "0.log"
    for death in range(ATTEMPTS):
        study = Study(journal, chosen)
        assert [len(trial.kills) for trial in study.trials()] == [death][: bool(death)]
        attempt = study.next(2)
        assert attempt is not None
        assert attempt.trial == 0
        with study.here(attempt):
            journal = Path(shutil.copy(journal, tmp_path / f"{death + 1}.log"))  # as it is where the process dies now
    for _ in range(ATTEMPTS):
        study = Study(journal, chosen)
        attempt = study.next(2)
        assert attempt is not None
        assert attempt.trial == 1
        with pytest.raises(KeyboardInterrupt), study.here(attempt):
            raise KeyboardInterrupt
        assert Study(journal, chosen).next(2) is not None  # begun, and gone before it was trained
    study = Study(journal, chosen)
    attempt = study.next(2)
    assert attempt is not None
    with study.here(attempt):
        work(study, attempt)
    first, second = Study(journal, chosen).trials()
    assert first.outcome is not None
    assert first.outcome.state == "FAILED"
    assert first.outcome.reason == f"its process was ended {ATTEMPTS} times: {first.kills[0]}"
    assert first.kills[0].startswith("the search, in the same process, ended with it")
    assert second.outcome is not None
    assert (second.outcome.state, second.kills) == ("COMPLETE", ())


def test_a_grid_is_searched_once_in_order(tmp_path: Path) -> None:
    space = {"units": dt.integers(16, 64, step=16), "optimizer": dt.choice("adam", "sgd")}
    best = {"units": 64, "optimizer": "sgd"}
    study = Study(tmp_path / "journal.log", settings(space, sampler="grid", first=(best,)))
    tried = []
    while (attempt := study.next(None)) is not None:
        tried.append(attempt.hyperparameters)
        study.end(attempt, Outcome("COMPLETE", (0.0,)))
    assert tried[0] == best
    assert [best, *tried[1:]] == [best, *(p for p in SearchSpace.read(space).grid if p != best)]


def test_what_depends_on_another_is_drawn_where_it_exists(tmp_path: Path) -> None:
    space = {"optimizer": dt.choice("adam", "sgd"), "momentum": dt.uniform(0, 1, only_if={"optimizer": "sgd"})}
    for sampler in ("tpe", "random", "cmaes"):
        study = Study(tmp_path / f"{sampler}.log", settings(space, sampler=sampler))
        kinds = set()
        while (attempt := study.next(25)) is not None:
            chosen = attempt.hyperparameters
            assert SearchSpace.read(space).problem_of(chosen) is None
            kinds.add((chosen["optimizer"], len(chosen)))
            study.end(attempt, Outcome("COMPLETE", (float(len(chosen)),)))
        assert kinds == {("adam", 1), ("sgd", 2)}


def test_an_earlier_studys_trials_teach_the_sampler(tmp_path: Path) -> None:
    chosen = settings(sampler="tpe", seed=3, epochs=4)
    old = Study(tmp_path / "old.log", chosen)
    run(old, 30)
    known = [(t.hyperparameters, t.outcome) for t in old.trials() if t.outcome is not None]
    journal = tmp_path / "new.log"
    Study(journal, chosen).add_earlier(known[:7])  # left half way
    study = Study(journal, chosen)
    study.add_earlier(known)
    assert study.trials() == []
    warm = [values[0] for _, _, values in run(study, 8)]
    cold = [values[0] for _, _, values in run(Study(tmp_path / "cold.log", chosen), 8)]
    assert np.median(warm) < np.median(cold)


def test_importance_is_measured_where_it_is(tmp_path: Path) -> None:
    study = Study(tmp_path / "journal.log", settings(sampler="random", epochs=4))
    assert study.importances()[1] == {}
    while (attempt := study.next(40)) is not None:
        study.end(attempt, Outcome("COMPLETE", (attempt.hyperparameters["units"] / 16.0,)))
    importances = study.importances()[1]["eval_loss"]
    assert importances["units"] > 0.8
    assert sum(importances.values()) == pytest.approx(1)


def test_several_objectives(tmp_path: Path) -> None:
    study = Study(tmp_path / "j.log", settings(objective={"accuracy": "max", "eval_loss": "min"}))
    while (attempt := study.next(12)) is not None:
        assert study.report(attempt, [[1.0, 2.0]]) is None
        study.end(attempt, Outcome("COMPLETE", (value(attempt.hyperparameters), attempt.hyperparameters["rate"])))
    assert len(study.trials()) == 12


@pytest.mark.parametrize(("module", "sampler"), [("optuna", "tpe"), ("cmaes", "cmaes")])
def test_a_missing_extra_is_named(module: str, sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DrivetrainError, match=f"{module} is not installed") as error:
        check_installed(sampler)
    assert "drivetrain[tuning]" in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sampler": "tpee"}, "there is no sampler 'tpee'"),
        ({"pruner": "halving"}, "there is no pruner 'halving'"),
        ({"sampler": "grid"}, "whose range is continuous"),
        ({"objective": {"a": "max", "b": "min"}, "pruner": "asha"}, "there are 2 objectives"),
        ({"objective": {"a": "max", "b": "min"}, "sampler": "cmaes"}, "CMA-ES has one objective"),
        ({"space": {"o": dt.choice(1, 2)}, "sampler": "cmaes"}, "CMA-ES searches numbers"),
        ({"first": ({"rate": 7.0, "units": 16, "optimizer": "sgd"},)}, "'rate' cannot be 7.0"),
        ({"first": (3,)}, "3 does not name hyperparameters"),
    ],
)
def test_what_cannot_be_searched_is_refused(options: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        settings(**options)
