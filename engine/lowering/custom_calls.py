"""Custom calls of a device program: which kernels may be called, with the types that their operands imply.

A kernel of LAPACK or cuSOLVER writes as many numbers as its operands imply, whatever the program declares of its
results. What an untrusted program declares is therefore never believed: the types are derived here, for every
target that JAX keeps stable (`jax.export`'s list), and compared once the sizes of all arrays are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

DTYPES: Final = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
_REAL: Final = {"f32": "f32", "f64": "f64", "complex<f32>": "f32", "complex<f64>": "f64"}
_COMPLEX: Final = {"f32": "complex<f32>", "f64": "complex<f64>", "complex<f32>": "complex<f32>",
                   "complex<f64>": "complex<f64>"}  # fmt: skip
_NEVER_CALLED: Final = frozenset({
    "shape_assertion", "stablehlo.dynamic_reduce_window", "stablehlo.dynamic_rng_bit_generator",
    "stablehlo.dynamic_top_k", "stablehlo.dynamic_approx_top_k", "AllocateBuffer",
})  # fmt: skip
"""Targets that may stand in a program and not in what is run of it. XLA replaces the first ones by operations with
types of their own as soon as all sizes are known. The last one gives memory as it lies, which may hold what another
caller sent; JAX writes it for GPU and TPU (`jax.lax.empty`), never for a CPU, where the program may still run."""


class FalseTypesError(ValueError):
    """A custom call of other types, or other settings, than its kernel can be called with."""


@dataclass(frozen=True)
class Type:
    """The type of one operand or result, as StableHLO has it: `Type("f32", (5, 4))` is tensor<5x4xf32>."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"tensor<{'x'.join([*map(str, self.shape), self.dtype])}>"


@dataclass(frozen=True)
class KernelCall:
    """A custom call: its target, the types of its operands, and its settings, a character as its code."""

    target: str
    operands: tuple[Type, ...]
    settings: Mapping[str, object]

    def takes(self, count: int) -> None:
        """Raise FalseTypesError unless there are so many operands."""
        if len(self.operands) != count:
            raise FalseTypesError(f"{count} operands, not {len(self.operands)}")

    def matrices(self) -> _Matrices:
        """Its first operand as a batch of matrices."""
        if not self.operands or len(self.operands[0].shape) < 2 or self.operands[0].dtype not in _REAL:
            raise FalseTypesError("a batch of matrices as its first operand")
        (*batch, rows, columns) = self.operands[0].shape
        return _Matrices(self.operands[0], tuple(batch), rows, columns)

    def has(self, **allowed: str) -> None:
        """Raise FalseTypesError unless its settings are these, each one of the allowed characters."""
        for name, characters in allowed.items():
            if self.settings.get(name) not in list(map(ord, characters)):
                raise FalseTypesError(f"{name} = one of {', '.join(characters)}, not {self.settings.get(name)!r:.40}")
        self.only(allowed)

    def flags(self, *names: str) -> list[bool]:
        """Its settings, which are these, each true or false."""
        for name in names:
            if not isinstance(self.settings.get(name), bool):
                raise FalseTypesError(f"{name} = true or false, not {self.settings.get(name)!r:.40}")
        return [self.settings[name] is True for name in names]

    def only(self, names: Collection[str]) -> None:
        """Raise FalseTypesError if there is a setting of another name."""
        if odd := self.settings.keys() - set(names):
            raise FalseTypesError(f"no setting {min(odd)!r:.40}")


@dataclass(frozen=True)
class _Matrices:
    type: Type
    batch: tuple[int, ...]
    rows: int
    columns: int

    @property
    def rank(self) -> int:
        return min(self.rows, self.columns)

    def of(self, *dims: int, dtype: str = "") -> Type:
        return Type(dtype or self.type.dtype, (*self.batch, *dims))

    @property
    def info(self) -> Type:
        return self.of(dtype="i32")

    def real(self, *dims: int) -> Type:
        return self.of(*dims, dtype=_REAL[self.type.dtype])

    def square(self) -> int:
        if self.rows != self.columns:
            raise FalseTypesError(f"square matrices, not {self.type}")
        return self.rows


Implied = list[tuple[Type, ...]]
"""The results that a call may declare: mostly one tuple of types, of a few kernels two."""
_Rule = Callable[[KernelCall], Implied]

# --- kernels that LAPACK, cuSOLVER and the TPU have alike; shapes as in jax.lax.linalg ---


def _uplo(call: KernelCall) -> None:
    if call.target.startswith("lapack"):
        call.has(uplo="LU")
    else:
        call.flags("lower")
        call.only({"lower"})


def _potrf(call: KernelCall) -> Implied:
    call.takes(1)
    a = call.matrices()
    a.square()
    _uplo(call)
    return [(a.type, a.info)]


def _geqrf(call: KernelCall) -> Implied:
    call.takes(1)
    call.only(())
    a = call.matrices()
    return [(a.type, a.of(a.rank))]


def _orgqr(call: KernelCall) -> Implied:
    call.takes(2)
    call.only(())
    a, reflectors = call.matrices(), call.operands[1]
    if a.rows < a.columns or not reflectors.shape or reflectors.shape[-1] > a.columns:
        raise FalseTypesError(f"at least as many rows as columns, and as many columns as reflectors, not {a.type}")
    if reflectors != a.of(reflectors.shape[-1]):
        raise FalseTypesError(f"reflectors of {a.of(reflectors.shape[-1])}, not {reflectors}")
    return [(a.type,)]


def _getrf(call: KernelCall) -> Implied:
    call.takes(1)
    call.only(())
    a = call.matrices()
    return [(a.type, a.of(a.rank, dtype="i32"), a.info)]


def _trd(call: KernelCall) -> Implied:
    call.takes(1)
    a = call.matrices()
    n = a.square()
    _uplo(call)
    if n < 1:
        raise FalseTypesError("matrices that are not empty")
    return [(a.type, a.real(n), a.real(n - 1), a.of(n - 1), a.info)]


# --- LAPACK ---


def _evd(call: KernelCall) -> Implied:
    call.takes(1)
    call.has(mode="VN", uplo="LU")
    a = call.matrices()
    return [(a.type, a.real(a.square()), a.info)]


def _geev(call: KernelCall) -> Implied:
    call.takes(1)
    call.has(compute_left="VN", compute_right="VN")
    a = call.matrices()
    n = a.square()
    values = (a.of(n),) * (2 if _REAL[a.type.dtype] == a.type.dtype else 1)
    return [(*values, *(a.of(n, n, dtype=_COMPLEX[a.type.dtype]),) * 2, a.info)]


def _gees(call: KernelCall) -> Implied:
    call.takes(1)
    call.has(mode="VN", sort="N")  # sorting would call a function that nobody gave
    a = call.matrices()
    values = (a.of(a.square()),) * (2 if _REAL[a.type.dtype] == a.type.dtype else 1)
    return [(a.type, a.type, *values, a.info, a.info)]


def _gesdd(call: KernelCall) -> Implied:
    call.takes(1)
    call.has(mode="ASN")
    a = call.matrices()
    whole, economic = (
        (a.type, a.real(a.rank), a.of(a.rows, u), a.of(v, a.columns), a.info)
        for u, v in ((a.rows, a.columns), (a.rank, a.rank))
    )
    return {ord("A"): [whole], ord("S"): [economic]}.get(call.settings["mode"], [whole, economic])  # type: ignore[call-overload, no-any-return]  # `has` saw an int


def _gehrd(call: KernelCall) -> Implied:
    call.takes(1)
    call.only(("low", "high"))
    a = call.matrices()
    n = a.square()
    if n < 1 or (call.settings.get("low"), call.settings.get("high")) != (1, n):
        raise FalseTypesError(f"low = 1 and high = {n}")
    return [(a.type, a.of(n - 1), a.info)]


def _trsm(call: KernelCall) -> Implied:
    call.takes(2)
    call.has(side="LR", uplo="LU", trans_x="NTC", diag="NU")
    a, b = call.matrices(), call.operands[1]
    n = a.square()
    other = b.shape[-1 if call.settings["side"] == ord("L") else -2] if len(b.shape) > 1 else 0
    implied = a.of(*((n, other) if call.settings["side"] == ord("L") else (other, n)))
    if b != implied:
        raise FalseTypesError(f"right-hand sides of {implied}, not {b}")
    return [(b,)]


def _diagonals(call: KernelCall) -> _Matrices:
    """The right-hand sides of a tridiagonal system, whose diagonals fit them."""
    call.takes(4)
    call.only(())
    b = KernelCall(call.target, call.operands[3:], {}).matrices()
    for diagonal in call.operands[:3]:
        if diagonal != b.of(b.rows):
            raise FalseTypesError(f"diagonals of {b.of(b.rows)}, not {diagonal}")
    return b


def _gtsv(call: KernelCall) -> Implied:
    b = _diagonals(call)
    return [(*(b.of(b.rows),) * 3, b.type, b.info)]


# --- GPU ---


def _gtsv2(call: KernelCall) -> Implied:
    b = _diagonals(call)
    if b.rows < 3:
        raise FalseTypesError("three rows at least")
    return [(b.type,)]


def _syevd(call: KernelCall) -> Implied:
    call.takes(1)
    call.flags("lower")
    call.only(("lower", "algorithm"))
    if call.settings.get("algorithm") not in (0, 1, 2):
        raise FalseTypesError("algorithm = 0, 1 or 2")
    a = call.matrices()
    return [(a.type, a.real(a.square()), a.info)]


def _gesvd(call: KernelCall) -> Implied:
    call.takes(1)
    whole, vectors, transposed = call.flags("full_matrices", "compute_uv", "transposed")
    call.only(("full_matrices", "compute_uv", "transposed"))
    a = call.matrices()
    if transposed and (a.rows >= a.columns or "gesdd" in call.target):
        raise FalseTypesError("transposed = false")
    u, v = a.of(a.rows, a.rows if whole else a.rank), a.of(a.columns if whole else a.rank, a.columns)
    if not vectors:
        u = v = Type(a.type.dtype, ())
    return [(a.type, a.real(a.rank), *((v, u) if transposed else (u, v)), a.info)]


def _gesvdj(call: KernelCall) -> Implied:
    call.takes(1)
    whole, _ = call.flags("full_matrices", "compute_uv")
    call.only(("full_matrices", "compute_uv"))
    a = call.matrices()
    u, v = (a.of(size, size if whole else a.rank) for size in (a.rows, a.columns))
    return [(a.type, a.real(a.rank), u, v, a.info)]


def _permutation(call: KernelCall) -> Implied:
    call.takes(1)
    call.only(())
    pivots = call.operands[0]
    if pivots.dtype != "i32" or not pivots.shape:
        raise FalseTypesError(f"pivots of i32, not {pivots}")
    return [(pivots,)]  # or longer rows: see `_fits`


def _threefry(call: KernelCall) -> Implied:
    call.takes(4)
    call.only(())
    if set(call.operands) != {call.operands[0]} or call.operands[0].dtype != "ui32":
        raise FalseTypesError("four operands of ui32 and one shape")
    return [call.operands[:2]]


# --- TPU ---


def _eigh(call: KernelCall) -> Implied:
    call.takes(1)
    a = call.matrices()
    return [(a.type, a.real(a.square()))]


def _lu(call: KernelCall) -> Implied:
    call.takes(1)
    a = call.matrices()
    return [(a.type, a.of(a.rank, dtype="i32"), a.of(a.rows, dtype="i32"))]


def _approx_top_k(call: KernelCall) -> Implied:
    count = len(call.operands) // 2
    axis, k = call.settings.get("reduction_dim"), call.settings.get("top_k")
    arrays, initial = call.operands[:count], call.operands[count:]
    if not count or [Type(array.dtype, ()) for array in arrays] != list(initial):
        raise FalseTypesError("arrays, then a first value for each")
    shape = arrays[0].shape
    if any(array.shape != shape for array in arrays) or not isinstance(axis, int) or not 0 <= axis < len(shape):
        raise FalseTypesError("arrays of one shape, and reduction_dim one of their dimensions")
    if not isinstance(k, int) or not 0 < k <= shape[axis]:
        raise FalseTypesError(f"top_k between 1 and {shape[axis]}")
    kept = (*shape[:axis], k, *shape[axis + 1 :])
    return [tuple(Type(array.dtype, kept) for array in arrays)]  # or more than k: see `_fits`


# --- calls that compute nothing ---


def _identity(call: KernelCall) -> Implied:
    call.takes(1)
    return [call.operands]


def _rules() -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {}
    lapack = {"potrf": _potrf, "geqrf": _geqrf, "getrf": _getrf, "geev": _geev, "gees": _gees, "gesdd": _gesdd,
              "gehrd": _gehrd, "trsm": _trsm, "gtsv": _gtsv}  # fmt: skip
    for letter in DTYPES:
        names = ("ungqr", "heevd", "hetrd") if letter in "cz" else ("orgqr", "syevd", "sytrd")
        for name, rule in {**lapack, **dict(zip(names, (_orgqr, _evd, _trd), strict=True))}.items():
            rules[f"lapack_{letter}{name}_ffi"] = rule
    gpu = {"solver_potrf_ffi": _potrf, "solver_geqrf_ffi": _geqrf, "solver_orgqr_ffi": _orgqr,
           "solver_getrf_ffi": _getrf, "solver_sytrd_ffi": _trd, "solver_syevd_ffi": _syevd,
           "solver_gesvd_ffi": _gesvd, "solver_gesdd_ffi": _gesvd, "solver_gesvdj_ffi": _gesvdj,
           "sparse_gtsv2_ffi": _gtsv2, "_lu_pivots_to_permutation": _permutation,
           "_threefry2x32_ffi": _threefry}  # fmt: skip
    for prefix, (name, rule) in product(("cu", "hip"), gpu.items()):
        rules[prefix + name] = rule
    tpu = {"Qr": _geqrf, "ProductOfElementaryHouseholderReflectors": _orgqr, "Eigh": _eigh, "LuDecomposition": _lu,
           "ApproxTopK": _approx_top_k}  # fmt: skip
    same = dict.fromkeys(
        ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"), _identity
    )
    return {**rules, **tpu, **same}


_RULES: Final = _rules()
_BY_XLA: Final = frozenset({"Qr", "ProductOfElementaryHouseholderReflectors", "Eigh", "LuDecomposition", "Sharding",
                            "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"})  # fmt: skip
"""Targets that XLA knows itself: they take no settings of the typed kind."""


def admitted(target: str) -> bool:
    """Whether an untrusted program may call it, if its types are those that its operands imply."""
    return target in _RULES or target in _NEVER_CALLED


def to_check(target: str) -> bool:
    """Whether a program with it has to pass `check_types`: all but the assertions of nearly every program."""
    return admitted(target) and target != "shape_assertion"


def check_call(call: KernelCall, declared: tuple[Type, ...]) -> None:
    """Compare what a program declares of a call's results with what its operands and settings imply.

    Raises:
        FalseTypesError: They differ, or the kernel cannot be called with these operands and settings.
    """
    if call.target.startswith("lapack_") and call.operands:
        kind = DTYPES[call.target.removeprefix("lapack_")[0]]
        if call.operands[0].dtype != kind:
            raise _false(call, declared, f"operands of {kind}")
    try:
        implied = _RULES[call.target](call)
    except FalseTypesError as error:
        raise _false(call, declared, f"it takes {error}") from error
    if not any(_fits(call, declared, types) for types in implied):
        raise _false(call, declared, f"its operands imply {' or '.join(map(_shown, implied))}")


def _fits(call: KernelCall, declared: tuple[Type, ...], implied: tuple[Type, ...]) -> bool:
    if declared == implied:
        return True
    if call.target.endswith("_lu_pivots_to_permutation") and len(declared) == 1:
        (of, pivots), last = (declared[0], implied[0]), -1
    elif call.target == "ApproxTopK" and len(declared) == len(implied) and call.settings["aggregate_to_topk"] is False:
        # What is kept before the last step is XLA's choice, and no more than there is.
        axis = call.settings["reduction_dim"]
        assert isinstance(axis, int)
        return all(
            of.dtype == least.dtype
            and len(of.shape) == len(least.shape)
            and least.shape[axis] <= of.shape[axis] <= call.operands[0].shape[axis]
            and (*of.shape[:axis], *of.shape[axis + 1 :]) == (*least.shape[:axis], *least.shape[axis + 1 :])
            for of, least in zip(declared, implied, strict=True)
        )
    else:
        return False
    return (
        of.dtype == pivots.dtype
        and len(of.shape) == len(pivots.shape)
        and of.shape[:last] == pivots.shape[:last]
        and of.shape[last] >= pivots.shape[last]
    )


def _false(call: KernelCall, declared: tuple[Type, ...], why: str) -> FalseTypesError:
    return FalseTypesError(f"{call.target}{_shown(call.operands)} is declared to give {_shown(declared)}, but {why}")


def _shown(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})"


# --- reading a program ---


def check_types(module: bytes) -> None:
    """Check every custom call of a StableHLO module whose inputs are of known sizes.

    Args:
        module: MLIR bytecode, as `lower` gives it.

    Raises:
        FalseTypesError: A call's types are not what its operands imply, or still depend on values.
    """
    from jax.extend.mlir import ir, refine_polymorphic_shapes
    from jax.interpreters.mlir import make_ir_context

    refined = refine_polymorphic_shapes(module, enable_shape_assertions=True, validate_static_shapes=True)
    with make_ir_context():
        parsed = ir.Module.parse(refined)  # kept: its operations live as long as it does
        for operation in _operations(parsed.operation, "stablehlo.custom_call"):
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            declared = tuple(map(_type, operation.results))
            if target in _RULES:
                check_call(
                    KernelCall(target, tuple(map(_type, operation.operands)), _settings(operation, target)), declared
                )
            elif target in _NEVER_CALLED:
                raise FalseTypesError(f"{target} gives {_shown(declared)}, which no operands imply")


def _operations(root: Any, name: str) -> list[Any]:  # Any: MLIR's operations, here and below, are typed for neither
    from jax.extend.mlir import ir

    operations = []

    def visit(operation: Any) -> Any:
        if operation.name == name:
            operations.append(operation)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return operations


def _type(value: Any) -> Type:
    from jax.extend.mlir import ir

    if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
        raise FalseTypesError(f"a custom call has a value of {value.type!s:.60}")
    return Type(str(value.type.element_type), tuple(value.type.shape))


def _settings(operation: Any, target: str) -> dict[str, object]:
    from jax.extend.mlir import ir

    for name in ("mhlo.backend_config", "backend_config"):
        if name in operation.attributes and isinstance(operation.attributes[name], ir.DictAttr):
            return {each.name: _plain(each.attr) for each in operation.attributes[name]}
    if target not in _BY_XLA:
        raise FalseTypesError(f"{target} is called without its settings")
    return {}


def _plain(attribute: Any) -> object:
    from jax.extend.mlir import ir

    for kind in (ir.BoolAttr, ir.IntegerAttr, ir.StringAttr):  # a BoolAttr is an IntegerAttr too
        if isinstance(attribute, kind):
            return attribute.value
    return str(attribute)
