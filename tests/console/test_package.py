"""`package`: what is said of a wheel; what is in it is tested in tests/pipelines/project/test_wheel.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result


def test_what_may_be_forgotten_is_named_and_the_rest_counted(shop: Path, drivetrain: Callable[..., Result]) -> None:
    for name in (".git", ".cache", ".mypy_cache", ".ruff_cache", "build"):
        (shop / name).mkdir()
    (shop / "prices.csv").write_text("price\n3\n")
    for number in range(30):
        (shop / f"part_{number:02}.py").write_text("")
    result = drivetrain("package", "shop")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "- prices.csv: left out, not named by include" in lines
    assert "- .cache/, .git/, .mypy_cache/ and 2 more: hidden, or made by tools" in lines
    assert "  and 12 more, which --json lists" in lines, "of 32 modules"
    assert len(lines) == 24
