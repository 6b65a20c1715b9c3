"""A project as a wheel: what is in it, what is refused, and that it does the same work where it is installed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import load_pipeline
from drivetrain.pipelines.project import functions
from drivetrain.pipelines.project.wheel import build_wheel
from hypothesis import given
from hypothesis import strategies as st

PIPELINE = """
    import drivetrain as dt
    from .parts import Make
    from drivetrain.pipelines import Files, Fn, load, resolve_files

    @dt.component
    def Count(data: Files, *, fn: Fn) -> int:
        return load(fn)(sum(len(file.path.read_text().split()) for file in resolve_files(data).files))

    say = dt.shell_component(
        "Say", ["sh", dt.external.file_path("script"), dt.external.parameter("n"), dt.external.output_path("said")],
        parameters={"n": int}, files={"script": "sub/say.sh"}, outputs={"said": str},
    )
    upper = dt.kfp_component("component.yaml")

    @dt.pipeline
    def shop() -> None:
        count = Count("words.txt", fn="features:twice")
        Make(count=count)
        say(n=count)
"""
PARTS = """
    import drivetrain as dt

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Make(*, count: int) -> Numbers:
        numbers = Numbers.new(total=count)
        (numbers.content / "total.txt").write_text(str(count))
        return numbers
"""
YAML = f"""
name: Upper
implementation: {{container: {{image: "busybox@sha256:{"0" * 64}", command: [ls]}}}}
"""


@pytest.fixture
def shop(project: Callable[..., Path]) -> Path:
    """A project with modules, data, and what has no place in a wheel."""
    folder = project("shop", pipeline=PIPELINE, parts=PARTS, features="def twice(n):\n    return 2 * n\n")
    (folder / "words.txt").write_text("a b c")
    (folder / "component.yaml").write_text(YAML)
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "more.py").write_text("x = 1\n")
    (folder / "sub" / "data.csv").write_text("a,b\n1,2\n")
    (folder / "sub" / "say.sh").write_text('echo "$1 words" > "$2"')
    (folder / ".env").write_text("TOKEN=1")
    for name in (".drivetrain", "__pycache__", "venv", "dist", ".git"):
        (folder / name).mkdir()
        (folder / name / "a.py").write_text("x = 1\n")
    (folder / "venv" / "pyvenv.cfg").touch()
    (folder / "link.py").symlink_to("/etc/passwd")
    (folder / "pyproject.toml").write_text(
        '[tool.drivetrain.package]\ninclude = ["words.txt", "component.yaml", "sub/*.[cs]*"]\n'
    )
    return folder


def names(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_is_in_it_and_what_is_not(shop: Path) -> None:
    wheel = build_wheel(shop)
    inside = [
        "component.yaml", "features.py", "parts.py", "pipeline.py", "sub/data.csv", "sub/deep/more.py",
        "sub/say.sh", "words.txt",
    ]  # fmt: skip
    assert [name for name, _ in wheel.files] == inside
    assert dict(wheel.left_out) == {
        ".drivetrain/": "hidden", ".env": "may hold a secret", ".git/": "hidden", "dist/": "made by tools",
        "link.py": "a link", "pyproject.toml": "not named by include", "venv/": "a virtual environment",
    }  # fmt: skip
    found = names(wheel.data)
    assert [name for name in found if ".dist-info/" not in name] == [f"shop/{name}" for name in inside]
    assert found["shop/words.txt"] == b"a b c"
    (record,) = (name for name in found if name.endswith("RECORD"))
    rows = {row[0]: row[1:] for row in csv.reader(found[record].decode().splitlines())}
    assert set(rows) == set(found)
    for name, (told, size) in rows.items():
        if name != record:
            digest = urlsafe_b64encode(hashlib.sha256(found[name]).digest()).rstrip(b"=").decode()
            assert (told, size) == (f"sha256={digest}", str(len(found[name])))


def test_the_same_files_give_the_same_bytes(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_wheel(shop)
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "shop"
    shutil.copytree(shop, copy, symlinks=True)
    for path in copy.rglob("*.py"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert build_wheel(copy).data == first.data
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = build_wheel(shop)
    with zipfile.ZipFile(io.BytesIO(dated.data)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    assert dated.name == first.name
    (copy / "features.py").write_text("def twice(n):\n    return 3 * n\n")
    assert build_wheel(copy).name != first.name  # without a version of its own, the content's
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        build_wheel(shop)


def test_the_project_says_what_it_is_called(shop: Path) -> None:
    with (shop / "pyproject.toml").open("a") as file:
        file.write(
            '[project]\nname = "The-Shop"\nversion = "1.2"\ndescription = "Sells."\ndependencies = ["numpy>=2"]\n'
        )
    wheel = build_wheel(shop)
    assert wheel.name == "the_shop-1.2-py3-none-any.whl"
    metadata = names(wheel.data)["the_shop-1.2.dist-info/METADATA"].decode()
    assert (
        "Name: The-Shop\nVersion: 1.2\nSummary: Sells.\nRequires-Dist: numpy>=2\nRequires-Dist: drivetrain>="
        in metadata
    )


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (".env", "may hold a secret, by its name"),
        ("*.pem", "a.pem may hold a secret"),
        ("notes.txt", "holds a private key"),
        ("big.bin", "has 0.00[0-9]+ MB, and a file may have 0.001"),
        ("../*", "leads out of the project"),
        ("/etc/passwd", "leads out of the project"),
        ("link.*", "leads out of the project"),
        ("none.*", "matches 'none"),
    ],
)
def test_what_is_refused(shop: Path, pattern: str, message: str) -> None:
    (shop / "a.pem").write_text("x")
    (shop / "notes.txt").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (shop / "big.bin").write_bytes(b"0" * 2000)
    with pytest.raises(InputError, match=message):
        build_wheel(shop, [pattern], 1000)


@pytest.mark.parametrize("table", ['include = "a"', 'exclude = ["a"]', "include = [1]"])
def test_a_table_that_is_not_understood(shop: Path, table: str) -> None:
    (shop / "pyproject.toml").write_text(f"[tool.drivetrain.package]\n{table}\n")
    with pytest.raises(InputError, match=r"\[tool.drivetrain.package\] has"):
        build_wheel(shop)


@given(st.sets(st.text(st.sampled_from('ab," .é'), min_size=1, max_size=5), max_size=4))
def test_any_name_of_a_file_is_recorded(tmp_path_factory: pytest.TempPathFactory, found: set[str]) -> None:
    folder = tmp_path_factory.mktemp("p") / "shop"
    folder.mkdir()
    (folder / "pipeline.py").touch()
    files = {f"x{name}.py" for name in found}
    for name in files:
        (folder / name).touch()
    inside = names(build_wheel(folder).data)
    (record,) = (name for name in inside if name.endswith("RECORD"))
    assert {row[0] for row in csv.reader(inside[record].decode().splitlines())} == set(inside)
    assert {f"shop/{name}" for name in files} < set(inside)


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def drivetrain(*words: str, cwd: Path) -> Any:
    done = command("drivetrain", *words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_installed_elsewhere_it_does_the_same_work(shop: Path, tmp_path: Path) -> None:
    first = drivetrain("run", "shop", cwd=tmp_path)
    assert {node["state"] for node in first["nodes"].values()} == {"COMPLETE"}
    told = drivetrain("package", "shop", "-o", "out", cwd=tmp_path)
    assert [each["path"] for each in told["files"]][-1] == "words.txt"
    assert {"path": ".env", "reason": "may hold a secret"} in told["left_out"]
    wheel = tmp_path / told["path"]
    assert drivetrain("package", "shop", "-o", "again", cwd=tmp_path)["pipeline"] == told["pipeline"]
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    pip = command("pip", "install", "--no-deps", "--no-index", "--target", "app", str(wheel), cwd=tmp_path)
    assert pip.returncode == 0, pip.stderr
    shutil.rmtree(shop)
    second = drivetrain("run", "app/shop", cwd=tmp_path)
    assert {node["state"] for node in second["nodes"].values()} == {"CACHED"}


@pytest.mark.slow
def test_what_the_pipeline_names_needs_no_include(shop: Path, tmp_path: Path) -> None:
    (shop / "pyproject.toml").unlink()
    told = drivetrain("package", "shop", "-o", "out", cwd=tmp_path)
    # Files of nodes, and component.yaml, which a module reads; not what only lies there.
    others = [each["path"] for each in told["files"] if not each["path"].endswith(".py")]
    assert others == ["component.yaml", "sub/say.sh", "words.txt"]
    assert {"path": "sub/data.csv", "reason": "not named by include"} in told["left_out"]
    done = command("drivetrain", "package", "shop", "--max-size", "much", cwd=tmp_path)
    assert "error: 'much' is not an amount of memory" in done.stderr


@pytest.mark.slow
def test_what_building_needs_and_nobody_names(shop: Path, tmp_path: Path) -> None:
    pipeline = (shop / "pipeline.py").read_text()
    (shop / "title.txt").write_text("Shop")
    reads = 'from pathlib import Path\n\nTITLE = (Path(__file__).parent / "title.txt").read_text()\n'
    (shop / "pipeline.py").write_text(f"{reads}\n{pipeline}")
    packed = drivetrain("package", "shop", "-o", "imported", cwd=tmp_path)["files"]
    assert "title.txt" in [file["path"] for file in packed]  # read while it was imported: nobody needs to name it
    begin = "def shop() -> None:\n"
    looks = '    assert (Path(__file__).parent / "title.txt").stat()\n'  # nothing tells of a look
    (shop / "pipeline.py").write_text("from pathlib import Path\n" + pipeline.replace(begin, begin + looks))
    done = command("drivetrain", "package", "shop", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be built from the wheel alone" in done.stderr
    assert "title.txt" in done.stderr
    assert not (tmp_path / "out").exists()
    assert drivetrain("package", "shop", "-o", "out", "--include", "title.txt", cwd=tmp_path)["files"]


def test_a_name_that_looks_like_a_secret_may_be_allowed(shop: Path) -> None:
    (shop / "secretary.csv").write_text("a,b")
    (shop / "key.txt").write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(InputError, match="may hold a secret") as refused:
        build_wheel(shop, ["secretary.csv"])
    assert "--allow secretary.csv" in str(refused.value.fix)
    assert "secretary.csv" in dict(build_wheel(shop, ["secretary.csv"], allow=["secret*.csv"]).files)
    assert "secretary.csv" not in dict(build_wheel(shop, allow=["secret*.csv"]).files)  # allowed, not asked for
    with (shop / "pyproject.toml").open("a") as file:
        file.write('allow = ["secretary.csv"]\n')
    assert "secretary.csv" in dict(build_wheel(shop, ["secretary.csv"]).files)
    with pytest.raises(InputError, match="holds a private key"):  # whatever it is called
        build_wheel(shop, ["key.txt"], allow=["*"])


def test_a_project_among_the_installed_packages_may_be_one(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "__init__.py").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
    assert load_pipeline(shop).build().ids == ("Count", "Make", "Say")
    (tmp_path / "other").mkdir()
    shutil.copytree(shop, tmp_path / "other" / "shop", symlinks=True)
    functions._forget("shop")
    with pytest.raises(BuildError, match="has the name of a Python package, shop"):
        load_pipeline(tmp_path / "other" / "shop")
