"""What verbs share: where the runs lie, how to answer, parameters, who carries a run out, and the exit codes."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from ..errors import InputError
from ..metadata.errors import StoreDamaged, StoreUnavailable
from ..owner import person
from ..pipelines import Home, RootLocation, RunOptions, find_root
from .terminal import drop_output, echo, terminal

if TYPE_CHECKING:
    from rich.console import Console

PREFIX: Final = "DRIVETRAIN_PARAM_"
_PASSWORD: Final = re.compile(r"(?<=//)([^@/:?]*):[^@/]*(?=@)|\b(?:ssl)?password=[^&]*&?")

RUN: Final = click.option("--run", "run_id", metavar="RUN", help="Of which run; the newest unless given.")


def who(by: str | None) -> str:
    """Who decides something: as `--by` says, else the user of this shell.

    Raises:
        InputError: The shell's user has no name: a container may know them by number alone.
    """
    name = by or person()
    if not name:
        raise InputError("the user of this shell has no name", fix="say who decides: --by NAME")
    return name


@dataclass(frozen=True)
class ConsoleSettings:
    """Where a verb works and how it answers.

    Attributes:
        root: The folder of the runs as the shell names it; None where it does not.
        store: The same of the store.
        artifacts: The URL that the artifacts lie behind, where it is said.
        json: Whether to answer with one JSON line on standard output instead of text for people.
        project: The pipeline's folder, of a verb that has one.
    """

    root: str | Path | None
    store: str | None
    artifacts: str | None
    json: bool
    project: Path | None = None

    def of(self, project: Path | None) -> ConsoleSettings:
        """These settings for a verb that works on the pipeline in a folder."""
        return replace(self, project=project)

    @functools.cached_property
    def location(self) -> RootLocation:
        """Where the runs lie: see `find_root`."""
        return find_root(self.project, root=self.root, store=self.store, artifacts=self.artifacts)

    @property
    def as_options(self) -> str:
        """`--root` and `--store` for commands in advice; empty where a verb without them means the same runs.

        A password in the store's URL is left out: PGPASSWORD or ~/.pgpass can give it.
        """
        default = None
        with suppress(InputError):  # such a verb finds no root
            default = find_root()
        options = ""
        if default is None or default.root != self.location.root:
            options = f" --root {shlex.quote(str(self.root or self.location.root))}"
        if (store := self.location.store) and (options or default is None or default.store != store):
            options += " --store " + shlex.quote(_PASSWORD.sub(r"\1", store))
        return options

    @contextmanager
    def home(self, *, readonly: bool = True, create: bool = False) -> Iterator[Home]:
        """The root, open while the block runs.

        Args:
            readonly: Only to look: nothing is written.
            create: Make it where there is none.

        Raises:
            StoreDamaged: The block failed, and the database is damaged: what is missing in it looks like a mistake of
                whoever asks for it.
        """
        location = self.location
        home = Home(location.root, store=location.store, artifacts=location.artifacts, readonly=readonly, create=create)
        self._name_others  # noqa: B018 - once, though a verb may open the root twice
        try:
            yield home
        except StoreUnavailable:
            raise
        except Exception as error:
            if problems := home.store.integrity():
                raise StoreDamaged(home.store.location, problems[0]) from error
            raise
        finally:
            home.close()

    @functools.cached_property
    def _name_others(self) -> None:
        if others := " and ".join(map(str, self.location.others)):
            echo(f"note: runs are in {others} too; --root takes them instead of {self.location.root}", err=True)

    def answer(self, value: object, show: Callable[[Console], None]) -> None:
        """Print the value as one line of JSON, or let `show` print it for people.

        That nobody reads on (`| head`) is no error, and changes no verb's exit code.
        """
        try:
            if self.json:
                echo(json.dumps(value))  # in ASCII, so that nothing in it steers the terminal
            else:
                show(terminal())
        except BrokenPipeError:
            drop_output()


def shared(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb `--root`, `--store`, `--artifacts` and `--json`, as its first argument `settings`."""

    @click.option(
        "--root",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="Where the runs are; else DRIVETRAIN_ROOT, [tool.drivetrain] root of the pyproject.toml, the nearest "
        ".drivetrain upward of the project or of here.",
    )
    @click.option("--store", metavar="URL", help="Where the metadata is, if not in the root.")
    @click.option(
        "--artifacts",
        metavar="URL",
        envvar="DRIVETRAIN_ARTIFACTS",
        show_envvar=True,
        help="Where the artifacts are, if not in the root: s3://bucket/prefix. The first run sets it.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer with one line of JSON.")
    @functools.wraps(verb)
    def wrapped(
        *args: Any, root: str | None, store: str | None, artifacts: str | None, as_json: bool, **kwargs: Any
    ) -> int | None:
        return verb(ConsoleSettings(root, store, artifacts, as_json), *args, **kwargs)

    return wrapped


def print_text(console: Console, text: str) -> None:
    """Print a text as it is."""
    console.print(text.rstrip("\n"), markup=False, soft_wrap=True)


def write_page(page: Path, text: str) -> None:
    """Write the page that `--html` asks for, and say so on standard error.

    It is written in place, not renamed into it, because the path may be a device such as /dev/stdout.

    Raises:
        InputError: It cannot be written.
    """
    with writing_page(page):
        page.write_text(text, encoding="utf-8")
    echo(f"wrote {page}", err=True)


@contextmanager
def writing_page(page: Path) -> Iterator[None]:
    """Say what cannot be written, where the block that writes it fails.

    Raises:
        InputError: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{page} cannot be written: {error.strerror}", fix="name another file with --html") from None


def pipeline_option(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb that takes a project's folder `--pipeline`, as its argument `which`: see `load_pipeline`."""
    return click.option(
        "--pipeline",
        "which",
        metavar="NAME",
        help="Which pipeline of FOLDER/pipeline.py, where there are several; else the one with the folder's name.",
    )(verb)


def parameter_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb `--param` and `--params`, as its arguments `params` and `file`: see `gather_parameters`."""
    verb = click.option(
        "--params",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Set parameters by a file: JSON, YAML or TOML. A variable DRIVETRAIN_PARAM_NAME sets one too.",
    )(verb)
    return click.option(
        "--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the pipeline."
    )(verb)


def gather_parameters(
    names: Iterable[str], assignments: Iterable[str], file: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, object]:
    """The values of a pipeline's parameters by name: the shell's over the file's over the environment's.

    Values of the shell and of the environment are text; the pipeline reads them as its parameters' types.

    Args:
        names: The names of the pipeline's parameters.
        assignments: What the shell says, NAME=VALUE each.
        file: JSON, YAML or TOML by its suffix: an object of parameters.
        environ: Where `DRIVETRAIN_PARAM_NAME` is looked up, the name in capitals.

    Raises:
        InputError: The file cannot be read, or holds no object.
    """
    values: dict[str, object] = {
        name: environ[PREFIX + name.upper()] for name in names if PREFIX + name.upper() in environ
    }
    if file is not None:
        values |= _read(file)
    return values | dict(parameter(text) for text in assignments)


def parameter(text: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises click.UsageError where it is not of that form."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--param takes NAME=VALUE, not {text!r}")
    return name, value


def _read(file: Path) -> dict[str, object]:
    import tomllib

    from ..yaml_lines import load_documents

    readers: dict[str, Any] = {".json": json.loads, ".toml": tomllib.loads}  # Any: two libraries' functions
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix in readers:
            body = readers[file.suffix](text)
        else:
            body, *more = load_documents(text, str(file), name="the file") or [None]
            body = None if more else body
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", fix="check the path of --params") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="give JSON, YAML or TOML") from None
    if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
        raise InputError(f"{file} holds no parameters", fix="write e.g. `epochs: 5`, a line each")
    return body


def parse_tag(text: str) -> tuple[str, str | None]:
    """A tag as the shell names it: NAME, or NAME=VALUE."""
    name, separator, value = text.partition("=")
    return name, value if separator else None


def tags_text(tags: Mapping[str, str]) -> str:
    """A run's tags for people."""
    return ", ".join(f"{name}={value}" if value else name for name, value in tags.items())


class Labels(TypedDict):
    """What `--tag` and `--note` say."""

    tags: dict[str, str]
    note: str


def tag_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb `--tag` and `--note`, as its argument `labels`: what `run_pipeline` takes as `tags` and `note`."""

    @click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="Tag the run; see `drivetrain tag`.")
    @click.option("--note", default="", metavar="TEXT", help="Note this of the run.")
    @functools.wraps(verb)
    def wrapped(*args: Any, tags: tuple[str, ...], note: str, **kwargs: Any) -> int | None:
        labels = Labels(tags={name: value or "" for name, value in map(parse_tag, tags)}, note=note)
        return verb(*args, labels=labels, **kwargs)

    return wrapped


def run_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb the options of `RunOptions`, `--runner` to `--over-budget`, as its argument `options`."""

    @click.option(
        "--runner",
        type=click.Choice(["inline", "process", "beam"]),
        default="inline",
        show_default=True,
        help="What runs the nodes.",
    )
    @click.option(
        "--executor",
        type=click.Choice(["local", "beam"]),
        default="local",
        show_default=True,
        help="Who reads the data inside a component.",
    )
    @click.option(
        "--beam-option",
        "beam_options",
        multiple=True,
        metavar="--FLAG=VALUE",
        help="A flag of Beam's pipeline options, for the runner and the executor that are beam.",
    )
    @click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="How many nodes run at once at most.")
    @click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
    @click.option(
        "--require-blessed",
        is_flag=True,
        help="End with exit code 4 where the run completes and does not bless every model it judges, or judges none.",
    )
    @click.option(
        "--over-budget",
        is_flag=True,
        envvar="DRIVETRAIN_OVER_BUDGET",
        show_envvar=True,
        help="Begin though a budget in costs.yaml is used up; the run records it.",
    )
    @functools.wraps(verb)
    def wrapped(
        *args: Any,
        runner: str,
        executor: str,
        beam_options: tuple[str, ...],
        parallel: int | None,
        no_cache: bool,
        require_blessed: bool,
        over_budget: bool,
        **kwargs: Any,
    ) -> int | None:
        if beam_options and "beam" not in (runner, executor):
            raise click.UsageError("--beam-option is for --runner beam or --executor beam")
        flags = tuple(option if option.startswith("-") else f"--{option}" for option in beam_options)
        options = RunOptions(
            runner=runner,
            runner_options=flags if runner == "beam" else (),
            executor=executor,
            executor_options=flags if executor == "beam" else (),
            cache=not no_cache,
            parallel=parallel,
            require_blessed=require_blessed,
            over_budget=over_budget,
        )
        return verb(*args, options=options, **kwargs)

    return wrapped
