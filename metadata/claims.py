"""Claims: who may publish under a cache key, with a lease, and a token that tells an old holder from a new one.

A lease alone cannot keep an old holder out: a process that slept past its lease wakes up and goes on. The token can
(a fencing token): it grows with every holder, and each statement of a holder names it in its WHERE, so that what an
old holder sends changes no row. The check and the write are one statement: nothing can come between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from ..digest import canonical_json
from ..errors import DrivetrainError, InputError
from ..owner import Owner
from . import rows
from .database import Database, Transaction
from .dialect import Row, Statement
from .errors import LeaseLost, StoreDamaged
from .records import Claim, ExecutionRecord, ExecutionState

# What a holder was running ends with its claim. The key is looked up in the properties first: an execution with the
# cache off has no cache key, but holds a claim of its own.
_END = """
UPDATE execution SET state = :state, error = :error, finished_at = :now, updated_at = :now, version = version + 1
WHERE state = 'RUNNING' AND owner = :owner AND coalesce(properties ->> 'claim', cache_key) = :key
"""


@lru_cache(256)
def owner_json(owner: Owner) -> str:
    """An owner as text to store: equal owners have equal text, so that SQL can compare them."""
    return canonical_json(owner.to_dict()).decode()


class LeaseWatch:
    """Watches a claim whose lease is over though its holder lives: is it silent, by a clock that nobody can set?

    Wall clocks jump, and go on while a machine sleeps: then a lease is over although its holder had no time to extend
    it. So whatever process wants the claim watches it for half a lease, in which a heartbeat would come.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, int, float]] = {}

    def is_silent(self, claim: Row) -> bool:
        """Whether no heartbeat came for half a lease since the claim was first seen here with its lease over."""
        # A heartbeat moves expires_at, a new holder the token: either shows that somebody lives, and the watch starts
        # again. Half a lease is enough, as a heartbeat comes every third of one.
        now, mark = self._clock(), (claim["token"], claim["expires_at"])
        *before, since = self._seen.get(claim["cache_key"], (None, None, now))
        if tuple(before) != mark:
            since = now
        self._seen[claim["cache_key"]] = (*mark, since)
        return bool(now - since >= claim["lease"] / 2)


def asking(key: str) -> Statement:
    """What asks for the claim on a key."""
    return "SELECT * FROM claim WHERE cache_key = :key", {"key": key}


def acquire(transaction: Transaction, key: str, owner: Owner, lease: float, watch: LeaseWatch) -> Claim | None:
    """Take the claim if it is free, or its holder is dead or silent past the lease; None where it is held.

    What the displaced holder was running becomes ABANDONED.

    Args:
        transaction: Begun with what is `asking` for the key.
        key: The key.
        owner: Who takes it.
        lease: Seconds until others may take over.
        watch: Of the store.
    """
    if lease <= 0:
        raise InputError(f"a lease must be longer than 0 seconds, not {lease}")
    asked = transaction.begun[0]
    row = asked[0] if asked else None
    displaced = None
    if row is not None and row["state"] == "HELD":
        if shorten_leases(transaction, key):
            (row,) = transaction.together(asking(key))[0]
        displaced = rows.owner(row["owner"])
        # In this order: a process seen to be dead loses its claim at once, whatever the clock says; one that cannot be
        # seen (another host) at the end of its lease; one seen to live only when it is silent as well, since its lease
        # may be over because the clock was set, or because the machine slept.
        living = displaced.liveness()
        if living != "dead" and row["expires_at"] > transaction.now:
            return None
        if living == "alive" and not watch.is_silent(row):
            return None
        why = f"abandoned: {displaced} died or was silent past its lease; {owner} took over"
        _end(transaction, key, displaced, "ABANDONED", why)
    # Rows of ended claims stay: were they deleted, a key's tokens would begin at 1 again and an old holder's would fit.
    token = 1 if row is None else row["token"] + 1
    expires = transaction.now + round(lease * 1e6)
    transaction.at_commit(
        "INSERT INTO claim (cache_key, owner, token, expires_at, lease, state) "
        "VALUES (:key, :owner, :token, :expires, :lease, 'HELD') ON CONFLICT (cache_key) DO UPDATE "
        "SET owner = :owner, token = :token, expires_at = :expires, lease = :lease, state = 'HELD'",
        key=key,
        owner=owner_json(owner),
        token=token,
        expires=expires,
        lease=float(lease),
    )
    return Claim(key, owner, token, rows.when(expires), lease, displaced)


def is_held(transaction: Transaction, claim: Claim) -> bool:
    """Whether a claim was stored that was taken just now, and nobody has taken it over."""
    row = transaction.first("SELECT * FROM claim WHERE cache_key = :key", key=claim.cache_key)
    if row is None or row["state"] != "HELD" or row["owner"] != owner_json(claim.owner):
        return False
    return (row["token"], rows.when(row["expires_at"])) == (claim.token, claim.expires_at)


def shorten_leases(transaction: Transaction, key: str | None = None) -> int:
    """Shorten leases that end later than one lease from now, as they do where the clock was set back; gives how many.

    Args:
        transaction: With the write lock.
        key: Of one claim; None: of all.
    """
    return transaction.run(  # + 1: the end of a lease was rounded to a microsecond
        "UPDATE claim SET expires_at = :now + CAST(lease * 1e6 AS BIGINT) WHERE state = 'HELD' "
        "AND (CAST(:key AS TEXT) IS NULL OR cache_key = :key) AND expires_at > :now + 1 + lease * 1e6",
        now=transaction.now,
        key=key,
    )


def extend(transaction: Transaction, claim: Claim) -> Claim:
    """Move the end of the lease on.

    Raises:
        LeaseLost: Somebody else has the key by now.
        StoreDamaged: The database has lost the claim.
    """
    expires = transaction.now + round(claim.lease * 1e6)
    changed = transaction.run(
        "UPDATE claim SET expires_at = :expires WHERE cache_key = :key AND token = :token AND state = 'HELD'",
        key=claim.cache_key,
        token=claim.token,
        expires=expires,
    )
    if not changed:
        raise lost_lease(transaction, claim)
    return replace(claim, expires_at=rows.when(expires))


def close(transaction: Transaction, claim: Claim, state: str) -> bool:
    """End the claim as DONE or RELEASED; False if it is no longer ours."""
    ((*closed,),) = transaction.together(closing(claim, state))
    return len(closed) == 1


def closing(claim: Claim, state: str) -> Statement:
    """What ends the claim, and gives a row; none if it is no longer ours."""
    return (
        "UPDATE claim SET state = :state WHERE cache_key = :key AND token = :token AND state = 'HELD' RETURNING token",
        {"key": claim.cache_key, "token": claim.token, "state": state},
    )


def release(transaction: Transaction, claim: Claim) -> None:
    """Give the claim up if it is still ours.

    An execution that still runs under it becomes CANCELED: the holder was interrupted before it learnt of the start.
    """
    if close(transaction, claim, "RELEASED"):
        _end(transaction, claim.cache_key, claim.owner, "CANCELED", f"{claim.owner} was interrupted as it began")


def _end(transaction: Transaction, key: str, owner: Owner, state: ExecutionState, why: str) -> None:
    """End what an owner is running under a key."""
    transaction.run(_END, key=key, owner=owner_json(owner), state=state, now=transaction.now, error=why)


def release_dead(transaction: Transaction) -> None:
    """Release what dead processes hold, and what nobody can be seen to hold past its lease."""
    for row in transaction.all("SELECT * FROM claim WHERE state = 'HELD'"):
        living = rows.owner(row["owner"]).liveness()
        if living == "dead" or (living == "unknown" and row["expires_at"] <= transaction.now):
            transaction.run("UPDATE claim SET state = 'RELEASED' WHERE cache_key = :key", key=row["cache_key"])


def running(transaction: Transaction) -> list[ExecutionRecord]:
    """The executions in state RUNNING, the oldest first, whether their process lives or not."""
    return [rows.execution(row) for row in transaction.all(f"{rows.EXECUTION} WHERE e.state = 'RUNNING' ORDER BY e.id")]


def owner_is_dead(db: Database | Transaction, execution: ExecutionRecord, now: int) -> bool:
    """Whether the process that ran an execution certainly no longer does: see `StoreReader.is_dead`."""
    if execution.owner is None:
        return False
    living = execution.owner.liveness()
    if living != "unknown":
        return living == "dead"
    key = execution.properties.get("claim", execution.cache_key)  # its own, where the cache is off for it
    lease = db.first("SELECT expires_at, state FROM claim WHERE cache_key = :key", key=key)
    if lease is not None and lease["state"] == "HELD":
        return bool(lease["expires_at"] <= now)
    return execution.owner.rebooted()


def lost_lease(transaction: Transaction, claim: Claim) -> DrivetrainError:
    """The error that a holder gets whose claim another process has taken over, or which the database has lost."""
    row = transaction.first("SELECT token, state FROM claim WHERE cache_key = :key", key=claim.cache_key)
    # Rows of claims stay, tokens grow: what was given to this holder, and to nobody since, the database has lost. The
    # holder would claim it again, do the work again, and so for ever.
    if row is None or row["token"] < claim.token or (row["token"] == claim.token and row["state"] == "HELD"):
        return StoreDamaged("the metadata store", f"it has lost the claim on {claim.cache_key[:12]}… that it gave")
    return LeaseLost(
        f"the claim on {claim.cache_key[:12]}… (token {claim.token}) is lost: {claim.owner} was silent for more than "
        f"{claim.lease:g} s and another process took over",
        fix="let that one finish; nothing of this attempt was published",
    )
