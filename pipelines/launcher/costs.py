"""What executions cost: prices and budgets as `costs.yaml` says them, and sums of what was used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from ...metadata import ExecutionRecord
from ...metadata.finding import RecordQuery
from ...metadata.records import TRIAL
from ...yaml_lines import YamlValue, read_yaml
from .home import Home

COSTS: Final = "costs.yaml"
"""Prices and budgets, beside a root's project."""
_PRICES: Final = ("cpu_hour", "gpu_hour", "gb_read", "gb_written", "kwh")
_LIMITS: Final = ("money", "cpu_hours", "kwh")
_HOUR: Final = 3600.0
_MOST: Final = 1e18  # of whatever is counted
_GB: Final = 1e9
_KWH: Final = 3.6e6
"""Joules."""


@dataclass(frozen=True)
class Prices:
    """What is paid for what executions use.

    Attributes:
        currency: Of all prices; "" where none is named.
        of: The price of an hour of a core (`cpu_hour`), of 10^9 bytes (`gb_read`, `gb_written`), of a `kwh`.
        gpu_hour: Prices of an hour of an accelerator: a pattern of its model, the price; the first that fits counts.
        co2_grams_per_kwh: None where it is not said.
    """

    currency: str = ""
    of: Mapping[str, float] = field(default_factory=dict)
    gpu_hour: tuple[tuple[str, float], ...] = ()
    co2_grams_per_kwh: float | None = None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.of or self.gpu_hour)

    def money(self, resources: Mapping[str, Any]) -> float:
        """What an execution cost, by the resources that it recorded."""
        model = str(resources.get("accelerator", ""))
        amounts = {
            "cpu_hour": amount_of(resources, "cpu_seconds") / _HOUR,
            "gb_read": amount_of(resources, "bytes_read") / _GB,
            "gb_written": amount_of(resources, "bytes_written") / _GB,
            "kwh": amount_of(resources, "joules") / _KWH,
        }
        of_gpu = next((price for pattern, price in self.gpu_hour if fnmatchcase(model, pattern)), 0.0)
        gpus = of_gpu * amount_of(resources, "gpu_seconds") / _HOUR
        return gpus + sum(price * amounts[name] for name, price in self.of.items())


@dataclass(frozen=True)
class Budget:
    """What the runs of some pipelines may use in a period, together.

    Attributes:
        pipeline: A pattern of their names.
        period: "day", "week" (from Monday) or "month", in UTC.
        limit: How much.
        unit: Of what: "money", "cpu_hours" or "kwh".
        stops: Whether no run begins once it is used up; else that is only said.
        where: The file and the line.
        currency: Of money.
    """

    pipeline: str
    period: str
    limit: float
    unit: str
    stops: bool
    where: str
    currency: str = ""

    def __str__(self) -> str:
        return f"the budget of {self.spelled(self.limit)} a {self.period} for pipelines {self.pipeline}"

    def spelled(self, amount: float) -> str:
        """An amount with its unit."""
        unit = {"money": self.currency, "cpu_hours": "CPU hours", "kwh": "kWh"}[self.unit]
        return f"{amount:,.2f} {unit}".rstrip() if self.unit == "money" else f"{amount:,.3g} {unit}"

    def bounds(self, moment: datetime) -> tuple[datetime, datetime]:
        """When the period that holds a moment begins, and when it is over."""
        day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.period == "day":
            return day, day + timedelta(days=1)
        if self.period == "week":
            monday = day - timedelta(days=day.weekday())
            return monday, monday + timedelta(days=7)
        first = day.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)


@dataclass(frozen=True)
class CostSettings:
    """What `costs.yaml` says."""

    prices: Prices = field(default_factory=Prices)
    budgets: tuple[Budget, ...] = ()


@dataclass
class CostSum:
    """What several executions used, and what it cost.

    Attributes:
        prices: What is paid.
        executions: How many there were.
        cached: How many of them used nothing, as earlier work stood in.
        unmeasured: How many did work that nobody measured: they were killed, or an earlier release recorded them.
        cpu_seconds, gpu_seconds, bytes_read, bytes_written, joules: Sums.
        peak_memory: Bytes, the largest.
        is_estimate: Whether joules of any were estimated.
        money: In the prices' currency.
        saved: What the work would have used for which earlier work stood in; None where there was none.
    """

    prices: Prices
    executions: int = 0
    cached: int = 0
    unmeasured: int = 0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    joules: float = 0.0
    peak_memory: int = 0
    is_estimate: bool = False
    money: float = 0.0
    saved: CostSum | None = None

    def add(self, execution: ExecutionRecord, source: ExecutionRecord | None = None) -> None:
        """Add an execution; with the one that it reuses, where it is cached."""
        resources = execution.resources
        self.executions += 1
        if source is not None:
            self.cached += 1
            self.saved = self.saved or CostSum(self.prices)
            self.saved.add(source)
        elif resources:
            self._use(resources)
        elif execution.state in ("COMPLETE", "FAILED", "CANCELED", "ABANDONED") and execution.cache_key is not None:
            self.unmeasured += 1

    def _use(self, resources: Mapping[str, Any]) -> None:
        for name in ("cpu_seconds", "gpu_seconds", "bytes_read", "bytes_written", "joules"):
            setattr(self, name, getattr(self, name) + amount_of(resources, name))
        self.peak_memory = max(self.peak_memory, round(amount_of(resources, "peak_memory")))
        self.is_estimate = self.is_estimate or resources.get("energy") != "measured"
        self.money += self.prices.money(resources)

    def to_json(self) -> dict[str, Any]:
        """Hours, GB (10^9 bytes), kWh, money; `saved` has those that the cache saved."""
        saved = self.saved or CostSum(self.prices)
        return {
            "executions": self.executions,
            "cached": self.cached,
            "unmeasured": self.unmeasured,
            "peak_memory": self.peak_memory,
            "gb_read": self.bytes_read / _GB,
            "gb_written": self.bytes_written / _GB,
            "estimated": self.is_estimate or saved.is_estimate,
            **self._amounts(),
            "saved": saved._amounts(),
        }

    def _amounts(self) -> dict[str, float | None]:
        grams, kwh = self.prices.co2_grams_per_kwh, self.joules / _KWH
        return {
            "cpu_hours": self.cpu_seconds / _HOUR,
            "gpu_hours": self.gpu_seconds / _HOUR,
            "kwh": kwh,
            "co2_grams": None if grams is None else grams * kwh,
            "money": self.money if self.prices else None,
        }

    def amount(self, unit: str) -> float:
        """How much of a budget's unit."""
        return {"money": self.money, "cpu_hours": self.cpu_seconds / _HOUR, "kwh": self.joules / _KWH}[unit]


def all_executions(home: Home, where: str) -> Iterator[ExecutionRecord]:
    """The executions that a filter fits, the oldest first, without trials: their work is part of a task's."""
    after: str | None = None
    while True:
        page = home.store.find_executions(RecordQuery(where, "id", 500, after))
        yield from (each for each in page.records if each.component != TRIAL)
        if (after := page.next) is None:
            return


def read_costs(path: Path) -> CostSettings:
    """The prices and budgets in a YAML file.

    Raises:
        InputError: It cannot be read, or something in it is neither; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "name a file that is there, in UTF-8; costs.yaml may be left out"
        raise InputError(f"{path} cannot be read: {error}", fix=fix) from None
    document = read_yaml(text, path.name, name="the file of costs")
    if document is None:
        raise InputError(f"{path} is empty", fix="write `currency: EUR`, and `prices:` with e.g. `cpu_hour: 0.04`")
    entries = document.mapping(("currency", "prices", "co2_grams_per_kwh", "budgets"))
    of = entries["prices"].mapping(_PRICES, unknown="there is no price of") if "prices" in entries else {}
    if of and "currency" not in entries:
        raise entries["prices"].error("the prices have no currency", "add `currency: EUR`")
    prices = Prices(
        entries["currency"].string() if "currency" in entries else "",
        {name: _not_negative(value) for name, value in of.items() if name != "gpu_hour"},
        _of_gpus(of["gpu_hour"]) if "gpu_hour" in of else (),
        _not_negative(entries["co2_grams_per_kwh"]) if "co2_grams_per_kwh" in entries else None,
    )
    items = entries["budgets"].items() if "budgets" in entries else []
    return CostSettings(prices, tuple(_budget(item, prices) for item in items))


def _of_gpus(value: YamlValue) -> tuple[tuple[str, float], ...]:
    if not value.is_mapping:
        return (("*", _not_negative(value)),)
    return tuple((pattern, _not_negative(price)) for pattern, price in value.mapping().items())


def _budget(item: YamlValue, prices: Prices) -> Budget:
    entries = item.mapping(
        ("pipeline", "period", "action", *_LIMITS), required=("period", "action"), unknown="a budget has no key"
    )
    limits = [name for name in _LIMITS if name in entries]
    if len(limits) != 1:
        raise item.error(
            f"{item.name} has {'no limit' if not limits else 'more than one limit'}",
            f"write one of {', '.join(_LIMITS)}",
        )
    if limits == ["money"] and not prices:
        raise entries["money"].error(f"{item.name} is of money, and there are no prices", "add prices:")
    return Budget(
        pipeline=entries["pipeline"].string() if "pipeline" in entries else "*",
        period=entries["period"].choice("day", "week", "month"),
        limit=_not_negative(entries[limits[0]]),
        unit=limits[0],
        stops=entries["action"].choice("warn", "stop") == "stop",
        where=item.where,
        currency=prices.currency,
    )


def _not_negative(value: YamlValue) -> float:
    number = value.number()
    if not 0 <= number < math.inf:
        raise value.error(f"{value.name} is {value.text()}", "give a number that is not negative")
    return number


def amount_of(resources: Mapping[str, Any], name: str) -> float:
    """A recorded number; 0 where it was not counted, or what stands there, in a damaged row say, can be none."""
    value = resources.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MOST:
        return 0.0
    return float(value)
