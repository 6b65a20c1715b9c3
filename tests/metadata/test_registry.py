"""Registered models: versions that stay, aliases moved by compare-and-set, approvals, and what was at a moment."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import (
    ArtifactRecord,
    ConflictError,
    MetadataStore,
    NotFound,
    StagedArtifact,
    StateError,
    StoreDamaged,
)
from drivetrain.metadata.approvals import ApprovalRule
from drivetrain.metadata.registry import Registry, split_reference
from drivetrain.metadata.retention import pin
from drivetrain.tests.metadata.conftest import StoreAddress
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORKERS = Path(__file__).with_name("workers.py")
_numbers = count()


def trained(store: MetadataStore, by: str = "") -> ArtifactRecord:
    """A model that a run made, which somebody started."""
    number = next(_numbers)
    run = store.context("run", f"run-{number}", {"by": by})
    execution = store.start("Trainer", contexts=[run])
    new = StagedArtifact("Model", f"artifacts/Trainer/{execution.uid}/model", f"{number:064}", 1)
    return store.publish(execution, {"model": [new]})["model"][0]


@pytest.fixture
def database_store(database_address: StoreAddress) -> Any:
    with MetadataStore.open(database_address("metadata")) as opened:
        yield opened


@pytest.fixture
def store(store_address: StoreAddress) -> Any:
    with MetadataStore.open(store_address("metadata")) as opened:
        yield opened


def test_versions_are_numbered_and_stay(store: MetadataStore) -> None:
    registry = Registry(store)
    first, second = trained(store, "ada"), trained(store)
    assert registry.register("flights", first, by="bob", why="a start").number == 1
    assert registry.register("flights", second, by="bob").number == 2
    assert registry.register("flights", first, by="kim").number == 1  # the same artifact
    assert registry.register("other", first, by="kim").number == 1
    model = registry.model("flights")
    assert [(each.artifact, each.by, each.makers, each.why) for each in model.versions] == [
        (first.uid, "bob", ("bob", "ada"), "a start"),
        (second.uid, "bob", ("bob",), ""),
    ]
    assert len(model.log) == 2
    assert registry.names() == ["flights", "other"]
    assert registry.resolve("flights").number == registry.resolve("flights@latest").number == 2
    assert registry.artifact(registry.resolve("flights@1")) == first
    assert [str(each) for each in registry.versions_of(first)] == ["flights@1", "other@1"]


def test_what_a_collection_has_marked_is_kept_first(store: MetadataStore) -> None:
    registry = Registry(store)
    model = store.update_artifact(trained(store), state="MARKED_FOR_DELETION")
    with pytest.raises(StateError, match="cannot be registered") as refused:
        registry.register("flights", model, by="ada")
    assert refused.value.fix == f"keep it by `drivetrain pin {model.uri}`, and try again"
    registry.register("flights", pin(store, model, "ada", ""), by="ada")


def test_aliases_move_by_compare_and_set(store: MetadataStore) -> None:
    registry = Registry(store)
    for _ in range(3):
        registry.register("flights", trained(store), by="ada")
    registry.set_alias("flights", "champion", 1, by="ada", why="the first", expected=None)
    with pytest.raises(ConflictError, match=r"stands for version 1, not for no version: .* by ada"):
        registry.set_alias("flights", "champion", 2, by="bob", expected=None)
    registry.set_alias("flights", "champion", 2, by="bob", expected=1)
    with pytest.raises(ConflictError):  # so it is already, but that is not what was said
        registry.set_alias("flights", "champion", 2, by="bob", expected=1)
    length = len(registry.model("flights").log)
    assert len(registry.set_alias("flights", "champion", 2, by="kim").log) == length  # nothing to do
    registry.set_alias("flights", "challenger", "latest", by="kim")
    assert registry.model("flights").log[-1].facts == {"alias": "challenger", "version": 3, "before": None}
    with pytest.raises(ConflictError):
        registry.remove_alias("flights", "champion", by="kim", expected=1)
    model = registry.remove_alias("flights", "champion", by="kim", why="a complaint", expected=2)
    assert model.aliases == {"challenger": 3}
    assert model.aliases_of(model.version(3)) == ["challenger"]
    assert [str(each) for each in model.log if each.kind == "alias"] == [
        "champion moved to version 1 by ada: the first",
        "champion moved to version 2 from version 1 by bob",
        "challenger moved to version 3 by kim",
        "champion removed from version 2 by kim: a complaint",
    ]
    with pytest.raises(NotFound, match="no alias 'champion'"):
        registry.resolve("flights@champion")


def test_who_comes_second_is_told_so(database_store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody moves the alias between our look at it and our move."""
    registry, rival = Registry(database_store), Registry(database_store)
    for _ in range(2):
        registry.register("flights", trained(database_store), by="ada")
    judge = Registry.judge

    def overtaken(self: Registry, *arguments: Any) -> Any:
        if self is registry and "champion" not in rival.model("flights").aliases:
            rival.set_alias("flights", "champion", 1, by="bob")
        return judge(self, *arguments)

    monkeypatch.setattr(Registry, "judge", overtaken)
    with pytest.raises(ConflictError, match="champion moved to version 1 by bob"):
        registry.set_alias("flights", "champion", 2, by="ada")
    assert registry.model("flights").aliases == {"champion": 1}


def test_a_version_registered_meanwhile_is_no_conflict(
    database_store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, rival = Registry(database_store), Registry(database_store)
    registry.register("flights", trained(database_store), by="ada")
    judge = Registry.judge

    def overtaken(self: Registry, *arguments: Any) -> Any:
        if len(rival.model("flights").versions) < 3:
            rival.register("flights", trained(database_store), by="bob")
        return judge(self, *arguments)

    monkeypatch.setattr(Registry, "judge", overtaken)
    model = registry.set_alias("flights", "champion", 1, by="ada")
    assert (model.aliases, len(model.versions)) == ({"champion": 1}, 3)


def test_an_alias_waits_for_those_who_have_to_agree(store: MetadataStore) -> None:
    registry = Registry(store)
    registry.register("flights", trained(store, "eve"), by="ada")
    registry.require("flights", "champion", ApprovalRule(2), by="ada", why="rule 7")
    with pytest.raises(StateError, match="2 approvals of 2 missing; not ada or eve, who made it"):
        registry.set_alias("flights", "champion", 1, by="ada")
    for maker in ("ada", "eve"):
        with pytest.raises(InputError, match=f"{maker} made it"):
            registry.answer("flights", 1, approved=True, by=f" {maker} ")
    registry.answer("flights", 1, approved=True, by="bob")
    registry.answer("flights", 1, approved=False, by="kim", comment="see issue 412")
    with pytest.raises(StateError, match="rejected by kim: see issue 412"):
        registry.set_alias("flights", "champion", 1, by="ada")
    registry.set_alias("flights", "challenger", 1, by="ada")  # no rule is about it
    registry.answer("flights", 1, approved=True, by="kim", comment="mended")
    assert registry.set_alias("flights", "champion", 1, by="ada").aliases["champion"] == 1
    assert registry.require("flights", "champion", None, by="ada").rules == {}


def test_an_approval_expires(tmp_path: Path) -> None:
    now = [1_700_000_000_000_000]
    with MetadataStore.open(tmp_path / "metadata.db", clock=lambda: now[0]) as store:
        registry = Registry(store)
        registry.register("flights", trained(store), by="ada")
        registry.require("flights", "champion", ApprovalRule(days=2), by="ada")
        registry.answer("flights", 1, approved=True, by="bob")
        now[0] += 3 * 86_400_000_000
        with pytest.raises(StateError, match="bob's of 2023-11-14 expired"):
            registry.set_alias("flights", "champion", 1, by="ada")
        registry.answer("flights", 1, approved=True, by="bob")
        assert registry.set_alias("flights", "champion", 1, by="ada").aliases == {"champion": 1}


def test_words(store: MetadataStore) -> None:
    registry = Registry(store)
    registry.register("flights", trained(store), by="ada")
    registry.describe("flights", description="Delays.", tags={"team": "risk", "old": "x"}, by="ada")
    registry.describe("flights", tags={"old": None, "area": "ops"}, by="bob")
    model = registry.describe("flights", 1, description="Of May.", tags={"auc": "0.9"}, by="bob")
    assert (model.description, model.tags) == ("Delays.", {"team": "risk", "area": "ops"})
    assert (model.version(1).description, model.version(1).tags) == ("Of May.", {"auc": "0.9"})


@pytest.mark.parametrize("alias", ["latest", "Latest", "3", "v3", "V12", "", "a b", "é", "x" * 64, "@", "a@b"])
def test_what_cannot_be_an_alias(store: MetadataStore, alias: str) -> None:
    registry = Registry(store)
    registry.register("flights", trained(store), by="ada")
    with pytest.raises(InputError):
        registry.set_alias("flights", alias, 1, by="ada")
    with pytest.raises(InputError):
        registry.require("flights", alias, ApprovalRule(), by="ada")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a@b", "a:b", "é", "x" * 121, "7", ".x", "a\0"])
def test_what_cannot_be_a_name(store: MetadataStore, name: str) -> None:
    with pytest.raises(InputError):
        Registry(store).register(name, trained(store), by="ada")
    with pytest.raises(InputError):
        Registry(store).resolve(name)
    assert Registry(store).names() == []


def test_what_is_not_there_is_named(store: MetadataStore) -> None:
    registry = Registry(store)
    with pytest.raises(NotFound, match="no registered model 'flights'"):
        registry.resolve("flights")
    model = trained(store)
    registry.register("flights", model, by="ada")
    with pytest.raises(NotFound, match="has no version 2"):
        registry.set_alias("flights", "champion", 2, by="ada")
    with pytest.raises(NotFound, match="no version 0"):
        registry.resolve("flights@0")
    with pytest.raises(InputError, match="nobody is said"):
        registry.set_alias("flights", "champion", 1, by=" ")
    store.update_artifact(model, state="DELETED")
    with pytest.raises(StateError, match="is DELETED"):
        registry.register("flights2", store.artifact(model.uid), by="ada")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM context WHERE name = '2' AND properties LIKE '%champion%'",
        "UPDATE context SET properties = replace(properties, '\"version\":1', '\"version\":\"x\"') WHERE name = '3'",
        "UPDATE context SET properties = replace(properties, '\"fingerprint\"', '\"f\"') WHERE name = '1'",
        "UPDATE context SET properties = replace(properties, '\"kind\"', '\"k\"') WHERE name = '1'",
        "UPDATE context SET name = '7' WHERE name = '3'",
    ],
)
def test_a_log_that_somebody_edited_is_damaged(tmp_path: Path, damage: str) -> None:
    """Neither a wrong answer nor a loop that looks for the next number for ever."""
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        Registry(store).register("flights", trained(store), by="ada")
        Registry(store).set_alias("flights", "champion", 1, by="ada")
        Registry(store).answer("flights", 1, approved=True, by="bob")
    with closing(sqlite3.connect(path)) as connection, connection:
        changed = connection.execute(
            damage + " AND type_id IN (SELECT id FROM type WHERE name = 'registry of flights')"
        )
        assert changed.rowcount == 1
    with MetadataStore.open(path) as store:
        for ask in (
            lambda: Registry(store).resolve("flights@champion"),
            lambda: Registry(store).set_alias("flights", "challenger", 1, by="ada"),
        ):
            with pytest.raises(StoreDamaged, match="is damaged: "):
                ask()


def test_what_a_newer_release_wrote_is_passed_over(store: MetadataStore) -> None:
    registry = Registry(store)
    registry.register("flights", trained(store), by="ada")
    store.context("registry of flights", "2", {"kind": "embargo", "by": "kim", "why": "", "mark": "", "until": "May"})
    model = registry.set_alias("flights", "champion", 1, by="ada")
    assert [str(entry) for entry in model.log[1:]] == ["embargo by kim", "champion moved to version 1 by ada"]


def test_a_reference_is_split() -> None:
    assert split_reference("flights") == ("flights", "latest")
    assert split_reference("flights@champion") == ("flights", "champion")
    assert split_reference("a.b-c_9@12") == ("a.b-c_9", "12")
    for wrong in ("flights@", "@champion", "flights@a@b", "flights@v3", "flights@-", "models:/flights"):
        with pytest.raises(InputError, match="names no registered model"):
            split_reference(wrong)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "champion", "challenger", "remove", "approve", "reject"]), st.integers(0, 4)
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_log_tells_what_was_done_and_what_was_so_before(tmp_path_factory: Any, steps: list[Any]) -> None:
    """Against a dict of aliases and a list of versions that is kept beside it; also as of every moment before."""
    aliases: dict[str, int] = {}
    versions: list[str] = []
    answers: list[tuple[int, bool]] = []
    past: list[tuple[Any, dict[str, int], list[str]]] = []
    with MetadataStore.open(tmp_path_factory.mktemp("store") / "metadata.db") as store:
        registry = Registry(store)
        versions.append(registry.register("m", trained(store), by="ada").artifact)
        for step, number in steps:
            past.append((store.context("run", f"mark-{next(_numbers)}"), dict(aliases), list(versions)))
            version = number + 1
            action: Callable[[], object]
            match step:
                case "register":
                    versions.append(registry.register("m", trained(store), by="ada").artifact)
                    continue
                case "remove":
                    action = partial(registry.remove_alias, "m", "champion", by="ada")
                    known = "champion" in aliases
                case "approve" | "reject":
                    yes = step == "approve"
                    known = version <= len(versions)
                    action = partial(registry.answer, "m", version, approved=yes, by="bob")
                    answers += [(version, yes)] if known else []
                case alias:
                    known = version <= len(versions)
                    action = partial(registry.set_alias, "m", alias, version, by="ada")
            if not known:
                with pytest.raises(NotFound):
                    action()
                continue
            action()
            if step == "remove":
                del aliases["champion"]
            elif step in ("champion", "challenger"):
                aliases[step] = version
        model = registry.model("m")
        assert (model.aliases, [each.artifact for each in model.versions]) == (aliases, versions)
        said = [(each.facts["version"], each.facts["approved"]) for each in model.log if each.kind == "answer"]
        assert said == answers
        assert [entry.number for entry in model.log] == [*range(1, len(model.log) + 1)]
        for mark, aliases_then, versions_then in past:
            then = registry.model("m", before=mark)
            assert (then.aliases, [each.artifact for each in then.versions]) == (aliases_then, versions_then)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [8])
def test_eight_processes_register_and_move(store_address: StoreAddress, workers: int) -> None:
    address = store_address("metadata")
    MetadataStore.open(address).close()
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKERS), "register_and_move", str(address), str(worker), "12"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(workers)
    ]
    won = lost = 0
    for process in processes:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        won, lost = won + int(output.split()[0]), lost + int(output.split()[1])
    with MetadataStore.open(address, readonly=True) as store:
        model = Registry(store).model("flights")
    assert [version.number for version in model.versions] == [*range(1, 12 * workers + 1)]
    assert len({version.artifact for version in model.versions}) == 12 * workers
    moves = [entry.facts for entry in model.log if entry.kind == "alias"]
    assert (won + lost, won) == (12 * workers, len(moves))
    assert [move["before"] for move in moves] == [None, *(move["version"] for move in moves[:-1])]  # each saw the last
