"""Expected losses and how far another reference would move them, against a law that is known."""

from __future__ import annotations

import numpy as np
import pytest
from drivetrain.components.evaluation import direct_loss
from drivetrain.components.evaluation.direct_loss import ExpectedLosses, expected_losses
from drivetrain.errors import InputError


def test_a_loss_that_grows_is_learned() -> None:
    generator = np.random.default_rng(1)
    x = generator.integers(0, 200, 4_000) / 20  # few enough values to be binned as they are
    losses = np.abs(generator.normal(0, 0.2 + x / 4))
    at = np.linspace(1, 9, 9)
    result = expected_losses(at[:, None], x[:, None], losses, np.ones(4_000), 0)
    np.testing.assert_allclose(result.losses, (0.2 + at / 4) * np.sqrt(2 / np.pi), rtol=0.35)
    assert abs(result.apart.mean()) < 0.05  # no model of the fold that it is compared with has seen it
    assert result.without.shape == (10, 9)


def test_resampled_losses_spread_as_the_jackknife_says() -> None:
    """Of a mean, which is what a model without columns expects: its standard error."""
    generator = np.random.default_rng(2)
    values = generator.exponential(5.0, 1_000)
    folds = values.reshape(10, 100)
    without = np.array([np.delete(folds, fold, axis=0).mean() for fold in range(10)])
    expected = ExpectedLosses(np.array([values.mean()]), np.zeros(1), without[:, None])
    drawn = np.array([expected.resampled(generator)[0] for _ in range(4_000)])
    jackknife = np.sqrt(0.9 * ((without - without.mean()) ** 2).sum())
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.01)
    assert drawn.std() == pytest.approx(jackknife, rel=0.05)


def test_too_few_rows_are_refused() -> None:
    rows = np.zeros((50, 1))
    with pytest.raises(InputError, match="the reference has 50 rows, of at least 100"):
        expected_losses(rows, rows, np.zeros(50), np.ones(50), 0)


def test_columns_without_a_value_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the whole reference, or once a fold is left out; scikit-learn fails on them."""
    monkeypatch.setattr(direct_loss, "_FOLDS", 2)
    generator = np.random.default_rng(3)
    x, losses = generator.normal(size=(200, 1)), generator.exponential(size=200)
    nothing = np.full((200, 1), np.nan)
    single = nothing.copy()
    single[7] = 1.0
    expected = expected_losses(x, x, losses, np.ones(200), 0)
    result = expected_losses(np.hstack([x, x, x]), np.hstack([x, nothing, single]), losses, np.ones(200), 0)
    np.testing.assert_array_equal(result.losses, expected.losses)
    np.testing.assert_array_equal(result.apart, expected.apart)
