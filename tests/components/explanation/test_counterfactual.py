"""`drivetrain.counterfactual_flips` against shares that are known in closed form, and scipy's intervals."""

from __future__ import annotations

from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.explanation.explain import Effort
from drivetrain.errors import InputError
from scipy import stats


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    dice = np.random.default_rng(6)
    return pd.DataFrame({"score": dice.random(4_000), "sex": dice.choice(["f", "m"], 4_000), "town": "Ulm"})


def favours(rows: pd.DataFrame) -> Any:
    return rows["score"].to_numpy() + 0.1 * (rows["sex"] == "m").to_numpy() - 0.05


def test_the_share_between_two_bounds_flips(people: pd.DataFrame) -> None:
    result = dt.counterfactual_flips(people, favours, "sex")
    pairs = {(each.was, each.becomes): each for each in result.pairs}
    women, men = people[people["sex"] == "f"]["score"], people[people["sex"] == "m"]["score"]
    up, down = pairs["f", "m"], pairs["m", "f"]
    assert (up.n, down.n) == (len(women), len(men))
    assert up.gained == up.flipped == ((women <= 0.55) & (women > 0.45)).mean()
    assert down.lost == down.flipped == ((men <= 0.55) & (men > 0.45)).mean()
    assert (up.lost, down.gained) == (0.0, 0.0)
    assert up.mean_change == pytest.approx(0.1)
    wilson = stats.binomtest(round(up.flipped * up.n), up.n).proportion_ci(method="wilson")
    assert (up.lower, up.upper) == pytest.approx((wilson.low, wilson.high))
    assert "of 4,000" not in repr(result)
    assert repr(result).startswith("4,000 rows looked at\n  sex ")
    assert len(result.frame()) == 2
    assert "<table" in result._repr_html_()


def test_a_model_that_does_not_look_flips_none(people: pd.DataFrame) -> None:
    result = dt.counterfactual_flips(people, lambda rows: rows["score"].to_numpy(), "sex", effort=Effort(max_rows=500))
    assert result.rows == 500
    assert {each.flipped for each in result.pairs} == {0.0}


def test_of_several_classes_and_dictionaries(people: pd.DataFrame) -> None:
    def classes(rows: pd.DataFrame) -> Any:
        male = (rows["sex"] == "m").to_numpy(dtype=float)
        return np.column_stack([male, 1 - male, np.full(len(male), 0.1)])

    table = pa.table({"sex": pa.array(people["sex"]).dictionary_encode()})
    result = dt.counterfactual_flips(table, classes, "sex")
    assert {each.flipped for each in result.pairs} == {1.0}
    assert {(each.gained, each.mean_change) for each in result.pairs} == {(None, 1.0)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"column": "sexx"}, "'sexx'"),
        ({"column": "town"}, "'town' has 1 values: there is nothing to change it to"),
        ({"values": ["f", 3.5]}, r"3.5 is no .*string, which the column holds"),
        ({"data": {"sex": [["f"], ["m"]]}}, "holds list"),
    ],
)
def test_what_cannot_be_changed_is_refused(people: pd.DataFrame, options: dict[str, Any], words: str) -> None:
    call = {"data": people, "model": favours, "column": "sex"} | options
    with pytest.raises(InputError, match=words):
        dt.counterfactual_flips(call.pop("data"), call.pop("model"), call.pop("column"), **call)


def test_a_model_without_a_number_and_a_value_of_another_type_are_named() -> None:
    frame = pd.DataFrame({"sex": ["f", "m"] * 50, "n": [1, 2] * 50})
    with pytest.raises(InputError, match="gave nan for row 1, and no finite numbers for 50 rows"):
        dt.counterfactual_flips(frame, lambda rows: np.where(rows.sex == "f", 0.9, np.nan), "sex")
    with pytest.raises(InputError, match=r"2\.7 is no int64"):
        dt.counterfactual_flips(frame, lambda rows: rows.n / 9, "n", values=[1, 2.7])


def test_a_column_and_its_values_do_not_steer_a_terminal() -> None:
    frame = pd.DataFrame({"a\x1b[31m": ["x\ny", "z"] * 50})
    shown = repr(dt.counterfactual_flips(frame, lambda rows: np.zeros(len(rows)), "a\x1b[31m"))
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3
