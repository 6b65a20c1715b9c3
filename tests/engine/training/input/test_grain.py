"""Grain: its datasets read as ours and ours as its, states too; and where both have a step, the same rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from drivetrain.engine.training.input import Dataset, from_arrays, from_grain, interleave, to_grain

from .test_dataset import everything, numbers

grain: Any = pytest.importorskip("grain")  # among the packages for development


def of_grain(count: int = 100) -> Any:
    source = grain.MapDataset.range(count).shuffle(seed=3).map(lambda row: {"row": row, "half": row / 2})
    return source.to_iter_dataset().batch(8, drop_remainder=True)


def test_a_dataset_of_grain_goes_on_from_any_state() -> None:
    def build() -> Dataset:
        return from_grain(of_grain()).map(lambda columns: {**columns, "double": columns["row"] * 2}).repeat(2)

    elements = everything(build())
    assert [element["row"] for element in elements[:12]] == [batch["row"].tolist() for batch in of_grain()]
    iterator = build().iterator()
    for number in range(len(elements)):
        state = json.loads(json.dumps(iterator.state()))
        assert everything(build(), state) == elements[number:]
        next(iterator)


def test_ours_is_a_dataset_of_grain_with_its_states() -> None:
    ours = from_arrays({"row": np.arange(100)}).shuffle(1).batch(8).prefetch(2)
    theirs = to_grain(ours).map(lambda columns: columns["row"].tolist())
    expected = [batch["row"] for batch in everything(ours)]
    iterator = iter(theirs)
    states, seen = [iterator.get_state()], []
    for element in iterator:
        seen.append(element)
        states.append(iterator.get_state())
    assert seen == expected
    for number, state in enumerate(states):
        again = iter(theirs)
        again.set_state(state)
        assert list(again) == expected[number:]


@pytest.mark.parametrize("size", [1, 7, 33])
def test_batches_and_repeats_are_those_of_grain(size: int) -> None:
    theirs = grain.MapDataset.range(100).repeat(3).batch(size, drop_remainder=True)
    ours = from_arrays({"row": np.arange(100)}).repeat(3).batch(size)
    assert [batch["row"] for batch in everything(ours)] == [batch.tolist() for batch in theirs]


def test_filters_and_shards_are_those_of_grain() -> None:
    theirs = grain.MapDataset.range(100)[2::5].filter(lambda row: row % 3 == 0).to_iter_dataset()
    ours = from_arrays({"row": np.arange(100)}).shard(2, 5).filter(lambda columns: columns["row"] % 3 == 0)
    assert numbers(ours) == list(theirs)


def test_interleaving_is_that_of_grain() -> None:
    parts = [range(20), range(100, 105), range(200, 213)]
    theirs = grain.experimental.InterleaveIterDataset(
        [grain.MapDataset.source(list(part)) for part in parts], cycle_length=3, iter_buffer_size=1
    )
    assert numbers(interleave([from_arrays({"row": np.array(part)}) for part in parts])) == list(theirs)
