"""The words in which a TFT case says what was called, taken apart: statements of chains of groups of steps.

    bucketize(3) -> as_string -> compute_and_apply_vocabulary; mean, var reduce_instance_dims=False

";" separates statements, "->" what feeds what, "," what stands beside each other. A step is a name with arguments as
Python spells them (bare words too), then options (`elementwise=True`) and notes, which say nothing that is called.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

Args = tuple[Any, ...]
Options = dict[str, Any]


class NotUnderstoodError(Exception):
    """The case's text says something that this adapter does not know."""


@dataclass(frozen=True)
class Step:
    """One call, such as `quantiles(4,0.01,weights=w)`; `text` is how it was said."""

    name: str
    args: Args = ()
    options: Options = field(default_factory=dict)
    text: str = ""

    def flag(self, word: str) -> bool:
        """Whether a bare word stands among the arguments, or the option is true."""
        return word in [arg for arg in self.args if isinstance(arg, str)] or bool(self.options.get(word, False))


Group = tuple[Step, ...]
Statement = tuple[Group, ...]

_NAME = re.compile(r"(?:(?:tft|tf|strings|experimental|math|debugging)\.)*([A-Za-z_][A-Za-z_0-9]*)")
_RANGE = re.compile(r"\s+over\s+\d+\.\.\d+\s*$")
_FOR = re.compile(
    r"^(?P<what>.*)\s+for\s+(?P<name>[a-z])\s*=\s*(?P<values>-?[\d.]+(?:\s*,\s*-?[\d.]+)*)\s*$", re.DOTALL
)
_OPS = r"(?:mean|var|min|max|sum|size|scale_\w+|bucketize\w*|quantiles)"
_BESIDE = re.compile(rf"\b{_OPS}(?:\([^()]*\))?(?:/|\s+and\s+|\s+\+\s+){_OPS}\b")
_OPERATORS = (" - ", " + ", " * ", " / ", " > ", " < ", " >= ", " <= ", " == ")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def statements(text: str) -> list[Statement]:
    """Everything that a case's `ops` says."""
    found: list[Statement] = []
    for part in parts(text, ";"):
        said = _RANGE.sub("", before_colon(part).strip())
        if not said:
            continue
        template = _FOR.match(said)
        if template is None:
            found.append(_statement(said))
            continue
        for value in template["values"].split(","):
            word = re.compile(rf"\b{template['name']}\b(?=\s*[,)])")
            found.append(_statement(word.sub(value.strip(), template["what"])))
    return found


def before_colon(text: str) -> str:
    """What stands before ": ", behind which people explain; "x: mean" is "x -> mean"."""
    said, *more = parts(text, ": ")
    return f"{said} -> {more[0]}" if more and re.fullmatch(r"[a-z]\w?", said) else said


def _statement(text: str) -> Statement:
    return tuple(_group(part) for part in parts(text.replace(" then ", " -> "), "->"))


def _group(text: str) -> Group:
    steps: list[Step] = []
    # "mean/var/min" and "mean and var" stand beside each other as well.
    beside = re.sub(r"(?<=[a-z_1)])(?:/|\s+and\s+|\s+\+\s+)(?=[a-z_]{3,})", ",", text) if _BESIDE.search(text) else text
    for part in parts(beside, ","):
        said = part.strip()
        if not said:
            raise NotUnderstoodError(f"an empty step in {text!r}")
        if said[0] == "(" and steps:  # the last name again, with other arguments
            steps.append(step(steps[-1].name + said))
        else:
            steps.append(step(said))
    # Options behind the last step hold for those before it as well: "mean, var reduce_instance_dims=False".
    shared = {key: value for key, value in steps[-1].options.items() if key in ("elementwise", "reduce_instance_dims")}
    inside = _arguments_of(steps[-1].text)[1]
    if set(shared) - set(inside):
        steps = [dataclasses.replace(one, options=shared | one.options) for one in steps]
    spread: list[Step] = []
    for one in steps:
        both = [key for key, value in one.options.items() if value == "False/True"]
        for value in (False, True) if both else (None,):
            options = one.options | dict.fromkeys(both, value)
            spread.append(dataclasses.replace(one, options=options))
    return tuple(spread)


def step(text: str) -> Step:
    """One call: name, arguments, options, notes. Expressions ("x - min", "tips > 0.2 fare") keep their text alone."""
    said = text.strip()
    name = _NAME.match(said)
    if name is None or is_expression(said):
        return Step("expression", (said,), text=said)
    args, options, rest = _arguments_of(said)
    for key, value in re.findall(r"([a-z_]+)\s*[= ]\s*(False/True|True/False)", rest):
        options[key] = "False/True" if value else value
    for key, value in re.findall(r"([a-z_]+)=([^\s,()]+)", rest):
        options.setdefault(key, literal(value))
    return Step(name[1] if not said.startswith("strings.") else f"strings.{name[1]}", args, options, said)


def is_expression(text: str) -> bool:
    """Whether a step is arithmetic or a comparison of columns, analyzers and calls."""
    said = text.strip()
    return bool(re.fullmatch(r"[\w.\s()<>=*/+,-]+", said)) and any(len(parts(said, op)) > 1 for op in _OPERATORS)


def _arguments_of(said: str) -> tuple[Args, Options, str]:
    """The arguments that stand right behind the name, and what comes after them."""
    name = _NAME.match(said)
    start = name.end() if name else 0
    if said[start : start + 1] != "(":
        return (), {}, said[start:]
    end = _closing(said, start)
    args: list[Any] = []
    options: Options = {}
    for part in parts(said[start + 1 : end], ","):
        key = re.match(r"\s*([a-z_]+)\s*=(?!=)(.*)$", part, re.DOTALL)
        if key:
            options[key[1]] = literal(key[2].strip())
        elif part.strip() or part:
            args.append(literal(part.strip() or part))
    return tuple(args), options, said[end + 1 :]


def inside(said: str) -> str:
    """Everything between the outer parentheses of a step, as it stands there."""
    start = said.index("(")
    return said[start + 1 : _closing(said, start)]


def literal(text: str) -> Any:
    """A Python literal, a list of bare words, a nested call, or a bare word."""
    spelled = re.sub(r"(?<![\w.'\"])(-?)(inf|nan)\b", r"\g<1>1e999", text) if "inf" in text else text
    try:
        return ast.literal_eval(spelled)
    except (ValueError, SyntaxError):
        pass
    if text.startswith("[") and text.endswith("]"):
        return [literal(part.strip()) for part in parts(text[1:-1], ",")]
    if re.fullmatch(r"[A-Za-z_.]+\(.*\)", text, re.DOTALL):
        return step(text)
    return {"empty": "", "empty separator": ""}.get(text, text)


def parts(text: str, separator: str) -> list[str]:
    """The text cut at a separator that no bracket encloses."""
    found, start, place = [], 0, 0
    while place < len(text):
        if text[place] in _CLOSING:
            place = _closing(text, place)
        elif text.startswith(separator, place):
            found.append(text[start:place])
            start = place = place + len(separator)
            continue
        place += 1
    return [*found, text[start:]]


def _closing(text: str, start: int) -> int:
    """Where the bracket at `start` is closed; brackets of other kinds inside need not match (a regular expression)."""
    depth, opened, closed = 0, text[start], _CLOSING[text[start]]
    for place in range(start, len(text)):
        depth += (text[place] == opened) - (text[place] == closed)
        if depth == 0:
            return place
    raise NotUnderstoodError(f"no {closed!r} for the {opened!r} in {text!r}")
