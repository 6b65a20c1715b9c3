"""`predict`: ask a model server for the predictions of rows in a file."""

from __future__ import annotations

import json
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .exit_codes import OK
from .options import ConsoleSettings, shared
from .terminal import echo

if TYPE_CHECKING:
    from ..serving.client import Client

_URL = re.compile(
    r"(?P<server>https?://[^/]+(?:/[^:]*?)?)/v1/models/(?P<model>[^/:]+)"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?/?"
)
_SERVER = re.compile(r"https?://[^/]+/?")


@click.command(
    epilog="\b\nExample:\n  drivetrain predict http://127.0.0.1:8501/v1/models/flights rows.csv\n"
    '  drivetrain predict http://127.0.0.1:8501/v1/models/flights --row \'{"carrier": "UA", "hour": 17}\'\n'
    "  drivetrain predict http://127.0.0.1:8501/v1/models/flights/labels/canary rows.parquet --limit 5 --json\n"
)
@click.argument("url")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--row", "rows", multiple=True, metavar="JSON", help="A row, as an object; may be given several times.")
@click.option("--limit", type=click.IntRange(1), default=None, metavar="ROWS", help="Only the first of the file.")
@click.option("--signature", default=None, metavar="NAME", help="Which signature; its default unless given.")
@click.option(
    "--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="Holds the server's API key; DRIVETRAIN_API_KEY unless given.",
)  # fmt: skip
@click.option(
    "--tls-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="Who signed the server's certificate, in PEM; the system's roots unless given.",
)  # fmt: skip
@shared
def predict(
    settings: ConsoleSettings,
    url: str,
    file: Path | None,
    rows: tuple[str, ...],
    limit: int | None,
    signature: str | None,
    key_file: Path | None,
    tls_ca: Path | None,
) -> int:
    """Ask the model at URL, as `serve` prints it, for predictions of the rows in FILE.

    FILE is what ExampleGen reads: CSV, Parquet, JSON lines. Each line that is printed is the prediction for a row; with
    --json one line holds them all, with the version that answered.
    """
    from ..serving.client import Client

    match = _URL.fullmatch(url)
    if match is None:
        server = url.rstrip("/") if _SERVER.fullmatch(url) else "http://127.0.0.1:8501"
        raise InputError(f"{url!r:.200} is not a model's URL", fix=f"{server}/v1/models/NAME")
    if (file is None) == (not rows):
        raise InputError("predict needs rows: a FILE, or --row", fix="""--row '{"hour": 17}'""")
    asked = [_row(text) for text in rows] if file is None else _rows_of(file, limit)
    predictions: list[Any] = []
    version, digest = 0, ""
    number = None if match["version"] is None else int(match["version"])
    api_key = None if key_file is None else _key_in(key_file)
    tls = None if tls_ca is None else _trusting(tls_ca)
    with Client(
        match["server"], match["model"], version=number, label=match["label"], api_key=api_key, tls=tls
    ) as client:
        if file is not None:
            asked = _read_by(client, signature, asked)
        for part in client.predict_all(asked, signature=signature):
            version, digest = part.version, part.digest
            predictions += part.rows
            if not settings.json:
                for prediction in part.rows:
                    echo(json.dumps(prediction))
    if settings.json:
        echo(json.dumps({"predictions": predictions, "version": version, "digest": digest}))
    return OK


def _read_by(client: Client, signature: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that the model does not read: a file may hold times, say, which no request can."""
    signatures = client.metadata()["metadata"]["signature_def"]["signature_def"]
    inputs = signatures.get(signature or "serving_default", {}).get("inputs")
    if inputs is None:
        return rows  # the server says what is wrong
    return [{name: value for name, value in row.items() if name in inputs} for row in rows]


def _key_in(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise InputError(
            f"the key in {file} cannot be read: {error.strerror}", fix="give a file that this user may read"
        ) from error


def _trusting(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ValueError) as error:
        raise InputError(f"{authority} holds no certificates: {error!s:.100}", fix="give a file in PEM") from None


def _row(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--row {text!r:.80} is not a JSON: {error!s:.100}", fix="""--row '{"hour": 17}'""") from error
    if not isinstance(row, dict):
        raise InputError(f"--row {text!r:.80} is not an object", fix="""--row '{"hour": 17}'""")
    return row


def _rows_of(file: Path, limit: int | None) -> list[dict[str, Any]]:
    from ..data import source_of
    from ..serving.times import listed

    source = source_of(file)
    rows: list[dict[str, Any]] = []
    for shard in source.shards:
        for batch in source.read(shard):
            columns = map(listed, batch.columns)
            rows += [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
            if limit is not None and len(rows) >= limit:
                return rows[:limit]
    return rows
