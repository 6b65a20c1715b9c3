"""Retention: which payloads a policy keeps, and the removal of the others, which their rows outlive.

An artifact that no rule keeps is marked first (MARKED_FOR_DELETION): neither the cache nor a resolver gives it any
more, and no execution can take it. When it has been marked for as long as the policy's grace, it becomes DELETED and
its payload is removed. Rows are never deleted: lineage answers as before, and says what was collected and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ..progress import Progress, no_progress
from .errors import ConflictError, StateError
from .fsck import remove_unless_used
from .payload import Payloads
from .payload_root import open_payloads
from .records import COLLECTED, PINNED, ArtifactRecord, ArtifactState, ContextRecord
from .rows import when
from .store import MetadataStore

COLLECTION: Final = "garbage_collection"
"""The type of the contexts that record what each collection did."""
_BATCH: Final = 500
"""Artifacts of one transaction: others write between two."""
_THREADS: Final = 16
"""Removals at once from an object store: each waits for its answers."""


@dataclass(frozen=True)
class RetentionRule:
    """What is kept of the outputs that it fits; with neither bound, all of them.

    Attributes:
        keep_last: The outputs of this many runs of a node, the newest; a run whose outputs are those of a newer one
            (from the cache) does not count.
        keep_for: What was made, read or reused within this time.
        type: Of artifact; a pattern of shells, as the next two.
        pipeline: Whose output it is.
        node: Of the pipeline.
    """

    keep_last: int | None = None
    keep_for: timedelta | None = None
    type: str = "*"
    pipeline: str = "*"
    node: str = "*"

    @property
    def keeps_all(self) -> bool:
        """Whether it has no bound."""
        return self.keep_last is None and self.keep_for is None


@dataclass(frozen=True)
class RetentionPolicy:
    """What is kept. What no rule fits is kept.

    Attributes:
        rules: The first that fits an output decides.
        grace: How long what is marked can still be taken back.
        quota: Bytes of all payloads together, beyond which those that were unused for longest go too, but for those of
            a node's newest run and those that a rule without bounds keeps; None for no bound.
        lineage: Whether all that a protected artifact was made from, directly or not, is kept with it.
    """

    rules: tuple[RetentionRule, ...]
    grace: timedelta = timedelta(days=7)
    quota: int | None = None
    lineage: bool = True


@dataclass(frozen=True)
class Protection:
    """Artifacts that are kept whatever a policy says.

    Attributes:
        artifacts: Their ids.
        reason: Why, as a plan words it: "of run … at work".
        lineage: Whether what they were made from counts too, where the policy says so.
    """

    artifacts: frozenset[int]
    reason: str
    lineage: bool = True


@dataclass(frozen=True)
class RetentionPlan:
    """What a policy makes of a store now; nothing was changed yet.

    Attributes:
        mark: LIVE artifacts that nothing keeps, each with the reason.
        delete: Those whose grace is over.
        restore: Marked ones that are kept now: LIVE again.
        waiting: Marked ones whose grace goes on.
        kept: Why each other LIVE artifact is kept, by id.
        sizes: Bytes of payloads by URI, `extra/` included.
        over_quota: Bytes beyond the quota that nothing more can go for.
    """

    mark: tuple[tuple[ArtifactRecord, str], ...]
    delete: tuple[ArtifactRecord, ...]
    restore: tuple[ArtifactRecord, ...]
    waiting: tuple[ArtifactRecord, ...]
    kept: Mapping[int, str] = field(hash=False)
    sizes: Mapping[str, int] = field(hash=False)
    over_quota: int = 0

    def size(self, artifacts: Iterable[ArtifactRecord]) -> int:
        """Bytes of the payloads of artifacts together."""
        return sum(self.sizes.get(each.uri, 0) for each in artifacts)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON object, with counts, bytes and the URIs."""

        def listed(artifacts: Sequence[ArtifactRecord]) -> dict[str, Any]:
            return {"count": len(artifacts), "bytes": self.size(artifacts), "uris": [each.uri for each in artifacts]}

        return {
            "mark": listed([each for each, _ in self.mark]),
            "delete": listed(self.delete),
            "restore": listed(self.restore),
            "waiting": listed(self.waiting),
            "reasons": {each.uri: reason for each, reason in self.mark},
            "kept": dict(Counter(self.kept.values())),
            "over_quota": self.over_quota,
        }


@dataclass(frozen=True)
class Collected:
    """What a collection did.

    Attributes:
        marked: How many artifacts it marked.
        restored: How many marked ones are LIVE again.
        deleted: How many payloads it removed, those included that an interrupted collection had left.
        freed: Their bytes.
        left: URIs of what changed, or was in use, since the plan was made: left to the next collection.
    """

    marked: int
    restored: int
    deleted: int
    freed: int
    left: tuple[str, ...]


def plan(
    store: MetadataStore,
    root: Path,
    policy: RetentionPolicy,
    protections: Iterable[Protection] = (),
) -> RetentionPlan:
    """Decide on every artifact; nothing is changed.

    Args:
        store: The store.
        root: Its root folder.
        policy: What is kept.
        protections: What is kept besides: pinned artifacts are, whether or not they are among these. They are asked for
            after what is marked was read, so that whoever took an artifact while it was LIVE is among them.
    """
    now = when(store.now())
    live, marked = store.artifacts(), store.artifacts(state="MARKED_FOR_DELETION")
    artifacts = {each.id: each for each in (*live, *marked) if each.external is None}
    uses = store.last_uses()
    kept = _protected(store, policy, artifacts, protections)
    expiring: dict[int, str] = {}  # kept by a bound alone
    newest: set[int] = set()
    for number, reason, is_newest, for_good in _kept_by_rules(store, policy, artifacts, uses, now):
        if number not in kept:
            (kept if for_good else expiring).setdefault(number, reason)
        if is_newest:
            newest.add(number)
    for number in kept.keys() & expiring.keys():
        del expiring[number]
    sizes = open_payloads(store, root).sizes([each.uri for each in artifacts.values()])
    beyond = _beyond_quota(policy, artifacts, sizes, kept, expiring, newest, uses)
    over = 0
    if policy.quota is not None:
        stays = sum(sizes.get(artifacts[each].uri, 0) for each in (kept.keys() | expiring.keys()) - beyond)
        over = max(0, stays - policy.quota)
    kept |= {number: reason for number, reason in expiring.items() if number not in beyond}
    reasons = dict.fromkeys(beyond, "longest unused, beyond the quota")
    still = [each for each in marked if each.id in artifacts and each.id not in kept]
    return RetentionPlan(
        mark=tuple(
            (each, reasons.get(each.id, "no rule keeps it"))
            for each in sorted(live, key=lambda each: each.id)
            if each.id in artifacts and each.id not in kept
        ),
        delete=tuple(each for each in still if _marked_at(each) + policy.grace <= now),
        restore=tuple(each for each in marked if each.id in kept and COLLECTED in each.properties),
        waiting=tuple(each for each in still if _marked_at(each) + policy.grace > now),
        kept={each.id: kept[each.id] for each in live if each.id in kept},
        sizes=sizes,
        over_quota=over,
    )


def collect(
    store: MetadataStore, root: Path, planned: RetentionPlan, by: str, progress: Progress = no_progress
) -> Collected:
    """Do what was planned; safe while pipelines run, and to be repeated after a crash at any moment.

    What changed since the plan was made is left alone. Before a payload goes, what is to go is written down, and its
    row says DELETED: whatever is interrupted then, the next collection ends.

    Args:
        store: The store.
        root: Its root folder.
        planned: What `plan` gave.
        by: Who collects, for the record.
        progress: Called with the artifacts done so far.
    """
    payloads = open_payloads(store, root)
    payloads.sweep()
    left: list[str] = []
    restored = _move(store, planned.restore, "LIVE", {COLLECTED: None}, left)
    deleted = freed = 0
    for unfinished in _unfinished(store):
        deleted += len(_finish(store, payloads, unfinished))
        freed += unfinished.properties["bytes"]
    now = when(store.now()).isoformat()
    by_reason: dict[str, list[ArtifactRecord]] = defaultdict(list)
    for artifact, reason in planned.mark:
        by_reason[reason].append(artifact)
    marked = [
        each
        for reason, artifacts in by_reason.items()
        for each in _move(store, artifacts, "MARKED_FOR_DELETION", {COLLECTED: {"at": now, "reason": reason}}, left)
    ]
    total = len(planned.delete)
    with ThreadPoolExecutor(1) as behind:  # payloads go while the next ones are written down: both take long
        removing: Future[list[ArtifactRecord]] | None = None
        for start in range(0, total + _BATCH, _BATCH):
            progress(min(start, total), total, "payloads")
            record = None
            if batch := _unread(store, planned.delete[start : start + _BATCH], left):
                name = f"{when(store.now()):%Y%m%d-%H%M%S-%f}"
                facts = {"by": by, "at": now, "artifacts": [each.id for each in batch], "bytes": planned.size(batch)}
                record = store.context(COLLECTION, name, {**facts, "finished": False})
                _move(store, batch, "DELETED", {}, left)
            if removing is not None:
                removed = removing.result()
                deleted += len(removed)
                freed += planned.size(removed)
            removing = None if record is None else behind.submit(_finish, store, payloads, record)
    progress(total, total, "payloads")
    return Collected(len(marked), len(restored), deleted, freed, tuple(left))


def take_back(store: MetadataStore) -> list[ArtifactRecord]:
    """Make LIVE again all that collections have marked and not deleted yet.

    Returns:
        What is LIVE again.
    """
    marked = [each for each in store.artifacts(state="MARKED_FOR_DELETION") if each.properties.get(COLLECTED)]
    return _move(store, marked, "LIVE", {COLLECTED: None}, [])


def pin(store: MetadataStore, artifact: ArtifactRecord, by: str, reason: str) -> ArtifactRecord:
    """Keep an artifact, and what it was made from, whatever a policy says; one that is marked is LIVE again.

    Raises:
        StateError: Its payload is gone, or was damaged.
    """
    pinned = {PINNED: {"by": by, "reason": reason, "at": when(store.now()).isoformat()}}
    while True:
        now = store.artifact(artifact.uid)  # whatever it was when it was chosen
        if now.state in ("DELETED", "ABANDONED"):
            raise StateError(f"{now.uri} is {now.state}, and cannot be pinned", fix="run its pipeline again")
        marked = now.state == "MARKED_FOR_DELETION"
        properties = {**pinned, COLLECTED: None} if marked else pinned
        with suppress(ConflictError):  # a collection was quicker
            return store.update_artifact(
                now, state="LIVE" if marked else None, properties=properties, expected_version=now.version
            )


def unpin(store: MetadataStore, artifact: ArtifactRecord) -> ArtifactRecord:
    """Let the policy decide on an artifact again."""
    return store.update_artifact(artifact, properties={PINNED: None})


def _protected(
    store: MetadataStore,
    policy: RetentionPolicy,
    artifacts: Mapping[int, ArtifactRecord],
    protections: Iterable[Protection],
) -> dict[int, str]:
    """Why artifacts are kept whatever the rules say, by id."""
    pinned = Protection(frozenset(each.id for each in artifacts.values() if each.properties.get(PINNED)), "pinned")
    protections = [pinned, *protections]
    kept: dict[int, str] = {}
    for protection in protections:
        kept |= {number: protection.reason for number in protection.artifacts & artifacts.keys() if number not in kept}
    for protection in protections:
        if policy.lineage and protection.lineage:
            above = store.ancestors(protection.artifacts) & artifacts.keys()
            kept |= {number: f"led to what is {protection.reason}" for number in above if number not in kept}
    return kept


def _kept_by_rules(
    store: MetadataStore,
    policy: RetentionPolicy,
    artifacts: Mapping[int, ArtifactRecord],
    uses: Mapping[int, datetime],
    now: datetime,
) -> Iterable[tuple[int, str, bool, bool]]:
    """What the rules keep: the artifact's id, why, whether it is of the newest run, whether nothing ends that."""
    series: dict[tuple[str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for output in store.outputs_of_runs():
        if output.artifact in artifacts:
            series[output.node, output.key][output.run].add(output.artifact)
    ruled = set()
    for (node, _), by_run in series.items():
        pipeline, _, name = node.rpartition(".")
        seen: set[int] = set()
        differing = 0  # runs so far with an output that no newer run has
        for run in sorted(by_run, reverse=True):
            fresh = by_run[run] - seen
            differing += bool(fresh)
            for number in sorted(fresh):
                ruled.add(number)
                artifact = artifacts[number]
                rule = next((each for each in policy.rules if _fits(each, artifact.type, pipeline, name)), None)
                reason = _kept_by(rule, differing, now - uses.get(number, artifact.created_at))
                if reason is not None:
                    yield number, reason, differing == 1, rule is None or rule.keeps_all
            seen |= fresh
    for number in artifacts.keys() - ruled:
        yield number, "the output of no run", False, True


def _fits(rule: RetentionRule, type_: str, pipeline: str, node: str) -> bool:
    return fnmatchcase(type_, rule.type) and fnmatchcase(pipeline, rule.pipeline) and fnmatchcase(node, rule.node)


def _kept_by(rule: RetentionRule | None, differing: int, unused: timedelta) -> str | None:
    """Why a rule keeps an output of the n-th newest run that was unused for so long; None where it does not."""
    if rule is None:
        return "no rule fits it"
    if rule.keeps_all:
        return "a rule keeps all of its kind"
    if rule.keep_last is not None and differing <= rule.keep_last:
        return "of the last runs"
    if rule.keep_for is not None and unused < rule.keep_for:
        return "used lately"
    return None


def _beyond_quota(
    policy: RetentionPolicy,
    artifacts: Mapping[int, ArtifactRecord],
    sizes: Mapping[str, int],
    kept: Mapping[int, str],
    expiring: Mapping[int, str],
    newest: set[int],
    uses: Mapping[int, datetime],
) -> set[int]:
    """The ids of what must go beside what no rule keeps, the longest unused first, so that the rest is in the quota."""
    if policy.quota is None:
        return set()
    total = sum(sizes.get(artifacts[number].uri, 0) for number in kept.keys() | expiring.keys())
    beyond = set()
    for number in sorted(expiring.keys() - newest, key=lambda each: (uses.get(each, artifacts[each].created_at), each)):
        if total <= policy.quota:
            break
        total -= sizes.get(artifacts[number].uri, 0)
        beyond.add(number)
    return beyond


def _marked_at(artifact: ArtifactRecord) -> datetime:
    """When a collection marked an artifact; of one that something else marked, when that was."""
    mark = artifact.properties.get(COLLECTED)
    return datetime.fromisoformat(mark["at"]) if mark else artifact.updated_at


def _move(
    store: MetadataStore,
    artifacts: Sequence[ArtifactRecord],
    state: ArtifactState,
    properties: Mapping[str, Any],
    left: list[str],
) -> list[ArtifactRecord]:
    """Move those artifacts to a state that are as they were read; gives them, and adds the URIs of the others."""
    moved = []
    for start in range(0, len(artifacts), _BATCH):
        batch = artifacts[start : start + _BATCH]
        changed = store.update_artifacts(batch, state=state, properties=properties)
        moved += changed
        ids = {each.id for each in changed}
        left += [each.uri for each in batch if each.id not in ids]
    return moved


def _unread(store: MetadataStore, marked: Sequence[ArtifactRecord], left: list[str]) -> list[ArtifactRecord]:
    """Those of some marked artifacts that no execution at work reads: one that began before they were marked may."""
    reading = {
        artifact.id
        for execution in store.executions(state="RUNNING")
        if not store.is_dead(execution)
        for several in store.inputs(execution).values()
        for artifact in several
    }
    left += [each.uri for each in marked if each.id in reading]
    return [each for each in marked if each.id not in reading]


def _unfinished(store: MetadataStore) -> list[ContextRecord]:
    """The records of collections that were interrupted, the oldest first."""
    return [each for each in store.contexts(COLLECTION, limit=None) if not each.properties["finished"]][::-1]


def _finish(store: MetadataStore, payloads: Payloads, record: ContextRecord) -> list[ArtifactRecord]:
    """Remove the payloads of those artifacts of a record that are DELETED; gives them. Those in use stay for later."""
    deleted = [each for each in store.artifacts_by_id(record.properties["artifacts"]) if each.state == "DELETED"]
    if payloads.url is None:
        in_use = store.uris_in_use(each.uri for each in deleted)
        removed = [each for each in deleted if each.uri not in in_use]
        payloads.remove(*(each.uri for each in removed))
    else:  # two that publish the same may use one URI, each while it holds the claim
        with ThreadPoolExecutor(_THREADS) as threads:
            done = threads.map(lambda each: remove_unless_used(store, payloads, each.uri), deleted)
            removed = [each for each, is_removed in zip(deleted, done, strict=True) if is_removed]
    if removed == deleted:
        store.update_context(record, {"finished": True})
    return removed
