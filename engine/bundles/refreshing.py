"""Write a bundle's device programs anew by this JAX, so that coming ones read them; graph, weights, results stay.

Who made the bundle may be a stranger, so that a child process writes them anew and runs them (`child`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.nodes import DeviceStage
from ..lowering.programs import BundleError, Programs, program_facts
from .bundle import Bundle
from .child import ChildEndedError, LimitedChild, Limits
from .compatibility import written_convention
from .isolation import ask, ended
from .manifest import MANIFEST, export_facts, read_folder, verified
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


def refresh_bundle(path: Path, out: Path, *, limits: Limits | None = None) -> RefreshedBundle:
    """Save a bundle again, in a new or empty folder, with programs that this JAX wrote.

    A program is taken over if this JAX version exported the bundle and writes no newer calling convention. Every other
    is exported anew around the old one, then run beside it: results are equal to the bit, or nothing is written. The
    manifest's `export` records under `refreshed_from` the JAX version and the digest of what it was made from.

    Programs are exported and run in a child process on the CPU, as `verify_bundle` does.

    Args:
        path: The bundle.
        out: The folder to write.
        limits: What the child may take, all programs together; by default 600 seconds and half of the machine's memory.

    Raises:
        BundleError: The bundle is damaged, this JAX cannot read a program any more, or gives other results with the
            new one, or the child exceeds a limit.
        InputError: `path` holds no bundle, or `out` is not empty.
    """
    files = read_folder(path)
    old = Bundle.from_files(files, str(path))
    probe(old.payload.programs, str(path))  # which names the one that ends a process
    body = verified(files, str(path))
    child = LimitedChild(limits or Limits())
    request = {"do": "refresh", "path": str(path.absolute()), "manifest": sha256(files[MANIFEST]).hexdigest()}
    try:
        rewritten = {str(answer.head["program"]): answer.parts[0] for answer in ask(child, request)}
    except ChildEndedError as error:
        raise ended(path, "writing its programs again", error) from error
    finally:
        child.close()
    programs = {name: rewritten.get(name, program) for name, program in old.payload.programs.items()}
    probe(programs, str(path))  # those of the child too: it ran what is not trusted
    facts = export_facts(tuple(old.export.get("platforms", ())))
    source = {"jax": old.export.get("jax"), "digest": body["digest"]}
    payload = replace(old.payload, programs=programs)
    bundle = replace(old, payload=payload, export={**old.export, **facts, "refreshed_from": source})
    bundle.save(out)
    kept = tuple(name for name in programs if name not in rewritten)
    return RefreshedBundle(bundle, tuple(name for name in programs if name in rewritten), kept)


def rewritten_programs(bundle: Bundle, where: str) -> Iterator[tuple[str, bytes]]:
    """What `refresh_bundle` does in the child: the programs that this JAX writes anew, by name; raises as it does.

    Args:
        bundle: As it was read.
        where: What to call it.
    """
    import jax

    stages = {node.program: node for node in bundle.graph.nodes if isinstance(node, DeviceStage)}
    current = bundle.export.get("jax") == jax.__version__
    for name, stage in stages.items():
        bundle._programs.prepare(stage)
        program = bundle.payload.programs[name]
        if not current or program_facts(program).calling_convention < written_convention():
            again = _exported_anew(program)
            payload = replace(bundle.payload, programs={**bundle.payload.programs, name: again})
            _compare(stage, bundle._programs, replace(bundle, payload=payload)._programs, where)
            yield name, again


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


def _compare(stage: DeviceStage, before: Programs, after: Programs, where: str) -> None:
    dice = np.random.default_rng(0)
    for rows in (1, 64):
        arrays = [_drawn(dice, dtype, shape, rows) for dtype, shape in stage.slots]
        pairs = zip(before(stage, arrays), after(stage, arrays), strict=True)
        if any(np.asarray(old).tobytes() != np.asarray(new).tobytes() for old, new in pairs):
            raise BundleError(
                f"{where}: device/{stage.program}.stablehlo gives other results when written again",
                fix="run the step that made the bundle with this JAX",
            )


def _drawn(dice: np.random.Generator, dtype: str, shape: tuple[str | int, ...], rows: int) -> NDArray[Any]:
    dims = tuple(rows if isinstance(dim, str) else dim for dim in shape)
    kind = np.dtype(dtype)  # bfloat16 is known to numpy once JAX is imported
    return (dice.integers(0, 3, dims) if kind.kind in "iub" else dice.normal(size=dims)).astype(kind)
