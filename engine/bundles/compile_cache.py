"""Compiled executables, kept between processes in the user's own cache folder, beside no bundle.

An executable is machine code: who writes it runs code in the process that loads it. So it is never part of a bundle,
and the folder must be this user's alone. JAX's persistent compilation cache keys an entry by program, jaxlib, XLA flags
and kind of device; the folder adds the processor's features, which XLA compiles for.
"""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

from ...errors import missing_extra
from .._user_cache import cache_home, private_folder


def keep_compiled(folder: Path | None = None) -> Path:
    """Keep what JAX compiles in this process, and use what earlier processes kept.

    Args:
        folder: Where; by default the folder that JAX is configured with (`JAX_COMPILATION_CACHE_DIR`), else
            `$XDG_CACHE_HOME/drivetrain/compiled` (`~/.cache/…`). It may be deleted at any time.

    Returns:
        The folder for this jaxlib and processor.

    Raises:
        InputError: Others may write to the folder, it belongs to somebody else, or it cannot be made.
    """
    try:
        import jax
    except ImportError as error:
        raise missing_extra("jax", "engine") from error
    from jax.experimental.compilation_cache import compilation_cache

    config = jax.config
    configured = config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX types no option
    if folder is None and configured:
        return Path(configured)
    home = private_folder(folder or cache_home() / "compiled")
    executables = private_folder(home / f"jaxlib-{version('jaxlib')}-{_processor()}")
    for option, value in (
        ("jax_compilation_cache_dir", str(executables)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        config.update(option, value)  # type: ignore[no-untyped-call]  # JAX types no option
    compilation_cache.reset_cache()  # JAX looks for its folder once, which may have been before
    return executables


def _processor() -> str:
    """A digest of the machine's kind and its processor's features."""
    features = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
        features += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(features).encode()).hexdigest()[:12]
