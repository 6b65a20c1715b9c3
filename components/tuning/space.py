"""Search spaces: which values each hyperparameter may have, as JSON that a pipeline holds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, cast

from ...errors import InputError, suggest

Value = Any
"""JSON: what a hyperparameter may be."""
Conditions = Mapping[str, Value]
"""Other hyperparameters by name, each with the value, or a list of the values, that it must have."""

_MOST_POINTS: Final = 1_000_000
"""Of a grid. One that is larger is a mistake, and would be listed in memory."""


class Domain(TypedDict, total=False):
    """The values of one hyperparameter. Make one by `uniform`, `log_uniform`, `integers` or `choice`.

    Attributes:
        kind: Numbers of which sort, or a choice.
        low: The smallest number.
        high: The largest number, itself among the values.
        step: Numbers are this far apart, from `low` on; None where any may be drawn.
        log: Whether equal ratios are equally likely.
        values: Of a choice.
        only_if: When there is such a hyperparameter at all: see `Conditions`.
    """

    kind: Literal["float", "integer", "choice"]
    low: float
    high: float
    step: float | None
    log: bool
    values: list[Value]
    only_if: dict[str, list[Value]]


def uniform(low: float, high: float, *, step: float | None = None, only_if: Conditions | None = None) -> Domain:
    """Numbers from low to high, both included, equally likely.

    Args:
        low: The smallest.
        high: The largest.
        step: Take only low, low + step, … high; None takes any number.
        only_if: The hyperparameter exists only where others have these values, e.g. `{"optimizer": "sgd"}`.

    Raises:
        InputError: Bounds that hold no range, or a step that does not lead from one to the other.
    """
    return _checked({"kind": "float", "low": low, "high": high, "step": step, "log": False}, only_if)


def log_uniform(low: float, high: float, *, only_if: Conditions | None = None) -> Domain:
    """Numbers from low to high, both included, of which 0.001 to 0.01 is as likely as 0.01 to 0.1.

    Args:
        low: The smallest, above 0.
        high: The largest.
        only_if: The hyperparameter exists only where others have these values.

    Raises:
        InputError: Bounds that hold no range, or a low that is not above 0.
    """
    return _checked({"kind": "float", "low": low, "high": high, "step": None, "log": True}, only_if)


def integers(low: int, high: int, *, step: int = 1, log: bool = False, only_if: Conditions | None = None) -> Domain:
    """Whole numbers from low to high, both included.

    Args:
        low: The smallest.
        high: The largest.
        step: How far they are apart.
        log: Whether equal ratios are equally likely, as in `log_uniform`; then low is 1 or more, and the step 1.
        only_if: The hyperparameter exists only where others have these values.

    Raises:
        InputError: Bounds that hold no range, or a step that does not lead from one to the other.
    """
    return _checked({"kind": "integer", "low": low, "high": high, "step": step, "log": log}, only_if)


def choice(*values: Value, only_if: Conditions | None = None) -> Domain:
    """One of some JSON values: texts, numbers, booleans, None, lists.

    Args:
        *values: Two or more, no two of them equal.
        only_if: The hyperparameter exists only where others have these values.

    Raises:
        InputError: Fewer than two values, two that are equal, or one that is not JSON.
    """
    return _checked({"kind": "choice", "values": list(values)}, only_if)


def _checked(domain: Domain, only_if: Conditions | None) -> Domain:
    if only_if:
        domain["only_if"] = {name: _listed(values) for name, values in only_if.items()}
    if (problem := _problem(domain)) is not None:
        raise InputError(*problem[:1], fix=problem[1])
    return domain


def _listed(values: Value) -> list[Value]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


_KINDS: Final = {"float": (int, float), "integer": (int,)}
_FARTHEST: Final = {"float": 1e300, "integer": 2**53}
"""Of twice the first the length is finite; beyond the second Optuna, which counts in floats, has not every integer."""
_BOUNDS: Final = {"float": "finite numbers, up to 1e300", "integer": "whole numbers, up to 2**53"}


def _problem(domain: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with a domain, and the fix; None where nothing is. It may be what a person wrote by hand."""
    kind = domain.get("kind")
    if not isinstance(domain.get("only_if", {}), Mapping):
        return f"only_if is {domain['only_if']!r:.40}", "name other hyperparameters, each with its values"
    if kind == "choice":
        return _problem_of_choice(domain.get("values"))
    if not isinstance(kind, str) or kind not in _KINDS:
        return f"{domain!r:.80} is no domain", "use dt.uniform, dt.log_uniform, dt.integers or dt.choice"
    low, high, step, log = (domain.get(name) for name in ("low", "high", "step", "log"))
    for bound in (low, high, *(() if step is None else (step,))):
        if not isinstance(bound, _KINDS[kind]) or isinstance(bound, bool) or not abs(bound) <= _FARTHEST[kind]:
            return f"{bound!r:.40} is no bound of a range of {kind}s", f"give {_BOUNDS[kind]}"
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    if low >= high:
        return f"the range from {low} to {high} is empty", "give a low that is smaller than the high"
    if log and low <= 0:
        return f"a logarithmic range cannot begin at {low}", "begin above 0, such as at 1e-5"
    if log and step not in (None, 1):
        return f"a logarithmic range has no step, such as {step}", "leave out the step or the logarithm"
    if step is None:
        return None
    assert isinstance(step, (int, float))
    if step <= 0:
        return f"the step {step} leads nowhere", "use one above 0"
    steps = (high - low) / step
    if abs(steps - round(steps)) > 1e-9 * max(1.0, steps):
        return f"steps of {step} do not lead from {low} to {high}", "use bounds that are a multiple of the step apart"
    return None


def _problem_of_choice(values: object) -> tuple[str, str] | None:
    if not isinstance(values, (list, tuple)) or len(values) < 2:
        return "a choice has two values or more", "give them one by one: dt.choice('adam', 'sgd')"
    try:
        texts = [_text(value) for value in values]
    except (TypeError, ValueError):
        return f"a choice holds what is not JSON: {values!r:.80}", "use texts, numbers, booleans, None or lists of them"
    if len(set(texts)) < len(texts):
        return f"a choice names a value twice: {values!r:.80}", "name each once"
    return None


def _text(value: Value) -> str:
    """A JSON value as text by which it is equal to another: 1, 1.0 and True are three."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


@dataclass(frozen=True)
class SearchSpace:
    """All hyperparameters that are searched.

    Attributes:
        domains: By name, each after those that it depends on.
    """

    domains: Mapping[str, Domain]

    @classmethod
    def read(cls, space: Mapping[str, object]) -> SearchSpace:
        """The space that a pipeline holds.

        Raises:
            InputError: It is empty, or a domain is none, or depends on what cannot be.
        """
        if not space:
            raise InputError(
                "the search space is empty", fix='name what is searched: space={"learning_rate": dt.log_uniform(…)}'
            )
        domains: dict[str, Domain] = {}
        for name, domain in space.items():
            problem = _problem(domain) if isinstance(domain, Mapping) else (f"{domain!r:.80} is no domain", "")
            if problem is not None:
                fix = problem[1] or "use dt.uniform, dt.log_uniform, dt.integers or dt.choice"
                raise InputError(f"the hyperparameter {name!r}: {problem[0]}", fix=fix)
            domains[name] = _complete(domain)
        for name, domain in domains.items():
            _check_conditions(name, domain, domains)
        return cls(_in_order(domains))

    def draw(self, pick: Callable[[str, Domain], Value]) -> dict[str, Value]:
        """Values by name, of those hyperparameters that exist beside the others: `pick` gives each."""
        drawn: dict[str, Value] = {}
        for name, domain in self.domains.items():
            if is_active(domain, drawn):
                drawn[name] = pick(name, domain)
        return drawn

    def problem_of(self, hyperparameters: Mapping[str, Value]) -> str | None:
        """Why values cannot be of this space; None where they can."""
        body: object = hyperparameters  # a person has written them
        if not isinstance(body, Mapping):
            return f"{body!r:.40} does not name hyperparameters"
        for name, domain in self.domains.items():
            if not is_active(domain, hyperparameters):
                continue
            if name not in hyperparameters:
                return f"{name!r} is missing"
            if not contains(domain, hyperparameters[name]):
                return f"{name!r} cannot be {hyperparameters[name]!r:.40}"
        for name in hyperparameters:
            if name not in self.domains:
                return f"{name!r} is not in the space"
            if not is_active(self.domains[name], hyperparameters):
                return f"{name!r} does not exist beside the others"
        return None

    @cached_property
    def grid(self) -> list[dict[str, Value]]:
        """Every combination, in order: the last hyperparameter changes first.

        Raises:
            InputError: A range is continuous, or there are more than a million combinations.
        """
        points: list[dict[str, Value]] = [{}]
        for name, domain in self.domains.items():
            values = list(_values(name, domain))
            if sum(len(values) if is_active(domain, point) else 1 for point in points) > _MOST_POINTS:
                raise InputError(
                    f"the grid has more than {_MOST_POINTS:,} points", fix='use larger steps, or sampler="random"'
                )
            points = [
                wider
                for point in points
                for wider in ([{**point, name: value} for value in values] if is_active(domain, point) else [point])
            ]
        return points


def is_active(domain: Domain, hyperparameters: Mapping[str, Value]) -> bool:
    """Whether there is such a hyperparameter beside others that have these values."""
    return all(
        name in hyperparameters and _text(hyperparameters[name]) in map(_text, values)
        for name, values in domain.get("only_if", {}).items()
    )


def contains(domain: Domain, value: Value) -> bool:
    """Whether a value is one of the domain's."""
    if domain["kind"] == "choice":
        return _text(value) in map(_text, domain["values"])
    if not isinstance(value, _KINDS[domain["kind"]]) or isinstance(value, bool):
        return False
    step = domain.get("step")
    if step is None:
        return domain["low"] <= value <= domain["high"]
    steps, most = (value - domain["low"]) / step, round((domain["high"] - domain["low"]) / step)
    return 0 <= round(steps) <= most and abs(steps - round(steps)) <= 1e-9 * max(1.0, steps)


def last_of(domain: Domain) -> float:
    """The largest number, of a range with steps by adding them as decimals: so Optuna does, which leaves out others."""
    step = domain.get("step")
    if domain["kind"] == "integer" or step is None:
        return domain["high"]
    low, size = Decimal(str(domain["low"])), Decimal(str(step))
    last = low + round((domain["high"] - domain["low"]) / step) * size
    return float(last) if Decimal(str(float(last))) >= last else math.nextafter(float(last), math.inf)


def index_of(domain: Domain, value: Value) -> int:
    """Where in a choice a value stands."""
    return [_text(each) for each in domain["values"]].index(_text(value))


def _values(name: str, domain: Domain) -> Iterator[Value]:
    if domain["kind"] == "choice":
        yield from domain["values"]
        return
    low, step = domain["low"], domain.get("step")
    if step is None:
        raise InputError(
            f"a grid cannot hold the hyperparameter {name!r}, whose range is continuous",
            fix='give it a step, or dt.choice(…) of some values; or use sampler="random"',
        )
    for number in range(round((domain["high"] - low) / step) + 1):
        value = low + number * step
        yield int(value) if domain["kind"] == "integer" else float(f"{value:.15g}")


def _complete(domain: Any) -> Domain:
    """A domain as our functions make it, of one that a person wrote as JSON and that is none the worse."""
    whole = cast(Domain, dict(domain))
    if whole["kind"] != "choice":
        whole.setdefault("step", 1 if whole["kind"] == "integer" else None)
        whole.setdefault("log", False)
    if "only_if" in whole:
        whole["only_if"] = {name: _listed(values) for name, values in whole["only_if"].items()}
    return whole


def _check_conditions(name: str, domain: Domain, domains: Mapping[str, Domain]) -> None:
    for other, values in domain.get("only_if", {}).items():
        if other not in domains or other == name:
            fix = suggest(other, [each for each in domains if each != name], "the space has")
            raise InputError(f"the hyperparameter {name!r} depends on {other!r}, which is not in the space", fix=fix)
        if domains[other]["kind"] == "float":  # of which 1 is 1.0
            values[:] = [float(value) if type(value) is int else value for value in values]
        for value in values:
            if not contains(domains[other], value):
                raise InputError(
                    f"the hyperparameter {name!r} depends on {other!r} being {value!r:.40}, which it cannot be",
                    fix=f"name one of the values of {other!r}",
                )


def _in_order(domains: Mapping[str, Domain]) -> dict[str, Domain]:
    """The domains as they are written, but each after those that it depends on."""
    ordered: dict[str, Domain] = {}
    while len(ordered) < len(domains):
        ready = [
            name
            for name, domain in domains.items()
            if name not in ordered and all(other in ordered for other in domain.get("only_if", {}))
        ]
        if not ready:
            circle = [name for name in domains if name not in ordered]
            raise InputError(
                f"the hyperparameters {', '.join(map(repr, circle))} depend on each other in a circle",
                fix="let one of them exist always",
            )
        ordered[ready[0]] = domains[ready[0]]
    return ordered


def described(hyperparameters: Mapping[str, Value], most: int = 6) -> str:
    """Hyperparameters as a line for people, e.g. "learning_rate 0.01, units 64"."""
    shown = [f"{name} {short(value)}" for name, value in list(hyperparameters.items())[:most]]
    return ", ".join([*shown, *(["…"] if len(hyperparameters) > most else [])])


def short(value: Value) -> str:
    """A value for people: numbers with four digits that count."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
