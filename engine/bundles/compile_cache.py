"""Compiled executables, kept between processes in the user's own cache folder, beside no bundle.

An executable is machine code: who writes it runs code in the process that loads it. So it is never part of a bundle,
and the folder must be this user's alone. JAX's persistent compilation cache keys an entry by program, jaxlib, XLA flags
and kind of device; the folder adds the processor's features, which XLA compiles for.

What was not used for longest goes where there is too much. Processes share the folder without a lock: an entry that
another removed is compiled again, and so is one that is torn, as where its writer was killed or two wrote at once. JAX
would neither use nor replace that, so it is removed when the next process begins.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ...errors import DrivetrainError, InputError, missing_extra
from .._user_cache import cache_home, private_folder

_FOLDER: Final = "jax_compilation_cache_dir"
LIMIT_VARIABLE: Final = "DRIVETRAIN_COMPILED_GIB"
"""The environment variable that says how much is kept; 0 keeps nothing."""
_LIMIT: Final = 4.0  # GiB
_COARSE: Final = 2 * 10**9
"""Nanoseconds by which a file's time may be behind the clock."""
_ZSTANDARD: Final = bytes.fromhex("28b52ffd")
"""What its frames begin with (RFC 8878)."""
_OPTIONS: Final = (_FOLDER, "jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")


def keep_compiled(folder: Path | None = None) -> Path:
    """Keep what JAX compiles in this process, and use what earlier processes kept.

    Args:
        folder: Where; by default the folder that JAX is configured with (`JAX_COMPILATION_CACHE_DIR`), else
            `$XDG_CACHE_HOME/drivetrain/compiled` (`~/.cache/…`). It may be deleted at any time. Of more than
            `DRIVETRAIN_COMPILED_GIB` (4), those go first that were not used for longest; with 0 none are kept or used.

    Returns:
        The folder for this jaxlib and processor.

    Raises:
        InputError: Others may write to the folder, it belongs to somebody else, or it cannot be made.
        DrivetrainError: The variable holds no number.
    """
    try:
        import jax
    except ImportError as error:
        raise missing_extra("jax", "engine") from error

    configured = getattr(jax.config, _FOLDER)
    if folder is None and configured:
        return Path(configured)
    limit = _limit()
    home = private_folder(folder or cache_home() / "compiled")
    executables = private_folder(home / f"jaxlib-{version('jaxlib')}-{_processor()}")
    _remove_torn(executables)
    _remove_oldest(home, limit)
    if limit:
        _configure((str(executables), 0.0, -1))
    return executables


@contextmanager
def compiled_kept() -> Iterator[None]:
    """`keep_compiled` for a pass over data, in a process that is perhaps the user's: JAX is then set up as before.

    Where the user already keeps executables, wants none, or has no folder for them, nothing changes.
    """
    import jax

    before = tuple(getattr(jax.config, option) for option in _OPTIONS)
    if before[0] is None:
        with suppress(InputError):
            keep_compiled()
    try:
        yield
    finally:
        if before[0] is None:
            _configure(before)


def _limit() -> int:
    """Bytes of all executables together."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        much = float(text or _LIMIT)
        if not 0 <= much < math.inf:
            raise ValueError(text)
    except ValueError:  # no InputError, which is passed over where there is no folder
        raise DrivetrainError(f"{LIMIT_VARIABLE} is {text!r:.40}", fix="give GiB as a number, e.g. 4") from None
    return int(much * 2**30)


def _remove_torn(folder: Path) -> None:
    """Remove entries that are not whole, of those written since it was last looked: of a folder that is new, none."""
    began, looked = time.time_ns() - _COARSE, folder / "looked"
    since = looked.stat().st_mtime_ns if looked.exists() else began
    for path in folder.glob("*-cache"):
        with suppress(OSError):  # another process removes them too, and nothing needs to be removed
            if path.stat().st_mtime_ns >= since and not _whole(path.read_bytes()):
                path.unlink(missing_ok=True)
    with suppress(OSError):
        looked.touch(0o600)
        os.utime(looked, ns=(began, began))  # what is written meanwhile is looked at the next time


def _whole(entry: bytes) -> bool:
    """Whether an entry can be read: JAX compresses by zstandard where that is installed, else by zlib."""
    read: Callable[[bytes], bytes] = zlib.decompress
    torn: type[Exception] = zlib.error
    if entry.startswith(_ZSTANDARD):
        try:
            import zstandard
        except ImportError:
            return True
        read, torn = zstandard.ZstdDecompressor().decompress, zstandard.ZstdError
    try:
        read(entry)
    except torn:
        return False
    return True


def _remove_oldest(home: Path, limit: int) -> None:
    """Remove what was not used for longest, of every jaxlib and processor, until the rest is within a limit."""
    entries = []
    for path in home.glob("jaxlib-*/*"):
        with suppress(FileNotFoundError):  # another process removes them too
            status = path.lstat()
            # Where a disk is mounted with `relatime` the access time is right to a day, which is enough.
            entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    size = sum(entry[1] for entry in entries)
    for _, bytes_of, path in sorted(entries):
        if size <= limit:
            return
        with suppress(OSError):
            path.unlink(missing_ok=True)
        size -= bytes_of


def _configure(values: tuple[Any, ...]) -> None:  # Any: JAX types no option
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    for option, value in zip(_OPTIONS, values, strict=True):
        jax.config.update(option, value)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX looks for its folder once, which may have been before


def _processor() -> str:
    """A digest of the machine's kind and its processor's features."""
    features = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
        features += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(features).encode()).hexdigest()[:12]
