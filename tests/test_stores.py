"""What may pass is tried again, what lasts is told at once, and no error shows a secret."""

from __future__ import annotations

import base64
import errno
import hashlib
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivetrain import stores
from drivetrain.errors import Canceled, DrivetrainError, InputError
from drivetrain.stores import StorageUnavailable, Store, _changed, _md5, is_permanent, redacted, retry

PAUSES = [0.1, 0.2]


class HttpError(Exception):
    """As gcsfs raises it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code}")
        self.code = code


class HttpResponseError(Exception):
    """As Azure's packages raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}")
        self.status_code = status


class RefreshError(Exception):
    """As google-auth raises it."""


class ClientAuthenticationError(Exception):
    """As azure-identity raises it."""


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        (ConnectionResetError(), False),
        (TimeoutError(), False),
        (OSError(errno.EIO, "no"), False),
        (RuntimeError("of a package we do not know"), False),
        (PermissionError("no"), True),
        (NotImplementedError(), True),
        (OSError("Forbidden: bucket/x"), True),
        (RefreshError("expired"), True),
        (ClientAuthenticationError("none"), True),
        *((kind(code), code in (400, 401, 403, 404)) for kind in (HttpError, HttpResponseError) for code in
          (400, 401, 403, 404, 408, 429, 500, 502, 503)),
    ],
    ids=lambda value: repr(value),
)  # fmt: skip
def test_what_lasts(error: Exception, lasts: bool) -> None:
    assert is_permanent(error) is lasts
    waited: list[float] = []
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise error

    with pytest.raises(InputError if lasts else StorageUnavailable, match=r"s3://b/x .* be read.*\n  fix: "):
        retry("s3://b/x", "read", fail, PAUSES, waited.append)
    assert len(calls) == (1 if lasts else 3)
    assert all(least <= much <= 1.25 * least for much, least in zip(waited, PAUSES, strict=False))


@pytest.mark.parametrize(
    ("status", "code", "lasts"),
    [(503, "SlowDown", False), (500, "InternalError", False), (403, "AccessDenied", True), (404, "NoSuchKey", True)],
)
def test_what_lasts_of_s3(status: int, code: str, lasts: bool) -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert is_permanent(exceptions.ClientError(answer, "PutObject")) is lasts
    assert is_permanent(exceptions.NoCredentialsError())
    assert not is_permanent(exceptions.EndpointConnectionError(endpoint_url="http://x"))


@pytest.mark.parametrize("error", [FileNotFoundError("x"), OSError(errno.ENOSPC, "full"), Canceled("enough")])
def test_what_is_the_callers_to_tell(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        retry("s3://b/x", "read", fail, PAUSES, lambda _: None)
    assert caught.value is error


def test_a_wait_may_stop() -> None:
    def fail() -> None:
        raise ConnectionError

    def stop(seconds: float) -> None:
        raise Canceled("enough")

    with pytest.raises(Canceled):
        retry("s3://b/x", "read", fail, PAUSES, stop)


@pytest.mark.parametrize(
    "said",
    [
        "https://me:hunter2-key@host/x",
        "GET https://host/x?X-Amz-Signature=hunter2-key&X-Amz-Date=1",
        "GET https://account.blob.core.windows.net/x?sv=1&sig=hunter2-key",
        "the key hunter2-key is not a key",
        "AccountKey hunter2-key\nand more",
        "?AWSAccessKeyId=hunter2-key",
    ],
)
def test_no_secret_is_shown(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_STORE_KEY", "hunter2-key")
    assert "hunter2" not in redacted(OSError(said))
    error: DrivetrainError
    with pytest.raises(InputError) as caught:
        retry("s3://b/x", "read", lambda: (_ for _ in ()).throw(PermissionError(said)), PAUSES)
    error = caught.value
    assert "hunter2" not in str(error)


DIGEST = hashlib.md5(b"data")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"ETag": f'"{DIGEST.hexdigest()}"'}, DIGEST.hexdigest()),
        ({"ETag": f'"{DIGEST.hexdigest()}-3"'}, None),
        ({"ETag": '"0x8D9"', "content_settings": {"content_md5": bytearray(DIGEST.digest())}}, DIGEST.hexdigest()),
        ({"ETag": '"0x8D9"', "content_settings": {"content_md5": None}}, None),
        ({"etag": "CJ=", "md5Hash": base64.b64encode(DIGEST.digest()).decode()}, DIGEST.hexdigest()),
        ({"ETag": ""}, None),
        ({}, None),
    ],
    ids=["S3", "S3 in parts", "Azure", "Azure without", "Google", "empty", "none"],
)
def test_the_checksum_that_a_store_tells(info: dict[str, Any], expected: str | None) -> None:
    assert _md5(info) == expected


@pytest.mark.parametrize(
    "info",
    [
        {"LastModified": datetime(2026, 11, 21, tzinfo=UTC)},
        {"last_modified": datetime(2026, 11, 21, tzinfo=UTC)},
        {"mtime": datetime(2026, 11, 21, tzinfo=UTC).timestamp()},
        {"updated": "2026-11-21T00:00:00.000Z"},
    ],
    ids=["S3", "Azure", "a folder", "Google"],
)
def test_when_a_file_was_written(info: dict[str, Any]) -> None:
    assert _changed(info) == datetime(2026, 11, 21, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_what_is_too_long_to_be_read_whole_is_refused(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_MOST_RECORD", 1000)
    store = Store(f"{scheme}{tmp_path}")
    store.write("record", b"x" * 1000)
    store.write("longer", b"x" * 1001)
    assert store.read("record") == b"x" * 1000
    with pytest.raises(InputError, match="longer is longer than the 1,000 bytes"):
        store.read("longer")


def test_pauses_are_those_that_the_page_says() -> None:
    assert stores.PAUSES == [0.5, 1, 2, 4, 8, 16]


@pytest.mark.parametrize("jobs", [3, 40])
def test_at_most_eight_files_are_moved_at_once(jobs: int) -> None:
    moving, most = 0, 0
    lock = threading.Lock()

    def move(job: int, count: object) -> None:
        nonlocal moving, most
        with lock:
            moving += 1
            most = max(most, moving)
        time.sleep(0.02)
        with lock:
            moving -= 1

    stores.Transfer(jobs, "bytes", lambda *_: None).each(range(jobs), move)
    assert most == min(jobs, 8)
