"""ML Metadata, the store of TFX and of others: what such a file knows, taken into ours."""

from __future__ import annotations

from .importing import RUN, Imported, import_mlmd
from .runs import Ran, adopt, ran_in

__all__ = ["RUN", "Imported", "Ran", "adopt", "import_mlmd", "ran_in"]
