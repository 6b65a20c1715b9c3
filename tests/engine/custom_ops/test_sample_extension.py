"""A real distribution with ops: installed by pip, trained through, exported, and reloaded with it and without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SAMPLE = Path(__file__).with_name("sample_extension")

MAKE = """
    import json, sys
    from pathlib import Path
    import acme_ops, jax, jax.numpy as jnp, numpy as np, optax, pyarrow as pa, pyarrow.parquet as pq
    from drivetrain import data
    from drivetrain.engine import Bundle, analyze, apply, export_model, ops

    work = Path(sys.argv[1])
    dice = np.random.default_rng(7)
    names = [None if n % 7 == 0 else ["anna", "bert", "cleo"][n % 3] for n in range(300)]
    x = dice.normal(size=300)
    label = (np.sin(x) + np.array([{"a": 1, "b": -1, "c": 0}[name[0]] if name else 0 for name in names]) > 0)
    rows = pa.table({"name": names, "x": x, "y": label.astype(float)})
    pq.write_table(rows, work / "rows.parquet")

    def preprocess(columns):
        first = ops.vocabulary(acme_ops.initials(columns["name"]))
        return {"first": ops.one_hot(first, depth=5), "x": ops.z_score(columns["x"]), "y": columns["y"]}

    source = data.open_parquet([work / "rows.parquet"])
    bundle = analyze(preprocess, source, data.LocalExecutor())
    bundle.save(work / "transform")
    apply(work / "transform", {"train": source}, work / "examples", data.LocalExecutor())
    made = bundle.run("transform", rows.combine_chunks().to_batches()[0])
    written = pq.read_table(work / "examples" / "split=train" / "part-00000.parquet")
    assert np.array_equal(np.stack(written["first"].to_pylist()), made["first"])
    for row, given in zip(rows.to_pylist()[:20], zip(made["first"], made["x"])):
        single = bundle.run_row("transform", row)
        assert np.array_equal(single["first"], given[0]) and abs(single["x"] - given[1]) < 1e-6

    def model(clip, relu):
        def apply_model(params, features):
            given = jnp.concatenate([features["first"].astype(jnp.float32), features["x"][:, None]], 1)
            hidden = relu(given @ params["a"] + params["b"])
            return clip(hidden @ params["c"], limit=3.0)
        return apply_model

    features = {"first": jnp.asarray(made["first"]), "x": jnp.asarray(made["x"])}
    width = features["first"].shape[1] + 1
    start = {"a": jnp.asarray(dice.normal(size=(width, 8)) * 0.3, jnp.float32), "b": jnp.full(8, 0.1),
             "c": jnp.asarray(dice.normal(size=8) * 0.3, jnp.float32)}

    def loss(params, apply_model):
        return optax.sigmoid_binary_cross_entropy(apply_model(params, features), jnp.asarray(made["y"])).mean()

    def trained(apply_model):
        params, optimizer = start, optax.adam(0.05)
        state, step, losses = optimizer.init(start), jax.jit(jax.value_and_grad(lambda p: loss(p, apply_model))), []
        for _ in range(60):
            value, gradient = step(params)
            change, state = optimizer.update(gradient, state)
            params = optax.apply_updates(params, change)
            losses.append(float(value))
        return params, losses

    through = model(acme_ops.soft_clip, acme_ops.squared_relu)
    plain = model(acme_ops.soft_clip_plain, acme_ops.squared_relu_plain)
    text = str(jax.make_jaxpr(lambda p: loss(p, through))(start))
    assert "ffi_call" in text and "pallas_call" in text
    gradient = jax.grad(lambda p: loss(p, through))(start)
    for key, other in jax.grad(lambda p: loss(p, plain))(start).items():
        np.testing.assert_allclose(gradient[key], other, atol=1e-6)
        way = jnp.asarray(dice.normal(size=other.shape), jnp.float32)
        near = [loss({**start, key: start[key] + sign * 1e-2 * way}, through) for sign in (1, -1)]
        np.testing.assert_allclose((gradient[key] * way).sum(), (near[0] - near[1]) / 2e-2, rtol=2e-2, atol=1e-4)
    params, losses = trained(through)
    others, their_losses = trained(plain)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-3)
    assert losses[-1] < 0.6 * losses[0], losses

    predict = lambda outputs: {"p": jax.nn.sigmoid(outputs)}
    export_model(work / "transform", through, params, predict, label="y", out=work / "model")
    np.save(work / "expected.npy", predict(through(params, features))["p"])
    listed = json.loads((work / "model" / "manifest.json").read_bytes())["required_extensions"]
    assert [(item["op"], item["distribution"], item["version"], item["entry_point"]) for item in listed] == [
        ("acme.initials", "acme-ops", "1.2.0", "acme"), ("acme.soft_clip", "acme-ops", "1.2.0", "acme")]
"""

LOAD = """
    import sys
    from pathlib import Path
    import numpy as np, pyarrow.parquet as pq
    from drivetrain.engine import Bundle

    work = Path(sys.argv[1])
    assert "acme_ops" not in sys.modules
    bundle = Bundle.load(work / "model")
    assert "acme_ops" in sys.modules
    rows, expected = pq.read_table(work / "rows.parquet"), np.load(work / "expected.npy")
    np.testing.assert_allclose(bundle.run("predict", rows.combine_chunks().to_batches()[0])["p"], expected, rtol=1e-5)
    for row, value in list(zip(rows.to_pylist(), expected))[:20]:
        np.testing.assert_allclose(bundle.run_row("predict", row)["p"], value, rtol=1e-5)
"""

PALLAS = """
    import sys
    from pathlib import Path
    import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    from drivetrain import data
    from drivetrain.engine import Bundle, analyze

    work = Path(sys.argv[1])
    if sys.argv[2] == "make":
        import acme_ops, jax, jax.numpy as jnp
        weight = jnp.arange(4.0)
        kept = jax.jit(acme_ops.squared_relu)  # traced for this process first: an export must not take that over
        kept(weight)
        fn = lambda columns: {"y": acme_ops.squared_relu(columns["x"]) + kept(weight)[2]}
        analyze(fn, data.open_parquet([work / "rows.parquet"]), data.LocalExecutor()).save(work / "pallas")
    batch = pq.read_table(work / "rows.parquet").combine_chunks().to_batches()[0]
    x = batch["x"].to_numpy().astype(np.float32)
    bundle = Bundle.load(work / "pallas")
    assert bundle.extensions == ()
    np.testing.assert_allclose(bundle.run("transform", batch)["y"], np.maximum(x, 0) ** 2 + 4, rtol=1e-6)
"""


def run(script: str, *given: object, path: Path | None) -> subprocess.CompletedProcess[str]:
    """A script in a fresh process, with a folder of installed distributions or without."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, given)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd="/")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample extension, built and installed by pip into a folder of its own, without any network."""
    folder = tmp_path_factory.mktemp("sample")
    shutil.copytree(SAMPLE, folder / "source")
    command = [
        sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--quiet",
        "--disable-pip-version-check", "--target", str(folder / "installed"), str(folder / "source"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "installed"


@pytest.fixture(scope="module")
def work(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where a model was trained through the sample's ops and exported."""
    folder = tmp_path_factory.mktemp("work")
    done = run(MAKE, folder, path=installed)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_fresh_process_with_the_extension_predicts_the_same(installed: Path, work: Path) -> None:
    done = run(LOAD, work, path=installed)
    assert done.returncode == 0, done.stderr


def test_a_fresh_process_without_it_says_what_to_install(work: Path) -> None:
    done = run(LOAD, work, path=None)
    assert done.returncode == 1
    message = done.stderr.partition("BundleError: ")[2].strip().splitlines()
    assert message == [
        f"{work}/model: op 'acme.initials' needs acme-ops 1.2.0, which is not installed here",
        "  fix: pip install 'acme-ops==1.2.0', if you trust it: it is code that will run",
    ]


@pytest.mark.parametrize(("version", "fits"), [("1.3.0", True), ("1.1.9", False), ("2.0.0", False)])
def test_another_version_fits_or_is_named(
    installed: Path, work: Path, tmp_path: Path, version: str, fits: bool
) -> None:
    shutil.copytree(installed, tmp_path / "other")
    (folder,) = (tmp_path / "other").glob("*.dist-info")
    (folder / "METADATA").write_text((folder / "METADATA").read_text().replace("Version: 1.2.0", f"Version: {version}"))
    folder.rename(folder.with_name(f"acme_ops-{version}.dist-info"))
    done = run(LOAD, work, path=tmp_path / "other")
    assert (done.returncode == 0) is fits, done.stderr
    if not fits:
        assert f"op 'acme.initials' needs acme-ops 1.2.0, and {version} is installed here" in done.stderr


def test_an_extension_that_fails_to_import_or_lost_its_op_is_named(installed: Path, work: Path, tmp_path: Path) -> None:
    for name, code, cause in (
        ("fails", "raise OSError('libmagic is gone')", "cannot be imported: OSError: libmagic is gone"),
        ("empty", "", "acme-ops is here and has no op 'acme.initials'"),
    ):
        shutil.copytree(installed, tmp_path / name)
        (tmp_path / name / "acme_ops" / "__init__.py").write_text(code)
        done = run(LOAD, work, path=tmp_path / name)
        assert done.returncode == 1
        assert cause in done.stderr


def test_a_pallas_kernel_needs_nothing_where_the_bundle_runs(installed: Path, work: Path) -> None:
    for given, path in (("make", installed), ("load", None)):
        done = run(PALLAS, work, given, path=path)
        assert done.returncode == 0, done.stderr


def test_a_module_of_another_package_cannot_take_the_installed_name(installed: Path) -> None:
    script = """
        from drivetrain.engine import custom_ops
        custom_ops.host_op("acme.other", returns="string")(lambda name: name)
    """
    done = run(script, path=installed)
    assert "op 'acme.other' belongs to no distribution" in done.stderr
    manifest = json.dumps([extension.name for extension in installed.iterdir()])
    assert "acme_ops-1.2.0.dist-info" in manifest
