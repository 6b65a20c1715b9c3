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
from golden_tft_running import check  # type: ignore[import-not-found]  # conftest puts this folder on the path

FOLDER = Path(os.environ.get("DRIVETRAIN_GOLDEN") or Path(__file__).parent.parent / "golden")
FILES = [file for file in (FOLDER / "tft_cases.json", FOLDER / "tft_more.json") if file.is_file()]
# A folder of other cases may hold none of these; pytest then says that this test was skipped.
CASES: list[dict[str, Any]] = [case for file in FILES for case in json.loads(file.read_text("utf-8"))["cases"]]

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, tmp_path)
