"""The window of exports that a JAX reads: a bundle is warned of before it falls out, and refused after.

JAX numbers the conventions by which its exported programs are called; a release reads a span of them and writes one.
What a release wrote is read for six months at least, so there is time between "no longer what would be written" (a
warning) and "no longer read" (an error).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ..lowering.programs import BundleError


def written_convention() -> int:
    """The calling convention in which this JAX writes programs."""
    import jax

    return int(jax.config.jax_export_calling_convention_version)  # type: ignore[attr-defined]  # JAX types no option


def check_window(body: Mapping[str, Any], where: str) -> None:
    """Look at a manifest's programs, against the window of this JAX; a bundle without programs needs none.

    Args:
        body: The manifest.
        where: The bundle's folder.

    Warns:
        FutureWarning: A program is of an older convention than this JAX writes.

    Raises:
        BundleError: A program is older or newer than this JAX reads.
    """
    try:
        conventions = [int(facts["calling_convention"]) for facts in body["programs"].values()]
        exported = f"exported by JAX {body['export']['jax']!s:.20}"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BundleError(
            f"{where}: its manifest does not say how its programs are called ({error!r:.80})",
            fix="fetch it again, or run the step that made it",
        ) from error
    if not conventions:
        return
    import jax

    oldest, newest = min(conventions), max(conventions)
    first = jax.export.minimum_supported_calling_convention_version
    last = jax.export.maximum_supported_calling_convention_version
    if newest > last:
        raise BundleError(
            f"{where} was {exported} with calling convention {newest}; this JAX, {jax.__version__}, reads up to {last}",
            fix="upgrade JAX",
        )
    command = f"drivetrain bundle refresh {where} NEW_FOLDER"
    if oldest < first:
        raise BundleError(
            f"{where} was {exported} with calling convention {oldest}; "
            f"this JAX, {jax.__version__}, reads from {first} on",
            fix=f"write its programs again: {command}",
        )
    if oldest < written_convention():
        warnings.warn(
            f"{where} was {exported} with calling convention {oldest}, which a coming JAX will refuse"
            f" (JAX {jax.__version__} writes {written_convention()}); write its programs again in time: {command}",
            FutureWarning,
            stacklevel=3,
        )
