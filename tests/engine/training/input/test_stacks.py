"""Stacks of batches, as fit sends them to a device: the batches one by one, none across an epoch, any state exact."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from drivetrain.engine import Ragged
from drivetrain.engine.training.input import Dataset, from_arrays
from drivetrain.engine.training.input.dataset import measured, step_times
from drivetrain.engine.training.input.stacks import DatasetInput, OnDevice, Stacks, device_batch
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine


def batches(size: int) -> Dataset:
    """60 rows, a number and a list of 0 to 39 of it each."""
    lists = [np.full(7 * row % 40, row) for row in range(60)]
    return from_arrays({"row": np.arange(60), "ids": lists}).batch(size)


def rows_of(ragged: Ragged) -> list[list[int]]:
    values, ids = np.asarray(ragged.values), np.asarray(ragged.segment_ids)
    assert (ids[np.searchsorted(ids, ragged.rows) :] == ragged.rows).all()
    return [values[ids == row].tolist() for row in range(ragged.rows)]


def unstacked(dataset: Dataset, depth: int, state: Any = None) -> tuple[list[Any], list[int], list[Any]]:
    """Each batch, the number of them in each stack, and the states."""
    single, counts, states = [], [], []
    for (stack, count), after in dataset.stream(0, state):
        assert stack["row"].shape[0] == stack["ids"].values.shape[0] == depth
        for number in range(count):
            ragged = stack["ids"]
            row = Ragged(ragged.values[number], ragged.segment_ids[number], ragged.rows)
            single.append((stack["row"][number].tolist(), rows_of(row)))
        for number in range(count, depth):
            assert (stack["ids"].segment_ids[number] == stack["ids"].rows).all()  # rows without values
        counts.append(count)
        states.append(after)
    return single, counts, states


@given(size=st.integers(1, 20), depth=st.integers(1, 9), steps=st.integers(1, 12), epochs=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_stacks_hold_the_batches_in_order(size: int, depth: int, steps: int, epochs: int) -> None:
    stacks = Stacks(batches(size).repeat(), depth, steps, epochs)
    single, counts, states = unstacked(stacks, depth)
    assert len(single) == epochs * steps
    ends = np.cumsum(counts)
    assert set(range(steps, epochs * steps + 1, steps)) <= set(ends.tolist())
    for batch, expected in zip(single, batches(size).repeat(), strict=False):
        assert batch[0] == expected["row"].tolist()
        assert batch[1] == [[row] * (7 * row % 40) for row in batch[0]]
    for end, state in zip(ends, states, strict=True):
        assert unstacked(stacks, depth, state)[0] == single[end:]


def test_a_batch_is_reached_again_from_the_state_before_it() -> None:
    training = DatasetInput.of(batches(7), None)
    assert (training.steps, training.batch_size, training.rows) == (8, 7, 56)
    ends, states = [0], [None]
    for (_, count), after in training.stacks(3, 2).stream(0):
        ends.append(ends[-1] + count)
        states.append(after)
    expected = [batch["row"].tolist() for batch in batches(7).repeat(2)]
    for end, state, following in zip(ends, states, ends[1:], strict=False):
        for number in range(following - end):
            assert training.batch(end + number, state, number)["row"].tolist() == expected[end + number]


def test_what_no_device_takes_is_refused() -> None:
    for columns, message in (
        ({"x": np.array([1, 2**40])}, "'x' holds integers that do not fit int32"),
        ({"x": np.array(["a"], object)}, "'x' is texts or bytes, not numbers"),
        ({"x": np.array(["a"])}, "'x' is of <U1, not numbers"),
        ({}, "a batch without rows"),
    ):
        with pytest.raises(InputError, match=message):
            device_batch(columns)
    batch = device_batch({"x": np.array([0.1, 1e300]), "y": np.array([True])})
    np.testing.assert_array_equal(batch["x"], np.array([0.1, np.inf], np.float32))
    assert (batch["x"].dtype, batch["y"].dtype) == (np.float32, bool)


def test_batches_of_another_dtype_begin_a_new_stack() -> None:
    def changing(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {"x": columns["x"] if columns["x"][0] < 4 else columns["x"] + np.float32(0.5)}

    dataset = from_arrays({"x": np.arange(8, dtype=np.int32)}).batch(2).map(changing)
    stacks = [stack["x"][:count] for (stack, count), _ in Stacks(dataset, 3).stream(0)]
    assert [stack.dtype.name for stack in stacks] == ["int32", "float32"]
    assert np.concatenate([stack.reshape(-1) for stack in stacks]).tolist() == [0, 1, 2, 3, 4.5, 5.5, 6.5, 7.5]


def test_nobody_keeps_a_stack_that_was_taken() -> None:
    """Else it would be freed while the next is taken, and the thread that frees it can hold that up."""
    on_device = OnDevice(Stacks(batches(7), 2), lambda stack: {"row": stack["row"] + 1}).prefetch(1)
    with step_times(), closing(measured(on_device, 0)) as stacks:
        array = weakref.ref(next(stacks)[0][0]["row"])
        deadline = time.monotonic() + 60
        while array() is not None:  # the thread lets go of it after it has handed it over
            assert time.monotonic() < deadline
            time.sleep(0.001)
