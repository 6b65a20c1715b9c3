"""Verify a bundle without the code that made it: digests, programs, and each signature once on a row of nulls."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ..graphs.nodes import DeviceStage
from ..host_ops.columns import ARROW
from ..lowering.programs import BundleError, program_facts
from .bundle import Bundle
from .manifest import Signature, broken, facts_json, read_folder, verified

_PLAIN: Mapping[str, object] = {"string": "", "int64": 0, "float64": 0.0, "bool": False}


@dataclass(frozen=True)
class BundleCheck:
    """One check of a bundle: what was checked, whether it passed, and a line about it."""

    what: str
    ok: bool
    text: str


def verify_bundle(path: Path) -> tuple[BundleCheck, ...]:
    """Check a saved bundle: every digest, every program, every signature on one row as a batch and as a row.

    The graph may refuse a row of nulls, where a column must have a value. Then a row of plain values (0, "", false) is
    tried, and the check's text says what was refused.

    Raises:
        InputError: The folder holds no bundle.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            bundle = Bundle.load(path)
            files = read_folder(path)
            body = verified(files, str(path))
        except BundleError as error:
            return (BundleCheck("files", False, error.message),)
    size = sum(map(len, files.values()))
    aging = [str(warning.message) for warning in caught if warning.category is FutureWarning]
    programs = list(_programs(bundle, files, body))
    broken_off = not all(check.ok for check in programs)
    return (
        BundleCheck("files", True, f"{len(files)} files, {size:,} bytes, each as its digest says"),
        *(BundleCheck("window", True, text) for text in aging),
        *programs,
        *(
            BundleCheck(f"signature {name}", False, "not run: a program is not as it should be")
            if broken_off
            else _signature(bundle, name, signature)
            for name, signature in bundle.signatures.items()
        ),
    )


def _programs(bundle: Bundle, files: Mapping[str, bytes], body: Mapping[str, Any]) -> Iterator[BundleCheck]:
    for stage in (node for node in bundle.graph.nodes if isinstance(node, DeviceStage)):
        what = f"program {stage.program}"
        try:
            bundle._programs.prepare(stage)
            facts = program_facts(bundle.payload.programs[stage.program])
            manifest_facts, read_facts = body["programs"][stage.program], facts_json(facts)
            # Not the ops, which a newer StableHLO may spell in another way.
            for key in ("calling_convention", "stablehlo", "platforms"):
                if manifest_facts.get(key) != read_facts[key]:
                    raise broken(
                        f"device/{stage.program}.stablehlo", f"the manifest says {key} {manifest_facts.get(key)!r:.60}"
                    )
            if files.get(f"device/{stage.program}.mlirbc") != facts.portable:
                raise broken(f"device/{stage.program}.mlirbc", "it is another program than the .stablehlo beside it")
            ops = sum(facts.ops.values())
            text = f"{ops} operations of StableHLO {facts.stablehlo}, calling convention {facts.calling_convention}"
            yield BundleCheck(what, True, f"{text}, for {', '.join(facts.platforms)}")
        except InputError as error:
            yield BundleCheck(what, False, error.message)


def _signature(bundle: Bundle, name: str, signature: Signature) -> BundleCheck:
    what = f"signature {name}"
    refused = ""
    if not all(tensor.column for tensor in bundle.graph.signature(name).inputs.values()):
        return _on_zeros(bundle, name)
    try:
        for row in (dict.fromkeys(signature.inputs), {key: _plain(s.dtype) for key, s in signature.inputs.items()}):
            columns = {key: pa.array([row[key]], ARROW[spec.dtype]) for key, spec in signature.inputs.items()}
            try:
                bundle.run(name, pa.record_batch(columns))
                bundle.run_row(name, row)
            except BundleError:
                raise
            except InputError as error:
                refused = refused or f"; a row of nulls is refused: {error.message}"
                continue
            return BundleCheck(what, True, f"ran, as a batch and as a row{refused}")
    except BundleError as error:
        return BundleCheck(what, False, error.message)
    return BundleCheck(what, True, f"runs; it takes neither a row of nulls nor one of zeros{refused}")


def _on_zeros(bundle: Bundle, name: str) -> BundleCheck:
    """A signature that takes arrays, as a module of the hub does, run on one row of zeros."""
    from .stateful import step  # late: what takes columns alone may run without JAX

    tensors_read = bundle.graph.signature(name).inputs.items()
    zeros = {key: np.zeros([dim if isinstance(dim, int) else 1 for dim in t.shape], t.dtype) for key, t in tensors_read}
    try:
        step(bundle, zeros, signature=name)
    except InputError as error:
        return BundleCheck(f"signature {name}", False, error.message)
    return BundleCheck(f"signature {name}", True, "ran on a row of zeros")


def _plain(dtype: str) -> object:
    return _PLAIN.get(dtype, [])
