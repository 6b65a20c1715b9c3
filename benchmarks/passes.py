"""What passes cost and save: trace and lower each graph of the zoo as traced, and after them with their time included.

    python benchmarks/passes.py [--repeat 15] [graph …]

The passes are `EXPORTED`, which a model's export runs among others, and `write_scans` and `outline`, as a program is
written.

CPU milliseconds of `jax.jit(...).lower` at 512 rows. As traced, JAX traces each equation anew; after the passes the
equations are written as they stand, as an export does; what that gives without passes is shown too. Each round traces
the graph anew for either side, lowers it as it is and after the passes, now one first, now the other, with garbage
collection in between rounds: a ratio is the median of those of the rounds, given with where it lies with 95 %
certainty. Each round begins with a lowering that is not counted: the first one after a collection costs some 1.5 ms
more than the same again. For the joined graphs there is also what the ratio would be were the passes free, and what JAX
takes for a program of the same arguments that does nothing, which no pass removes; for the zoo's also the ratio of the
same written by hand with the preparation once, which is all that sharing can give.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from drivetrain.benchmarks.common import Bars, report
from drivetrain.engine.graphs.graph import Graph
from drivetrain.engine.graphs.nodes import DeviceOp
from drivetrain.engine.passes import EXPORTED, optimize, outline, write_scans
from drivetrain.engine.tracing.equations import as_function, aval_of, function_of
from drivetrain.engine.tracing.primitives import shaped
from drivetrain.tests.engine.zoo import Animal, joined_by_hand, zoo
from jax.extend.core import jaxpr_as_fun

ROWS = 512
CHAIN = (*EXPORTED, write_scans, outline)
NEVER_SLOWER = 1.0
JOINED = 0.6

T = TypeVar("T")


def lowered(graph: Graph, write: Callable[[Any], Callable[..., Any]] = jaxpr_as_fun) -> Any:  # jax.stages.Lowered
    """The graph as one jitted function, traced and lowered: each equation anew, or as `write` says."""
    (outputs,) = graph.signatures.values()
    ops = [node for node in graph.nodes if isinstance(node, DeviceOp)]
    tensors = [*graph.inputs.values(), *graph.weights.values()]
    run = write(function_of(graph, ops, [t.id for t in tensors], [o.tensor for o in outputs.values()]))
    avals = [aval_of(tensor, graph.dims) for tensor in tensors]
    return jax.jit(lambda *arrays: run(*arrays)).lower(*(shaped(aval.shape, aval.dtype) for aval in avals))


def as_written(graph: Graph) -> Any:  # jax.stages.Lowered
    """The same, its equations as they stand."""
    return lowered(graph, as_function)


def empty(graph: Graph) -> Any:  # jax.stages.Lowered
    """A program of the same arguments that does nothing."""
    avals = (aval_of(tensor, graph.dims) for tensor in (*graph.inputs.values(), *graph.weights.values()))
    return jax.jit(lambda *arrays: arrays).lower(*(shaped(aval.shape, aval.dtype) for aval in avals))


def milliseconds(work: Callable[[Graph], T], graph: Graph) -> tuple[float, T]:
    """CPU time of a call, and what it gives."""
    start = time.process_time()
    answer = work(graph)
    return (time.process_time() - start) * 1e3, answer


class Round(NamedTuple):
    """CPU milliseconds: to lower a graph as traced, to run the passes, to lower what they give; other programs.

    Attributes:
        nothing: A program of the same arguments that does nothing.
        by_hand: The graph that shares by hand; 0 where nobody wrote it.
        written: The graph as traced, written as it stands.
    """

    before: float
    passes_alone: float
    after: float
    nothing: float
    by_hand: float
    written: float

    @property
    def ratio(self) -> float:
        """Lowering with the passes to lowering without."""
        return (self.passes_alone + self.after) / self.before


def measured(animal: Animal, hand: Animal | None, repeat: int) -> list[Round]:
    """Rounds of the graph, after one that does not count."""
    rounds: list[Round] = []
    for index in range(repeat + 1):
        gc.collect()
        gc.disable()
        lowered(animal.graph(ROWS))
        if index % 2:
            before = milliseconds(lowered, animal.graph(ROWS))[0]
            passes_alone, after = optimized(animal.graph(ROWS))
        else:
            passes_alone, after = optimized(animal.graph(ROWS))
            before = milliseconds(lowered, animal.graph(ROWS))[0]
        nothing = milliseconds(empty, animal.graph(ROWS))[0]
        by_hand = 0.0 if hand is None else milliseconds(lowered, hand.graph(ROWS))[0]
        written = milliseconds(as_written, animal.graph(ROWS))[0]
        gc.enable()
        rounds.append(Round(before, passes_alone, after, nothing, by_hand, written))
    return rounds[1:]


def optimized(graph: Graph) -> tuple[float, float]:
    """Milliseconds of the passes, and to lower what they give."""
    passes_alone, (simplified, _) = milliseconds(lambda graph: optimize(graph, CHAIN), graph)
    return passes_alone, milliseconds(as_written, simplified)[0]


def certain(values: Sequence[float]) -> tuple[float, float]:
    """Between which of the values their median lies, 95 % certain (Conover, Practical Nonparametric Statistics)."""
    ordered = sorted(values)
    rank = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[rank], ordered[-1 - rank]


def passes(repeat: int = 15, names: Sequence[str] = ()) -> tuple[dict[str, float], Bars]:
    """Figures by name, and their bars."""
    figures: dict[str, float] = {}
    bars: dict[str, tuple[float, bool]] = {}
    graphs = [*zoo(), *joined_graphs()]
    if unknown := set(names) - {graph.name for graph in graphs}:
        sys.exit(f"no graph {sorted(unknown)}; there are {[graph.name for graph in graphs]}")
    for animal in graphs:
        if names and animal.name not in names:
            continue
        hand = replace(animal, apply=joined_by_hand) if animal.name == "joined" else None
        rounds = measured(animal, hand, repeat)
        middle = Round(*map(statistics.median, zip(*rounds, strict=True)))
        figures[f"{animal.name}: as traced, ms"] = middle.before
        figures[f"{animal.name}: passes, ms"] = middle.passes_alone
        figures[f"{animal.name}: lowered after them, ms"] = middle.after
        alone = statistics.median(each.written / each.before for each in rounds)
        figures[f"{animal.name}: ratio without passes, written as it stands"] = alone
        ratios = [each.ratio for each in rounds]
        figures[f"{animal.name}: ratio"] = statistics.median(ratios)
        figures[f"{animal.name}: ratio, from"], figures[f"{animal.name}: ratio, to"] = certain(ratios)
        joined = animal.name.startswith("joined")
        bars[f"{animal.name}: ratio"] = (JOINED if joined else NEVER_SLOWER, True)
        if joined:
            free = statistics.median(each.after / each.before for each in rounds)
            figures[f"{animal.name}: ratio were the passes free"] = free
            figures[f"{animal.name}: an empty program of the same arguments, ms"] = middle.nothing
        if hand is not None:
            by_hand = statistics.median(each.by_hand / each.before for each in rounds)
            figures[f"{animal.name}: ratio of the same prepared once by hand, without passes"] = by_hand
    return figures, bars


# --- transform and model in one, the preparation written out for each head --------------------------------------


def joined_graphs() -> list[Animal]:
    """Bigger than the zoo's: each of several heads prepares the columns that it reads, as its author would write it."""
    return [
        _animal("joined flights, 4 heads", flights, ("late", "cancelled", "diverted", "early")),
        _animal("joined flights, 2 heads with a debug output", inspected, ("late", "cancelled")),
        _animal("joined taxi, 3 heads", taxi, ("tip", "fare", "duration")),
    ]


NUMBERS = ("dep_delay", "distance", "air_time", "temperature", "wind")
WORDS = {"carrier": 16, "origin": 4, "dest": 105, "month": 13}


def prepared(inputs: Mapping[str, Any], statistics: Mapping[str, Any], edges: Any) -> dict[str, Any]:
    """Imputed and clipped z-scores, buckets, ids in range, a cyclic hour."""
    outputs: dict[str, Any] = {}
    for name in NUMBERS:
        mean, variance = statistics[name][0], statistics[name][1]
        filled = jnp.where(jnp.isnan(inputs[name]), mean, inputs[name])
        outputs[name] = jnp.clip((filled - mean) / jnp.where(variance > 0, jnp.sqrt(variance), 1.0), -5.0, 5.0)
        outputs[f"{name}_missing"] = jnp.isnan(inputs[name]).astype(jnp.float32)
    for name, size in WORDS.items():
        outputs[name] = jnp.where((inputs[name] >= 0) & (inputs[name] < size), inputs[name], size - 1)
    outputs["bucket"] = jax.nn.one_hot(jnp.sum(inputs["hour"][:, None] >= edges, -1, dtype=jnp.int32), 5)
    outputs["hour_sin"] = jnp.sin(inputs["hour"] * (2 * np.pi / 24))
    outputs["hour_cos"] = jnp.cos(inputs["hour"] * (2 * np.pi / 24))
    return outputs


def features(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """All columns side by side."""
    ready = prepared(inputs, params["statistics"], params["edges"])
    numbers = [ready[name] for name in (*NUMBERS, *(f"{name}_missing" for name in NUMBERS), "hour_sin", "hour_cos")]
    embedded = [params["tables"][name].astype(jnp.float32)[ready[name]] for name in WORDS]
    return jnp.concatenate([jnp.stack(numbers, -1), *embedded, ready["bucket"]], -1)


def flights(params: Any, inputs: Any) -> dict[str, Any]:
    """A dense layer and a probability per head."""
    outputs = {}
    for head, layers in params["heads"].items():
        hidden = jax.nn.relu(features(params, inputs) @ layers["w"] + layers["b"])
        outputs[head] = jax.nn.sigmoid(hidden @ layers["v"])[:, 0]
    return outputs


def inspected(params: Any, inputs: Any) -> dict[str, Any]:
    """The same, and for each head a correlation of its features beside it, which is the same."""
    outputs = flights(params, inputs)
    for head in params["heads"]:
        x = features(params, inputs)
        centred = (x - x.mean(0)) / (x.std(0) + 1e-6)
        outputs[f"{head}_correlation"] = jnp.broadcast_to((centred.T @ centred).max(), (x.shape[0],))
    return outputs


def taxi(params: Any, inputs: Any) -> dict[str, Any]:
    """Crosses and logarithms, then a wide and a deep part per head."""
    outputs = {}
    for head, layers in params["heads"].items():
        x = features(params, inputs)
        logs = jnp.stack([jnp.log1p(jnp.abs(jnp.nan_to_num(inputs[name]))) for name in NUMBERS], -1)
        crossed = (inputs["carrier"] * 7 + inputs["origin"] * 3 + inputs["dest"]) % 97
        wide = params["crosses"][jnp.abs(crossed)] + logs.mean(-1)
        deep = jax.nn.silu(x @ layers["w"] + layers["b"]) @ layers["v"]
        outputs[head] = jax.nn.softplus(wide + deep[:, 0])
    return outputs


def _animal(name: str, apply: Any, heads: Sequence[str]) -> Animal:
    random = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return random.normal(size=shape).astype(np.float32)

    width = 2 * len(NUMBERS) + 2 + 4 * len(WORDS) + 5
    params = {
        "statistics": {name: np.abs(normal(2)) for name in NUMBERS},
        "edges": np.asarray([5, 9, 15, 20], np.float32),
        "tables": {name: normal(size, 4).astype(np.float16) for name, size in WORDS.items()},
        "crosses": normal(97),
        "heads": {head: {"w": normal(width, 32) / 4, "b": normal(32), "v": normal(32, 1)} for head in heads},
    }
    inputs = {name: normal(24) for name in NUMBERS} | {"hour": np.abs(normal(24)) * 8}
    inputs |= {name: random.integers(-1, size + 2, 24).astype(np.int32) for name, size in WORDS.items()}
    return Animal(name, apply, params, inputs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("graphs", nargs="*")
    chosen = parser.parse_args()
    report("passes", *passes(chosen.repeat, chosen.graphs))
