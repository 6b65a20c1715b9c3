"""What a thread has ready, and how it ends."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from drivetrain.engine.training.input.prefetching import _Items
from drivetrain.engine.training.input.waiting import Abandoned

pytestmark = pytest.mark.engine


def test_what_is_abandoned_has_not_come_to_its_end() -> None:
    """Else a cache that takes the items keeps those it has as if they were all."""
    items = _Items(2)
    items.put(("first", 1))
    items.close(Abandoned())
    items.close()  # the thread that makes them finds no room for another
    assert items.take() == ("first", 1)
    with pytest.raises(Abandoned):
        items.take()


def test_items_that_ended_before_are_all_there() -> None:
    items = _Items(2)
    items.put(("last", 1))
    items.close()
    items.close(Abandoned())
    assert items.take() == ("last", 1)
    assert items.take() is None
