"""Spans in file patterns: `{SPAN}`, `{VERSION}` and `{YYYY}{MM}{DD}`, found among the files that are there.

A span is a whole number that says which part of the data a file belongs to, newer parts having larger ones; a date is
the span of its days since 1970-01-01. A version tells apart what was delivered for the same span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from ...errors import InputError

_SPEC: Final = r"\{(SPAN|VERSION)(?::([^{}]*))?\}|\{(YYYY|MM|DD)\}"
_DIGITS: Final = {"YYYY": 4, "MM": 2, "DD": 2}
_EPOCH: Final = date(1970, 1, 1)
_GLOB: Final = r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]"

Lister = Callable[[str], tuple[list[str], str]]
"""Of a glob pattern: the files that match it, spelled as the pattern is, and where it was looked up."""


class SpanMatch(NamedTuple):
    """What was found for a pattern: its span, 0 where it names none; its version; the pattern with both filled in."""

    span: int
    version: int | None
    pattern: str


class _Spec(NamedTuple):
    """A piece of a pattern that stands for digits: so many, or any number where `width` is 0."""

    name: str
    width: int
    start: int
    end: int


@dataclass(frozen=True)
class SpanPattern:
    """A glob pattern in which specs stand for digits; see `parse`."""

    text: str
    specs: tuple[_Spec, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its specs."""
        return frozenset(spec.name for spec in self.specs)

    @property
    def has_span(self) -> bool:
        """Whether it names a span, as a number or a date."""
        return bool(self.names - {"VERSION"})

    def filled(self, digits: Mapping[str, str], *, loosely: bool = False) -> str:
        """The glob pattern with these digits filled in, and wildcards in place of the other specs."""
        parts, at = [], 0
        for spec in self.specs:
            any_digits = "[0-9]" * spec.width if spec.width and not loosely else "*"
            parts += [self.text[at : spec.start], digits.get(spec.name, any_digits)]
            at = spec.end
        return "".join([*parts, self.text[at:]])

    @cached_property
    def matcher(self) -> re.Pattern[str]:
        """Matches the paths of its files; a group of each spec's name holds the digits."""
        parts, at = [], 0
        for spec in self.specs:
            many = f"{{{spec.width}}}" if spec.width else "+"
            parts += [_expression(self.text[at : spec.start]), f"(?P<{spec.name}>[0-9]{many})"]
            at = spec.end
        return re.compile("".join([*parts, _expression(self.text[at:])]), re.DOTALL)

    def digits(self, span: int | None, version: int | None) -> dict[str, str]:
        """The digits that stand for a span and a version in a path; none for those that are None.

        Raises:
            InputError: One is negative, or needs more digits than its spec has; the pattern names none.
        """
        digits: dict[str, str] = {}
        for what, value, there in (("span", span, self.has_span), ("version", version, "VERSION" in self.names)):
            if value is None:
                continue
            if type(value) is not int or value < 0:  # JSON values, which may be of any type
                raise InputError(f"{self.text!r}: the {what} is {value!r:.40}", fix="give a whole number, 0 or more")
            if not there:
                raise InputError(
                    f"{self.text!r} names no {what}, and {what} {value} is wanted",
                    fix=f"write {{{what.upper()}}} in it",
                )
        if span is not None and "SPAN" not in self.names:
            try:
                day = _EPOCH + timedelta(days=span)
            except OverflowError:
                raise InputError(f"{self.text!r}: no date is span {span}", fix="give days since 1970-01-01") from None
            digits |= {"YYYY": f"{day.year:04}", "MM": f"{day.month:02}", "DD": f"{day.day:02}"}
            span = None
        for spec in self.specs:
            number = {"SPAN": span, "VERSION": version}.get(spec.name)
            if number is not None:
                digits[spec.name] = f"{number:0{spec.width or 1}}"
                if spec.width and len(digits[spec.name]) > spec.width:
                    raise InputError(
                        f"{self.text!r}: {spec.name.lower()} {number} has more than {spec.width} digits",
                        fix=f"write {{{spec.name}:{len(digits[spec.name])}}}",
                    )
        return digits

    def read(self, path: str) -> tuple[int, int | None, dict[str, str]] | None:
        """The span, the version and the digits of a path; None where it does not match.

        Raises:
            InputError: Its date does not exist, or is before 1970.
        """
        match = self.matcher.fullmatch(path)
        if match is None:
            return None
        digits = match.groupdict()
        version = int(digits["VERSION"]) if "VERSION" in digits else None
        if "YYYY" not in digits:
            return int(digits.get("SPAN", "0")), version, digits
        try:
            day = date(int(digits["YYYY"]), int(digits["MM"]), int(digits["DD"]))
        except ValueError:
            day_text = f"{digits['YYYY']}-{digits['MM']}-{digits['DD']}"
            raise InputError(
                f"{path}: {day_text} is not a valid date", fix=f"rename it, or change {self.text!r}"
            ) from None
        if day < _EPOCH:
            raise InputError(f"{path}: {day} is before {_EPOCH}, where spans begin", fix="leave it out of the pattern")
        return (day - _EPOCH).days, version, digits


def has_specs(pattern: str) -> bool:
    """Whether a pattern names a span or a version."""
    return re.search(_SPEC, pattern) is not None


def parse(pattern: str) -> SpanPattern:
    """A pattern with its specs.

    `{SPAN}` and `{VERSION}` stand for a whole number, `{SPAN:2}` for one of two digits; `{YYYY}`, `{MM}` and `{DD}` for
    the parts of a date, in any order and place.

    Raises:
        InputError: A spec comes twice, has no positive width, or cannot be separated from what is beside it; a date
            lacks a part, or stands beside `{SPAN}`; a version has no span.
    """
    specs: list[_Spec] = []
    for match in re.finditer(_SPEC, pattern):
        name = match[1] or match[3]
        width = _DIGITS.get(name, 0)
        if match[2] is not None:
            if not re.fullmatch(r"0*[1-9][0-9]*", match[2]):
                raise InputError(
                    f"{pattern!r}: the width {match[2]!r} of {name} is not a positive integer",
                    fix=f"write {{{name}:2}}",
                )
            width = int(match[2])
        specs.append(_Spec(name, width, match.start(), match.end()))
    names = [spec.name for spec in specs]
    dates = [name for name in names if name in _DIGITS]
    if dates and sorted(dates) != sorted(_DIGITS):
        raise InputError(
            f"{pattern!r} has {', '.join(f'{{{name}}}' for name in dates)}: exactly one of each date spec is needed",
            fix="write {YYYY}, {MM} and {DD}, each once",
        )
    if dates and "SPAN" in names:
        raise InputError(f"{pattern!r}: {{SPAN}} and a date exclude each other", fix="the date is the span")
    for name in ("SPAN", "VERSION"):
        if names.count(name) > 1:
            raise InputError(f"{pattern!r} has {{{name}}} more than once", fix="write * for the others")
    if "VERSION" in names and not dates and "SPAN" not in names:
        raise InputError(f"{pattern!r} has a version without a span", fix="write {SPAN} or a date too")
    for left, right in pairwise(specs):
        if left.end == right.start and not (left.width and right.width):
            raise InputError(
                f"{pattern!r}: it cannot be told where {left.name} ends and {right.name} begins",
                fix=f"say how many digits: {{{left.name}:2}}{{{right.name}:2}}",
            )
    for spec in specs:
        beside = (pattern[spec.start - 1 : spec.start], pattern[spec.end : spec.end + 1])
        if not spec.width and (beside[0] in ("*", "?", "]") or beside[1] in ("*", "?", "[")):
            raise InputError(
                f"{pattern!r}: a wildcard beside {{{spec.name}}} could take some of its digits",
                fix=f"say how many it has, e.g. {{{spec.name}:2}}",
            )
    return SpanPattern(pattern, tuple(specs))


def choose(pattern: str, span: int | None, version: int | None, files: Lister) -> SpanMatch:
    """The span and version of a pattern that are wanted, or the newest span and its newest version.

    Raises:
        InputError: Nothing is there for it, two spellings of the same span are, or the pattern makes no sense.
    """
    parsed = parse(pattern)
    wanted_digits = parsed.digits(span, version)
    if not parsed.specs:
        return SpanMatch(0, None, pattern)
    paths, places = files(parsed.filled(wanted_digits))
    there = [read for path in paths if (read := parsed.read(path)) is not None]
    wanted = [read for read in there if (span is None or read[0] == span) and (version is None or read[1] == version)]
    if not wanted:
        raise _nothing(parsed, span, version, files, places)
    # Two paths may spell one span differently (span 7 as "7" and as "07"): neither is the newer, so it is an error.
    ages = [(read[0], -1 if read[1] is None else read[1]) for read in wanted]
    newest = max(ages)
    spelled = {
        parsed.filled(digits): (matched_span, matched_version)
        for age, (matched_span, matched_version, digits) in zip(ages, wanted, strict=True)
        if age == newest
    }
    if len(spelled) > 1:
        raise InputError(
            f"{pattern!r} finds span {newest[0]} in two places in {places}: {' and '.join(sorted(spelled)[:2])}",
            fix="remove one, or say how many digits a span has, e.g. {SPAN:2}",
        )
    ((path, (matched_span, matched_version)),) = spelled.items()
    return SpanMatch(matched_span, matched_version, path)


def spans_of(pattern: str, files: Lister) -> list[int]:
    """The spans of a pattern that are there, ascending.

    Raises:
        InputError: The pattern names no span, or nothing matches it.
    """
    parsed = parse(pattern)
    if not parsed.has_span:
        raise InputError(f"{pattern!r} names no span", fix="write {SPAN}, or {YYYY}, {MM} and {DD}")
    paths, places = files(parsed.filled({}))
    numbers = sorted({read[0] for path in paths if (read := parsed.read(path)) is not None})
    if not numbers:
        raise _nothing(parsed, None, None, files, places)
    return numbers


def common_span(splits: Mapping[str, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """The span and the version that all splits have in common, each None where their files name none.

    Raises:
        InputError: They differ.
    """
    for what, values in (
        ("span", {name: span for name, (span, _) in splits.items()}),
        ("version", {name: version for name, (_, version) in splits.items()}),
    ):
        if len(set(values.values())) > 1:
            by_split = ", ".join(f"{name}: {'none' if value is None else value}" for name, value in values.items())
            raise InputError(
                f"the latest {what} should be the same for each split: {by_split}",
                fix=f"wait until every split has it, or say which with dt.files(..., {what}=)",
            )
    return next(iter(splits.values()), (None, None))


def query_parameters(span: int) -> dict[str, object]:
    """What a query may bind of a span of a day: `span`, `span_begin`, `span_end` (seconds since 1970) and `span_date`.

    `span_date` is text such as "19700102" for span 1.

    Raises:
        InputError: No date is this span.
    """
    try:
        day = _EPOCH + timedelta(days=span)
    except (OverflowError, TypeError):
        raise InputError(f"no date is span {span!r:.40}", fix="give days since 1970-01-01") from None
    begin = span * 86400
    return {"span": span, "span_begin": begin, "span_end": begin + 86400, "span_date": f"{day:%Y%m%d}"}


def _nothing(parsed: SpanPattern, span: int | None, version: int | None, files: Lister, places: str) -> InputError:
    """The error where no file matches: it names what is there instead, of other spans or spelled in another way."""
    every, _ = files(parsed.filled({}, loosely=True))
    there_are = {read[:2] for path in every if (read := parsed.read(path)) is not None}
    others = sorted(there_are, key=lambda read: (read[0], read[1] or 0))
    if span is not None and any(other_span == span for other_span, _ in others) and version is None:
        others = []  # it is there, in another spelling
    wanted = "".join(f" {what} {value}" for what, value in (("span", span), ("version", version)) if value is not None)
    if others:
        there = ", ".join(
            f"{other_span}" if other_version is None else f"{other_span} (version {other_version})"
            for other_span, other_version in others[-5:]
        )
        there = f"it has the spans {there}{f' and {len(others) - 5:,} before' if others[5:] else ''}"
    else:
        there = f"there is {', '.join(sorted(every)[:3])}" if every else "there is nothing like it"
    return InputError(
        f"no file matches {parsed.text!r}{' with' if wanted else ''}{wanted} in {places}: {there}",
        fix=(
            "check the pattern and the date: its span is its days since 1970-01-01"
            if "{YYYY}" in parsed.text
            else "check the pattern: {SPAN} takes a number as it is written, "
            "{SPAN:2} one of two digits with leading zeros"
        ),
    )


def _expression(glob: str) -> str:
    """A regular expression for a piece of a glob pattern."""
    parts, at = [], 0
    for match in re.finditer(_GLOB, glob):
        parts.append(re.escape(glob[at : match.start()]))
        sign = match[0]
        if sign == "**/":
            parts.append("(?:.*/)?")
        elif sign == "**":
            parts.append(".*")
        elif sign in "*?":
            parts.append("[^/]*" if sign == "*" else "[^/]")
        else:
            inside = sign[1:-1].replace("\\", "\\\\")
            parts.append(f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]")
        at = match.end()
    return "".join([*parts, re.escape(glob[at:])])


def listed(paths: Iterable[str], prefix: str) -> list[str]:
    """Addresses of a store, spelled as a pattern does: stores drop the scheme, or begin with other slashes."""
    begin = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", prefix)
    scheme = begin[0] if begin else ""
    slashes = re.match(r"/*", prefix[len(scheme) :])
    lead = scheme + (slashes[0] if slashes else "")
    return [lead + re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://", "", path).lstrip("/") for path in paths]
