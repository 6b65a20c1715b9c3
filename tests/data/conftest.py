"""Makes tests/data/passes.py importable by its own name, here and in worker processes."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
