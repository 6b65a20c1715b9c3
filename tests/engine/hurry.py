"""Compiling in a hurry, for programs that run once or a few times: compiling them is what takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_OPTIONS = (("xla_cpu_use_fusion_emitters", False), ("xla_cpu_parallel_codegen_split_count", 1))
"""Without its fused loops XLA compiles in half the time, and in less where it cuts no program into parts."""


@contextmanager
def hurried() -> Iterator[None]:
    """XLA optimises nothing that this process compiles meanwhile; not for tests of the bits that users get.

    The fast tests have the same options from XLA_FLAGS, which XLA reads once a process.
    """
    import jax
    from jax._src import compiler

    compile_options = compiler.get_compile_options

    def with_ours(*arguments: Any, **named: Any) -> Any:  # Any: JAX's own
        options = compile_options(*arguments, **named)
        options.env_option_overrides = [*options.env_option_overrides, *_OPTIONS]
        return options

    option = "jax_disable_most_optimizations"
    before = jax.config.read(option)  # type: ignore[no-untyped-call]  # JAX types no option
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", with_ours)
        jax.config.update(option, True)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            jax.config.update(option, before)  # type: ignore[no-untyped-call]
