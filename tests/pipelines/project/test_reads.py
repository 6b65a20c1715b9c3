"""Files that the user's code opens while it is imported or run: where one changes, its nodes run again."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import py_compile
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.project import reads as reads_module
from drivetrain.pipelines.project.reads import Reads, first_changed, recording

PIPELINE = """
import drivetrain as dt
from .parts import Make, Other

@dt.pipeline
def shop():
    Make()
    Other()
"""
PARTS = """
import drivetrain as dt
from .rates import RATES

@dt.component
def Make() -> float:
    return {body}

@dt.component
def Other() -> float:
    return 1.0
"""


@pytest.fixture
def shop(tmp_path: Path) -> Callable[[str, str], Path]:
    """A project whose component Make returns an expression, its module `rates` with a text of its own."""

    def write(body: str, rates: str = "RATES = {}") -> Path:
        folder = tmp_path / "shop"
        folder.mkdir(exist_ok=True)
        (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "parts.py").write_text(PARTS.format(body=body))
        (folder / "rates.py").write_text(
            f"import json, os\nfrom pathlib import Path\nHERE = Path(__file__).parent\n{rates}\n"
        )
        return folder

    return write


def states(root: Path, folder: Path) -> dict[str, str]:
    """How the nodes of a run end that a process of its own makes."""
    command = [sys.executable, "-m", "drivetrain", "run", str(folder), "--root", str(root), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: node["state"] for name, node in json.loads(done.stdout.splitlines()[-1])["nodes"].items()}


SAME = {"Make": "CACHED", "Other": "CACHED"}


@pytest.mark.parametrize(
    ("body", "rates"),
    [
        ('float((Path(__file__).parent / "rate.txt").read_text())', ""),
        ('__import__("pandas").read_csv(Path(__file__).parent / "rate.txt", header=None)[0].sum()', ""),
        ('float(__import__("numpy").loadtxt(Path(__file__).parent / "rate.txt"))', ""),
        ('__import__("concurrent.futures", fromlist=["x"]).ThreadPoolExecutor().submit('
         'lambda: float((Path(__file__).parent / "rate.txt").read_text())).result()', ""),
    ],
    ids=["open", "pandas", "numpy", "thread"],
)  # fmt: skip
def test_a_file_that_a_component_reads_counts(
    shop: Callable[[str, str], Path], tmp_path: Path, body: str, rates: str
) -> None:
    folder = shop(body, rates + "RATES = {}")
    (folder / "parts.py").write_text("from pathlib import Path\n" + (folder / "parts.py").read_text())
    file = folder / "rate.txt"
    file.write_text("1.5")
    home = Home(tmp_path / "root")
    pipeline = load_pipeline(folder)

    def run() -> dict[str, str]:
        return {name: node.state for name, node in run_pipeline(home, pipeline).nodes.items()}

    result = run_pipeline(home, pipeline)
    assert {node.state for node in result.nodes.values()} == {"COMPLETE"}, [n.reason for n in result.nodes.values()]
    assert run() == SAME
    os.utime(file, (1, 1))  # a date alone changes nothing
    assert run() == SAME
    file.write_text("2.5")
    result = run_pipeline(home, pipeline)
    # Other lies in the same module, which in this process might have kept what it read.
    assert result.nodes["Make"].state == "COMPLETE"
    assert result.nodes["Make"].reason == "rate.txt, which its code reads, changed"
    assert run() == SAME
    file.write_text("1.5")  # as it was at first: that work is done
    assert run() == SAME
    home.close()


@pytest.mark.slow
def test_a_file_that_a_module_reads_at_import_counts(shop: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = shop('RATES["a"]', 'RATES = json.loads((HERE / "rates.json").read_text())')
    (folder / "rates.json").write_text('{"a": 1.5}')
    root = tmp_path / "root"
    assert set(states(root, folder).values()) == {"COMPLETE"}
    assert states(root, folder) == SAME
    (folder / "rates.json").write_text('{"a": 2.5}')
    # Both components lie in a module that imports it.
    assert states(root, folder) == {"Make": "COMPLETE", "Other": "COMPLETE"}
    assert states(root, folder) == SAME


COUNTS = """RATES = {"n": float(len(list((HERE / "days").glob("*.csv"))))}
try:
    RATES["n"] += float((HERE / "more.txt").read_text())
except FileNotFoundError:
    pass
"""


@pytest.mark.slow
def test_a_folder_that_is_listed_and_a_file_that_is_missing_count(
    shop: Callable[[str, str], Path], tmp_path: Path
) -> None:
    folder = shop('RATES["n"]', COUNTS)
    (folder / "days").mkdir()
    (folder / "days" / "1.csv").write_text("")
    root = tmp_path / "root"
    states(root, folder)
    assert states(root, folder) == SAME
    (folder / "days" / "2.csv").write_text("")
    assert states(root, folder)["Make"] == "COMPLETE"
    assert states(root, folder) == SAME
    (folder / "more.txt").write_text("3")
    assert states(root, folder)["Make"] == "COMPLETE"


@pytest.mark.slow
def test_in_a_process_that_lives_on_an_edited_file_is_read_anew(
    shop: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: what a module read at import, and a module beside the project, are not the old ones."""
    monkeypatch.syspath_prepend(str(tmp_path / "beside"))
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "extra_rates.py").write_text("EXTRA = 1.0\n")
    folder = shop('RATES["a"] + EXTRA', 'RATES = json.loads((HERE / "rates.json").read_text())')
    (folder / "parts.py").write_text("from extra_rates import EXTRA\n" + (folder / "parts.py").read_text())
    (folder / "rates.json").write_text('{"a": 1.5}')
    home = Home(tmp_path / "root")

    def total() -> object:
        (record,) = run_pipeline(home, load_pipeline(folder)).nodes["Make"].outputs["value"]
        return json.loads((home.payloads.local(record.uri, record.fingerprint) / "content" / "value.json").read_text())

    assert total() == 2.5
    (folder / "rates.json").write_text('{"a": 2.5}')
    assert total() == 3.5
    (tmp_path / "beside" / "extra_rates.py").write_text("EXTRA = 10.00\n")
    assert total() == 12.5
    (tmp_path / "beside" / "deeper_rates.py").write_text("EXTRA = 20.0\n")
    (tmp_path / "beside" / "extra_rates.py").write_text("from deeper_rates import EXTRA\n")
    assert total() == 22.5
    (tmp_path / "beside" / "deeper_rates.py").write_text("EXTRA = 30.00\n")
    assert total() == 32.5
    home.close()


def _read(path: Path) -> str:
    return path.read_text()


def test_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "out/old.txt", ".git/HEAD", "code.py", "state.txt", "lib.so"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(name)
        os.utime(project / name, (1000, 1000))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    fetched = project / ".." / "scratch" / "drivetrain-fetched" / "copy.txt"
    fetched.parent.mkdir(parents=True)
    fetched.write_text("a copy of what lies behind a URI")
    os.utime(fetched, (1000, 1000))
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    with recording(reads := Reads()):
        _read(fetched)
        with pytest.raises(FileNotFoundError):
            _read(project / "cache" / "compiled")
        for name in ("a.txt", ".git/HEAD", "code.py", "out/old.txt", "a.txt"):
            _read(project / name)
        (project / "made.txt").write_text("mine")
        _read(project / "made.txt")
        with pytest.raises(OSError, match=r"lib\.so"):
            ctypes.CDLL(str(project / "lib.so"))  # a compiled library of the user's, or what calls itself so
        with pytest.raises(FileNotFoundError):
            _read(project / "none.txt")
        _read(project / "b.txt")
        os.truncate(project / "b.txt", 1)  # as another process does it: Python tells nothing
        (project / "state.txt").write_text(_read(project / "state.txt") + ".")
        json.loads(_read(Path(json.__file__).with_name("decoder.py"))[:0] or "1")  # a library's
    recorded, more = reads.record(project, {"shop.code": project / "code.py"}, [project / "out"])
    assert more == 0
    # Of code.py the text, since it was not run.
    assert [entry[0] for entry in recorded] == ["a.txt", "b.txt", "code.py", "lib.so", "none.txt"]
    by_name = {str(entry[0]): entry for entry in recorded}
    assert by_name["a.txt"][2] == hashlib.sha256(b"a.txt").hexdigest()
    assert by_name["none.txt"][1:] == [None, None]
    assert by_name["b.txt"][2] == ""  # which of the two was read cannot be told
    assert first_changed(recorded, project) == "b.txt"
    assert first_changed([by_name["a.txt"]], tmp_path) == "a.txt"  # relative to the project, wherever that lies
    moved = tmp_path / "moved"
    project.rename(moved)
    assert first_changed([by_name["a.txt"], by_name["none.txt"]], moved) is None
    (moved / "none.txt").write_text("")
    assert first_changed([by_name["none.txt"]], moved) == "none.txt"


def test_a_file_in_memory_counts_and_a_device_does_not() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rates = Path(folder) / "rates.csv"
        rates.write_text("1")
        with recording(reads := Reads()):
            _read(rates)
            Path("/dev/null").read_bytes()
        recorded, _ = reads.record(Path(folder) / "shop", {}, [])
    assert [entry[0] for entry in recorded if not str(entry[0]).startswith("..")] == [str(rates)]


def test_an_edit_within_the_clocks_grain_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("1")
    now = time.time_ns()
    os.utime(file, ns=(now, now))
    with recording(reads := Reads()):
        _read(file)
    recorded, _ = reads.record(tmp_path, {}, [])
    if not recorded:  # in the folder for temporary files what is as new as this is on the way
        reads._begin = now + 1
        recorded, _ = reads.record(tmp_path, {}, [])
    file.write_text("2")
    os.utime(file, ns=(now, now))
    assert first_changed(recorded, tmp_path) == "a.txt"


MEMO = """
from functools import lru_cache
from pathlib import Path
import drivetrain as dt

@lru_cache
def load():
    return float((Path(__file__).parent / "rate.txt").read_text())

@dt.component
def Make() -> float:
    return load()

@dt.component
def Other(first: float) -> float:
    return first + load()
"""


def test_what_a_module_keeps_counts_for_all_that_use_it(shop: Callable[[str, str], Path], tmp_path: Path) -> None:
    """The first node loads the file, the second gets what the first has loaded; then the file is edited."""
    folder = shop("0.0", "RATES = {}")
    (folder / "parts.py").write_text(MEMO)
    (folder / "pipeline.py").write_text(PIPELINE.replace("    Make()\n    Other()", "    Other(Make())"))
    (folder / "rate.txt").write_text("1.5")
    home = Home(tmp_path / "root")

    def total() -> object:
        return run_pipeline(home, load_pipeline(folder)).nodes["Other"].outputs["value"][0].properties["value"]

    assert total() == 3.0
    (folder / "rate.txt").write_text("2.5")
    assert total() == 5.0
    assert {node.state for node in run_pipeline(home, load_pipeline(folder)).nodes.values()} == {"CACHED"}
    home.close()


@pytest.mark.parametrize(
    "body",
    [
        '[f.unlink() for f in (HERE / "out").glob("*.csv")] + [(HERE / "out" / "a.csv").write_text("x")] and 1.0',
        '__import__("shutil").rmtree(HERE / "out") or (HERE / "out").mkdir() or 1.0',
        'float(open(HERE / "count.txt", "r+").close() or 1)',
        'float((HERE / "count.txt").write_text((HERE / "count.txt").read_text() + ".") > 0)',
        'os.mkfifo(HERE / "pipe") or float(os.close(os.open(HERE / "pipe", os.O_RDONLY | os.O_NONBLOCK)) or 1)',
    ],
    ids=["own folder", "removed folder", "counter", "state", "pipe"],
)
def test_a_node_that_works_with_its_own_files_is_cached(
    shop: Callable[[str, str], Path], tmp_path: Path, body: str
) -> None:
    folder = shop(body, "RATES = {}")
    (folder / "parts.py").write_text(f"import os\nfrom .rates import HERE\n{(folder / 'parts.py').read_text()}")
    (folder / "out").mkdir()
    (folder / "count.txt").write_text("..")
    home = Home(tmp_path / "root")
    alone = RunOptions(parallel=1)  # while Make is at work, its files are no more than anybody's to Other
    result = run_pipeline(home, load_pipeline(folder), options=alone)
    assert {node.state for node in result.nodes.values()} == {"COMPLETE"}, [n.reason for n in result.nodes.values()]
    again = run_pipeline(home, load_pipeline(folder), options=alone)
    assert {name: node.state for name, node in again.nodes.items()} == SAME, again.nodes["Make"].reason
    home.close()


def test_a_module_that_a_computed_import_finds_counts(shop: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = shop(
        "float(RATES.RATE)", "import importlib\nNAME = 'deep'\nRATES = importlib.import_module('.' + NAME, __package__)"
    )
    (folder / "deep.py").write_text("RATE = 1")
    home = Home(tmp_path / "root")

    def total() -> object:
        return run_pipeline(home, load_pipeline(folder)).nodes["Make"].outputs["value"][0].properties["value"]

    assert total() == 1.0
    (folder / "deep.py").write_text("RATE = 2")
    assert total() == 2.0
    home.close()


def test_a_file_that_changes_between_two_reads_is_no_basis(tmp_path: Path) -> None:
    """The module remembers the newest read, the execution the first: the first decides."""
    file = tmp_path / "a.txt"
    file.write_text("old")
    os.utime(file, (1000, 1000))
    with recording(reads := Reads()):
        _read(file)
        file.unlink()
        subprocess.run([sys.executable, "-c", f"open({str(file)!r}, 'w').write('new')"], check=True)
        os.utime(file, (2000, 2000))
        _read(file)
    recorded, _ = reads.record(tmp_path, {__name__: Path(__file__)}, [])
    recorded = [row for row in recorded if row[0] == "a.txt"]  # this module has read files of other tests, too
    assert first_changed(recorded, tmp_path) == "a.txt"


@pytest.mark.parametrize(
    ("imports", "body", "file", "first", "second"),
    [
        (
            "from drivetrain.data import load_schema",
            'float(len(load_schema(HERE / "schema.yaml").features))',
            "schema.yaml",
            "format: drivetrain.schema/1\nfeatures: {}\n",
            "format: drivetrain.schema/1\nfeatures:\n  a: {type: int}\n",
        ),
        (
            "import sqlite3\nfrom contextlib import closing\n"
            'def rate():\n    with closing(sqlite3.connect(f"file:{HERE}/rates.db?mode=ro", uri=True)) as database:\n'
            '        return float(database.execute("select rate from r").fetchone()[0])\n',
            "rate()",
            "rates.db",
            1.0,
            2.0,
        ),
        (
            "from drivetrain.data import open_files",
            'float(open_files([HERE / "rates.parquet"]).rows)',
            "rates.parquet",
            1,
            2,
        ),
        ("", 'float(len(Path(__file__).resolve().read_text()))', "parts.py", "", "# a comment that is read as text\n"),
        ("import os", 'float(Path("near.txt").read_text())', "near.txt", "1", "2"),
    ],
    ids=["our reader", "sqlite", "parquet", "own text", "working directory"],
)  # fmt: skip
def test_files_that_are_opened_in_other_ways_count(
    shop: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    imports: str,
    body: str,
    file: str,
    first: object,
    second: object,
) -> None:
    folder = shop(body, "RATES = {}")
    monkeypatch.chdir(folder)
    reads_module._began_in.cache_clear()
    code = f"from pathlib import Path\n{imports}\nfrom .rates import HERE\n{(folder / 'parts.py').read_text()}"
    (folder / "parts.py").write_text(code)

    def write(content: object) -> None:
        if file.endswith(".db"):
            with contextlib.closing(sqlite3.connect(folder / file)) as database, database:
                database.executescript(f"drop table if exists r; create table r as select {content} as rate")
        elif file.endswith(".parquet"):
            pq.write_table(pa.table({"rate": [1.0] * int(str(content))}), folder / file)
        else:
            (folder / file).write_text(f"{content}{code if file == 'parts.py' else ''}")

    write(first)
    home = Home(tmp_path / "root")

    def run() -> tuple[str, str]:
        result = run_pipeline(home, load_pipeline(folder)).nodes["Make"]
        return result.state, result.reason

    assert run()[0] == "COMPLETE"
    assert run()[0] == "CACHED"
    write(second)
    assert run() == ("COMPLETE", f"{file}, which its code reads, changed")
    assert run()[0] == "CACHED"
    home.close()
    reads_module._began_in.cache_clear()


@pytest.mark.parametrize(
    ("imports", "read"),
    [
        ("import pandas as pd", 'float(pd.read_parquet(DATA / "rates.parquet")["rate"][0])'),
        ("import pyarrow.parquet as pq", 'float(pq.read_table(f"{DATA}/rates.parquet")["rate"][0].as_py())'),
        (
            "import duckdb",
            "float(duckdb.connect().execute(f\"select rate from '{DATA}/rates.parquet'\").fetchall()[0][0])",
        ),
    ],
    ids=["pandas", "pyarrow", "duckdb"],
)
def test_a_file_that_a_compiled_library_opens_counts_by_its_name(
    shop: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, read: str
) -> None:
    """Nothing tells Python of it, so literals of the code do."""
    monkeypatch.chdir(tmp_path)
    folder = shop(read, 'RATES, DATA = {}, HERE.parent / "data"')
    (folder / "parts.py").write_text(f"from .rates import DATA\n{imports}\n{(folder / 'parts.py').read_text()}")
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "rates.parquet"
    pq.write_table(pa.table({"rate": [1.0]}), file)
    home = Home(tmp_path / "root")

    def made() -> tuple[str, object]:  # at once after an edit, which the grain of the clock that dates files may hide
        result = run_pipeline(home, load_pipeline(folder)).nodes["Make"]
        return result.state, result.outputs["value"][0].properties["value"] if result.outputs else result.reason

    assert made() == ("COMPLETE", 1.0)
    assert made() == ("CACHED", 1.0)
    pq.write_table(pa.table({"rate": [2.0]}), file)
    assert made() == ("COMPLETE", 2.0)
    assert made() == ("CACHED", 2.0)
    file.with_name("other.parquet").write_bytes(b"")  # no literal names it
    assert made() == ("CACHED", 2.0)
    home.close()


def test_what_a_literal_names_is_no_input_where_it_was_made_meanwhile(tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    names = ["old.parquet", "edited.parquet", "new.parquet", "gone.parquet", "old"]
    module.write_text(f"import pandas\nFILES = {names}\n")
    (tmp_path / "old").mkdir()
    for name in ("old.parquet", "edited.parquet"):
        (tmp_path / name).write_text("1")

    changed: list[list[str]] = []

    def recorded() -> list[object]:
        reads = Reads()
        reads.note_files_named({"shop": module}, tmp_path)
        (tmp_path / "new.parquet").write_text("1")
        (tmp_path / "edited.parquet").write_text("22")
        rows, _ = reads.record(tmp_path, {"shop": module}, [])
        changed.append(reads.changed)
        (tmp_path / "new.parquet").unlink()
        (tmp_path / "edited.parquet").write_text("1")
        return [row[0] for row in rows]

    # One that was written the moment before is an input, and so is one that another machine's clock dates ahead.
    assert recorded() == ["old.parquet"]
    os.utime(tmp_path / "old.parquet", (time.time() + 60, time.time() + 60))
    assert recorded() == ["old.parquet"]
    module.write_text(module.read_text().replace("import pandas", "import json"))  # which opens files by Python
    os.utime(module, (1, 1))
    assert recorded() == []
    assert changed == [["edited.parquet"], ["edited.parquet"], []]


def test_a_file_that_changes_while_a_compiled_library_may_read_it_is_told(
    shop: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shop(
        'float(pd.read_parquet("rates.parquet")["rate"][0]) + os.system("cp new.parquet rates.parquet")', "RATES = {}"
    )
    (folder / "parts.py").write_text(f"import os\nimport pandas as pd\n{(folder / 'parts.py').read_text()}")
    for name, rate in (("rates", 1.0), ("new", 2.0)):
        pq.write_table(pa.table({"rate": [rate]}), tmp_path / f"{name}.parquet")
    command = [sys.executable, "-m", "drivetrain", "run", str(folder), "--root", str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (
        "rates.parquet changed meanwhile, which counts as its result: what it reads is named by dt.files" in done.stdout
    )


def test_a_relative_path_means_a_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rate.txt").write_text("2" if name == "elsewhere" else "1")
    monkeypatch.chdir(tmp_path / "here")
    reads_module._began_in.cache_clear()
    with recording(reads := Reads()):
        _read(Path("rate.txt"))
        monkeypatch.chdir(tmp_path / "elsewhere")  # for a while: that folder is meant wherever one stands
        _read(Path("rate.txt"))
    monkeypatch.chdir(tmp_path / "here")
    reads._begin = time.time_ns()  # what is as new as a temporary file on its way would not count
    recorded, _ = reads.record(tmp_path / "shop", {}, [])
    names = {str(row[0]) for row in recorded}
    assert names == {"./rate.txt", f"{tmp_path}/elsewhere/rate.txt", "../elsewhere/rate.txt"}
    relative = [row for row in recorded if row[0] == "./rate.txt"]
    assert first_changed(relative, tmp_path / "shop") is None
    monkeypatch.chdir(tmp_path / "there")
    assert first_changed(relative, tmp_path / "shop") is None
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert first_changed(relative, tmp_path / "shop") == "rate.txt"
    reads_module._began_in.cache_clear()


def test_a_file_beside_the_project_is_that_of_the_same_checkout(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name / "shared").mkdir(parents=True)
        (tmp_path / name / "shop").mkdir()
        (tmp_path / name / "shared" / "rate.txt").write_text(text)
    with recording(reads := Reads()):
        _read(tmp_path / "a" / "shared" / "rate.txt")
    reads._begin = time.time_ns()
    recorded, _ = reads.record(tmp_path / "a" / "shop", {}, [])
    assert first_changed(recorded, tmp_path / "a" / "shop") is None
    assert first_changed(recorded, tmp_path / "b" / "shop") is None
    assert first_changed(recorded, tmp_path / "c" / "shop") == "../shared/rate.txt"
    (tmp_path / "a" / "shared" / "rate.txt").write_text("3")  # by its own path it may be meant in every checkout
    assert first_changed(recorded, tmp_path / "b" / "shop") == f"{tmp_path}/a/shared/rate.txt"


OPTIONAL = """
import importlib
RATE = 1.0
for NAME in ("." + "local_rates", "rates_of_" + "this_machine"):
    try:
        RATE = importlib.import_module(NAME, __package__).RATE
    except ImportError:
        pass
RATES = {}
"""


@pytest.mark.parametrize(
    "name", ["shop/local_rates.py", "path/rates_of_this_machine.py", "shop/local_rates/__init__.py"]
)
def test_a_module_that_was_looked_for_in_vain_counts(
    shop: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "path").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    folder = shop("RATE", OPTIONAL)
    (folder / "parts.py").write_text((folder / "parts.py").read_text().replace("import RATES", "import RATE"))
    home = Home(tmp_path / "root")

    def total() -> object:
        return run_pipeline(home, load_pipeline(folder)).nodes["Make"].outputs["value"][0].properties["value"]

    assert total() == 1.0
    assert run_pipeline(home, load_pipeline(folder)).nodes["Make"].state == "CACHED"
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("RATE = 2.0\n")
    if name.endswith("a.py"):  # the folder alone is a package
        (tmp_path / name).with_name("__init__.py").write_text("from .a import RATE\n")
    assert total() == 2.0
    home.close()
    sys.modules.pop("rates_of_this_machine", None)


def test_resources_of_a_project_without_an_init_count(shop: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = shop(
        'RATES["a"]',
        'from importlib.resources import files\nRATES = {"a": float(files(__package__).joinpath("a.txt").read_text())}',
    )
    (folder / "a.txt").write_text("1")
    home = Home(tmp_path / "root")

    def total() -> object:
        result = run_pipeline(home, load_pipeline(folder)).nodes["Make"]
        assert result.outputs, result.reason
        return result.outputs["value"][0].properties["value"]

    assert total() == 1.0
    (folder / "a.txt").write_text("2")
    assert total() == 2.0
    home.close()


def test_a_compiled_module_without_its_source_counts(shop: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = shop("RATE", "RATES = {}")
    (folder / "parts.py").write_text(f"from .secret_rates import RATE\n{(folder / 'parts.py').read_text()}")
    home = Home(tmp_path / "root")

    def total(rate: float) -> object:
        (tmp_path / "secret_rates.py").write_text(f"RATE = {rate}\n")
        py_compile.compile(str(tmp_path / "secret_rates.py"), str(folder / "secret_rates.pyc"), doraise=True)
        return run_pipeline(home, load_pipeline(folder)).nodes["Make"].outputs["value"][0].properties["value"]

    assert total(1.0) == 1.0
    assert total(2.0) == 2.0
    home.close()


def test_what_a_module_remembers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "_MOST", 3)
    with recording(reads := Reads()):
        for number in range(8):
            with contextlib.suppress(FileNotFoundError):
                _read(tmp_path / f"{number}.txt")
            (tmp_path / f"{number}.out").write_text("")
    here = __name__
    assert len([name for name in reads_module._BY_MODULE[here] if name.startswith(str(tmp_path))]) <= 4
    assert len([name for name in reads_module._WRITTEN[here] if name.startswith(str(tmp_path))]) <= 3
    recorded, more = reads.record(tmp_path, {}, [])
    assert (len(recorded), more) == (3, 5)


def test_to_watch_asks_for_nothing_that_is_watched() -> None:
    """What the hook looks up, it would be told of, and look up again: until Python's stack ends, in each process."""
    code = """
import sys
from drivetrain.pipelines.project import reads
events = []
sys.addaudithook(lambda event, arguments: events.append(event))
reads.watch()
events.clear()
open(reads.__file__).close()
open(sys.executable, "rb").close()
print(events)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["['open',", "'open']"]
