"""A server that follows a registered model's alias: forward, back, and to nothing that is wrong."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools")

from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord
from drivetrain.metadata.errors import StoreUnavailable
from drivetrain.metadata.registry import Registry
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.serving.config import read_models
from drivetrain.serving.registered import AliasFollower
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.running import RunningServer, serving
from drivetrain.tests.serving.test_config_file import until
from drivetrain.tests.serving.test_workers import HIDDEN, ask

pytestmark = pytest.mark.engine

PIPELINE = f"""
    import shutil
    from pathlib import Path
    from tempfile import TemporaryDirectory
    import drivetrain as dt
    from drivetrain.metadata.types import Model
    from drivetrain.tests.serving.bundles import write_network

    @dt.component
    def Train(*, seed: int) -> Model:
        model = Model.new()
        if seed < 9:
            with TemporaryDirectory() as folder:
                write_network(Path(folder, "network"), seed, hidden={HIDDEN})
                shutil.copytree(Path(folder, "network"), model.content, dirs_exist_ok=True)
        else:
            (model.content / "manifest.json").write_text("no bundle")
        return model

    @dt.pipeline
    def shop(seed: int) -> None:
        Train(seed=seed)
"""


@pytest.fixture
def registry(tmp_path: Path, project: Callable[..., Path]) -> Iterator[Registry]:
    """`shop` with versions 1 and 2, which are networks of those seeds, and 3, which is damaged; champion is 1."""
    home = Home(tmp_path / ".drivetrain")
    registry = Registry(home.store)
    pipeline = load_pipeline(project("shop", pipeline=textwrap.dedent(PIPELINE)))
    for seed in (1, 2, 9):
        result = run_pipeline(home, pipeline, {"seed": seed})
        assert result.state == "COMPLETE", result.nodes
        (model,) = result.nodes["Train"].outputs["model"]
        registry.register("shop", model, by="ada")
    move(registry, 1)
    yield registry
    home.close()


def move(registry: Registry, version: int) -> None:
    registry.set_alias("shop", "champion", version, by="ada")


def version_of(server: RunningServer) -> int:
    status, body, headers = ask(server, "/v1/models/shop:predict")
    assert status == 200, body
    version = int(headers["x-drivetrain-version"])
    assert body["predictions"] == pytest.approx(expected(version, HIDDEN)[:3].tolist(), abs=1e-6)
    return version


def until_served(server: RunningServer, version: int) -> None:
    until(lambda: {version_of(server) for _ in range(6)} == {version})


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_moved_alias_is_served_without_an_error_to_anybody(registry: Registry, tmp_path: Path, workers: str) -> None:
    errors: list[BaseException] = []
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            try:
                assert version_of(server) in (1, 2)
            except BaseException as error:
                errors.append(error)

    arguments = ("registered:shop@champion", "--poll", "0.2", "--workers", workers)
    with serving(tmp_path, *arguments, "--request-log", "log") as server:
        assert version_of(server) == 1
        threads = [threading.Thread(target=hammer) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for version in (2, 1, 2):  # forward, back, and forward again
                move(registry, version)
                until_served(server, version)
            move(registry, 3)  # damaged: the last good one goes on
            until(lambda: "version 3:" in server.log.read_text())
            assert version_of(server) == 2
            registry.remove_alias("shop", "champion", by="ada")
            until(lambda: "served as it was: " in server.log.read_text())
            assert version_of(server) == 2
            move(registry, 1)
            until_served(server, 1)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert server.end() == 0
    assert errors == []
    assert list((tmp_path / "log").rglob("*.parquet"))


def test_what_cannot_be_served(registry: Registry, tmp_path: Path) -> None:
    for reference, says in (
        ("shop@nobody", "no alias 'nobody'"), ("mart", "there is no registered model 'mart'"),
        ("shop/3", "names no registered model"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=says), serving(tmp_path, f"registered:{reference}"):
            raise NotImplementedError
    (tmp_path / "key.pub").write_text("")
    signed = serving(tmp_path, "registered:shop", "--require-signed", "key.pub")
    with pytest.raises(AssertionError, match="carry no signature"), signed:
        raise NotImplementedError


def test_what_the_file_says(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {version: tmp_path / f"payload-{version}" for version in (1, 2, 3)}
    numbers = {each.artifact: each.number for each in registry.model("shop").versions}

    def fetch(record: ArtifactRecord) -> Path:
        return folders[numbers[record.uid]]

    log = {"request_log": {"folder": "/x"}}
    follower = AliasFollower(registry, "shop", fetch, tmp_path / "here", log)
    assert follower.look().number == 3  # the newest
    (model,) = read_models(follower.config)
    assert (model.name, model.policy, model.versions) == ("shop", "specific", (3,))
    assert model.request_log is not None
    assert (Path(model.base_path) / "3").readlink() == folders[3]
    written = follower.config.stat().st_mtime_ns
    follower.look()
    assert follower.config.stat().st_mtime_ns == written  # nothing changed
    fixed = AliasFollower(registry, "shop@2", fetch, tmp_path / "fixed", {}, "late")
    fixed.look()
    assert [(each.name, each.versions) for each in read_models(fixed.config)] == [("late", (2,))]
    with pytest.raises(InputError, match="names no registered model"):
        AliasFollower(registry, "", lambda record: tmp_path, tmp_path, {})

    # A store that is away: said once, looked at again.
    looks = iter(range(3))
    ended = threading.Event()

    def away(registry: Registry, reference: str) -> None:
        if next(looks, None) is None:
            ended.set()
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(Registry, "resolve", away)
    follower.follow(0.001, ended)
    assert [record.message for record in caplog.records].count(
        "shop is served as it was: the database does not answer"
    ) == 1
