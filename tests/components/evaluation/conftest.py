"""The evaluating.py beside this file can be imported by its own name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
