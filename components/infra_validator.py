"""InfraValidator: a model is served by the real server before it is pushed, and asked for rows of the examples."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..digest import write_durably
from ..errors import InputError
from ..metadata import Examples, InfraValidation, Model, summarize
from ..pipelines import component, current

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine import Bundle, FieldSpec
    from ..serving.child import ServerProcess

_RELATIVE, _ABSOLUTE = 1e-5, 1e-6  # to which served predictions equal the bundle's own: of float32, padded otherwise
_LOG_LINES = 20
WARMUP_FILE = "warmup.jsonl"
"""The file of a validation's content that holds the requests it was made with, for servers to try the model with."""

_SIGNATURE = "predict"


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse bounds that nothing can keep."""
    for name in ("rows", "max_start_seconds", "max_latency_ms", "max_memory_mb"):
        bound = known.get(name)
        if isinstance(bound, int | float) and not bound > 0:
            raise InputError(f"{name} must be above 0, not {bound!r}", fix="leave it out, or raise it")


@component(gates="model", preflight=_refuse)
def InfraValidator(
    model: Model,
    examples: Examples,
    *,
    split: str | None = None,
    rows: int = 100,
    max_start_seconds: float = 120.0,
    max_latency_ms: float | None = None,
    max_memory_mb: float | None = None,
) -> InfraValidation:
    """Serve a model by `drivetrain serve` in a process of its own, and see that it answers as it should.

    It is a gate: no other consumer of the model, Pusher above all, starts if it does not pass. What it asks: does the
    server start, does it answer each row, with the predictions that the bundle itself gives, all of them finite?

    Args:
        model: What is to be pushed.
        examples: Rows as clients will send them.
        split: Of which split; the last unless given.
        rows: How many of its first rows are sent: all at once, then each by itself.
        max_start_seconds: Until the server answers.
        max_latency_ms: Which 99 of 100 requests of one row must keep, in milliseconds, on this machine, beside whatever
            else it does; None: any.
        max_memory_mb: Of the server's process in the end, in 10⁶ bytes; None: any.

    Returns:
        InfraValidation: `passed`, a summary; `content/validation.json` with the problems; of a model that passed,
        `content/warmup.jsonl` with the requests, which Pusher gives to servers; `extra/server.log`, and
        `extra/measured.json` with seconds to start, latencies and memory.

    Raises:
        InputError: There is no such split.
        BundleError: The model is damaged.
    """
    from ..data import Manifest, open_examples
    from ..engine import Bundle

    bounds = {"max_latency_ms": max_latency_ms, "max_memory_mb": max_memory_mb}
    _refuse({"rows": rows, "max_start_seconds": max_start_seconds, **bounds}, {})
    split = list(Manifest.read(examples.content).rows)[-1] if split is None else split
    launch = current()
    bundle = Bundle.load(model.content)
    source = open_examples(examples.content, split)
    if _SIGNATURE not in bundle.signatures:
        raise InputError(
            f"the model has no signature {_SIGNATURE!r}",
            fix=f"it has {', '.join(bundle.signatures)}: push one that has",
        )
    inputs = bundle.signatures[_SIGNATURE].inputs
    reads = bundle.signatures[_SIGNATURE].read_from(source.schema.names)
    missing = [name for name in reads if name not in source.schema.names]
    validation = InfraValidation.new()
    problems = [f"the model reads {', '.join(missing)}, which the examples do not have"] if missing else []
    measured: dict[str, float] = {}
    sent = 0
    if not problems:
        batch = _as_clients_send(_first(source.select(reads), rows), inputs)
        sent = batch.num_rows
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            _copy(model.content, folder / "model" / "1")
            problems = _served(bundle, batch, folder, max_start_seconds, max_latency_ms, max_memory_mb, measured)
            shutil.copy(folder / "server.log", validation.extra / "server.log")
        if not problems:
            from ..serving.warmup import warmup_file

            write_durably(validation.content / WARMUP_FILE, warmup_file(batch.to_pylist(), _SIGNATURE))
    validation.passed = not problems
    validation.summary = _summary(problems, sent, measured)
    body = {"passed": validation.passed, "split": split, "rows": sent, "problems": problems}
    write_durably(validation.content / "validation.json", (json.dumps(body, indent=1) + "\n").encode())
    write_durably(validation.extra / "measured.json", (json.dumps(measured, indent=1) + "\n").encode())
    launch.note(validation.summary)
    return validation


def _served(
    bundle: Bundle,
    batch: pa.RecordBatch,
    folder: Path,
    max_start_seconds: float,
    max_latency_ms: float | None,
    max_memory_mb: float | None,
    measured: dict[str, float],
) -> list[str]:
    """What is wrong with the model as the server serves it."""
    from ..serving.child import ServerProcess, ServerStartError
    from ..serving.client import Client, ServerError

    try:
        with ServerProcess.start(folder / "model", folder / "server.log", max_start_seconds) as server:
            measured["seconds to start"] = round(server.seconds, 3)
            with Client(server.address, "model") as client:
                problems = list(_differences(bundle, batch, client.predict(batch.to_pylist()).rows))
                if not problems:
                    problems += _bounds(client, batch, server, max_latency_ms, max_memory_mb, measured)
    except (ServerStartError, ServerError) as error:
        lines = (folder / "server.log").read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
        return [error.message, *lines]
    return problems


def _differences(bundle: Bundle, batch: pa.RecordBatch, served: Sequence[Any]) -> list[str]:
    """How what was served differs from what the bundle predicts here."""
    import numpy as np

    outputs = bundle.run(_SIGNATURE, batch)
    problems = []
    for name, values in outputs.items():
        answers = [row[name] if len(outputs) > 1 else row for row in served]
        if values.dtype.kind == "O":
            unequal = [at for at, (mine, its) in enumerate(zip(values.tolist(), answers, strict=True)) if mine != its]
        else:
            numbers = np.array(answers, dtype=np.float64).reshape(values.shape)
            unfinite = ~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
            if unfinite.any():
                row = int(np.argmax(unfinite))
                problems.append(
                    f"{name} is {numbers[row]} for row {row}, and not finite for {int(unfinite.sum())} rows"
                )
            close = np.isclose(numbers, values.astype(np.float64), _RELATIVE, _ABSOLUTE, equal_nan=True)
            unequal = np.flatnonzero(~close.reshape(len(numbers), -1).all(axis=1)).tolist()
        if unequal:
            row = unequal[0]
            problems.append(
                f"{name} is {answers[row]} for row {row}, the bundle itself gives {values[row]}; "
                f"{len(unequal)} rows differ"
            )
    return problems


def _bounds(
    client: Any,  # a Client: its module is imported late
    batch: pa.RecordBatch,
    server: ServerProcess,
    max_latency_ms: float | None,
    max_memory_mb: float | None,
    measured: dict[str, float],
) -> list[str]:
    seconds = []
    for row in batch.to_pylist():
        start = time.perf_counter()
        client.predict([row])
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    measured["p50 ms"] = round(seconds[len(seconds) // 2] * 1e3, 3)
    measured["p99 ms"] = round(seconds[min(len(seconds) * 99 // 100, len(seconds) - 1)] * 1e3, 3)
    measured["memory MB"] = round(server.memory / 1e6, 1)
    problems = []
    if max_latency_ms is not None and measured["p99 ms"] > max_latency_ms:
        problems.append(f"99 of 100 requests take up to {measured['p99 ms']:g} ms, at most {max_latency_ms:g} may be")
    if max_memory_mb is not None and measured["memory MB"] > max_memory_mb:
        problems.append(f"the server takes {measured['memory MB']:g} MB, at most {max_memory_mb:g} may be")
    return problems


def _summary(problems: Sequence[str], rows: int, measured: Mapping[str, float]) -> str:
    if problems:
        more = f" (and {len(problems) - 1} lines more)" if len(problems) > 1 else ""
        return f"not passed: {problems[0]}{more}"
    return (
        f"passed: {rows} rows served as predicted; started in {measured['seconds to start']:.1f} s, "
        f"p99 {measured['p99 ms']:.1f} ms, {measured['memory MB']:,.0f} MB"
    )


def _first(source: Any, rows: int) -> pa.RecordBatch:  # Any: a Source: its module is imported late
    import pyarrow as pa

    batches, count = [], 0
    for shard in source.shards:
        for batch in source.read(shard):
            batches.append(batch.slice(0, rows - count))
            count += batches[-1].num_rows
            if count == rows:
                break
        if count == rows:
            break
    if not count:
        raise InputError("the examples have no rows to send", fix="choose another split")
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _as_clients_send(batch: pa.RecordBatch, inputs: Mapping[str, FieldSpec]) -> pa.RecordBatch:
    """The rows in the types that the graph reads, which JSON has: times as milliseconds, decimals as floats."""
    import pyarrow as pa

    from ..engine.host_ops.columns import as_column

    columns = {name: as_column(batch.column(name), inputs[name].dtype, name) for name in batch.schema.names}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _copy(bundle: Path, folder: Path) -> None:
    """Have a bundle's files in a folder, too."""
    try:
        shutil.copytree(bundle, folder, copy_function=_link)
    except OSError as error:
        causes = error.args[0] if isinstance(error, shutil.Error) else error.strerror
        cause = causes[0][2] if isinstance(causes, list) else causes
        raise InputError(
            f"the model cannot be copied to {folder}: {cause}", fix="set TMPDIR to a folder with room for it"
        ) from error


def _link(source: str, target: str) -> None:
    """A second name for a file, where the file system has that: weights may be large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@summarize.register
def _whether_it_serves(validation: InfraValidation) -> str:
    return f"infrastructure {validation.properties.get('summary')}"
