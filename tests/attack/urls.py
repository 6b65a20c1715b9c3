"""URLs with credentials in odd spellings: refused before anything is written, and never shown, by any verb."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from urllib.parse import quote

from drivetrain.tests.attack import shop
from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.verbs import verb

SECRET = "T0KENx7q"
SCHEMES = (
    "https",
    "http",
    "s3",
    "gs",
    "abfs",
    "postgresql",
    "sqlite",
    "ftp",
    "HTTPS",
    "file",
    "memory",
    "odd+x",
    "hdfs",
)
HOSTS = ("host", "host:8080", "h.example", "[::1]:5432", "münchen.example", "")
NAMES = (
    "token", "api_key", "key", "auth", "sig", "X-Amz-Security-Token", "X-Amz-Signature", "password", "accessToken",
    "client_secret", "SAS", "apikey", "X-Goog-Credential",
)  # fmt: skip
PLAIN = ("page=2", "year=2013", "x", "a=b%20c", "é=1", "=", "&", "token=", "monkey=1")


def _draw(dice: Random) -> Case:
    """A scheme and a host, then the parts of the URL, at least one of them with the secret."""
    scheme = dice.choice(SCHEMES)
    steps: Case = [["base", scheme, dice.choice(HOSTS)]]
    secrets = [
        ["user", dice.choice(("ann:{}", ":{}", "ann:p/{}", "ann:{}%40x", "a%3Ab:{}", "ann:p:{}"))],
        ["query", f"{dice.choice(NAMES)}={{}}"],
        ["fragment", f"{dice.choice(NAMES)}={{}}"],
    ]
    if scheme.lower() in ("http", "https", "ftp"):
        secrets.append(["user", "{}"])
    steps.append(dice.choice(secrets))
    for _ in range(dice.choice((0, 1, 3))):
        steps.append([dice.choice(("query", "path")), dice.choice(PLAIN)])
    if dice.random() < 0.2:
        steps.append(["around", dice.choice(("see {} now", '"{}"', "<{}>", "{},{}", "({})", "x={}", "[{}]", "a\n{}"))])
    return steps


def _url(case: Case) -> str:
    scheme, host, user, path, query, fragment, around = "https", "host", "", "/a", [], [], "{}"
    for step in case:
        match step:
            case ["base", scheme, host]:
                pass
            case ["user", user]:
                pass
            case ["path", part]:
                path += f"/{quote(part)}"
            case ["query", part]:
                query.append(part)
            case ["fragment", part]:
                fragment.append(part)
            case ["around", around]:
                pass
    url = f"{scheme}://{user}{'@' * bool(user)}{host}{path}"
    url += f"?{'&'.join(query)}" * bool(query) + f"#{'&'.join(fragment)}" * bool(fragment)
    return around.replace("{}", url).replace("{}", SECRET)


def _check(folder: Path, case: Case) -> None:
    from drivetrain.redaction import holds_credentials, redact

    root, url = shop.fresh(folder), _url(case)
    if SECRET in redact(url):
        raise Finding(f"a URL is shown with its secret\n{url!r} as {redact(url)!r}")
    if (SECRET in url) != holds_credentials(url):
        raise Finding(f"a URL's secret is taken for none\n{url!r}")
    project, at_root = str(folder / "shop"), ("--root", str(root))
    honest = {path for path in root.rglob("*") if path.is_file()}
    calls = [
        ("run", project, "-p", f"name={url}", *at_root),
        ("run", project, "--store", url, *at_root),
        ("run", project, "--artifacts", url, "--root", str(folder / "new")),
        ("runs", "--root", url),
        ("bundle", "show", url),
        ("hub", "list", url),
        ("show", url, *at_root),
        ("schema", "show", url),
    ]
    for arguments in calls if SECRET in url else ():
        printed = verb(*arguments)
        if SECRET in printed.stdout + printed.stderr:
            raise Finding(f"{' '.join(arguments[:2])} prints a secret\n{url!r}\n{printed}")
        if arguments[0] == "run" and printed.code == 0:
            raise Finding(f"a run takes a URL with a secret\n{url!r}")
    for path in [
        *folder.glob("new/**/*"),
        *(path for path in root.rglob("*") if path not in honest),
        *root.glob("*.db*"),
    ]:
        if path.is_file() and SECRET.encode() in path.read_bytes():
            raise Finding(f"a secret of a URL is written to {path.suffix}\n{url!r} in {path}")
    shutil.rmtree(folder / "new", ignore_errors=True)


ATTACKS = {"url": Attack(shop.prepare, _draw, _check, fast=4, slow=64)}
