"""TFX's `schema.pbtxt` read into a schema; what does not fit is named.

TFDV has four types: INT, FLOAT, BYTES (text too) and STRUCT, and sees a plain column as lists of one value. So what is
read says how many values a row has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ...errors import InputError
from .feature import LOG_RULES, LOG_TAG
from .pbtxt import ParsedMessage, parse
from .problems import (
    COLLISION,
    INVALID,
    INVALID_DOMAIN,
    WRONG_DOMAIN,
    Problem,
    SchemaError,
    feature_problems,
    raise_problems,
    weighted_problems,
)
from .schema import (
    CHANGES,
    UNCHECKED,
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    Semantic,
    Time,
    Values,
)
from .schema_proto import SCHEMA_PROTO
from .time_formats import UNIX, format_problem
from .weighted_feature import WeightedFeature

_TYPES: Final = {"INT": "int", "FLOAT": "float", "BYTES": "string", "STRUCT": "struct", "TYPE_UNKNOWN": "any"}
_ALLOWED: Final = {
    "domain": ("string",),
    "string_domain": ("string",),
    "int_domain": ("int", "string"),
    "float_domain": ("float", "string"),
    "bool_domain": ("int", "float", "string"),
    "struct_domain": ("struct",),
    "natural_language_domain": ("string", "int"),
    "image_domain": ("string",),
    "mid_domain": ("string",),
    "url_domain": ("string",),
    "time_domain": ("string", "int"),
    "time_of_day_domain": ("string", "int"),
}
COMPARATORS: Final = {
    "infinity_norm": "l_infinity",
    "jensen_shannon_divergence": "jensen_shannon",
    "normalized_abs_difference": "normalized_abs_difference",
}
QUANTILES: Final = "jensen_shannon_quantiles"  # what TFDV's divergence of source QUANTILES becomes


class ImportedSchema(NamedTuple):
    """A schema read from TFX's `schema.pbtxt`.

    Attributes:
        schema: All that has words here.
        notes: What has none and is left out, one line each: "file:line: what".
    """

    schema: Schema
    notes: tuple[str, ...]


def load_pbtxt(path: Path | str) -> ImportedSchema:
    """The schema in a file of TFX.

    Raises:
        InputError: It cannot be read, or see `schema_from_pbtxt`.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the schema {path} cannot be read: {error}", fix="name a schema.pbtxt in UTF-8") from error
    return schema_from_pbtxt(text, str(path))


def schema_from_pbtxt(text: str, where: str = "schema.pbtxt") -> ImportedSchema:
    """The schema that a text says.

    Args:
        text: tensorflow_metadata's `Schema` in protobuf's text format.
        where: The file's name, for messages.

    Raises:
        InputError: No text format, or an unknown field; its `where` is "file:line:column".
        SchemaError: The schema contradicts itself; TFDV would raise an anomaly for it at each validation.
    """
    return _SchemaImport(parse(text, SCHEMA_PROTO, "Schema", where), where).imported()


class _SchemaImport:
    """One parsed message on its way to a schema.

    Attributes:
        located_notes: Line and text of what is left out; sorted by line at the end, as domains are read with features.
        used: Names of the shared domains that some feature has.
    """

    def __init__(self, parsed: ParsedMessage, where: str) -> None:
        self.parsed = parsed
        self.where = where
        self.located_notes: list[tuple[int, str]] = []
        self.used: set[str] = set()

    def note(self, path: str, text: str) -> None:
        line = self.parsed.lines.get(path, 1)
        self.located_notes.append((line, f"{self.where}:{line}: {text}"))

    def imported(self) -> ImportedSchema:
        value = self.parsed.value
        self.domains: dict[str, tuple[str, dict[str, Any]]] = {}
        for kind in ("string_domain", "int_domain", "float_domain"):
            for index, domain in enumerate(value.get(kind, [])):
                self.shared(kind, f"{kind}[{index}]", domain)
        features, problems, first = [], [], ""
        for index, item in enumerate(value.get("feature", [])):
            path = f"feature[{index}]"
            feature, wrong = self.feature(path, item)
            features.append(feature)
            problems += wrong
            first = first or (path if wrong else "")
        weighted = []
        for index, item in enumerate(value.get("weighted_feature", [])):
            path = f"weighted_feature[{index}]"
            pair = self.weighted(path, item)
            if pair is not None:
                weighted.append(pair)
                wrong = [*weighted_problems(pair, features), *self.named_as_sparse(pair)]
                problems += wrong
                first = first or (path if wrong else "")
        raise_problems(problems, f"{self.where}:{self.parsed.lines.get(first, 1)}")
        for name, (kind, _) in self.domains.items():
            if name not in self.used:
                self.note(kind, f"the domain {name!r} is of no feature and is not taken over")
        self.rest(value)
        rows = value.get("dataset_constraints", {})
        try:
            schema = Schema(
                features=tuple(features),
                min_rows=rows.get("min_examples_count"),
                max_rows=rows.get("max_examples_count"),
                environments=tuple(dict.fromkeys(value.get("default_environment", ()))),
                rows_drift=_ratio(rows.get("num_examples_drift_comparator")),
                rows_version=_ratio(rows.get("num_examples_version_comparator")),
                weighted=tuple(weighted),
            )
        except SchemaError as error:
            raise error.at(self.where) from None
        for opaque in self.parsed.opaque:
            if "extra_metadata" not in opaque.path:
                self.note(opaque.path, f"{self.owner(opaque.path)} is not taken over")
        return ImportedSchema(schema, tuple(text for _, text in sorted(self.located_notes, key=lambda pair: pair[0])))

    def owner(self, path: str) -> str:
        """A field's path for people, with the feature's name in place of its index."""
        head, _, tail = path.partition(".")
        if not head.startswith("feature["):
            return path
        name = self.parsed.value["feature"][int(head[8:-1])].get("name", "")
        return f"{tail} of feature {name!r}"

    def shared(self, kind: str, path: str, domain: dict[str, Any]) -> None:
        name = domain.get("name")
        where = f"{self.where}:{self.parsed.lines.get(path, 1)}"
        if not name:
            raise_problems([Problem(INVALID_DOMAIN, None, f"a {kind} of the schema has no name", "name it")], where)
        if name in self.domains:
            text = f"two domains are named {name!r}"
            raise_problems([Problem(INVALID_DOMAIN, None, text, "rename one of them")], where)
        self.domains[str(name)] = (path, domain)

    def rest(self, value: Mapping[str, Any]) -> None:
        """Note the fields of the message itself that are left out."""
        for name in ("annotation", "represent_variable_length_as_ragged"):
            if name in value:
                self.note(name, f"{name} is not taken over")
        for index in range(len(value.get("sparse_feature", ()))):
            self.note(f"sparse_feature[{index}]", f"sparse_feature[{index}] is not taken over")

    def weighted(self, path: str, item: Mapping[str, Any]) -> WeightedFeature | None:
        """A weighted feature; None, and a note, where its values or weights are fields of structs."""
        name = item.get("name", "")
        steps = [item.get(key, {}).get("step", []) for key in ("feature", "weight_feature")]
        if any(len(step) > 1 for step in steps):
            self.note(path, f"weighted feature {name!r} is of fields of a struct and is not taken over")
            return None
        value, weight = (step[0] if step else "" for step in steps)
        return WeightedFeature(name, value, weight, _stage(item))

    def named_as_sparse(self, pair: WeightedFeature) -> Iterator[Problem]:
        for sparse in self.parsed.value.get("sparse_feature", ()):
            if pair.name == sparse.get("name") and not {pair.stage, _stage(sparse)} & set(UNCHECKED):
                text = f"weighted feature {pair.name!r} is named as a sparse feature is"
                yield Problem(COLLISION, pair.name, text, "rename one of the two")

    def feature(self, path: str, item: Mapping[str, Any]) -> tuple[Feature, list[Problem]]:
        name = item.get("name")
        what = f"feature {name!r}"
        problems: list[Problem] = []

        def wrong(anomaly: str, text: str, fix: str) -> None:
            problems.append(Problem(anomaly, name, text, fix))

        if name is None:
            wrong("FEATURE_MISSING_NAME", "a feature has no name", "name it")
        if "type" not in item:
            if "domain" in item or "string_domain" in item:
                wrong("FEATURE_MISSING_TYPE", f"{what} has no type", "add `type: BYTES`")
            else:
                wrong("FEATURE_MISSING_TYPE", f"{what} has no type", "add `type: INT`, FLOAT, BYTES or STRUCT")
        kind = _TYPES[
            item.get("type", "TYPE_UNKNOWN" if "domain" not in item and "string_domain" not in item else "BYTES")
        ]
        domain = self.domain(path, item, kind, what, wrong)
        fields, below = self.fields(path, item) if kind == "struct" else ((), [])
        for extra in ("annotation", "group_presence", *(("struct_domain",) if kind == "any" else ())):
            if extra in item and (extra != "annotation" or not _is_log_rule(item["annotation"])):
                self.note(f"{path}.{extra}", f"{extra} of {what} is not taken over")
        bounds = {change: self.bounds(f"{path}.{change}_comparator", item, change, what) for change in CHANGES}
        presence = item.get("presence", {})
        shape = item.get("shape")
        feature = Feature(
            name=name or "",
            type=kind,
            presence=Presence(presence.get("min_fraction"), presence.get("min_count")),
            domain=domain,
            shape=None if shape is None else tuple(dim.get("size", 0) for dim in shape.get("dim", ())),
            value_counts=() if shape is not None else _counts(item),
            unique=_count(item["unique_constraints"]) if "unique_constraints" in item else None,
            in_environments=tuple(dict.fromkeys(item.get("in_environment", ()))),
            not_in_environments=tuple(dict.fromkeys(item.get("not_in_environment", ()))),
            stage=_stage(item),
            request_log=_log_rule(item.get("annotation", {})),
            drift=bounds["drift"],
            skew=bounds["skew"],
            fields=fields,
        )
        for index, dim in enumerate(shape.get("dim", ()) if shape else ()):
            if "name" in dim:
                self.note(f"{path}.shape.dim[{index}].name", f"the name of a dimension of {what} is not taken over")
        if feature.stage in UNCHECKED:
            problems = [problem for problem in problems if problem.anomaly == "FEATURE_MISSING_NAME"]
        # Without a type nothing else can be judged: neither the feature's other conditions nor its fields are reported.
        untyped = any(problem.anomaly == "FEATURE_MISSING_TYPE" for problem in problems)
        return feature, problems if untyped else [*problems, *feature_problems(replace(feature, fields=())), *below]

    def fields(self, path: str, item: Mapping[str, Any]) -> tuple[tuple[Feature, ...], list[Problem]]:
        """What a struct's domain says of its fields."""
        fields = item.get("struct_domain", {}).get("feature", [])
        read = [self.feature(f"{path}.struct_domain.feature[{index}]", field) for index, field in enumerate(fields)]
        return tuple(feature for feature, _ in read), [problem for _, wrong in read for problem in wrong]

    def bounds(self, path: str, item: Mapping[str, Any], change: str, what: str) -> dict[str, float]:
        """The thresholds of a comparator; one without a threshold measures and never fails."""
        thresholds = {}
        for key, part in item.get(f"{change}_comparator", {}).items():
            name = COMPARATORS[key]
            if part.get("source", {}).get("type") == "QUANTILES":
                name = QUANTILES
            if "threshold" in part:
                thresholds[name] = part["threshold"]
            else:
                self.note(path, f"{key} of {what} has no threshold and is not taken over")
        return thresholds

    def domain(self, path: str, item: Mapping[str, Any], kind: str, what: str, wrong: Any) -> Domain | None:
        """The feature's domain; `wrong` takes what TFDV calls an anomaly of the schema."""
        constraint = "distribution_constraints"
        mass = item.get(constraint, {}).get("min_domain_mass", 1.0)
        key = next((key for key in _ALLOWED if key in item), None)
        if constraint in item and key not in ("domain", "string_domain"):
            wrong(INVALID, f"{what}: {constraint} are for a domain of texts", f"remove {constraint}")
        if key is None:
            return None
        if kind not in (*_ALLOWED[key], "any"):
            wrong(WRONG_DOMAIN, f"{what}: a {key} is not for {item.get('type')}", "remove it, or fix the type")
            return None
        value = item[key]
        if key == "domain":
            if value not in self.domains:
                wrong(INVALID_DOMAIN, f"{what}: there is no domain {value!r}", "add it, or name another")
                return None
            self.used.add(value)
            path, value = self.domains[value]
            key = path.partition("[")[0]
        if value.get("is_categorical") in (True, "CATEGORICAL_YES", "CATEGORICAL_NO"):
            self.note(path, f"is_categorical of {what} is not taken over")
        if key == "string_domain":
            return Values(tuple(value.get("value", ())), mass)
        if key == "bool_domain":
            texts = (value.get("true_value"), value.get("false_value"))
            if kind != "string" and texts != (None, None):
                self.note(f"{path}.bool_domain", f"true_value and false_value mean nothing for {what} and are left out")
                texts = (None, None)
            return Bool(*texts)
        if key in ("int_domain", "float_domain"):
            for extra in ("is_embedding", "embedding_dim"):
                if value.get(extra):
                    self.note(f"{path}.{key}.{extra}", f"{extra} of {what} is not taken over")
            return _range(value, kind, "int" if key == "int_domain" else "float")
        if key == "time_domain":
            return self.time(path, value, kind, what)
        if key == "image_domain":
            return Semantic("image", value.get("minimum_supported_image_fraction"), value.get("max_image_byte_size"))
        if key == "natural_language_domain":
            for extra in value:
                if f"{path}.{key}.{extra}" in self.parsed.lines and not isinstance(value[extra], (dict, list)):
                    self.note(f"{path}.{key}.{extra}", f"{extra} of {what} is not taken over")
            if kind in ("string", "any"):
                return Semantic("natural_language")
            self.note(f"{path}.{key}", f"{key} of {what} is for text and is not taken over")
        return None  # the parser's list of opaque fields has it

    def time(self, path: str, value: Mapping[str, Any], kind: str, what: str) -> Time | None:
        """A time of which 0.8 of the values must read so: TFDV infers one from so many, and never checks it."""
        text = str(value.get("string_format", value.get("integer_format", "")))
        wanted = "int" if "integer_format" in value else "string"
        if kind not in (wanted, "any") or (text not in UNIX if wanted == "int" else bool(format_problem(text))):
            self.note(f"{path}.time_domain", f"the time {text!r} of {what} means nothing here and is not taken over")
            return None
        return Time(text, 0.8)


def _log_rule(annotation: Mapping[str, Any]) -> str:
    """The strictest rule for the request log among the tags, which have no other meaning to us."""
    rules = {tag.removeprefix(LOG_TAG) for tag in annotation.get("tag", ()) if tag.startswith(LOG_TAG)}
    return next((rule for rule in LOG_RULES if rule in rules), min(rules, default=""))


def _is_log_rule(annotation: Mapping[str, Any]) -> bool:
    """Whether it says nothing but one."""
    return annotation.keys() == {"tag"} and annotation["tag"] == [f"{LOG_TAG}{_log_rule(annotation)}"]


def _stage(item: Mapping[str, Any]) -> str:
    stage = "DEPRECATED" if item.get("deprecated") else item.get("lifecycle_stage", "")
    return "" if stage == "UNKNOWN_STAGE" else str(stage)


def _range(value: Mapping[str, Any], kind: str, parse: Literal["int", "float"]) -> Range | None:
    low, high = value.get("min"), value.get("max")
    # No number is below −∞ or above ∞, and none compares with NaN: such an end is open.
    low = None if low is not None and (low == -math.inf or math.isnan(low)) else low
    high = None if high is not None and (high == math.inf or math.isnan(high)) else high
    limits = Range(low, high, value.get("disallow_nan", False), value.get("disallow_inf", False))
    if kind == "string":
        return Range(low, high, limits.disallow_nan, limits.disallow_inf, parse)
    return limits if limits != Range() else None


def _ratio(value: Mapping[str, Any] | None) -> Ratio | None:
    return None if value is None else Ratio(value.get("min_fraction_threshold"), value.get("max_fraction_threshold"))


def _count(value: Mapping[str, Any]) -> Count:
    return Count(value.get("min"), value.get("max"))


def _counts(item: Mapping[str, Any]) -> tuple[Count, ...]:
    if "value_counts" in item:
        return tuple(_count(level) for level in item["value_counts"].get("value_count", ())) or (Count(),)
    return (_count(item.get("value_count", {})),)
