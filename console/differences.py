"""What differs behind a changed cache key: lines of code, values, rows and bytes; as JSON, and as lines to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..errors import DrivetrainError
from ..metadata import ArtifactRecord, Change
from ..pipelines import Home
from ..pipelines.launcher.source_texts import source_text
from .source_diff import Hunk, source_diff, text_diff

_COMPARED: Final = 512 << 20
"""Bytes of two Examples up to which their rows are compared; of larger ones only counts are told."""
_SHOWN: Final = 20
"""Lines of a file's difference that are printed; `--json` has all."""
Records = Mapping[str, Sequence[ArtifactRecord]]


def difference(home: Home, change: Change, old: Records, new: Records) -> dict[str, Any]:
    """A change of a key as JSON.

    Args:
        home: Where the sources and payloads lie.
        change: What changed.
        old: The inputs as they were, by name.
        new: The inputs now.

    Returns:
        `kind` ("code", "input", "parameter", "environment", …), `line`, and by kind: `file` and `hunks` of code (None
        where the text was not kept); of an input what `_artifacts_difference` gives; else `path`, `old` and `new`.
    """
    kind, *path = change.path or ("key",)
    about = {"kind": kind.removesuffix("s"), "line": change.line}
    if kind == "code" and path:
        return about | {"file": path[-1], "hunks": _hunks_of_code(home, change)}
    if kind == "inputs" and path:
        return about | {"input": path[0]} | _artifacts_difference(home, old.get(path[0], ()), new.get(path[0], ()))
    return about | {"path": path, "old": change.old, "new": change.new}


def output_difference(
    home: Home, name: str, old: Sequence[ArtifactRecord], new: Sequence[ArtifactRecord]
) -> dict[str, Any]:
    """How an output differs from the one before, as JSON."""
    return {"kind": "output", "output": name} | _artifacts_difference(home, old, new)


def _hunks_of_code(home: Home, change: Change) -> list[dict[str, Any]] | None:
    texts = [source_text(home.store, digest) if digest else "" for digest in (change.old, change.new)]
    if texts[0] is None or texts[1] is None:
        return None
    # The key changed, so something did: where no line of code differs, the lines of text are shown.
    return [hunk.to_json() for hunk in source_diff(texts[0], texts[1]) or text_diff(texts[0], texts[1])]


def _artifacts_difference(home: Home, old: Sequence[ArtifactRecord], new: Sequence[ArtifactRecord]) -> dict[str, Any]:
    """How artifacts differ from those that were there before, as JSON.

    Returns:
        `bytes` and, of Examples, `rows`: (old, new) over all of them. Of two Examples on this machine also what became
        of the rows: `change` (appended, added, removed, edited, replaced, reordered or unchanged), `added`, `removed`
        and `columns`. Of two Schemas the `hunks` of schema.yaml.
    """
    answer: dict[str, Any] = {"bytes": [sum(record.size for record in records) for records in (old, new)]}
    if all(record.type == "Examples" for record in (*old, *new)):
        answer["rows"] = [sum(_rows(record) for record in records) for records in (old, new)]
    if len(old) != 1 or len(new) != 1 or old[0].type != new[0].type:
        return answer
    contents = [_content(home, record) for record in (old[0], new[0])]
    if contents[0] is None or contents[1] is None:
        return answer
    if new[0].type == "Examples" and sum(answer["bytes"]) <= _COMPARED:
        answer |= _rows_difference(contents[0], contents[1])
    if new[0].type == "Schema":
        with suppress(OSError):
            texts = [(content / "schema.yaml").read_text(encoding="utf-8") for content in (contents[0], contents[1])]
            answer["hunks"] = [hunk.to_json() for hunk in text_diff(*texts)]
    return answer


def _rows(record: ArtifactRecord) -> int:
    rows = record.properties.get("rows")
    return sum(rows.values()) if isinstance(rows, Mapping) else 0


def _content(home: Home, record: ArtifactRecord) -> Path | None:
    """The content of an artifact on this machine; nothing is fetched to look at it."""
    if home.payloads.url is not None or record.external is not None or not home.payloads.present(record.uri):
        return None
    return home.payloads.local(record.uri) / "content"


def _rows_difference(old: Path, new: Path) -> dict[str, Any]:
    import pyarrow as pa

    from ..data.row_changes import row_changes  # late: with it come NumPy and Arrow

    with suppress(DrivetrainError, OSError, pa.ArrowException):  # no rows in them, or damaged: the counts are told
        rows = row_changes(old, new)
        return {"change": rows.kind, "added": rows.added, "removed": rows.removed, "columns": list(rows.columns)}
    return {}


def lines(difference: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A difference for people, in lines with their style; the first is the headline."""
    if "bytes" in difference:
        name = f"input {difference['input']}" if "input" in difference else f"so its {difference['output']}"
        yield f"{name}: {_sizes(difference)}", ""
    else:
        yield str(difference["line"]), ""
    printed = 0
    for item in difference.get("hunks") or ():
        hunk = Hunk.from_json(item)
        if printed < _SHOWN:
            yield _heading(hunk), "bold"
        for mark, style, side in (("-", "red", hunk.old), ("+", "green", hunk.new)):
            for line in side:
                printed += 1
                if printed <= _SHOWN:
                    yield f"  {mark} {line.text}", style
    if printed > _SHOWN:
        yield f"… and {printed - _SHOWN:,} more lines: --json has them all", "dim"


def _heading(hunk: Hunk) -> str:
    side = hunk.new or hunk.old
    gone = "" if hunk.new else ", as it was"
    return f"line {side[0].number}{f', {hunk.definition}' if hunk.definition else ''}{gone}:"


def _sizes(difference: Mapping[str, Any]) -> str:
    """Rows, bytes and what became of them: "1,000 -> 1,050 rows (50 appended), 8,120 -> 8,460 bytes"."""
    parts = []
    if difference["bytes"][0] == difference["bytes"][1] and "change" not in difference:
        parts.append("edited")
    if "rows" in difference:
        happened = _happened(difference)
        parts.append(f"{_arrow(difference['rows'])} rows{f' ({happened})' if happened else ''}")
    parts.append(f"{_arrow(difference['bytes'])} bytes")
    return ", ".join([*parts, *(f"column {column}" for column in difference.get("columns", ()))])


def _happened(difference: Mapping[str, Any]) -> str:
    added, removed = difference.get("added", 0), difference.get("removed", 0)
    match difference.get("change"):
        case "appended" | "added" as word:
            return f"{added:,} {word}"
        case "removed":
            return f"{removed:,} removed"
        case "edited":
            return f"{added:,} edited" if added == removed else f"edited: {added:,} new, {removed:,} gone"
        case "replaced":
            return "replaced: none is as it was"
        case "reordered":
            return "the same in another order, or in other splits"
    return ""


def _arrow(numbers: Sequence[int]) -> str:
    return " -> ".join(f"{number:,}" for number in dict.fromkeys(numbers))
