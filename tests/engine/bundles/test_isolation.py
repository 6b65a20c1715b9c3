"""Programs that mean harm run in a child process: each ends in an error, the asking process lives, no child stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, BundleError, Limits, analyze, ops, refresh_bundle, verify_bundle
from drivetrain.engine.bundles.child import ChildEndedError, LimitedChild
from drivetrain.engine.bundles.isolation import IsolatedBundle
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

pytestmark = pytest.mark.engine

ROWS = pa.record_batch({"x": [1.0, 2.0, 4.0], "s": ["a", None, "b"]})
SHORT = Limits(seconds=5.0)


def preprocess(columns: ops.Columns) -> ops.Columns:
    x = ops.fill_missing(columns["x"], 0.0)
    return {"z": ops.z_score(x), "v": jnp.stack([x, 2 * x], -1), "id": ops.vocabulary(columns["s"]), "s": columns["s"]}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("isolation") / "bundle"
    analyze(preprocess, data.source_of(pa.Table.from_batches([ROWS])), data.LocalExecutor()).save(folder)
    return folder


def endless(x: Any) -> Any:
    return lax.while_loop(lambda carry: jnp.isfinite(carry[0]), lambda carry: carry * 0, x)


def large(x: Any) -> Any:
    return x + jnp.sort(jnp.arange(1 << 29, dtype=jnp.float32) * x[0])[0]


def nonsense(x: Any) -> Any:
    """An unstable sort whose comparator says yes to everything."""
    many = jnp.zeros(100_000, jnp.float32) + x[0]

    def sort(ctx: Any, operand: Any) -> Any:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        scalar = ir.RankedTensorType.get([], ir.F32Type.get())
        op = stablehlo.SortOp([operand.type], [operand], dimension=0, is_stable=False)
        block = op.comparator.blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            boolean = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
            true = ir.DenseElementsAttr.get_splat(boolean, ir.BoolAttr.get(True))
            stablehlo.return_([stablehlo.constant(true)])
        return op.results

    from jax.extend.core import Primitive
    from jax.interpreters.mlir import register_lowering

    primitive: Any = Primitive("nonsense_sort")
    primitive.def_abstract_eval(lambda aval: aval)
    register_lowering(primitive, sort)
    return x + jnp.asarray(primitive.bind(many)).sum()


def evil(honest: Path, folder: Path, does: Callable[[Any], Any]) -> Path:
    """A bundle whose program does that with its first input, resealed."""
    shutil.copytree(honest, folder)
    (path,) = folder.glob("device/*.stablehlo")
    program: Any = jax.export.deserialize(bytearray(path.read_bytes()))

    def call(*arrays: Any) -> Any:
        first, *others = program.call(*arrays)
        return [does(first.reshape(-1)).reshape(first.shape), *others]

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]  # type: ignore[no-untyped-call]
    exported = jax.export.export(jax.jit(call), platforms=program.platforms)(*shapes)
    path.write_bytes(bytes(exported.serialize()))
    path.with_suffix(".mlirbc").write_bytes(exported.mlir_module_serialized)
    reseal(folder)
    return folder


@contextmanager
def no_child_is_left() -> Iterator[None]:
    before = {process.pid for process in psutil.Process().children()}
    yield
    assert {process.pid for process in psutil.Process().children()} <= before


@pytest.fixture(scope="module")
def both(honest: Path) -> Iterator[tuple[Bundle, IsolatedBundle]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_MINE", "tell nobody")
        isolated = Bundle.load(honest, isolated=True)
    with isolated:
        yield Bundle.load(honest), isolated


def test_an_isolated_bundle_gives_what_the_bundle_gives(both: tuple[Bundle, IsolatedBundle]) -> None:
    bundle, isolated = both
    assert isolated.signatures == dict(bundle.signatures)
    assert isolated.describe() == bundle.describe()
    wanted, outputs = bundle.run("transform", ROWS), isolated.run("transform", ROWS)
    for name, values in wanted.items():
        assert outputs[name].dtype == values.dtype
        assert outputs[name].tolist() == values.tolist()
    assert isolated.run_arrow("transform", ROWS) == bundle.run_arrow("transform", ROWS)
    assert str(isolated.run_row("transform", {"x": np.float32(2), "s": None})) == str(
        bundle.run_row("transform", {"x": 2.0, "s": None})
    )
    _, kept, errors = isolated.run_each("transform", ROWS)
    assert (kept.tolist(), errors) == ([0, 1, 2], {})
    for use in (
        lambda: isolated.run("transform", {"x": [1.0]}),
        lambda: isolated.run("other", ROWS),
        lambda: isolated.run_row("transform", {"x": object(), "s": "a"}),
        lambda: isolated.run_row("transform", {"x": "much", "s": "a"}),
    ):
        with pytest.raises(InputError):
            use()
    assert isolated.run("transform", ROWS)["z"].tolist() == wanted["z"].tolist()  # a bad row does not end the child
    (child,) = (
        each for each in psutil.Process().children() if "drivetrain.engine.bundles.child_main" in each.cmdline()
    )
    assert "SECRET_OF_MINE" not in child.environ()


ODD: list[Any] = [
    None,
    [],
    {},
    (),
    set(),
    b"transform",
    1,
    1.5,
    True,
    float("nan"),
    "",
    "other",
    "transform",
    "x" * 200,
    "\ud800",
    object,
    2**70,
    10**400,
    1j,
    Decimal(1),
    datetime(2020, 1, 1, tzinfo=UTC),
    pd.NA,
    np.float32(2),
    np.array(1.0),
    np.array([1.0]),
    np.str_("a"),
    np.bytes_(b"a"),
    pa.scalar(1.0),
    ["a"],
    ("a",),
    {"x": 1.0},
    [1.0],
    [None],
    [object],
    np.zeros((2, 2)),
]
ODD_BATCHES = [
    *ODD,
    {"x": [1.0], "s": ["a"]},
    {"x": [], "s": []},
    {"x": [1.0, 2.0], "s": ["a"]},
    {"x": 1.0, "s": "a"},
    {1: [2]},
    ROWS.slice(1),
    pd.DataFrame({"x": [1.0], "s": ["a"]}),
    pa.table({"x": [[1.0]], "s": ["a"]}),
    {"x": [object], "s": ["a"]},
    pa.record_batch([pa.array([1.0]), pa.array([2.0]), pa.array(["a"])], names=["x", "x", "s"]),
    {"\ud800": [1]},
]


def _outcome(use: Callable[..., object], *arguments: object) -> tuple[str, str]:
    try:
        return "given", repr(use(*arguments))
    except Exception as error:
        return type(error).__name__, str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["run", "run_arrow", "run_each"]),
    st.one_of(st.just("transform"), st.sampled_from(ODD)),
    st.sampled_from(ODD_BATCHES),
)
def test_odd_arguments_end_as_they_do_with_the_bundle(
    both: tuple[Bundle, IsolatedBundle], method: str, name: Any, batch: Any
) -> None:
    bundle, isolated = (_outcome(getattr(each, method), name, batch) for each in both)
    assert isolated == bundle
    assert bundle[0] in ("given", "InputError")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(st.just("transform"), st.sampled_from(ODD)),
    st.one_of(
        st.sampled_from(ODD),
        st.fixed_dictionaries(
            {"x": st.one_of(st.just(1.0), st.sampled_from(ODD)), "s": st.one_of(st.just("a"), st.sampled_from(ODD))},
            optional={"other": st.sampled_from(ODD), 1: st.just(1), ("a",): st.just(1)},
        ),
    ),
)
def test_odd_rows_end_as_they_do_with_the_bundle(both: tuple[Bundle, IsolatedBundle], name: Any, row: Any) -> None:
    bundle, isolated = (_outcome(each.run_row, name, row) for each in both)
    assert isolated == bundle
    assert bundle[0] in ("given", "InputError")


def test_limits_of_another_kind_are_refused(honest: Path) -> None:
    with pytest.raises(InputError, match=r"limits are drivetrain\.engine\.Limits, not int"):
        Bundle.load(honest, isolated=True, limits=60)  # type: ignore[call-overload]


def test_the_memory_is_the_programs_and_not_that_of_libraries(honest: Path) -> None:
    """What is loaded once the memory is short ends the process: OpenBLAS, say, by SIGINT."""
    limits = Limits(120, max(256, 64 * (os.cpu_count() or 1)) << 20)
    with no_child_is_left(), Bundle.load(honest, isolated=True, limits=limits) as isolated:
        assert isolated.run("transform", ROWS)["z"].tolist() == Bundle.load(honest).run("transform", ROWS)["z"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "limits", "says"),
    [
        (endless, SHORT, "takes longer than 5 s"),
        (large, Limits(240, 1 << 30), r"memory|SIGABRT|RESOURCE_EXHAUSTED"),
        (nonsense, Limits(240), ""),
    ],
    ids=["endless", "large", "nonsense"],
)
def test_a_program_that_means_harm_ends_in_an_error(
    honest: Path, tmp_path: Path, does: Callable[[Any], Any], limits: Limits, says: str
) -> None:
    folder = evil(honest, tmp_path / "evil", does)
    with no_child_is_left():
        isolated = Bundle.load(folder, isolated=True, limits=Limits(120, limits.memory))
        isolated._child.limits = limits
        if does is nonsense:  # what such a sort does is not defined: it may end well, too
            with suppress(BundleError):
                isolated.run("transform", ROWS)
        else:
            with pytest.raises(BundleError, match=says):
                isolated.run("transform", ROWS)
        isolated.close()
        isolated.close()
        with pytest.raises(BundleError, match="was ended before"):
            isolated.run("transform", ROWS)


@pytest.mark.slow
def test_verify_says_what_ended_or_did_not_end(honest: Path, tmp_path: Path) -> None:
    folder = evil(honest, tmp_path / "evil", endless)
    with no_child_is_left():
        checks = verify_bundle(folder, limits=Limits(15))
    assert [check.ok for check in checks] == [True, True, False]
    assert checks[-1].what == "signature transform"
    assert "takes longer than 15 s" in checks[-1].text


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_whatever_ends_the_process_that_asks_ends_its_child(honest: Path, tmp_path: Path, how: signal.Signals) -> None:
    folder = evil(honest, tmp_path / "evil", endless)
    command = [sys.executable, "-m", "drivetrain", "bundle", "verify", str(folder)]
    asking = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    try:
        child = _busy_child(psutil.Process(asking.pid))
        asking.send_signal(how)
        asking.wait(10)
        waits(lambda: not lives(child.pid))
    finally:
        asking.kill()
        asking.wait()


def _busy_child(asking: psutil.Process) -> psutil.Process:
    """The child, once it computes without end."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in asking.children():
            if child.cpu_times().user > 6:  # to import JAX and compile takes less
                return child
        time.sleep(0.1)
    raise AssertionError("no child came to work")


@pytest.mark.slow
def test_what_the_child_gives_is_not_believed(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    for text in (
        r"printf '\377\377\377\377'",  # a head of 4 GiB
        r"""printf '\003\000\000\000{}x'""",
        r"""printf '\034\000\000\000{"parts": [999999999999999]}'""",
        r"""printf '\015\000\000\000{"parts": []}'; cat >/dev/null""",
        "echo no room >&2; exit 3",
    ):
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))
        with no_child_is_left(), pytest.raises(BundleError, match=r"loading it|running it"):
            Bundle.load(honest, isolated=True, limits=SHORT)


def test_a_child_writes_no_file_and_says_so_no_more_after_its_end() -> None:
    child = LimitedChild(Limits(60))
    assert [answer.head["survived"] for answer in child.ask({"do": "try_programs"}, [b"x"])]
    process = child._process
    limit = psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE)
    assert limit == (0, 0)
    assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] == 256
    del child
    assert process.returncode is not None
    with pytest.raises(ChildEndedError):
        next(iter(_closed().ask({"do": "try_programs"})))


def _closed() -> LimitedChild:
    child = LimitedChild(Limits(60))
    child.close()
    return child


@pytest.mark.slow
def test_an_endless_program_is_not_refreshed(honest: Path, tmp_path: Path) -> None:
    folder = evil(honest, tmp_path / "evil", endless)
    body = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**body, "export": {**body["export"], "jax": "0.9.9"}}))
    reseal(folder)
    says = r"evil: writing its programs again takes longer than 5 s"
    with no_child_is_left(), pytest.raises(BundleError, match=says):
        refresh_bundle(folder, tmp_path / "out", limits=SHORT)
    assert not (tmp_path / "out").exists()
