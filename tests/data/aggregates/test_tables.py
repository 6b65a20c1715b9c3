"""The order of numbers, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from drivetrain.data.aggregates.tables import ascending_order


@pytest.mark.parametrize(
    "kind", ["spread", "clustered", "ties", "few", "equal", "huge", "infinite", "narrow", "narrow ties"]
)
def test_the_order_of_numbers_is_that_of_their_values(kind: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=20_000)
    values = {
        "spread": values,
        "clustered": values**9,
        "ties": values.round(1),
        "few": values[:100],
        "equal": np.zeros(20_000),
        "huge": np.clip(values, -4, 4) * 4e307,
        "infinite": np.append(values, [np.inf, -np.inf]),
        "narrow": np.append((values**9).astype(np.float32), [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45]).astype(float),
        "narrow ties": (values * 4).round() / 4,
    }[kind]
    order = ascending_order(values)
    assert np.array_equal(np.sort(order), np.arange(len(values)))
    assert np.array_equal(values[order], np.sort(values))
