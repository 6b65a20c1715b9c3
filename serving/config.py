"""Which models a server holds: one from the command line, or many from a file, ours or TensorFlow Serving's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import InputError
from .batching import BatchingOptions


@dataclass(frozen=True)
class ModelConfig:
    """One model.

    Attributes:
        name: What requests call it.
        base_path: The folder or URL below which its versions are: what Pusher pushes to.
        policy: Which versions are served: the `num_versions` latest, all, or those of `versions`.
        num_versions: For "latest".
        versions: For "specific".
        labels: Names for versions: requests to "stable" go to the version that it stands for.
        batching: How requests are put together.
    """

    name: str
    base_path: str
    policy: Literal["latest", "all", "specific"] = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    batching: BatchingOptions = field(default_factory=BatchingOptions)

    def __post_init__(self) -> None:
        if not self.name or any(char in self.name for char in "/:?#%") or not self.name.isprintable():
            raise InputError(f"{self.name!r:.80} is no name for a model", fix="use letters, digits, - and _")
        if self.num_versions < 1:
            raise InputError(f"num_versions is {self.num_versions}", fix="serve at least one version")
        if self.policy == "specific" and not self.versions:
            raise InputError(f"model {self.name!r} is served in specific versions, but none is named")
        for label in self.labels:
            if not label.isascii() or not label.replace("_", "").isalnum():
                raise InputError(f"{label!r:.80} is no label", fix="use letters, digits and _")

    def wanted(self, numbers: list[int]) -> list[int]:
        """The versions to serve of those that are there, ascending."""
        if self.policy == "specific":
            return sorted(set(self.versions) & set(numbers))
        return numbers if self.policy == "all" else numbers[-self.num_versions :]
