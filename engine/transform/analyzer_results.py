"""Analyzer results of a transform, kept as its phases compute them, and the graph with these results frozen in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..bundles.bundle import Bundle
from ..bundles.inverse import INVERSES, inverse_table
from ..bundles.manifest import export_facts
from ..graphs.graph import RowCheck
from ..lowering.lower import PLATFORMS
from ..lowering.partition import Analyzer, Partition
from ..lowering.programs import Payload
from ..tracing.objects import recall

_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9_+.-]")
_LONGEST: Final = 80  # characters of a column's name in a file's


@dataclass
class AnalyzerResults:
    """The results of the phases so far.

    Attributes:
        partition: The traced function, as a graph and its analyzers.
        known: Tensor that stands for an analyzer's result → the name of that result.
        weights: Results that are numbers or arrays, by name, in the dtype and shape of their tensor.
        assets: Results that are tables (vocabularies, statistics per key), by name.
    """

    partition: Partition
    known: dict[str, str] = field(default_factory=dict)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    assets: dict[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for analyzer in self.partition.tables():
            self.take(analyzer, recall(analyzer.params["table"]))

    def take(self, analyzer: Analyzer, value: Any) -> None:
        """Keep an analyzer's result under a new name: a table as an asset, anything else as a weight."""
        column = str(analyzer.params["column"])
        if isinstance(value, pa.Table):
            name = str(analyzer.params.get("name") or self._asset_name(analyzer.kind, column))
            fields = [pa.field(f.name, f.type, nullable=False) for f in value.schema]
            self.assets[name] = pa.table(value.columns, schema=pa.schema(fields, metadata={"column": column}))
        else:
            label = base = f"transform/{column}/{analyzer.kind}"
            while label in self.weights:
                label = f"{base}#{len(self.weights)}"
            name = label
            self.weights[name] = _as_array(analyzer, value)
        self.known[analyzer.value] = name

    def _asset_name(self, kind: str, column: str) -> str:
        """`vocabulary.carrier`: the file's name says what the table was made from. A user's name has no dot.

        A second one of a column is `vocabulary.carrier.2`. Letters of another case do not make another name, as some
        file systems know none.
        """
        base = f"{kind.replace('_', '-')}.{_NOT_IN_FILE_NAMES.sub('_', column)[:_LONGEST]}"
        taken = {name.lower() for name in self.assets}
        names = chain([base], (f"{base}.{number}" for number in count(2)))
        return next(name for name in names if name.lower() not in taken)

    def bundle(
        self,
        wanted: Mapping[str, tuple[str, int | None]],
        signature: str,
        prefix: str,
        checks: tuple[RowCheck, ...] = (),
    ) -> Bundle:
        """The part of the graph that computes `wanted`, as a bundle with the programs, weights and assets of it."""
        graph, programs = self.partition.lower(wanted, self.known, signature, prefix, checks)
        held = {**self.weights, **self.partition.constants}
        used = {name for node in graph.nodes for name in getattr(node, "weights", ())}
        named = {name for node in graph.nodes for name in getattr(node, "assets", ())}
        weights = {name: held[name] for name in sorted(used)}
        assets = {name: self.assets[name] for name in sorted(named)}
        return Bundle(graph, Payload(programs, weights, assets), export_facts(PLATFORMS))

    def with_inverses(self, bundle: Bundle) -> Bundle:
        """The bundle, with an asset that says how scaled outputs are turned back, if there are any."""
        rules = {
            output: (how.rule, how.settings, [self.weights[self.known[tensor]].tolist() for tensor in tensors])
            for output, (how, tensors) in self.partition.inverses().items()
        }
        if not rules:
            return bundle
        assets = {**bundle.payload.assets, INVERSES: inverse_table(rules)}
        return replace(bundle, payload=replace(bundle.payload, assets=assets))


def _as_array(analyzer: Analyzer, value: Any) -> NDArray[Any]:
    dtype = np.dtype(analyzer.dtype)
    # As objects, whole numbers stay exact: in float64 one above 2^53 would be rounded before its range is checked.
    numbers = np.asarray(value, np.float64 if dtype.kind == "f" else object)
    if dtype.kind == "i":
        column = analyzer.params["column"]
        for number in np.ravel(numbers):
            if isinstance(number, float) and math.isnan(number):
                raise InputError(
                    f"{analyzer.kind} of column {column!r}: the data has no value of it",
                    fix="drop the column, or fill_missing first",
                    where=analyzer.where,
                )
            if not -(2**31) <= number < 2**31:
                raise InputError(
                    f"{analyzer.kind} of column {column!r} is {number}, which does not fit in int32 on the device",
                    fix="ops.cast it to float32 first",
                    where=analyzer.where,
                )
    with np.errstate(over="ignore"):
        return numbers.astype(dtype).reshape(analyzer.shape)
