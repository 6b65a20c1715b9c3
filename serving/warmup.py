"""The warm-up file of a version: requests that a server tries it with before it answers anybody's.

    ADDRESS/3.warmup.jsonl

A line is the body of a request for predictions, as `POST /v1/models/NAME:predict` takes it. The file is no part of the
bundle, so it changes no digest; where it is damaged, the version is loaded as without it. TensorFlow Serving has
`assets.extra/tf_serving_warmup_requests` for the same end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..engine.bundles.runner import SMALL
from ..errors import DrivetrainError
from ..versions import WARMUP, versions_at
from .api import Described, InferenceRequest, ModelRef
from .batching import SINGLES, Predict, joined
from .tfs import decode_predict

MOST_ROWS: Final = SMALL
"""Rows of a warm-up file that are tried."""
MOST_BYTES: Final = 4 << 20
"""The size of a warm-up file, in bytes; a longer one is not read."""
MOST_SECONDS: Final = 60.0
"""How long a version is tried, in seconds; what has begun by then is finished."""


@dataclass(frozen=True)
class WarmUpResult:
    """What came of a warm-up.

    Attributes:
        rows: How many rows the version was tried with.
        seconds: How long that took.
        problem: What is wrong with the file or its rows, in a line; "" where nothing is.
    """

    rows: int = 0
    seconds: float = 0.0
    problem: str = ""


def warmup_file(rows: Iterable[Mapping[str, Any]], signature: str) -> bytes:  # Any: what a row holds
    """The file of some rows, a request for each, as far as `MOST_ROWS` and `MOST_BYTES` let it.

    Raises:
        InputError: A value has no JSON.
    """
    from .client_steps import request_body  # late: a server needs no client

    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = request_body([row], signature) + b"\n"
        size += len(line)
        if len(lines) == MOST_ROWS or size > MOST_BYTES:
            break
        lines.append(line)
    return b"".join(lines)


def read_warmup(base_path: str, number: int) -> tuple[bytes, str]:
    """The warm-up file of a version, empty where there is none, and why it cannot be read; nothing is raised."""
    store = versions_at(base_path).store
    name = f"{number}{WARMUP}"
    try:
        size = store.stat(name).size
        if size > MOST_BYTES:
            return b"", f"{name} has {size:,} bytes, at most {MOST_BYTES:,} are read"
        return store.read(name), ""
    except FileNotFoundError:
        return b"", ""
    except Exception as error:  # whatever it is, the version is loaded
        return b"", f"{name} cannot be read: {_reason(error)}"


def warm_up_version(
    predictors: Mapping[str, Predict], described: Described, base_path: str, ending: Callable[[], bool] = lambda: False
) -> WarmUpResult:
    """Try a version with the requests of its warm-up file: each by itself, then more and more of their rows at once.

    So what they compile is compiled for a row and for batches, whose lists have buckets by their lengths. Whatever the
    file holds, nothing is raised.

    Args:
        predictors: What is tried, by signature.
        described: What it can be asked, and its number.
        base_path: Where its versions are.
        ending: Whether to stop; asked now and then.
    """
    start = time.monotonic()
    data, problem = read_warmup(base_path, described.version)
    usable: dict[str, list[InferenceRequest]] = defaultdict(list)
    ref = ModelRef(described.name, described.version)
    problems = [problem] if problem else []
    rows = 0
    for number, line in enumerate(data.splitlines(), 1):
        if ending() or time.monotonic() - start > MOST_SECONDS:
            break
        try:
            request, _ = decode_predict(line, described, ref)
            if rows + request.rows > MOST_ROWS:
                break
            predictors[str(request.signature)](request.columns, request.rows)
        except Exception as error:  # whatever a damaged file causes, the version is loaded
            problems.append(f"the request in line {number} of the warm-up file fails: {_reason(error)}")
            continue
        usable[str(request.signature)].append(request)
        rows += request.rows
    for name, requests in usable.items():
        size = 2 * SINGLES
        while size // 2 < len(requests) and not ending() and time.monotonic() - start < MOST_SECONDS:
            batch = requests[:size]
            try:
                predictors[name](joined([each.columns for each in batch]), sum(each.rows for each in batch))
            except Exception as error:
                problems.append(f"{len(batch)} requests of the warm-up file fail together: {_reason(error)}")
                break
            size *= 2
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return WarmUpResult(rows, time.monotonic() - start, problems[0] + more if problems else "")


def _reason(error: Exception) -> str:
    if isinstance(error, DrivetrainError):
        text = error.message
    else:
        text = str(error) if isinstance(error, OSError) else type(error).__name__
    return " ".join(text.split())[:300]
