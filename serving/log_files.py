"""What a request log looks like on disk, for the server that writes it and the component that reads it.

    FOLDER/MODEL/VERSION/2026-11-27/SIGNATURE-20261127T094130123456-8f14e45fceea167a.parquet

A file holds rows of one signature of one bundle, answered on one day (UTC); its footer says which.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

FOOTER: Final = b"drivetrain.request_log"
"""The key of a file's `LogFooter` among the metadata of its schema."""
FACTS: Final = (
    "request_id", "request_time", "request_row", "model_name", "model_version", "model_bundle", "model_signature",
)  # fmt: skip
"""The columns beside inputs and outputs: the request, when it came (UTC), the row's position in it, who answered."""
PREDICTION: Final = "prediction_"
"""What the column of an output begins with."""

_LONGEST_PART: Final = 180  # characters: file systems let names have 255, and a time and an end come behind it
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FILE: Final = re.compile(r"[^/.][^/]*-\d{8}T\d{12}-[0-9a-f]{16}\.parquet")
_HALF: Final = re.compile(rf"\.{_FILE.pattern}\.[0-9a-f]{{8}}\.tmp")  # as `write_durably` names them
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class LogFooter:
    """What the rows of a file have in common, and what their columns are.

    Attributes:
        model: The model's name.
        version: The version that answered.
        bundle: The digest of its bundle.
        signature: What was asked.
        inputs: The columns of inputs, under the inputs' names.
        outputs: Output → its column.
        facts: Each of `FACTS` → its column.
        hashed: The columns of inputs and outputs that hold an HMAC in place of the value.
        times: The columns of inputs that are dates or timestamps, as the training data has them. Others are the numbers
            that the model reads, int64: where a bundle does not say its unit, and in files of earlier releases.
    """

    model: str
    version: int
    bundle: str
    signature: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    facts: Mapping[str, str]
    hashed: tuple[str, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The footer as a file has it."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LogFooter:
        """What `to_bytes` gave.

        Raises:
            ValueError, TypeError, LookupError, RecursionError: It is something else.
        """
        body: dict[str, Any] = json.loads(data)  # Any: JSON
        lists = {name: tuple(body[name]) for name in ("inputs", "hashed")}
        footer = cls(**{**body, **lists})
        texts = [footer.model, footer.bundle, footer.signature, *footer.inputs, *footer.hashed]
        texts += [*footer.outputs.values(), *(footer.facts[fact] for fact in FACTS), *footer.times.values()]
        if type(footer.version) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError("a footer of a request log holds text and the number of a version")
        return footer


def free_name(name: str, names: Mapping[str, object] | set[str]) -> str:
    """A column's name, with a _ behind it where others have it: inputs keep theirs."""
    while name in names:
        name += "_"
    return name


def path_part(text: str) -> str:
    """A name of a model or signature as a part of a path; a long one is cut, with its digest behind it."""
    quoted = quote(text, safe="")
    if len(quoted) > _LONGEST_PART:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        quoted = f"{quoted[: _LONGEST_PART - 17]}-{digest}"
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def day_folder(model_folder: Path, version: int, microseconds: int) -> Path:
    """Where the rows of a version lie that were asked then, in microseconds since 1970."""
    return model_folder / str(version) / f"{_moment(microseconds):%Y-%m-%d}"


def file_name(signature: str, microseconds: int) -> str:
    """A new name for a file whose first row was asked then; names sort by it."""
    return f"{path_part(signature)}-{_moment(microseconds):%Y%m%dT%H%M%S%f}-{secrets.token_hex(8)}.parquet"


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def files_before(model_folder: Path, day: date) -> list[Path]:
    """The files of a model whose rows are all of days before this one, by their names; half-written ones too."""
    return [
        path
        for folder in model_folder.glob("*/*")
        if _DAY.fullmatch(folder.name) and folder.name < day.isoformat() and folder.is_dir() and not folder.is_symlink()
        for path in sorted(folder.iterdir())
        if (_FILE.fullmatch(path.name) or _HALF.fullmatch(path.name)) and path.is_file() and not path.is_symlink()
    ]


def is_half(path: Path) -> bool:
    """Whether a file was never written to its end, by its name."""
    return _HALF.fullmatch(path.name) is not None
