"""`bless`: bless a model that its evaluation did not, with who and why."""

from __future__ import annotations

import click

from ..errors import InputError, suggest
from ..metadata import ArtifactRecord, Evaluation, PushedModel
from ..pipelines import Home, Run, open_run
from ..pipelines.ir.ir import CANDIDATE
from ..pipelines.ir.tasks import task_name
from ..pipelines.launcher.flow import Flow
from ..pipelines.launcher.verdicts import decisions, overrule
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared, who


@click.command(
    epilog="\b\nExample:\n  drivetrain bless --reason 'the test split had a broken week, see issue 412'\n"
    "  drivetrain bless 20261121-093000-1a2b Evaluator --by ada --reason 'agreed with risk'\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.argument("node", required=False)
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept with the evaluation.")
@click.option("--by", default=None, metavar="NAME", help="Who decides; the user of this shell unless given.")
@shared
def bless(settings: ConsoleSettings, run_id: str | None, node: str | None, reason: str, by: str | None) -> int:
    """Bless the model that NODE of RUN (the newest unless given) judged and did not bless.

    From then on it counts as blessed, in later runs too: run the pipeline again to push it. The evaluation's files stay
    as they are; `show` and `runs` tell who decided, and why.
    """
    return decide(settings, run_id, node, blessed=True, reason=reason, by=by)


def decide(
    settings: ConsoleSettings, run_id: str | None, node: str | None, *, blessed: bool, reason: str, by: str | None
) -> int:
    """Overrule the evaluation of a run, and say so."""
    with settings.home(readonly=False) as home:
        run = open_run(home, run_id)
        task, evaluation = _evaluation(home, run, node)
        by = who(by)
        changed = overrule(home.store, evaluation, blessed=blessed, by=by, reason=reason)
        others = [] if blessed else _others_that_bless(home, evaluation)
        for other in others:  # else the model would still be `latest_blessed()` by one of them
            overrule(home.store, other, blessed=False, by=by, reason=reason)
        pushed = [] if blessed else _pushed(home, evaluation)
        entry = decisions(changed)[-1]
        lines = [f"{task} of run {run.id}: the model is {'' if blessed else 'not '}blessed, by {entry['by']}"]
        if others:
            lines.append(
                f"{len(others)} more {'evaluation' if len(others) == 1 else 'evaluations'} had blessed it: no more"
            )
        if pushed:
            lines.append(f"it was pushed already, to {'; '.join(pushed)}: push another model, or take it down there")
        answer = {"run": run.id, "node": task, **entry, "others": len(others), "pushed": pushed}
        settings.answer(answer, lambda console: print_text(console, "\n".join(lines)))
    return OK


def _evaluation(home: Home, run: Run, node: str | None) -> tuple[str, ArtifactRecord]:
    """The task of a run that judged a model, and its evaluation."""
    flow = Flow(home.store, run)
    judged = {
        task_name(each, index): record
        for each in run.pipeline.ids
        for index in flow.tasks(each)
        for records in flow.outputs(each, index).values()
        for record in records
        if record.type == Evaluation.__name__
    }
    if not judged:
        raise InputError(f"run {run.id} judged no model", fix="name a run that did: `drivetrain runs` lists them")
    if node is None and len(judged) > 1:
        names = ", ".join(judged)
        raise InputError(f"run {run.id} judged several models: {names}", fix=f"name one, after the run: {run.id} NODE")
    name = next(iter(judged)) if node is None else node
    if name not in judged:
        raise InputError(f"{name} of run {run.id} judged no model", fix=suggest(name, list(judged), "these did"))
    return name, judged[name]


def _pushed(home: Home, evaluation: ArtifactRecord) -> list[str]:
    """Where the model of an evaluation was pushed to."""
    models = _models(home, evaluation)
    locations = (
        f"{receipt.properties.get('destination')}, version {receipt.properties.get('version')}"
        for receipt in home.store.artifacts(type=PushedModel.__name__)
        if models & _models(home, receipt)
    )
    return list(dict.fromkeys(locations))


def _others_that_bless(home: Home, evaluation: ArtifactRecord) -> list[ArtifactRecord]:
    """The other evaluations that bless the same model: with other thresholds, say, or other data."""
    models = _models(home, evaluation)
    return [
        other
        for other in home.store.artifacts(type=Evaluation.__name__)
        if other.id != evaluation.id and other.properties.get("blessed") is True and models & _models(home, other)
    ]


def _models(home: Home, verdict: ArtifactRecord) -> set[int]:
    """The models that an evaluation or a receipt is about."""
    if verdict.producer is None:
        return set()
    return {model.id for model in home.store.inputs(home.store.execution(verdict.producer)).get(CANDIDATE, [])}
