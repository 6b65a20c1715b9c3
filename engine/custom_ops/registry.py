"""The registry: every op that a user or an extension adds, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...errors import InputError
from .._caller import caller
from ..graphs.nodes import HostNode, Tensor
from ..host_ops import kernels
from ..host_ops.kernels import HostOp
from .extensions import (
    Extension,
    Requirement,
    check_version,
    import_extension,
    namespace_of,
)

Fn = Callable[..., Any]  # Any: arrays, columns and settings of the op's own


@dataclass(frozen=True, eq=False)
class Op:
    """An op: call it like the function it is.

    Attributes:
        name: `namespace.name`.
        kernels: What computes it, by JAX platform; of a host op, what makes its "batch" and its "row" kernel.
        call: What calling it does: adds it to the graph that is being traced, or runs it.
        shape: The shape rule: arguments as a call has them → what it gives, as shapes and dtypes.
        export: How it gets into a bundle. "inline": as the StableHLO it consists of, so that nothing is required;
            "call": as a custom call, "node": as a host node; these need the op's extension where the bundle runs.
        gradient: (arguments, result, cotangent of the result) → the arguments' cotangents; None where JAX
            differentiates the function itself, or for what has no gradient.
        extension: What must be installed where a bundle with it runs; None for what is portable by itself.
        defined: Where its code is, as module:name; a definition may replace itself, none another's.
    """

    name: str
    kernels: Mapping[str, Fn]
    call: Fn = field(repr=False)
    shape: Fn = field(repr=False)
    export: Literal["inline", "call", "node"]
    gradient: Fn | None = None
    extension: Extension | None = None
    defined: str = ""

    @property
    def is_interpreted(self) -> bool:
        """Whether a CPU interprets its kernel, as Pallas's: a bundle then holds the plain form."""
        return self.export == "inline" and "cpu" in self.kernels

    def __call__(self, *args: Any, **settings: Any) -> Any:  # Any: as call
        """Apply it to columns or arrays; settings, by keyword, are constants."""
        return self.call(*args, **settings)

    def __repr__(self) -> str:
        of = f", of {self.extension.distribution} {self.extension.version}" if self.extension else ""
        return f"Op({self.name}: {self.export}, {' and '.join(self.kernels)}{of})"


_OPS: Final[dict[str, Op]] = {}


def register(op: Op) -> Op:
    """Keep an op under its name.

    Raises:
        InputError: The name is not an op's name, or another op has it.
    """
    namespace_of(op.name)
    other = _OPS.get(op.name)
    if other is not None and (other.defined != op.defined or other.extension != op.extension):
        raise InputError(
            f"there is an op {op.name!r} already, defined in {other.defined}",
            fix="name one of them otherwise",
            where=caller(),
        )
    _OPS[op.name] = op
    return op


def find(name: str) -> Op | None:
    """The op of that name, or None."""
    return _OPS.get(name)


def registered() -> tuple[Op, ...]:
    """Every op that was registered in this process, by name."""
    return tuple(_OPS[name] for name in sorted(_OPS))


def call_targets(requirements: Iterable[Requirement] | None = None) -> frozenset[str]:
    """Targets of custom calls that may stand in a program: of these requirements' ops, or of every op registered."""
    names = _OPS if requirements is None else [requirement.op for requirement in requirements]
    return frozenset(name for name in names if name in _OPS and _OPS[name].export == "call")


def requirements_of(names: Iterable[str]) -> tuple[Requirement, ...]:
    """What a bundle that uses some ops requires: of names of host ops and custom calls, those of extensions."""
    ops = [_OPS[name] for name in sorted(set(names)) if name in _OPS]
    return tuple(Requirement.of(op.name, op.extension) for op in ops if op.extension is not None)


def require(requirements: Iterable[Requirement]) -> None:
    """Make every op that a bundle requires available in this process.

    Raises:
        InputError: An extension is not installed, has another version, or has no such op.
    """
    for requirement in requirements:
        if requirement.op not in _OPS:
            import_extension(requirement)
        op = _OPS.get(requirement.op)
        if op is None or op.extension is None:
            raise InputError(
                f"{requirement.distribution} is here and has no op {requirement.op!r} that a bundle could require",
                fix="run the step that made the bundle",
            )
        check_version(requirement, op.extension)


def host_kernels(name: str) -> HostOp:
    """The kernels of a host op, the engine's own or a registered one.

    Raises:
        InputError: There is none.
    """
    op = _OPS.get(name)
    if op is not None and op.export == "node":
        return HostOp(op.kernels["batch"], op.kernels["row"])
    return kernels.host_op(name)


def check_node(node: HostNode, tensors: Mapping[str, Tensor], requirements: Iterable[Requirement]) -> None:
    """Check a bundle's host node of a registered op: it is required, and is what the op's shape rule says.

    Raises:
        InputError: The bundle uses the op and does not require it.
        ValueError, LookupError, TypeError: The node does not fit the op.
    """
    if "." not in node.op:
        return  # the engine's own
    op = _OPS.get(node.op)
    if op is None or op.export != "node" or node.op not in {requirement.op for requirement in requirements}:
        raise InputError(
            f"it uses the host op {node.op!r:.80}, which its manifest does not require",
            fix="fetch the bundle again, or run the step that made it",
        )
    if node.assets or list(node.params["inputs"]) != [tensors[name].dtype for name in node.inputs]:
        raise ValueError(f"the inputs of {node.op}")
    dtype, shape, column = op.shape(**node.params["settings"])
    if [(tensor.dtype, tensor.shape, tensor.column) for tensor in node.outputs] != [(dtype, shape, column)]:
        raise ValueError(f"the output of {node.op}")
