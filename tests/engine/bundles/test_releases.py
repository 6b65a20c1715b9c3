"""Bundles of every release load, and predict what they did when they were written."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import Bundle, refresh_bundle
from drivetrain.tests.engine.same_bits import STAGES_ON_GPU
from drivetrain.tests.fixtures.bundles.make import flights

# A JAX that writes newer conventions than a release did warns of it: that is what `refresh` is for, not a failure.
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore:.*a coming JAX will refuse:FutureWarning")]

RELEASES = sorted(
    path for path in (Path(__file__).parents[2] / "fixtures" / "bundles").iterdir() if path.name[0].isdigit()
)


def recorded(release: Path) -> list[dict[str, dict[str, object]]]:
    found: list[dict[str, dict[str, object]]] = json.loads((release / "predictions.json").read_bytes())
    return found


def agree(bundle: Bundle, release: Path) -> None:
    for case in recorded(release):
        outputs = bundle.run_row("evaluate", case["row"])
        for name, wanted in case["outputs"].items():
            np.testing.assert_allclose(np.asarray(outputs[name]), np.asarray(wanted), atol=1e-6)


def test_there_is_a_bundle_to_load() -> None:
    assert RELEASES
    assert all(len(recorded(release)) >= 64 for release in RELEASES)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_releases_bundle_predicts_what_it_did(release: Path) -> None:
    bundle = Bundle.load(release / "model")
    agree(bundle, release)
    whole = [case for case in recorded(release) if case["row"].keys() >= set(bundle.signatures["evaluate"].inputs)]
    names = list(whole[0]["row"])
    kinds = flights(1, 1).schema
    columns = {name: pa.array([case["row"][name] for case in whole], kinds.field(name).type) for name in names}
    outputs = bundle.run("evaluate", pa.record_batch(columns))
    tolerance = 1e-3 if STAGES_ON_GPU else 1e-6  # the program leaves it to a GPU to multiply in TF32
    for name, values in outputs.items():
        np.testing.assert_allclose(values, np.array([case["outputs"][name] for case in whole]), atol=tolerance)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_refreshed_it_still_does(release: Path, tmp_path: Path) -> None:
    refresh_bundle(release / "model", tmp_path / "new")
    agree(Bundle.load(tmp_path / "new"), release)
