"""The progress of a part of longer work."""

from __future__ import annotations

from drivetrain.progress import part_of


def test_a_part_is_told_as_a_part_of_the_whole() -> None:
    reports: list[tuple[int, int | None, str]] = []

    def progress(done: int, total: int | None, unit: str) -> None:
        reports.append((done, total, unit))

    second = part_of(progress, 10, 25)
    second(3, 15, "rows")
    second(20, None, "rows")  # a row may count twice, as where it is written and read again: never more than all
    part_of(progress, 4, None)(2, 99, "files")
    part_of(part_of(progress, 10, 25), 5, None)(3, None, "rows")
    assert reports == [(13, 25, "rows"), (25, 25, "rows"), (6, None, "files"), (18, 25, "rows")]
