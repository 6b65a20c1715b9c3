"""Grain: its datasets as ours, and ours as its, with exact states on either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import InputError
from .columns import checked
from .dataset import Dataset, State, Stream


def from_grain(dataset: Any) -> Dataset:  # Any: a grain.MapDataset or grain.IterDataset
    """Batches of a dataset of Grain, which has batched them: `grain_dataset.batch(…)`.

    Its elements are mappings of arrays [rows, …]. Grain has no epochs: each of ours is the same pass.
    """
    if hasattr(dataset, "to_iter_dataset"):
        dataset = dataset.to_iter_dataset()
    return FromGrain(dataset)


def to_grain(dataset: Dataset) -> Any:  # a grain.IterDataset
    """The elements of the first epoch as a dataset of Grain, with its `get_state` and `set_state`.

    Raises:
        InputError: Grain is not installed.
    """
    try:
        import grain
    except ImportError as error:
        raise InputError("to_grain needs Grain, which is not installed", fix="pip install grain") from error

    class ToGrain(grain.IterDataset):  # type: ignore[misc]  # Grain is optional, and untyped here
        def __iter__(self) -> Any:
            return iterator(dataset)

    def iterator(dataset: Dataset) -> Any:
        elements = dataset.iterator()

        class Elements(grain.DatasetIterator):  # type: ignore[misc]
            def __next__(self) -> Mapping[str, Any]:
                element: Mapping[str, Any] = next(elements)
                return element

            def get_state(self) -> dict[str, State]:
                return elements.state()

            def set_state(self, state: dict[str, State]) -> None:
                elements.restore(state)

        return Elements()

    return ToGrain()


@dataclass(frozen=True, eq=False)
class FromGrain(Dataset):
    """See `from_grain`. Its state is Grain's, whose dataset it is."""

    dataset: Any  # a grain.IterDataset

    @property
    def label(self) -> str:
        """In short."""
        return f"grain({self.dataset})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        elements = iter(self.dataset)
        if state is not None:
            elements.set_state(state)
        try:
            for element in elements:
                yield checked(element, self.label), elements.get_state()
        finally:
            elements.close()
