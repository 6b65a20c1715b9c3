"""Python's regular expressions by finite automata: whether one is found takes time linear in the text, for every text.

`re` tries one way after another, of which there may be exponentially many. Whether there is any way at all is a
question of sets of states (Thompson, Programming Techniques: Regular expression search algorithm, CACM 1968), here
kept between texts, as RE2 does. A look-around is a set of positions, found before by an automaton of its own: one that
looks ahead reads backwards. What a character or a position is (a letter, a word's end, without case) is asked of `re`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from re import _parser  # type: ignore[attr-defined]  # as hypothesis does; what it parses is what `re` compiles
from typing import Any, Final, TypeAlias

_MOST_STATES: Final = 10_000
_MOST_KEPT: Final = 100_000
"""Steps that are kept, of which each may hold a state set."""
_ALPHABETS: Final = int(re.ASCII | re.UNICODE)
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
_POSITIONS: Final = {
    "AT_BEGINNING": "^", "AT_BEGINNING_STRING": r"\A", "AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B", "AT_END": "$",
    "AT_END_STRING": r"\Z",
}  # fmt: skip
_UNBOUNDED: Final = {
    "GROUPREF": "a back reference",
    "GROUPREF_EXISTS": "a condition on a group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}

_Position: TypeAlias = Callable[[str], Iterable[int]]
"""The positions of a text, 0 to its length, at which an assertion holds."""


class NotLinearError(ValueError):
    """An expression has what no automaton can do, or has too many states; says what."""


class Automaton:
    """An expression of `re`, to be searched for.

    Args:
        pattern: The expression.

    Raises:
        re.error: It is not one.
        NotLinearError: It has back references, conditions, atomic groups, possessive repeats, or more than 10,000
            states.
    """

    def __init__(self, pattern: str) -> None:
        try:
            parsed = _parser.parse(pattern)
            self._matcher = _Matcher(parsed, parsed.state.flags, count())
        except (RecursionError, OverflowError) as error:
            raise re.error("nested too deeply" if isinstance(error, RecursionError) else str(error)) from None

    def search(self, text: str) -> bool:
        """Whether `re.search` would match somewhere in the text; in time linear in its length."""
        return self._matcher.matches(text)


class _Matcher:
    """Parsed items as one automaton, which begins anew at every position of a text.

    Args:
        items: As `re` parses them.
        flags: Of the expression.
        counter: Counts the states, also those of the look-arounds.
        backwards: Whether texts are read from their ends.
    """

    def __init__(self, items: Any, flags: int, counter: Iterator[int], *, backwards: bool = False) -> None:
        self._counter, self._backwards = counter, backwards
        self._moves: list[tuple[int, int] | None] = []
        """Of a state that reads a character: which test, and the state behind."""
        self._free: list[list[tuple[int | None, int]]] = []
        """Of a state: those that it also is, some only where an assertion holds."""
        self._tests: dict[tuple[str, int], int] = {}
        self._test_list: list[re.Pattern[str]] = []
        self._assertions: list[_Position] = []
        self._numbers: dict[tuple[str, int, int], int] = {}
        """Of assertions, by what they are."""
        self._end = self._state()
        self._start = self._sequence(items, flags, self._end)
        self._sets: dict[frozenset[int], int] = {}
        self._members: list[frozenset[int]] = []
        self._steps: dict[tuple[int, int, str], tuple[int, bool]] = {}

    # --- matching

    def matches(self, text: str) -> bool:
        return self._run(text, None)

    def positions(self, text: str) -> Iterable[int]:
        """Those at which a match ends, in the direction of reading."""
        ends: list[int] = []
        self._run(text, ends)
        return ends

    def _run(self, text: str, ends: list[int] | None) -> bool:
        """Whether there is a match; where ends are wanted, all are listed."""
        contexts = self._contexts(text)
        positions = range(len(text), -1, -1) if self._backwards else range(len(text) + 1)
        offset = -1 if self._backwards else 0
        last = positions[-1]
        steps, current, matched = self._steps, self._number(frozenset((self._start,))), False
        for position in positions:
            character = "" if position == last else text[position + offset]
            key = (current, contexts[position] if contexts else 0, character)
            current, ends_here = steps.get(key) or self._step(*key)
            if ends_here:
                matched = True
                if ends is None:
                    return True
                ends.append(position)
        return matched

    def _contexts(self, text: str) -> list[int] | None:
        """Of each position the assertions that hold there, as bits; None where there are no assertions."""
        if not self._assertions:
            return None
        contexts = [0] * (len(text) + 1)
        for number, assertion in enumerate(self._assertions):
            for position in assertion(text):
                contexts[position] |= 1 << number
        return contexts

    def _step(self, current: int, context: int, character: str) -> tuple[int, bool]:
        """The state set behind a character ("" at the end of the text), and whether a match ends before it."""
        members = self._members[current]
        if len(self._steps) >= _MOST_KEPT:
            self._steps.clear()
            self._sets.clear()
            self._members.clear()
            current = self._number(members)
        reached, waiting = set(members), list(members)
        while waiting:
            for assertion, state in self._free[waiting.pop()]:
                if state not in reached and (assertion is None or context >> assertion & 1):
                    reached.add(state)
                    waiting.append(state)
        behind = {self._start}
        if character:
            passed = [test.fullmatch(character) is not None for test in self._test_list]
            for state in reached:
                move = self._moves[state]
                if move is not None and passed[move[0]]:
                    behind.add(move[1])
        step = self._number(frozenset(behind)), self._end in reached
        self._steps[current, context, character] = step
        return step

    def _number(self, members: frozenset[int]) -> int:
        number = self._sets.setdefault(members, len(self._members))
        if number == len(self._members):
            self._members.append(members)
        return number

    # --- building, from the end of what is read to its start

    def _state(self, move: tuple[int, int] | None = None) -> int:
        if next(self._counter) >= _MOST_STATES:
            raise NotLinearError(f"it repeats too much: more than {_MOST_STATES:,} states")
        self._moves.append(move)
        self._free.append([])
        return len(self._moves) - 1

    def _sequence(self, items: Any, flags: int, behind: int) -> int:
        """The state from which the items lead to the one behind them."""
        for item in items if self._backwards else reversed(list(items)):
            behind = self._item(str(item[0]), item[1], flags, behind)
        return behind

    def _item(self, kind: str, value: Any, flags: int, behind: int) -> int:
        if kind in _UNBOUNDED:
            raise NotLinearError(f"it has {_UNBOUNDED[kind]}")
        if kind == "SUBPATTERN":
            _, added, removed, items = value
            if added & _ALPHABETS:  # one instead of the other
                flags &= ~_ALPHABETS
            return self._sequence(items, (flags | added) & ~removed, behind)
        if kind == "BRANCH":
            return self._split([self._sequence(items, flags, behind) for items in value[1]])
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, items = value
            return self._repeat(least, most, items, flags, behind)
        if kind in ("AT", "ASSERT", "ASSERT_NOT"):
            # A repeat comes here with the same value each time.
            number = self._numbers.setdefault((kind, id(value), flags), len(self._assertions))
            if number == len(self._assertions):
                self._assertions.append(self._assertion(kind, value, flags))
            start = self._state()
            self._free[start] = [(number, behind)]
            return start
        if kind == "FAILURE":
            return self._state()
        return self._state((self._test(_characters(kind, value), flags), behind))

    def _test(self, characters: str, flags: int) -> int:
        key = (characters, flags)
        if key not in self._tests:
            self._tests[key] = len(self._test_list)
            self._test_list.append(re.compile(characters, flags & ~(re.DEBUG | re.VERBOSE)))
        return self._tests[key]

    def _repeat(self, least: int, most: Any, items: Any, flags: int, behind: int) -> int:
        if most is _parser.MAXREPEAT:
            start = self._state()
            self._free[start] = [(None, behind), (None, self._sequence(items, flags, start))]
        else:
            start = behind
            for _ in range(most - least):
                start = self._split([self._sequence(items, flags, start), behind])
        for _ in range(least):
            before = self._sequence(items, flags, start)
            if before == start:  # of nothing, any number is the same
                break
            start = before
        return start

    def _split(self, states: Sequence[int]) -> int:
        start = self._state()
        self._free[start] = [(None, state) for state in states]
        return start

    def _assertion(self, kind: str, value: Any, flags: int) -> _Position:
        if kind == "AT":
            return _matching(re.compile(_POSITIONS[str(value)], flags & ~(re.DEBUG | re.VERBOSE)))
        direction, items = value
        positions = _Matcher(items, flags, self._counter, backwards=direction > 0).positions
        return positions if kind == "ASSERT" else _others(positions)


def _matching(pattern: re.Pattern[str]) -> _Position:
    return lambda text: (match.start() for match in pattern.finditer(text))


def _others(positions: _Position) -> _Position:
    return lambda text: set(range(len(text) + 1)).difference(positions(text))


def _characters(kind: str, value: Any) -> str:
    """The expression of one character that `re` parsed."""
    if kind == "ANY":
        return "."
    if kind == "LITERAL":
        return re.escape(chr(value))
    if kind == "NOT_LITERAL":
        return f"[^{re.escape(chr(value))}]"
    if kind != "IN":
        raise NotLinearError(f"it has {kind.lower()}")
    parts = [_member(str(each), item) for each, item in value]
    return f"[{''.join(parts)}]"


def _member(kind: str, value: Any) -> str:
    if kind == "NEGATE":
        return "^"
    if kind == "RANGE":
        return "-".join(re.escape(chr(end)) for end in value)
    return _CATEGORIES[str(value)] if kind == "CATEGORY" else re.escape(chr(value))
