"""Bundles grow old: a warning in time, a refusal with the command that mends it, and equal results afterwards."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import Bundle, BundleError, refresh_bundle
from drivetrain.engine.bundles import refreshing
from drivetrain.engine.lowering.lower import export_program
from drivetrain.errors import InputError
from drivetrain.tests.fixtures.bundles.make import build, flights

pytestmark = pytest.mark.engine

CONFIG: Any = jax.config  # JAX types no option
EXPORT: Any = jax.export


@contextmanager
def writing(convention: int) -> Iterator[None]:
    """JAX exporting by an older calling convention, as a release before this one did."""
    usual = CONFIG.jax_export_calling_convention_version
    CONFIG.update("jax_export_calling_convention_version", convention)
    try:
        yield
    finally:
        CONFIG.update("jax_export_calling_convention_version", usual)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old") / "made"
    with writing(EXPORT.minimum_supported_calling_convention_version):
        build(folder)
    return folder / "model"


def conventions(path: Path) -> set[int]:
    programs = [EXPORT.deserialize(bytearray(file.read_bytes())) for file in path.glob("device/*.stablehlo")]
    return {program.calling_convention_version for program in programs}


@pytest.mark.slow
def test_an_aging_bundle_warns_and_refreshed_gives_the_same_bits(old: Path, tmp_path: Path) -> None:
    assert conventions(old) == {9}
    with pytest.warns(FutureWarning, match=rf"a coming JAX will refuse.*drivetrain bundle refresh {old} NEW_FOLDER"):
        before = Bundle.load(old)
    done = refresh_bundle(old, tmp_path / "new")
    assert done.rewritten == tuple(before.payload.programs)
    assert done.kept == ()
    after = Bundle.load(tmp_path / "new")  # a warning would be an error here
    assert conventions(tmp_path / "new") == {10}
    (batch,) = flights(700, 1).combine_chunks().to_batches()
    for signature in before.signatures:
        outputs = after.run(signature, batch)
        for name, values in before.run(signature, batch).items():
            assert outputs[name].tobytes() == values.tobytes()
    row = flights(1, 1).to_pylist()[0]
    assert after.run_row("predict", row)["probability"] == before.run_row("predict", row)["probability"]
    assert after.signatures == before.signatures
    source = json.loads((old / "manifest.json").read_bytes())
    assert after.export["refreshed_from"] == {"jax": source["export"]["jax"], "digest": source["digest"]}
    again = tmp_path / "again"
    refresh_bundle(old, again)
    assert (again / "manifest.json").read_bytes() == (tmp_path / "new" / "manifest.json").read_bytes()


@pytest.mark.slow
def test_a_bundle_beyond_the_window_is_refused_with_the_command(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax.export, "minimum_supported_calling_convention_version", 10)
    with pytest.raises(BundleError, match=r"calling convention 9; this JAX, .*, reads from 10 on") as caught:
        Bundle.load(old)
    assert caught.value.fix == f"write its programs again: drivetrain bundle refresh {old} NEW_FOLDER"
    refresh_bundle(old, tmp_path / "new")
    assert Bundle.load(tmp_path / "new").signatures.keys() == {"predict", "evaluate"}


def test_a_bundle_of_a_newer_jax_is_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.export, "maximum_supported_calling_convention_version", 8)
    with pytest.raises(BundleError, match=r"calling convention 9; this JAX, .*, reads up to 8"):
        Bundle.load(old)


@pytest.mark.slow
def test_what_this_jax_wrote_is_taken_over(old: Path, tmp_path: Path) -> None:
    refresh_bundle(old, tmp_path / "new")
    done = refresh_bundle(tmp_path / "new", tmp_path / "newer")
    assert done.rewritten == ()
    for file in (tmp_path / "new").glob("*/*"):
        assert (tmp_path / "newer" / file.relative_to(tmp_path / "new")).read_bytes() == file.read_bytes()
    with pytest.raises(InputError, match="is not empty"):
        refresh_bundle(tmp_path / "new", tmp_path / "newer")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*a coming JAX will refuse:FutureWarning")
def test_gradients_are_kept(old: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(old)
    (name,) = bundle.payload.programs
    program: Any = EXPORT.deserialize(bytearray(bundle.payload.programs[name]))
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]  # type: ignore[no-untyped-call]

    def smooth(*arrays: Any) -> list[Any]:  # the same shapes, with a gradient: an export without one has none inside
        return [jnp.zeros(arrays[0].shape[:1] + aval.shape[1:]) + arrays[0][(...,) + (None,) * (aval.ndim - 1)] ** 2
                for aval in program.out_avals]  # fmt: skip

    with writing(9):
        made = export_program(smooth, shapes, vjp_order=1)
    replace(bundle, payload=replace(bundle.payload, programs={name: made})).save(tmp_path / "old")
    refresh_bundle(tmp_path / "old", tmp_path / "new")
    fresh: Any = EXPORT.deserialize(bytearray((tmp_path / "new" / "device" / f"{name}.stablehlo").read_bytes()))
    assert fresh.calling_convention_version == 10
    rest = [jnp.zeros([5 if not isinstance(d, int) else d for d in aval.shape], aval.dtype) for aval in fresh.in_avals]
    x = jnp.arange(5, dtype=rest[0].dtype)
    found = jax.grad(lambda x: fresh.call(x, *rest[1:])[0].sum())(x)
    np.testing.assert_allclose(found, 2 * np.arange(5))


@pytest.mark.filterwarnings("ignore:.*a coming JAX will refuse:FutureWarning")
def test_other_results_are_never_written(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = refreshing._exported_anew

    def off_by_a_bit(program: bytes) -> bytes:
        again: Any = EXPORT.deserialize(bytearray(honest(program)))
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in again.in_avals]  # type: ignore[no-untyped-call]
        return export_program(lambda *given: [one * (1 + 2**-23) for one in again.call(*given)], shapes)

    monkeypatch.setattr(refreshing, "_exported_anew", off_by_a_bit)
    bundle = Bundle.load(old)
    with pytest.raises(BundleError, match=r"device/predict-0\.stablehlo gives other results"):
        list(refreshing.rewritten_programs(bundle, str(old)))
