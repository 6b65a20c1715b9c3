"""What Trainer is called with, as a process beside it or a trial of Tuner needs it: sent as JSON, made into a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..pipelines import Fn, FunctionRef

if TYPE_CHECKING:
    from ..engine import TrainingRun


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """The arguments of a training, as far as they decide what the user's function builds and measures.

    Attributes:
        fn: The user's function.
        examples: Content folder of the transformed examples.
        graph: Content folder of the transform graph.
        base_model: Content folder and extra folder of the model that the training begins with; None where none is.
        hyperparameters: As `run.hyperparameters` has them.
        epochs: Passes over the train split, at most.
        batch_size: Rows per step.
        seed: Of the initial parameters and of the order of rows.
        strategy: Its name.
        train_split: The split that is trained on.
        eval_split: The split that is measured after each epoch; None for none.
    """

    fn: Fn
    examples: Path
    graph: Path
    base_model: tuple[Path, Path] | None
    hyperparameters: Mapping[str, Any]
    epochs: int
    batch_size: int
    seed: int
    strategy: str
    train_split: str
    eval_split: str | None

    def to_json(self) -> dict[str, Any]:
        """As it is sent to a process; the function must be a named one by then."""
        assert isinstance(self.fn, FunctionRef)
        project = None if self.fn.project is None else str(self.fn.project)
        body = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **body,
            "fn": [project, self.fn.name],
            "examples": str(self.examples),
            "graph": str(self.graph),
            "base_model": None if self.base_model is None else list(map(str, self.base_model)),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """What `to_json` described.

        Raises:
            ValueError, LookupError, TypeError: It describes none.
        """
        project, name = body["fn"]
        base = body["base_model"]
        return cls(
            **{
                **body,
                "fn": FunctionRef(None if project is None else Path(project), name),
                "examples": Path(body["examples"]),
                "graph": Path(body["graph"]),
                "base_model": None if base is None else (Path(base[0]), Path(base[1])),
            }
        )

    def run(self) -> TrainingRun:
        """What the function is called with, as yet without folders and without anybody to tell."""
        # Late, so that a process of a trial tells at once that it is there.
        from ..engine import TrainingRun
        from ..engine.training.strategy import strategy
        from ..engine.training.warm_start import read_variables
        from .trainer import device_features

        return TrainingRun(
            features=device_features(self.graph, lambda text: None),
            examples=self.examples,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=self.seed,
            hyperparameters=self.hyperparameters,
            strategy=strategy(self.strategy),
            train_split=self.train_split,
            eval_split=self.eval_split,
            base_model=None if self.base_model is None else read_variables(*self.base_model),
        )
