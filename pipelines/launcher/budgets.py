"""Budgets: what was used of them in their periods, and whether a run may begin."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from ...errors import InputError
from ...metadata.rows import when
from .costs import COSTS, Budget, CostSettings, CostSum, all_executions, read_costs
from .home import Home

OVER_BUDGET: Final = "DRIVETRAIN_OVER_BUDGET"
"""The environment variable that lets runs begin though a budget that stops them is used up."""


@dataclass(frozen=True)
class BudgetState:
    """How far a budget is used up in the period of now.

    Attributes:
        budget: The budget.
        spent: How much of its unit was used by executions that have ended in the period.
        end: When the period is over, UTC.
    """

    budget: Budget
    spent: float
    end: datetime

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.budget.limit

    def __str__(self) -> str:
        spent = self.budget.spelled(self.spent)
        used_up = "is used up" if self.is_used_up else "is not used up"
        return f"{self.budget} {used_up}: {spent} by now; it starts again on {self.end:%Y-%m-%d} at 00:00 UTC"

    def to_json(self) -> dict[str, Any]:
        """As `cost --json` prints it."""
        budget = self.budget
        return {
            "pipeline": budget.pipeline,
            "period": budget.period,
            "unit": budget.unit,
            "limit": budget.limit,
            "spent": self.spent,
            "until": self.end.isoformat(),
            "action": "stop" if budget.stops else "warn",
            "used_up": self.is_used_up,
        }


def budget_states(home: Home, settings: CostSettings, pipeline: str | None = None) -> list[BudgetState]:
    """How far budgets are used up, by the store's clock; where a pipeline is named, those that it falls under."""
    now = when(home.store.now())
    names = [context.name for context in home.store.contexts("pipeline", limit=None)]
    states = []
    for budget in settings.budgets:
        if pipeline is not None and not fnmatchcase(pipeline, budget.pipeline):
            continue
        begin, end = budget.bounds(now)
        spent = CostSum(settings.prices)
        if matching := [_quoted(name) for name in names if fnmatchcase(name, budget.pipeline)]:
            period = f"finished >= '{begin.isoformat()}' and finished < '{end.isoformat()}'"
            measured = "property.resources.cpu_seconds is not null"
            where = f"{period} and {measured} and pipeline in ({', '.join(matching)})"
            for execution in all_executions(home, where):
                spent.add(execution)
        states.append(BudgetState(budget, spent.amount(budget.unit), end))
    return states


def check_budgets(home: Home, pipeline: str, *, over: bool) -> list[str]:
    """See that a run of a pipeline may begin by the budgets beside its project.

    Args:
        home: Where the run would lie.
        pipeline: The pipeline's name.
        over: Whether it is to begin though one that stops runs is used up.

    Returns:
        The budgets that it goes over as it was told to; of one that only warns, that is said in the log.

    Raises:
        InputError: One that stops runs is used up; or the file is wrong.
    """
    over = over or os.environ.get(OVER_BUDGET, "") not in ("", "0")
    passed = []
    for state in budget_states(home, read_costs(home.base / COSTS), pipeline):
        if not state.is_used_up:
            continue
        if state.budget.stops and not over:
            raise InputError(
                str(state),
                where=state.budget.where,
                fix="wait until then, raise the limit, or begin it all the same with --over-budget or "
                f"{OVER_BUDGET}=1, which the run records",
            )
        if state.budget.stops:
            passed.append(str(state))
        logging.getLogger(__name__).warning("%s: %s", state.budget.where, state)
    return passed


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
