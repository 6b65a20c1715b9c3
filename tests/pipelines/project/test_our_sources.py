"""What is found in drivetrain's own modules without a parser is what a parser finds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from drivetrain import user_code
from drivetrain.pipelines.project.our_sources import read_ours
from drivetrain.pipelines.project.sources import read_source

HOME = Path(user_code.__file__).parent
ROOMS = sorted(init.parent.name for init in HOME.glob("*/__init__.py") if user_code.is_drivetrains(str(init)))


def parsed_imports(text: bytes) -> list[tuple[int, str, tuple[tuple[str, str], ...]]]:
    """The import statements of a module, within functions and branches too."""
    imports: list[tuple[int, str, tuple[tuple[str, str], ...]]] = []
    blocks: list[ast.AST] = [ast.parse(text)]
    for block in blocks:  # which grows meanwhile
        if isinstance(block, ast.Import):
            imports += [(0, alias.name, ()) for alias in block.names]
        elif isinstance(block, ast.ImportFrom):
            names = tuple((alias.name, alias.asname or alias.name) for alias in block.names)
            imports.append((block.level, block.module or "", names))
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            blocks += getattr(block, part, ())
    return imports


@pytest.mark.parametrize("room", [*ROOMS, ""], ids=lambda room: room or "root")
def test_imports_are_those_that_a_parser_finds(room: str) -> None:
    for path in (HOME / room).rglob("*.py") if room else HOME.glob("*.py"):
        text = path.read_bytes()
        # What else there is to know of a file takes ten times as long; a module may be imported by a call, too.
        expected = read_source(str(path)).imports if b"import_module" in text else parsed_imports(text)
        assert sorted(read_ours(path).imports) == sorted(expected), path


def test_every_way_to_write_an_import(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Text about\nimport and its kin."""\n'
        "import a.b as c  # a comment\n"
        "from . import d\n"
        "from ..e.f import (\n    g,  # a, comment\n    h as i,\n)\n"
        "if x:\n    from j import k as l, m  # another\n"
        "important = 1\n"
    )
    assert read_ours(file).imports == (
        (0, "a.b", ()),
        (1, "", (("d", "d"),)),
        (2, "e.f", (("g", "g"), ("h", "i"))),
        (0, "j", (("k", "l"), ("m", "m"))),
    )
    assert sorted(read_ours(file).imports) == sorted(read_source(str(file)).imports)
