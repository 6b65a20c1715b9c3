"""Tensors and nodes: what a graph is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...user_code import is_users

BATCH: Final = "b"
"""The symbolic leading dimension of everything that has one value per row."""

SYMBOL: Final = re.compile(r"b|n[0-9]{1,9}")
"""What a symbolic dimension is called: the batch, or the first, second … number of values that lists hold."""

LIST_DTYPES: Final = ("list<string>", "list<int64>", "list<float64>")
"""Columns of which one row is a list of any length, or missing."""

COLUMN_DTYPES: Final = ("string", "int64", "float64", "bool", *LIST_DTYPES)
ARRAY_DTYPES: Final = ("float32", "int32", "bool", "float16", "bfloat16", "int8", "int16", "uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Tensor:
    """One value of the graph.

    Attributes:
        id: Its name within the graph.
        dtype: Of a column: string, int64, float64, bool or a list of the first three; of an array: a JAX dtype.
        shape: `("b",)` for one scalar per row, `("b", 3)` for a vector per row, `()` for one value in all; `("n1",)`
            for the values of all rows' lists, one after the other.
        column: True for a nullable Arrow column on the host, False for a dense array.
    """

    id: str
    dtype: str
    shape: tuple[str | int, ...] = (BATCH,)
    column: bool = False

    @property
    def batched(self) -> bool:
        """Whether there is one value per row."""
        return bool(self.shape) and self.shape[0] == BATCH

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.id}:{self.dtype}{'?' if self.column else ''}[{dims}]"


@dataclass(frozen=True)
class HostNode:
    """What XLA cannot do: an op of `engine.host_ops`, on Arrow columns or one row's Python values."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    params: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON, checked by the op
    assets: tuple[str, ...] = ()
    where: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        settings = [f"{key}={value!r}" for key, value in self.params.items()] + [f"@{asset}" for asset in self.assets]
        return f"{self.op}({', '.join([*self.inputs, *settings])})"


@dataclass(frozen=True)
class DeviceStage:
    """A jitted program: StableHLO with a symbolic batch, called with inputs, then weights.

    Attributes:
        program: Its file in the bundle, and its key among the programs.
        inputs: Tensor ids; None where a pruned graph needs nothing from that input: zeros are given.
        slots: dtype and shape of each input.
        weights: Names of the arrays it takes after the inputs.
        outputs: What it gives; an output nobody needs is simply not read.
        needs: For each output, the positions of the inputs it depends on.
        device: Where a hint of `on(...)` wants it, such as "cpu:1" or "gpu"; None leaves it to what it costs.
        flops: Floating-point operations per row, counted from shapes.
    """

    program: str
    inputs: tuple[str | None, ...]
    slots: tuple[tuple[str, tuple[str | int, ...]], ...]
    weights: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    needs: tuple[tuple[int, ...], ...]
    device: str | None = None
    flops: int = 0

    def __str__(self) -> str:
        arguments = ", ".join("·" if name is None else name for name in self.inputs)
        at = f" on {self.device}" if self.device else ""
        return f"device<{self.program}>({arguments}; {len(self.weights)} weights){at}"


@dataclass(frozen=True)
class Literal:
    """A scalar that stands in the program itself, not among its weights."""

    value: Any  # a numpy or JAX scalar
    dtype: str

    def __str__(self) -> str:
        return f"{self.value}"


@dataclass(frozen=True, eq=False)
class DeviceOp:
    """One JAX equation of a graph that is not lowered yet.

    Attributes:
        op: The primitive's name.
        operands: Tensor ids and literals, in the equation's order.
        outputs: What it gives; an id that starts with "_" is of an output nobody reads.
        equation: Its primitive, params and effects; its variables mean nothing here.
        device: Where it is to run, by a hint of `on(...)`; None leaves that to placement.
    """

    op: str
    operands: tuple[str | Literal, ...]
    outputs: tuple[Tensor, ...]
    equation: Any  # jax.extend.core.JaxprEqn: this package does not know JAX
    device: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors among the operands, in order."""
        return tuple(operand for operand in self.operands if isinstance(operand, str))

    @property
    def where(self) -> str | None:
        """The user's call that made it as "file:line"; None where it is not known."""
        frames = getattr(self.equation.source_info.traceback, "frames", ())
        frame_of_user = next((frame for frame in frames if is_users(frame.file_name)), None)
        return None if frame_of_user is None else f"{frame_of_user.file_name}:{frame_of_user.line_num}"

    def __str__(self) -> str:
        at = f" on {self.device}" if self.device else ""
        return f"{self.op}({', '.join(map(str, self.operands))}){at}"


@dataclass(frozen=True)
class AnalyzerNode:
    """A value of the whole training data, not known yet: what to compute, of which tensors."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    params: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    where: str | None = None

    def __str__(self) -> str:
        settings = [f"{key}={value!r}" for key, value in self.params.items()]
        return f"analyze {self.op}({', '.join([*self.inputs, *settings])})"


GraphNode = HostNode | DeviceStage | DeviceOp | AnalyzerNode
