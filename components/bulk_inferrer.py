"""BulkInferrer: applies trained models to examples, and keeps keys and columns beside what they say."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..errors import InputError, suggest
from ..metadata import Artifact, Evaluation, Examples, Model, Predictions, Summary, summarize
from ..pipelines import component, current
from ..progress import part_of

if TYPE_CHECKING:
    from ..data import Manifest, Source
    from ..data.base import Executor
    from ..engine import Bundle, FieldSpec
    from ..pipelines.project.context import LaunchContext
    from .inference import Inference, ModelCall, Rejections
    from .output_means import OutputMeans

A = TypeVar("A", bound=Artifact)

_REJECTED: Final = "rejected"
_FACTS: Final = "predictions.json"
_QUOTED: Final = 5
"""Reasons that are quoted of the rows that were set aside."""
_WIDEST: Final = 16
"""Numbers of a vector, at most, for which the mean of each is computed: of embeddings nobody reads it."""
_COLUMNS: Final = 8
"""Means that a summary's table shows at most; `predictions.json` has all."""


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse parameters that contradict themselves, or do not fit examples that are there while a model is trained."""
    for parameter in ("signatures", "names", "splits", "keep"):
        values = known.get(parameter)
        if isinstance(values, str):
            raise InputError(f"{parameter} is a list, not {values!r}", fix=f"{parameter}=[{values!r}]")
        if isinstance(values, Sequence):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise InputError(f"{parameter} names {twice[0]!r} twice", fix="name it once")
            if not values and parameter in ("signatures", "splits"):
                raise InputError(f"{parameter} is empty", fix="name at least one")
    most = known.get("max_rejected")
    if isinstance(most, int) and most < 0:
        raise InputError(f"max_rejected must be at least 0, not {most}", fix="0 refuses every row that cannot be used")
    examples = known.get("examples")
    if coming and isinstance(examples, Examples) and {"splits", "keep"} <= known.keys():
        from ..data.examples import refuse_transformed

        for model in coming.values():
            refuse_transformed(examples.content, cast(str | None, model.get("graph")))
        splits, keep = (cast(Sequence[str] | None, known[name]) for name in ("splits", "keep"))
        _selection(examples, splits, keep)


@component(preflight=_refuse)
def BulkInferrer(
    examples: Examples,
    models: list[Model],
    *,
    evaluations: list[Evaluation] | None = None,
    require_blessing: bool = True,
    signatures: Sequence[str] = ("predict",),
    names: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    max_rejected: int = 100,
) -> Predictions:
    """Predictions of blessed models for every row, on any executor.

    `with dt.when(evaluation.blessed): BulkInferrer(examples, [model], evaluations=[evaluation])` is skipped where the
    model is not blessed. A row that a model cannot use is set aside with the reason, and the others go on. A NaN that a
    model returns is kept and counted.

    Args:
        examples: Raw examples, as the models' bundles read them.
        models: The models to apply, side by side.
        evaluations: The evaluation of each model, in the same order: each must bless its model.
        require_blessing: False applies models whether they are blessed or not.
        signatures: The signatures of each model to run.
        names: What the models are called, in their order; where there are several, model_1, model_2 and so on unless
            said. An output `p` of the model `new` is the column `new_p`; of several signatures, `new_predict_p`.
        splits: The splits to use; by default all.
        keep: The columns of the examples to put before the outputs, e.g. their keys; by default all.
        max_rejected: More rows than this that cannot be used, over all splits, are an error.

    Returns:
        Predictions: Parquet by split, as of Examples; `content/rejected` with the rows that were set aside and the
        column `reason` (`rejection_reason` where the examples have a column `reason`); `content/predictions.json` with
        the mean of each output.

    Raises:
        InputError: A model is not blessed, or nothing says so; no such split, column or signature; an output is called
            like a kept column or another output; no row can be used, or more than `max_rejected` cannot.
        BundleError: A bundle is damaged or cannot be run.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from ..data import Manifest, executor, open_examples
    from ..data.examples import refuse_transformed
    from ..engine import Bundle
    from ..engine.bundles.compile_cache import compiled_kept
    from .inference import REASON, Inference, Rejections
    from .output_means import OutputMeans

    parameters = {"signatures": signatures, "names": names, "splits": splits, "keep": keep}
    _refuse({**parameters, "max_rejected": max_rejected}, {})
    models, evaluations = _listed(models), _listed(evaluations)
    labels = _labels(models, names)
    if require_blessing:
        _check_blessed(labels, models, evaluations)
    for model in models:
        refuse_transformed(examples.content, model.graph)
    chosen, kept = _selection(examples, splits, keep)
    sources = {name: open_examples(examples.content, name) for name in chosen}
    available = sources[chosen[0]].schema.names
    bundles = {model.content: Bundle.load(model.content) for model in models}
    calls = _calls(models, labels, signatures, bundles)
    _check_names(calls, kept)
    wanted = {*kept, *_read(calls, bundles, available)}
    columns = [name for name in available if name in wanted]
    sources = {name: source.select(columns).with_dictionaries() for name, source in sources.items()}

    launch = current()
    predictions = Predictions.new(span=examples.span, version=examples.version)
    predictions.outputs = [column for call in calls for column in call.outputs.values()]
    inference = Inference(calls, kept, max_rejected, bundles)
    rejections = Rejections(inference, REASON if REASON not in columns else f"rejection_{REASON}")
    specs = _specs(calls, bundles)
    plain = [name for name, spec in specs.items() if spec.dtype.startswith("float")]
    means = {name: OutputMeans(_widths(specs)) for name in chosen}
    walk = executor(launch.executor, launch.executor_options)
    with compiled_kept():  # a model is applied to new rows again and again
        written, rejected = _apply(rejections, sources, predictions.content, plain, means, walk, launch)
    manifest = Manifest.joined(written).write(predictions.content, span=examples.span)
    reasons: list[str] = []
    if rejected:
        aside = Manifest.joined(rejected).write(predictions.content / _REJECTED, span=examples.span)
        reasons = list(_reasons(predictions.content / _REJECTED, list(aside.rows), rejections.reason))
    if rejected and not any(manifest.rows.values()):
        count = sum(source.rows for source in sources.values())
        raise InputError(
            f"not one of the {count:,} rows can be used; the first: {reasons[0]}",
            fix="give examples of the kind that the model was trained on",
        )
    predictions.rows = manifest.rows
    predictions.rejected = {name: sources[name].rows - rows for name, rows in manifest.rows.items()}
    described = {
        name: {"rows": rows, "rejected": predictions.rejected[name], "outputs": means[name].result()}
        for name, rows in manifest.rows.items()
    }
    facts = {"splits": described, "reasons": reasons}
    text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)
    (predictions.content / _FACTS).write_text(text + "\n", "utf-8")
    predictions.summary = _line(facts)
    launch.note(predictions.summary)
    return predictions


def _apply(
    rejections: Rejections,
    sources: Mapping[str, Source],
    content: Path,
    plain: Iterable[str],
    means: Mapping[str, OutputMeans],
    walk: Executor,
    launch: LaunchContext,
) -> tuple[list[Manifest], list[Manifest]]:
    """Write the predictions of each split, and of the splits that have such, the rows that were set aside.

    The means of what is written of a split go to `means`.
    """
    from ..data import sinks
    from .inference import too_many

    inference = rejections.inference
    total, before, aside = sum(source.rows for source in sources.values()), 0, 0
    written: list[Manifest] = []
    rejected: list[Manifest] = []
    for name, source in sources.items():
        progress = part_of(launch.progress, before, total)
        manifest = walk.map(source, inference, sinks(content, [name], plain), tally=means[name], progress=progress)
        written.append(manifest)
        before += source.rows
        aside += source.rows - manifest.rows[name]
        # Rows that fail are rare: only the shards that lost some are read again, for these rows and their reasons.
        pairs = zip(source.shards, manifest.parts(name), strict=True)
        short = replace(source, shards=tuple(shard for shard, part in pairs if part.rows < shard.rows))
        if short.shards:
            if aside > inference.most:
                raise too_many(inference.most, _first_reason(inference, short))
            # Its rows were counted; progress only ends the pass where the run is to stop.
            folders = sinks(content / _REJECTED, [name])
            rejected.append(walk.map(short, rejections, folders, progress=lambda *_: launch.check()))
    return written, rejected


def _listed(artifacts: list[A] | A | None) -> list[A]:
    """The artifacts of an input as a list: in a pipeline one output may stand for it, so in a plain call it may too."""
    return [] if artifacts is None else artifacts if isinstance(artifacts, list) else [artifacts]


def _labels(models: Sequence[Model], names: Sequence[str] | None) -> list[str]:
    """What each model is called in columns and errors; empty for a single one without a name."""
    if not models:
        raise InputError("there is no model to apply", fix="give at least one; a history may hold none yet")
    if names is None:
        return [""] if len(models) == 1 else [f"model_{number}" for number in range(1, len(models) + 1)]
    if len(names) != len(models):
        raise InputError(f"{len(names)} names for {len(models)} models", fix="name each model, in their order")
    return list(names)


def _check_blessed(labels: Sequence[str], models: Sequence[Model], evaluations: Sequence[Evaluation]) -> None:
    """Refuse a model that its evaluation does not bless, or that has none."""
    for label, model, evaluation in zip_longest(labels, models, evaluations):
        if label is None:
            raise InputError(
                f"{len(evaluations)} evaluations for {len(labels)} models", fix="give the evaluation of each model"
            )
        if evaluation is None:
            raise InputError(
                f"nothing says that {_called(label)} is blessed",
                fix="give evaluations=[evaluation], in the order of the models; or say require_blessing=False",
            )
        if evaluation.judged and model.fingerprint and evaluation.judged != model.fingerprint:
            raise InputError(
                f"the evaluation given for {_called(label)} judged another model",
                fix="give evaluations=[…] in the order of the models",
            )
        if not evaluation.blessed:
            raise InputError(
                f"{_called(label)} is not blessed: {evaluation.summary or 'its evaluation says so'}",
                fix="skip this by `with dt.when(evaluation.blessed):`; or say require_blessing=False",
            )


def _selection(
    examples: Examples, splits: Sequence[str] | None, keep: Sequence[str] | None
) -> tuple[list[str], tuple[str, ...]]:
    """The splits to use, and the columns to keep."""
    from ..data import Manifest

    manifest = Manifest.read(examples.content)
    known, columns = list(manifest.rows), [name for name, _ in manifest.schema]
    for split in splits or ():
        manifest.parts(split)  # raises where there is no such split
    for column in keep or ():
        if column not in columns:
            raise InputError(
                f"keep names the column {column!r}, which the examples do not have",
                fix=suggest(column, columns, "they have"),
            )
    return list(known if splits is None else splits), tuple(columns if keep is None else keep)


def _calls(
    models: Sequence[Model], labels: Sequence[str], signatures: Sequence[str], bundles: Mapping[Path, Bundle]
) -> tuple[ModelCall, ...]:
    """Each signature of each model, with what its outputs are called."""
    from .inference import ModelCall

    calls = []
    for model, label in zip(models, labels, strict=True):
        there = bundles[model.content].signatures
        for signature in signatures:
            if signature not in there:
                raise InputError(
                    f"{_called(label)} has no signature {signature!r}", fix=suggest(signature, list(there))
                )
            prefix = [part for part in (label, signature if len(signatures) > 1 else "") if part]
            outputs = {name: "_".join([*prefix, name]) for name in there[signature].outputs}
            calls.append(ModelCall(model.content, signature, outputs, " ".join(prefix)))
    return tuple(calls)


def _called(label: str) -> str:
    return f"the model {label!r}" if label else "the model"


def _check_names(calls: Sequence[ModelCall], kept: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    outputs = Counter(column for call in calls for column in call.outputs.values())
    for name, count in outputs.items():
        if count > 1:
            raise InputError(f"two outputs would be the column {name!r}", fix="give the models other names by names=")
        if name in kept:
            raise InputError(
                f"the output {name!r} has the name of a column of the examples that is kept",
                fix=f"leave {name!r} out of keep=, or call the model something by names=",
            )


def _read(calls: Sequence[ModelCall], bundles: Mapping[Path, Bundle], available: Sequence[str]) -> Iterator[str]:
    """The columns that the models read of the examples."""
    for call in calls:
        for column in bundles[call.path].signatures[call.signature].read_from(available):
            if column not in available:
                raise InputError(
                    f"{call.name or 'the model'} reads the column {column!r}, which the examples do not have",
                    fix=suggest(column, available, "they have"),
                )
            yield column


def _first_reason(inference: Inference, source: Source) -> str:
    """Why the first row of a source that cannot be used is unusable."""
    for batch in source.read(0):
        _, _, reasons = inference.run(batch)
        if reasons:
            return next(iter(reasons.values()))
    return "it was read once more, and could be used"


def _reasons(content: Path, splits: Sequence[str], column: str) -> Iterator[str]:
    """The first reasons of the rows that were set aside."""
    from ..data import open_examples

    sources = [open_examples(content, split, [column]) for split in splits]
    batches = (batch for source in sources for shard in source.shards for batch in source.read(shard))
    yield from islice((reason for batch in batches for reason in batch.column(0).to_pylist()), _QUOTED)


def _specs(calls: Sequence[ModelCall], bundles: Mapping[Path, Bundle]) -> dict[str, FieldSpec]:
    """What the column of each output holds."""
    return {
        column: bundles[call.path].signatures[call.signature].outputs[name]
        for call in calls
        for name, column in call.outputs.items()
    }


def _widths(specs: Mapping[str, FieldSpec]) -> dict[str, int | None]:
    """The columns whose mean says something, with how many numbers a row has: None for a scalar."""
    widths = {name: math.prod(spec.shape) if spec.shape else None for name, spec in specs.items()}
    numbers = {name for name, spec in specs.items() if spec.dtype != "string" and not spec.dtype.startswith("list")}
    return {name: width for name, width in widths.items() if name in numbers and (width is None or width <= _WIDEST)}


def _line(facts: Mapping[str, Any]) -> str:
    """One line on all splits."""
    splits = facts["splits"].values()
    line = f"{sum(each['rows'] for each in splits):,} rows predicted"
    if aside := sum(each["rejected"] for each in splits):
        line += f", {aside:,} rejected ({facts['reasons'][0]})"
    undefined: Counter[str] = Counter()
    for each in splits:
        undefined.update({name: output["undefined"] for name, output in each["outputs"].items()})
    odd = [f"{count:,} of {name}" for name, count in undefined.items() if count]
    return f"{line}; missing, NaN or infinite: {', '.join(odd)}" if odd else line


@summarize.register
def _rows_and_means(predictions: Predictions) -> Summary:
    """Rows, rejected rows and the mean of each output by split; of a user's own predictions their one line."""
    path = predictions.content / _FACTS
    line = str(predictions.properties.get("summary", ""))
    if not path.is_file():
        return Summary(line)
    facts = json.loads(path.read_text("utf-8"))
    numbers: dict[str, float | None] = {}
    rows, means = [], dict[str, float | None]()
    for split, each in facts["splits"].items():
        means = dict(_flat(each["outputs"]))
        numbers |= {f"{split}.{name}": mean for name, mean in means.items()} | {f"{split}.rejected": each["rejected"]}
        shown = ["–" if mean is None else f"{mean:.4f}" for mean in list(means.values())[:_COLUMNS]]
        rows.append((split, f"{each['rows']:,}", f"{each['rejected']:,}", *shown))
    columns = ("split", "rows", "rejected", *(f"mean {name}" for name in list(means)[:_COLUMNS]))
    text = "\n".join([line, *(f"  rejected: {reason}" for reason in facts["reasons"])])
    return Summary(text, columns, tuple(rows), numbers)


def _flat(outputs: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Each mean by name; those of a vector by name and position."""
    for name, output in outputs.items():
        if isinstance(output["mean"], list):
            yield from ((f"{name}[{position}]", mean) for position, mean in enumerate(output["mean"]))
        else:
            yield name, output["mean"]
