"""Stores behind a URL, by fsspec: opened, tried again where it may help, and what fails told without a secret."""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from .errors import DrivetrainError, InputError, missing_extra

T = TypeVar("T")

_LASTING: Final = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, NotImplementedError,
    ImportError, TypeError,
)  # fmt: skip
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# By the ends of their names, since the stores' packages, whose errors these are, need not be installed.
_CREDENTIALS: Final = (
    "CredentialsError",
    "RefreshError",
    "AuthenticationError",
    "TokenError",
    "AuthenticationRequired",
)
_SECRET: Final = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|CONNECTION_STRING|SIGNATURE|_SAS", re.IGNORECASE)


class StorageUnavailable(DrivetrainError):  # noqa: N818 - named for what happened
    """A store behind a URL did not answer as it should, however often it was asked; it may later."""


def open_url(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, as its host and user say, and the URL's path in it.

    Raises:
        DrivetrainError: fsspec, or the package it needs for the scheme, is not installed.
        InputError: There is no such scheme, or its package refuses what the environment says.
    """
    files, path = _opened(url, lambda fsspec: fsspec.core.url_to_fs(url))
    return files, str(path).rstrip("/")


def file_system(url: str) -> Any:  # Any: fsspec ships no types
    """The fsspec file system of a URL's scheme alone. Raises what `open_url` does."""
    return _opened(url, lambda fsspec: fsspec.filesystem(url.partition("://")[0].lower()))


def _opened(url: str, make: Callable[[Any], Any]) -> Any:
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("fsspec", "cloud") from error
    try:
        return make(fsspec)
    except ImportError as error:
        known = re.search(r"[Ii]nstall (?:the )?[\"'`]?([A-Za-z0-9_-]+)", str(error))
        package = known.group(1) if known else scheme
        raise DrivetrainError(
            f"{url}: {scheme}:// needs a package that is not installed ({line(error)})", fix=f"pip install {package}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{url}: there is no scheme {scheme}:// ({line(error)})", fix="give s3://, gs://, …"
        ) from error
    except Exception as error:  # of the store's own package
        raise failed(url, "opened", error, 1) from cause(error)


def tried(
    what: str,
    verb: str,
    do: Callable[[], T],
    pauses: Sequence[float],
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """What `do` gives, tried again after each pause where it fails for a reason that may pass.

    Args:
        what: The address, for the error.
        verb: What is done to it: "read", "written".
        do: The work; what it began must not hinder it the second time.
        pauses: Seconds before the second try, the third, …; each up to a quarter longer, so that many do not meet.
        wait: Waits so many seconds; may raise to stop.

    Raises:
        FileNotFoundError, OSError: There is no such file; the local disk is full.
        InputError: It fails for a reason that lasts: no right, no credentials, no such bucket.
        StorageUnavailable: It failed each time.
    """
    for number, pause in enumerate((*pauses, None), 1):
        try:
            return do()
        except DrivetrainError:
            raise
        except Exception as error:  # whatever the store's own package raises
            if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in _FULL):
                raise
            if pause is None or lasting(error):
                raise failed(what, verb, error, number) from cause(error)
            logging.getLogger(__name__).info("%s: %s; tried again in %g s", what, line(error), pause)
        wait(pause * random.uniform(1.0, 1.25))  # noqa: S311 - not a secret
    raise AssertionError("unreachable")


def lasting(error: Exception) -> bool:
    """Whether to try again would not help."""
    if isinstance(error, _LASTING) or _denied(error) or type(error).__name__ == "ParamValidationError":
        return True
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 409, 423, 425, 429)


def failed(what: str, verb: str, error: Exception, tries: int) -> DrivetrainError:
    """The error that a person is told."""
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"{what} cannot be {verb}: there is no such bucket or folder ({line(error)})",
            fix="make it, or mend the address",
        )
    if _denied(error):
        return InputError(
            f"{what} may not be {verb} ({line(error)})",
            fix="give credentials by the environment (AWS_ACCESS_KEY_ID, …; FSSPEC_S3_…), or check their rights",
        )
    if lasting(error):
        return InputError(f"{what} cannot be {verb} ({line(error)})", fix="mend the address or the store's settings")
    often = f" after {tries} tries" if tries > 1 else ""
    return StorageUnavailable(
        f"{what} cannot be {verb}{often} ({line(error)})", fix="check the network and the store, then try again"
    )


class Cause(Exception):  # noqa: N818 - no error of its own
    """What a store's own package raised, as a traceback may show it: tracebacks are kept with the runs."""


def cause(error: BaseException) -> Cause:
    """An error with its traceback, and without what is secret in its text or in those that led to it."""
    return Cause(f"{type(error).__name__}: {line(error)}").with_traceback(error.__traceback__)


def line(error: BaseException) -> str:
    """The first line of what an error says, without what this process's environment keeps secret."""
    said = (str(error) or type(error).__name__).splitlines()[0]
    said = re.sub(r"(?i)://[^/@\s]*@", "://…@", said)
    said = re.sub(r"(?i)([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|sig|signature|token|\w*key\w*)=)[^&\s]*", r"\1…", said)
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET.search(name):
            said = said.replace(value, "…")
    return said[:200]


def _denied(error: Exception) -> bool:
    named = type(error).__name__.endswith(_CREDENTIALS)
    return isinstance(error, PermissionError) or named or _status(error) in (401, 403) or "Forbidden" in str(error)


def _status(error: Exception) -> int | None:
    """The HTTP status that an error carries, as the packages of S3, Google and Azure spell it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        found = getattr(error, "status_code", None) or getattr(error, "code", None) or getattr(error, "status", None)
    return int(found) if isinstance(found, (int, str)) and str(found).isdigit() else None
