"""`schema.yaml`: the schema as people read and edit it; errors name the file, the line and the feature."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

import yaml

from ...errors import InputError
from .problems import SchemaError, feature_problems, raise_problems, weighted_problems
from .schema import (
    CHANGES,
    SEMANTICS,
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    Semantic,
    Severity,
    Time,
    Values,
)
from .weighted import WeightedFeature
from .yaml_checks import check_lines, read_checks, read_expectations
from .yaml_nodes import YamlNodes, compose

FORMAT: Final = "drivetrain.schema/1"

_VERBATIM: Final = re.compile(r"[ !#-\[\]-~\u00a0-\u2027\u202a-\ud7ff]*")  # needs no escape between double quotes

FEATURE_KEYS: Final = (
    "type", "presence", "stage", "shape", "value_count", "unique", "in_environments", "not_in_environments", "domain",
    "severity",
    *CHANGES,
    "fields",
)  # fmt: skip

_HEAD: Final = """\
# What every span of this data must look like. Edit freely: validation is against what stands here.
"""


def schema_to_yaml(schema: Schema) -> str:
    """The schema as text; reading it back gives an equal schema. Evidence becomes comments."""
    lines = [_HEAD + f"format: {FORMAT}", *rows_lines(schema)]
    if schema.environments:
        lines += _wrapped("environments: [", [_scalar(name) for name in schema.environments])
    if schema.severity:
        lines.append(f"severity: {_flow(schema.severity)}")
    lines.append("features:" if schema.features else "features: {}")
    for feature in schema.features:
        lines += feature_lines(feature)
    if schema.weighted:
        lines.append("weighted_features:")
    for pair in schema.weighted:
        parts = {"value": pair.value, "weight": pair.weight} | ({"stage": pair.stage} if pair.stage else {})
        lines.append(f"  {_scalar(pair.name, key=True)}: {_flow(parts)}")
    lines += check_lines(schema.checks, schema.expectations)
    return "\n".join(lines) + "\n"


def rows_lines(schema: Schema) -> list[str]:
    """The line about the number of rows, if there is one."""
    rows: dict[str, Any] = _open(Count(schema.min_rows, schema.max_rows))
    ratios = {"drift": schema.rows_drift, "version": schema.rows_version}
    rows |= {name: _open(ratio) for name, ratio in ratios.items() if ratio is not None}
    return [f"rows: {_flow(rows)}"] if rows else []


def feature_lines(feature: Feature) -> list[str]:
    """A feature's lines, its name first, as they stand under `features:`."""
    lines = [f"  {_scalar(feature.name, key=True)}:", f"    type: {feature.type}"]
    presence = {"min_fraction": feature.presence.min_fraction, "min_count": feature.presence.min_count}
    if any(value is not None for value in presence.values()):
        lines.append(f"    presence: {_flow({name: value for name, value in presence.items() if value is not None})}")
    if feature.stage:
        lines.append(f"    stage: {feature.stage}")
    if feature.shape is not None:
        lines += _wrapped("    shape: [", [_scalar(size) for size in feature.shape])
    if feature.value_counts:
        counts = [_flow(_open(count)) for count in feature.value_counts]
        lines += _wrapped("    value_count: [", counts) if len(counts) > 1 else [f"    value_count: {counts[0]}"]
    if feature.unique is not None:
        lines.append(f"    unique: {_flow(_open(feature.unique))}")
    for key in ("in_environments", "not_in_environments"):
        if getattr(feature, key):
            lines += _wrapped(f"    {key}: [", [_scalar(name) for name in getattr(feature, key)])
    domain = feature.domain
    if isinstance(domain, Values):
        lines.append("    domain:")
        if domain.min_mass != 1:
            lines.append(f"      min_mass: {_scalar(domain.min_mass)}")
        lines += _wrapped("      values: [", [_scalar(value) for value in domain.values])
    elif isinstance(domain, Range):
        shown: dict[str, Any] = {"parse": domain.parse} if domain.parse else {}
        shown |= {name: getattr(domain, name) for name in ("min", "max") if getattr(domain, name) is not None}
        shown |= {name: True for name in ("disallow_nan", "disallow_inf") if getattr(domain, name)}
        lines.append(f"    domain: {_flow({'range': shown})}")
    elif isinstance(domain, Bool):
        texts = {key: getattr(domain, key) for key in ("true_value", "false_value") if getattr(domain, key) is not None}
        lines.append(f"    domain: {_flow({'bool': texts}) if texts else 'bool'}")
    elif isinstance(domain, Time):
        said = {"format": domain.format} | ({"min_mass": domain.min_mass} if domain.min_mass != 1 else {})
        lines.append(f"    domain: {_flow({'time': said})}")
    elif isinstance(domain, Semantic):
        wanted = {
            key: getattr(domain, key) for key in ("min_supported_fraction", "max_bytes")
            if getattr(domain, key) is not None
        }  # fmt: skip
        lines.append(f"    domain: {_flow({domain.kind: wanted}) if wanted else domain.kind}")
    for change in CHANGES:
        if getattr(feature, change):
            lines.append(f"    {change}: {_flow(getattr(feature, change))}")
    if feature.severity:
        lines.append(f"    severity: {_flow(feature.severity)}")
    lines = _with_evidence(lines, feature.evidence)
    if feature.fields:
        lines.append("    fields:")
        lines += [f"    {line}" for field in feature.fields for line in feature_lines(field)]
    return lines


def _with_evidence(lines: list[str], evidence: str) -> list[str]:
    """The lines with comments: evidence that begins with a line's key behind that line, other behind the name."""
    places = {line[4:].partition(":")[0]: place for place, line in enumerate(lines) if place and line[4] != " "}
    comments: dict[int, list[str]] = {}
    for one in evidence.split("\n"):
        key, colon, text = one.partition(": ")
        place = places.get(key, 0) if colon else 0
        shown = "".join(c if c.isprintable() else " " for c in (text if place else one)).split()
        if shown:
            comments.setdefault(place, []).append(" ".join(shown))
    return [
        f"{line}  # {', '.join(comments[place])}" if place in comments else line for place, line in enumerate(lines)
    ]


def _open(count: Count | Ratio) -> dict[str, float]:
    return {name: value for name, value in (("min", count.min), ("max", count.max)) if value is not None}


def _wrapped(head: str, items: list[str], width: int = 110) -> list[str]:
    """`[a, b, …]` over as many lines as it takes."""
    lines, line = [], head
    for index, item in enumerate(items):
        piece = item + ("]" if index == len(items) - 1 else ",")
        if len(line) + len(piece) > width and line.strip():
            lines.append(line.rstrip())
            line = " " * 8
        line += piece + " "
    return [*lines, line.rstrip() if items else head + "]"]


def _flow(value: Mapping[str, Any]) -> str:
    pairs = (
        f"{_scalar(name, key=True)}: {_flow(item) if isinstance(item, Mapping) else _scalar(item)}"
        for name, item in value.items()
    )
    return "{" + ", ".join(pairs) + "}"


def _scalar(value: object, *, key: bool = False) -> str:
    """One scalar in flow context: plain where YAML reads it back as the same value, else in double quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text  # YAML 1.1 wants the point
    if value and value.replace("_", "").isalnum() and value.isascii():
        # Values and names are read by their spelling, so 9E, NO and 007 may stay plain; ~ and "" may not.
        return value
    if _VERBATIM.fullmatch(value):
        return f'"{value}"'
    text = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9).strip()
    return text if not key or "\n" not in text else text.replace("\n", "\\n")


def schema_from_yaml(text: str, where: str = "schema.yaml") -> Schema:
    """The schema that a text says.

    Args:
        text: YAML.
        where: The file's name, for messages.

    Raises:
        InputError: No YAML, an unknown key, a wrong value; its `where` is "file:line".
    """
    try:
        root = compose(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"no YAML: {error.problem}", fix="correct the line", where=f"{where}:{line}") from error
    except yaml.YAMLError as error:  # a control character
        raise InputError(f"no YAML: {error}", fix="remove it", where=where) from error
    except RecursionError:
        raise InputError("no schema: it is nested too deeply", fix="correct it", where=where) from None
    if root is None:
        raise InputError("the schema is empty", fix="infer one from statistics (SchemaGen)", where=where)
    return _Reader(where).schema(root)


def load_schema(path: Path | str) -> Schema:
    """The schema in a file.

    Raises:
        InputError: It cannot be read, or see `schema_from_yaml`.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the schema {path} cannot be read: {error}", fix="name a schema.yaml in UTF-8") from error
    return schema_from_yaml(text, str(path))


class _Reader(YamlNodes):
    """A schema from YAML nodes."""

    def schema(self, root: yaml.Node) -> Schema:
        keys = self.mapping(
            root,
            "the schema",
            ("format", "rows", "environments", "severity", "features", "weighted_features", "checks", "expectations"),
        )
        if "format" not in keys or self.text(keys["format"]) != FORMAT:
            raise InputError(f"this is no schema of the format {FORMAT}", fix=f"begin with `format: {FORMAT}`",
                             where=self.at(keys.get("format", root)))  # fmt: skip
        rows = self.mapping(keys["rows"], "rows", ("min", "max", "drift", "version")) if "rows" in keys else {}
        if "features" not in keys:
            raise InputError("the schema has no features", fix="add `features:`", where=self.at(root))
        features = tuple(
            self.feature(name, node) for name, node in self.mapping(keys["features"], "features", None).items()
        )
        weighted = tuple(self.weighted(keys["weighted_features"], features)) if "weighted_features" in keys else ()
        try:
            return Schema(
                features=features,
                min_rows=self.whole(rows["min"]) if "min" in rows else None,
                max_rows=self.whole(rows["max"]) if "max" in rows else None,
                severity=self.severity(keys.get("severity")),
                environments=self.texts(keys.get("environments"), "environments"),
                rows_drift=self.ratio(rows.get("drift")),
                rows_version=self.ratio(rows.get("version")),
                checks=read_checks(self, keys["checks"]) if "checks" in keys else (),
                expectations=read_expectations(self, keys["expectations"]) if "expectations" in keys else (),
                weighted=weighted,
            )
        except SchemaError as error:
            raise error.at(self.at(root)) from None

    def weighted(self, node: yaml.Node, features: Iterable[Feature]) -> Iterator[WeightedFeature]:
        for name, item in self.mapping(node, "weighted_features", None).items():
            keys = self.mapping(item, f"weighted feature {name!r}", ("value", "weight", "stage"))
            texts = (self.text(keys[key]) if key in keys else "" for key in ("value", "weight", "stage"))
            pair = WeightedFeature(name, *texts)
            raise_problems(weighted_problems(pair, features), self.at(item))
            yield pair

    def ratio(self, node: yaml.Node | None) -> Ratio | None:
        if node is None:
            return None
        parts = self.mapping(node, "a ratio of rows", ("min", "max"))
        return Ratio(*(self.number(parts[key]) if key in parts else None for key in ("min", "max")))

    def feature(self, name: str, node: yaml.Node) -> Feature:
        what = f"feature {name!r}"
        keys = self.mapping(node, what, FEATURE_KEYS)
        presence = Presence()
        if "presence" in keys:
            parts = self.mapping(keys["presence"], f"presence of {what}", ("min_fraction", "min_count"))
            presence = Presence(
                self.number(parts["min_fraction"]) if "min_fraction" in parts else None,
                self.whole(parts["min_count"]) if "min_count" in parts else None,
            )
        feature = Feature(
            name=name,
            type=self.text(keys["type"]) if "type" in keys else "any",
            presence=presence,
            domain=self.domain(keys["domain"], what) if "domain" in keys else None,
            drift=self.bounds(keys.get("drift"), f"drift of {what}"),
            skew=self.bounds(keys.get("skew"), f"skew of {what}"),
            severity=self.severity(keys.get("severity")),
            shape=tuple(self.whole(item) for item in self.items(keys["shape"], "shape")) if "shape" in keys else None,
            value_counts=self.counts(keys["value_count"], what) if "value_count" in keys else (),
            unique=self.count(keys["unique"], f"unique of {what}") if "unique" in keys else None,
            in_environments=self.texts(keys.get("in_environments"), "in_environments"),
            not_in_environments=self.texts(keys.get("not_in_environments"), "not_in_environments"),
            stage=self.text(keys["stage"]) if "stage" in keys else "",
            fields=tuple(self.feature(key, inner) for key, inner in self.fields(keys.get("fields"), what)),
        )
        raise_problems(feature_problems(feature), self.at(node))
        return feature

    def fields(self, node: yaml.Node | None, what: str) -> Iterable[tuple[str, yaml.Node]]:
        return () if node is None else self.mapping(node, f"fields of {what}", None).items()

    def counts(self, node: yaml.Node, what: str) -> tuple[Count, ...]:
        levels = self.items(node, "value_count") if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(self.count(level, f"value_count of {what}") for level in levels)

    def count(self, node: yaml.Node, what: str) -> Count:
        parts = self.mapping(node, what, ("min", "max"))
        return Count(*(self.whole(parts[key]) if key in parts else None for key in ("min", "max")))

    def domain(self, node: yaml.Node, what: str) -> Domain:
        if isinstance(node, yaml.ScalarNode) and node.value == "bool":
            return Bool()
        if isinstance(node, yaml.ScalarNode) and node.value in SEMANTICS:
            return Semantic(cast(Literal["natural_language", "image"], node.value))
        keys = self.mapping(node, f"domain of {what}", ("values", "min_mass", "range", "bool", "time", "image"))
        kinds = [key for key in ("values", "range", "bool", "time", "image") if key in keys]
        if len(kinds) != 1 or ("min_mass" in keys and kinds != ["values"]):
            raise InputError(
                f"{what}: a domain is one of values (with min_mass), range, bool, time, {', '.join(SEMANTICS)}",
                fix="keep one",
                where=self.at(node),
            )
        inner = keys[kinds[0]]
        if kinds == ["values"]:
            mass = self.number(keys["min_mass"]) if "min_mass" in keys else 1.0
            return Values(tuple(self.text(item) for item in self.items(inner, f"values of {what}")), mass)
        if kinds == ["range"]:
            parts = self.mapping(inner, f"range of {what}", ("parse", "min", "max", "disallow_nan", "disallow_inf"))
            parse = self.text(parts["parse"]) if "parse" in parts else ""
            if parse not in ("", "int", "float"):
                raise InputError(f"{what}: text is parsed as int or float", fix="choose one", where=self.at(node))
            return Range(
                self.number(parts["min"]) if "min" in parts else None,
                self.number(parts["max"]) if "max" in parts else None,
                self.truth(parts["disallow_nan"]) if "disallow_nan" in parts else False,
                self.truth(parts["disallow_inf"]) if "disallow_inf" in parts else False,
                cast(Literal["", "int", "float"], parse),
            )
        if kinds == ["time"]:
            parts = self.mapping(inner, f"time of {what}", ("format", "min_mass"))
            if "format" not in parts:
                raise InputError(f"{what}: a time has a format", fix='e.g. "%Y-%m-%d"', where=self.at(node))
            mass = self.number(parts["min_mass"]) if "min_mass" in parts else 1.0
            return Time(self.text(parts["format"]), mass)
        if kinds == ["image"]:
            parts = self.mapping(inner, f"image of {what}", ("min_supported_fraction", "max_bytes"))
            share = self.number(parts["min_supported_fraction"]) if "min_supported_fraction" in parts else None
            return Semantic("image", share, self.whole(parts["max_bytes"]) if "max_bytes" in parts else None)
        parts = self.mapping(inner, f"bool of {what}", ("true_value", "false_value"))
        texts = [self.text(parts[key]) if key in parts else None for key in ("true_value", "false_value")]
        return Bool(*texts)

    def bounds(self, node: yaml.Node | None, what: str) -> dict[str, float]:
        if node is None:
            return {}
        return {key: self.number(item) for key, item in self.mapping(node, what, None).items()}

    def severity(self, node: yaml.Node | None) -> dict[str, Severity]:
        if node is None:
            return {}
        return {key: cast(Severity, self.text(item)) for key, item in self.mapping(node, "severity", None).items()}
