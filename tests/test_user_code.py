"""Whose mistake an exception is, at which of the user's lines, and what is said of it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from drivetrain import user_code
from drivetrain.errors import InputError, suggest
from drivetrain.metadata import Examples
from drivetrain.user_code import as_mistake, explain, folded, is_project, is_users


def raised(code: str, **names: Any) -> Exception:  # Any: what the code uses
    """What a user's code raises, as its module; its file is this one's neighbour, which need not exist."""
    try:
        exec(compile(code, str(Path(__file__).with_name("users.py")), "exec"), names)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Exception]:
    """What a user's module raises, of which the source can be read."""

    def write(code: str) -> Exception:
        file = tmp_path / "users.py"
        file.write_text(code)
        try:
            exec(compile(code, str(file), "exec"), {"__name__": "users"})
        except Exception as error:
            return error
        raise AssertionError("nothing was raised")

    return write


@pytest.mark.parametrize(
    ("code", "says", "fix"),
    [
        ("penguins = 1\nprint(pengins)", "there is no name 'pengins' (NameError)", "did you mean 'penguins'?"),
        ("print(zzzz)", "there is no name 'zzzz' (NameError)", "define it, or import it"),
        (
            "def f():\n    print(x)\n    x = 1\nf()",
            "'x' is used before it has a value (UnboundLocalError)",
            "assign it above this line",
        ),
        ("import jsn", "there is no module 'jsn' (ModuleNotFoundError)", "did you mean 'json'?"),
        (
            "import no_such",
            "there is no module 'no_such' (ModuleNotFoundError)",
            "install it: pip install no_such",
        ),
        ("from json import loadz", "json has no 'loadz' (ImportError)", "did you mean 'load' or 'loads'?"),
        (
            "import json\njson.loadz",
            "module 'json' has no attribute 'loadz' (AttributeError)",
            "did you mean 'load' or 'loads'?",
        ),
        ("row = {'late': 1}\nrow['lat']", "there is no 'lat' in row (KeyError)", "did you mean 'late'?"),
        ("row = {'a': {'b': 1}}\nrow['a']['c']", "there is no key 'c' (KeyError)", None),
        ("{}.pop('x')", "there is no key 'x' (KeyError)", None),
        (
            "def f(*, lower): ...\nf(lowr=1)",
            "f() got an unexpected keyword argument 'lowr' (TypeError)",
            "did you mean 'lower'?",
        ),
        ("def f(low): ...\nf()", "f() missing 1 required positional argument: 'low' (TypeError)", "it takes low"),
        (
            "import json\njson.loads('{}', object_hook=lambda: 1)",
            "<lambda>() takes 0 positional arguments but 1 was given (TypeError)",
            None,
        ),
        ("raise ValueError('not\\ntoday')", "ValueError: not\ntoday", None),
        ("raise ValueError", "ValueError, without a message", None),
    ],
)
def test_pythons_own_words_in_plain_ones(written: Any, code: str, says: str, fix: str | None) -> None:
    assert explain(written(code)) == (says, fix)


def test_a_sibling_module_is_imported_by_a_dot(written: Any, tmp_path: Path) -> None:
    (tmp_path / "features.py").write_text("")
    says, fix = explain(written("from features import preprocess"))
    assert says == "there is no module 'features' (ModuleNotFoundError)"
    assert fix == "it is a module of the project, which is a package: write `from .features import …`"


def test_the_users_line_is_named_and_it_is_his_mistake() -> None:
    error = raised("import json\n\njson.loads('{')")
    mistake = as_mistake(error)
    assert mistake is not None
    assert mistake.where == f"{Path(__file__).with_name('users.py')}:3", "not the line of the library below it"


def test_a_fault_of_ours_below_the_users_code_is_not_his() -> None:
    error = raised("suggest(3, 4)", suggest=suggest)
    assert as_mistake(error) is None


def test_an_attribute_that_an_artifact_has_not_is_the_users_mistake() -> None:
    error = raised("def average(examples):\n    return examples.nope\naverage(examples)", examples=Examples.new())
    mistake = as_mistake(error)
    assert mistake is not None
    assert mistake.where == f"{Path(__file__).with_name('users.py')}:2"
    assert mistake.message == "'Examples' object has no attribute 'nope' (AttributeError)"


def test_an_error_of_ours_gets_the_users_line() -> None:
    def refuse() -> None:
        raise InputError("no", fix="yes")

    refuse.__code__ = refuse.__code__.replace(co_filename=user_code.__file__)
    mistake = as_mistake(raised("\nrefuse()", refuse=refuse))
    assert str(mistake) == f"{Path(__file__).with_name('users.py')}:2: no\n  fix: yes"


def test_a_traceback_shows_the_users_lines_and_counts_the_rest(written: Any) -> None:
    error = written("import json\n\n\ndef read(text):\n    return json.loads(text)\n\n\nread('{')\n")
    lines = folded(error).splitlines()
    assert sum("users.py" in line for line in lines) == 2
    assert sum("json/decoder.py" in line for line in lines) == 0
    assert "  … 3 calls in Python" in lines
    assert lines[-1].startswith("json.decoder.JSONDecodeError")
    assert len(lines) < len(traceback.format_exception(error)) + 12


def test_an_installed_project_is_the_users() -> None:
    library = "/venv/lib/python3.11/site-packages"
    assert not is_users(f"{library}/penguins/model.py")
    is_project(Path(f"{library}/penguins"))
    assert is_users(f"{library}/penguins/model.py")
    assert not is_users(f"{library}/penguins/.venv/lib/python3.11/site-packages/numpy/core.py")
    assert not is_users(f"{library}/numpy/core.py")
    assert not is_users(ModuleType.__name__ and traceback.__file__)
    assert not is_users(user_code.__file__)
    assert is_users(__file__)


def test_a_command_in_an_environment_inside_a_project_is_not_the_users() -> None:
    script = Path(sysconfig.get_path("scripts")) / "drivetrain"  # it starts the verbs
    assert not is_users(str(script))
    is_project(script.parents[2])  # as where somebody made `.venv` in his project
    assert not is_users(str(script))
