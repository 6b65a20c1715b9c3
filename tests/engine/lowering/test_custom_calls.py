"""Kernels that a program may call, with the types that their operands imply: JAX's own calls pass, lies do not."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from drivetrain.engine.lowering import custom_calls
from drivetrain.engine.lowering.custom_calls import FalseTypesError, KernelCall, Type, admitted, check_call, check_types
from jax import lax
from jax.interpreters.mlir import module_to_bytecode

pytestmark = pytest.mark.engine

STRUCT: Any = jax.ShapeDtypeStruct  # JAX leaves it untyped
SQUARE, TALL, WIDE = (STRUCT((5, m, n), jnp.float32) for m, n in ((4, 4), (6, 4), (4, 6)))
COMPLEX, VECTOR = STRUCT((5, 4, 4), jnp.complex64), STRUCT((5, 4), jnp.float32)
LARGE = STRUCT((1200, 1100), jnp.float32)
Function = Callable[..., Any]

CASES: list[tuple[Function, tuple[Any, ...]]] = [
    (jnp.linalg.qr, (TALL,)),
    (functools.partial(jnp.linalg.qr, mode="complete"), (TALL,)),
    (lax.linalg.schur, (SQUARE,)),
    (lax.linalg.schur, (COMPLEX,)),
    (lax.linalg.hessenberg, (SQUARE,)),
    (lax.linalg.tridiagonal, (SQUARE,)),
    (lax.linalg.tridiagonal, (COMPLEX,)),
    (lax.linalg.tridiagonal_solve, (VECTOR, VECTOR, VECTOR, SQUARE)),
    (jnp.linalg.eig, (SQUARE,)),
    (jnp.linalg.eig, (COMPLEX,)),
    (jnp.linalg.eigh, (COMPLEX,)),
    (jnp.linalg.svd, (TALL,)),
    (functools.partial(jnp.linalg.svd, full_matrices=False), (WIDE,)),
    (functools.partial(jnp.linalg.svd, compute_uv=False), (WIDE,)),
    (functools.partial(jnp.linalg.svd, compute_uv=False), (LARGE,)),
    (lambda x: jnp.linalg.svd(x.T, full_matrices=False), (LARGE,)),
    (lax.linalg.lu, (TALL,)),
    (jnp.linalg.cholesky, (SQUARE,)),
    (functools.partial(lax.linalg.triangular_solve, left_side=False), (SQUARE, TALL)),
    (functools.partial(lax.linalg.triangular_solve, left_side=True, transpose_a=True), (SQUARE, WIDE)),
    (functools.partial(lax.approx_max_k, k=2), (TALL,)),
    (functools.partial(lax.approx_max_k, k=2, aggregate_to_topk=False), (STRUCT((3, 100_000), jnp.float32),)),
]


@functools.cache
def honest() -> list[tuple[KernelCall, tuple[Type, ...]]]:
    """The calls that JAX writes for each platform, each with what it declares."""
    calls: list[tuple[KernelCall, tuple[Type, ...]]] = []
    original = custom_calls.check_call

    def seen(call: KernelCall, declared: tuple[Type, ...]) -> None:
        calls.append((call, declared))
        original(call, declared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(custom_calls, "check_call", seen)
        for function, arguments in CASES:
            traced = jax.jit(function).trace(*arguments)
            for platforms in (("cpu", "cuda", "tpu"), ("cpu", "cuda"), ("cpu",)):
                with suppress(NotImplementedError):
                    check_types(module_to_bytecode(traced.lower(lowering_platforms=platforms).compiler_ir()))
                    break
    return list(dict(zip(map(repr, calls), calls, strict=True)).values())


@pytest.mark.slow
def test_what_jax_writes_passes() -> None:
    targets = {call.target for call, _ in honest()}
    routines = {"potrf", "geqrf", "orgqr", "getrf", "geev", "gees", "gesdd", "gehrd", "trsm", "gtsv", "sytrd"}
    assert targets >= {f"lapack_s{routine}_ffi" for routine in routines}
    assert targets >= {"lapack_cheevd_ffi", "lapack_chetrd_ffi", "cusolver_gesvd_ffi", "cusolver_gesvdj_ffi",
                       "cusparse_gtsv2_ffi", "cu_lu_pivots_to_permutation", "Eigh", "Qr", "ApproxTopK"}  # fmt: skip


def resized(dice: random.Random, type_: Type) -> Type:
    kind = dice.randrange(3 if type_.shape else 1)
    if kind == 0:
        others = [dtype for dtype in ("f32", "f64", "complex<f32>", "i32", "ui32", "i8") if dtype != type_.dtype]
        return replace(type_, dtype=dice.choice(others))
    if kind == 1:
        return replace(type_, shape=dice.choice([type_.shape[1:], (*type_.shape, 1), (1, *type_.shape)]))
    axis = dice.randrange(len(type_.shape))
    size = dice.choice([0, 1, 2, 10**6, type_.shape[axis] + 1])
    return replace(type_, shape=(*type_.shape[:axis], size, *type_.shape[axis + 1 :]))


@pytest.mark.parametrize("seed", range(3))
def test_a_false_result_is_refused(seed: int) -> None:
    dice = random.Random(seed)
    for call, declared in honest():
        for _ in range(20):
            index = dice.randrange(len(declared))
            false = (*declared[:index], resized(dice, declared[index]), *declared[index + 1 :])
            if false == declared or call.target == "cu_lu_pivots_to_permutation":
                continue
            if call.target == "ApproxTopK" and call.settings["aggregate_to_topk"] is False:
                continue  # what it keeps is XLA's choice, within bounds
            with pytest.raises(FalseTypesError, match="is declared to give"):
                check_call(call, false)
        for false in (declared[1:], (*declared, declared[0])):
            with pytest.raises(FalseTypesError):
                check_call(call, false)


@pytest.mark.parametrize("seed", range(3))
def test_operands_and_settings_imply_other_results_or_are_refused(seed: int) -> None:
    """Whatever the operands are made, what is declared for the old ones is refused, or the kernel reads none of it."""
    dice = random.Random(seed)
    for call, declared in honest():
        for _ in range(20):
            index = dice.randrange(len(call.operands))
            operand = resized(dice, call.operands[index])
            operands = (*call.operands[:index], operand, *call.operands[index + 1 :])
            if operand != call.operands[index] and not another_count(call, index, operand):
                with pytest.raises(FalseTypesError):
                    check_call(replace(call, operands=operands), declared)
        for name in [] if call.target in ("ApproxTopK", "Eigh") else call.settings:
            for value in (ord("X"), -1, None, "V", 1.5):
                with pytest.raises(FalseTypesError):
                    check_call(replace(call, settings={**call.settings, name: value}), declared)


def another_count(call: KernelCall, index: int, operand: Type) -> bool:
    """Another number of reflections or of pivots: as well defined, as long as there are columns for them."""
    before = call.operands[index]
    same_batch = len(operand.shape) == len(before.shape) and operand.shape[:-1] == before.shape[:-1]
    kinds = ("orgqr", "ungqr", "Reflectors", "permutation")
    counted = any(kind in call.target for kind in kinds) and index == len(call.operands) - 1
    return counted and operand.dtype == before.dtype and same_batch and operand.shape[-1] < 10


@pytest.mark.parametrize("target", ["cuhybrid_eig_real", "lapack_spotrf", "lapack_sormqr_ffi", "cu_anything", "Custom"])
def test_what_no_rule_is_for_is_not_admitted(target: str) -> None:
    assert not admitted(target)
