"""Saved programs as functions that JAX differentiates: once, which is what they are saved for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from ...errors import InputError
from ..bundles.bundle import Bundle
from ..custom_ops.registry import call_targets
from ..graphs.nodes import DeviceStage
from ..lowering.programs import Programs, checked_call, program_facts

Call = Callable[..., Any]  # Any: JAX arrays; a stage's inputs, then its weights


def calls_of(bundle: Bundle, stages: Mapping[str, DeviceStage], name: str) -> dict[str, Call]:
    """Each stage's program as a function, read and checked as for running it.

    Args:
        bundle: Holds the programs.
        stages: Those to call, by program.
        name: The module's, for errors.

    Raises:
        BundleError: A program is damaged, is not what the graph says, or would do more than compute.
    """
    programs = Programs(bundle.payload, call_targets(bundle.extensions))
    calls = {}
    for program, stage in stages.items():
        programs.prepare(stage)
        serialized = bundle.payload.programs[program]
        exported = jax.export.deserialize(bytearray(serialized))
        calls[program] = _call(exported, checked_call(exported, program_facts(serialized).calls, program), name)
    return calls


def has_gradient(bundle: Bundle, stages: Mapping[str, DeviceStage]) -> bool:
    """Whether every stage's program was saved with its gradient."""
    return all(jax.export.deserialize(bytearray(bundle.payload.programs[name])).has_vjp() for name in stages)


def _call(exported: Any, run: Call, name: str) -> Call:  # Any: jax.export.Exported
    # An identity that must not be differentiated. What the first derivative is made of goes through it, so that taking
    # a second one raises this error: JAX's own, "No VJP is available", names neither the module nor a way out.
    @jax.custom_jvp
    def once(values: Any) -> Any:
        return values

    @once.defjvp
    def again(primals: Any, tangents: Any) -> Any:
        raise InputError(
            f"{name} was differentiated twice, and its program is saved with its first gradient only",
            fix="take Hessians of the code that made it, or of the code around it",
        )

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        return run(*arrays)

    def forward(*arrays: Any) -> Any:
        if not exported.has_vjp():
            raise InputError(
                f"{name} was saved without its gradient, and was differentiated",
                fix="publish it by hub.module(fn, params, inputs), or keep gradients out: jax.lax.stop_gradient",
            )
        return jax.vjp(run, *once(arrays))

    def backward(pull: Any, cotangents: Any) -> Any:
        pull, cotangents_once = once((pull, cotangents))
        return pull(cotangents_once)

    call.defvjp(forward, backward)
    return call
