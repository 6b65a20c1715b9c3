"""Statements in one message to PostgreSQL: what comes back, what a failure leaves, and how few a node needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from drivetrain.metadata import AlreadyExists, ArtifactRecord, MetadataStore, StagedArtifact
from drivetrain.metadata.postgres_connection import Messages
from drivetrain.tests.data.postgres import Server

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def connection(postgres: Server) -> Any:
    with psycopg.connect(postgres.url, autocommit=True, row_factory=psycopg.rows.dict_row) as opened:
        yield opened


def test_values_come_back_as_they_were_bound(connection: Any) -> None:
    values = {"n": 2**62, "x": 0.1, "t": "é'\\ %s $1 :n", "nothing": None}
    sql = (
        "SELECT CAST(:n AS BIGINT) AS n, CAST(:x AS DOUBLE PRECISION) AS x, CAST(:t AS TEXT) AS t, :nothing AS nothing"
    )
    messages = Messages(connection)
    for _ in range(3):  # parsed, then prepared
        assert messages.send([(sql, values)])[0].rows == [values]


def test_more_statements_than_one_message_takes_and_than_are_kept_prepared(connection: Any) -> None:
    messages = Messages(connection)
    statements = [(f"SELECT CAST(:n AS BIGINT) + {number} AS n", {"n": number}) for number in range(700)]
    for _ in range(2):
        assert [each.rows[0]["n"] for each in messages.send(statements)] == [2 * number for number in range(700)]


def test_after_a_statement_that_fails_none_is_run_and_the_connection_goes_on(connection: Any) -> None:
    messages = Messages(connection)
    connection.execute("CREATE TEMPORARY TABLE t (n INTEGER PRIMARY KEY)")
    put = "INSERT INTO t VALUES (:n)"
    for _ in range(2):
        with pytest.raises(psycopg.errors.UniqueViolation):
            messages.send([("BEGIN", {}), (put, {"n": 1}), (put, {"n": 1}), (put, {"n": 2}), ("COMMIT", {})])
        connection.execute("ROLLBACK")
    assert messages.send([("SELECT count(*) AS n FROM t", {})])[0].rows == [{"n": 0}]


def test_a_value_that_cannot_be_sent_stops_the_message_before_its_first_statement(connection: Any) -> None:
    messages = Messages(connection)
    connection.execute("CREATE TEMPORARY TABLE t (x TEXT)")
    for bad, error in (("a\0b", psycopg.DataError), ("\ud800", UnicodeEncodeError)):
        with pytest.raises(error):
            messages.send([("INSERT INTO t VALUES (:x)", {"x": "first"}), ("INSERT INTO t VALUES (:x)", {"x": bad})])
    assert messages.send([("SELECT count(*) AS n FROM t", {})])[0].rows == [{"n": 0}]


def test_the_first_rollback_of_a_connection_that_asked_often_leaves_what_is_prepared(schema: Callable[[], str]) -> None:
    """psycopg would prepare what it runs often, and at the first rollback after it forget all that is, ours too."""
    with MetadataStore.open(schema()) as store:
        store.start("Make", name="taken")
        for _ in range(20):
            store.now()
        for number in range(3):
            with pytest.raises(AlreadyExists):
                store.start("Make", name="taken")
            store.context("run", f"r{number}")
        assert len(store.contexts("run")) == 3


def test_what_was_interrupted_is_not_used_again(connection: Any) -> None:
    messages = Messages(connection)
    with patch.object(connection, "wait", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        messages.send([("SELECT 1 AS n", {})])
    assert connection.closed


def test_a_node_is_ten_messages_and_its_run_three(schema: Callable[[], str]) -> None:
    with MetadataStore.open(schema()) as store:
        last: list[ArtifactRecord] = []

        def run(name: str) -> None:
            """A run of one node, the costliest: its own context included."""
            nonlocal last
            contexts = [store.context("run", name, parents=[pipeline]), store.context("node", "p.Trainer")]
            store.find_cached(name)
            claim = store.claim(name)
            execution = store.start(
                "Trainer", contexts=[pipeline, *contexts], inputs={"model": last}, cache_key=name, preimage={"n": name}
            )
            output = StagedArtifact("Model", f"artifacts/{name}", "f" * 64, 1)
            last = store.publish(execution, {"model": [output]}, claim=claim)["model"]

        pipeline = store.context("pipeline", "p")
        run("first")  # types are new
        run("second")
        with patch.object(Messages, "send", autospec=True, side_effect=Messages.send) as send:
            run("third")
    # Its context 1, the cache 1, the claim 2, the start 3, the publication 3; those of the run, once for its nodes, 3.
    assert send.call_count == 13
