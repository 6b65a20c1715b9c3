"""A model card from what the store knows, with Model Card Toolkit's fields, and from what a person writes beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..errors import InputError

Json: TypeAlias = dict[str, Any]  # Any: JSON values

_SCHEMA: Final = "0.0.2"  # https://github.com/tensorflow/model-card-toolkit, schema/v0.0.2
_ALL: Final = "overall"  # the slice of all examples
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "model_details": (
        "name", "overview", "documentation", "owners", "version", "licenses", "references", "citations",
    ),
    "model_parameters": ("model_architecture", "data", "input_format", "output_format"),
    "quantitative_analysis": ("performance_metrics", "graphics"),
    "considerations": ("users", "use_cases", "limitations", "tradeoffs", "ethical_considerations"),
}  # fmt: skip


def model_card(version: Mapping[str, Any], signatures: Mapping[str, Any], words: Mapping[str, Any]) -> Json:
    """The card of a version of a registered model.

    Args:
        version: As `registry show --json` prints it.
        signatures: Those in the manifest of its bundle, by name; empty where they cannot be read.
        words: What a person says of it, with the same fields: what they say stands in place of what is known.

    Returns:
        JSON values by Model Card Toolkit's schema 0.0.2, with the metrics of the newest evaluation. One with a
        confidence interval has it beside its value, as in that project's protocol buffers.
    """
    registered = version["registered"]
    known: Json = {
        "schema_version": _SCHEMA,
        "model_details": {
            "name": version["name"].partition("@")[0],
            "overview": version["description"] or version["model_description"],
            "owners": [{"name": registered["by"]}],
            "version": {
                "name": version["name"].partition("@")[2], "date": registered["at"][:10], "diff": registered["why"],
            },
        },
        "model_parameters": {
            "data": [_dataset(span) for span in version["data"]],
            "input_format": _columns(signatures, "inputs"),
            "output_format": _columns(signatures, "outputs"),
        },
        "quantitative_analysis": {
            "performance_metrics": [
                metric for evaluation in version["evaluations"][-1:] for metric in _metrics(evaluation)
            ]
        },
        "considerations": {},
    }  # fmt: skip
    return known | {name: known[name] | dict(words.get(name, {})) for name in _SECTIONS}


def _dataset(span: Mapping[str, Any]) -> Json:
    rows = ", ".join(f"{count:,} rows of {split}" for split, count in span["rows"].items())
    files = ", ".join(str(file["name"]) for file in span["files"][:10])
    text = f"{rows or 'an unknown number of rows'}, read by {span['node']} in run {span['run']}"
    return {"name": f"span {span['span']}", "description": text + (f", of {files}" if files else "")}


def _columns(signatures: Mapping[str, Any], side: str) -> str:
    lines = []
    for name, signature in signatures.items():
        columns = (f"{column}: {spec['dtype']}{spec['shape'] or ''}" for column, spec in signature.get(side, ()))
        lines.append(f"{name}: {', '.join(columns)}")
    return "; ".join(lines)


def _metrics(evaluation: Mapping[str, Any]) -> list[Json]:
    """Each metric over all examples, and each that a threshold is about, by slice."""
    metrics: dict[tuple[str, str], Json] = {
        (name, ""): {"type": name, "value": value} for name, value in evaluation["metrics"].items() if value is not None
    }
    for check in evaluation["thresholds"]:
        if check.get("value") is None:
            continue
        piece = "" if check.get("slice") == _ALL else check.get("slice", "")
        metric = metrics.setdefault((check["metric"], piece), {"type": check["metric"], "value": check["value"]})
        metric |= {"slice": piece} if piece else {}
        if check.get("interval"):
            lower, upper = check["interval"]
            metric["confidence_interval"] = {"lower_bound": lower, "upper_bound": upper}
        metric["threshold"] = "; ".join(filter(None, [metric.get("threshold"), check.get("text")]))
    return list(metrics.values())


def read_words(file: Path) -> Json:
    """What a person says of a model, in a file, YAML or JSON, with the fields of Model Card Toolkit.

    Raises:
        InputError: It cannot be read, or has other fields.
    """
    from ..yaml_lines import load_documents

    try:
        text = file.read_text(encoding="utf-8")
        bodies = [json.loads(text)] if file.suffix == ".json" else load_documents(text, str(file), name="the file")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", fix="name another file with --words") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="write YAML or JSON") from None
    body = bodies[0] if len(bodies) == 1 else None
    if not isinstance(body, dict):
        raise InputError(f"{file} is not part of a model card", fix=f"it has {', '.join(_SECTIONS)}")
    for name, fields in body.items():
        if name not in _SECTIONS or not isinstance(fields, dict):
            raise InputError(f"{file}: {name!r:.80} is not a model card's section", fix=f"use {', '.join(_SECTIONS)}")
        if unknown := sorted(fields.keys() - set(_SECTIONS[name])):
            raise InputError(f"{file}: {name} has no field {unknown[0]!r:.80}", fix=f"use {', '.join(_SECTIONS[name])}")
    return body
