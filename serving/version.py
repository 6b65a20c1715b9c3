"""One version of a model: loaded, tried and compiled before a request reaches it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..engine.bundles.bundle import Bundle
from ..engine.bundles.manifest import Signature, read_manifest, signatures_of, verified_folder
from ..engine.bundles.runner import REQUESTS, SMALL
from ..engine.bundles.signing import UnsignedError, check_signature
from ..engine.bundles.weights import give_back
from ..engine.host_ops.columns import ARROW
from ..engine.hub.fetching import local_bundle
from ..engine.hub.publishing import chosen
from ..engine.lowering.programs import BundleError
from ..errors import InputError
from ..versions import FolderVersions, versions_at
from .api import Described
from .batching import Batcher, BatchingOptions, predictor
from .usual import usual_rows

SLOW: Final = 0.002
"""Seconds that a batch of 64 rows may take in the event loop; a slower model runs beside it."""
_TIMED: Final = 5
"""Times that a batch is tried until one is not slower: what else runs on the machine says nothing about a model."""


def fetch_version(base_path: str, number: int) -> Path:
    """A version's folder, whole.

    Raises:
        DrivetrainError: It is not whole, or its store does not answer.
    """
    there = versions_at(base_path)
    try:
        return local_bundle(there, chosen(there, number))
    except InputError:
        if isinstance(there, FolderVersions) and number not in there.recorded():
            return there.folder / str(number)  # copied there by hand; the bundle's own digests say whether it is whole
        raise


class LoadedVersion:
    """A version that answers.

    Args:
        described: What it is.
        bundle: What it runs.
        seconds: What a batch of 64 rows takes, by signature.
        options: How its requests are put together.
        executor: Where slow batches run.
    """

    def __init__(
        self,
        described: Described,
        bundle: Bundle,
        seconds: dict[str, float],
        options: BatchingOptions,
        executor: Executor,
    ) -> None:
        self.described = described
        self.predictors = {name: predictor(bundle, name) for name in bundle.signatures}
        self.batchers = {
            name: Batcher(described, predict, options, executor, slow=seconds.get(name, 0) > SLOW)
            for name, predict in self.predictors.items()
        }

    @property
    def idle(self) -> bool:
        """Whether no request waits for it."""
        return all(batcher.idle for batcher in self.batchers.values())


@dataclass(frozen=True)
class Prepared:
    """A version that is here.

    Attributes:
        described: What it is.
        folder: Where its files are.
        size: Bytes of its files: about what it takes in memory.
        public_key: The file of the key that must have signed it; None: it need not be signed.
        signature: The bytes of its signature, where it must have one.
    """

    described: Described
    folder: Path
    size: int
    public_key: Path | None = None
    signature: bytes | None = None


def prepare(name: str, base_path: str, number: int, public_key: str | None = None) -> Prepared:
    """Fetch a version and the signature that it must have where there is a key, and read its manifest. May take long.

    Raises:
        DrivetrainError: It is not whole, or has no signature.
    """
    signature = None if public_key is None else _signature(base_path, number)
    folder = fetch_version(base_path, number)
    body, paths = read_manifest(folder)
    described = Described(name, number, signatures_of(body, str(folder)), body["digest"])
    described = replace(described, usual=usual_rows(described, base_path))
    size = sum(path.stat().st_size for path in paths.values())
    return Prepared(described, folder, size, None if public_key is None else Path(public_key), signature)


def _signature(base_path: str, number: int) -> bytes:
    """The signature of a version, unchecked; it lies beside the version."""
    store, name = versions_at(base_path).store, f"{number}.sig"
    if not store.exists(name):
        raise UnsignedError(
            f"version {number} is not signed, and is to be: there is no {name}",
            fix="sign what is pushed: `drivetrain bundle sign`",
        )
    return store.read(name)


def check_files(prepared: Prepared) -> None:
    """Check every file of a version that is not loaded yet, and its signature where it must have one.

    Raises:
        DrivetrainError: One is damaged, or it is of another key.
    """
    if prepared.public_key is not None:
        check_signature(prepared.folder, prepared.public_key, prepared.signature)
    verified_folder(prepared.folder)


def read_bundle(prepared: Prepared) -> Bundle:
    """Read a version and check its files; weights stay there, mapped. Nothing of it belongs in an event loop.

    Raises:
        DrivetrainError: It is damaged, not signed as it must be, or another one than was prepared.
    """
    loaded = Bundle.load(prepared.folder, public_key=prepared.public_key, signature=prepared.signature)
    bundle = loaded.for_serving()
    if read_manifest(prepared.folder)[0]["digest"] != prepared.described.digest:
        raise InputError(f"{prepared.folder} holds another bundle than before", fix="push each bundle as a new version")
    return bundle


def compile_bundle(bundle: Bundle) -> dict[str, float]:
    """Compile a bundle and try it. Takes seconds.

    Returns:
        The seconds that a batch of 64 rows takes, by signature.

    Raises:
        DrivetrainError: Its programs fail.
    """
    seconds = {signature: warm_up(bundle, signature) for signature in bundle.signatures}
    give_back(bundle.payload.weights.values())  # the device has its own
    return seconds


def warm_up(bundle: Bundle, signature: str) -> float:
    """Compile what requests of up to 512 rows need, and return the seconds that 64 rows take.

    The rows have no values: most models take these, and to one that does not the error is no reason to be refused.

    Raises:
        DrivetrainError: The bundle cannot be run.
    """
    of = bundle.signatures[signature]
    row = {name: of.defaults.get(name) for name in of.inputs}
    _try(partial(bundle.run_row, signature, row))
    batches = {size: empty_rows(of, size) for size in (REQUESTS, SMALL)}
    for batch in batches.values():
        _try(partial(bundle.run, signature, batch))
    least = math.inf
    for _ in range(_TIMED):
        start = time.perf_counter()
        _try(partial(bundle.run, signature, batches[REQUESTS]))
        least = min(least, time.perf_counter() - start)
        if least <= SLOW:
            break
    return least


def empty_rows(signature: Signature, rows: int) -> pa.RecordBatch:
    """Rows without values, or with the columns' defaults."""
    columns: dict[str, Any] = {
        name: pa.array([signature.defaults.get(name)] * rows, ARROW[spec.dtype])
        for name, spec in signature.inputs.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _try(run: Callable[[], object]) -> None:
    try:
        run()
    except BundleError:
        raise
    except InputError:
        return  # about the rows
