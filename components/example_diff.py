"""ExampleDiff: rows of the same key in two sets of examples, compared feature by feature."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..metadata import Examples, ExamplesDiff
from ..pipelines import component, current

if TYPE_CHECKING:
    from ..data import Source


@component
def ExampleDiff(
    base: Examples,
    test: Examples | None,
    *,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    float_digits: int | None = None,
    allow_duplicates: bool = False,
    samples: int = 5,
    confusion: int = 50,
    pairs: Sequence[Sequence[str]] | None = None,
) -> ExamplesDiff:
    """Row-level skew: what was served against what was trained on, one version of a span against another.

    Args:
        base: Examples, e.g. those that were trained on.
        test: What is compared with them. None, as `dt.latest(Examples)` gives on the first run: nothing is compared.
        key: The column, or columns, that identify a row. A key of several rows of a side is counted and left out.
        columns: Features to compare; all of either side where None.
        ignore: Features not to compare.
        float_digits: Decimals that floats are rounded to before they are compared; None: not at all.
        allow_duplicates: Compare every row of a key on one side with every one on the other.
        samples: Differing pairs of rows quoted of each feature.
        confusion: Distinct values of a feature up to which all pairs of values are counted.
        pairs: Splits to compare, (of the base, of the test), e.g. `[["train", "serving"]]`; where None those of one
            name.

    Returns:
        ExamplesDiff: `content/example_diff.json` (see `data.diff_examples`) and a report.

    Raises:
        InputError: A key or column is not there, the keys are of different types, no split has a partner, or the
            examples are damaged.
        DrivetrainError: There is no room for both sides' rows below the root.
    """
    from ..data import diff_examples, executor, open_examples, splits
    from ..data.example_diff.diff import SCRATCH

    context = current()
    for leftover in context.work_dir.glob(f"{SCRATCH}*"):  # of an attempt that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    sides: list[dict[str, Source]] = [{}, {}]
    chosen = None if pairs is None else [(str(first), str(second)) for first, second in pairs]
    if test is None:
        chosen = []
    else:
        sides = [{name: open_examples(side.content, name) for name in splits(side.content)} for side in (base, test)]
    differences = diff_examples(
        sides[0],
        sides[1],
        key,
        columns=columns,
        ignore=ignore,
        float_digits=float_digits,
        allow_duplicates=allow_duplicates,
        samples=samples,
        confusion=confusion,
        pairs=chosen,
        executor=executor(context.executor, context.executor_options),
        scratch=context.work_dir,
        progress=context.progress,
    )
    summary = differences.summary if test is not None else "there are no other examples yet, nothing to compare with"
    context.note(summary)
    counts = [pair["counts"] for pair in differences.document["pairs"]]
    examples_diff = ExamplesDiff.new(
        pairs=sum(count["pairs"] for count in counts),
        different=sum(count["different_pairs"] for count in counts),
        summary=summary,
    )
    differences.save(examples_diff.content)
    (examples_diff.extra / "report.html").write_text(differences.to_html(), "utf-8")
    return examples_diff
