"""The format as docs/bundles.md describes it, read with nothing of drivetrain: json, hashlib, safetensors and MLIR."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.tests.fixtures.bundles.make import build
from safetensors.numpy import load_file

pytestmark = pytest.mark.engine

MLIR_TYPES = {"float32": "f32", "int32": "i32", "bool": "i1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("format") / "built"
    build(path)
    return path / "model"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_bytes())


def test_every_file_is_listed_with_its_digest_and_the_manifest_with_its_own(folder: Path) -> None:
    manifest = read(folder, "manifest.json")
    assert (manifest["format"], manifest["version"]) == ("drivetrain-bundle", 1)
    listed = {path: (size, digest) for path, size, digest in manifest["files"]}
    there = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert listed == {
        path: (len(data), sha256(data).hexdigest()) for path, data in there.items() if path != "manifest.json"
    }
    body = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    data = unicodedata.normalize("NFC", text).encode()
    assert manifest["digest"] == sha256(b"drivetrain-bundle\0%d\0" % len(data) + data).hexdigest()
    assert not re.search(r"20\d\d-\d\d-\d\d", (folder / "manifest.json").read_text())  # no date


def test_other_files_in_the_folder_are_ignored(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "bundle")
    (tmp_path / "bundle" / "notes.txt").write_text("of somebody")
    (tmp_path / "bundle" / "device" / "more.stablehlo").write_bytes(b"no program")
    assert Bundle.load(tmp_path / "bundle").describe() == Bundle.load(folder).describe()


def test_the_id_of_a_word_is_its_row(tmp_path: Path) -> None:
    rows = pa.table({"s": ["b", "a", "b", "c", "ÅØ", "b", "a"]})
    saved = analyze(lambda columns: {"id": ops.vocabulary(columns["s"])}, data.source_of(rows), data.LocalExecutor())
    saved.save(tmp_path / "bundle")
    with pa.memory_map(str(tmp_path / "bundle" / "assets" / "vocabulary.s.arrow")) as file:
        words = pa.ipc.open_file(file).read_all().column("value").to_pylist()
    assert sorted(words) == ["a", "b", "c", "ÅØ"]
    assert Bundle.load(tmp_path / "bundle").run("transform", {"s": words})["id"].tolist() == [0, 1, 2, 3]


def test_a_portable_program_takes_platform_inputs_and_weights_as_the_graph_says(folder: Path) -> None:
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir.dialects import stablehlo

    manifest, graph = read(folder, "manifest.json"), read(folder, "graph.json")
    weights = {name: array for path in (folder / "weights").iterdir() for name, array in load_file(path).items()}

    def tensor(dtype: str, shape: list[Any]) -> str:
        return f"tensor<{''.join('?x' if size == 'b' else f'{size}x' for size in shape)}{MLIR_TYPES[dtype]}>"

    nodes = [node for node in graph["nodes"] if node["kind"] == "device"]
    assert nodes
    for node in nodes:
        assert len(manifest["programs"][node["program"]]["platforms"]) > 1
        arguments = ["tensor<i32>", *(tensor(*slot) for slot in node["slots"])]
        arguments += [tensor(str(weights[name].dtype), list(weights[name].shape)) for name in node["weights"]]
        results = [tensor(output["dtype"], output["shape"]) for output in node["outputs"]]
        code = (folder / "device" / f"{node['program']}.mlirbc").read_bytes()
        with make_ir_context() as context:
            module: Any = stablehlo.deserialize_portable_artifact(context, code)  # whose attributes have no types
            (main,) = (each for each in module.body.operations if each.attributes["sym_name"].value == "main")
            (signature,) = (str(main.attributes["function_type"].value),)
        assert (
            signature
            == f"({', '.join(arguments)}) -> {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}"
        )
