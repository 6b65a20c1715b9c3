"""The model card: what a published program is for, in words and numbers, as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import InputError


@dataclass(frozen=True)
class ModelCard:
    """What a person asks before using a model, after Mitchell et al., "Model Cards for Model Reporting" (2019).

    Attributes:
        name: Of the model.
        description: What it computes, in a sentence or two.
        licence: An SPDX expression: "Apache-2.0".
        data: What it was trained on.
        metrics: How well it does, by name.
        intended_use: What it is for.
        limitations: What it is not for, and where it fails.
        more: Further text, by heading.
    """

    name: str = ""
    description: str = ""
    licence: str = ""
    data: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intended_use: str = ""
    limitations: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in {**asdict(self), **{f"more {k!r}": v for k, v in self.more.items()}}.items():
            if key not in ("metrics", "more") and not isinstance(value, str):
                raise InputError(f"the card's {key} is {value!r:.60}", fix="write it as text")
        measured: Mapping[Any, Any] = self.metrics  # Any: what was given
        for name, number in measured.items():
            plain = isinstance(number, (int, float)) and not isinstance(number, bool)
            if not isinstance(name, str) or not plain or not math.isfinite(number):
                raise InputError(
                    f"the card's metric {name!r:.60} is {number!r:.60}", fix="give a finite number by name"
                )

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """The card's fields as JSON values, which `from_json` reads; metrics as floats."""
        return {**asdict(self), "metrics": {k: float(v) for k, v in self.metrics.items()}, "more": dict(self.more)}

    @classmethod
    def from_json(cls, data: Any) -> ModelCard:  # Any: JSON, checked here
        """The card that `to_json` gave; what a later release added to it is left out.

        Raises:
            InputError: It is not a card.
        """
        try:
            known = {attribute.name: data[attribute.name] for attribute in fields(cls) if attribute.name in data}
            return cls(**{**known, "metrics": dict(known["metrics"]), "more": dict(known["more"])})
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a model card: {error!r:.100}", fix="publish the model again") from error

    def to_markdown(self, signatures: str = "") -> str:
        """The card as a page; `signatures` is shown as it is."""
        lines = [f"# {self.name or 'A model'}", ""]
        if self.description:
            lines += [self.description, ""]
        sections = {"Intended use": self.intended_use, "Limitations": self.limitations, "Data": self.data}
        for heading, text in {**sections, **self.more, "Licence": self.licence}.items():
            if text:
                lines += [f"## {heading}", "", text, ""]
        if self.metrics:
            lines += ["## Metrics", "", *(f"- {name}: {number:g}" for name, number in self.metrics.items()), ""]
        if signatures:
            lines += ["## Signatures", "", "```", signatures, "```", ""]
        return "\n".join(lines)
