"""Findings: one mistake in a compiled pipeline each; names, and the shapes of documents, that KFP does not take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, suggest

LONGEST_NAME = 57
"""Characters of a pipeline's name: its workflow adds a hyphen and five letters, and is a label of pods, 63 at most."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Finding:
    """One mistake in a compiled pipeline.

    Attributes:
        location: e.g. "work/trainer": the names of the tasks down to it; or "platform", "executors/exec-x".
        message: What and why.
        fix: What to do.
    """

    location: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}\n  fix: {self.fix}"

    def to_json(self) -> dict[str, str]:
        """The finding as `lint --json` prints it."""
        return {"location": self.location, "message": self.message, "fix": self.fix}


def refuse(findings: list[Finding]) -> None:
    """Raise on the first finding.

    Raises:
        InputError: There is one; the message says how many more there are.
    """
    if findings:
        more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
        raise InputError(
            f"a cluster would fail at {findings[0].location}: {findings[0].message}{more}", fix=findings[0].fix
        )


def name_findings(name: str, location: str, what: str, longest: int = 63) -> Iterator[Finding]:
    """A finding where Kubernetes does not accept a name."""
    if not _NAME.fullmatch(name):
        yield Finding(
            location,
            f"{what} {name!r} is not a name for Kubernetes",
            "use small letters, digits and hyphens, a letter or digit at both ends",
        )
    elif len(name) > longest:
        yield Finding(
            location, f"{what} {name!r} has {len(name)} characters, and Kubernetes takes {longest}", "shorten it"
        )


def shape_findings(body: Any, descriptor: Any, location: str) -> Iterator[Finding]:  # Any: JSON and protobuf
    """Fields that a message does not have, and values that are not an object, list or name where it wants one."""
    if body is None or descriptor.full_name.startswith("google.protobuf."):
        if descriptor.name == "Struct" and not isinstance(body, Mapping | None):
            yield misshapen(body, "an object", location)
        return
    if not isinstance(body, Mapping):
        yield misshapen(body, "an object", location)
        return
    fields = {field.json_name: field for field in descriptor.fields} | {
        field.name: field for field in descriptor.fields
    }
    for key, value in body.items():
        field = fields.get(key)
        if key == "@type":  # which KFP passes over
            continue
        if field is None:
            names = [each.json_name for each in descriptor.fields]
            yield Finding(location, f"the field {key!r} is unknown to KFP", suggest(str(key), names, "known here are"))
        elif value is not None:
            yield from _field_findings(value, field, f"{location}.{key}")


def _field_findings(value: Any, field: Any, location: str) -> Iterator[Finding]:  # Any: JSON and protobuf
    entry = field.message_type is not None and field.message_type.GetOptions().map_entry
    several: Iterable[tuple[object, Any]] = [(None, value)]  # Any: JSON
    if entry:
        field = field.message_type.fields_by_name["value"]
        if not isinstance(value, Mapping):
            yield misshapen(value, "an object", location)
            return
        several = value.items()
    elif field.is_repeated:
        if not isinstance(value, list):
            yield misshapen(value, "a list", location)
            return
        several = enumerate(value)
    for name, each in several:
        at = location if name is None else f"{location}[{name}]"
        names = field.enum_type.values_by_name if field.enum_type is not None else {}
        if each is None and getattr(field.message_type, "full_name", "") != "google.protobuf.Value":
            yield misshapen(each, "a value", at)
        elif field.message_type is not None:
            yield from shape_findings(each, field.message_type, at)
        elif names and isinstance(each, str) and each not in names:
            yield Finding(at, f"{each!r} is unknown to KFP", suggest(each, list(names), "known here are"))
        elif names and not isinstance(each, str) and not is_scalar(each, int):
            yield misshapen(each, "a name", at)


def misshapen(value: object, wanted: str, location: str) -> Finding:
    """A value of another kind than KFP reads there."""
    return Finding(location, f"{json.dumps(value):.40} is where KFP wants {wanted}", "compile it again")


def first_line(text: str) -> str:
    """The first line of what a parser says, without its full stop."""
    return text.splitlines()[0].rstrip(".")


def is_scalar(value: object, wanted: type) -> bool:
    """Whether protobuf's JSON reads a value as one of this type: whole numbers may stand as texts, or as 3.0."""
    if wanted is not int:
        return type(value) is wanted
    if isinstance(value, str):
        return re.fullmatch(r"-?[0-9]+", value) is not None
    return type(value) in (int, float) and float(str(value)).is_integer()
