"""TFDV's `CustomValidationConfig` in protobuf's text format, as checks.

https://github.com/tensorflow/data-validation/blob/master/tensorflow_data_validation/anomalies/proto/custom_validation_config.proto
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from ..schemas.checks import Check
from ..schemas.pbtxt import MessageField, ProtoDefinitions, parse

_CONFIG: Final = ProtoDefinitions(
    messages={
        "CustomValidationConfig": {
            "feature_validations": MessageField(1, "FeatureValidation", repeated=True),
            "feature_pair_validations": MessageField(2, "FeaturePairValidation", repeated=True),
        },
        "FeatureValidation": {
            "dataset_name": MessageField(1, "string"),
            "feature_path": MessageField(2, "Path"),
            "validations": MessageField(3, "Validation", repeated=True),
        },
        "FeaturePairValidation": {
            "dataset_name": MessageField(1, "string"),
            "base_dataset_name": MessageField(2, "string"),
            "feature_test_path": MessageField(3, "Path"),
            "feature_base_path": MessageField(4, "Path"),
            "validations": MessageField(5, "Validation", repeated=True),
        },
        "Validation": {
            "sql_expression": MessageField(1, "string"),
            "severity": MessageField(2, "Severity"),
            "description": MessageField(3, "string"),
            "in_environment": MessageField(4, "string", repeated=True),
        },
        "Path": {"step": MessageField(1, "string", repeated=True)},
    },
    enums={"Severity": {"UNKNOWN": 0, "WARNING": 1, "ERROR": 2}},
)


def checks_from_pbtxt(text: str, where: str = "text") -> tuple[Check, ...]:
    """The checks that a `CustomValidationConfig` says; one without a severity is an ERROR.

    Args:
        text: Text format.
        where: The file's name, for messages.

    Raises:
        InputError: It cannot be parsed, or a validation lacks its path or expression; names the line.
    """
    config = parse(text, _CONFIG, "CustomValidationConfig", where).value
    checks = []
    for group in config.get("feature_validations", ()):
        checks += [_check(group, "feature_path", "", validation, where) for validation in group.get("validations", ())]
    for group in config.get("feature_pair_validations", ()):
        base = _path(group, "feature_base_path", where)
        checks += [
            _check(group, "feature_test_path", base, validation, where) for validation in group.get("validations", ())
        ]
    return tuple(checks)


def load_checks(path: Path | str) -> tuple[Check, ...]:
    """The checks in a file.

    Raises:
        InputError: It cannot be read, or see `checks_from_pbtxt`.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="name a CustomValidationConfig in text format") from (
            error
        )
    return checks_from_pbtxt(text, str(path))


def _check(group: Mapping[str, Any], path: str, base: str, validation: Mapping[str, Any], where: str) -> Check:
    feature, sql = _path(group, path, where), validation.get("sql_expression", "")
    if not sql.strip():
        raise InputError(f"a validation of {feature} has no sql_expression", fix="write one", where=where)
    severity = validation.get("severity", "UNKNOWN")
    return Check(
        feature=feature,
        sql=sql,
        base=base,
        severity="ERROR" if severity == "UNKNOWN" else severity,
        description=validation.get("description", ""),
        environments=tuple(validation.get("in_environment", ())),
        slice=group.get("dataset_name", ""),
        base_slice=group.get("base_dataset_name", ""),
    )


def _path(group: Mapping[str, Any], key: str, where: str) -> str:
    steps = group.get(key, {}).get("step", ())
    if not steps:
        raise InputError(f"a validation has no {key}", fix=f'write {key} {{ step: "name" }}', where=where)
    return ".".join(steps)
