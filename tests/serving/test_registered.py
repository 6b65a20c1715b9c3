"""A server that follows a registered model's alias: forward, back, and to nothing that is wrong."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools")

from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.console.exit_codes import USER_ERROR
from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord
from drivetrain.metadata.errors import StoreUnavailable
from drivetrain.metadata.registry import Registry
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.registered import RegisteredModels
from drivetrain.serving.request_log import RequestLogOptions
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import write_network
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """`shop` with versions 1 and 2, which are networks of those seeds, and 3, which is damaged."""
    folder = tmp_path_factory.mktemp("registered")
    (folder / "shop").mkdir()
    (folder / "shop" / "pipeline.py").write_text(textwrap.dedent(PIPELINE))
    home = Home(folder / ".drivetrain")
    registry = Registry(home.store)
    pipeline = load_pipeline(folder / "shop")
    for seed in (1, 2, 9):
        result = run_pipeline(home, pipeline, {"seed": seed})
        assert result.state == "COMPLETE", result.nodes
        (model,) = result.nodes["Train"].outputs["model"]
        registry.register("shop", model, by="ada")
    yield home
    home.close()


@pytest.fixture
def registry(home: Home, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of `shop`, whose champion is 1, in the root of this test."""
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(home.root))
    registry = Registry(home.store)
    move(registry, 1)
    return registry


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
        while not stop.wait(0.002):
            try:
                assert version_of(server) in (1, 2)
            except BaseException as error:
                errors.append(error)

    arguments = ("registered:shop@champion", "--poll", "0.05", "--workers", workers)
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
    key = tmp_path / "key.pub"
    key.write_text("")
    for reference, options, says in (
        ("shop@nobody", (), "no alias 'nobody'"), ("mart", (), "there is no registered model 'mart'"),
        ("shop/3", (), "names no registered model"), ("shop", ("--require-signed", str(key)), "carry no signature"),
    ):  # fmt: skip
        ran = CliRunner().invoke(cli, ["serve", f"registered:{reference}", "--rest-port", "0", *options])
        assert ran.exit_code == USER_ERROR
        assert says in ran.output


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_file_of_models_names_registered_ones_too(registry: Registry, tmp_path: Path, workers: str) -> None:
    """Beside a pushed model, under two names, added to a server that runs and taken out again."""
    write_network(tmp_path / "pushed" / "1", 2, hidden=HIDDEN)
    pushed = "models:\n  net: {base_path: pushed}\n"
    config = tmp_path / "models.yaml"
    config.write_text(f"{pushed}  shop: {{base_path: 'registered:shop@champion', request_log: {{folder: log}}}}\n")
    arguments = ("--config", "models.yaml", "--config-poll", "0.05", "--workers", workers)
    with serving(tmp_path, *arguments) as server:
        assert version_of(server) == 1
        move(registry, 2)
        until_served(server, 2)
        config.write_text(f"{config.read_text()}  fixed: {{base_path: 'registered:shop@1'}}\n")
        until(lambda: ask(server, "/v1/models/fixed:predict")[0] == 200)
        registry.remove_alias("shop", "champion", by="ada")
        until(lambda: "shop@champion is served as it was: " in server.log.read_text())
        move(registry, 1)  # of three models one changed: the others are left alone
        until_served(server, 1)
        assert ask(server, "/v1/models/fixed:predict")[2]["x-drivetrain-version"] == "1"
        config.write_text(f"{pushed}  shop: {{base_path: 'registered:mart@champion', request_log: {{folder: log}}}}\n")
        until(lambda: "the models stay as they were: there is no registered model 'mart'" in server.log.read_text())
        assert version_of(server) == 1
        config.write_text(pushed)
        until(lambda: ask(server, "/v1/models/shop:predict")[0] == 404)
        assert ask(server, "/v1/models/net:predict")[0] == 200
        assert server.end() == 0
    assert list((tmp_path / "log").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "{base_path: 'registered:shop@champion', versions: all}",
            r"versions is of a model that is pushed.*\n.*take it",
        ),
        ("{base_path: 'registered:shop', require_signed: key.pub}", "require_signed is of a model that is pushed"),
        ("{base_path: 'registered:shop/3'}", "'shop/3' names no registered model"),
        ("{base_path: 'registered:'}", "names no registered model"),
    ],
)
def test_what_a_registered_model_in_a_file_cannot_have(tmp_path: Path, entry: str, says: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(f"models:\n  shop:\n    {entry}\n")
    with pytest.raises(InputError, match=says) as caught:
        read_models(path)
    assert f"{path}:3: " in str(caught.value)


def test_what_a_registered_model_comes_to(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {version: tmp_path / f"payload-{version}" for version in (1, 2, 3)}
    numbers = {each.artifact: each.number for each in registry.model("shop").versions}
    fetched: list[int] = []

    def fetch(record: ArtifactRecord) -> Path:
        fetched.append(numbers[record.uid])
        return folders[numbers[record.uid]]

    models = RegisteredModels(registry, fetch, tmp_path / "here")
    newest = ModelConfig("shop", "registered:shop", request_log=RequestLogOptions("/x"))
    for _ in range(2):
        model = models.resolved(newest)
        assert (model.name, model.policy, model.versions) == ("shop", "specific", (3,))  # the newest
        assert model.request_log == RequestLogOptions("/x")
        assert (Path(model.base_path) / "3").readlink() == folders[3]
    assert fetched == [3]  # nothing changed
    fixed = models.resolved(ModelConfig("late", "registered:shop@2"))
    assert (fixed.name, fixed.versions, (Path(fixed.base_path) / "2").readlink()) == ("late", (2,), folders[2])
    pushed = ModelConfig("net", str(tmp_path))
    assert models.resolved(pushed) is pushed
    with pytest.raises(InputError, match="names no registered model"):
        models.resolved(ModelConfig("late", "registered:"))

    # A store that is away: said once, looked at again; what was never there is an error.
    def away(registry: Registry, reference: str) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(Registry, "resolve", away)
    for _ in range(3):
        assert models.resolved(newest).versions == (3,)
    assert [record.message for record in caplog.records].count(
        "shop is served as it was: the database does not answer"
    ) == 1
    with pytest.raises(StoreUnavailable):
        models.resolved(ModelConfig("shop", "registered:shop@champion"))
