"""`registry`: registered models: their versions, aliases and approvals, and all that is known of a version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ..errors import InputError
from ..metadata import ArtifactRecord, Model, PushedModel
from ..pipelines import Home, open_run
from .exit_codes import OK
from .options import ConsoleSettings, parse_tag, print_text, shared, tags_text, who, write_page
from .terminal import echo
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.registry import ModelVersion, RegisteredModel, Registry

Json: TypeAlias = dict[str, Any]  # Any: JSON values

BY: Final = click.option("--by", metavar="NAME", help="Who does this; the user of this shell unless given.")
REASON: Final = click.option("--reason", default="", metavar="TEXT", help="Why; kept with it.")


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain registry register flights --run 20261121-093000-1a2b\n"
    "  drivetrain registry approve flights@3 --by ada\n  drivetrain registry alias flights champion 3\n"
    "  drivetrain registry show flights@champion\n",
)
def registry() -> None:
    """Registered models: versions that never change, aliases that move, approvals, a version's history."""


@registry.command("list", epilog="\b\nExample:\n  drivetrain registry list --json\n")
@shared
def list_(settings: ConsoleSettings) -> int:
    """List the registered models: how many versions each has, and what its aliases stand for."""
    with settings.home() as home:
        models = [_registry(home).model(name) for name in _registry(home).names()]
        settings.answer({"models": [_model_json(model) for model in models]}, lambda console: _list(console, models))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry show flights\n"
    "  drivetrain registry show flights@champion --html champion.html\n"
)
@click.argument("name", metavar="NAME[@VERSION]")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Also write a version as a page.")
@shared
def show(settings: ConsoleSettings, name: str, page: Path | None) -> int:
    """Show a registered model, or of one version, by number or alias, all that is known.

    Of a version: who registered and approved it, its run, code and data, how it was judged and by which thresholds, its
    aliases over time, where it was pushed and is served.
    """
    with settings.home() as home:
        if "@" not in name and page is None:
            model = _registry(home).model(name)
            settings.answer(_model_json(model), lambda console: _show_model(console, model))
            return OK
        version = _version(home, name)
        if page is not None:
            from ..report.model_version import render

            write_page(page, render(version))
        settings.answer(version, lambda console: _show_version(console, version))
    return OK


@registry.command(epilog="\b\nExample:\n  drivetrain registry story flights\n")
@click.argument("name")
@shared
def story(settings: ConsoleSettings, name: str) -> int:
    """Print the history of the registered model NAME, oldest first: what was done, by whom, when, why."""
    with settings.home() as home:
        log = _registry(home).model(name).log
        lines = [f"{entry.at:%Y-%m-%d %H:%M:%S} UTC  {entry}" for entry in log]
        settings.answer({"log": [entry.to_json() for entry in log]}, lambda console: _lines(console, lines))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry register flights --reason 'the May data'\n"
    "  drivetrain registry register flights served/flights/3 --alias champion\n"
)
@click.argument("name")
@click.argument("model", required=False)
@click.option("--run", "run_id", metavar="RUN", help="Its model, where MODEL is not given; else the newest run's.")
@click.option("--alias", default="", metavar="ALIAS", help="Have this alias stand for it, too.")
@REASON
@BY
@shared
def register(
    settings: ConsoleSettings, name: str, model: str | None, run_id: str | None, alias: str, reason: str, by: str | None
) -> int:
    """Make MODEL the next version of the registered model NAME, which is made where there is none.

    MODEL is the URI of an artifact, its uid, the beginning of its fingerprint or of its bundle's digest, or a version
    that was pushed, by its folder or URL. The same model again is the version that it is already.
    """
    if model is not None and run_id is not None:
        raise click.UsageError("--run is for the model of a run, and MODEL names another")
    with settings.home(readonly=False) as home:
        record = _model_of_run(home, run_id) if model is None else _find_model(home, model)
        version = _registry(home).register(name, record, by=who(by), why=reason)
        if alias:
            _registry(home).set_alias(name, alias, version.number, by=who(by), why=reason)
        answer = {"name": name, "version": version.number, "uri": record.uri, "alias": alias or None}
        said = f"{record.uri} is {version}" + (f", and {alias}" if alias else "")
        settings.answer(answer, lambda console: print_text(console, said))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry alias flights champion 3 --reason 'better on every carrier'\n"
    "  drivetrain registry alias flights champion 4 --expected 3\n"
    "  drivetrain registry alias flights challenger --remove\n"
)
@click.argument("name")
@click.argument("alias")
@click.argument("version", required=False, metavar="[VERSION]")
@click.option("--remove", is_flag=True, help="Have it stand for nothing.")
@click.option(
    "--expected",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Only if it stands for this version until then; 0: for none.",
)
@REASON
@BY
@shared
def alias(
    settings: ConsoleSettings,
    name: str,
    alias: str,
    version: str | None,
    remove: bool,
    expected: int | None,
    reason: str,
    by: str | None,
) -> int:
    """Point ALIAS at VERSION of the registered model NAME: a number, or another alias.

    Of two who move it at once, one is told that the other was faster. Where the alias needs approvals, the version must
    have them.
    """
    from ..metadata.registry import ANY_VERSION

    if (version is None) is not remove:
        raise click.UsageError("give a VERSION, or --remove")
    with settings.home(readonly=False) as home:
        models, until = _registry(home), ANY_VERSION if expected is None else expected or None
        if version is None:
            model = models.remove_alias(name, alias, by=who(by), why=reason, expected=until)
        else:
            model = models.set_alias(name, alias, version, by=who(by), why=reason, expected=until)
        said = f"{name}@{model.aliases[alias]} is {alias}" if alias in model.aliases else f"no version is {alias}"
        settings.answer({"name": name, "aliases": dict(model.aliases)}, lambda console: print_text(console, said))
    return OK


@registry.command(epilog="\b\nExample:\n  drivetrain registry approve flights@3 --comment 'read the report'\n")
@click.argument("reference", metavar="NAME@VERSION")
@click.option("--comment", default="", metavar="TEXT", help="Kept with the approval.")
@BY
@shared
def approve(settings: ConsoleSettings, reference: str, comment: str, by: str | None) -> int:
    """Approve a version, by number or alias, for the aliases that need it; the last word of each person counts."""
    return _answer(settings, reference, approved=True, comment=comment, by=by)


@registry.command(epilog="\b\nExample:\n  drivetrain registry reject flights@3 --comment 'see issue 412'\n")
@click.argument("reference", metavar="NAME@VERSION")
@click.option("--comment", default="", metavar="TEXT", help="Kept with the rejection.")
@BY
@shared
def reject(settings: ConsoleSettings, reference: str, comment: str, by: str | None) -> int:
    """Reject a version, by number or alias: no alias that needs approvals moves to it until this is taken back."""
    return _answer(settings, reference, approved=False, comment=comment, by=by)


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry require flights champion --approvals 2 --approver ada --approver bob\n"
    "  drivetrain registry require flights champion --nothing\n"
)
@click.argument("name")
@click.argument("alias")
@click.option("--approvals", type=click.IntRange(min=1), metavar="N", help="How many people have to approve.")
@click.option("--approver", "approvers", multiple=True, metavar="NAME", help="Who may; anybody unless given.")
@click.option("--allow-own", is_flag=True, help="Also who registered the version, or started the run that trained it.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="For how many days an approval counts.")
@click.option("--nothing", is_flag=True, help="Nobody has to approve.")
@REASON
@BY
@shared
def require(
    settings: ConsoleSettings,
    name: str,
    alias: str,
    approvals: int | None,
    approvers: tuple[str, ...],
    allow_own: bool,
    days: float | None,
    nothing: bool,
    reason: str,
    by: str | None,
) -> int:
    """Say who has to approve a version of the registered model NAME before ALIAS may move to it."""
    from ..metadata.approvals import ApprovalRule

    if (approvals is None) is not nothing:
        raise click.UsageError("give --approvals N, or --nothing")
    rule = None if approvals is None else ApprovalRule(approvals, approvers, allow_own, days)
    with settings.home(readonly=False) as home:
        _registry(home).require(name, alias, rule, by=who(by), why=reason)
        said = f"{alias} of {name} needs {rule or 'no approval'}"
        answer = {"name": name, "alias": alias, "rule": rule and rule.to_json()}
        settings.answer(answer, lambda console: print_text(console, said))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry describe flights --description 'Late or not' --tag team=ops\n"
    "  drivetrain registry describe flights@3 --tag weights=pruned --remove-tag draft\n"
)
@click.argument("name", metavar="NAME[@VERSION]")
@click.option("--description", metavar="TEXT", help="In a sentence or two.")
@click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="Tag it.")
@click.option("--remove-tag", "removed", multiple=True, metavar="NAME", help="Take this tag away.")
@BY
@shared
def describe(
    settings: ConsoleSettings,
    name: str,
    description: str | None,
    tags: tuple[str, ...],
    removed: tuple[str, ...],
    by: str | None,
) -> int:
    """Describe or tag a registered model, or one of its versions."""
    changes = {tag: value or "" for tag, value in map(parse_tag, tags)} | dict.fromkeys(removed)
    if description is None and not changes:
        raise click.UsageError("give --description, --tag or --remove-tag")
    with settings.home(readonly=False) as home:
        version = _registry(home).resolve(name) if "@" in name else None
        model = _registry(home).describe(
            name.partition("@")[0],
            None if version is None else version.number,
            description=description,
            tags=changes,
            by=who(by),
        )
        described = model if version is None else model.version(version.number)
        answer = {"name": name, "description": described.description, "tags": dict(described.tags)}
        said = "; ".join(filter(None, [described.description, tags_text(described.tags)]))
        settings.answer(answer, lambda console: print_text(console, said))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry card flights@champion\n"
    "  drivetrain registry card flights@3 --words card.yaml --html card.html\n"
)
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option(
    "--words", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="What a person says of it: YAML or JSON with the same fields, in place of what is known.",
)  # fmt: skip
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Also write it as a page.")
@shared
def card(settings: ConsoleSettings, reference: str, words: Path | None, page: Path | None) -> int:
    """Print the model card of a version as JSON, with the fields of Model Card Toolkit, from all that is known."""
    from .artifact_pages import signatures_in
    from .model_card import model_card, read_words
    from .session import payload_file

    with settings.home() as home:
        version = _version(home, reference)
        model = home.store.artifact(version["uid"])
        signatures = dict(signatures_in(payload_file(home, model, "content/manifest.json") or b"{}"))
        body = model_card(version, signatures, {} if words is None else read_words(words))
    if page is not None:
        from ..report.model_card import render

        write_page(page, render(body))
    settings.answer(body, lambda console: print_text(console, json.dumps(body, indent=2, ensure_ascii=False)))
    return OK


@registry.command(
    epilog="\b\nExample:\n  drivetrain registry serve\n"
    "  drivetrain registry serve --host 0.0.0.0 --keys keys.yaml --tls-cert server.pem --tls-key server.key\n"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of them.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="For HTTP; 0: any that is free."
)
@click.option(
    "--keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="A YAML file of who may ask, as of `drivetrain serve`; anybody unless given.",
)  # fmt: skip
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), default=None, metavar="FILE", help="A certificate in PEM: TLS only."
)
@click.option("--tls-key", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Its key in PEM.")
@shared
def serve(
    settings: ConsoleSettings, host: str, port: int, keys: Path | None, tls_cert: Path | None, tls_key: Path | None
) -> int:
    """Answer MLflow's clients, which then find the registered models, until it is told to end; it changes nothing.

    MLFLOW_TRACKING_URI is its address, MLFLOW_TRACKING_TOKEN a key. A version's source is the folder of its bundle.
    """
    from ..serving.mlflow_registry import MlflowRegistry
    from ..serving.registry_server import RegistryServerOptions, run_registry_server
    from ..serving.server import log_to_stderr
    from ..serving.tls import TlsFiles

    if (tls_cert is None) != (tls_key is None):
        raise InputError("TLS needs a certificate and its key", fix="give --tls-cert and --tls-key")
    tls = TlsFiles(tls_cert, tls_key) if tls_cert and tls_key else None
    log_to_stderr()
    with settings.home() as home:

        def locate(record: ArtifactRecord) -> str:
            if record.external is not None:
                return record.external
            base = home.payloads.url or home.root.as_uri()
            return f"{base.rstrip('/')}/{record.uri}/content"

        def started(address: str) -> None:
            echo(json.dumps({"address": address}) if settings.json else f"registered models at {address} until Ctrl-C")

        options = RegistryServerOptions(host, port, keys, tls)
        run_registry_server(MlflowRegistry(_registry(home), locate), options, started)
    return OK


def _registry(home: Home) -> Registry:
    from ..metadata.registry import Registry

    return Registry(home.store)


def _answer(settings: ConsoleSettings, reference: str, *, approved: bool, comment: str, by: str | None) -> int:
    with settings.home(readonly=False) as home:
        models = _registry(home)
        version = models.resolve(reference)
        model = models.answer(version.model, version.number, approved=approved, by=who(by), comment=comment)
        rules = _rules(models, model, model.version(version.number))
        said = model.log[-1].by  # a metadata server goes by the key, not by what is said here
        lines = [f"{version} {'approved' if approved else 'rejected'} by {said}"]
        lines += [
            f"{name} may move to it" if rule["approved"] else f"{name} may not move to it yet: {rule['missing']}"
            for name, rule in rules.items()
        ]
        answer = {"name": version.model, "version": version.number, "approved": approved, "rules": rules}
        settings.answer(answer, lambda console: _lines(console, lines))
    return OK


def _find_model(home: Home, start: str) -> ArtifactRecord:
    from .lineage import find_artifact

    record = find_artifact(home, start)
    if record is not None and record.type == PushedModel.__name__ and record.producer is not None:
        models = home.store.inputs(home.store.execution(record.producer)).get("model", [])
        record = models[0] if models else None
    if record is None:
        raise InputError(
            f"{start!r:.200} is not an artifact in {home.root}", fix="name a URI that `drivetrain show` prints"
        )
    return record


def _model_of_run(home: Home, run_id: str | None) -> ArtifactRecord:
    run = open_run(home, run_id)
    executions = home.store.executions(context=run.context)
    outputs = (record for each in executions for records in home.store.outputs(each).values() for record in records)
    models = {record.uid: record for record in outputs if record.type == Model.__name__}
    if len(models) != 1:
        names = ", ".join(record.uri for record in models.values())
        raise InputError(
            f"run {run.id} made {'several models' if models else 'no model'}",
            fix=f"name one of {names}" if models else "name the run that trained it: --run",
        )
    return next(iter(models.values()))


# --- as JSON ---


def _model_json(model: RegisteredModel) -> Json:
    return {
        "name": model.name,
        "description": model.description,
        "tags": dict(model.tags),
        "aliases": dict(model.aliases),
        "rules": {name: rule.to_json() for name, rule in model.rules.items()},
        "versions": [
            {
                "version": each.number,
                "artifact": each.artifact,
                "by": each.by,
                "at": each.at.isoformat(),
                "why": each.why,
                "description": each.description,
                "tags": dict(each.tags),
                "aliases": model.aliases_of(each),
            }
            for each in model.versions
        ],
    }


def _rules(models: Registry, model: RegisteredModel, version: ModelVersion) -> dict[str, Json]:
    """By alias that needs approvals: the rule, whether the version has what it asks for, and what is missing."""
    judged = {alias: models.judge(model, version, alias) for alias in model.rules}
    return {
        alias: {"rule": str(model.rules[alias]), "approved": judgement.approved, "missing": judgement.missing}
        for alias, judgement in judged.items()
        if judgement is not None
    }


def _version(home: Home, reference: str) -> Json:
    """All that is known of a version."""
    from .model_story import story_of

    models = _registry(home)
    version = models.resolve(reference)
    model = models.model(version.model)
    record = models.artifact(version)
    log = [
        {"at": entry.at.isoformat(), "text": str(entry)}
        for entry in model.log
        if version.number in (entry.facts.get("version"), entry.facts.get("before"))
    ]
    story = story_of(home, record)
    others = [each for each in story["versions"] if each["name"] != str(version)]
    return {
        "name": str(version),
        "model_description": model.description,
        "description": version.description,
        "tags": dict(version.tags),
        "aliases": model.aliases_of(version),
        "uid": record.uid,
        "state": record.state,
        "registered": {"by": version.by, "at": version.at.isoformat(), "why": version.why},
        "makers": list(version.makers),
        "rules": _rules(models, model, version),
        "answers": [each.to_json() for each in version.answers],
        "log": log,
        **story,
        "versions": others,
    }


# --- for people ---


def _list(console: Console, models: list[RegisteredModel]) -> None:
    if not models:
        print_text(console, "no models are registered: `drivetrain registry register NAME`, or the component Register")
    for model in models:
        count = len(model.versions)
        aliases = ", ".join(f"{name} is {number}" for name, number in sorted(model.aliases.items()))
        line = f"{model.name}  {count} version{'' if count == 1 else 's'}" + (f"; {aliases}" if aliases else "")
        print_text(console, line)


def _show_model(console: Console, model: RegisteredModel) -> None:
    print_text(console, model.name + (f": {model.description}" if model.description else ""))
    if model.tags:
        print_text(console, f"  tagged {tags_text(model.tags)}")
    for alias, rule in model.rules.items():
        print_text(console, f"  {alias} needs {rule}")
    for version in reversed(model.versions):
        words = [f"{version.at:%Y-%m-%d %H:%M} UTC by {version.by}", version.why, version.description]
        aliases = "".join(f" [{alias}]" for alias in model.aliases_of(version))
        print_text(console, f"  {version.number}{aliases}  {'; '.join(filter(None, words))}")


def _show_version(console: Console, version: Mapping[str, Any]) -> None:
    from .model_story import print_line, push_line, show_story

    line = partial(print_line, console)
    aliases = "".join(f" [{alias}]" for alias in version["aliases"])
    gone = "" if version["state"] == "LIVE" else f", {version['state']}"
    print_text(console, f"{version['name']}{aliases}, bundle {version['bundle'][:12]}{gone}")
    if version["description"]:
        line("", version["description"])
    if version["tags"]:
        line("tagged", tags_text(version["tags"]))
    for entry in version["log"]:
        line("registry", f"{entry['at'][:19].replace('T', ' ')} UTC  {entry['text']}")
    for alias, rule in version["rules"].items():
        line("approval", f"{alias} may move here" if rule["approved"] else f"{alias} may not: {rule['missing']}")
    show_story(console, version)
    for evaluation in version["evaluations"]:
        for check in evaluation["thresholds"]:
            verdict = {True: "pass", False: "fail"}.get(check.get("passed"), "not judged")
            line("threshold", f"{verdict}: {check.get('text') or check.get('metric')}")
    for push in version["pushed"]:
        line("pushed", push_line(push))


def _lines(console: Console, lines: list[str]) -> None:
    print_text(console, "\n".join(lines) or "nothing yet")
