"""What a run says of its models at its end: judged without a baseline, none blessed, nothing pushed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..metadata import ArtifactRecord, Evaluation, PushedModel
from ..pipelines import Run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.states import RunState
from ..pipelines.launcher.verdicts import decisions

_BLESSED: Final = ': the model was blessed without one; first_run="refuse" in its configuration refuses that'
_UNDER: Final = "below `with dt.when(evaluation.blessed):`"
_FEW: Final = 6


@dataclass(frozen=True)
class ModelOutcome:
    """What became of a run's models. It is read from what the tasks made or reused, so a cached run says the same.

    Attributes:
        state: How the run ended.
        evaluations: Each task that judged a model, and its verdict.
        pushes: Each task of the run that may push a model, and whether it did.
        required: Whether the run must bless every model that it judges (`--require-blessed`).
    """

    state: RunState
    evaluations: Sequence[tuple[str, ArtifactRecord]] = ()
    pushes: Mapping[str, bool] = field(default_factory=dict)
    required: bool = False

    @property
    def blessed(self) -> bool | None:
        """Whether every model that was judged is blessed, as in `drivetrain runs`; None where none was judged."""
        return all(_is_blessed(record) for _, record in self.evaluations) if self.evaluations else None

    @property
    def blesses_none(self) -> bool:
        """Whether the run completed, and blessed no model."""
        return self.state is RunState.COMPLETE and not any(_is_blessed(record) for _, record in self.evaluations)

    @property
    def falls_short(self) -> bool:
        """Whether the run completed, and lacks a blessing that was required: `blessed` is not true."""
        return self.required and self.state is RunState.COMPLETE and self.blessed is not True

    def lines(self) -> Iterator[str]:
        """The run's last lines, for people."""
        for task, record in self.evaluations:
            for entry in decisions(record)[-1:]:
                what = "blessed" if entry["blessed"] else "not blessed"
                yield f"{task}: {what} by {entry['by']} at {entry['at']}, against what was measured: {entry['reason']}"
        for blessed, then in ((True, _BLESSED), (False, "")):
            # None: an evaluation of the user's own, which does not say.
            alone = [task for task, record in self.evaluations
                     if record.properties.get("compared") is False and _is_blessed(record) is blessed]  # fmt: skip
            if alone:
                yield f"{_few(alone, ', ')} had no baseline to compare with{then}."
        if self.blesses_none and (self.evaluations or self.required):
            pushed = [task for task, has_pushed in self.pushes.items() if has_pushed]
            nothing = "Nothing was pushed: no" if self.pushes and not pushed else "No"
            why = [f"{task}: {_reason(record)}" for task, record in self.evaluations]
            yield f"{nothing} model was blessed ({_few(why, '; ') or 'none was judged'})."
            if pushed and self.evaluations:
                yield f"{_few(pushed, ', ')} pushed all the same: it pushes blessed models only {_UNDER}."
        elif self.falls_short:
            why = [f"{task}: {_reason(record)}" for task, record in self.evaluations if not _is_blessed(record)]
            yield f"Not every model was blessed, as --require-blessed asks ({_few(why, '; ')})."

    def to_json(self) -> dict[str, object]:
        """What `run --json` and `show --json` say of it."""
        return {"blessed": self.blessed, "closing": list(self.lines())}


def _few(items: Sequence[str], between: str) -> str:
    """The first of many, and how many more there are."""
    more = f"{between}and {len(items) - _FEW:,} more" if len(items) > _FEW else ""
    return between.join(items[:_FEW]) + more


def _reason(record: ArtifactRecord) -> object:
    """Why a model is not blessed: what was measured, or who took the blessing away, which the measures do not say."""
    for entry in decisions(record)[-1:]:
        return f"not blessed by {entry['by']}: {entry['reason']}"
    return record.properties.get("summary")


def _is_blessed(record: ArtifactRecord) -> bool:
    return record.properties.get("blessed") is True


def model_outcome(run: Run, state: RunState, records: Mapping[str, Iterable[ArtifactRecord]]) -> ModelOutcome:
    """What became of a run's models, from what each of its tasks made or reused."""
    evaluations: list[tuple[str, ArtifactRecord]] = []
    pushes: dict[str, bool] = {}
    for task, outputs in records.items():
        outputs = list(outputs)
        evaluations += [(task, record) for record in outputs if record.type == Evaluation.__name__]
        node = run.pipeline[parse_task(task)[0]]
        left_out = run.options.only and node.id not in run.options.only
        if not left_out and any(kind == PushedModel.__name__ for _, kind in node.outputs):
            pushes[task] = any(record.type == PushedModel.__name__ for record in outputs)
    return ModelOutcome(state, evaluations, pushes, run.options.require_blessed)
