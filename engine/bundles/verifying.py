"""Verify a bundle without the code that made it: digests, programs, and each signature once on a row of nulls.

The bundle may be untrusted, so that a child process does it (`child`).
"""

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
from .bundle import Bundle, check_window_of, files_of
from .child import ChildEndedError, LimitedChild, Limits
from .isolation import ask
from .manifest import Signature, broken, facts_json, verified
from .provenance import check_provenance, provenance_path
from .signing import UnsignedError, check_signature, signature_path

_PLAIN: Mapping[str, object] = {"string": "", "int64": 0, "float64": 0.0, "bool": False}


@dataclass(frozen=True)
class BundleCheck:
    """One check of a bundle: what was checked, whether it passed, and a line about it.

    `checked` is False where nothing was: there is no signature, or no key to check it with. That is no failure.
    """

    what: str
    ok: bool
    text: str
    checked: bool = True


def verify_bundle(
    path: Path, *, limits: Limits | None = None, public_key: Path | None = None, require_signed: bool = False
) -> tuple[BundleCheck, ...]:
    """Check a saved bundle: every digest, every program, every signature on one row as a batch and as a row.

    All of it is done in a child process, within limits: what ends the child, or never ends, is a check that failed.

    The graph may refuse a row of nulls, where a column must have a value. Then a row of plain values (0, "", false) is
    tried, and the check's text says what was refused.

    Args:
        path: The folder.
        limits: What the child may take, all checks together; by default 600 seconds and half of the machine's memory.
        public_key: A file with a public key in PEM: a signature that the bundle has must be of that key.
        require_signed: Whether a bundle without a signature fails.

    Raises:
        InputError: The folder holds no bundle, the key cannot be read, or there is no key to require a signature of.
    """
    if require_signed and public_key is None:
        raise InputError(
            "whether a bundle is signed is checked with a public key, and none is named",
            fix="name the signer's: --public-key PUB.pem, in Python public_key=",
        )
    checks, sealed = [], None
    if public_key is not None:
        try:
            sealed = check_signature(path, public_key)
            checks.append(BundleCheck("signed", True, f"by the key of {public_key}"))
        except UnsignedError as error:
            checks.append(BundleCheck("signed", not require_signed, error.message, checked=require_signed))
        except BundleError as error:
            checks.append(BundleCheck("signed", False, error.message))
        if provenance_path(path).is_file():
            checks.append(_provenance(path, public_key))
        if not all(check.ok for check in checks):
            return tuple(checks)
    elif (beside := signature_path(path)).is_file():
        text = f"{beside} is not checked: no public key is named"
        checks.append(BundleCheck("signed", True, text, checked=False))
    child, begun = LimitedChild(limits or Limits()), "files"
    try:
        request = {"do": "verify", "path": str(path.absolute()), "manifest": sealed}
        for answer in ask(child, request):
            if "begun" in answer.head:
                begun = str(answer.head["begun"])
            else:
                what, ok, text = answer.head["check"]
                checks.append(BundleCheck(str(what), ok is True, str(text)))
    except ChildEndedError as error:
        checks.append(BundleCheck(begun, False, f"checking it {error}"))
    finally:
        child.close()
    return tuple(checks)


def _provenance(path: Path, public_key: Path) -> BundleCheck:
    try:
        details = check_provenance(path, public_key)["predicate"]["runDetails"]
        run, builder = details["metadata"].get("invocationId"), details["builder"]["id"]
    except BundleError as error:
        return BundleCheck("provenance", False, error.message)
    return BundleCheck("provenance", True, f"of run {run}, by {builder}, signed by the key of {public_key}")


def checks_of(path: Path, sealed: str | None) -> Iterator[str | BundleCheck]:
    """What `verify_bundle` does in the child: what is checked next, then how it went.

    Args:
        path: The folder.
        sealed: The SHA-256 of the manifest that a signature was checked of; None for any.

    Raises:
        InputError: The folder holds no bundle.
    """
    yield "files"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            files = files_of(path, sealed)
            bundle = Bundle.from_files(files, str(path))
            check_window_of(files, str(path))
            body = verified(files, str(path))
        except BundleError as error:
            yield BundleCheck("files", False, error.message)
            return
    size = sum(map(len, files.values()))
    yield BundleCheck("files", True, f"{len(files)} files, {size:,} bytes, each as its digest says")
    for warning in caught:
        if warning.category is FutureWarning:
            yield BundleCheck("window", True, str(warning.message))
    broken_off = False
    for check in _programs(bundle, files, body):
        broken_off = broken_off or (isinstance(check, BundleCheck) and not check.ok)
        yield check
    for name, signature in bundle.signatures.items():
        yield f"signature {name}"
        if broken_off:
            yield BundleCheck(f"signature {name}", False, "not run: a program is not as it should be")
        else:
            yield _signature(bundle, name, signature)


def _programs(
    bundle: Bundle, files: Mapping[str, bytes | memoryview], body: Mapping[str, Any]
) -> Iterator[str | BundleCheck]:
    for stage in (node for node in bundle.graph.nodes if isinstance(node, DeviceStage)):
        yield (what := f"program {stage.program}")
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
