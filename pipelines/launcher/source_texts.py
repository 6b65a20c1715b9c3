"""The text of the user's source files that nodes ran, kept in the store: so `why` can show what changed in them.

Each file is kept once for each digest by which keys count it: of versions with the same syntax, the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import decode_source
from typing import Any, Final

from ...errors import BuildError
from ...metadata import MetadataStore, StoreDamaged
from ...redaction import redact
from ..project.sources import read_source
from .resolve import ResolvedTask

_KIND: Final = "source"
_LARGEST: Final = 1 << 20
"""Bytes of a file that is kept; of a larger one, which a program wrote, nobody reads the lines."""


def keep_sources(store: MetadataStore, work: ResolvedTask) -> None:
    """Keep the source files of a task, as they were when its key was made; secrets that are known are redacted."""
    counted = dict(_counted(work.preimage))
    for path in work.modules.values():
        with suppress(OSError, BuildError):  # it was edited or removed since: then it is not what the key counts
            source = read_source(str(path))
            digest = next((each for each in (source.syntax, source.text) if each in counted), None)
            if path.suffix != ".py" or digest is None or store.find_context(_KIND, digest) is not None:
                continue
            data = path.read_bytes()
            if len(data) <= _LARGEST and hashlib.sha256(data).hexdigest() == source.text:
                properties = {"file": counted[digest], "text": redact(decode_source(data))}
                store.context(_KIND, digest, properties, durable=False)


def source_text(store: MetadataStore, digest: str) -> str | None:
    """The text of a source file that a key counts by this digest; None where it was not kept.

    Raises:
        StoreDamaged: It was kept, and is lost.
    """
    context = store.find_context(_KIND, digest)
    if context is None:
        return None
    if not isinstance(text := context.properties.get("text"), str):
        raise StoreDamaged(store.location, f"it has lost the text of {context.properties.get('file', digest)}")
    return text


def _counted(preimage: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(digest, file) of each source file in a preimage."""
    codes = [preimage["code"], *(value["code"] for value in preimage["parameters"].values() if _is_function(value))]
    for code in codes:
        yield from ((digest, file) for file, digest in code.items())


def _is_function(value: object) -> bool:
    return isinstance(value, Mapping) and "$fn" in value and "code" in value
