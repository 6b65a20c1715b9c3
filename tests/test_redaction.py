"""What must not be shown: each secret in each spelling, credentials in URLs, and what steers a terminal."""

import base64
import html
import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlsplit

import drivetrain as dt
import pyarrow as pa
import pytest
from drivetrain import data, redaction
from drivetrain.errors import InputError
from drivetrain.pipelines import Secret, secret
from drivetrain.redaction import (
    holds_credentials,
    mark_secret,
    printable,
    redact,
    weakness,
    without_credentials,
)
from hypothesis import given
from hypothesis import strategies as st

SPELLINGS: list[Callable[[str], str]] = [
    str,
    repr,
    lambda text: repr({"a": [text]}),
    lambda text: repr(text.encode()),
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    html.escape,
    lambda text: quote(text, safe=""),
    quote_plus,
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.urlsafe_b64encode(f"1{text}".encode()).decode(),
    lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
]


@pytest.mark.parametrize("value", ["hunter-2/é+&", 'say "it\'s"', "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n"])
@pytest.mark.parametrize("spell", SPELLINGS)
def test_a_secret_is_redacted_however_it_is_spelled(value: str, spell: Callable[[str], str]) -> None:
    spelled = spell(value)
    assert redact(f"x {spelled} y") == f"x {spelled} y"
    mark_secret(value)
    redacted = redact(f"x {spelled} y")
    assert "***" in redacted
    for line in value.splitlines():
        # No six characters of what was spelled stay, in a row.
        spelled_line = spell(line).strip("'\"")
        assert not any(spelled_line[i : i + 12] in redacted for i in range(len(spelled_line) - 11))


@given(st.text(min_size=6), st.sampled_from(SPELLINGS))
def test_no_text_survives_its_redaction(value: str, spell: Callable[[str], str]) -> None:
    try:
        spelled = spell(value)
    except UnicodeEncodeError:  # a lone surrogate has no bytes
        return
    redaction._secrets = frozenset()  # of the example before
    mark_secret(value)
    assert spelled not in redact(f"<<{spelled}>>") or spelled in "<<***>>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://TOKEN@host/x", "https://…@host/x"),
        ("see postgresql://ann:p%40ss@db/x now", "see postgresql://…@db/x now"),
        ("postgresql://ann:p/w@db/x", "postgresql://…@db/x"),
        ("https://h/a?api_key=1&page=2&key=3#token=4", "https://h/a?api_key=…&page=2&key=…#token=…"),
        ("https://h/a?auth=1&X-Amz-Security-Token=2&X-Amz-Date=3", "https://h/a?auth=…&X-Amz-Security-Token=…&X-Amz-Date=3"),
        ("http://h/a?sig=1&é=1,http://h/b?sig=2", "http://h/a?sig=…&é=1,http://h/b?sig=…"),
        ("http://h/a?to=http://h/b?x=1?token=2&y=3", "http://h/a?to=http://h/b?x=1?token=…&y=3"),
        ("http://h/a?token=b?c=d&e=f", "http://h/a?token=…&e=f"),
        ("https://h/a?clientSecret=1&sig=2&accessToken=x", "https://h/a?clientSecret=…&sig=…&accessToken=…"),
        ("HTTPS://U:P@H/", "HTTPS://…@H/"),
        (r"'a\nhttp://TOKEN@host/x'", r"'a\nhttp://…@host/x'"),  # as `repr` has a line feed, and an escape
        (r"'\x1bhttps://TOKEN@host/x'", r"'\x1bhttps://…@host/x'"),
        ("no such file: https:/ann:p@h/a", "no such file: https:/…@h/a"),  # as a path has it
        ("gs:/h/a?SAS=1&x=2", "gs:/h/a?SAS=…&x=2"),
    ],
)  # fmt: skip
def test_credentials_in_urls_are_not_shown(text: str, shown: str) -> None:
    assert holds_credentials(text)
    assert redact(text) == shown
    assert not holds_credentials(shown)


@pytest.mark.parametrize(
    "text",
    ["postgresql://ann@db/x", "sftp://ann@host/x", "abfs://container@account.dfs/x", "ssh://git@host/x", "https://host:8080/a@2x.png?monkey=1",
     "s3://bucket/key=1/year=2020/*.csv", "hdfs://me@node:9000/x", "a: b@c ?key=1"],
)  # fmt: skip
def test_what_is_no_credential_is_shown(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet="abc:/@?#&=.1", max_size=12), st.text(alphabet="pqrs%40", min_size=1))
def test_a_password_that_urlsplit_sees_is_never_shown(rest: str, password: str) -> None:
    url = f"s3://user:{password}@host/{rest}"
    assert urlsplit(url).password is not None
    assert f":{password}@" not in redact(url)


@pytest.mark.parametrize(
    ("value", "reason"), [("1", "has 1 char"), ("abcde", "5 char"), ("aaaaaaaa", "much"), ("Password", "much")]
)
def test_a_secret_that_cannot_be_redacted_is_refused(value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason in str(weakness(value))
    named = Secret("WEAK_ONE")
    monkeypatch.setenv("WEAK_ONE", value)
    for declare in (named.reveal, lambda: secret("WEAK_ONE")):
        with pytest.raises(InputError, match=r"WEAK_ONE.*cannot be redacted"):
            declare()
    assert redact("epoch 11 of 21, password aaaaaaaa") == "epoch 11 of 21, password aaaaaaaa"


def test_what_steers_a_terminal_is_written_out() -> None:
    text = "\x1b]0;owned\x07 \x9b2J \u202egnp.exe\r\b ok\tand é 漢\n\ud800"
    assert printable(text) == "\\x1b]0;owned\\x07 \\x9b2J \\u202egnp.exe\\x0d\\x08 ok\tand é 漢\n\\ud800"


@pytest.mark.parametrize(
    "spell",
    [
        lambda text: json.dumps(json.dumps({"a": text})),
        lambda text: repr(json.dumps([text])),
        lambda text: repr(repr(text)),
        lambda text: json.dumps(repr([text])),
        ascii,
        lambda text: text.encode("unicode_escape").decode(),
        lambda text: re.sub("%..", lambda match: match.group().lower(), quote(text, safe="")),
        lambda text: text.encode().hex(),
    ],
)
def test_a_spelling_within_a_spelling_is_redacted(spell: Callable[[str], str]) -> None:
    value = "pa55-Wörd/line one\nsecond+l\"ine'\\two&<\n  third one  "
    mark_secret(value)
    text = redact(f"before {spell(value)} after")
    assert "***" in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert not any(part in text.lower() for part in ("55-w", "second", "third", "706135"))


@pytest.mark.parametrize(
    "url",
    [
        "git+https://T0KEN@host/x", "https://h/?api%5Fkey=T0KEN", "https://h/?token[]=T0KEN", "https://h/?session=T0KEN",
        "https://h/?bearer=T0KEN", "https://h/?PHPSESSIONID=1&sessionid=T0KEN",
    ],
)  # fmt: skip
def test_other_spellings_of_credentials_in_urls(url: str) -> None:
    assert "T0KEN" not in without_credentials(url)


def test_what_results_say_of_themselves_does_not_steer_a_terminal() -> None:
    """A person prints them in Python: names of columns, data sets and models, and values, come from outside."""
    name = "\x1b[2J\u202e"
    columns = {
        name: [name, "b", "c"] * 100, "x": list(range(300)), "late": [0, 1, 1] * 100, "p": [0.9, 0.8, 0.9] * 100,
    }  # fmt: skip
    others = columns | {name: [f"{name}2", "b", "d"] * 100, "x": list(range(1000, 1300))}
    before, after = data.statistics({name: pa.table(columns)}), data.statistics({name: pa.table(others)})
    schema = data.infer_schema(before)
    patch = data.update_schema(schema, after)
    judged = dt.evaluate(columns, label="late", predictions={name: "p"}, slices=[(), (name,)])
    worst = dt.find_slices(columns, label="late", predictions="p", min_examples=10)
    results = (
        before, data.drift(after, before), data.validate(after, schema), patch,
        data.diff_examples(pa.table(columns), pa.table(others), key="p", allow_duplicates=True), judged, worst,
    )  # fmt: skip
    for result in results:
        assert not set(repr(result)) & {"\x1b", "\u202e"}, type(result)
    assert "\\x1b[2J\\u202e" in repr(judged)
    assert "\\x1b[2J\\u202e" in repr(worst)


def test_an_error_that_python_prints_does_not_steer_a_terminal() -> None:
    error = InputError("no column '\x1b[2J'", fix="it has \u202e", where="a\x9b.py:1")
    assert str(error) == "a\\x9b.py:1: no column '\\x1b[2J'\n  fix: it has \\u202e"
    assert "\x1b" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "x" * 200_000 + " a:/b", "http://" + "x" * 200_000, "a:/b:" * 40_000, "a:/" * 60_000 + "@x",
        "0" * 200_000 + "://@", "http://" + "@" * 100_000, "a:/:" * 50_000 + "1/@", "http://" + ":" * 100_000 + "@",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_long_texts_take_linear_time(text: str) -> None:
    """The first took minutes: a line of base64 beside a URL stopped a run."""
    begin = time.process_time()
    for size in (len(text) // 10, len(text)):
        redact(text[:size] + " https://user:secret@host/")
    assert time.process_time() - begin < 5
    assert redact(f"{text} https://user:secret@host/").endswith("https://…@host/")
