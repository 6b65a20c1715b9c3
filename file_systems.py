"""Folders and the web with fsspec's methods (`cat_file`, `put_file`, `find`, …), so that neither needs a package."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote

from .digest import sync_folder
from .errors import InputError

CountBytes: TypeAlias = Callable[[int], None]
"""Called with how many bytes of a file were moved so far; may raise to stop."""
_HTTP_TIMEOUT: Final = 60  # seconds for the first 64 KiB of content, or all of it, and for each 64 KiB more


class TooLong(InputError):  # noqa: N818 - named for what is wrong
    """A file has more bytes than it may have, perhaps without end."""


def refuse_longer(what: str, size: int, most: int) -> None:
    """Raise TooLong where an answer, which may never end, has more bytes than it may have."""
    if size > most:
        raise TooLong(
            f"{what} is longer than the {most:,} bytes that it may have",
            fix="check the address, and what its server sends",
        )


def _open_file(path: str) -> BinaryIO:
    """A file to read. Anything else is refused: a named pipe nobody writes to would be waited for, for ever."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} is not a file", fix="replace it by a file")
    return file


class LocalFiles:
    """A local or mounted folder. As stores of objects do, it writes files whole or not at all, and durably."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def refuse_links(self, name: str) -> None:
        """Raise InputError where a name leads through a symbolic link below the root, to who knows where."""
        path = str(self._root)
        for part in name.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path):  # noqa: PTH114 - text, not paths: this is asked at every use of every file
                raise InputError(
                    f"{name!r} leads through the link {path}", fix="replace the link by what it stands for"
                )

    def invalidate_cache(self) -> None:
        pass

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with _no_file(path), _open_file(path) as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def get_file(self, path: str, target: str, callback: CountBytes) -> None:
        with _no_file(path), _open_file(path) as file, Path(target).open("wb") as copy:
            _copy(file.read, copy, callback)

    def info(self, path: str) -> dict[str, Any]:
        with _no_file(path):
            status = Path(path).stat()
        kind = "directory" if Path(path).is_dir() else "file"
        return {"name": path, "type": kind, "size": status.st_size, "mtime": status.st_mtime}

    def ls(self, path: str, detail: bool) -> list[str]:
        return [str(entry) for entry in Path(path).iterdir()]

    def find(self, path: str, detail: bool = False) -> dict[str, Any]:
        infos = {}
        for folder, _, names in os.walk(path):
            for name in names:
                if name[0] != "." and not Path(folder, name).is_symlink():
                    with suppress(FileNotFoundError):  # it is being removed
                        infos[f"{folder}/{name}"] = self.info(f"{folder}/{name}")
        return infos

    def put_file(self, path: str, target: str, callback: CountBytes) -> None:
        with Path(path).open("rb") as file, self._replacing(Path(target)) as copy:
            _copy(file.read, copy, callback)

    def pipe_file(self, target: str, data: bytes, mode: str = "overwrite") -> None:
        if mode != "create":
            with self._replacing(Path(target)) as file:
                file.write(data)
            return
        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, path)  # a rename would replace what is there; a link fails: of two, one gets the name
        finally:
            unfinished.unlink(missing_ok=True)
        self._sync(path)

    def rm_file(self, path: str) -> None:
        Path(path).unlink()

    def rm(self, path: str, recursive: bool) -> None:
        shutil.rmtree(path)

    @contextmanager
    def _replacing(self, path: Path) -> Iterator[BinaryIO]:
        """A file to write, which takes the path's name when it is whole and on the disk."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{secrets.token_hex(8)}")  # a name that `find` leaves out
        try:
            with unfinished.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        self._sync(path)

    def _sync(self, path: Path) -> None:
        """Make a file's name durable, and those of the folders on its way, which may be new."""
        for folder in path.parents:
            sync_folder(folder)
            if folder in (self._root, *self._root.parents):
                break


class WebFiles:
    """Files by HTTP, to read: by their addresses, as nothing can be listed or written.

    Args:
        most: Bytes of the longest answer that is held in memory.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def invalidate_cache(self) -> None:
        pass

    def cat_file(self, url: str, start: int | None = None, end: int | None = None) -> bytes:
        if start is None or end is None:
            with _opened(url, "GET") as response:
                return _body(response, self._most, url)
        with _opened(url, "GET", {"Range": f"bytes={start}-{end - 1}"}) as response:
            if response.status != 206:  # a server that does not know ranges sends all, perhaps more than memory holds
                skipped = 0
                while skipped < start and (block := response.next_block(min(1 << 20, start - skipped))):
                    skipped += len(block)
            return _body(response, end - start)

    def get_file(self, url: str, target: str, callback: CountBytes) -> None:
        with _opened(url, "GET") as response, Path(target).open("wb") as copy:
            size = response.length  # None where the body comes in chunks, which mark their own end
            done = _copy(response.next_block, copy, callback)
        if size not in (None, done):
            raise OSError(f"{done} of {size} bytes came")

    def info(self, url: str) -> dict[str, Any]:
        try:
            with _opened(url, "HEAD") as response:
                size, tag = response.headers.get("Content-Length"), response.headers.get("ETag")
        except HTTPError as error:
            if error.code not in (405, 501):  # a server that does not know HEAD
                raise
            size, tag = None, None
        return {"name": url, "type": "file", "size": int(size) if size else None, "ETag": tag}

    def _unlistable(self, url: str, *_: Any, **__: Any) -> Any:
        raise InputError(f"{url}: nothing can be listed by HTTP", fix="name each file, or the version: version=1")

    def _unwritable(self, url: str, *_: Any, **__: Any) -> Any:
        raise InputError(f"{url}: nothing can be written by HTTP", fix="write to the folder or store it is served from")

    def put_file(self, path: str, url: str, **_: Any) -> None:
        self._unwritable(url)

    glob = ls = find = _unlistable
    pipe_file = rm_file = rm = _unwritable


def _opened(url: str, method: str, headers: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The response to a request. Any: a PacedResponse, which is known late."""
    from urllib.request import Request  # late: it takes longer to import than this module, and few need it

    from .paced_http import opener

    try:
        request = Request(_quoted(url), None, dict(headers), method=method)  # noqa: S310 - http, as the store saw
        return opener().open(request, timeout=_HTTP_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise FileNotFoundError(url) from None
        raise


def _body(response: Any, most: int, whole: str = "") -> bytes:
    """At most so many bytes of a response, which are all of it where its URL is named."""
    blocks, size = [], 0
    while (left := most + bool(whole) - size) > 0 and (block := response.next_block(min(1 << 20, left))):
        blocks.append(block)
        size += len(block)
    if whole:
        refuse_longer(whole, size, most)
    if size < most and response.length:  # a lost connection looks like the end
        raise OSError(f"{response.length} bytes did not come")
    return b"".join(blocks)


def _quoted(url: str) -> str:
    """A URL as the web takes it: blanks and letters beyond ASCII as %XX, what is so written already as it is."""
    return quote(url, safe="%/:?#[]@!$&'()*+,;=~")


@contextmanager
def _no_file(path: str) -> Iterator[None]:
    """Where a part of a path is a file, or the path is a folder, there is no such file, as in stores of objects."""
    try:
        yield
    except (IsADirectoryError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error


def _copy(read: Callable[[int], bytes], copy: BinaryIO, count: CountBytes) -> int:
    done = 0
    while block := read(1 << 20):
        copy.write(block)
        done += len(block)
        count(done)
    return done
