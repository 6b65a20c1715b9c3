"""Native kernels: C++ compiled to a shared library, and its symbols given to XLA as targets of custom calls."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import jax

from ...errors import InputError
from .._caller import caller
from .._user_cache import cache_home, make_folder, private_folder

_PLATFORMS: Final = {"cpu": "cpu", "cuda": "CUDA", "rocm": "ROCM", "tpu": "tpu"}  # JAX's name → the one it registers by
_FLAGS: Final = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=default", "-w")
_SECONDS: Final = 600


@dataclass(frozen=True)
class Native:
    """A kernel in a shared library: a handler made by `XLA_FFI_DEFINE_HANDLER_SYMBOL`.

    Attributes:
        library: The shared library.
        symbol: The handler's name in it.
    """

    library: Path
    symbol: str


def compile_cpp(source: Path | str, out: Path | str | None = None, *, flags: Sequence[str] = ()) -> Path:
    """Compile one C++ file against the headers of `jax.ffi` into a shared library.

    A distribution does so when it is built; a project's file may do so when it is imported, since with no `out` an
    equal source (with equal flags, jaxlib and compiler) is compiled once per user.

    Args:
        source: The `.cc` file.
        out: The library to write; by default one in the user's cache (`$XDG_CACHE_HOME/drivetrain/native`), of which
            files that the source includes are not part of the key.
        flags: Given to the compiler (`$CXX`, else g++ or c++) after ours.

    Returns:
        The library.

    Raises:
        InputError: There is no compiler, no such file, or the file does not compile: the compiler's first errors.
            Others may write to the cache, or it cannot be made.
    """
    path = Path(source)
    if not path.is_file():
        raise InputError(f"there is no C++ file {path}", fix="name the source of the kernel", where=caller())
    compiler = _compiler(path)
    command = [compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", *flags]
    target = Path(out) if out is not None else _cached(path, command)
    if out is None and target.is_file():
        return target
    make_folder(target.parent)
    with TemporaryDirectory(dir=target.parent) as folder:  # beside it, so that it appears whole or not at all
        compiled = Path(folder) / target.name
        run = subprocess.run(  # noqa: S603  # the user's own source, by the user's own compiler
            [*command, str(path), "-o", str(compiled)], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if run.returncode:
            errors = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines()
            raise InputError(
                f"{path} does not compile: {' | '.join(errors[:3])[:600]}",
                fix=f"correct it; by hand: {' '.join(command)} {path} -o {target.name}",
                where=caller(),
            )
        compiled.replace(target)
    return target


def _compiler(path: Path) -> str:
    named = os.environ.get("CXX")
    for name in [named] if named else ["g++", "c++", "clang++"]:
        compiler = shutil.which(name)
        if compiler is not None:
            return compiler
    raise InputError(
        f"there is no C++ compiler to compile {path} with: {named or 'g++'} is not on the PATH",
        fix="install one (apt-get install g++, xcode-select --install) or name it in CXX",
        where=caller(),
    )


def _cached(path: Path, command: Sequence[str]) -> Path:
    facts = [
        *command,
        metadata.version("jaxlib"),
        platform.machine(),
        str(Path(command[0]).resolve().stat().st_mtime_ns),
    ]
    key = sha256("\0".join(facts).encode() + b"\0" + path.read_bytes()).hexdigest()[:16]
    return private_folder(cache_home() / "native") / f"{path.stem}-{key}.so"


_REGISTERED: Final[dict[tuple[str, str], Native]] = {}


def register_target(name: str, native: Native, on: str) -> None:
    """Make a symbol of a library the custom call of that name, on one JAX platform.

    Raises:
        InputError: The library cannot be loaded or has no such symbol, JAX has no such platform, or this process has
            another kernel of that name: XLA keeps the first.
    """
    if on not in _PLATFORMS:
        raise InputError(f"op {name!r} has a kernel for {on!r:.40}", fix=f"use {', '.join(_PLATFORMS)}", where=caller())
    held = _REGISTERED.get((name, on))
    if held == native:
        return
    if held is not None:
        raise InputError(
            f"op {name!r} has the kernel {held.library} on {on} in this process already",
            fix="start the process again to use another",
            where=caller(),
        )
    try:
        handler = getattr(ctypes.CDLL(str(native.library)), native.symbol)
    except OSError as error:
        raise InputError(
            f"op {name!r}: its library cannot be loaded: {error}",
            fix="compile it for this machine: custom_ops.compile_cpp",
            where=caller(),
        ) from error
    except AttributeError as error:
        raise InputError(
            f"op {name!r}: {native.library} has no symbol {native.symbol!r}",
            fix="name what XLA_FFI_DEFINE_HANDLER_SYMBOL defines",
            where=caller(),
        ) from error
    capsule = jax.ffi.pycapsule(handler)  # type: ignore[no-untyped-call]  # JAX leaves it untyped
    jax.ffi.register_ffi_target(name, capsule, platform=_PLATFORMS[on])
    _REGISTERED[name, on] = native
