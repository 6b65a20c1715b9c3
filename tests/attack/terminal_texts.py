"""Texts that steer a terminal, run in a page, or are secrets, wherever a pipeline can say them."""

from __future__ import annotations

import base64
import html
import json
import os
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from urllib.parse import quote

from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.verbs import verb

SECRET = 'it\'s 4 "s3cret" é\nand a second line'
PIECES = (
    "\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\u202egnp.exe", "\u2066x", "\u200e", "\r", "\b\b", "\x00", "\x7f",
    "\x85", "\u2028", "\ufeff", "\ud800", "\udfff", "é漢😀", "[red]x[/red]", "[/]", "[link=x]", "\\", "{}",
    "%s", "'", '"', "\n", "\t",
    "<script>alert(1)</script>", "</style><script>", "<img src=x onerror=alert(1)>", "javascript:alert(1)",
    "--", "]]>", "${x}", "a" * 3000, " ",
)  # fmt: skip
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "repr": repr,
    "json": json.dumps,
    "unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "html": html.escape,
    "quoted": quote,
    "bytes": lambda text: repr(text.encode()),
    "base64": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
}
PLACES = ("note", "error", "property", "print", "file", "parameter", "crash", "tag", "column")
PIPELINE = '''
import os
import drivetrain as dt
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import current


@dt.component
def Say(place: str, text: str, token: dt.Secret) -> Examples:
    token.reveal()
    examples = Examples.new(rows={text if place == "column" else "train": 3})
    (examples.content / "rows").write_text("3")
    if place == "note":
        current().note(text)
    elif place == "error":
        raise InputError(text, fix=text)
    elif place == "crash":
        raise ValueError(text)
    elif place == "print":
        print(text)
    elif place == "file":
        (examples.content / text.replace("/", "_")[:80]).write_text("x")
    elif place == "property":
        examples.split_names = text
    return examples


@dt.pipeline
def say(place: str = "", text: str = "", tag: str = "") -> None:
    """Say."""
    Say(place, text, token=dt.secret("ATTACK_TOKEN"))
'''
VERBS = (
    ("show",), ("show", "--json"), ("runs",), ("runs", "--json"), ("tag",),
    ("why", "Say"), ("logs", "Say"), ("lineage", "Say"),
)  # fmt: skip


def _prepare(folder: Path) -> Path:
    (folder / "say").mkdir()
    (folder / "say" / "pipeline.py").write_text(PIPELINE)
    os.environ["ATTACK_TOKEN"] = SECRET
    os.chdir(folder)
    return folder


def _draw(dice: Random) -> Case:
    steps: Case = [["at", dice.choice(PLACES)]]
    steps += [["text", dice.choice(PIECES)] for _ in range(dice.choice((1, 2, 5)))]
    if dice.random() < 0.4:
        steps.insert(dice.randrange(1, len(steps) + 1), ["secret", dice.choice(list(SPELLINGS))])
    return steps


class _Scripts(HTMLParser):
    """What a page would run: scripts that are not its own, and handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().startswith("javascript:"):
                self.wrong.append(f"<{tag} {name}={value!r}>")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "alert(1)" in data and "</script" not in data and len(data) < 200:
            self.wrong.append(f"<script>{data}")


def _check(folder: Path, case: Case) -> None:
    root, page = folder / "root", folder / "page.html"
    shutil.rmtree(root, ignore_errors=True)
    at = next((step[1] for step in case if step[0] == "at"), "note")
    said = "".join(step[1] if step[0] == "text" else SPELLINGS[step[1]](SECRET) for step in case if step[0] != "at")
    is_secret, at_root = any(step[0] == "secret" for step in case), ("--root", str(root))
    if at in ("parameter", "tag") and is_secret:
        return  # who gives a secret as text has it stored as text
    (folder / "params.json").write_text(json.dumps({"place": at, "text": said}), "utf-8")
    calls: list[tuple[str, ...]] = [("run", "say", "--params", "params.json", *at_root)]
    if at == "tag":
        calls.append(("tag", said, *at_root))
    calls += [(*arguments, *at_root) for arguments in VERBS]
    calls.append(("show", "--html", str(page), *at_root))
    for arguments in calls:
        prints = at == "print" and arguments[0] == "run"
        printed = verb(*arguments, prints=prints)
        if is_secret and not prints:
            _hides(printed.stdout + printed.stderr, arguments[0])
        if "--json" in arguments and printed.code == 0:
            json.loads(printed.stdout)
    if page.exists():
        text = page.read_text("utf-8")
        scripts = _Scripts()
        scripts.feed(text)
        if scripts.wrong:
            raise Finding(f"a page runs what a pipeline says\n{scripts.wrong}")
        page.unlink()
    if is_secret and at != "file":
        for path in root.rglob("*"):
            if path.is_file():
                # The parameter itself, which holds it here so that the component can say it, is no secret's place.
                _hides_in_file(path, at)


def _hides(text: str, where: str) -> None:
    for line in SECRET.splitlines():
        for name, spell in SPELLINGS.items():
            if name != "base64" and spell(line).strip("b'\"") in text:
                raise Finding(f"{where} prints a secret, spelled as {name}\n{text[-2000:]}")


def _hides_in_file(path: Path, at: str) -> None:
    if path.suffix in (".log", ".txt") and any(line.encode() in path.read_bytes() for line in SECRET.splitlines()):
        raise Finding(f"a secret is written to a {path.suffix} file by {at}\n{path}")


ATTACKS = {"terminal": Attack(_prepare, _draw, _check, fast=5, slow=65)}
