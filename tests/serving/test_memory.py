"""More models than memory: those that were not asked for longest sleep, and every answer is the right model's."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

pytest.importorskip("httptools")

from drivetrain.components.pusher import push
from drivetrain.serving.api import InferenceAnswer, InferenceRequest, ModelRef, RequestError, StatusCode, VersionState
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.manager import ModelManager
from drivetrain.serving.server import configure_jax
from drivetrain.serving.version import prepare
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import rows_of, write_network

pytestmark = pytest.mark.engine
HIDDEN = 24
SEEDS = range(1, 7)
X = [row["x"] for row in rows_of(9).slice(0, 2).to_pylist()]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`m1` to `m6`, with the weights of these seeds."""
    folder = tmp_path_factory.mktemp("models")
    for seed in SEEDS:
        write_network(folder / "bundles" / str(seed), seed, hidden=HIDDEN)
        push(folder / "bundles" / str(seed), folder / f"m{seed}")
    return folder


def configs(folder: Path, seeds: Any = SEEDS) -> list[ModelConfig]:
    return [ModelConfig(f"m{seed}", str(folder / f"m{seed}")) for seed in seeds]


def bytes_of(folder: Path, versions: int) -> int:
    """Room for so many versions: all are of one size."""
    return versions * prepare("m", str(folder / "m1"), 1).size


def with_manager(manager: ModelManager, use: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run while it is started."""

    async def main() -> None:
        await manager.start()
        try:
            await use()
        finally:
            await manager.stop()

    asyncio.run(main())


def in_memory(manager: ModelManager) -> list[str]:
    return sorted(each.prepared.described.name for each in manager._in_memory() if each.prepared is not None)


async def check(manager: ModelManager, seed: int) -> None:
    request = InferenceRequest(ModelRef(f"m{seed}"), None, {"x": X}, len(X))
    answer = await manager.infer(request)
    assert answer.name == f"m{seed}"
    check_scores(answer, seed)


def check_scores(answer: InferenceAnswer, seed: int) -> None:
    assert answer.outputs["score"].tolist() == pytest.approx(expected(seed, HIDDEN)[: len(X)].tolist(), abs=1e-6)


def test_the_least_recently_asked_sleeps_and_every_answer_is_the_right_models(models: Path) -> None:
    manager = ModelManager(configs(models), poll_seconds=0, most_bytes=bytes_of(models, 2))

    async def use() -> None:
        assert manager.ready  # those asleep too can be asked
        assert len(in_memory(manager)) == 2  # whichever were found first
        for seed in (1, 2):
            await check(manager, seed)
        assert in_memory(manager) == ["m1", "m2"]
        assert {manager.statuses(ModelRef(name))[0].state for name in manager.names()} == {VersionState.AVAILABLE}
        assert manager.describe(ModelRef("m6")).signatures["predict"].outputs.keys() == {"score"}
        for seed, awake in ((3, "m2 m3"), (2, "m2 m3"), (4, "m2 m4"), (2, "m2 m4"), (1, "m1 m2")):
            await check(manager, seed)
            assert in_memory(manager) == awake.split()
        rng = random.Random(3)
        for _ in range(4):  # many at once, of all models: each waits for its own
            await asyncio.gather(*(check(manager, rng.choice(SEEDS)) for _ in range(20)))
            assert len(in_memory(manager)) <= 2

    with_manager(manager, use)


def test_a_version_that_replaces_one_wakes_nobody_up_and_rolls_back(models: Path, tmp_path: Path) -> None:
    push(models / "bundles" / "1", tmp_path / "m")
    push(models / "bundles" / "2", models / "other")
    changing = [ModelConfig("m", str(tmp_path / "m")), ModelConfig("other", str(models / "other"))]
    manager = ModelManager(changing, poll_seconds=0, most_bytes=bytes_of(models, 1))

    async def use() -> None:
        assert len(in_memory(manager)) == 1
        await manager.infer(InferenceRequest(ModelRef("m"), None, {"x": X}, len(X)))
        assert in_memory(manager) == ["m"]
        push(models / "bundles" / "3", tmp_path / "m")
        await manager.load("m")
        assert manager.statuses(ModelRef("m"))[0].version == 2
        answer = await manager.infer(InferenceRequest(ModelRef("m"), None, {"x": X}, len(X)))
        check_scores(answer, 3)
        assert in_memory(manager) == ["m"]
        await manager.unload("m")
        assert in_memory(manager) == []
        await manager.infer(InferenceRequest(ModelRef("other"), None, {"x": X}, len(X)))
        assert in_memory(manager) == ["other"]

    with_manager(manager, use)


def test_what_is_damaged_asleep_is_refused_and_what_cannot_wake_says_why(models: Path, tmp_path: Path) -> None:
    for name in "abc":
        push(models / "bundles" / "1", tmp_path / name)
    weights = next((tmp_path / "b").glob("*/weights/*"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    several = [ModelConfig(name, str(tmp_path / name)) for name in "abc"]
    manager = ModelManager(several, poll_seconds=0, most_bytes=bytes_of(models, 1))

    async def use() -> None:
        assert "does not match its digest" in manager.statuses(ModelRef("b"))[0].message
        assert not manager.ready
        await manager.infer(InferenceRequest(ModelRef("a"), None, {"x": X}, len(X)))
        assert in_memory(manager) == ["a"]
        weights = next((tmp_path / "c").glob("*/weights/*"))
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1] + b"\x07")
        requests = [InferenceRequest(ModelRef("c"), None, {"x": X}, len(X)) for _ in range(3)]
        refused = await asyncio.gather(*map(manager.infer, requests), return_exceptions=True)
        for error in refused:
            assert isinstance(error, RequestError)
            assert error.code is StatusCode.UNAVAILABLE
            assert "does not match its digest" in error.message
        assert in_memory(manager) == ["a"]  # nobody had to make room for it
        assert manager.statuses(ModelRef("c"))[0].state is VersionState.END  # and it is not tried at each request
        weights.write_bytes(whole)
        await manager.load("c")
        await manager.infer(InferenceRequest(ModelRef("c"), None, {"x": X}, len(X)))
        with pytest.raises(RequestError, match="no signature"):
            manager.submit(InferenceRequest(ModelRef("a"), "nonsense", {"x": X}, len(X)), lambda _: None)

    with_manager(manager, use)


def test_a_version_whose_folder_holds_another_bundle_does_not_answer_for_it(models: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "2")):
        push(models / "bundles" / seed, tmp_path / name)
    several = [ModelConfig(name, str(tmp_path / name)) for name in "ab"]
    manager = ModelManager(several, poll_seconds=0, most_bytes=bytes_of(models, 1))

    async def use() -> None:
        for name in "ab":  # b stays
            await manager.infer(InferenceRequest(ModelRef(name), None, {"x": X}, len(X)))
        shutil.rmtree(tmp_path / "a" / "1")
        shutil.copytree(tmp_path / "b" / "1", tmp_path / "a" / "1")
        with pytest.raises(RequestError, match="holds another bundle than before"):
            await manager.infer(InferenceRequest(ModelRef("a"), None, {"x": X}, len(X)))

    with_manager(manager, use)


def test_requests_that_wait_are_answered_whatever_wakes(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = ModelManager(configs(models, (1, 2)), poll_seconds=0, most_bytes=bytes_of(models, 1))

    async def use() -> None:
        await check(manager, 1)
        empty = SimpleNamespace(signatures={}, payload=SimpleNamespace(weights={}))
        monkeypatch.setattr("drivetrain.serving.manager.read_bundle", lambda _: empty)
        asked = [manager.infer(InferenceRequest(ModelRef("m2"), None, {"x": X}, len(X))) for _ in range(3)]
        errors = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
        assert [type(error) for error in errors] == [RequestError] * 3
        await asyncio.wait_for(manager.unload("m2"), 10)

    with_manager(manager, use)


def test_unloading_holds_whatever_path_is_configured(models: Path) -> None:
    manager = ModelManager(configs(models, (1,)), poll_seconds=0)

    async def use() -> None:
        await manager.configure([ModelConfig("m1", str(models / "nowhere"))])
        await check(manager, 1)  # the old path's answers until the new one has some
        await manager.unload("m1")
        with pytest.raises(RequestError, match="is unloaded"):
            await check(manager, 1)
        await manager.configure(configs(models, (1,)))
        with pytest.raises(RequestError, match="is unloaded"):
            await check(manager, 1)

    with_manager(manager, use)


@pytest.mark.slow
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """30 models of 10 MB with room for 10: at most the budget and a fifth above what the empty server takes."""
    configure_jax()
    for seed in (1, 2):
        write_network(tmp_path / "bundles" / str(seed), seed, hidden=1600)
        push(tmp_path / "bundles" / str(seed), tmp_path / f"m{seed}")
    several = [ModelConfig(f"n{at}", str(tmp_path / f"m{1 + at % 2}")) for at in range(30)]
    size = prepare("m", str(tmp_path / "m1"), 1).size
    assert size > 10_000_000
    process, highest = psutil.Process(), 0
    answers: dict[int, float] = {}

    async def ask(manager: ModelManager, at: int) -> float:
        answer = await manager.infer(InferenceRequest(ModelRef(f"n{at}"), None, {"x": X[:1]}, 1))
        assert answer.name == f"n{at}"
        return float(answer.outputs["score"][0])

    async def reference(manager: ModelManager) -> None:
        answers.update({at: await ask(manager, at) for at in (0, 1)})

    few = ModelManager(several[:2], poll_seconds=0, most_bytes=10 * size)
    with_manager(few, lambda: reference(few))
    few._models.clear()
    before = process.memory_info().rss
    manager = ModelManager(several, poll_seconds=0, most_bytes=10 * size)

    async def use() -> None:
        nonlocal highest
        rng = random.Random(1)
        for _ in range(50):
            at = rng.randrange(30)
            assert await ask(manager, at) == answers[at % 2]
            highest = max(highest, process.memory_info().rss)

    with_manager(manager, use)
    assert highest - before <= 1.2 * 10 * size
