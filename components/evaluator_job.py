"""What the evaluator of a training needs to know of it: a file in the work folder, from which its run is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..digest import write_durably
from ..pipelines import FunctionRef

if TYPE_CHECKING:
    from ..engine import TrainingRun

_FILE: Final = "evaluator.json"


@dataclass(frozen=True)
class EvaluatorJob:
    """What Trainer was called with, as far as it decides what the function builds and measures.

    Attributes:
        fn: The user's function.
        examples: Content folder of the transformed examples.
        graph: Content folder of the transform graph.
        base_model: Content folder and extra folder of the model that the training begins with; None where none is.
        hyperparameters: As `run.hyperparameters` has them.
        epochs: Passes over the train split.
        batch_size: Rows per step.
        seed: Of the initial parameters and of the order of rows.
        strategy: Its name.
        train_split: The split that is trained on.
        eval_split: The split that is measured.
    """

    fn: FunctionRef
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

    def write(self, folder: Path) -> None:
        """Leave it in the work folder of the training."""
        body = asdict(self) | {
            "fn": {"project": None if self.fn.project is None else str(self.fn.project), "name": self.fn.name},
            "examples": str(self.examples),
            "graph": str(self.graph),
            "base_model": None if self.base_model is None else list(map(str, self.base_model)),
        }
        write_durably(folder / _FILE, json.dumps(body).encode())

    @classmethod
    def read(cls, folder: Path) -> EvaluatorJob | None:
        """What `write` left in a work folder; None where there is nothing yet."""
        try:
            body = json.loads((folder / _FILE).read_bytes())
        except FileNotFoundError:
            return None
        project, base = body["fn"]["project"], body["base_model"]
        paths = {
            "fn": FunctionRef(None if project is None else Path(project), body["fn"]["name"]),
            "examples": Path(body["examples"]),
            "graph": Path(body["graph"]),
            "base_model": None if base is None else (Path(base[0]), Path(base[1])),
        }
        return cls(**body | paths)

    def run(self, folder: Path, patience: float, note: Callable[[str], None]) -> TrainingRun:
        """The evaluator's run.

        Args:
            folder: The work folder of the training.
            patience: Seconds that it waits where no training is at work there.
            note: Called with a line about each checkpoint.
        """
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
            work_dir=folder,
            log_dir=folder / "logs",
            note=note,
            role="evaluator",
            patience=patience,
        )
