"""The image of a pipeline: its context is the same to the byte, and what is in it builds the same pipeline."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from drivetrain.console.cli import cli
from drivetrain.pipelines import load_pipeline
from drivetrain.pipelines.kubeflow.image import STORAGE

from .shop import PARTS, PLAIN

BASE = "python:3.11-slim@sha256:" + "a" * 64


@pytest.fixture
def shop(project: Callable[..., Path]) -> Path:
    head = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef shop(count: int = 3) -> None:\n    "
    folder = project("shop", parts=PARTS, pipeline=head + PLAIN)
    (folder / "kubeflow.yaml").write_text("image: x\nartifacts: s3://b/x\nstore: {secret: s, key: k}\n")
    (folder / "notes.txt").write_text("not a module\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "1.0"\ndependencies = ["tinydb<5"]\n')
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel by its name; what is in it is pip's affair."""
    path = tmp_path / "drivetrain-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("drivetrain/__init__.py", "")
    return path


def _image(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["kubeflow", "image", *map(str, words)], prog_name="drivetrain")


def _made(*words: str | Path) -> dict[str, object]:
    result = _image(*words, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


@pytest.mark.slow
def test_two_contexts_are_the_same_bytes(shop: Path, wheel: Path, tmp_path: Path) -> None:
    tars = []
    for name in ("one", "two"):
        _made(shop, "-o", tmp_path / name, "--tar", tmp_path / f"{name}.tar", "--wheel", wheel, "--base", BASE)
        tars.append((tmp_path / f"{name}.tar").read_bytes())
        time.sleep(1.1)  # the clock moves on
        for file in shop.glob("*"):
            file.touch()
    assert hashlib.sha256(tars[0]).digest() == hashlib.sha256(tars[1]).digest()
    with tarfile.open(fileobj=io.BytesIO(tars[0])) as archive:
        infos = archive.getmembers()
    assert {info.mtime for info in infos} == {315532800}
    assert {(info.uid, info.gid, info.uname) for info in infos} == {(0, 0, "")}
    assert [info.name for info in infos] == sorted(info.name for info in infos)
    assert {path.stat().st_mtime for path in (tmp_path / "one").rglob("*") if path.is_file()} == {315532800}


def test_what_is_in_it(shop: Path, wheel: Path, tmp_path: Path) -> None:
    made = _made(shop, "-o", tmp_path / "c", "--wheel", wheel, "--base", BASE, "--extra", "beam")
    assert made["pinned"] is True
    assert made["files"] == [
        "Dockerfile", "constraints.txt", "project/parts.py", "project/pipeline.py",
        "requirements.txt", f"wheels/{wheel.name}",
    ]  # fmt: skip
    first, second, third = (tmp_path / "c" / "requirements.txt").read_text().splitlines()
    assert first == f"drivetrain[beam,cloud,engine,kubeflow,postgres] @ file:///build/wheels/{wheel.name}"
    assert second == "tinydb<5"
    assert third == "s3fs"  # by which pods reach s3://
    pinned = (tmp_path / "c" / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+", line) for line in pinned)
    import numpy

    assert f"numpy=={numpy.__version__}" in pinned
    assert not any(line.startswith("drivetrain==") for line in pinned)
    shutil.move(tmp_path / "c" / "project", tmp_path / "elsewhere" / "shop")  # as it lies in the image
    assert load_pipeline(tmp_path / "elsewhere" / "shop").build().digest == made["pipeline"]


def test_the_files_that_nodes_read_are_in_it(project: Callable[..., Path], wheel: Path, tmp_path: Path) -> None:
    folder = project(
        "shop",
        pipeline="""
            import drivetrain as dt
            from drivetrain.components import ImportSchema

            @dt.pipeline
            def shop() -> None:
                ImportSchema("schema.yaml")
        """,
    )
    (folder / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures: {}\n")
    (folder / "notes.txt").write_text("nobody reads them\n")
    files = _made(folder, "-o", tmp_path / "c", "--wheel", wheel)["files"]
    assert isinstance(files, list)
    assert [name for name in files if name.startswith("project/")] == ["project/pipeline.py", "project/schema.yaml"]


def test_the_dockerfile(shop: Path, wheel: Path, tmp_path: Path) -> None:
    made = _made(shop, "-o", tmp_path / "c", "--wheel", wheel, "--base", BASE)
    text = (tmp_path / "c" / "Dockerfile").read_text()
    assert f"ARG BASE={BASE}\n" in text
    assert text.count("\nFROM ${BASE}") == 2
    assert "\nUSER 65532:65532\n" in text
    assert "COPY project/ /app/shop/\n" in text
    assert f'drivetrain.pipeline="{made["pipeline"]}"' in text
    assert "--no-cache-dir" in text
    assert made["tag"] == f"shop:{str(made['pipeline'])[:12]}"
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (tmp_path / "c" / name).exists()
    if shutil.which("hadolint") is not None:
        subprocess.run(["hadolint", tmp_path / "c" / "Dockerfile"], check=True)


def test_a_changed_pipeline_is_another_image(shop: Path, wheel: Path, tmp_path: Path) -> None:
    first = _made(shop, "-o", tmp_path / "c", "--wheel", wheel)
    (shop / "extra.py").write_text("x = 1\n")
    again = _made(shop, "-o", tmp_path / "c", "--wheel", wheel)  # its own folder it writes over
    assert again["pipeline"] == first["pipeline"]
    (shop / "extra.py").unlink()
    (shop / "parts.py").write_text((shop / "parts.py").read_text().replace("total + amount", "total - amount"))
    last = _made(shop, "-o", tmp_path / "c", "--wheel", wheel)
    assert last["pipeline"] != first["pipeline"]
    assert not (tmp_path / "c" / "project" / "extra.py").exists()


def test_nothing_is_removed_or_written_over_that_is_not_its_own(shop: Path, wheel: Path, tmp_path: Path) -> None:
    def refused(folder: Path) -> str:
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        result = _image(shop, "-o", folder, "--wheel", wheel)
        assert result.exit_code == 2, result.output
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        return result.stderr

    _made(shop, "-o", tmp_path / "c", "--wheel", wheel)
    shutil.copyfile(tmp_path / "c" / "Dockerfile", shop / "Dockerfile")  # to have it under version control, say
    assert "holds " in refused(shop)
    (tmp_path / "c" / "project" / "notes.md").write_text("my own")
    assert "holds project/notes.md" in refused(tmp_path / "c")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "Dockerfile").write_text("FROM scratch\n")
    assert "holds Dockerfile" in refused(tmp_path / "mine")


@pytest.mark.parametrize(
    ("artifacts", "package"),
    [("s3://b/x", "s3fs"), ("gs://b/x", "gcsfs"), ("abfs://c@a.dfs.core.windows.net/x", "adlfs"), ("/data/x", None)],
)
def test_pods_can_reach_their_payloads(
    shop: Path, wheel: Path, tmp_path: Path, artifacts: str, package: str | None
) -> None:
    """fsspec names the same package for the scheme."""
    from fsspec.registry import known_implementations  # type: ignore[import-untyped]  # it ships none

    (shop / "kubeflow.yaml").write_text(
        f"image: x\nartifacts: {artifacts}\nstore: {{secret: s, key: k}}\ndefaults: {{pvcs: {{/data: claim}}}}\n"
    )
    _made(shop, "-o", tmp_path / "c", "--wheel", wheel)
    lines = (tmp_path / "c" / "requirements.txt").read_text().splitlines()
    assert lines[2:] == ([package] if package else [])
    if package:
        assert known_implementations[artifacts.partition(":")[0]]["class"].startswith(f"{package}.")


def test_settings_of_the_cluster_do_not_change_the_image(shop: Path, wheel: Path, tmp_path: Path) -> None:
    _made(shop, "-o", tmp_path / "a", "--tar", tmp_path / "a.tar", "--wheel", wheel)
    (shop / "kubeflow.yaml").write_text("image: y@sha256:1\nartifacts: s3://b/y\nstore: {secret: s, key: k}\n")
    _made(shop, "-o", tmp_path / "b", "--tar", tmp_path / "b.tar", "--wheel", wheel)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_is_wrong_is_one_line(shop: Path, wheel: Path, tmp_path: Path) -> None:
    def refused(*words: str | Path) -> str:
        result = _image(shop, *words)
        assert result.exit_code == 2, result.output
        assert "fix:" in result.stderr
        return result.stderr

    assert "installed from" in refused("-o", tmp_path / "c")  # a checkout
    assert "is not a wheel of drivetrain" in refused("-o", tmp_path / "c", "--wheel", tmp_path / "none.whl")
    assert "names no image" in refused("-o", tmp_path / "c", "--wheel", wheel, "--base", "x; rm -rf /")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    assert "holds thesis.txt" in refused("-o", tmp_path / "mine", "--wheel", wheel)
    (shop / "kubeflow.yaml").write_text(
        "image: x\nartifacts: s3://b/x\nstore: {secret: s, key: k}\nproject: /app/other\n"
    )
    assert "imported by the name of its folder, shop" in refused("-o", tmp_path / "c", "--wheel", wheel)


def test_the_dockerfile_of_the_examples() -> None:
    """It is built from a checkout: what it copies and asks for must be in one."""
    checkout = Path(__file__).parents[3]
    text = (checkout / "examples" / "Dockerfile").read_text()
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    (storage,) = re.findall(r"^ARG STORAGE=(\S+)$", text, re.MULTILINE)
    assert storage in STORAGE.values()
    patterns = (checkout / "examples" / "Dockerfile.dockerignore").read_text().split()
    copied = re.findall(r"^COPY (?!--from)(\S+) \S+$", text, re.MULTILINE)
    assert copied == [".", "examples/${PROJECT}"]
    needed = [
        ".src",
        "constraints.txt",
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        "examples",
        "pipelines",
    ]
    for name in needed:
        (*_, last) = ["!", *(pattern for pattern in patterns if fnmatch(name, pattern.removeprefix("!")))]
        assert last.startswith("!"), f"{name} is left out by {last}"  # of all that match, the last decides
        assert (checkout / name).exists()
    assert re.search(r'^RUN test -f "/app/\$\{PROJECT\}/pipeline.py" \|\| ', text, re.MULTILINE)  # else all are copied
    if shutil.which("hadolint") is not None:
        subprocess.run(["hadolint", checkout / "examples" / "Dockerfile"], check=True)
