"""TensorFlow Serving's ModelServerConfig, of a request or of a file in protobuf's text format: the models to serve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from ..errors import InputError
from .api import RequestError
from .config import ModelConfig
from .protos import Message, ModelServerConfig
from .tensor_columns import invalid


def models_of_text(text: str, path: Path) -> list[ModelConfig]:
    """The models of a file of `--model_config_file`; a folder is from the file's own folder on.

    Raises:
        InputError: It is no such file, or says what cannot be done here.
    """
    try:
        configs = models_of(text_format.Parse(text, ModelServerConfig()))
    except text_format.ParseError as error:
        raise InputError(f"{path}:{error}", fix="correct it, or write YAML: see docs/serving.md") from error
    except RequestError as error:
        raise InputError(f"{path}: {error.message}", fix=error.fix) from error
    if not configs:
        raise InputError(f"{path} has no model", fix="list every model that is to be served")
    return [
        config if "://" in config.base_path else replace(config, base_path=str(path.parent / config.base_path))
        for config in configs
    ]


def models_of(config: Message) -> list[ModelConfig]:
    """The models of a ModelServerConfig.

    Raises:
        RequestError: INVALID_ARGUMENT: it has no list of them, or lists one twice or without a name or a folder.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise invalid("the configuration has no model_config_list", fix="list every model that is to be served")
    configs: dict[str, ModelConfig] = {}
    for model in config.model_config_list.config:
        if not model.base_path:
            raise invalid(f"model {model.name!r:.80} has no base_path")
        if model.name in configs:
            raise invalid(f"model {model.name!r:.80} is configured twice")
        policy = model.model_version_policy
        versions = tuple(policy.specific.versions)
        labels = dict(model.version_labels)
        choice: Any = policy.WhichOneof("policy_choice") or "latest"
        try:
            # A policy of no number is TensorFlow Serving's default: the newest alone.
            configs[model.name] = ModelConfig(
                model.name, model.base_path, choice, policy.latest.num_versions or 1, versions, labels
            )
        except InputError as error:
            raise invalid(error.message, fix=error.fix) from error
    return list(configs.values())
