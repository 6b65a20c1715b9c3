"""Write a bundle's device programs anew by this JAX, so that coming ones read them; graph, weights, results stay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.nodes import DeviceStage
from ..lowering.programs import BundleError, Programs, program_facts
from .bundle import Bundle
from .compatibility import written_convention
from .manifest import export_facts, read_folder, verified
from .probing import probe


@dataclass(frozen=True)
class RefreshedBundle:
    """What `refresh_bundle` wrote.

    Attributes:
        bundle: As it was saved.
        rewritten: The programs that were written anew; the others this JAX would have written as they are.
        kept: The programs taken over.
    """

    bundle: Bundle
    rewritten: tuple[str, ...]
    kept: tuple[str, ...]


def refresh_bundle(path: Path, out: Path) -> RefreshedBundle:
    """Save a bundle again, in a new or empty folder, with programs that this JAX wrote.

    A program is taken over if this JAX version exported the bundle and writes no newer calling convention. Every other
    is exported anew around the old one, then run beside it: results are equal to the bit, or nothing is written. The
    manifest's `export` records under `refreshed_from` the JAX version and the digest of what it was made from.

    Raises:
        BundleError: The bundle is damaged, this JAX cannot read a program any more, or gives other results with the
            new one.
        InputError: `path` holds no bundle, or `out` is not empty.
    """
    import jax

    files = read_folder(path)
    old = Bundle.from_files(files, str(path))
    probe(old.payload.programs, str(path))
    body = verified(files, str(path))
    stages = {node.program: node for node in old.graph.nodes if isinstance(node, DeviceStage)}
    current = old.export.get("jax") == jax.__version__
    programs = dict(old.payload.programs)
    rewritten = []
    for name, stage in stages.items():
        old._programs.prepare(stage)
        if not current or program_facts(programs[name]).calling_convention < written_convention():
            programs[name] = _exported_anew(programs[name])
            rewritten.append(name)
    facts = export_facts(tuple(old.export.get("platforms", ())))
    source = {"jax": old.export.get("jax"), "digest": body["digest"]}
    payload = replace(old.payload, programs=programs)
    bundle = replace(old, payload=payload, export={**old.export, **facts, "refreshed_from": source})
    _compare([stages[name] for name in rewritten], old._programs, bundle._programs, str(path))
    bundle.save(out)
    return RefreshedBundle(bundle, tuple(rewritten), tuple(name for name in programs if name not in rewritten))


def _exported_anew(program: bytes) -> bytes:
    """The program exported anew, with the same symbolic shapes, platforms, gradients and allowances."""
    import jax

    from ..lowering.lower import export_program

    exported = jax.export.deserialize(bytearray(program))
    return export_program(
        exported.call,
        [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals],  # type: ignore[no-untyped-call]
        exported.platforms,
        allowed=exported.disabled_safety_checks,
        vjp_order=1 if exported.has_vjp() else 0,
    )


def _compare(stages: Iterable[DeviceStage], before: Programs, after: Programs, where: str) -> None:
    dice = np.random.default_rng(0)
    for stage in stages:
        for rows in (1, 64):
            arrays = [_drawn(dice, dtype, shape, rows) for dtype, shape in stage.slots]
            pairs = zip(before(stage, arrays), after(stage, arrays), strict=True)
            if any(np.asarray(old).tobytes() != np.asarray(new).tobytes() for old, new in pairs):
                raise BundleError(
                    f"{where}: device/{stage.program}.stablehlo gives other results when written anew",
                    fix="run the step that made the bundle with this JAX",
                )


def _drawn(dice: np.random.Generator, dtype: str, shape: tuple[str | int, ...], rows: int) -> NDArray[Any]:
    dims = tuple(rows if isinstance(dim, str) else dim for dim in shape)
    kind = np.dtype(dtype)  # bfloat16 is known to numpy once JAX is imported
    return (dice.integers(0, 3, dims) if kind.kind in "iub" else dice.normal(size=dims)).astype(kind)
