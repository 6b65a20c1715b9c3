"""What people say of a model against its evaluation: blessed or not, by whom and why, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...errors import InputError
from ...metadata import ArtifactRecord, ConflictError, MetadataStore

OVERRULED: Final = "overruled"
"""The property of an Evaluation that keeps each such decision, the first one first: `blessed`, `was`, `by`, `at` (UTC)
and `reason`."""


def overrule(
    store: MetadataStore, evaluation: ArtifactRecord, *, blessed: bool, by: str, reason: str
) -> ArtifactRecord:
    """Bless a model that its evaluation did not, or take the blessing from it.

    From then on all that asks for blessed models goes by it: conditions of runs, `latest_blessed`, BulkInferrer. The
    evaluation's files stay as they are.

    Raises:
        InputError: It is so already, there is no reason, or somebody decided at the same moment.
    """
    was = evaluation.properties.get("blessed") is True
    if was is blessed:
        before = decisions(evaluation)
        since = f", since {before[-1]['by']} said so" if before else ""
        raise InputError(f"the model is {'' if blessed else 'not '}blessed{since}", fix="there is nothing to change")
    if not reason.strip():
        raise InputError("there is no reason", fix='say why: --reason "…"')
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"blessed": blessed, "was": was, "by": by, "at": now, "reason": reason.strip()}
    try:
        return store.update_artifact(
            evaluation,
            properties={"blessed": blessed, OVERRULED: [*decisions(evaluation), entry]},
            expected_version=evaluation.version,
        )
    except ConflictError as error:
        raise InputError("somebody else decided at the same moment", fix="look at it with `drivetrain show`") from error


def decisions(evaluation: ArtifactRecord) -> Sequence[Mapping[str, Any]]:
    """What people decided of an evaluation, the first one first."""
    entries = evaluation.properties.get(OVERRULED)
    return entries if isinstance(entries, list) else []
