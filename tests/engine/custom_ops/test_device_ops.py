"""Ops on the device: equal to plain JAX and numpy, with gradients that finite differences confirm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import custom_ops
from drivetrain.engine.custom_ops.device import exporting
from drivetrain.errors import InputError
from jax import test_util
from jax.experimental import pallas as pl

pytestmark = pytest.mark.engine

X = np.linspace(-3, 3, 13, dtype=np.float32)
STRUCT: Any = jax.ShapeDtypeStruct  # JAX leaves it untyped
check_grads: Any = test_util.check_grads


def clip(x: Any, *, limit: float) -> Any:
    return limit * jnp.tanh(x / limit)


def clip_gradient(arguments: Any, y: Any, cotangent: Any, *, limit: float) -> Any:
    return (cotangent * (1 - (y / limit) ** 2),)


def doubled(x: Any, *, interpret: bool) -> Any:
    def kernel(read: Any, write: Any) -> None:
        write[...] = read[...] * 2

    return pl.pallas_call(kernel, out_shape=STRUCT(x.shape, x.dtype), interpret=interpret)(x)


def test_a_jax_function_is_an_op_that_requires_nothing() -> None:
    op = custom_ops.register_op("math.clip")(clip)
    np.testing.assert_allclose(op(X, limit=2.0), 2 * np.tanh(X / 2), rtol=1e-6)
    check_grads(lambda x: op(x, limit=2.0), (X,), order=2, rtol=2e-2)
    assert op.extension is None
    assert op.shape(X, limit=2.0).shape == X.shape
    assert custom_ops.find("math.clip") is op
    assert op in custom_ops.registered()


def test_a_gradient_of_ones_own_replaces_jaxs() -> None:
    op = custom_ops.register_op("math.clip", gradient=clip_gradient)(clip)
    check_grads(lambda x: op(x, limit=2.0), (X,), order=2, modes=["rev"], rtol=2e-2)
    straight = custom_ops.register_op("math.round", gradient=lambda arguments, y, cotangent: (cotangent,))(jnp.round)
    np.testing.assert_array_equal(jax.grad(lambda x: straight(x).sum())(X), np.ones_like(X))
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: straight(x).sum()))(X), np.ones_like(X))


def test_a_gradient_that_is_no_tuple_of_cotangents_is_told() -> None:
    op = custom_ops.register_op("math.clip", gradient=lambda arguments, y, cotangent, limit: cotangent)(clip)
    with pytest.raises(InputError, match=r"(?s)gradient of op 'math.clip' gave .*each of the 1 arguments"):
        jax.grad(lambda x: op(x, limit=2.0).sum())(X)


def test_settings_are_constants() -> None:
    op = custom_ops.register_op("math.clip", gradient=clip_gradient)(clip)
    with pytest.raises(InputError, match="limit is an array") as error:
        op(X, limit=jnp.float32(2))
    assert (error.value.where or "").startswith(__file__)


@pytest.mark.slow
def test_a_pallas_kernel_is_interpreted_on_a_cpu_and_portable_in_an_export() -> None:
    op = custom_ops.pallas_op("math.doubled", plain=lambda x: x * 2)(doubled)
    text = str(jax.make_jaxpr(op)(X))
    assert "pallas_call" in text
    np.testing.assert_array_equal(jax.jit(op)(X), X * 2)
    check_grads(op, (X,), order=2, modes=["rev"], rtol=2e-2)
    np.testing.assert_array_equal(jax.vmap(op)(X.reshape(-1, 1))[:, 0], X * 2)
    assert op.extension is None
    with exporting():
        assert "pallas_call" not in str(jax.make_jaxpr(op)(X))


@pytest.mark.slow
def test_a_cpp_kernel_computes_what_plain_jax_does(library: Path) -> None:
    native = {"cpu": custom_ops.Native(library, "SoftClip")}
    op = custom_ops.ffi_op("shop.clip", native, plain=clip, gradient=clip_gradient)
    by_plain = custom_ops.ffi_op("shop.clip", native, plain=clip)  # the same kernel again: a notebook's cell run twice
    assert "ffi_call" in str(jax.make_jaxpr(lambda x: op(x, limit=2.0))(X))
    for made in (op, by_plain):
        np.testing.assert_allclose(jax.jit(lambda x, op=made: op(x, limit=2.0))(X), 2 * np.tanh(X / 2), rtol=1e-6)
        check_grads(lambda x, op=made: op(x, limit=2.0), (X,), order=2, modes=["rev"], rtol=2e-2)
        got = jax.grad(lambda x, op=made: op(x, limit=1.5).sum())(X)
        np.testing.assert_allclose(got, jax.grad(lambda x: clip(x, limit=1.5).sum())(X), rtol=1e-5)
    rows = jax.vmap(jax.grad(lambda x: op(x, limit=2.0)))(X)
    np.testing.assert_allclose(rows, 1 - np.tanh(X / 2) ** 2, rtol=1e-5)
    assert op.shape(STRUCT((4, 2), jnp.float32), limit=2.0).shape == (4, 2)
    assert op.extension == custom_ops.Extension("shop", "shop-features", "0.3", installed=False)


@pytest.mark.slow
def test_a_cpp_kernel_alone_has_a_shape_rule_and_no_gradient(library: Path) -> None:
    native = {"cpu": custom_ops.Native(library, "SoftClip")}
    op = custom_ops.ffi_op("shop.alone", native, shape=lambda x, limit: STRUCT(x.shape, x.dtype))
    np.testing.assert_allclose(op(X, limit=2.0), 2 * np.tanh(X / 2), rtol=1e-6)
    with pytest.raises(InputError, match=r"op 'shop.alone' has no gradient"):
        jax.grad(lambda x: op(x, limit=2.0).sum())(X)


@pytest.mark.slow
def test_where_there_is_no_kernel_plain_jax_runs(library: Path) -> None:
    op = custom_ops.ffi_op("shop.elsewhere", {"cuda": custom_ops.Native(library, "SoftClip")}, plain=clip)
    np.testing.assert_allclose(jax.jit(lambda x: op(x, limit=2.0))(X), 2 * np.tanh(X / 2), rtol=1e-6)
    check_grads(lambda x: op(x, limit=2.0), (X,), order=2, modes=["rev"], rtol=2e-2)
    on_tpu = custom_ops.pallas_op("math.on_tpu", plain=lambda x: x * 2, platforms=("tpu", "cuda"))(doubled)
    np.testing.assert_array_equal(on_tpu(X), X * 2)


SINE = """
#include <cmath>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Impl(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> s, ffi::ResultBuffer<ffi::F32> c) {
  if (x.element_count() != s->element_count() || x.element_count() != c->element_count())
    return ffi::Error::InvalidArgument("sizes differ");
  for (size_t i = 0; i < x.element_count(); ++i) {
    s->typed_data()[i] = std::sin(x.typed_data()[i]);
    c->typed_data()[i] = std::cos(x.typed_data()[i]);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Sine, Impl, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>()
    .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


@pytest.mark.slow
def test_a_kernel_may_give_several_arrays(tmp_path: Path) -> None:
    (tmp_path / "sine.cc").write_text(SINE)
    library = custom_ops.compile_cpp(tmp_path / "sine.cc", tmp_path / "sine.so")
    op = custom_ops.ffi_op(
        "shop.sine",
        {"cpu": custom_ops.Native(library, "Sine")},
        plain=lambda x: (jnp.sin(x), jnp.cos(x)),
        gradient=lambda arguments, made, cotangents: (cotangents[0] * made[1] - cotangents[1] * made[0],),
    )
    sine, cosine = jax.jit(op)(X)
    np.testing.assert_allclose(sine, np.sin(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cosine, np.cos(X), rtol=1e-5, atol=1e-6)
    check_grads(op, (X,), order=2, modes=["rev"], rtol=2e-2)


@pytest.mark.slow
def test_another_kernel_of_a_name_that_xla_has_is_refused(library: Path, tmp_path: Path) -> None:
    custom_ops.ffi_op("shop.taken", {"cpu": custom_ops.Native(library, "SoftClip")}, plain=clip)
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    with pytest.raises(InputError, match=r"(?s)has the kernel .*soft_clip.so on cpu.*start the process again"):
        custom_ops.ffi_op("shop.taken", {"cpu": custom_ops.Native(other, "SoftClip")}, plain=clip)


def test_a_kernel_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(InputError, match=r"(?s)'shop.bad': its library cannot be loaded.*compile it"):
        custom_ops.ffi_op("shop.bad", {"cpu": custom_ops.Native(broken, "Bad")}, plain=clip)
    with pytest.raises(InputError, match="has a kernel for 'abacus'"):
        custom_ops.ffi_op("shop.bad", {"abacus": custom_ops.Native(broken, "Bad")}, plain=clip)
    with pytest.raises(InputError, match="no shape rule"):
        custom_ops.ffi_op("shop.bad", {"cpu": custom_ops.Native(broken, "Bad")})
    with pytest.raises(InputError, match="no kernel"):
        custom_ops.ffi_op("shop.bad", {}, plain=clip)
    assert custom_ops.find("shop.bad") is None


@pytest.mark.slow
def test_a_symbol_that_is_not_there_is_told(library: Path) -> None:
    with pytest.raises(InputError, match=re.escape("has no symbol 'Hard'")):
        custom_ops.ffi_op("shop.bad", {"cpu": custom_ops.Native(library, "Hard")}, plain=clip)


def test_without_a_compiler_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text("int x;")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=r"(?s)no C\+\+ compiler to compile .*kernel.cc.*install one"):
        custom_ops.compile_cpp(source, tmp_path / "kernel.so")
    monkeypatch.setenv("CXX", "nvc++")
    with pytest.raises(InputError, match=r"nvc\+\+ is not on the PATH"):
        custom_ops.compile_cpp(source, tmp_path / "kernel.so")
    with pytest.raises(InputError, match="no C\\+\\+ file"):
        custom_ops.compile_cpp(tmp_path / "absent.cc")


def test_what_does_not_compile_is_told_in_the_compilers_words(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text("int main( { return nothing; }")
    with pytest.raises(InputError, match=r"kernel.cc does not compile: .*error: "):
        custom_ops.compile_cpp(source, tmp_path / "made" / "kernel.so")
    assert list((tmp_path / "made").iterdir()) == []


def test_a_library_is_only_kept_where_nobody_else_may_put_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.cc").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "drivetrain" / "native").mkdir(parents=True)
    (tmp_path / "drivetrain" / "native").chmod(0o777)
    with pytest.raises(InputError, match="native is open to others"):
        custom_ops.compile_cpp(tmp_path / "kernel.cc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kernel.cc"))  # below a file, as in a home that is read-only
    with pytest.raises(InputError, match="drivetrain/native cannot be made"):
        custom_ops.compile_cpp(tmp_path / "kernel.cc")


def test_an_equal_source_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text('extern "C" int one() { return 1; }')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = custom_ops.compile_cpp(source)
    written = first.stat().st_mtime_ns
    assert custom_ops.compile_cpp(source).stat().st_mtime_ns == written
    source.write_text('extern "C" int one() { return 2; }')
    assert custom_ops.compile_cpp(source) != first
    assert custom_ops.compile_cpp(source, flags=["-DX"]) != custom_ops.compile_cpp(source)


@pytest.mark.parametrize("name", ["clip", "Shop.clip", "shop.clip.x", "stablehlo.dynamic_x", "xla.f", "shop.", ".x"])
def test_names_say_whose_an_op_is(name: str) -> None:
    with pytest.raises(InputError, match="an op cannot be named"):
        custom_ops.register_op(name)(clip)


def test_a_name_belongs_to_its_first_definition() -> None:
    custom_ops.register_op("math.clip")(clip)
    custom_ops.register_op("math.clip")(clip)
    with pytest.raises(InputError, match=r"there is an op 'math.clip' already, defined in .*:clip"):
        custom_ops.register_op("math.clip")(jnp.tanh)
