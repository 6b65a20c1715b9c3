"""What must not be shown: each secret in each spelling, credentials in URLs, and what steers a terminal."""

import base64
import configparser
import html
import io
import json
import re
import textwrap
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlsplit

import drivetrain as dt
import pyarrow as pa
import pytest
import yaml
from drivetrain import data, redaction
from drivetrain.errors import InputError
from drivetrain.pipelines import Secret, secret
from drivetrain.redaction import (
    PieceRedaction,
    holds_credentials,
    mark_secret,
    mark_setting,
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
    lambda text: text.encode().hex().upper(),
    lambda text: html.escape(text, quote=False),
    lambda text: html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    lambda text: quote(quote(text, safe=""), safe=""),
    lambda text: quote(quote(text)),
    lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    lambda text: base64.urlsafe_b64encode(f"ü{text}".encode()).decode().rstrip("="),
    lambda text: yaml.safe_dump(text, default_style="'", width=10_000),
    lambda text: yaml.safe_dump(text, default_style='"', width=10_000),
    lambda text: yaml.safe_dump(text, default_style='"', width=10_000, allow_unicode=True),
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


PHRASE = "a pass phrase that is 'long' \u20ac enough: to be \"folded\" by YAML twice, at least where it is in quotes"
FOLDED: list[Callable[[str], str]] = [
    lambda text: base64.encodebytes(f"user:{text}".encode()).decode(),
    lambda text: "\r\n".join(textwrap.wrap(base64.b64encode(f"{'x' * 100}{text}{'y' * 90}".encode()).decode(), 64)),
    lambda text: "\n    ".join(textwrap.wrap(base64.urlsafe_b64encode(f"{'x' * 101}{text}".encode()).decode(), 76)),
    lambda text: "\n".join(textwrap.wrap((b"abc" * 20 + text.encode()).hex(), 32)),
    *(
        lambda text, style=style, width=width, ascii_only=ascii_only: yaml.safe_dump(
            {"deep": {"er": [text]}}, default_style=style, width=width, allow_unicode=not ascii_only
        )
        for style in (None, "'", '"', ">", "|")
        for width in (20, 80)
        for ascii_only in (False, True)
    ),
]


@pytest.mark.parametrize("value", ["Zq8vK2m+Wp/9LrT3==", PHRASE, "tab\tbell\x07 \x85é"])
def test_a_secret_is_redacted_where_it_is_folded(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", frozenset({value}))
    for spell in FOLDED:
        text = spell(value)
        redacted = redact(f"before\n{text}\nafter\n")
        assert "***" in redacted, text
        assert redacted.startswith("before\n")
        assert redacted.endswith("\nafter\n")
        encoded = [
            value,
            value.encode().hex(),
            *(base64.b64encode(b"x" * n + value.encode()).decode() for n in (0, 1, 2)),
        ]
        left = "".join(redacted.split())
        # Of base64, bits of the first and last byte may stay beside.
        assert not any(each[i : i + 8] in left for each in encoded for i in range(4, len(each) - 12))


@given(
    st.lists(
        st.sampled_from([*"abc \n\\\r=", "x" * 20, "SECRET-one", "two words of it", "line one\nline two"]), max_size=30
    ),
    st.sampled_from([str, *SPELLINGS, *FOLDED]),
    st.lists(st.integers(1, 40), min_size=1),
    st.booleans(),
)
def test_a_text_in_pieces_is_redacted_as_a_whole(
    parts: list[str], spell: Callable[[str], str], sizes: list[int], fold: bool
) -> None:
    """However it is cut, and whatever else goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_secrets", frozenset({"SECRET-one", "two words of it", "line one\nline two"}))
        text = "".join(spell(part) if len(part) > 1 and fold else part for part in parts)
        pieces, begin, redacted = PieceRedaction(1000), 0, ""
        for number in range(len(text)):
            redacted += pieces.add(text[begin : begin + sizes[number % len(sizes)]])
            begin += sizes[number % len(sizes)]
        assert redacted + pieces.end() == redact(text)


def test_what_is_no_secret_stays_where_lines_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", frozenset({"123456", "s3cret-s3cret"}))
    text = "1\n2\n3\n4\n5\n6\n12 34 56\ns3cret-\ns3cret\n"
    assert redact(text) == text


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
        (
            "https://h/a?auth=1&X-Amz-Security-Token=2&X-Amz-Date=3",
            "https://h/a?auth=…&X-Amz-Security-Token=…&X-Amz-Date=3",
        ),
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
)
def test_credentials_in_urls_are_not_shown(text: str, shown: str) -> None:
    assert holds_credentials(text)
    assert redact(text) == shown
    assert not holds_credentials(shown)


WRITTEN = "!$&'()*+,;=:@/?#[]%\"<>`{|}\\^~_.-é"
"""What RFC 3986 allows in a password or a value, and what people write there."""


@given(
    st.lists(st.sampled_from([*WRITTEN, "it's", "''", '\\"']), min_size=1, max_size=4),
    st.sampled_from(["postgresql://ann:{}@db/x", "https://h/a?b=1&token={}", "https://h/a#b=1&access_token={}&c=2"]),
    st.sampled_from(["{}", "cannot open '{}'", 'no "{}": refused', "url={}, then", "({})", "<a href='{}'>x</a>"]),
    st.sampled_from([str, repr, json.dumps, lambda text: json.dumps(json.dumps([text])).replace("/", "\\/")]),
)
def test_no_character_ends_a_password(parts: list[str], url: str, around: str, spell: Callable[[str], str]) -> None:
    """Each of its parts is recognised by letters that stand nowhere else."""
    letters = "QWXYZ"
    password = "Q7" + "".join(part + letter + "7" for part, letter in zip(parts, letters[1:], strict=False))
    if "?" in url or "#" in url:
        password = re.sub("[&#]", "", password)  # which end a value
        password = re.sub("=", "", password)  # ;Q7= begins another
    elif re.search("[/?#].*@", password) or re.search(r"[\"']\\*[,:;(){}\[\]+=>]", password):
        return  # as much as a path with an @; as much as the end of a quoted text
    shown = without_credentials(around.format(spell(url.format(password))))
    assert not [letter for letter in letters if letter + "7" in shown], shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:it's-me@db/x", "postgresql://…@db/x"),
        ("cannot open 'postgresql://ann:it's-me@db/x'", "cannot open 'postgresql://…@db/x'"),
        ("postgresql://ann:p/w@x@db/y", "postgresql://…@db/y"),
        ("postgresql://ann:a@/b@db/y", "postgresql://…@db/y"),
        ("postgresql://ann:p@ss/word@db/y", "postgresql://…@db/y"),
        ("postgresql://ann:p@ss#w/o@rd@db/y", "postgresql://…@db/y"),
        ("open https://ann:pw@h/x and ask me@h", "open https://…@h/x and ask me@h"),
        ('["https://ann:pw@h/x","me@h"]', '["https://…@h/x","me@h"]'),
        ("postgresql://ann:my pass@db/x", "postgresql://…@db/x"),
        ("postgresql://ann:a@it's@db/x", "postgresql://…@db/x"),
        ("postgresql://ann:my p@ss'x@db/x", "postgresql://…@db/x"),
        ("cannot open 'postgresql://ann:my pass@db/x'", "cannot open 'postgresql://…@db/x'"),
        ('{"a":"https:\\/\\/ann:pw@h\\/x"}', '{"a":"https:\\/\\/…@h\\/x"}'),
        ("https://h/?token=it's;me&x=1", "https://h/?token=…&x=1"),
        (r"https://h/?a=1\u0026token=abc\u0026b=2", r"https://h/?a=1\u0026token=…\u0026b=2"),
        ("get('https://h/?token=abc')", "get('https://h/?token=…')"),
        ('["https://h/?token=abc",1,2]', '["https://h/?token=…",1,2]'),
    ],
)
def test_passwords_with_signs_in_them(text: str, shown: str) -> None:
    assert redact(text) == shown


SECRET_NAMES = (
    "accesstoken",
    "authtoken",
    "AUTHTOKEN",
    "clientsecret",
    "apikey",
    "secretkey",
    "privatekey",
    "refreshtoken",
    "sessionid",
    "session_id",
    "sessionId",
    "JSESSIONID",
    "PHPSESSID",
    "sharedaccesskey",
    "userpass",
    "dbpassword",
    "xauthtoken",
    "accountkey",
    "storageaccountkey",
    "masterkey",
    "encryptionkey",
    "oauthtoken",
    "csrftoken",
    "bearertoken",
    "accessTokenV2",
    "token1",
    "api%5Fkey",
    "api%255Fkey",
    "client.secret",
    "sshkey",
    "apisig",
    "webhooksecret",
    "subscriptionkey",
    "passphrase",
    "userpwd",
)
HARMLESS_NAMES = (
    "tokenizer",
    "secretary",
    "keyboard",
    "monkey",
    "author",
    "authority",
    "donkey",
    "turkey",
    "hockey",
    "whiskey",
    "keyword",
    "compass",
    "bypass",
    "passage",
    "passenger",
    "surpass",
    "obsession",
    "possession",
    "kansas",
    "design",
    "signal",
    "tokens",
    "max_tokens",
    "keystone",
    "signatures_max",
    "publickey",
    "primarykey",
    "foreignkey",
    "partitionkey",
    "sortkey",
    "hotkey",
    "sitekey",
    "passport",
    "sessions",
    "id",
    "user_id",
    "userid",
    "monkeyid",
    "page1",
    "v2",
    "authored",
    "secretariat",
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_parameter_with_a_secret_is_known_by_its_name(name: str) -> None:
    assert redact(f"https://h/a?{name}=T0KEN&b=1") == f"https://h/a?{name}=…&b=1"


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_word_that_holds_another_is_not_taken_for_it(name: str) -> None:
    assert redact(f"https://h/a?{name}=T0KEN&b=1") == f"https://h/a?{name}=T0KEN&b=1"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ann@db/x",
        "sftp://ann@host/x",
        "abfs://container@account.dfs/x",
        "ssh://git@host/x",
        "https://host:8080/a@2x.png?monkey=1",
        "s3://bucket/key=1/year=2020/*.csv",
        "hdfs://me@node:9000/x",
        "a: b@c ?key=1",
        '{"url":"http://h:8080","m":"x@y"}',
        "{url:'http://h:80',user:'x@y'}",
        '["http://h:80",1,"x@y"]',
        "['http://h','ann@x']",
        "https://host:8080 cannot be reached by ann@x",
        "https://h: no such thing ann@x",
        "{'http://h': 'a@b', 'u': \"it's ann@b\"}",
    ],
)
def test_what_is_no_credential_is_shown(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet="abc:/@?#&=.1", max_size=12), st.text(alphabet="pqrs%40", min_size=1))
def test_a_password_that_urlsplit_sees_is_never_shown(rest: str, password: str) -> None:
    url = f"s3://user:{password}@host/{rest}"
    assert urlsplit(url).password is not None
    assert f":{password}@" not in redact(url)


@pytest.mark.parametrize(
    ("value", "reason"),
    [("1", "shorter than 6"), ("abcde", "shorter than 6"), ("aaaaaaaa", "much"), ("Password", "much")],
)
def test_a_secret_that_cannot_be_redacted_is_refused(value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason in str(weakness(value))
    named = Secret("WEAK_ONE")
    monkeypatch.setenv("WEAK_ONE", value)
    for declare in (named.reveal, lambda: secret("WEAK_ONE")):
        with pytest.raises(InputError, match=r"WEAK_ONE.*cannot be redacted"):
            declare()
    assert redact("epoch 11 of 21, password aaaaaaaa") == "epoch 11 of 21, password aaaaaaaa"


def as_ini(settings: dict[str, str]) -> str:
    parser, written = configparser.RawConfigParser(), io.StringIO()
    parser["kafka"] = settings
    parser.write(written)
    return written.getvalue()


@pytest.mark.parametrize("value", ["a", "1", "a'b", 'a"b', "'\"", "é", "&=%"])
@pytest.mark.parametrize(
    "printed",
    [
        repr, json.dumps, lambda settings: json.dumps(settings, indent=1), lambda settings: repr([*settings.items()]),
        lambda settings: json.dumps(f"{settings}"), yaml.safe_dump, as_ini,
        lambda settings: json.dumps(settings, separators=(",", ":")),
        lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
    ],
)  # fmt: skip
def test_a_short_secret_goes_with_its_setting_alone(
    value: str, printed: Callable[[dict[str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_secrets", frozenset())
    settings = {"group.id": value, "sasl.password": value, "client.id": value}
    mark_setting("sasl.password", value)
    shown, others = redact(printed(settings)), printed(dict.fromkeys(("group.id", "client.id"), value))
    assert "sasl.password" not in shown
    assert shown.count("***") == 1
    assert redact(others) == others
    assert redact(f"a plain text of {value}") == f"a plain text of {value}"


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
        "git+https://T0KEN@host/x",
        "https://h/?api%5Fkey=T0KEN",
        "https://h/?token[]=T0KEN",
        "https://h/?session=T0KEN",
        "https://h/?bearer=T0KEN",
        "https://h/?PHPSESSIONID=1&sessionid=T0KEN",
    ],
)
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
        "x" * 200_000 + " a:/b",
        "http://" + "x" * 200_000,
        "a:/b:" * 40_000,
        "a:/" * 60_000 + "@x",
        "0" * 200_000 + "://@",
        "http://" + "@" * 100_000,
        "a:/:" * 50_000 + "1/@",
        "http://" + ":" * 100_000 + "@",
        "http://a:" + "'" * 200_000,
        "http://a?token=" + "'a" * 100_000,
        "'http://a:b" * 20_000 + "@x",
        "http://a?b=" + ";a" * 100_000,
        "http://?token=" + "\\" * 200_000,
        "http://?" + "api" * 60_000 + "=1",
        "s3://a@/" * 30_000,
        "http://u:p" + "@/" * 100_000,
        "'" + "(,'" * 70_000 + "http://a:b@c",
        "x" * 20 + "\n" * 200_000,
        "\\\n" * 100_000,
        ("x" * 20 + "\n") * 10_000,
    ],
    ids=lambda text: text[:12],
)
def test_long_texts_take_linear_time(text: str) -> None:
    """The first took minutes: a line of base64 beside a URL stopped a run."""
    begin = time.process_time()
    for size in (len(text) // 10, len(text)):
        redact(text[:size] + " https://user:secret@host/")
    assert time.process_time() - begin < 5
    assert redact(f"{text} https://user:secret@host/").endswith("https://…@host/")
