"""The registry: models by name, in versions that never change, with aliases that move when the right people agree.

Each model is one log in the store. An entry is a context of its own, named by its number, so whoever makes entry 7 has
seen the first six, and of two processes that make it at once the store keeps one: that is the compare-and-set. What is
so now is what the entries say, one after another; nothing is ever changed or removed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from ..errors import InputError, suggest
from ..redaction import redact
from . import rows, writes
from .approvals import ApprovalAnswer, ApprovalRule, Judgement
from .database import Transaction
from .errors import ConflictError, NotFound, StateError, StoreDamaged
from .operations import Remote, operation
from .records import ArtifactRecord, ContextRecord
from .roles import REGISTRY_LOG, role_for_context
from .store import MetadataStore
from .types import Artifact, Model, artifact_type

LATEST: Final = "latest"
"""The alias that every model has: its newest version."""
EntryKind: TypeAlias = Literal["version", "alias", "answer", "rule", "words"]
Json: TypeAlias = dict[str, Any]  # Any: JSON values

_MODEL: Final = "registered_model"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
_ALIAS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_NUMBER: Final = re.compile(r"v?[0-9]+", re.IGNORECASE)  # what looks like a version
_VERSION: Final = re.compile(r"[0-9]{1,9}")
ANY_VERSION: Final = -1
"""`expected` of an alias that may stand for any version, or none."""


@dataclass(frozen=True)
class RegistryEntry:
    """One thing that was done to a registered model.

    Attributes:
        number: Which one it is, from 1 on.
        kind: "version": one was registered; "alias": one was moved or removed; "answer": somebody approved or rejected
            a version; "rule": who has to agree to an alias was changed; "words": tags or a description were.
        at: When (UTC).
        by: Who.
        why: Why, or what they commented.
        facts: What else is known of it, by kind.
    """

    number: int
    kind: EntryKind | str  # a newer release may have others
    at: datetime
    by: str
    why: str
    facts: Json = field(hash=False)

    def to_json(self) -> Json:
        """As `registry story --json` prints it."""
        body = {"number": self.number, "kind": self.kind, "at": self.at.isoformat(), "by": self.by, "why": self.why}
        return body | self.facts

    def __str__(self) -> str:
        facts, reason = self.facts, f": {self.why}" if self.why else ""
        match self.kind:
            case "version":
                text = f"version {facts['version']} registered by {self.by}"
            case "answer":
                text = f"version {facts['version']} {'approved' if facts['approved'] else 'rejected'} by {self.by}"
            case "rule":
                rule = "nobody has to agree" if facts["rule"] is None else ApprovalRule.from_json(facts["rule"])
                text = f"{facts['alias']} needs: {rule}, said {self.by}"
            case "words":
                whose = "" if facts["version"] is None else f" of version {facts['version']}"
                text = f"the description or the tags{whose} changed by {self.by}"
            case "alias":
                before = "" if facts["before"] is None else f" from version {facts['before']}"
                after = "removed" if facts["version"] is None else f"moved to version {facts['version']}"
                text = f"{facts['alias']} {after}{before} by {self.by}"
            case _:
                text = f"{self.kind} by {self.by}"
        return text + reason


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model.

    Attributes:
        model: The model's name.
        number: From 1 on, without gaps.
        artifact: The model artifact's uid.
        fingerprint: That of its content.
        by: Who registered it.
        makers: Who registered it, and who started the run that trained it, where that is known.
        at: When it was registered (UTC).
        why: Why.
        description: In a sentence or two.
        tags: Text by name.
        answers: Who approved or rejected it, the first one first.
    """

    model: str
    number: int
    artifact: str
    fingerprint: str
    by: str
    makers: tuple[str, ...]
    at: datetime
    why: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    answers: tuple[ApprovalAnswer, ...] = ()

    def __str__(self) -> str:
        return f"{self.model}@{self.number}"


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model, as its log says it is.

    Attributes:
        name: Its name.
        description: In a sentence or two.
        tags: Text by name.
        versions: The first one first.
        aliases: Alias → the number of the version that it stands for.
        rules: Alias → who has to agree before it moves.
        log: All that was done.
    """

    name: str
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    versions: tuple[ModelVersion, ...] = ()
    aliases: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: Mapping[str, ApprovalRule] = field(default_factory=dict, hash=False)
    log: tuple[RegistryEntry, ...] = ()

    def version(self, reference: int | str = LATEST) -> ModelVersion:
        """A version by its number or an alias; the newest for "latest".

        Raises:
            NotFound: There is none.
        """
        if not self.versions:
            raise NotFound(f"the registered model {self.name!r} has no version yet", fix="register a model under it")
        if isinstance(reference, str) and _VERSION.fullmatch(reference):
            reference = int(reference)
        if isinstance(reference, int):
            if not 1 <= reference <= len(self.versions):
                raise NotFound(
                    f"the registered model {self.name!r} has no version {reference}",
                    fix=f"it has 1 to {len(self.versions)}",
                )
            return self.versions[reference - 1]
        if reference != LATEST and reference not in self.aliases:
            raise NotFound(
                f"the registered model {self.name!r} has no alias {reference!r}",
                fix=suggest(reference, [*self.aliases, LATEST], "it has"),
            )
        return self.versions[self.aliases.get(reference, len(self.versions)) - 1]

    def aliases_of(self, version: ModelVersion) -> list[str]:
        """The aliases that stand for a version, sorted."""
        return sorted(alias for alias, number in self.aliases.items() if number == version.number)


def model_from_log(name: str, log: tuple[RegistryEntry, ...]) -> RegisteredModel:
    """The model that a log gives."""
    versions: list[ModelVersion] = []
    aliases: dict[str, int] = {}
    rules: dict[str, ApprovalRule] = {}
    description, tags = "", dict[str, str]()
    for entry in log:
        facts = entry.facts
        match entry.kind:
            case "version":
                makers = tuple(facts["makers"])
                versions.append(
                    ModelVersion(
                        name, facts["version"], facts["artifact"], facts["fingerprint"], entry.by, makers, entry.at,
                        entry.why,
                    )
                )  # fmt: skip
            case "answer":
                at = facts["version"] - 1
                answer = ApprovalAnswer(entry.by, facts["approved"], entry.why, entry.at)
                versions[at] = replace(versions[at], answers=(*versions[at].answers, answer))
            case "alias":
                _put(aliases, facts["alias"], facts["version"])
            case "rule":
                rule = facts["rule"]
                _put(rules, facts["alias"], None if rule is None else ApprovalRule.from_json(rule))
            case "words" if facts["version"] is None:
                description, tags = _reworded(description, tags, facts)
            case "words":
                at = facts["version"] - 1
                words, changed = _reworded(versions[at].description, versions[at].tags, facts)
                versions[at] = replace(versions[at], description=words, tags=changed)
    return RegisteredModel(name, description, tags, tuple(versions), aliases, rules, log)


def _put(held: dict[str, Any], name: str, value: object) -> None:
    held.pop(name, None)
    if value is not None:
        held[name] = value


def _reworded(description: str, tags: Mapping[str, str], facts: Json) -> tuple[str, dict[str, str]]:
    changed = {name: text for name, text in (tags | facts["tags"]).items() if text is not None}
    return description if facts["description"] is None else facts["description"], changed


@dataclass(frozen=True)
class Registry:
    """The registered models of a store; any number of processes may change them at once.

    Names of people are what callers say they are: the store proves nobody's.

    Attributes:
        store: The store; one that is open to read is enough to look.
    """

    store: MetadataStore

    def names(self) -> list[str]:
        """The names of all registered models, sorted."""
        return sorted(context.name for context in self.store.contexts(_MODEL, limit=None))

    def entries(self, name: str) -> int:
        """How many things were done to a model so far; 0 where there is none of that name."""
        return self.store.count_contexts(_log_of(name))

    def model(self, name: str, *, before: ContextRecord | None = None) -> RegisteredModel:
        """A registered model.

        Args:
            name: Its name.
            before: As it was when this context was made: a run's, say.

        Raises:
            NotFound: There is none of that name.
        """
        if self.store.find_context(_MODEL, name) is None:
            names = self.names()
            fix = suggest(name, names, "there are") if names else "register one: `drivetrain registry register`"
            raise NotFound(f"there is no registered model {name!r:.130}", fix=fix)
        return self._read(name, before)

    def resolve(self, reference: str, *, before: ContextRecord | None = None) -> ModelVersion:
        """The version that "flights@champion", "flights@3" or "flights" (its newest) stands for.

        Raises:
            InputError: It names nothing that could be registered.
            NotFound: There is no such model, version or alias.
        """
        name, which = split_reference(reference)
        return self.model(name, before=before).version(which)

    def artifact(self, version: ModelVersion) -> ArtifactRecord:
        """The model artifact of a version, in whatever state it is by now."""
        return self.store.artifact(version.artifact)

    def versions_of(self, artifact: ArtifactRecord) -> list[ModelVersion]:
        """The versions, of all registered models, that an artifact is."""
        models = (self._read(name) for name in self.names())
        return [version for model in models for version in model.versions if version.artifact == artifact.uid]

    def judge(self, model: RegisteredModel, version: ModelVersion, alias: str) -> Judgement | None:
        """What the answers about a version come to now, by the rule of an alias; None where it has none."""
        rule = model.rules.get(alias)
        return None if rule is None else rule.judge(version.answers, version.makers, rows.when(self.store.now()))

    @property
    def remote(self) -> Remote | None:
        """The way to its store, where that is elsewhere."""
        return self.store.remote

    # -- changes

    @operation("writer", "approver")
    def register(self, name: str, artifact: ArtifactRecord, *, by: str, why: str = "") -> ModelVersion:
        """Make an artifact the next version of a model, which is made where there is none.

        The same artifact again is the version that it is already.

        Raises:
            InputError: The name cannot be one, nobody registers it, or the artifact is no model.
            StateError: The artifact was deleted.
        """
        check_name(name)
        artifact = self.store.artifact(artifact.uid)  # as it is by now, whatever the caller knows of it
        known = artifact_type(artifact.type)  # a type whose code is not loaded may be a model's
        if known is not Artifact and not issubclass(known, Model):
            raise InputError(f"{artifact.uri} is not a model: it is {artifact.type}", fix="name what a Trainer made")
        _require_payload(artifact)
        by = by.strip()
        makers = list(dict.fromkeys(filter(None, [by, self._trained_by(artifact)])))

        def entry(model: RegisteredModel) -> Json | None:
            if any(version.artifact == artifact.uid for version in model.versions):
                return None
            facts = {"version": len(model.versions) + 1, "artifact": artifact.uid}
            return facts | {"fingerprint": artifact.fingerprint, "makers": makers}

        def keep(tx: Transaction, model: RegisteredModel) -> None:  # a collection may have been quicker
            _require_payload(writes.artifact(tx, artifact.id))

        self.store.context(_MODEL, name)
        model = self._append(name, "version", by, why, entry, keep)
        return next(version for version in model.versions if version.artifact == artifact.uid)

    @operation("approver")
    def set_alias(
        self, name: str, alias: str, version: int | str, *, by: str, why: str = "", expected: int | None = ANY_VERSION
    ) -> RegisteredModel:
        """Have an alias stand for a version: "champion" for the one that is to be used, say.

        Args:
            name: The model's name.
            alias: Letters, digits, _ and -; neither "latest" nor a number.
            version: Its number, or another alias.
            by: Who moves it.
            why: Why.
            expected: Which version it has to stand for until then, None for none; without it the one that it stands for
                as this begins.

        Raises:
            ConflictError: It stands for another version, or somebody else moves it at this moment.
            StateError: Its rule asks for approvals that the version does not have.
            InputError: The alias cannot be one.
            NotFound: There is no such model or version.
        """
        check_alias(alias)
        number = self.model(name).version(version).number

        def allowed(model: RegisteredModel) -> None:
            chosen = model.version(number)
            judgement = self.judge(model, chosen, alias)
            if judgement is not None and not judgement.approved:
                raise StateError(
                    f"{alias} of {name} cannot move to version {number}: {judgement.missing}",
                    fix=f"`drivetrain registry approve {chosen}`, by who may; the rule is {model.rules[alias]}",
                )

        return self._move(name, alias, number, by, why, expected, allowed)

    @operation("approver")
    def remove_alias(
        self, name: str, alias: str, *, by: str, why: str = "", expected: int | None = ANY_VERSION
    ) -> RegisteredModel:
        """Have an alias stand for nothing; no approvals are asked for.

        Raises:
            ConflictError: As of `set_alias`.
            NotFound: There is no such model, or no such alias.
        """
        self.model(name).version(alias)
        check_alias(alias)
        return self._move(name, alias, None, by, why, expected, lambda model: None)

    @operation("approver")
    def require(self, name: str, alias: str, rule: ApprovalRule | None, *, by: str, why: str = "") -> RegisteredModel:
        """Say who has to agree before an alias moves; None for nobody. Where it stands it stays.

        Raises:
            InputError: The alias cannot be one.
            NotFound: There is no such model.
        """
        check_alias(alias)
        body = None if rule is None else rule.to_json()
        return self._append(
            name,
            "rule",
            by,
            why,
            lambda model: None if model.rules.get(alias) == rule else {"alias": alias, "rule": body},
        )

    @operation("approver")
    def answer(self, name: str, version: int, *, approved: bool, by: str, comment: str = "") -> RegisteredModel:
        """Approve or reject a version. Of what a person says of one, the last counts, by each alias's rule.

        Raises:
            InputError: No rule of the model would count the answer.
            NotFound: There is no such model or version.
        """
        by = by.strip()

        def entry(model: RegisteredModel) -> Json:
            refusals = [rule.refusal(by, model.version(version).makers) for rule in model.rules.values()]
            if refusals and all(refusals):
                raise InputError(
                    f"{by} cannot {'approve' if approved else 'reject'} {name}@{version}: {refusals[0]}",
                    fix="let somebody else decide, or change the rule: `drivetrain registry require`",
                )
            return {"version": model.version(version).number, "approved": approved}

        return self._append(name, "answer", by, comment, entry)

    @operation("writer", "approver")
    def describe(
        self,
        name: str,
        version: int | None = None,
        *,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
        by: str,
    ) -> RegisteredModel:
        """Change the description or tags of a model, or of one of its versions; a tag that is None is taken away.

        Raises:
            NotFound: There is no such model or version.
        """
        words = None if description is None else redact(description)
        texts = {rows.name_text(tag, "tag"): text and redact(text) for tag, text in (tags or {}).items()}

        def entry(model: RegisteredModel) -> Json:
            number = None if version is None else model.version(version).number
            return {"version": number, "description": words, "tags": texts}

        return self._append(name, "words", by, "", entry)

    def _move(
        self,
        name: str,
        alias: str,
        version: int | None,
        by: str,
        why: str,
        expected: int | None,
        allowed: Callable[[RegisteredModel], None],
    ) -> RegisteredModel:
        before = self.model(name).aliases.get(alias) if expected == ANY_VERSION else expected

        def entry(model: RegisteredModel) -> Json | None:
            now = model.aliases.get(alias)
            if now == version and expected == ANY_VERSION:
                return None
            if now != before:
                moves = [each for each in model.log if each.kind == "alias" and each.facts["alias"] == alias]
                since = f": {moves[-1]} at {moves[-1].at:%Y-%m-%d %H:%M:%S} UTC" if moves else ""
                raise ConflictError(
                    f"{alias} of {name} stands for {_version_text(now)}, not for {_version_text(before)}{since}",
                    fix=f"look at it (`drivetrain registry show {name}`), and decide again",
                )
            allowed(model)
            return {"alias": alias, "version": version, "before": now}

        def keep(tx: Transaction, model: RegisteredModel) -> None:
            if version is not None:
                with suppress(NotFound):  # of a store that was rebuilt
                    writes.spare_ancestors(tx, self.artifact(model.version(version)).id)

        return self._append(name, "alias", by, why, entry, keep)

    def _append(
        self,
        name: str,
        kind: EntryKind,
        by: str,
        why: str,
        facts_for: Callable[[RegisteredModel], Json | None],
        keep: Callable[[Transaction, RegisteredModel], None] = lambda tx, model: None,
    ) -> RegisteredModel:
        """Append what `facts_for` says of the model as it is, and gives it as it is then; nothing where that is None.

        It is asked again where another process appended something meanwhile. `keep` is called in the transaction that
        appends: what it raises leaves the model as it was, and a collection sees what both did, or nothing.
        """
        if not by.strip():
            raise InputError("nobody is said to do this", fix="say who: --by NAME")
        model = self.model(name)
        while (facts := facts_for(model)) is not None:
            mark = secrets.token_hex(8)  # tells this entry from an equal one that another process makes now
            body = {**facts, "kind": kind, "by": redact(by.strip()), "why": redact(why.strip()), "mark": mark}
            context = self._appended(model, body, keep)
            if context.properties["mark"] == mark:
                return model_from_log(name, (*model.log, registry_entry(context)))
            model = self._read(name)
        return model

    def _appended(
        self, model: RegisteredModel, body: Json, keep: Callable[[Transaction, RegisteredModel], None]
    ) -> ContextRecord:
        """The next entry of a model's log: this one, or that of whoever was quicker."""
        kind, number = _log_of(model.name), str(len(model.log) + 1)

        def put(tx: Transaction) -> ContextRecord:
            if tx.begun[0]:
                return rows.context(tx.begun[0][0])
            keep(tx, model)
            return writes.new_context(tx, kind, number, body, [])

        asking, needs = writes.asking_for_context(kind, number), role_for_context(kind, body)
        return self.store._db.written("context", put, asking, needs=needs)

    def _read(self, name: str, before: ContextRecord | None = None) -> RegisteredModel:
        contexts = reversed(self.store.contexts(_log_of(name), limit=None))
        log = tuple(registry_entry(context) for context in contexts if before is None or context.id < before.id)
        try:
            if [entry.number for entry in log] != [*range(1, len(log) + 1)]:
                raise ValueError("an entry is missing")
            return model_from_log(name, log)
        except (LookupError, TypeError, ValueError, InputError) as error:  # nobody writes what cannot be read
            raise StoreDamaged(f"the log of the registered model {name!r}", error) from error

    def _trained_by(self, artifact: ArtifactRecord) -> str:
        """Who started the run that made an artifact; "" where that is not known."""
        if artifact.producer is None:
            return ""
        contexts = self.store.contexts_of(self.store.execution(artifact.producer))
        return next((str(run.properties.get("by", "")) for run in contexts if run.type == "run"), "")


def split_reference(reference: str) -> tuple[str, str]:
    """The name and the version or alias of "flights@champion"; "latest" where there is none.

    Raises:
        InputError: It names nothing that could be registered.
    """
    name, at, which = reference.partition("@")
    which = which if at else LATEST
    is_alias = _ALIAS.fullmatch(which) and not _NUMBER.fullmatch(which)
    if _NAME.fullmatch(name) is None or not (is_alias or _VERSION.fullmatch(which)):
        raise InputError(
            f"{reference!r:.200} names no registered model", fix='write "flights", "flights@champion" or "flights@3"'
        )
    return name, which


def check_name(name: str) -> None:
    """See that a name can be a registered model's.

    Raises:
        InputError: It cannot.
    """
    if _NAME.fullmatch(name) is None or _NUMBER.fullmatch(name):
        raise InputError(
            f"{name!r:.130} cannot be the name of a model", fix="give letters, digits and . _ -, 120 at most"
        )


def check_alias(alias: str) -> None:
    """See that a text can be an alias.

    Raises:
        InputError: It cannot.
    """
    if _ALIAS.fullmatch(alias) is None or _NUMBER.fullmatch(alias) or alias.lower() == LATEST:
        raise InputError(
            f"{alias!r:.80} cannot be an alias",
            fix=f'give letters, digits, _ and -; "{LATEST}" is always the newest version, and a number is a version',
        )


def _require_payload(artifact: ArtifactRecord) -> None:
    if artifact.state not in {"LIVE", "REFERENCE"}:
        fix = "train it again"
        if artifact.state == "MARKED_FOR_DELETION":
            fix = f"keep it by `drivetrain pin {artifact.uri}`, and try again"
        raise StateError(f"{artifact.uri} is {artifact.state}, and cannot be registered", fix=fix)


def _log_of(name: str) -> str:
    return f"{REGISTRY_LOG}{name}"  # a type for each model: its index gives the log at once


@rows.read_soundly
def registry_entry(context: ContextRecord) -> RegistryEntry:
    """The entry that a context of a model's log is."""
    facts = {name: value for name, value in context.properties.items() if name not in ("kind", "by", "why", "mark")}
    held = context.properties
    return RegistryEntry(int(context.name), held["kind"], context.created_at, held["by"], held["why"], facts)


def _version_text(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
