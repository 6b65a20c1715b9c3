"""ML Metadata, the store of TFX and of others: what such a file knows, taken into ours."""

from __future__ import annotations

from .importing import RUN, MlmdImport, import_mlmd
from .runs import ImportedExecution, adopt, imported_executions

__all__ = ["RUN", "ImportedExecution", "MlmdImport", "adopt", "import_mlmd", "imported_executions"]
