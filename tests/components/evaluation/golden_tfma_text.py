"""TFMA's EvalConfig in protobuf's text format, read without its tables: every field is a list of values."""

from __future__ import annotations

import json
import re
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:#.*\n\s*)*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[A-Za-z_]\w*|[-+]?[\d.][\w.+-]*|[][{}:,;<>])"""
)


def parsed(text: str) -> dict[str, list[Any]]:
    """Field → its values, in order; a message is such a mapping, a word (of an enum) is text."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", re.sub(r"#.*", "", text)) and not _same(tokens, text):
        raise ValueError(f"not understood: {text!r}")
    message, rest = _message(tokens, 0)
    assert rest == len(tokens), tokens[rest:]
    return message


def _same(tokens: list[str], text: str) -> bool:
    return re.sub(r"\s", "", "".join(tokens)) == re.sub(r"\s", "", text)


def _message(tokens: list[str], at: int) -> tuple[dict[str, list[Any]], int]:
    fields: dict[str, list[Any]] = {}
    while at < len(tokens) and tokens[at] != "}":
        if tokens[at] in (",", ";"):
            at += 1
            continue
        values = fields.setdefault(tokens[at], [])
        at += 1
        if tokens[at] == ":":
            at += 1
        if tokens[at] == "[":
            at += 1
            while tokens[at] != "]":
                value, at = _value(tokens, at)
                values.append(value)
                at += tokens[at] == ","
            at += 1
        else:
            value, at = _value(tokens, at)
            values.append(value)
    return fields, at


def _value(tokens: list[str], at: int) -> tuple[Any, int]:
    token = tokens[at]
    if token == "{":
        message, at = _message(tokens, at + 1)
        return message, at + 1
    if token[0] in "\"'":
        inner = token[1:-1]
        return (json.loads(token) if token[0] == '"' else inner.replace("\\'", "'")), at + 1
    if token in ("true", "false"):
        return token == "true", at + 1
    try:
        return (int(token) if re.fullmatch(r"[-+]?\d+", token) else float(token)), at + 1
    except ValueError:
        return token, at + 1


def options_of(config: str) -> dict[str, Any]:
    """The options of a metric: JSON without its braces."""
    values: dict[str, Any] = json.loads("{" + config + "}")
    return values
