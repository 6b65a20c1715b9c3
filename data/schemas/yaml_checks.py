"""The `checks:` and `expectations:` of `schema.yaml`, as flow YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import yaml

from .checks import Check, Expectation
from .yaml_nodes import YamlNodes, plain_scalar

_CHECK: Final = ("feature", "sql", "base", "severity", "description", "environments", "slice", "base_slice")


def check_lines(checks: Sequence[Check], expectations: Sequence[Expectation]) -> Iterator[str]:
    """What `read_checks` and `read_expectations` read back; nothing where there are none."""
    if checks:
        yield "checks:"
    for check in checks:
        parts = {key: getattr(check, key) for key in _CHECK}
        yield from _item(
            {key: value for key, value in parts.items() if value and (key, value) != ("severity", "ERROR")}
        )
    if expectations:
        yield "expectations:"
    for one in expectations:
        parts = {"type": one.type, "kwargs": one.kwargs}
        parts |= {"severity": one.severity} if one.severity != "critical" else {}
        yield from _item(parts | ({"meta": one.meta} if one.meta else {}))


def _item(parts: Mapping[str, Any]) -> Iterator[str]:
    for number, (key, value) in enumerate(parts.items()):
        yield f"  {' ' if number else '-'} {key}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    return yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=10**9).strip()


def read_checks(reader: YamlNodes, node: yaml.Node) -> tuple[Check, ...]:
    """The checks of a list node."""
    found = []
    for item in reader.items(node, "checks"):
        keys = reader.mapping(item, "a check", _CHECK)
        for key in ("feature", "sql"):
            if key not in keys:
                raise reader.error(item, f"a check without {key}", "write `feature:` and `sql:`")
        texts: Any = {key: reader.text(value) for key, value in keys.items() if key != "environments"}
        found.append(Check(**texts, environments=reader.texts(keys.get("environments"), "environments")))
    return tuple(found)


def read_expectations(reader: YamlNodes, node: yaml.Node) -> tuple[Expectation, ...]:
    """The expectations of a list node."""
    found = []
    for item in reader.items(node, "expectations"):
        keys = reader.mapping(item, "an expectation", ("type", "kwargs", "severity", "meta"))
        if "type" not in keys:
            raise reader.error(item, "an expectation without a type", "write GX's name of it: `type: expect_…`")
        more = {key: _plain(reader, keys[key]) for key in ("kwargs", "meta") if key in keys}
        for key, value in more.items():
            if not isinstance(value, dict):
                raise reader.error(keys[key], f"{key} of an expectation must be `key: value`", "correct it")
        severity = cast(Any, reader.text(keys["severity"]) if "severity" in keys else "critical")
        found.append(Expectation(reader.text(keys["type"]), more.get("kwargs", {}), more.get("meta", {}), severity))
    return tuple(found)


def _plain(reader: YamlNodes, node: yaml.Node) -> Any:
    """JSON's values; `NO`, 2013-01-01 and 12:30 are texts, whatever YAML 1.1 would make of them."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(reader, item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {reader.text(key): _plain(reader, value) for key, value in node.value}
    return plain_scalar(node)
