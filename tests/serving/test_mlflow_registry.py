"""MLflow's registry API: what its real client asked (beside_mlflow.py) played back; bad requests; the port itself."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("httptools")
pytest.importorskip("msgspec")

from drivetrain.metadata import MetadataStore
from drivetrain.metadata.registry import Registry
from drivetrain.serving.access import digest_of
from drivetrain.serving.mlflow_registry import MlflowRegistry
from drivetrain.tests.serving.beside_mlflow import CALLS, RECORDED, folder_of, registered
from hypothesis import given
from hypothesis import strategies as st

API = "/api/2.0/mlflow/"
REPLY = json.loads(RECORDED.read_text("utf-8"))
EXCHANGES = REPLY["exchanges"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowRegistry]:
    registry = registered(tmp_path_factory.mktemp("store") / "metadata.db")
    yield MlflowRegistry(registry, folder_of)
    registry.store.close()


@pytest.fixture
def ask(models: MlflowRegistry) -> Callable[..., Any]:
    def get(path: str, **arguments: object) -> Any:
        status, body = models.answer("GET", f"{API}{path}?{urlencode(arguments, doseq=True)}")
        return body if status == 200 else (status, body["error_code"])

    return get


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: f"{each['method']} {each['target'][16:60]}")
def test_what_the_client_asked_is_answered_as_then(models: MlflowRegistry, exchange: dict[str, Any]) -> None:
    status, answer = models.answer(exchange["method"], exchange["target"], exchange["body"].encode())
    assert exchange["agent"].startswith("mlflow-python-client/3.")
    assert (status, json.loads(json.dumps(answer))) == (exchange["status"], exchange["answer"])


def test_the_client_understood_the_answers() -> None:
    recorded = dict(REPLY["calls"])
    assert len(recorded) == len(CALLS.replace("(\n", "(").strip().splitlines())
    model = recorded["c.get_registered_model('flights')"]
    assert (model["aliases"], model["tags"]) == ({"challenger": "3", "champion": "2"}, {"team": "ops"})
    names = [each["name"] for each in recorded["c.search_registered_models()"]]
    assert names == ["flights", "taxi-late"]
    assert [each["name"] for each in recorded["c.search_registered_models(\"name ILIKE '%TAXI%'\")"]] == ["taxi-late"]
    first, page = recorded["c.search_registered_models(max_results=1, order_by=['name DESC'])"]
    assert (first["name"], page) == ("taxi-late", {"token": "1"})
    (last,) = recorded["c.search_registered_models(max_results=1, order_by=['name DESC'], page_token='1')"]
    assert last["name"] == "flights"
    champion = recorded["c.get_model_version_by_alias('flights', 'champion')"]
    assert (champion["version"], champion["run_id"], champion["user_id"]) == ("2", "run-2", "ada")
    assert recorded["c.get_model_version_download_uri('flights', '1')"] == "file:///tmp/drivetrain-registered/1"
    newer = recorded["c.search_model_versions(\"name = 'flights' and version_number > 1\")"]
    assert [each["version"] for each in newer] == ["3", "2"]
    assert recorded["mlflow.artifacts.download_artifacts('models:/flights/1') and 'downloaded'"] == "downloaded"
    refused = {call: value["code"] for call, value in recorded.items() if isinstance(value, dict) and "error" in value}
    assert {call for call, code in refused.items() if code == "PERMISSION_DENIED"} == {
        "c.set_registered_model_alias('flights', 'champion', '1')",
        "c.create_registered_model('mine')",
        "c.delete_registered_model('flights')",
        "c.create_model_version('flights', 's3://x/y')",
        "c.set_registered_model_tag('flights', 'a', 'b')",
    }
    assert sorted(code for code in refused.values() if code != "PERMISSION_DENIED") == [
        "ENDPOINT_NOT_FOUND",
        "INVALID_PARAMETER_VALUE",
        *["RESOURCE_DOES_NOT_EXIST"] * 3,
    ]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("name != 'flights'", ["taxi-late"]),
        ("name LIKE '%l%'", ["flights", "taxi-late"]),
        ("name LIKE 'taxi_late'", ["taxi-late"]),
        ("name LIKE 'taxi.late'", []),
        ("name LIKE '[ft]%'", []),
        ("name ilike 'FLI%'", ["flights"]),
        ("name = 'it''s'", []),
        ("tags.team = 'ops' and name = 'flights'", ["flights"]),
        ("tag.`team` != 'ops'", ["taxi-late"]),
        ("  ", ["flights", "taxi-late"]),
    ],
)
def test_filters(ask: Callable[..., Any], asked: str, names: list[str]) -> None:
    matching = ask("registered-models/search", filter=asked)
    assert [each["name"] for each in matching["registered_models"]] == names


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("registered-models/get", {}),
        ("registered-models/get", {"name": ["flights", "taxi-late"]}),
        ("registered-models/search", {"filter": "name = flights"}),
        ("registered-models/search", {"filter": "name = 'a' OR name = 'b'"}),
        ("registered-models/search", {"filter": "name = 'a' AND"}),
        ("registered-models/search", {"filter": "name IN 'a'"}),
        ("registered-models/search", {"filter": "name > 'a'"}),
        ("registered-models/search", {"filter": "run_id = 'a'"}),
        ("registered-models/search", {"max_results": 0}),
        ("registered-models/search", {"max_results": "1e9"}),
        ("registered-models/search", {"page_token": "../x"}),
        ("registered-models/search", {"order_by": "size"}),
        ("model-versions/get", {"name": "flights", "version": "two"}),
        ("model-versions/get", {"name": "flights", "version": "9" * 5000}),
        ("model-versions/search", {"filter": "version_number LIKE '1'"}),
    ],
)
def test_what_cannot_be_read_is_refused(ask: Callable[..., Any], path: str, arguments: dict[str, Any]) -> None:
    assert ask(path, **arguments) == (400, "INVALID_PARAMETER_VALUE")


@given(st.text(max_size=60) | st.from_regex(r"(name|tags\.`a`|run_id) ?(=|IN|LIKE) ?[('%_ a,)]{0,30}", fullmatch=True))
def test_no_filter_fails_or_takes_long(asked: str) -> None:
    status, _ = MlflowRegistry(_Empty(), folder_of).answer(  # type: ignore[arg-type]
        "GET", f"{API}model-versions/search?filter={quote(asked)}"
    )
    assert status in (200, 400)


class _Empty:
    def names(self) -> list[str]:
        return []


def test_many_wildcards_take_no_time(tmp_path: Path) -> None:
    """As a regular expression, this pattern would take longer than the tests may: it has 500 wildcards."""
    models = MlflowRegistry(registered(tmp_path / "metadata.db"), folder_of)
    models.registry.describe("taxi-late", tags={"long": "a" * 5000}, by="ada")
    target = f"{API}registered-models/search?filter={quote(f'''tags.long LIKE '{'%a' * 500}%b' ''')}"
    assert models.answer("GET", target) == (200, {"registered_models": []})
    ins = quote("run_id IN (" + "'a'  " * 500 + "x")
    assert models.answer("GET", f"{API}model-versions/search?filter={ins}")[0] == 400
    models.registry.store.close()


@pytest.mark.parametrize("target", ["/", "/api/2.0/mlflow", "/api/3.0/mlflow/registered-models/get?name=flights", "//x",
                                    "/api/2.0/mlflow/../registered-models/get"])  # fmt: skip
def test_other_paths(models: MlflowRegistry, target: str) -> None:
    assert models.answer("GET", target)[0] == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b"[" * 100_000, b"\xff"])
def test_bodies_that_are_none(models: MlflowRegistry, body: bytes) -> None:
    assert models.answer("POST", f"{API}registered-models/get-latest-versions", body)[0] == 400


def get(address: str, path: str, key: str = "", tls: ssl.SSLContext | None = None) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@contextmanager
def opened(folder: Path, *options: str) -> Iterator[str]:
    """`registry serve` in a process of its own, by its address; it ends by SIGTERM."""
    root = folder / ".drivetrain"
    root.mkdir()
    registered(root / "metadata.db").store.close()
    command = [sys.executable, "-m", "drivetrain", "registry", "serve", "--port", "0", "--json", "--root", str(root)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["address"]
            server.terminate()
            _, errors = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 0, errors


CHAMPION = f"{API}registered-models/alias?name=flights&alias=champion"


def test_the_port(tmp_path: Path) -> None:
    """With a key, over a store that goes on being written."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys: {{mlflow: {{sha256: {digest_of('dt_secret')}}}}}\n")
    root = tmp_path / ".drivetrain"
    with opened(tmp_path, "--keys", str(keys)) as address:
        assert address.startswith("http://127.0.0.1:")
        assert get(address, CHAMPION)[0] == get(address, CHAMPION, "dt_other")[0] == 401
        assert json.loads(get(address, CHAMPION, "dt_other")[1])["error_code"] == "UNAUTHENTICATED"
        status, body = get(address, CHAMPION, "dt_secret")
        version = json.loads(body)["model_version"]
        assert (status, version["version"]) == (200, "2")
        with MetadataStore.open(root / "metadata.db") as store:
            record = store.artifact(Registry(store).resolve("flights@2").artifact)
            assert version["source"] == f"{root.as_uri()}/{record.uri}/content"
            Registry(store).set_alias("flights", "challenger", 1, by="ada")
        body = get(address, CHAMPION.replace("champion", "challenger"), "dt_secret")[1]
        assert json.loads(body)["model_version"]["version"] == "1"
        assert get(address, "/health", "dt_secret") == (200, b"OK")
        assert get(address, f"{API}registered-models/search?filter={'x' * 20_000}", "dt_secret")[0] == 431


def test_tls(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    from drivetrain.tests.serving.test_tls import write_certificate

    certificate, key, _ = write_certificate(tmp_path, "server")
    trusting = ssl.create_default_context(cafile=certificate)
    with opened(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key)) as address:
        assert address.startswith("https://")
        assert get(address, CHAMPION, tls=trusting)[0] == 200
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            get(address, CHAMPION, tls=ssl.create_default_context())
