"""What a text must not show: secrets, credentials in URLs, and characters that steer a terminal.

Each way out (store, logs, notes, errors, tracebacks, terminal) passes its texts through here.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

SHORTEST: Final = 6
"""Characters of the shortest secret: a shorter one stands in much else, and to redact it would destroy that."""
_COMMON: Final = frozenset({
    "changeme", "complete", "component", "database", "default", "development", "drivetrain", "evaluator", "examples",
    "execution", "failed", "localhost", "metadata", "password", "pipeline", "postgres", "postgresql", "production",
    "progress", "pusher", "python", "running", "schema", "secret", "serving", "skipped", "staging", "statistics",
    "testing", "trainer", "training", "transform", "username", "version", "warning",
})  # fmt: skip
# The patterns below are compiled where they are first used: most processes meet neither a secret nor a URL.
# What stands before the host: a name, or a password up to the last @: it may hold a slash, and what follows an @ in it
# would pass for a host. So a path's @ is taken for the password's, but where there is a port or no password, or where
# a text in quotes ends before it. Where a URL was taken for a path, one of its slashes is gone; JSON may write them as
# `\/`.
_URL: Final = (
    r"(?<![A-Za-z0-9+.-])(?=[0-9+.-]*[A-Za-z])([A-Za-z0-9+.-]++)(:\\?/(?:\\?/)?)(?:([^/?#\s\"<>:]*)@|"
    r"[^/?#\s\"<>:]*:(?:[^/?#\s\"<>]*|(?!\d*/)[^\s@]*)@(?:(?:[^\s@\"']|[\"'](?!\\*+[,:;(){}\[\]+=>]))*@)*)"
)
# A password may hold quotes, so they end no URL; but what stands between two texts in quotes does.
# Groups repeat by `+` here and in `_VALUE`, not by `++`: in CPython before 3.11.5 (gh-106052) that takes what a look
# ahead in the group forbids. Nothing follows them, so that none gives back.
_STRETCH: Final = r"(?:[^\s\"']++|[\"'](?!\\*+[,:;(){}\[\]+=>][\\,:;(){}\[\]+=>]*+(?:\w++[\\,:;(){}\[\]+=>]++)?[\"']))+"
# A password with blanks, where a URL begins a text or a text in quotes. What it has behind a quote is left to `_URL`.
_BLANKS: Final = (
    r"(\A\s*|[\"'])((?=[0-9+.-]*[A-Za-z])[A-Za-z0-9+.-]++:\\?/\\?/)"
    r"[^/?#\s\"'<>:]*:(?!\s|\d*[\s/])[^/?#\r\n\"']*@(?=[^\s@/])"
)
_PARAMETER: Final = r"(?:[?&;#]|\\u0026)([\w.%~\[\]-]++)="
# RFC 3986 allows ' and ; in a value; people write " < > too. They belong to it where it goes on behind them.
_VALUE: Final = (
    r"(?:[^&;#\s\"'<>\\]++|;(?![\w.%~\[\]-]++=)|'(?=[^\s\"'<>&#]*\w)|(?:[\"'<>]\\*+)++(?=[\w%+/=-])|\\(?!u0026))+"
)
_PERCENT: Final = "%[0-9A-F]{2}"
_WRAPPED: Final = 16
"""Characters without a blank that stand before a line break where a text is wrapped: base64 is at 64 or 76."""
_INDENTED: Final = 32
"""Blanks at most that a folded line begins with."""
_INDENT: Final = rf"[ \t]{{0,{_INDENTED}}}"
_YAML_BREAK: Final = rf"\\\r?\n{_INDENT}(?:\\(?= ))?"
_FOLDS: Final = (
    ("(?!)", ""),
    (rf"\r?\n(?:(?<=\S{{{_WRAPPED}}}\n)|(?<=\S{{{_WRAPPED}}}\r\n)){_INDENT}(?=\S)|{_YAML_BREAK}", ""),
    (rf"(?<=\S)\r?\n{_INDENT}(?=\S)", " "),
)  # fmt: skip
"""How a text may be folded, not at all first: what then breaks its lines, and what stood there before."""
_YAML_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\0": "\\0", "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v",
    "\f": "\\f", "\r": "\\r", "\x1b": "\\e", "\x85": "\\N", "\xa0": "\\_", "\u2028": "\\L", "\u2029": "\\P",
}  # fmt: skip
_WORD: Final = r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])"
_VERSION: Final = r"v?\d+"
_SECRET_WORDS: Final = (
    "key", "auth", "pwd", "pass", "pw", "sig", "jwt", "sas", "bearer", "session", "otp", "hmac", "creds",
)  # fmt: skip
_LONG_SECRET_WORDS: Final = (
    "token", "authorization", "password", "passwd", "passphrase", "passcode", "secret", "signature", "credential",
    "credentials", "apikey", "accesskey", "secretkey", "privatekey", "sessionid", "sessid",
)  # fmt: skip
_BEFORE_SECRET_WORDS: Final = (
    "access", "account", "admin", "api", "app", "aws", "azure", "basic", "client", "consumer", "customer", "database",
    "db", "deploy", "device", "encryption", "ftp", "function", "gcp", "git", "google", "host", "http", "integration",
    "id", "jwt", "license", "login", "master", "my", "oauth", "private", "proxy", "read", "refresh", "root", "secret",
    "security", "server", "service", "session", "shared", "signing", "smtp", "ssh", "storage", "subscription",
    "super", "system", "user", "web", "webhook", "write", "x",
)  # fmt: skip
# Of words that are run together, the last decides. Where it is so short that it ends other words, as `key` ends
# `monkey`, what stands before it has to be a word as well.
_SECRET_NAME: Final = (
    f"(?:(?:{'|'.join(_BEFORE_SECRET_WORDS)}){{0,4}}(?:{'|'.join(_SECRET_WORDS)})|.*(?:{'|'.join(_LONG_SECRET_WORDS)}))"
)
_USERS: Final = frozenset({"http", "https", "ftp", "ftps"})
"""Schemes where what stands before the host is a credential though it has no password: `https://TOKEN@host`."""
CREDENTIALS: Final = "take it out, and give it by the environment; a component gets it as a parameter: dt.Secret"
"""What to do about a URL that holds credentials."""
_HIDDEN: Final = "…"
_MARK: Final = "***"
_NO_LETTERS: Final = "0123456789+.-"
_CONTROL: Final = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"

_secrets: frozenset[str] = frozenset()
_LOCK: Final = threading.Lock()


def mark_secret(value: str) -> None:
    """From now on, `redact` removes this value in this process, as it is and as it is spelled elsewhere.

    That is each of its lines, and their spelling in Python, JSON, YAML, HTML, URLs, hexadecimal and base64; also where
    that is folded: wrapped at 16 columns or more, or broken at its blanks.
    """
    global _secrets
    with _LOCK:
        _secrets |= {value}


def mark_setting(name: str, value: str) -> None:
    """From now on, `redact` removes the value of a setting that is a secret by its name, in this process.

    One that is too short to be told from other text goes where the setting itself is printed, name and all: as Python,
    JSON, YAML and INI files have it.
    """
    if len(value) >= SHORTEST:
        mark_secret(value)
    elif value:
        pair = {name: value}
        for printed in (repr(pair), json.dumps(pair), json.dumps(pair, separators=(",", ":")), repr((name, value))):
            mark_secret(printed[1:-1])
        in_quotes = {f"{mark}{text}{mark}" for text in (value, *_in_yaml(value)) for mark in "'\""}
        for sign, written in product(("=", " = ", ": "), (value, json.dumps(value), *in_quotes)):
            mark_secret(f"{name}{sign}{written}")


def has_secrets() -> bool:
    """Whether this process has any secret to redact."""
    return bool(_secrets)


def weakness(secret: str) -> str | None:
    """Why to redact a value would destroy other text: it is too short, or too common; None where it would not."""
    if len(secret) < SHORTEST:
        return f"is shorter than {SHORTEST} characters, so that it may stand in any text"
    if len(set(secret)) < 3 or secret.casefold() in _COMMON:
        return "is a text that stands in much else"
    return None


def redact(text: str) -> str:
    """A text with `***` in place of each secret that this process has revealed, and without credentials in URLs.

    It takes linear time: 10 MB a second or more, with three secrets of one line.
    """
    return without_credentials(_without(text, _secret_spans(text)))


def redacted_json(value: Any) -> Any:  # Any: JSON
    """JSON with each text redacted, names as well: what is stored of what a component says."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (list, tuple)):
        return [redacted_json(item) for item in value]
    if isinstance(value, Mapping):
        return {redacted_json(key): redacted_json(item) for key, item in value.items()}
    return value


class PieceRedaction:
    """`redact` for a text that comes in pieces: what may be the beginning of a secret waits for the next piece.

    Args:
        longest: Characters of a line without an end that wait for it.
        in_place: Whether the text is to become neither longer nor of fewer lines: then URLs stay as they are, and a
            secret of several lines leaves its line breaks.
    """

    def __init__(self, longest: int, *, in_place: bool = False) -> None:
        self._longest = longest
        self._in_place = in_place
        self._rest = ""

    def add(self, piece: str) -> str:
        """The next part of the redacted text, mostly of whole lines; it may be empty."""
        self._rest += piece
        text = self._rest
        cut = text.rfind("\n") + 1
        if not cut and len(text) > self._longest:
            cut = max(0, len(text) - _longest_spelling(_secrets))
            cut = text.rfind("\r", 0, cut) + 1 or text.rfind(" ", 0, cut) + 1 or cut
        if not cut:
            return ""
        spans = _secret_spans(text)
        before, cut = len(text) + 1, _begun(text, cut)
        while cut < before:  # to the begin of a line, which may lie in a secret, and so on
            before = cut
            cut = min([cut, *(begin for begin, end in spans if begin < cut < end)])
            if (line := text.rfind("\n", 0, cut) + 1) or len(text) <= self._longest:
                cut = line  # a fold is only seen with all of the line before it
        self._rest = text[cut:]
        return self._redacted(text[:cut], [span for span in spans if span[1] <= cut])

    def end(self) -> str:
        """Return what was held back for the text to follow, redacted: nothing follows."""
        rest, self._rest = self._rest, ""
        return self._redacted(rest, _secret_spans(rest))

    def _redacted(self, text: str, spans: Iterable[tuple[int, int]]) -> str:
        if not self._in_place:
            return without_credentials(_without(text, spans))
        return _without(text, spans, lambda secret: _MARK + "\n" * secret.count("\n"))


def without_credentials(text: str) -> str:
    """A text with `…` in place of passwords, tokens and signatures in its URLs: `https://…@host/?token=…`."""
    if ":/" not in text and ":\\/" not in text:
        return text
    if "@" in text:
        text = re.sub(_STRETCH, _hide_users, re.sub(_BLANKS, r"\1\2:@", text))
    return _hide_values(text)


def holds_credentials(text: str) -> bool:
    """Whether a URL in a text holds a password, a token or a signature."""
    return without_credentials(text) != text


def printable(text: str) -> str:
    r"""A text as a terminal may show it: redacted, with what would steer the terminal written out, e.g. `\x1b`.

    Those are control characters but line feeds and tabs, marks of the writing direction, and lone surrogates.
    """
    return re.sub(_CONTROL, _escape, redact(text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _hide_users(match: re.Match[str]) -> str:
    """What holds no blank without what stands before hosts.

    To search from each scheme for an @ that is not there would take quadratic time: the search ends at the last one.
    """
    stretch = match.group()
    end = stretch.rfind("@") + 1
    return re.sub(_URL, _hide_user, stretch[:end]) + stretch[end:]


def _hide_user(match: re.Match[str]) -> str:
    scheme, separator, user = match.groups()
    last = scheme.lower().lstrip(_NO_LETTERS).rpartition("+")[2]
    # After a line feed that is written as `\n`, the n looks like the first letter of the scheme.
    escaped = match.string[match.start() - 1 : match.start()] == "\\" and last.endswith(tuple(_USERS))
    secret = user is None or (user and (last in _USERS or escaped))  # None: it holds a password
    return f"{scheme}{separator}{_HIDDEN}@" if secret else match.group()


def _hide_values(text: str) -> str:
    """The text without the values of parameters that are secret; the value of another may hold a URL of its own."""
    parts, at, value_at = [], 0, re.compile(_VALUE).match
    for match in re.finditer(_PARAMETER, text):
        if match.start() >= at and _is_secret(match[1]) and (value := value_at(text, match.end())) is not None:
            parts += [text[at : match.end()], _HIDDEN]
            at = value.end()
    return "".join([*parts, text[at:]])


def _is_secret(parameter: str) -> bool:
    words = [word.lower() for word in re.findall(_WORD, unquote(unquote(parameter)))]
    while len(words) > 1 and re.fullmatch(_VERSION, words[-1]):
        words.pop()
    if not words:
        return False
    last = "".join(words[-2:]) if words[-1] == "id" else words[-1].rstrip("0123456789")
    return re.fullmatch(_SECRET_NAME, last) is not None


@lru_cache(1)
def _spellings(secrets: frozenset[str]) -> tuple[str, ...]:
    """The longest first, so that one that holds another goes as a whole."""
    spelled = {text for secret in secrets for text in _spelled(secret)}
    return tuple(sorted((text for text in spelled if len(text) >= SHORTEST), key=len, reverse=True))


@lru_cache(1)
def _longest_spelling(secrets: frozenset[str]) -> int:
    """Characters that the longest spelling takes at most, folded or not."""
    spellings = _spellings(secrets)
    folds = max((text.count(" ") + len(text) // _WRAPPED for text in spellings), default=0) + 1
    return len(spellings[0]) + folds * (_INDENTED + 4) if spellings else 0


def _secret_spans(text: str) -> list[tuple[int, int]]:
    """Where the secrets stand in a text, in order, none beside or within another."""
    if not _secrets:
        return []
    spans = []
    for fold, joint in _FOLDS if "\n" in text else _FOLDS[:1]:
        unfolded = re.sub(fold, joint, text) if fold is not _FOLDS[0][0] else text
        if matches := _matches(unfolded, [text for text in _spellings(_secrets) if joint in text]):
            position = _positions(text, fold, joint)
            spans += [(position(begin), position(end - 1) + 1) for begin, end in matches]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            begin, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((begin, end))
    return merged


def _matches(text: str, spellings: Iterable[str]) -> list[tuple[int, int]]:
    # To look for each text alone is faster than a pattern of them all, of which most stand nowhere.
    present = [spelling for spelling in spellings if spelling in text]
    return [match.span() for match in re.finditer("|".join(map(re.escape, present)), text)] if present else []


def _positions(text: str, fold: str, joint: str) -> Callable[[int], int]:
    """From a position in the text without its folds to that in the text."""
    begins, shifts = [0], [0]
    for match in re.finditer(fold, text):
        shifts.append(shifts[-1] + len(match.group()) - len(joint))
        begins.append(match.end() - shifts[-1])
    return lambda position: position + shifts[bisect_right(begins, position) - 1]


def _without(text: str, spans: Iterable[tuple[int, int]], mark: Callable[[str], str] = lambda secret: _MARK) -> str:
    parts, at = [], 0
    for begin, end in spans:
        parts += [text[at:begin], mark(text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def _begun(text: str, cut: int) -> int:
    """Where before a cut a spelling begins, folded or not, that goes on beyond the text; else the cut."""
    begin = max(0, len(text) - _longest_spelling(_secrets))
    for (fold, joint), next_characters in product(_FOLDS, ("x", "\nx", " x")):  # a fold may have come in part
        tail = text[begin:] + next_characters
        unfolded, position = re.sub(fold, joint, tail)[:-1], _positions(tail, fold, joint)
        for spelling in [text for text in _spellings(_secrets) if joint in text]:
            first = unfolded.find(spelling[0], max(0, len(unfolded) - len(spelling) + 1))
            while first >= 0 and not spelling.startswith(unfolded[first:]):
                first = unfolded.find(spelling[0], first + 1)
            if first >= 0:
                cut = min(cut, begin + position(first))
    return cut


def _spelled(secret: str) -> Iterator[str]:
    import html

    for text in {secret, secret.strip(), *map(str.strip, secret.splitlines())}:
        for escaped in {text, *_escaped(text)}:
            yield escaped
            yield from _escaped(escaped)  # JSON in JSON, the repr of a text that holds a repr
        yield from _in_yaml(text)
        yield html.escape(text, quote=False)
        for double, single in product(("&quot;", "&#34;"), ("&#x27;", "&#39;", "&apos;")):
            yield html.escape(text).replace("&quot;", double).replace("&#x27;", single)
        data = text.encode("utf-8", "surrogatepass")
        yield data.decode("utf-8", "surrogateescape")
        yield data.hex()
        yield data.hex().upper()
        yield repr(data)[2:-1]
        for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
            for percent in (quoted, re.sub(_PERCENT, lambda match: match.group().lower(), quoted)):
                yield percent
                yield percent.replace("%", "%25")
        yield from _in_base64(data)


def _escaped(text: str) -> Iterator[str]:
    """What stands for a text in Python's and JSON's strings."""
    yield repr(text)[1:-1]
    yield repr(f"{text}'\"")[1:-4]  # as a part of a text that is quoted otherwise
    yield ascii(text)[1:-1]
    yield ascii(f"{text}'\"")[1:-4]
    yield text.encode("unicode_escape", "surrogatepass").decode()
    for ascii_only in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _in_yaml(text: str) -> Iterator[str]:
    """What stands for a text in quotes in YAML (YAML 1.2.2, 5.7), beside what does in JSON."""
    yield text.replace("'", "''")
    for printed in (" -~", r" -~\xa0-\ud7ff\ue000-\ufffd", r" -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"):
        yield re.sub(rf'["\\\x85\u2028\u2029\ufeff]|[^{printed}]', _yaml_escape, text)


def _yaml_escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if (escape := _YAML_ESCAPES.get(match.group())) is not None:
        return escape
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _in_base64(secret: bytes) -> Iterator[str]:
    """What stands in the base64 of any bytes that hold these, wherever they begin: at one of three offsets."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret).decode()
        text = encoded[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        yield text
        yield text.translate(str.maketrans("+/", "-_"))
