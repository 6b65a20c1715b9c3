"""What every verb shares: where the runs lie, how to answer, and which exit code says what."""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import DrivetrainError, InputError
from ..pipelines import Home

if TYPE_CHECKING:
    from rich.console import Console

ROOT: Final = Path(".drivetrain")
_PASSWORD: Final = re.compile(r"(?<=//)([^@/:?]*):[^@/]*(?=@)|\bpassword=[^&]*&?")
OK: Final = 0
CRASH: Final = 1
USER_ERROR: Final = 2
STOPPED: Final = 3
CANCELED: Final = 130

EXIT_CODES: Final = """\b
Exit codes:
  0    complete: every node ended well, or its condition was false
  1    something crashed: a component raised, or drivetrain did
  2    yours to mend: usage, the pipeline, its input, its parameters
  3    stopped by validation: a gate vetoed, what depends on it did not run
  130  cancelled by Ctrl-C or SIGTERM; `drivetrain resume` goes on
"""


@dataclass(frozen=True)
class Settings:
    """Where a verb works and how it answers.

    Attributes:
        root: The folder of the runs.
        store: Where the metadata lies, if not in the root.
        artifacts: The URL that the artifacts lie behind, where it is said.
        json: Whether to answer with one JSON line on standard output instead of text for people.
    """

    root: Path
    store: str | None
    artifacts: str | None
    json: bool

    @property
    def spelled(self) -> str:
        """The options as they would be typed, for a command that is advised; empty where they are the defaults.

        A password is left out: PGPASSWORD or ~/.pgpass can give it.
        """
        root = "" if self.root == ROOT else f" --root {shlex.quote(str(self.root))}"
        store = _PASSWORD.sub(r"\1", self.store or "")
        return root + (f" --store {shlex.quote(store)}" if store else "")

    @contextmanager
    def home(self, *, readonly: bool = True) -> Iterator[Home]:
        """The root, opened for as long as the block runs; made if need be unless `readonly`."""
        home = Home(self.root, store=self.store, artifacts=self.artifacts, readonly=readonly)
        try:
            yield home
        finally:
            home.close()

    def answer(self, value: object, show: Callable[[Console], None]) -> None:
        """Print the value as one line of JSON, or let `show` print it for people."""
        if self.json:
            print(json.dumps(value, ensure_ascii=False), flush=True)
        else:
            show(terminal())


def terminal(*, stderr: bool = False) -> Console:
    """The terminal, or a stream that is none: then wide enough for tables, without colour."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 120
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def shared(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb `--root`, `--store`, `--artifacts` and `--json`, as its first argument `settings`."""

    @click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        default=ROOT,
        show_default=True,
        metavar="DIR",
        help="Where the runs lie.",
    )
    @click.option("--store", metavar="URL", help="Where the metadata lies, if not in the root.")
    @click.option(
        "--artifacts",
        metavar="URL",
        envvar="DRIVETRAIN_ARTIFACTS",
        show_envvar=True,
        help="Where the artifacts lie, if not in the root: s3://bucket/prefix. The first run says it.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer with one line of JSON.")
    @functools.wraps(verb)
    def wrapped(
        *args: Any, root: Path, store: str | None, artifacts: str | None, as_json: bool, **kwargs: Any
    ) -> int | None:
        return verb(Settings(root, store, artifacts, as_json), *args, **kwargs)

    return wrapped


def complain(error: DrivetrainError) -> None:
    """Print an error that a person can act on: the user's own line, the cause, the fix."""
    click.echo(f"error: {error}", err=True)


def write_page(page: Path, text: str) -> None:
    """Write what `--html` asks for, which may be a device, and say so on standard error.

    Raises:
        InputError: It cannot be written.
    """
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{page} cannot be written: {error.strerror}", fix="name another file with --html") from None
    click.echo(f"wrote {page}", err=True)
