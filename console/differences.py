"""What differs behind a changed cache key: lines of code, values, rows and bytes; as JSON, and as lines to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..metadata import ArtifactRecord, Change, artifact_type, compare, compares_itself
from ..pipelines import Home
from ..pipelines.launcher.source_texts import source_text
from .source_diff import Hunk, source_diff, text_diff

_COMPARED: Final = 512 << 20
"""Bytes of two artifacts up to which they are compared; of larger ones only counts are told."""
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
        `artifacts`, how many there are, `bytes` and, where they have rows by split, `rows`: (old, new) over all of
        them. Of two on this machine also
        what their type says (see `metadata.compare`), with `hunks` for its `texts`; or `not_compared`, why it failed.
    """
    answer: dict[str, Any] = {
        "artifacts": [len(old), len(new)],
        "bytes": [sum(record.size for record in records) for records in (old, new)],
    }
    counts = [[_rows(record) for record in records] for records in (old, new)]
    if None not in (*counts[0], *counts[1]):
        answer["rows"] = [sum(rows or 0 for rows in side) for side in counts]
    if len(old) == len(new) == 1 and sum(answer["bytes"]) <= _COMPARED:
        answer |= _compared(home, old[0], new[0])
    return answer


def _rows(record: ArtifactRecord) -> int | None:
    rows = record.properties.get("rows")
    return sum(rows.values()) if isinstance(rows, Mapping) else None


def _compared(home: Home, old: ArtifactRecord, new: ArtifactRecord) -> dict[str, Any]:
    here = home.payloads.url is None and all(home.payloads.present(record.uri) for record in (old, new))
    if not here or old.type != new.type or not can_be_compared(new):  # nothing is fetched to be looked at
        return {}
    kind = artifact_type(new.type)
    try:
        facts = compare(home.artifact(kind, old), home.artifact(kind, new))
        if (texts := facts.pop("texts", None)) is not None:
            facts["hunks"] = [hunk.to_json() for hunk in text_diff(*texts)]
    except Exception as error:  # the function may be a user's, a payload damaged
        return {"not_compared": f"{type(error).__name__}: {error!s:.500}"}
    return facts


def can_be_compared(record: ArtifactRecord) -> bool:
    """Whether an artifact's type says how two of them differ."""
    from ..components import example_gen, import_schema  # noqa: F401 - they say it of the standard types

    return record.external is None and compares_itself(artifact_type(record.type))


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
    if (of := difference["artifacts"])[0] == 0 or of[1] == 0:
        parts.append("added" if of[1] else "removed")
    elif of[0] != of[1]:
        parts.append(f"{_arrow(of)} artifacts")
    elif difference["bytes"][0] == difference["bytes"][1] and "change" not in difference:
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
