"""Which extension an op belongs to, what a manifest may require, and what a hostile one gets."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.digest import digest
from drivetrain.engine import Bundle, analyze, custom_ops
from drivetrain.engine.custom_ops.extensions import _fits, requirements
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

ROWS = pa.record_batch({"name": ["ann", None, "bob"], "x": [0.5, 2.0, -3.0]})
STRUCT: Any = jax.ShapeDtypeStruct  # JAX leaves it untyped
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def upper() -> custom_ops.Op:
    return custom_ops.host_op("shop.upper", returns="string")(pc.utf8_upper)


def same(names: pa.Array, *, suffix: str = "") -> pa.Array:
    return pa.array([None if name is None else name + suffix for name in names.to_pylist()], pa.string())


def analyzed(fn: Any, folder: Path) -> Bundle:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([ROWS]), folder / "rows.parquet")
    return analyze(fn, data.open_parquet([folder / "rows.parquet"]), data.LocalExecutor())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A bundle that requires `shop.same`."""
    op = custom_ops.host_op("shop.same", returns="string")(same)
    analyzed(lambda columns: {"name": op(columns["name"], suffix="!")}, tmp_path / "raw").save(tmp_path / "made")
    return tmp_path / "made"


def rewritten(made: Path, folder: Path, **changes: Any) -> Path:
    """A copy whose manifest says something else, its digest in order."""
    shutil.copytree(made, folder)
    body = json.loads((folder / "manifest.json").read_bytes())
    del body["digest"]
    body.update(changes)
    (folder / "manifest.json").write_text(json.dumps({**body, "digest": digest("drivetrain-bundle", body)}))
    return folder


def required(
    op: str = "shop.same", distribution: str = "shop-features", version: str = "0.3", point: Any = None
) -> Any:
    return [{"op": op, "distribution": distribution, "version": version, "entry_point": point}]


def test_a_bundle_says_what_it_requires(made: Path) -> None:
    assert json.loads((made / "manifest.json").read_bytes())["required_extensions"] == required()
    assert Bundle.load(made).run("transform", ROWS)["name"].tolist() == ["ann!", None, "bob!"]


def test_without_the_file_in_use_the_error_says_what_is_missing(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.engine.custom_ops.registry._OPS", {})
    with pytest.raises(
        InputError, match=r"(?s)'shop.same' needs shop-features 0.3.*neither in use nor installed.*import"
    ):
        Bundle.load(made)


def test_another_distribution_or_version_in_use_is_refused(made: Path, tmp_path: Path) -> None:
    for number, (version, there) in enumerate([("0.4", "0.3"), ("0.2", "0.3"), ("1.0", "0.3"), ("0.3.1", "0.3")]):
        other = rewritten(made, tmp_path / str(number), required_extensions=required(version=version))
        with pytest.raises(InputError, match=rf"needs shop-features {version}, and {there} is in use here"):
            Bundle.load(other)
    other = rewritten(made, tmp_path / "other", required_extensions=required(distribution="shop-futures"))
    with pytest.raises(InputError, match=r"needs shop-futures 0.3.*\(shop-features 0.3 has ops of that name\)"):
        Bundle.load(other)


@pytest.mark.parametrize(
    ("recorded", "found", "fits"),
    [
        ("1.2.0", "1.2.0", True), ("1.2", "1.9.3", True), ("1.2.3", "1.2.2", False), ("1.2", "2.0", False),
        ("2.0", "1.9", False), ("0.3", "0.3.7", True), ("0.3", "0.4", False), ("1.2", "1.2.0", True),
        ("1.2rc1", "1.2", True), ("1.10", "1.9", False), ("nightly", "nightly", True), ("nightly", "1.0", False),
        ("1!1.0", "1!1.0", True), ("1!1.0", "1.0", False),
    ],
)  # fmt: skip
def test_versions_that_fit(recorded: str, found: str, fits: bool) -> None:
    assert _fits(recorded, found) is fits


@given(JSON | st.lists(st.fixed_dictionaries(dict.fromkeys(required()[0], JSON | st.just("a.b"))), max_size=2))
def test_any_list_of_requirements_is_parsed_or_refused(listed: Any) -> None:
    try:
        found = requirements(listed)
    except ValueError:
        return
    assert [requirement.to_json() for requirement in found] == listed
    assert all(requirement.entry_point in (requirement.op.split(".")[0], None) for requirement in found)


@pytest.mark.parametrize(
    "listed",
    [
        required(distribution="x; rm -rf ~"),
        required(distribution="https://evil.example/x.whl"),
        required(distribution="--index-url=x"),
        required(version="1' --pre '"),
        required(point="os:system"),
        required(point="os"),
        required(op="os.system", point="posix"),
        required(op="xla.callback"),
        required(op="custom_call"),
        required() + required(),
        [{**required()[0], "url": "x"}],
        {"shop.same": "1"},
        None,
    ],
)
def test_a_manifest_that_requires_what_cannot_be_is_refused(made: Path, tmp_path: Path, listed: Any) -> None:
    other = rewritten(made, tmp_path / "other", required_extensions=listed)
    with pytest.raises(InputError, match=r"manifest\.json is not valid"):
        Bundle.load(other)


def test_a_manifest_never_chooses_what_is_imported(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_ops.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = required(op="evil_ops.run", distribution="evil_ops", version="1", point="evil_ops")
    other = rewritten(made, tmp_path / "other", required_extensions=listed)
    with pytest.raises(
        InputError, match=r"(?s)'evil_ops.run' needs evil_ops 1, which is not installed here.*pip install"
    ):
        Bundle.load(other)
    # A distribution that someone did install, but not as ops.
    version = metadata.version("pyyaml")
    listed = required(op="yaml.load", distribution="PyYAML", version=version, point="yaml")
    other = rewritten(made, tmp_path / "yaml", required_extensions=listed)
    with pytest.raises(InputError, match=r"'yaml.load' needs PyYAML .*not installed here"):
        Bundle.load(other)
    assert not (tmp_path / "ran").exists()
    assert "evil_ops" not in sys.modules


def test_a_host_op_that_the_manifest_does_not_require_is_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"uses the host op 'shop.same', which its manifest does not require"):
        Bundle.load(rewritten(made, tmp_path / "none", required_extensions=[]))
    upper()
    listed = required(op="shop.upper")
    with pytest.raises(InputError, match=r"uses the host op 'shop.same', which its manifest does not require"):
        Bundle.load(rewritten(made, tmp_path / "another", required_extensions=listed))


def test_an_op_that_needs_no_extension_cannot_be_required(made: Path, tmp_path: Path) -> None:
    custom_ops.register_op("math.tanh")(jnp.tanh)
    other = rewritten(made, tmp_path / "other", required_extensions=required() + required(op="math.tanh"))
    with pytest.raises(InputError, match=r"has no op 'math.tanh' that a bundle could require"):
        Bundle.load(other)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"suffix": {"a": 1}}, "inputs": ["string"]},
        {"settings": {"prefix": "a"}, "inputs": ["string"]},
        {"settings": {}, "inputs": ["int64"]},
        {"settings": {}, "inputs": []},
        {"settings": 3, "inputs": ["string"]},
        {"settings": {}},
        {},
    ],
)
def test_a_node_that_does_not_fit_the_op_is_refused(made: Path, tmp_path: Path, change: Any) -> None:
    shutil.copytree(made, tmp_path / "other")
    graph = json.loads((made / "graph.json").read_bytes())
    (node,) = [node for node in graph["nodes"] if node.get("op") == "shop.same"]
    node["params"] = change
    (tmp_path / "other" / "graph.json").write_text(json.dumps(graph))
    reseal(tmp_path / "other")
    with pytest.raises(InputError):
        Bundle.load(tmp_path / "other")


def test_a_node_that_gives_what_the_op_does_not_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "other")
    graph = (made / "graph.json").read_text()
    assert graph.count('"dtype":"string"') == 2
    (tmp_path / "other" / "graph.json").write_text(
        '"dtype":"int64"'.join(graph.rsplit('"dtype":"string"', 1))
        if graph.index('"inputs"') < graph.index('"nodes"')
        else '"dtype":"int64"'.join(graph.split('"dtype":"string"', 1))
    )
    reseal(tmp_path / "other")
    with pytest.raises(InputError, match=r"do not fit together .*shop\.same"):
        Bundle.load(tmp_path / "other")


# --- custom calls ---


def clip(x: Any, *, limit: float) -> Any:
    return limit * jnp.tanh(x / limit)


@pytest.fixture
def called(library: Path, tmp_path: Path) -> Path:
    """A bundle whose program calls `shop.soft_clip`."""
    op = custom_ops.ffi_op("shop.soft_clip", {"cpu": custom_ops.Native(library, "SoftClip")}, plain=clip)
    analyzed(lambda columns: {"y": op(columns["x"], limit=2.0)}, tmp_path / "raw").save(tmp_path / "called")
    return tmp_path / "called"


def with_program(bundle: Path, folder: Path, fn: Any, *targets: str) -> Path:
    """A copy whose program computes something else."""
    shutil.copytree(bundle, folder)
    (program,) = folder.glob("device/*.stablehlo")
    honest: Any = jax.export.deserialize(bytearray(program.read_bytes()))
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target) for target in targets]
    shapes = [STRUCT(aval.shape, aval.dtype) for aval in honest.in_avals]
    evil = jax.export.export(jax.jit(fn), platforms=["cpu"], disabled_checks=allowed)(*shapes)
    program.write_bytes(bytes(evil.serialize()))
    reseal(folder)
    return folder


@pytest.mark.slow
def test_a_custom_call_runs_where_it_is_required_and_only_there(called: Path, tmp_path: Path) -> None:
    assert json.loads((called / "manifest.json").read_bytes())["required_extensions"] == required("shop.soft_clip")
    got = Bundle.load(called).run("transform", ROWS)["y"]
    np.testing.assert_allclose(got, 2 * np.tanh(np.array([0.5, 2, -3]) / 2), rtol=1e-6)
    single: Any = Bundle.load(called).run_row("transform", {"x": -3.0})
    np.testing.assert_allclose(single["y"], 2 * np.tanh(-1.5), rtol=1e-6)
    for name, listed in (("none", []), ("another", required("shop.upper"))):
        upper()
        unlisted = rewritten(called, tmp_path / name, required_extensions=listed)
        with pytest.raises(InputError, match=r"calls 'shop.soft_clip', neither .* nor an op that its manifest"):
            Bundle.load(unlisted).run("transform", ROWS)


@pytest.mark.slow
def test_a_required_extension_opens_the_door_to_its_own_kernels_only(called: Path, tmp_path: Path) -> None:
    for number, target in enumerate(
        ["xla_ffi_python_cpu_callback", "shop.soft_clip x", 'shop.soft_clip"x', "shop.other"]
    ):

        def call(x: Any, target: str = target) -> Any:
            run: Any = jax.ffi.ffi_call(target, STRUCT(x.shape, jnp.float32))
            return [run(x)]

        evil = with_program(called, tmp_path / str(number), call, target)
        with pytest.raises(InputError, match=r"device/.*\.stablehlo cannot be used: it calls '|without a plain name"):
            Bundle.load(evil).run("transform", ROWS)


@pytest.mark.slow
def test_a_kernel_called_with_sizes_or_attributes_that_it_does_not_expect_is_an_error(
    called: Path, tmp_path: Path
) -> None:
    def short(x: Any) -> Any:
        run: Any = jax.ffi.ffi_call("shop.soft_clip", STRUCT((1,), jnp.float32))
        return [run(x, limit=np.float32(2)) + x]

    def double(x: Any) -> Any:
        run: Any = jax.ffi.ffi_call("shop.soft_clip", STRUCT(x.shape, jnp.float32))
        return [run(x, limit=np.int64(2))]

    for number, fn in enumerate((short, double)):
        evil = with_program(called, tmp_path / str(number), fn, "shop.soft_clip")
        with pytest.raises(InputError, match=r"device/.*\.stablehlo cannot be run: .*"):
            Bundle.load(evil).run("transform", ROWS)
