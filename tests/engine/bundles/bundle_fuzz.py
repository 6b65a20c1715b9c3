"""Mutations of a bundle, numbered, so that each can be made again: `python bundle_fuzz.py BUNDLE START STOP SECONDS`.

Run as a process of its own: what is looked for may end the process, hang it or eat the memory. Each number picks a kind
of mutation and, from its own seed, the place and the value. It prints a line per number: `NUMBER KIND OUTCOME`.
"""

from __future__ import annotations

import functools
import json
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from drivetrain.digest import digest
from drivetrain.engine import Bundle
from drivetrain.errors import InputError
from drivetrain.tests.fixtures.bundles.make import flights
from jax._src import compiler

Files = dict[str, bytes]
SECONDS = 20
BYTES = 8 << 30
# What no bundle may make us do: code run, processes started, the network used, files written.
FORBIDDEN = ("pickle.find_class", "marshal.loads", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn",
             "socket.connect", "socket.bind", "ctypes.dlopen", "exec", "os.remove", "os.rename", "shutil.")  # fmt: skip
ODD: list[Any] = [
    None, True, False, -1, 0, 1, 2, 7, 10**6, 10**12, 10**30, -(10**30), 1.5, 1e300, "", "x", "b", "../x", "/etc",
    "string", "float32", "int64", "(a+)+$", "\x00", "\ud800", "ﬀ", [], {}, [[]], ["b"], ["b", 10**12], [10**6, 10**6],
    {"a": None}, [None] * 50, "y" * 100_000,
]  # fmt: skip
PATHS = ("../../etc/passwd", "/etc/passwd", "a/../../b", "..", ".", "", "a\\b", "\x00", "a\x00b", "C:\\x", "~/x",
         "x" * 5000, "device", "./graph.json", "graph.json/", "manifest.json", "//graph.json")  # fmt: skip


def sealed(files: Files, body: Any) -> Files:
    """The files with a manifest that agrees with them in every digest that it has."""
    if isinstance(body, dict):
        body.pop("digest", None)
        try:
            body["digest"] = digest("drivetrain-bundle", body)
        except InputError:  # not JSON as we write it: no digest would fit
            body["digest"] = "0" * 64
    return {**files, "manifest.json": json.dumps(body).encode("utf-8", "surrogatepass")}


def resealed(files: Files) -> Files:
    """The files, as they now are, with a manifest that lists them."""
    body = json.loads(files["manifest.json"])
    body["files"] = [
        [name, len(data), sha256(data).hexdigest()] for name, data in files.items() if name != "manifest.json"
    ]
    return sealed(files, body)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every node of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


def changed(dice: random.Random, value: Any) -> Any:
    """A JSON value with one node, or a few, taken away, doubled, renamed, nested or made something else."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        ways = places(value)[1:]
        if not ways:
            return dice.choice(ODD)
        *way, last = dice.choice(ways)
        holder = value
        for key in way:
            holder = holder[key]
        match dice.randrange(6):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, list):
                holder.insert(last, holder[last])
            case 2 if isinstance(holder, dict):
                holder[str(dice.choice(ODD))] = holder.pop(last)
            case 3:
                other = value
                for key in dice.choice(ways)[:-1]:
                    other = other[key] if isinstance(other, (list, dict)) and _has(other, key) else other
                holder[last] = json.loads(json.dumps(other)) if len(json.dumps(other)) < 20_000 else None
            case 4 if isinstance(holder[last], (int, float)):
                holder[last] = holder[last] * dice.choice((-1, 0, 2, 10**9)) + dice.choice((0, 1, -1))
            case _:
                holder[last] = dice.choice(ODD)
    return value


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Bytes cut short at any length class, or with some of them flipped, zeroed, repeated or taken out."""
    size = len(data)
    match dice.randrange(6):
        case 0:
            return data[
                : dice.choice((0, 1, 7, 8, 9, size // 2, max(size - 8, 0), max(size - 1, 0), dice.randrange(size + 1)))
            ]
        case 1:
            return data + bytes(dice.choice((1, 8, 4096)))
        case 2:
            at, count = dice.randrange(size), dice.choice((1, 4, 8, 64))
            return data[:at] + bytes(count) + data[at + count :]
        case 3:
            at, count = dice.randrange(size), dice.choice((1, 2, 8, 100))
            return data[:at] + data[at + count :]
        case 4:  # a number that lies: the largest of its width
            at, width = dice.randrange(size), dice.choice((1, 2, 4, 8))
            return data[:at] + b"\xff" * (width - 1) + dice.choice((b"\x7f", b"\xff")) + data[at + width :]
        case _:
            flipped = bytearray(data)
            for _ in range(dice.choice((1, 1, 2, 8))):
                flipped[dice.randrange(size)] ^= 1 << dice.randrange(8)
            return bytes(flipped)


def _pick(dice: random.Random, files: Files, ending: str = "") -> str:
    return dice.choice([name for name in sorted(files) if name.endswith(ending)])


def a_byte(dice: random.Random, files: Files) -> Files:
    name = _pick(dice, files)
    return {**files, name: damaged(dice, files[name])}


def a_file(dice: random.Random, files: Files) -> Files:
    name = _pick(dice, files)
    if dice.random() < 0.5:
        rest = {key: data for key, data in files.items() if key != name}
        return rest if name == "manifest.json" or dice.random() < 0.5 else resealed(rest)
    extra = dice.choice(
        ("device/other.stablehlo", "weights/x.safetensors", "assets/x.arrow", "weights/y", "a/../b", "run.py")
    )
    return resealed({**files, extra: files[_pick(dice, files)]})


def a_manifest(dice: random.Random, files: Files) -> Files:
    return sealed(files, changed(dice, json.loads(files["manifest.json"])))


def a_path(dice: random.Random, files: Files) -> Files:
    body = json.loads(files["manifest.json"])
    entry = dice.choice(body["files"])
    path = dice.choice(PATHS)
    entry[0] = path
    return sealed({**files, path: files["graph.json"]}, body)


def a_graph(dice: random.Random, files: Files) -> Files:
    graph = changed(dice, json.loads(files["graph.json"]))
    return resealed({**files, "graph.json": json.dumps(graph).encode("utf-8", "surrogatepass")})


def deep(dice: random.Random, files: Files) -> Files:
    depth = dice.choice((100, 900, 5000, 200_000))
    nest = (dice.choice((b"[", b'{"a":')) * depth) + b"1" + (b"]" if dice.random() < 0.5 else b"}") * depth
    name = dice.choice(("graph.json", "manifest.json"))
    if name == "manifest.json":
        return {
            **files,
            name: nest if dice.random() < 0.5 else files[name].replace(b'"version": 1', b'"version": ' + nest),
        }
    text = files[name].replace(b'"params":{', b'"params":{"deep":' + nest + b",", 1) if dice.random() < 0.5 else nest
    return resealed({**files, name: text})


def a_program(dice: random.Random, files: Files) -> Files:
    name = _pick(dice, files, ".stablehlo")
    return resealed({**files, name: damaged(dice, files[name])})


def some_weights(dice: random.Random, files: Files) -> Files:
    name = _pick(dice, files, ".safetensors")
    data = files[name]
    if dice.random() < 0.3:
        return resealed({**files, name: damaged(dice, data)})
    (length,) = struct.unpack("<Q", data[:8])
    header = changed(dice, json.loads(data[8 : 8 + length]))
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    said = (
        len(text) if dice.random() < 0.7 else dice.choice((0, 1, len(text) - 1, len(text) + 1, 10**9, 2**63, 2**64 - 1))
    )
    return resealed({**files, name: struct.pack("<Q", said) + text + data[8 + length :]})


def a_vocabulary(dice: random.Random, files: Files) -> Files:
    name = _pick(dice, files, ".arrow")
    if dice.random() < 0.7:
        return resealed({**files, name: damaged(dice, files[name])})
    columns: dict[str, pa.Array] = dice.choice([
        {"value": pa.array([1, 2])}, {"value": pa.array(["a", None, "a"])}, {"other": pa.array(["a"])}, {},
        {"value": pa.array([["a"], []])}, {"value": pa.array(["a"] * 3).dictionary_encode()}, {"value": pa.nulls(4)},
    ])  # fmt: skip
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return resealed({**files, name: sink.getvalue().to_pybytes()})


KINDS: list[Callable[[random.Random, Files], Files]] = [
    a_byte, a_file, a_manifest, a_manifest, a_path, a_graph, a_graph, a_graph, deep, a_program, a_program, some_weights,
    a_vocabulary,
]  # fmt: skip


def read(folder: Path) -> Files:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def mutated(files: Files, number: int) -> Files:
    """The mutation of that number."""
    return KINDS[number % len(KINDS)](random.Random(number), files)


def use(files: Files) -> None:
    bundle = Bundle.from_files(files)
    table = flights(3, 1)
    (batch,) = table.combine_chunks().to_batches()
    failed: InputError | None = None
    for name in list(bundle.signatures):
        for run in (
            lambda name=name: bundle.run(name, batch),
            lambda name=name: bundle.run_row(name, table.to_pylist()[0]),
        ):
            try:
                run()
            except InputError as error:
                failed = error
    repr(bundle)
    if failed is not None:
        raise failed


def outcome(files: Files) -> str:
    try:
        use(files)
    except InputError:
        return "refused"
    except TimeoutError:
        return "HANGS"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/engine/" in frame.filename][-1]
        at = f"{last.filename}:{last.lineno} via {ours.filename}:{ours.lineno}"
        return f"{type(error).__name__.upper()} {error!s:.150} at {at}"
    return "works"


def compile_equal_programs_once() -> None:
    """Have JAX read equal programs once, and compile those once that differ in what they say of source lines alone.

    Most damage is elsewhere, or in those lines.
    """
    honest = jax.export.deserialize
    cached = functools.cache(lambda data: honest(bytearray(data)))
    jax.export.deserialize = lambda data: cached(bytes(data))  # type: ignore[assignment]
    compiling = compiler.backend_compile_and_load
    compiled: dict[tuple[str, bytes], Any] = {}

    def compile_once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
        program = (module.operation.get_asm(enable_debug_info=False), options.SerializeAsString())
        if program not in compiled:
            compiled[program] = compiling(backend, module, devices, options, callbacks)
        return compiled[program]

    compiler.backend_compile_and_load = compile_once


def main(folder: Path, start: int, stop: int, seconds: float) -> None:
    files = read(folder)
    compile_equal_programs_once()
    use(files)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and (event.startswith(FORBIDDEN) or (event == "open" and set(str(arguments[1])) & set("wax+"))):
            raise SystemError(f"{event} {arguments!r:.200}")

    def late(*_: object) -> None:
        raise TimeoutError

    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, late)
    end = time.monotonic() + seconds
    for number in range(start, stop):
        if time.monotonic() > end:
            break
        print(number, KINDS[number % len(KINDS)].__name__, end=" ", flush=True)
        made = mutated(files, number)
        signal.alarm(SECONDS)
        watching = True
        found = outcome(made)
        watching = False
        signal.alarm(0)
        print(found.replace("\n", " "), flush=True)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
