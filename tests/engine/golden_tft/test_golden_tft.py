"""What TFT 1.16 gave for given rows and calls, and what our transform gives for the same.

`golden_tft_grammar` reads the text in which a case says what was called, `golden_tft_calls` calls ours. Where TFT is
wrong or can be bettered, `golden_tft_rules` works out the better answer from the input by numpy or by counting, and the
case must give that (docs/tft-differences.md says why). `DRIVETRAIN_GOLDEN=folder` reads `tft_cases.json` from another
folder. `tests/golden/tft_oracle.py` makes TFT give its answers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from golden_tft_grammar import NotUnderstoodError  # type: ignore[import-not-found]  # conftest puts it on the path
from golden_tft_running import check  # type: ignore[import-not-found]  # as above

FOLDER = Path(os.environ.get("DRIVETRAIN_GOLDEN") or Path(__file__).parents[2] / "golden")
FILES = [file for file in (FOLDER / "tft_cases.json", FOLDER / "tft_more.json") if file.is_file()]
# A folder of other cases may hold none of these; pytest then says that this test was skipped.
CASES: list[dict[str, Any]] = [case for file in FILES for case in json.loads(file.read_text("utf-8"))["cases"]]

pytestmark = pytest.mark.engine


OTHERWISE = [
    ("numeric_ints", "min/max/sum/size/mean/var; scale_to_z_score(x), scale_to_0_1(x), "
     "scale_by_min_max(output_min=-1,output_max=1); "
     "x -> bucketize(num_buckets=3), quantiles(num_buckets=4,epsilon=0.01)"),
    ("vocab_reserved_topk",
     "tft.compute_and_apply_vocabulary(s, top_k=2, num_oov_buckets=2, reserved_tokens=['<pad>', 'zzz'])"),
    ("apply_buckets_edges", "apply_buckets(x, bucket_boundaries=[2,5,10])"),
    ("hash_strings", "hash_strings(s, hash_buckets=10): Farm; hash_strings(s, 1000), hash_strings(s, 10, key=(1, 2))"),
    ("histogram_floats", "histogram(x); histogram(x, boundaries=5)"),
    ("tfidf_oov", "t -> split(' ') -> compute_and_apply_vocabulary(top_k=3) -> tfidf(4)"),
    ("one_hot", "compute_and_apply_vocabulary(s, num_oov_buckets=1) -> one_hot(depth=4); one_hot(n, depth=3)"),
    ("interpolation_quantiles", "x: apply_buckets_with_interpolation(quantiles(5,0.01))"),
    ("chained_analyzers", "scale_to_0_1(scale_to_z_score(x)); bucketize(scale_to_z_score(x), 3); mean(x - min(x)); "
     "mean(x > mean)"),
    ("bucket_then_vocab", "x -> bucketize(num_buckets=3) then as_string then compute_and_apply_vocabulary; "
     "crossed with s -> hash_strings(20)"),
    ("err_not_a_dict", "returns a tensor"),
    ("err_missing_value_fixedlen", "tft.scale_to_z_score(x)"),
    ("per_key_ints", "scale_to_z_score_per_key(x, k), scale_to_0_1_per_key(x, k), "
     "scale_by_min_max_per_key(x, k, -1, 1), bucketize_per_key(x, k, 3)"),
]  # fmt: skip
NAMED = {case["name"]: case for case in CASES}


@pytest.mark.skipif("DRIVETRAIN_GOLDEN" in os.environ, reason="these cases are our own")
@pytest.mark.parametrize(("name", "text"), OTHERWISE, ids=[name for name, _ in OTHERWISE])
def test_the_same_said_otherwise(name: str, text: str, tmp_path: Path) -> None:
    case = NAMED[name]
    check({**case, "config": {**case["config"], "ops": text}}, tmp_path)


@pytest.mark.skipif("DRIVETRAIN_GOLDEN" in os.environ, reason="these cases are our own")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scale_to_z_scores", "no op 'scale_to_z_scores'"),
        ("mean(", "no '\\)'"),
        ("scale_to_z_score, scale_to_0_1 -> mean", "comes from none of the steps"),
        ("compute_and_apply_vocabulary(salt=1)", "'salt'"),
    ],
)
def test_what_is_not_understood_is_said(text: str, says: str, tmp_path: Path) -> None:
    case = NAMED["constant_column" if "vocabulary" not in text else "vocab_basic"]
    with pytest.raises(NotUnderstoodError, match=says):
        check({**case, "config": {**case["config"], "ops": text}}, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, tmp_path)
