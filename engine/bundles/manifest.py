"""The manifest: what a bundle's folder holds, sealed by digests; it is not trusted, and checked before it is used."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...digest import FileEntry, digest, digest_file
from ...errors import InputError
from ..custom_ops.extensions import Requirement, requirements
from ..graphs.graph import FieldSpec, Graph
from ..graphs.nodes import COLUMN_DTYPES, HostNode
from ..lowering.programs import BundleError, ProgramFacts
from .weights import mapped

FORMAT: Final = "drivetrain-bundle"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
GRAPH: Final = "graph.json"
_MANIFEST_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Signature:
    """What a bundle can be asked: raw columns in, named results out.

    Attributes:
        inputs: By column name; their order does not matter, and other columns are ignored.
        outputs: By name, in order.
        defaults: The columns that a row or batch may lack, with the value they then have; None is missing.
        request_log: The columns that a server's request log leaves out ("deny"), or of which it has a hash ("hash").
        times: The columns of whole numbers that are milliseconds since 1970 (UTC), since the training data has a "date"
            or a timestamp there: "timestamp[us]", "timestamp[ns, tz=UTC]", …, and "timestamp" alone where an earlier
            release wrote the bundle.
    """

    inputs: Mapping[str, FieldSpec]
    outputs: Mapping[str, FieldSpec]
    defaults: Mapping[str, object] = field(default_factory=dict)
    request_log: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)

    def read_from(self, columns: Collection[str]) -> list[str]:
        """The inputs to read of rows that have these columns: all but those that may be absent, and are."""
        return [name for name in self.inputs if name in columns or name not in self.defaults]

    def __str__(self) -> str:
        inputs = [
            f"{name}: {_shown(spec)}{'?' if spec.dtype in COLUMN_DTYPES else ''}"
            + (f" = {self.defaults[name]!r}" if name in self.defaults else "")
            for name, spec in self.inputs.items()
        ]
        outputs = [f"{name}: {_shown(spec)}" for name, spec in self.outputs.items()]
        return f"({', '.join(inputs)}) -> {', '.join(outputs)}"


def _shown(spec: FieldSpec) -> str:
    return spec.dtype + (f"[{','.join(map(str, spec.shape))}]" if spec.shape else "")


def export_facts(platforms: tuple[str, ...]) -> dict[str, Any]:  # Any: JSON
    """What device programs are exported with, for the manifest."""
    import jax

    return {"jax": jax.__version__, "platforms": list(platforms)}


# --- writing ---


def manifest(
    graph: Graph,
    signatures: Mapping[str, Signature],
    required: Sequence[Requirement],
    export: Mapping[str, Any],
    programs: Mapping[str, ProgramFacts],
    files: Sequence[FileEntry],
) -> bytes:
    """The manifest of the other files."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "signatures": described(signatures),
        "required_extensions": [requirement.to_json() for requirement in required],
        "export": dict(export),
        "host_ops": host_ops(graph),
        "programs": {name: facts_json(facts) for name, facts in programs.items()},
        "files": _entries(files),
    }
    return _sealed(body)


def described(signatures: Mapping[str, Signature]) -> list[Any]:
    """Signatures as the manifest has them: a list of JSON values, which `Signature` is read from."""

    def fields(specs: Mapping[str, FieldSpec], **known: Mapping[str, object]) -> list[Any]:
        return [
            [
                key,
                {"dtype": s.dtype, "shape": list(s.shape), "size": s.size}
                | {what: values[key] for what, values in known.items() if key in values},
            ]
            for key, s in specs.items()
        ]

    return [
        [
            name,
            {
                "inputs": fields(s.inputs, default=s.defaults, request_log=s.request_log, time=s.times),
                "outputs": fields(s.outputs),
            },
        ]
        for name, s in signatures.items()
    ]


def host_ops(graph: Graph) -> dict[str, int]:
    """Host op → how many nodes of the graph are of it."""
    return dict(sorted(Counter(node.op for node in graph.nodes if isinstance(node, HostNode)).items()))


def facts_json(facts: ProgramFacts) -> dict[str, Any]:
    """A program's facts as JSON."""
    return {
        "calling_convention": facts.calling_convention,
        "stablehlo": facts.stablehlo,
        "platforms": list(facts.platforms),
        "ops": dict(facts.ops),
    }


def _sealed(body: dict[str, Any]) -> bytes:
    text = json.dumps({**body, "digest": digest(FORMAT, body)}, indent=1, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode()


def _entries(files: Sequence[FileEntry]) -> list[list[object]]:
    return [[file.path, file.size, file.sha256] for file in files]


# --- reading ---


def read_folder(root: Path) -> dict[str, bytes | memoryview]:
    """The manifest and the files that it lists, path → bytes; those of weights stay in the file, mapped.

    Raises:
        InputError: There is no manifest, or a file is missing or of another size.
    """
    data, paths = _open_folder(root)
    try:
        files: dict[str, bytes | memoryview] = {MANIFEST: data}
        for name, path in paths.items():
            files[name] = mapped(path) if path.suffix == ".safetensors" else path.read_bytes()
        return files
    except (OSError, MemoryError) as error:
        raise broken(str(root), f"a file cannot be read ({error!r:.120})") from error


def read_manifest(root: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """The manifest of a bundle's folder, and its files by name, of which only the sizes were looked at.

    Raises:
        InputError: As `read_folder`, or the manifest does not match its own digest.
    """
    data, paths = _open_folder(root)
    return _parse(data, str(root)), {**paths, MANIFEST: root / MANIFEST}


def verified_folder(root: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """The manifest of a bundle's folder, and its files by name, each of which matches its digest.

    They are read a block at a time, so that a bundle may be larger than memory; whether they fit together
    (`Bundle.load`) is not looked at.

    Raises:
        InputError: As `verified`.
    """
    body, paths = read_manifest(root)
    try:
        for name, _, checksum in _listed(body, str(root)):
            if digest_file(paths[name]) != checksum:
                raise broken(str(root), f"{name} does not match its digest")
    except OSError as error:
        raise broken(str(root), f"a file cannot be read ({error!r:.120})") from error
    if GRAPH not in paths:
        raise broken(str(root), f"{GRAPH} is missing")
    return body, paths


def signatures_of(body: Mapping[str, Any], where: str) -> dict[str, Signature]:
    """The signatures that a manifest describes, by name; the inverse of `described`.

    Raises:
        BundleError: It describes none.
    """

    def fields(specs: Sequence[Any]) -> dict[str, FieldSpec]:
        return {name: FieldSpec(spec["dtype"], tuple(spec["shape"]), spec["size"]) for name, spec in specs}

    try:
        return {
            name: Signature(
                fields(both["inputs"]),
                fields(both["outputs"]),
                *(
                    {column: spec[key] for column, spec in both["inputs"] if key in spec}
                    for key in ("default", "request_log", "time")
                ),
            )
            for name, both in body["signatures"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise broken(where, f"{MANIFEST} is not valid ({error!s:.100})") from error


def _open_folder(root: Path) -> tuple[bytes, dict[str, Path]]:
    """The bytes of a folder's manifest, and the files that it lists: each is there, of the size that it says."""
    path = root / MANIFEST
    if not root.exists():
        raise InputError(f"there is no folder {root}", fix=_beside(root))
    if not path.is_file():
        versions = [int(each.parent.name) for each in root.glob(f"*/{MANIFEST}") if each.parent.name.isdecimal()]
        raise InputError(
            f"{root} is not a bundle: it has no {MANIFEST}",
            fix=f"it holds versions: name one, the newest is {root / str(max(versions))}"
            if versions
            else "name the folder of a saved graph or model",
        )
    if path.stat().st_size > _MANIFEST_BYTES:
        raise broken(str(root), f"{MANIFEST} is larger than {_MANIFEST_BYTES >> 20} MiB")
    data = path.read_bytes()
    paths: dict[str, Path] = {}
    try:
        for name, size, _ in _listed(_parse(data, str(root)), str(root)):
            target = root / name
            if not target.is_file() or target.resolve() != root.resolve() / name:  # a link leads elsewhere
                raise broken(str(root), f"{name} is missing")
            if target.stat().st_size != size:  # before it is read
                raise broken(str(root), f"{name} does not match its digest")
            paths[name] = target
    except (OSError, ValueError) as error:  # a name too long for a file, say
        raise broken(str(root), f"a file cannot be read ({error!r:.120})") from error
    return data, paths


def _beside(root: Path) -> str:
    """The fix for a folder that is not there: the close ones to its first part that is not, in the folder above."""
    path = root.absolute()
    above = next(folder for folder in path.parents if folder.is_dir())
    name, *below = path.relative_to(above).parts
    names = sorted(each.name for each in above.iterdir() if each.is_dir() and not each.name.startswith("."))
    close = [str(above.joinpath(each, *below)) for each in get_close_matches(name, names, 2)]
    return f"did you mean {' or '.join(close)}?" if close else f"in {above} are {', '.join(names[:20]) or 'no folders'}"


def verified(files: Mapping[str, bytes | memoryview], where: str) -> dict[str, Any]:
    """The manifest among the files of a bundle, each of which matches its digest.

    Raises:
        InputError: A file is missing or was changed, or the manifest is not such a manifest, or of a newer format.
    """
    if MANIFEST not in files:
        raise broken(where, f"{MANIFEST} is missing")
    body = _parse(bytes(files[MANIFEST]), where)
    for name, size, checksum in _listed(body, where):
        if name not in files:
            raise broken(where, f"{name} is missing")
        if len(files[name]) != size or sha256(files[name]).hexdigest() != checksum:
            raise broken(where, f"{name} does not match its digest")
    if GRAPH not in files:
        raise broken(where, f"{GRAPH} is missing")
    return body


def broken(where: str, cause: str) -> BundleError:
    """The error for a bundle that is not as it was written."""
    return BundleError(
        f"{where} was changed or is damaged: {cause}", fix="fetch it again, or run the step that made it"
    )


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise InputError(
                f"{where} is not a bundle: its {MANIFEST} is of another kind",
                fix="name the folder of a saved graph or model",
            )
        version = body["version"]
        if isinstance(version, int) and version > VERSION:
            raise InputError(
                f"{where} has bundle format {version}, this release reads up to {VERSION}", fix="upgrade drivetrain"
            )
        if version != VERSION or not isinstance(body["digest"], str) or body["digest"] != _digest(body):
            raise ValueError("it does not match its own digest")
        requirements(body["required_extensions"])
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise broken(where, f"{MANIFEST} is not valid ({error!s:.100})") from error
    return body


def _digest(body: Mapping[str, Any]) -> str | None:
    """The digest that a manifest should have; None where it holds what none of ours does, a NUL say."""
    try:
        return digest(FORMAT, {key: value for key, value in body.items() if key != "digest"})
    except InputError:
        return None


def _listed(body: Mapping[str, Any], where: str) -> list[tuple[str, int, str]]:
    listed: list[tuple[str, int, str]] = []
    seen: set[str] = set()
    try:
        for name, size, checksum in body["files"]:
            path = PurePosixPath(name)
            odd = path.is_absolute() or str(path) != name or name in (".", MANIFEST) or "\\" in name
            if odd or ".." in path.parts or name in seen:
                raise ValueError(f"the path {name!r:.80}")
            seen.add(name)
            listed.append((name, size, checksum))
        if sum(size for _, size, _ in listed) > machine_memory():
            raise ValueError("it lists more bytes than this machine has memory")
    except (KeyError, TypeError, ValueError) as error:
        raise broken(where, f"{MANIFEST} is not valid ({error!s:.100})") from error
    return listed


def machine_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not say."""
    if not hasattr(os, "sysconf"):
        return float("inf")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
