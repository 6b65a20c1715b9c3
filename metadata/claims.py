"""Claims: who may publish under a cache key, with a lease, and a token that tells an old holder from a new one."""

from __future__ import annotations

import json
from dataclasses import replace

from ..digest import canonical_json
from ..errors import InputError
from .database import Database, Transaction
from .errors import LeaseLost
from .owner import Owner
from .records import Claim, ExecutionRecord
from .rows import EXECUTION, execution, when

# What ends a claim. DONE: published. RELEASED: given up, or its owner died.
_ABANDON = """
UPDATE execution SET state = 'ABANDONED', error = :error, finished_at = :now, updated_at = :now, version = version + 1
WHERE cache_key = :key AND state = 'RUNNING' AND owner = :owner
"""


def owner_json(owner: Owner) -> str:
    """An owner as it is stored."""
    return canonical_json(owner.to_dict()).decode()


def acquire(transaction: Transaction, key: str, owner: Owner, lease: float) -> Claim | None:
    """Take the claim if it is free, or its holder is dead or silent past the lease; None where it is held.

    What the displaced holder was running becomes ABANDONED.
    """
    if lease <= 0:
        raise InputError(f"a lease lasts more than {lease} seconds")
    row = transaction.one("SELECT * FROM claim WHERE cache_key = :key", key=key)
    displaced = None
    if row is not None and row["state"] == "HELD":
        displaced = Owner.from_dict(json.loads(row["owner"]))
        if row["expires_at"] > transaction.now and displaced.liveness() != "dead":
            return None
        error = f"abandoned: {displaced} died or was silent past its lease; {owner} took over"
        transaction.run(_ABANDON, key=key, owner=row["owner"], now=transaction.now, error=error)
    token = 1 if row is None else row["token"] + 1
    expires = transaction.now + round(lease * 1e6)
    transaction.run(
        "INSERT INTO claim (cache_key, owner, token, expires_at, lease, state) "
        "VALUES (:key, :owner, :token, :expires, :lease, 'HELD') ON CONFLICT (cache_key) DO UPDATE "
        "SET owner = :owner, token = :token, expires_at = :expires, lease = :lease, state = 'HELD'",
        key=key,
        owner=owner_json(owner),
        token=token,
        expires=expires,
        lease=float(lease),
    )
    return Claim(key, owner, token, when(expires), lease, displaced)


def extend(transaction: Transaction, claim: Claim) -> Claim:
    """Move the end of the lease on.

    Raises:
        LeaseLost: Somebody else has the key by now.
    """
    expires = transaction.now + round(claim.lease * 1e6)
    changed = transaction.run(
        "UPDATE claim SET expires_at = :expires WHERE cache_key = :key AND token = :token AND state = 'HELD'",
        key=claim.cache_key,
        token=claim.token,
        expires=expires,
    )
    if not changed:
        raise lost(claim)
    return replace(claim, expires_at=when(expires))


def close(transaction: Transaction, claim: Claim, state: str) -> bool:
    """End the claim as DONE or RELEASED; False if it is no longer ours."""
    changed = transaction.run(
        "UPDATE claim SET state = :state WHERE cache_key = :key AND token = :token AND state = 'HELD'",
        key=claim.cache_key,
        token=claim.token,
        state=state,
    )
    return changed == 1


def release_dead(transaction: Transaction) -> None:
    """Release what dead processes hold, and what nobody can be seen to hold past its lease."""
    for row in transaction.all("SELECT * FROM claim WHERE state = 'HELD'"):
        living = Owner.from_dict(json.loads(row["owner"])).liveness()
        if living == "dead" or (living == "unknown" and row["expires_at"] <= transaction.now):
            transaction.run("UPDATE claim SET state = 'RELEASED' WHERE cache_key = :key", key=row["cache_key"])


def running(transaction: Transaction) -> list[ExecutionRecord]:
    """What is RUNNING, oldest first."""
    return [execution(row) for row in transaction.all(f"{EXECUTION} WHERE e.state = 'RUNNING' ORDER BY e.id")]


def owner_is_dead(db: Database | Transaction, execution: ExecutionRecord, now: int) -> bool:
    """Whether whoever runs an execution certainly does so no more: see `StoreReader.is_dead`."""
    if execution.owner is None:
        return False
    living = execution.owner.liveness()
    if living != "unknown":
        return living == "dead"
    lease = db.one("SELECT expires_at, state FROM claim WHERE cache_key = :key", key=execution.cache_key)
    if lease is not None and lease["state"] == "HELD":
        return bool(lease["expires_at"] <= now)
    return execution.owner.rebooted()


def lost(claim: Claim) -> LeaseLost:
    """The error of an old holder."""
    return LeaseLost(
        f"the claim on {claim.cache_key[:12]}… (token {claim.token}) is lost: {claim.owner} was silent for more than "
        f"{claim.lease:g} s and another process took over",
        fix="let that one finish; nothing of this attempt was published",
    )
