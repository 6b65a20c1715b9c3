"""Pushing to a running server: what it serves then, what it refuses, who may ask, and kills of either side."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("httptools")

import drivetrain as dt
from click.testing import CliRunner
from drivetrain import InputError
from drivetrain.components import Pusher
from drivetrain.components.pusher import push
from drivetrain.console.cli import cli
from drivetrain.metadata import Model
from drivetrain.pipelines import Home
from drivetrain.serving.client import Client, ServerError
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.tls import TlsFiles
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.running import serving

pytestmark = pytest.mark.engine
HIDDEN = 24
ROWS = [{"x": row["x"]} for row in rows_of(9, 8).to_pylist()]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of one architecture, by seed."""
    folder = tmp_path_factory.mktemp("bundles")
    for seed in (1, 2, 3):
        write_network(folder / str(seed), seed, hidden=HIDDEN)
    return folder


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that destinations are in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIVETRAIN_API_KEY", raising=False)
    monkeypatch.setattr("drivetrain.components.rollout._LOOK_SECONDS", 0.05)
    return tmp_path


def serving_net(base_path: str = "served/net", **options: Any) -> AbstractContextManager[OpenServer]:
    """A server of the model `net` that loads a version when it is asked to."""
    return open_server(ServerOptions(poll_seconds=3600, **options), [ModelConfig("net", base_path)])


def model_of(bundles: Path, seed: int) -> Model:
    """A model with the weights of a seed."""
    model = Model.new()
    model.content.rmdir()
    model.content.symlink_to(bundles / str(seed))
    return model


def answers_whole(address: str, seeds: dict[int, int], api_key: str | None = None) -> int:
    """The version that answers, having compared its predictions with NumPy's for the seed of that version."""
    with Client(address, "net", api_key=api_key) as client:
        prediction = client.predict(ROWS)
    scores = expected(seeds[prediction.version], HIDDEN)[: len(ROWS)]
    np.testing.assert_allclose(prediction.rows, scores, atol=1e-5)
    return prediction.version


def test_a_push_answers_when_the_node_ends(workplace: Path, bundles: Path) -> None:
    push(bundles / "1", workplace / "served" / "net")
    with serving_net() as server:
        pushed = Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        assert answers_whole(server.rest, {1: 1, 2: 2}) == 2
        assert (pushed.version, pushed.server) == (2, server.rest)
        facts = pushed.serving
        assert {name: facts[name] for name in ("model", "before", "after", "steps")} == {
            "model": "net", "before": 1, "after": 2, "steps": [],
        }  # fmt: skip
        assert pushed.bundle == json.loads((bundles / "2" / "manifest.json").read_text())["digest"]
        assert Pusher(model_of(bundles, 2), destination="served/net", server=server.rest).version == 2  # again


def test_the_first_version_of_a_model(workplace: Path, bundles: Path) -> None:
    (workplace / "served").mkdir()  # the server waits for what will be in it
    with serving_net() as server:
        pushed = Pusher(model_of(bundles, 3), destination="served/net", server=server.rest)
        assert answers_whole(server.rest, {1: 3}) == 1
        assert pushed.serving["before"] is None


def test_what_the_server_refuses_fails_with_its_reason_and_the_old_version_answers(
    workplace: Path, bundles: Path
) -> None:
    push(bundles / "1", workplace / "served" / "net")
    broken = Model.new()
    (broken.content / "manifest.json").write_text('{"format": "something else"}')
    with serving_net() as server:
        with pytest.raises(ServerError, match=r"the server refuses version 2: .*manifest"):
            Pusher(broken, destination="served/net", server=server.rest)
        assert answers_whole(server.rest, {1: 1}) == 1


def test_a_server_of_another_folder_is_noticed(workplace: Path, bundles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.components.rollout._UNSEEN", 0.3)
    push(bundles / "1", workplace / "other" / "net")
    with serving_net("other/net") as server:
        push(bundles / "1", workplace / "served" / "net")
        with pytest.raises(ServerError, match="does not serve version 2 of served/net"):
            Pusher(model_of(bundles, 2), destination="served/net", server=server.rest)
        with pytest.raises(ServerError, match=r"version 1 of the server is the bundle .*, which was pushed"):
            Pusher(model_of(bundles, 3), destination="elsewhere/net", server=server.rest)
        assert answers_whole(server.rest, {1: 1}) == 1


def new_key(name: str) -> dict[str, str]:
    """A key as `serve --new-key` prints it."""
    key: dict[str, str] = json.loads(CliRunner().invoke(cli, ["serve", "--new-key", name, "--json"]).stdout)
    return key


def test_nothing_is_pushed_where_the_server_does_not_let_us_in(
    workplace: Path, bundles: Path, caplog: pytest.LogCaptureFixture
) -> None:
    push(bundles / "1", workplace / "served" / "net")
    keys = {name: new_key(name) for name in ("operator", "app")}
    entries: dict[str, Any] = {name: {"sha256": key["sha256"]} for name, key in keys.items()}
    entries["operator"]["may"] = ["admin"]
    (workplace / "keys.yaml").write_text(yaml.safe_dump({"keys": entries}))
    model = model_of(bundles, 2)
    with (
        caplog.at_level(logging.INFO, "drivetrain.serving"),
        serving_net(keys=Path("keys.yaml")) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("APP_KEY", keys["app"]["secret"])
        patch.setenv("OPERATOR_KEY", keys["operator"]["secret"])
        with pytest.raises(ServerError, match=r"answers 401: .this server asks for a key"):
            Pusher(model, destination="served/net", server=server.rest)
        with pytest.raises(ServerError, match=r"answers 403: .the key 'app' may not change what is served"):
            Pusher(model, destination="served/net", server=server.rest, api_key=dt.secret("APP_KEY"))
        with pytest.raises(ServerError, match=r"answers 404: .there is no model 'nets'"):
            Pusher(
                model, destination="served/net", server=server.rest, served_as="nets",
                api_key=dt.secret("OPERATOR_KEY"),
            )  # fmt: skip
        assert not (workplace / "served" / "net" / "2").exists()
        pushed = Pusher(model, destination="served/net", server=server.rest, api_key=dt.secret("OPERATOR_KEY"))
        assert answers_whole(server.rest, {1: 1, 2: 2}, keys["app"]["secret"]) == 2
        assert keys["operator"]["secret"] not in json.dumps(pushed.properties)
        assert "version 2 serves" in caplog.text
        assert keys["operator"]["secret"] not in caplog.text


PIPELINE = """
import drivetrain as dt
from drivetrain.components import ImportModel, Pusher


@dt.pipeline
def shop(bundle: str, server: str) -> None:
    model = ImportModel(path=bundle)
    Pusher(model, destination="served/net", server=server, api_key=dt.secret("OPERATOR_KEY"), tls_ca="server.pem")
"""


def test_a_pipeline_pushes_over_tls_by_a_secret_and_the_store_has_the_receipt(
    workplace: Path, bundles: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("cryptography")
    from drivetrain.tests.serving.test_tls import write_certificate

    write_certificate(workplace, "server")
    key = new_key("operator")
    (workplace / "keys.yaml").write_text(
        yaml.safe_dump({"keys": {"operator": {"sha256": key["sha256"], "may": ["admin"]}}})
    )
    (workplace / "shop").mkdir()
    (workplace / "shop" / "__init__.py").touch()
    (workplace / "shop" / "pipeline.py").write_text(PIPELINE)
    (workplace / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    push(bundles / "1", workplace / "served" / "net")
    monkeypatch.setenv("OPERATOR_KEY", key["secret"])
    tls = TlsFiles(Path("server.pem"), Path("server.key"))
    with (
        caplog.at_level(logging.INFO, "drivetrain.serving"),
        serving_net(keys=Path("keys.yaml"), tls=tls) as server,
    ):
        ran = CliRunner().invoke(
            cli,
            ["run", "shop", "--json", "-p", f"bundle={bundles}/2/manifest.json", "-p", f"server={server.address}"],
        )
        answer = json.loads(ran.stdout.splitlines()[-1])
        assert answer["state"] == "COMPLETE", ran.output
        (receipt,) = answer["nodes"]["Pusher"]["outputs"]["pushed_model"]
        home = Home(workplace / ".drivetrain", readonly=True)
        record = home.store.artifact_by_uri(receipt["uri"])
        home.close()
        assert record is not None
        facts: Any = record.properties
        assert (facts["server"], facts["version"]) == (server.address, 2)
        assert [facts["serving"][name] for name in ("model", "before", "after")] == ["net", 1, 2]
        shown = CliRunner().invoke(cli, ["show"]).output
        assert f"took over at {server.address} from version 1" in " ".join(shown.split())
    assert "version 2 serves" in caplog.text
    assert key["secret"] not in caplog.text
    for path in workplace.rglob("*"):
        if path.is_file():
            assert key["secret"].encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"server": "localhost:8501"}, "is not a server"),
        ({"server": "ftp://host"}, "is not a server"),
        ({"server": "http://me:hunter2@host:8501"}, "holds a password or a token"),
        ({"server": "http://host:8501", "tls_ca": "ca.pem"}, "asked in plain text"),
        ({"server": "https://host:8501", "tls_ca": "no/ca.pem"}, "holds no certificates"),
        ({"served_as": "net"}, "(?s)served_as needs a server, and none is named.* leave served_as out"),
        ({"server": "http://host:8501", "max_load_seconds": 0}, "max_load_seconds must be above 0"),
    ],
)
def test_parameters_that_cannot_be(workplace: Path, bundles: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        Pusher(model_of(bundles, 1), destination="served/net", **options)
    assert "hunter2" not in str(refusal.value)
    assert not (workplace / "served").exists()


def test_a_server_that_is_not_there(workplace: Path, bundles: Path) -> None:
    with pytest.raises(ServerError, match="does not answer"):
        Pusher(model_of(bundles, 1), destination="served/net", server="http://127.0.0.1:9", max_load_seconds=0.1)
    assert not (workplace / "served").exists()


PUSH = """
import sys
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from drivetrain.components import Pusher
from drivetrain.metadata import Model
from drivetrain.components import rollout
rollout._LOOK_SECONDS, rollout._FIRST_ANSWER = 0.05, 600.0
model = Model.new()
model.content.rmdir()
model.content.symlink_to(sys.argv[1])
print("begins", flush=True)
pushed = Pusher(model, destination="served/net", server=sys.argv[2])
print(pushed.version, flush=True)
"""


@contextmanager
def pushing(bundle: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is about to push."""
    command = [sys.executable, "-c", PUSH, str(bundle), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            yield process
        finally:
            process.kill()


def seeds_served(served: Path, bundles: Path) -> dict[int, int]:
    """The seed of each whole version in a folder."""
    seeds = {json.loads((bundles / str(seed) / "manifest.json").read_text())["digest"]: seed for seed in (1, 2, 3)}
    whole = [entry for entry in served.iterdir() if entry.is_dir() and entry.name.isdecimal()]
    return {int(entry.name): seeds[json.loads((entry / "manifest.json").read_text())["digest"]] for entry in whole}


def kill_pushers(workplace: Path, bundles: Path, kills: int) -> None:
    """Kill pushers at random moments, and see that the server answers by the old version or the new one."""
    served = workplace / "served" / "net"
    push(bundles / "1", served)
    moments = random.Random(kills)
    with serving_net() as server:
        for kill in range(kills):
            before = answers_whole(server.rest, seeds_served(served, bundles))
            seed = 1 + seeds_served(served, bundles)[before] % 3
            with pushing(bundles / str(seed), server.rest) as process:
                time.sleep(moments.uniform(0, 0.6))
                process.kill()
            answered = answers_whole(server.rest, seeds_served(served, bundles))
            assert answered == before or seeds_served(served, bundles)[answered] == seed, kill
            pushed = Pusher(model_of(bundles, seed), destination="served/net", server=server.rest)
            assert answers_whole(server.rest, seeds_served(served, bundles)) == pushed.version
            assert seeds_served(served, bundles)[pushed.version] == seed
            assert pushed.version in (before + 1, before + 2)  # a version that the killed one had finished is adopted
    assert not [entry for entry in served.iterdir() if entry.name.startswith(".")]


def kill_servers(workplace: Path, bundles: Path, kills: int) -> None:
    """Kill the server at a random moment of a push, start it again; the push ends well, by the new version."""
    served = workplace / "served" / "net"
    push(bundles / "1", served)
    moments = random.Random(kills)
    with serving(workplace, "served/net", "--poll", "3600") as first:
        port = first.address.rpartition(":")[2]
        answers_whole(first.address, {1: 1})
        running = first
        for kill in range(kills):
            seed = 1 + (kill + 1) % 3
            with pushing(bundles / str(seed), first.address) as process:
                time.sleep(moments.uniform(0, 0.6))
                running.process.kill()
                running.process.wait()
                with serving(workplace, "served/net", "--poll", "3600", "--rest-port", port) as running:
                    assert process.wait(120) == 0, kill
                    assert answers_whole(first.address, seeds_served(served, bundles)) == kill + 2
                    assert seeds_served(served, bundles)[kill + 2] == seed


def test_a_pusher_that_is_killed_leaves_a_whole_version_that_answers(workplace: Path, bundles: Path) -> None:
    kill_pushers(workplace, bundles, 3)


def test_a_server_that_is_killed_is_waited_for(workplace: Path, bundles: Path) -> None:
    kill_servers(workplace, bundles, 1)


@pytest.mark.slow
def test_kills_of_either_side(workplace: Path, bundles: Path) -> None:
    (workplace / "pushers").mkdir()
    (workplace / "servers").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace / "pushers")
        kill_pushers(workplace / "pushers", bundles, 20)
        patch.chdir(workplace / "servers")
        kill_servers(workplace / "servers", bundles, 10)
