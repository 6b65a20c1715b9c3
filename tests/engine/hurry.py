"""Compiling in a hurry, for programs that run once or a few times: compiling them is what takes long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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


@contextmanager
def mlir_context_kept() -> Iterator[None]:
    """JAX writes the programs of the main thread into the same MLIR context, which it makes anew for each of them.

    To make it and to throw it away takes 4 ms of a processor, longer than many a program of a test, and what JAX
    remembers of a program holds 200 KB of it. A context says nothing about what is written into it.
    """
    import jax
    from jax._src.interpreters import mlir

    make, main = mlir.make_ir_context, threading.main_thread()
    kept = make()

    def context() -> Any:  # Any: JAX's own
        return kept if threading.current_thread() is main else make()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir, "make_ir_context", context)
        # MLIR loads the dialects that a compilation needs when the first does. Later ones may then run in a thread of
        # their own, as the Trainer's do, and change nothing that the main thread reads.
        rows = np.zeros(2, np.int32)
        program = jax.export.export(jax.jit(lambda x: x + 1))(jax.export.symbolic_args_specs(rows, "rows")).serialize()
        jax.jit(jax.export.deserialize(program).call).lower(rows).compile()
        yield
