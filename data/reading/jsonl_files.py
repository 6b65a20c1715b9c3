"""JSON lines as shards: one whole scan settles the columns, their types and the row counts; reading then streams.

A row is a line that holds one object; blank lines are skipped, a byte order mark too. The columns are the names of all
rows of all files, in the order in which they first appear; a name that a row lacks is missing there, like `null`.

Types are settled over all rows of all files: whole numbers are int64, with fractions among them float64, where NaN and
Infinity are numbers and 1e999 is infinite; whole numbers beyond 64 bits, without fractions, are text digit by digit.
Lists and objects are `list` and `struct` of what they hold. Text is text, also where it spells a number; but a column
in which every value is an ISO date or time is one, by the families of `csv_types`, since JSON has no other way to
write a time. A column that mixes kinds is text: strings as they are, anything else as it is spelled in the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...progress import Progress
from ..sources import Shard, Source, changed_in_use
from ..types import normal_schema, settle
from .compression import is_compressed, open_decompressed

_BLOCK_BYTES: Final = 4 << 20
_SHARD_BYTES: Final = 64 << 20
_TIMES: Final = (
    (pa.date32(), pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
)
_EXACT: Final = 1 << 53  # whole numbers up to here are float64s
_INT64: Final = range(-(1 << 63), 1 << 63)


class JsonlPiece(NamedTuple):
    """Lines of a file: the byte at which they begin, that before which they end (None: all), the lines before them."""

    start: int = 0
    end: int | None = None
    before: int = 0


_WHOLE: Final = JsonlPiece()


@dataclass(frozen=True)
class JsonlShard:
    """One JSON lines file, plain or gzipped, or some lines of a large plain one.

    Attributes:
        path: The file.
        rows: Its rows.
        spelled: Whether some column mixes kinds, so that numbers are needed as the file spells them.
        piece: Where its lines lie.
    """

    path: str
    rows: int
    spelled: bool = False
    piece: JsonlPiece = _WHOLE

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        count = 0
        for rows, _, _ in _blocks(Path(self.path), self.spelled, self.piece):
            count += len(rows)
            columns = []
            for item in schema:
                try:
                    columns.append(_column([row.get(item.name) for row in rows], item.type, self.spelled))
                except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
                    raise changed_in_use(self.path) from error
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if count != self.rows:
            raise changed_in_use(self.path)


def open_jsonl(
    paths: Sequence[Path],
    *,
    note: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Source:
    """A source over JSON lines files; each is one shard, a plain one beyond 64 MB is several. Scans all of them once.

    Args:
        paths: In this order.
        note: Called with a line about each column that is text because it mixes kinds, with the first line that does,
            and about each float64 column that rounds a whole number.
        progress: Called with the rows scanned; may raise to stop.

    Raises:
        InputError: A file is missing or damaged, or a line is not UTF-8, no JSON, no object, or names a field twice
            (names the line); or no row has a field.
    """
    columns: dict[str, _ValueKinds] = {}
    noted: set[str] = set()
    long: dict[str, str] = {}
    pieces: list[tuple[Path, JsonlPiece, int]] = []
    done = 0
    for path in paths:
        piece, before = JsonlPiece(), done
        for rows, lines, position in _blocks(path):
            if position.start - piece.start >= _SHARD_BYTES and not is_compressed(path):
                pieces.append((path, piece._replace(end=position.start), done - before))
                piece, before = position, done
            for name in dict.fromkeys(chain.from_iterable(rows)):
                try:
                    name.encode()
                    kinds = columns.setdefault(name, _ValueKinds(top=True))
                    known, values = set(kinds.seen), [row.get(name) for row in rows]
                    kinds.see(values)
                except UnicodeEncodeError:
                    raise _half_character(path, name, rows, lines) from None
                if int in kinds.seen and name not in long:
                    rounded = next(
                        (at for at, value in enumerate(values) if type(value) is int and _rounds(value)), None
                    )
                    if rounded is not None:
                        long[name] = (
                            f"{path}:{lines[rounded]}: column {name!r} is float64, which rounds {values[rounded]}"
                        )
                if note is not None and name not in noted and kinds.mixed:
                    noted.add(name)
                    note(f"{path}:{lines[_odd(values, known)]}: column {name!r} mixes kinds of values, so it is text")
            done += len(rows)
            if progress is not None:
                progress(done, None, "rows scanned")
        pieces.append((path, piece, done - before))
    if done and not columns:
        raise InputError(f"{paths[0]}: the objects have no fields", fix='give rows like {"a": 1}')
    schema = normal_schema(pa.schema([pa.field(name, kinds.type) for name, kinds in columns.items()]), str(paths[0]))
    spelled = any(kinds.mixed for kinds in columns.values())
    shards: list[Shard] = [JsonlShard(str(path), rows, spelled, piece) for path, piece, rows in pieces]
    for name, text in long.items():
        if note is not None and pa.types.is_floating(schema.field(name).type):
            note(text)
    return Source(tuple(shards), settle(schema))


def _rounds(value: int) -> bool:
    """Whether no float64 is equal to a whole number; one beyond its range is infinite, as 1e999 is."""
    try:
        return abs(value) > _EXACT and int(float(value)) != value
    except OverflowError:
        return False


def _odd(values: list[Any], before: set[type]) -> int:
    """The index of the first value of another kind than those before it; of the first value at all if there is none."""
    present = [index for index, value in enumerate(values) if value is not None]
    kinds = before or {type(values[present[0]])}
    return next((index for index in present if type(values[index]) not in kinds), present[0])


@dataclass
class _ValueKinds:
    """What kinds of values a column, or a place within it, has held so far: the join over all rows, in any order.

    Attributes:
        top: Whether it is a column itself; only there are texts that spell times taken for times.
        seen: Python types of the values, None aside.
        wide: Whether a whole number exceeds 64 bits.
        times: The family of `_TIMES` that all texts so far fit.
        level: Which type of that family.
        words: Whether some text is not a time.
        item: Of the items of lists.
        fields: Of the fields of objects.
    """

    top: bool = False
    seen: set[type] = field(default_factory=set)
    wide: bool = False
    times: tuple[pa.DataType, ...] = ()
    level: int = 0
    words: bool = False
    item: _ValueKinds | None = None
    fields: dict[str, _ValueKinds] = field(default_factory=dict)

    def see(self, values: list[Any]) -> None:
        types = set(map(type, values)) - {type(None)}
        self.seen |= types
        if int in types and not self.wide:
            self.wide = any(value not in _INT64 for value in values if type(value) is int)
        if str in types and not self.words:
            self._see_texts([value for value in values if type(value) is str])
        if list in types:
            self.item = self.item or _ValueKinds()
            self.item.see(list(chain.from_iterable(value for value in values if type(value) is list)))
        if dict in types:
            objects = [value for value in values if type(value) is dict]
            for name in dict.fromkeys(chain.from_iterable(objects)):
                name.encode()
                self.fields.setdefault(name, _ValueKinds()).see([value.get(name) for value in objects])

    def _see_texts(self, texts: list[str]) -> None:
        column = pa.array(texts, pa.string())
        for family in ([self.times] if self.times else _TIMES) if self.top else ():
            for level in range(self.level, len(family)):
                if _casts(column.slice(0, 64), family[level]) and _casts(column, family[level]):
                    self.times, self.level = family, level
                    return
        self.words = True
        for text in () if self.top else texts:  # deep text is only converted later: half characters must show now
            text.encode()

    @property
    def mixed(self) -> bool:
        deeper = [*([self.item] if self.item else []), *self.fields.values()]
        return (pa.types.is_string(self.type) and self.seen != {str}) or any(kinds.mixed for kinds in deeper)

    @property
    def type(self) -> pa.DataType:
        if not self.seen:
            return pa.null()
        if self.seen == {int}:
            return pa.string() if self.wide else pa.int64()
        if self.seen <= {int, float}:
            return pa.float64()
        if self.seen == {bool}:
            return pa.bool_()
        if self.seen == {str} and not self.words:
            return self.times[self.level]
        if self.seen == {list} and self.item is not None:
            return pa.list_(self.item.type)
        if self.seen == {dict} and self.fields:  # Parquet has no struct without fields: such objects are text
            return pa.struct([pa.field(name, kinds.type) for name, kinds in self.fields.items()])
        return pa.string()


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(column, kind)
    except pa.ArrowInvalid:
        return False
    return True


class _Int(str):
    """A whole number as the file spells it."""

    __slots__ = ()


class _Float(str):
    """Another number as the file spells it."""

    __slots__ = ()


class _TwiceError(ValueError):
    """A field is named twice in one object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return fields


_PLAIN: Final = json.JSONDecoder(object_pairs_hook=_object)
_SPELLED: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_Int, parse_float=_Float, parse_constant=_Float)


def _blocks(
    path: Path, spelled: bool = False, piece: JsonlPiece = _WHOLE
) -> Iterator[tuple[list[dict[str, Any]], list[int], JsonlPiece]]:
    """Rows, their line numbers, and where the lines begin, a few megabytes at a time."""
    decode = (_SPELLED if spelled else _PLAIN).decode
    start, end, number = piece
    try:
        with open_decompressed(path) as file:
            file.seek(start)
            while (end is None or start < end) and (lines := file.readlines(_BLOCK_BYTES)):
                block_start = JsonlPiece(start, None, number)
                start += sum(map(len, lines))
                rows, numbers = [], []
                for line in lines:
                    number += 1
                    if number == 1:
                        line = line.removeprefix(b"\xef\xbb\xbf")
                    if not line.isspace() and line:
                        rows.append(_row(path, number, line, decode))
                        numbers.append(number)
                yield rows, numbers, block_start
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist", fix="check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        where = f"{path}, after line {number}," if number else f"{path}"
        raise InputError(f"{where} is damaged ({str(error)[:200]})", fix="write or copy the file again") from error


def _row(path: Path, number: int, line: bytes, decode: Callable[[str], Any]) -> dict[str, Any]:
    try:
        row = decode(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: not UTF-8 text at byte {error.start + 1}",
            fix="convert it, e.g. iconv -f latin1 -t utf-8 IN > OUT",
        ) from error
    except _TwiceError as error:
        raise InputError(f"{path}:{number}: two fields are named {str(error)!r}", fix="rename one of them") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{number}: not JSON at character {error.colno} ({error.msg})", fix="write one whole object per line"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists a thousand deep
        raise InputError(f"{path}:{number}: {str(error)[:200]}", fix="repair the line") from error
    if type(row) is not dict:
        raise InputError(f"{path}:{number}: a {_NAMES[type(row)]}, not an object", fix="write one object per line")
    if line.count(b"[") + line.count(b"{") > _MOST_LEVELS and _levels(row) > _MOST_LEVELS:
        raise InputError(f"{path}:{number}: nested more than {_MOST_LEVELS} levels deep", fix="repair the line")
    return row


def _levels(value: Any) -> int:
    """How deep lists and objects nest, without recursion."""
    levels, inner = 0, [value]
    while inner := [each for each in inner if isinstance(each, (list, dict))]:
        levels += 1
        inner = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
    return levels


_MOST_LEVELS: Final = 100
"""Of lists and objects within each other: types, texts and files of them are written by recursion."""
_NAMES: Final = {
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    _Int: "number",
    _Float: "number",
}


def _column(values: list[Any], kind: pa.DataType, spelled: bool) -> pa.Array:
    """Values of one column as an array of the type that was settled for it."""
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pc.cast(pa.array(values, pa.string()), kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else _float(value) for value in values], kind)
    if spelled or pa.types.is_nested(kind):
        values = [_shaped(value, kind) for value in values]
    elif pa.types.is_integer(kind) and float in set(map(type, values)):  # pyarrow would cut the fractions off
        raise TypeError("a fraction among whole numbers")
    return pa.array(values, kind)


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """One value as pyarrow takes it for this type."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if type(value) is str else _spell(value)
    if pa.types.is_floating(kind):
        return _float(value)
    if pa.types.is_integer(kind):
        if not isinstance(value, int | _Int):
            raise TypeError("a fraction among whole numbers")
        return int(value)
    if pa.types.is_list(kind):
        return [_shaped(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {item.name: _shaped(value.get(item.name), item.type) for item in kind}
    return value


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond float64: infinite, as 1e999 is
        return float("inf") if value > 0 else float("-inf")


def _spell(value: Any) -> str:
    """A value as the file spells it, without blanks between its parts."""
    if isinstance(value, _Int | _Float):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_spell, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_spell(name)}:{_spell(item)}' for name, item in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def _half_character(path: Path, name: str, rows: list[dict[str, Any]], lines: list[int]) -> InputError:
    r"""The error for an escape like "\ud83d" without its other half, which no text can hold."""
    held = (f"{name}{json.dumps(row[name], ensure_ascii=False)}" if name in row else "" for row in rows)
    line = next(number for text, number in zip(held, lines, strict=True) if not _encodes(text))
    return InputError(
        f"{path}:{line}: column {name!r} holds half a character (a lone surrogate escape)",
        fix="write the character whole",
    )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
