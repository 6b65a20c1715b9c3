"""The golden_tft_*.py beside this file can be imported by their own names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
