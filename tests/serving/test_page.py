"""The page at `/`: who gets it, what it may do, and what it does in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pyarrow as pa
import pytest

pytest.importorskip("httptools")

from drivetrain.engine import analyze, ops
from drivetrain.serving import Client
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.rollout import RampStep, Rollout
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.shadow import ShadowTraffic
from drivetrain.serving.warmup import warmup_file
from drivetrain.serving.web_page import is_own_page
from drivetrain.tests.engine.bundles.test_bundle import build
from drivetrain.tests.report.browser import Browser, browser, chromium
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.test_access import FILE, bearer

pytestmark = pytest.mark.engine
HTML = [("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")]
HOSTILE = "</script><img src=x onerror=alert(1)>\"' 模型 نموذج \u2028😀" + "x" * 300
ROW = {"delay": 1.0, "speed": 2.0, "hour": 3, "carrier": "UA", "arrival": 4}
TRAFFIC = "/v1/models/mixed/traffic"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles: `mixed` in two versions; `linear`, twice `a` and once `b`; one that jumps; such names; 100 inputs."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "mixed").mkdir()
    for version in (1, 2):
        build(folder / f"built{version}").rename(folder / "mixed" / str(version))
    for name, function, table in (
        ("linear", lambda c: {"sum": 2.0 * c["a"] + c["b"]}, {"a": [1.0, 2.0], "b": [0.5, 1.0]}),
        ("jump", lambda c: {"step": ops.cast(ops.fill_missing(c["x"], 0.0) > 1.0, "float32")}, {"x": [0.0, 2.0]}),
        ("hostile", lambda c: {HOSTILE: ops.upper(c[HOSTILE]), "__proto__": ops.upper(c["__proto__"])},
         {HOSTILE: [HOSTILE, "b"], "__proto__": ["c", "d"]}),
        ("wide", lambda c: {"sum": sum((c[f"x{at}"] for at in range(1, 100)), c["x0"])},
         {f"x{at}": [1.0, 2.0] for at in range(100)}),
        ("vector", lambda c: {"twice": ops.to_dense(c["v"], 3, fill=0.0) * 2, "large": c["id"], "not": jnp.logical_not(
            ops.fill_missing(c["flag"], False))}, {"v": [[1.0, 2.0, 3.0]], "id": [2**60 + 1], "flag": [True]}),
    ):  # fmt: skip
        analyze(function, pa.table(table)).save(folder / name / "1")
    return folder


def configs(folder: Path, *names: str) -> list[ModelConfig]:
    return [ModelConfig(name, str(folder / name), policy="all") for name in names]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OpenServer]:
    """Every bundle, one under a hostile name, and a model without versions."""
    more = [ModelConfig(name, str(folder / path)) for name, path in
            ((re.sub("[/:?#%\u2028]", "", HOSTILE), "hostile"), ("gone", "nothing"))]  # fmt: skip
    with open_server(
        ServerOptions(poll_seconds=0), [*configs(folder, "mixed", "linear", "wide", "vector", "jump"), *more]
    ) as running:
        yield running


# --- who gets it ---


def test_a_browser_gets_it_and_other_clients_hear_that_the_server_lives(server: OpenServer) -> None:
    status, headers, content = server.ask("GET", "/", HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (headers["vary"], headers["x-content-type-options"]) == ("accept", "nosniff")
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", content.decode(), re.DOTALL)
        assert policy[kind] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert server.ask("HEAD", "/", HTML)[0] == 200
    assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", content)  # nothing from elsewhere
    for accepted in ([], [("Accept", "*/*")], [("Accept", "application/json")]):
        status, headers, body = server.ask("GET", "/", accepted)
        assert (status, body, headers["vary"]) == (200, {"status": "alive"}, "accept")  # as KServe's `/`
    assert server.ask("POST", "/", HTML)[0] == 405
    assert server.ask("GET", "/v1/models", HTML)[2]["models"]


def test_it_needs_no_key_and_what_it_asks_does(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(FILE)
    with open_server(ServerOptions(keys=tmp_path / "keys.yaml"), configs(folder, "mixed")) as server:
        assert server.ask("GET", "/", HTML)[0] == 200
        assert server.ask("GET", "/")[2] == {"status": "alive"}
        for name, reads, changes in (("", 401, 401), ("app", 200, 403), ("prometheus", 403, 403), ("boss", 200, 200)):
            headers = bearer(name) if name else []
            assert server.ask("GET", TRAFFIC, headers)[0] == reads
            assert server.ask("POST", TRAFFIC, headers, body=b'{"shares": {"1": 50}}')[0] == changes
        # With keys, whose page asks does not matter: a page without the key can do nothing.
        asked = [*bearer("boss"), ("Origin", "https://elsewhere.example")]
        assert server.ask("POST", TRAFFIC, asked, body=b'{"shares": {}}')[0] == 200


@pytest.mark.parametrize(
    ("origin", "host", "own_page"),
    [
        ("http://127.0.0.1:8501", "127.0.0.1:8501", True),
        ("http://localhost:8501", "localhost:8501", True),
        ("https://[::1]:8501", "[::1]:8501", True),
        ("http://127.0.0.1:8502", "127.0.0.1:8501", False),
        ("http://rebound.example:8501", "rebound.example:8501", False),  # its name may lead here
        ("http://127.0.0.1.example:8501", "127.0.0.1.example:8501", False),
        ("null", "127.0.0.1:8501", False),
        ("", "", False),
        ("file://", "", False),
        ("http://[", "[", False),
    ],
)
def test_pages_of_this_server_are_told_from_others(origin: str, host: str, own_page: bool) -> None:
    assert is_own_page(origin, host) is own_page


def test_only_its_own_page_changes_traffic_without_keys(folder: Path) -> None:
    with open_server(ServerOptions(poll_seconds=0), configs(folder, "mixed")) as server:
        body = b'{"shares": {"1": 100}}'
        for origin, status in (("http://evil.example", 403), ("null", 403), (server.rest, 200)):
            assert server.ask("POST", TRAFFIC, [("Origin", origin)], body=body)[0] == status
        with Client(server.rest, "mixed") as client:
            assert client.predict([ROW]).version == 1
    with open_server(ServerOptions(admin=False), configs(folder, "mixed")) as server:
        assert server.ask("POST", TRAFFIC, body=body)[0] == 403


# --- traffic ---


def test_traffic_is_split_and_joined_by_request(folder: Path) -> None:
    """Also with a version that was not loaded before."""
    with open_server(ServerOptions(poll_seconds=0), [ModelConfig("mixed", str(folder / "mixed"))]) as server:
        assert server.ask("GET", TRAFFIC)[2]["shares"] == {}
        assert server.ask("POST", TRAFFIC, body=b'{"shares": {"1": 100}}')[0] == 200
        assert server.ask("GET", TRAFFIC)[2]["shares"] == {"1": 100}
        with Client(server.rest, "mixed") as client:
            assert client.predict([ROW]).version == 1
            assert server.ask("POST", TRAFFIC, body=b'{"shares": {"1": 30}}')[0] == 200
            versions = [client.predict([ROW]).version for _ in range(60)]
            assert {1, 2} == set(versions)
            assert server.ask("POST", TRAFFIC, body=b'{"shares": {}}')[0] == 200
            assert server.ask("GET", TRAFFIC)[2]["shares"] == {}
            assert client.predict([ROW]).version == 2


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"[]", 400, "not an object"),
        (b"{}", 400, "'shares' is null"),
        (b'{"share": {"1": 10}}', 400, "'share' is not known"),
        (b'{"shares": [1]}', 400, "'shares' is a list"),
        (b'{"shares": {"stable": 1}}', 400, "'stable' is not a version"),
        (b'{"shares": {"1": "10"}}', 400, "the share of version 1 is text"),
        (b'{"shares": {"1": true}}', 400, "the share of version 1 is true or false"),
        (b'{"shares": {"1": 101}}', 400, "101 percent"),
        (b'{"shares": {"1": NaN}}', 400, "nan percent"),
        (b'{"shares": {"1": 60, "2": 60}}', 400, "add up to 120"),
        (b'{"shares": {"3": 10}}', 404, "no version 3 that can be asked"),
    ],
)
def test_shares_that_cannot_be_leave_the_split_as_it_was(
    server: OpenServer, body: bytes, status: int, words: str
) -> None:
    code, _, answer = server.ask("POST", TRAFFIC, body=body)
    assert code == status
    assert words in answer["error"]
    assert server.ask("GET", TRAFFIC)[2]["shares"] == {}
    assert server.ask("GET", TRAFFIC.replace("mixed", "none"))[0] == 404


# --- in a browser ---


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("there is no Chromium")
    with browser() as opened:
        yield opened


def until(tab: Browser, script: str, seconds: float = 20) -> Any:
    """The value of an expression, once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := tab.ask(script)):
        assert time.monotonic() < deadline, (script, tab.ask("document.body.innerText")[:2000], tab.complaints)
        time.sleep(0.05)
    return value


def show(tab: Browser, server: OpenServer, name: str, **window: Any) -> None:
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(f"{server.rest}/", name, **window)
    until(tab, f"$('name').textContent === {json.dumps(name)} && !$('try').hidden")


def table(tab: Browser, name: str) -> list[list[str]]:
    cells = f"[...document.querySelectorAll('#{name} tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    return list(tab.ask(cells))


@pytest.mark.slow
@pytest.mark.browser
class TestBrowser:
    def test_a_version_that_was_taken_over_is_no_problem(self, tab: Browser, tmp_path: Path, folder: Path) -> None:
        shutil.copytree(folder / "mixed" / "1", tmp_path / "mixed" / "1")
        with open_server(ServerOptions(poll_seconds=0.1), [ModelConfig("mixed", str(tmp_path / "mixed"))]) as server:
            shutil.copytree(folder / "mixed" / "2", tmp_path / "new")
            (tmp_path / "new").rename(tmp_path / "mixed" / "2")
            deadline = time.monotonic() + 60
            while server.ask("GET", "/v1/models/mixed")[2]["model_version_status"][-1]["state"] != "END":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            show(tab, server, "mixed")
            assert table(tab, "versions")[1:] == [["2", "ready", ""], ["1", "not loaded", ""]]
            assert not tab.ask("document.querySelectorAll('#versions .bad').length")

    def test_predictions_of_every_version_and_what_each_input_adds(self, tab: Browser, server: OpenServer) -> None:
        show(tab, server, "mixed")
        assert table(tab, "versions")[1:] == [["2", "ready", ""], ["1", "ready", ""]]
        tab.ask("$('rows').value = `[" + json.dumps(ROW) + "]`; $('rows').dispatchEvent(new Event('input'))")
        assert tab.ask("$('input2').value") == "3"
        tab.ask("$('all').click()")
        until(tab, "!!$('answer').querySelector('table')")
        head, *rows = table(tab, "answer")
        assert [cell.partition(" ·")[0] for cell in head] == ["Output", "Version 2", "Version 1"]
        with Client(server.rest, "mixed") as client:
            expected = client.predict([ROW]).rows[0]
        assert [row[0] for row in rows] == ["probability", "pair"]
        assert float(rows[0][1]) == pytest.approx(expected["probability"], abs=1e-5)
        show(tab, server, "linear")
        tab.ask("$('rows').value = '[{\"a\": 5, \"b\": 1}]'; $('explain').click()")
        until(tab, "!!$('reasons').querySelector('table')")
        assert [row[:3] for row in table(tab, "reasons")[1:]] == [["a", "0", "10.0"], ["b", "0", "1.00"]]
        tab.ask('$(\'rows\').value = \'[{"a": 5, "b": 1}, {"a": 1, "b": 2}]\'; $(\'explain\').click()')
        until(tab, "document.querySelectorAll('#reasons td')[0]?.textContent === '3'")  # the mean of both
        assert [row[:3] for row in table(tab, "reasons")[1:]] == [["a", "3", "4.00"], ["b", "1.5", "-0.500"]]
        assert tab.complaints == []
        assert {url.split("/")[2] for url in tab.requests} == {server.rest.partition("//")[2]}

    def test_the_form_begins_with_what_is_usual(self, tab: Browser, folder: Path) -> None:
        rows: list[dict[str, Any]] = [{"a": 1.0, "b": 0.125}, {"a": 2.0, "b": None}, {"a": 2.0, "b": 0.25}]
        analyze(lambda c: {"sum": 2.0 * c["a"] + c["b"]}, pa.table({"a": [1.0], "b": [1.0]})).save(
            folder / "usual" / "1"
        )
        (folder / "usual" / "1.warmup.jsonl").write_bytes(warmup_file(rows, "transform"))
        with open_server(ServerOptions(poll_seconds=0), configs(folder, "usual")) as server:
            show(tab, server, "usual")
            assert [tab.ask(f"$('input{number}').value") for number in range(2)] == ["1.667", "0.1875"]
            assert tab.ask("JSON.parse($('rows').value)") == [{"a": 1.667, "b": 0.1875}]

    def test_why_a_row_is_predicted_so(self, tab: Browser, server: OpenServer) -> None:
        """By keyboard, on a phone, dark and light: the parts, whether they add up, and who has no gradients."""
        body = json.dumps({"instances": [ROW], "output": "pair"}).encode()
        expected = server.ask("POST", "/v1/models/mixed:explain", body=body)[2]["explanations"][0]
        for dark in (True, False):
            show(tab, server, "mixed", width=390, height=1200, dark=dark)
            tab.ask(f"$('rows').value = '[{json.dumps(ROW)}]'; $('explain').focus()")
            tab.press("Enter", 13)
            until(
                tab, "!!$('reasons').querySelector('table') && $('reasons').textContent.includes('probability is 0.')"
            )
            options = tab.ask("[...$('target').options].map(each => each.value)")
            assert options == ["probability", "pair[0]", "pair[1]"]
            tab.ask("$('target').value = 'pair[1]'; $('target').dispatchEvent(new Event('change'))")
            until(tab, "$('reasons').textContent.includes('pair[1] is ')")
            adds = {row[0]: float(row[2]) for row in table(tab, "reasons")[1:]}
            assert adds == pytest.approx(
                {each["name"]: each["attribution"][1] for each in expected["inputs"]}, rel=5e-3, abs=1e-6
            )
            assert {row[0]: row[4] for row in table(tab, "reasons")[1:]} == {
                "delay": "gradients", "speed": "gradients", "hour": "replacement", "carrier": "replacement",
            }  # fmt: skip
            assert "% is missing" in tab.ask("$('reasons').textContent")
            assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
            assert tab.ask("$('reasons').tabIndex") == 0  # which the keyboard scrolls
        show(tab, server, "jump")
        tab.ask("$('rows').value = '[{\"x\": 2}]'; $('explain').click()")
        until(tab, "$('reasons').textContent.includes('the model jumps')")
        tab.ask("$('rows').value = '[{\"x\": null}]'; $('explain').click()")
        until(tab, "$('reasons').textContent.includes('no input to integrate gradients along')")
        tab.ask("$('rows').value = '[{\"x\": \"y\"}]'; $('explain').click()")
        until(tab, "$('problem').textContent.includes(\"'x'\") && $('reasons').textContent === ''")
        assert [each for each in tab.complaints if "400" not in each] == []

    def test_by_keyboard_alone(self, tab: Browser, server: OpenServer) -> None:
        show(tab, server, "linear")
        tab.ask("$('find').focus()")
        for letter in "vec":
            tab.press(letter, ord(letter.upper()))
        assert tab.ask("document.querySelectorAll('#names button').length") == 1
        tab.press("Enter", 13)
        until(tab, "$('name').textContent === 'vector' && !$('try').hidden")
        assert tab.ask("document.activeElement.id") == "model"
        tab.ask("$('input0').focus()")
        tab.press("Enter", 13)  # in a list's field it is a line end
        seen = []
        for _ in range(12):
            tab.press("Tab", 9)
            seen.append(tab.ask("document.activeElement.id || document.activeElement.tagName"))
        assert seen[:3] == ["input1", "input2", "SUMMARY"]
        assert {"predict", "explain"} <= set(seen)
        tab.ask("$('predict').focus()")
        tab.press("Enter", 13)
        until(tab, "!!$('answer').querySelector('table')")

    def test_large_numbers_lists_and_flags(self, tab: Browser, server: OpenServer) -> None:
        """What is typed is what is sent: whole numbers beyond 2^53 too."""
        show(tab, server, "vector")
        order = tab.ask("tensorsOf().map(each => each.name)")

        def write(name: str, text: str) -> None:
            field = f"$('input{order.index(name)}')"
            tab.ask(f"{field}.value = {json.dumps(text)}; {field}.dispatchEvent(new Event('input'))")

        for name, text in (("v", "[1, 2.5, 3]"), ("id", "1152921504606846977"), ("flag", "false")):
            write(name, text)
        tab.ask("$('predict').click()")
        until(tab, "$('problem').textContent.includes('1152921504606846977, which does not fit in int32')")
        write("id", "77")
        tab.ask("$('predict').click()")
        until(tab, "!!$('answer').querySelector('table')")
        answered = dict(row[:2] for row in table(tab, "answer")[1:])
        assert json.loads(answered.pop("twice")) == [2, 5, 6]
        assert answered == {"large": "77", "not": "true"}
        assert json.loads(tab.ask("$('rows').value")) == [{"v": [1, 2.5, 3], "id": 77, "flag": False}]

    def test_hostile_names_are_text(self, tab: Browser, server: OpenServer) -> None:
        name = re.sub("[/:?#%\u2028]", "", HOSTILE)
        show(tab, server, name, width=390, height=800)
        assert tab.ask("document.images.length") == 0
        assert tab.ask("document.querySelector('#inputs bdi').textContent") == HOSTILE
        tab.ask("$('input0').value = '<b>ß'; $('input0').dispatchEvent(new Event('input')); $('predict').click()")
        until(tab, "!!$('answer').querySelector('table')")
        assert "<B>ẞ" in tab.ask("$('answer').textContent")
        assert tab.ask("document.querySelectorAll('b b, #answer b').length") == 0
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
        assert tab.complaints == []

    def test_what_is_refused_is_said(self, tab: Browser, server: OpenServer) -> None:
        show(tab, server, "linear")
        for text, words in (("[{}]", "missing"), ("[", "JSON"), ('[{"a": "x", "b": 1}]', "'a'")):
            tab.ask(f"$('rows').value = {json.dumps(text)}; $('predict').click()")
            until(tab, f"$('problem').textContent.includes({json.dumps(words)})")
        tab.ask("choose('gone')")
        until(tab, "$('problem').textContent.includes('no version')")

    def test_phones_dark_and_light_and_a_hundred_inputs(self, tab: Browser, server: OpenServer, tmp_path: Path) -> None:
        for name, fields in (("wide", 100), ("mixed", 4)):
            for width, dark in ((390, True), (390, False), (1280, True), (800, False)):
                show(tab, server, name, width=width, height=900, dark=dark)
                assert tab.ask("document.querySelectorAll('#inputs label').length") == fields
                assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
                background = "rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)"
                assert tab.ask("getComputedStyle(document.body).backgroundColor") == background
        show(tab, server, "wide")
        tab.ask("$('explain').click()")
        until(tab, "document.querySelectorAll('#reasons tbody tr').length === 100")

    def test_two_hundred_models(self, tab: Browser, folder: Path) -> None:
        many = [ModelConfig(f"model {at}", str(folder / "linear")) for at in range(200)]
        with open_server(ServerOptions(poll_seconds=0), many) as server:
            show(tab, server, "model 150")
            assert tab.ask("document.querySelectorAll('#names button').length") == 200
            assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
            tab.ask("$('find').value = '17'; $('find').dispatchEvent(new Event('input'))")
            assert tab.ask("document.querySelectorAll('#names button').length") == 12
            assert tab.complaints == []

    def test_live_charts_show_what_is_asked(self, tab: Browser, server: OpenServer) -> None:
        show(tab, server, "mixed")
        until(tab, "$('live').querySelectorAll('figure').length === 7")
        with Client(server.rest, "mixed", version=1) as client:
            for _ in range(40):
                client.predict([ROW])
        for _ in range(5):
            server.ask("POST", "/v1/models/mixed:predict", body=b"{}")
        until(tab, "series.get('1').some(point => point.rate > 5 && point.mean > 0 && point.slow > 0)")
        until(tab, "series.get('').some(point => point.rate > 0)")
        assert tab.ask("[...document.querySelectorAll('#live svg')].every(chart => chart.getAttribute('aria-label'))")

    def test_the_shadow_and_how_far_its_outputs_differ(self, tab: Browser, server: OpenServer, folder: Path) -> None:
        """As the traffic says; a model without one shows nothing of it."""
        show(tab, server, "mixed")
        assert tab.ask("$('shadow').hidden") is True
        (shadowed,) = configs(folder, "mixed")
        with open_server(ServerOptions(poll_seconds=0), [replace(shadowed, shadow=ShadowTraffic(1))]) as beside:
            show(tab, beside, "mixed")
            until(tab, "$('shadow').textContent.includes('Version 1 is a shadow')")
            with Client(beside.rest, "mixed") as client:
                for _ in range(5):
                    assert client.predict([ROW]).version == 2
            deadline = time.monotonic() + 60
            while not (shadows := beside.ask("GET", TRAFFIC)[2]["shadows"]) or len(shadows[0]["outputs"]) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            tab.ask("showShadow()")
            until(tab, "document.querySelectorAll('#shadow tbody tr').length === 2")
            head, *rows = table(tab, "shadow")
            assert head[:3] == ["Shadow", "Beside", "Requests"]
            assert [row[:2] for row in rows] == [["1", "2"]] * 2
            assert [row[5] for row in rows] == [*shadows[0]["outputs"]] == ["pair", "probability"]
            assert [row[7:9] for row in rows] == [["0 %", "0 %"]] * 2  # both versions are of one build
            assert all(int(row[6]) >= 1 for row in rows)
            assert tab.complaints == []

    def test_a_split_and_a_rollback(self, tab: Browser, folder: Path, tmp_path: Path) -> None:
        """By a key that may: without one the page asks for it, and with others it says what they may not."""
        (tmp_path / "keys.yaml").write_text(FILE)
        options = ServerOptions(poll_seconds=0, keys=tmp_path / "keys.yaml")
        with open_server(options, configs(folder, "mixed")) as server:
            tab.open(f"{server.rest}/")
            until(tab, "!$('keyform').hidden && $('server').textContent.includes('asks for a key')")
            for name in ("app", "boss"):
                tab.ask(f"$('key').value = '{name}-secret'; $('keyform').requestSubmit()")
                until(tab, "!$('changed').textContent && !$('try').hidden")  # the model is shown again, by that key
                if name == "app":
                    until(tab, "!$('traffic').hidden && !$('back').hidden")  # it may look
                    tab.ask("$('back').click()")
                    until(tab, "$('changed').textContent.includes('may not change what is served')")
                    until(tab, "$('nolive').textContent.includes('may not read metrics')")
            until(tab, "!$('traffic').hidden")
            assert tab.ask("$('to').checkVisibility()") is True
            assert tab.ask("$('back').textContent") == "Roll back to version 1"
            tab.ask("$('back').click()")
            until(tab, "$('changed').textContent === 'Rolled back to version 1.'")
            until(tab, "$('shares').textContent.includes('version 1 gets 100 %')")
            with Client(server.rest, "mixed", api_key="app-secret") as client:
                assert client.predict([ROW]).version == 1
                tab.ask("$('to').value = '1'; $('share').value = 0; $('traffic').requestSubmit()")
                until(tab, "$('changed').textContent === 'Version 1 gets 0 %.'")
                assert client.predict([ROW]).version == 2
            tab.ask("$('to').value = '9'; $('share').value = 5; $('traffic').requestSubmit()")
            until(tab, "$('changed').textContent.includes('no version 9')")
            until(tab, "!$('nosplit').hidden")
            tab.ask("$('nosplit').click()")
            until(tab, "$('shares').textContent.includes('go to the newest')")
            assert tab.ask("document.documentElement.outerHTML.includes('secret')") is False

    def test_a_rollout_is_taken_back(self, tab: Browser, folder: Path, tmp_path: Path) -> None:
        """While a version takes over, and once it has."""
        rollout = Rollout((RampStep(10),), str(tmp_path), version=2)
        config = ModelConfig("mixed", str(folder / "mixed"), policy="all", rollout=rollout)
        with open_server(ServerOptions(poll_seconds=0), [config]) as server:
            for step in ("abort", "rollback"):
                if step == "rollback":
                    assert server.ask("POST", "/v1/models/mixed/rollout/advance")[0] == 200
                tab.open(f"{server.rest}/")
                until(tab, "!$('traffic').hidden && !$('back').hidden")
                assert tab.ask("$('to').checkVisibility()") is False  # it would be refused: the rollout decides
                assert tab.ask("$('back').textContent") == "Roll back to version 1"
                tab.ask("$('back').click()")
                until(tab, "$('changed').textContent === 'Rolled back to version 1.'")
                until(tab, "$('back').hidden && $('shares').textContent.includes('go to version 1')")
                state = server.ask("GET", TRAFFIC)[2]["rollout"]
                assert (state["incumbent"], state["candidate"], state["failed"][-1]["limit"]) == (1, None, step)
                assert server.ask("POST", "/v1/models/mixed/rollout/retry")[0] == 200
                deadline = time.monotonic() + 20
                while server.ask("GET", TRAFFIC)[2]["rollout"]["candidate"] != 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
