"""Every body of test_oip_bodies.py put to Triton and to our server: `python -m drivetrain.tests.serving.beside_triton`.

Both serve the same model, Triton by its Python backend in an environment of its own (benchmarks/serving_peers.py, which
needs Debian's Python 3.11). Prints the bodies that they do not answer alike: with the same outputs where they answer,
with a client's error (4xx) where they refuse. Where Triton answers 500 ours must be a client's error.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from drivetrain.benchmarks.serving_peers import PEERS, Peer, start
from drivetrain.engine import analyze
from drivetrain.tests.serving.running import serving
from drivetrain.tests.serving.test_oip_bodies import (
    MALFORMED,
    RECORDED,
    REQUESTS,
    body_of,
    preprocess,
    tensor,
    tensors_of,
)

_MODEL = """
import os
import sys

sys.path[:0] = os.environ["NETWORK_PATHS"].split(":")
import numpy as np
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = backend.get_input_tensor_by_name(request, "x").as_numpy()
        def column(name, default, dtype):
            sent = backend.get_input_tensor_by_name(request, name)
            return np.full(x.shape, default, dtype) if sent is None else sent.as_numpy()
        outputs = {
            "score": np.where(np.isnan(x), -1, x).astype(np.float32),
            "count": column("n", 1, np.int64).astype(np.float32),
            "flag": column("flag", False, bool),
            "label": column("city", b"?", object),
        }
        wanted = request.requested_output_names()
        return backend.InferenceResponse([backend.Tensor(name, outputs[name]) for name in wanted])
"""
_CONFIG = """
name: "m"
backend: "python"
input [
  { name: "x" data_type: TYPE_FP64 dims: [-1] },
  { name: "n" data_type: TYPE_INT64 dims: [-1] optional: true },
  { name: "flag" data_type: TYPE_BOOL dims: [-1] optional: true },
  { name: "city" data_type: TYPE_STRING dims: [-1] optional: true }
]
output [
  { name: "score" data_type: TYPE_FP32 dims: [-1] },
  { name: "count" data_type: TYPE_FP32 dims: [-1] },
  { name: "flag" data_type: TYPE_BOOL dims: [-1] },
  { name: "label" data_type: TYPE_STRING dims: [-1] }
]
"""
X = tensor("x", "FP64", [3], [1.5, -2.0, 0.25])
WELL_FORMED: dict[str, tuple[bytes, int | None]] = {
    "all columns": (
        body_of(
            X, tensor("n", "INT64", [3], [1, 2, 3]), tensor("flag", "BOOL", [3], [True, False, True]),
            tensor("city", "BYTES", [3], ["a", "", "ü"]), id="42",
        ),
        None,
    ),
    "one column": (body_of(X), None),
    "one output": (body_of(X, outputs=[{"name": "label"}]), None),
    "no rows": (body_of(tensor("x", "FP64", [0], [])), None),
    **{
        case: ((RECORDED / f"{case}.body").read_bytes(), REQUESTS[case]["header_length"])
        for case in ("columns_json", "columns_binary", "columns_mixed", "strange_json", "strange_binary")
    },
}  # fmt: skip

STRICTER = {
    "a request has rows": (
        "no rows", "x: no rows for values", "none_binary of no rows", "none_json of no rows",
    ),
    "values are flat or nested as the shape says": (
        "x: data nested too deep", "x: data nested much too deep", "x: data nested in part",
    ),
    "all inputs have as many rows": ("x: other rows",),
    "nothing follows the document": ("bytes after", "binary without a header"),
    "parameters are an object": ("x: parameters a list", "x: parameters text", "outputs parameters a list"),
    "what is not known is named": (
        "deep parameters", "signature a number", "signature unknown", "signature of a megabyte",
        "outputs classification",
    ),
    "an id is text": ("id half a pair",),
}  # fmt: skip
"""What Triton answers and our server refuses, and why."""


@contextmanager
def ours(folder: Path) -> Iterator[str]:
    """Our server with the model `m`; gives its address."""
    bundle = analyze(preprocess, pa.table({"x": [1.0], "n": [1], "flag": [True], "city": ["a"]}))
    bundle = bundle.with_defaults({"n": 1, "flag": False, "city": "?"}).for_serving()
    graph = replace(bundle.graph, signatures={"predict": bundle.graph.signatures["transform"]})
    replace(bundle, graph=graph).save(folder / "m" / "1")
    with serving(folder, str(folder / "m")) as server:
        yield server.address


@contextmanager
def triton(folder: Path, environments: Path | None) -> Iterator[str]:
    """Triton with the model `m`; gives its address."""
    files = {"models/m/config.pbtxt": _CONFIG, "models/m/1/model.py": _MODEL}
    peer: Peer = replace(PEERS["triton"], files=files, ready="/v2/models/m/ready")
    fresh = Path(tempfile.mkdtemp(dir=folder))
    with start("triton", fresh, folder / "none.npz", environments or folder, peer) as address:
        yield address


def ask(address: str, body: bytes, header_length: int | None) -> tuple[int, bytes, int | None]:
    """Status and body of the answer, and where its binary tensors begin; status 0 where there is none."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    headers = {} if header_length is None else {"Inference-Header-Content-Length": str(header_length)}
    try:
        connection.request("POST", "/v2/models/m/infer", body, headers)
        answer = connection.getresponse()
        length = answer.getheader("inference-header-content-length")
        return answer.status, answer.read(), None if length is None else int(length)
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode(), None
    finally:
        connection.close()


def difference(ours: tuple[int, bytes, int | None], theirs: tuple[int, bytes, int | None]) -> str:
    """How two answers differ; "" where they do not."""
    if ours[0] == 0 or ours[0] >= 500:
        return "ours is no answer of a sound server"
    if theirs[0] == 0 or theirs[0] >= 500:
        return "" if 400 <= ours[0] < 500 else "Triton fails, ours answers"
    if ours[0] // 100 != theirs[0] // 100:
        return "another status"
    if ours[0] != 200:
        return ""
    left, right = (_tensors(answer) for answer in (ours, theirs))
    if left.keys() != right.keys():
        return f"outputs {sorted(left)} and {sorted(right)}"
    return "; ".join(name for name in left if not np.array_equal(left[name], right[name]))


def _tensors(answer: tuple[int, bytes, int | None]) -> Mapping[str, Any]:  # Any: NumPy arrays of any dtype
    return tensors_of(answer[1], answer[2])


def main() -> None:
    """Print what differs, and how many bodies were asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="where Triton is installed, and found by the next run")
    options = parser.parse_args()
    bodies = {**WELL_FORMED, **MALFORMED}
    stricter = {case for cases in STRICTER.values() for case in cases}
    statuses: dict[tuple[int, int], int] = {}
    differing = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with ours(folder) as address, ExitStack() as stack:
            other = stack.enter_context(triton(folder, options.environments))
            for case, (body, header_length) in bodies.items():
                answers = ask(address, body, header_length), ask(other, body, header_length)
                if answers[1][0] == 0:  # 1,000,000 lists in each other end its process
                    stack.close()
                    other = stack.enter_context(triton(folder, options.environments))
                pair = answers[0][0], answers[1][0]
                statuses[pair] = statuses.get(pair, 0) + 1
                if case not in stricter and (says := difference(*answers)):
                    differing += 1
                    print(f"{case}: {says}: {pair}\n  ours {answers[0][1][:150]!r}\n  Triton {answers[1][1][:150]!r}")
    counts = ", ".join(f"{count} times ours {pair[0]}, Triton {pair[1]}" for pair, count in sorted(statuses.items()))
    print(f"{len(bodies)} bodies, {differing} not alike, {len(stricter)} we refuse; {counts} (0: no answer)")


if __name__ == "__main__":
    main()
