"""The fingerprint of code: everything a function's module imports, nothing it does not; and keys as laws."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import drivetrain
import pytest
from drivetrain.errors import BuildError
from drivetrain.metadata import cache_key
from drivetrain.pipelines import FunctionRef, resolve_files
from drivetrain.pipelines.launcher.resolve import _plain
from drivetrain.pipelines.project import closure as closures
from drivetrain.pipelines.project.closure import closure, environment
from drivetrain.pipelines.project.distributions import version_of
from hypothesis import given
from hypothesis import strategies as st

HOME = Path(str(drivetrain.__file__)).parent
ROOMS = ("components", "components/evaluation", "data", "engine", "report")


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[dict[str, str]], FunctionRef]:
    """Writes modules by path below the project `shop`; gives the reference `start:go`."""

    def write(modules: dict[str, str]) -> FunctionRef:
        for path, text in modules.items():
            file = tmp_path / "shop" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return FunctionRef(tmp_path / "shop", "start:go")

    return write


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ({"start.py": "from .a import x", "a.py": "", "b.py": ""}, "start a"),
        ({"start.py": "from . import a", "a.py": ""}, "start a"),
        ({"start.py": "def go():\n    from .a import x", "a.py": ""}, "start a"),
        ({"start.py": "try:\n    pass\nexcept E:\n    import shop.a", "a.py": ""}, "start a"),
        ({"start.py": "match 1:\n    case 1:\n        from .a import x", "a.py": ""}, "start a"),
        ({"start.py": "class A:\n    async def f(self):\n        from .a import *", "a.py": ""}, "start a"),
        ({"start.py": "from .sub.a import x", "sub/a.py": "from ..b import y", "b.py": ""}, "start sub/a b"),
        ({"start.py": "from .s.t.a import x", "s/t/a.py": "from ...b import y", "b.py": ""}, "start s/t/a b"),
        ({"start.py": "from .s.t.a import x", "s/__init__.py": "", "s/t/a.py": ""}, "start s/__init__ s/t/a"),
        ({"start.py": "from .s.a import x", "__init__.py": "", "s/a.py": ""}, "start __init__ s/a"),
        ({"start.py": "from .s import x", "s/__init__.py": "from .a import x", "s/a.py": "", "s/b.py": ""},
         "start s/__init__ s/a"),
        ({"start.py": "from .a import x", "a.py": "from .b import y", "b.py": "from .a import x"}, "start a b"),
        ({"start.py": "import helper", "helper.py": ""}, "start helper"),
        ({"start.py": "from lib.a import x", "lib/a.py": ""}, "start lib/a"),
        ({"start.py": "import json", "json.py": ""}, "start json"),
        ({"start.py": "import_module('shop.a')", "a.py": ""}, "start a"),
        ({"start.py": "importlib.import_module('.a', __package__)", "a.py": ""}, "start a"),
        ({"start.py": "importlib.import_module(name)", "a.py": ""}, "start"),
        ({"start.py": "", "broken.py": "def ("}, "start"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from . import a\na.X = 2"}, "start a pipeline"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from .a import T\ndef f():\n    T[0].b = 2"},
         "start a pipeline"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from .b import V\nimport shop.a\nshop.a.X += V",
          "b.py": ""}, "start a b pipeline"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from . import a as c\nc.use(1)"},
         "start a pipeline"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from . import a\nsetattr(a, 'X', 2)"},
         "start a pipeline"),
        ({"start.py": "from . import a", "a.py": "", "b.py": "", "pipeline.py": "from . import a, b\nb.X = a.X"},
         "start a"),
        ({"start.py": "from . import a", "a.py": "", "pipeline.py": "from . import a\ndef f():\n    a.make()"},
         "start a"),
    ],
)  # fmt: skip
def test_a_project_module_brings_what_it_imports(
    tree: Callable[[dict[str, str]], FunctionRef], modules: dict[str, str], found: str
) -> None:
    code = closure(tree(modules))
    assert {path for path, _ in code.files} == {f"shop/{name}.py" for name in found.split()}


def test_a_broken_module_that_is_imported_is_named(tree: Callable[[dict[str, str]], FunctionRef]) -> None:
    with pytest.raises(BuildError, match=r"broken\.py:1"):
        closure(tree({"start.py": "from . import broken", "broken.py": "def ("}))


def test_what_comes_from_outside_is_named_by_its_top(tree: Callable[[dict[str, str]], FunctionRef]) -> None:
    code = closure(tree({"start.py": "import os, numpy as np\nfrom jax.numpy import dot\nfrom __future__ import x"}))
    assert code.imports == ("jax", "numpy")


def test_a_users_module_brings_only_those_of_our_modules_that_it_takes_names_from(
    tree: Callable[[dict[str, str]], FunctionRef],
) -> None:
    code = closure(tree({"start.py": "import drivetrain as dt\nfrom drivetrain.data import HashSplit, ExactSum as S"}))
    ours = {path for path, _ in code.files}
    assert {"drivetrain/data/split.py", "drivetrain/data/aggregates/sums.py"} <= ours
    validation = "drivetrain/data/validation/validate.py"
    assert not ours & {validation, "drivetrain/data/__init__.py", "drivetrain/data/beam.py"}
    whole = closure(tree({"start.py": "from drivetrain.data import *"}))
    assert {"drivetrain/data/__init__.py", validation} <= {path for path, _ in whole.files}


def test_our_components_do_not_hang_on_each_other() -> None:
    made = closure(FunctionRef(None, "drivetrain.components.example_gen:ExampleGen"))
    paths = {path for path, _ in made.files}
    assert "drivetrain/data/split.py" in paths
    assert not any(path.startswith("drivetrain/engine") or "validat" in path for path in paths)
    assert "jax" not in made.imports


@pytest.mark.parametrize("room", ROOMS)
def test_our_rooms_only_re_export(room: str) -> None:
    """What `closure` relies on where it looks through a room to the module that defines a name."""
    tree = ast.parse((HOME / room / "__init__.py").read_text())
    for node in tree.body:
        allowed = isinstance(node, (ast.Import, ast.ImportFrom))
        allowed |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        allowed |= isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Name, ast.Tuple))
        allowed |= isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
        allowed |= isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        assert allowed, f"{room}/__init__.py:{node.lineno}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def spelled(value: object) -> object:
    """A value with its types and its maps' order, for Python's own comparison."""
    if isinstance(value, dict):
        return ("map", tuple((key, spelled(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(spelled(item) for item in value))
    return (type(value).__name__, repr(value))


@given(JSON, JSON)
def test_two_parameters_have_one_key_only_if_they_are_spelled_alike(one: object, two: object) -> None:
    from unicodedata import normalize

    same = normalize("NFC", repr(spelled(one))) == normalize("NFC", repr(spelled(two)))
    assert (cache_key({"p": _plain(one)}) == cache_key({"p": _plain(two)})) == same


@pytest.mark.parametrize(
    ("one", "two"),
    [(1, 1.0), (1, True), (1, "1"), (0.0, False), (None, "null"), ({"a": 1}, {"a": "1"}), ([], {}), ([1], 1),
     ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([["a", 1]], {"a": 1})],
)  # fmt: skip
def test_values_that_look_alike_have_different_keys(one: object, two: object) -> None:
    assert cache_key({"p": _plain(one)}) != cache_key({"p": _plain(two)})


def test_files_count_by_their_names_below_what_they_share_and_by_content(tmp_path: Path) -> None:
    def write(root: str, *paths: str) -> object:
        for index, path in enumerate(paths):
            file = tmp_path / root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(index))
        return _plain(resolve_files(f"{tmp_path / root}/**/*.csv"))

    years = write("a", "year=2013/x.csv", "year=2014/x.csv")
    assert years == write("b", "year=2013/x.csv", "year=2014/x.csv")
    assert years != write("c", "year=2013/x.csv", "year=2015/x.csv")
    assert write("d", "x.csv") == write("e", "x.csv") != write("f", "y.csv")


def test_what_changes_a_jax_program_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment(["jax"])
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/tmp/cache")
    assert environment(["jax"]) == before
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16")
    assert environment(["jax"]) != before
    assert environment(["numpy"]) == environment(["numpy", "rich"])


def test_what_type_checkers_alone_import_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To know that nothing installed has a module takes the lists of files of all that is."""
    imports = closure(FunctionRef(None, "drivetrain.components.example_gen:ExampleGen")).imports
    assert "_typeshed" in imports
    before = environment(imports)
    asked: list[str] = []

    def counted(name: str) -> str | None:
        asked.append(name)
        return version_of(name)

    monkeypatch.setattr(closures, "version_of", counted)
    assert environment(imports) == before
    assert "numpy" in asked
    assert "_typeshed" not in asked


def test_what_was_read_of_code_does_not_pile_up() -> None:
    """In a notebook, each edit of a module is read anew: what was read before must not be kept for ever."""
    from drivetrain.pipelines.project import closure as module
    from drivetrain.pipelines.project import sources

    everything = {**vars(module), **vars(sources)}
    caches = {name: each for name, each in everything.items() if hasattr(each, "cache_info")}
    assert "_known" in caches
    unbounded = {name for name, each in caches.items() if each.cache_info().maxsize is None}
    assert unbounded <= {"_processor", "_memory", "_packages"}  # which take no arguments


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, as PYTHONPATH or an editable install puts one there."""
    folder = tmp_path / "else.where"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def changes(path: Path, text: str, ref: FunctionRef) -> bool:
    """Whether what a key covers changes with the text of a file."""
    before, built = closure(ref).counted, closure(ref).digest
    path.write_text(text)
    assert closure(ref).digest == built  # what lies outside counts when it runs, not when the pipeline is compiled
    return closure(ref).counted != before


def test_a_module_on_the_path_counts_by_its_content(
    tree: Callable[[dict[str, str]], FunctionRef], elsewhere: Path
) -> None:
    (elsewhere / "one_file.py").write_text("from bundled.deep import rate\n")
    for name in ("bundled", "spread"):
        (elsewhere / name).mkdir()
    (elsewhere / "bundled" / "__init__.py").write_text("")
    (elsewhere / "bundled" / "deep.py").write_text("rate = 1\n")
    (elsewhere / "spread" / "part.py").write_text("from . import other\n")  # a namespace package
    (elsewhere / "spread" / "other.py").write_text("x = 1\n")
    (elsewhere / "unread.py").write_text("")
    ref = tree({"start.py": "import one_file\nimport numpy\nfrom spread import part"})
    code = closure(ref)
    assert [path for path, _ in code.outside] == [
        "bundled/__init__.py", "bundled/deep.py", "one_file.py", "spread/other.py", "spread/part.py"
    ]  # fmt: skip
    assert code.imports == ("numpy",)
    assert changes(elsewhere / "bundled" / "deep.py", "rate = 2\n", ref)
    assert changes(elsewhere / "bundled" / "__init__.py", "x = 1\n", ref)
    assert changes(elsewhere / "spread" / "other.py", "x = 2\n", ref)
    assert not changes(elsewhere / "one_file.py", "# a comment\nfrom bundled.deep import rate\n", ref)
    assert not changes(elsewhere / "unread.py", "x = 1\n", ref)


def test_an_extension_module_on_the_path_counts_by_its_bytes(
    tree: Callable[[dict[str, str]], FunctionRef], elsewhere: Path
) -> None:
    (elsewhere / f"native{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF one")
    ref = tree({"start.py": "import native"})
    before = closure(ref).counted
    (elsewhere / f"native{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF two")
    assert closure(ref).counted != before


def test_an_installed_module_without_a_distribution_counts_by_its_content(
    tree: Callable[[dict[str, str]], FunctionRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(installed))
    (installed / "copied_here.py").write_text("x = 1\n")
    (installed / "released.py").write_text("x = 1\n")
    (installed / "released-1.0.dist-info").mkdir()
    (installed / "released-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: released\nVersion: 1.0\n"
    )
    ref = tree({"start.py": "import copied_here, released"})
    assert [path for path, _ in closure(ref).outside] == ["copied_here.py"]
    assert closure(ref).imports == ("released",)
    assert environment(closure(ref).imports)["distributions"] == {"released": "1.0"}


def test_a_module_beside_the_project_is_none_of_it(
    tree: Callable[[dict[str, str]], FunctionRef], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text("x = 1\n")
    assert closure(tree({"start.py": "import shop"})).counted.keys() == {"shop/start.py"}


def test_a_component_outside_every_project_counts_by_its_content(elsewhere: Path) -> None:
    (elsewhere / "steps.py").write_text("def Make(): ...\n")
    ref = FunctionRef(None, "steps:Make")
    assert changes(elsewhere / "steps.py", "def Make(): return 1\n", ref)
