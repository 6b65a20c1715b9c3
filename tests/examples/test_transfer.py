"""The transfer example: its page says what it gives, and a published encoder beats starting from nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("sklearn")

from drivetrain import hub
from drivetrain.examples.transfer import digits

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]

PAGE = Path(digits.__file__).with_name("README.md").read_text("utf-8")


def test_few_labels_go_further_with_a_published_encoder(tmp_path: Path) -> None:
    digits.publish(tmp_path)
    assert hub.versions(tmp_path)[0].card.name == "digits-encoder"
    found = digits.accuracies(tmp_path, 5, range(3))
    (row,) = re.findall(r"^\| 5 \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \|$", PAGE, re.M)
    for told, (name, value) in zip(row, found.items(), strict=True):
        assert abs(float(told) / 100 - value) < 0.03, name
    assert found["frozen"] > found["scratch"] + 0.05
    assert found["trainable"] > found["scratch"] + 0.02
