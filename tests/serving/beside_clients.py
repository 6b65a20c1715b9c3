"""The real clients put to our server: `python -m drivetrain.tests.serving.beside_clients [--environments FOLDER]`.

tritonclient (HTTP with JSON and binary tensors, gRPC, a stream) and the kserve SDK (its protocols v1 and v2, and gRPC),
each in an environment of its own, for their pins conflict with ours. Prints what each has done; the first answer that
is not what was sent ends it. Of kserve's v1 `is_model_ready` is left out: it asks for a `ready` beside the states of
versions, and what TensorFlow Serving answers there is a message without it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from drivetrain.engine import analyze
from drivetrain.tests.serving.running import serving
from drivetrain.tests.serving.test_oip_bodies import preprocess

_TRITON: Final = """
import sys
import numpy as np
import tritonclient.grpc as rpc
import tritonclient.http as rest
from tritonclient.utils import InferenceServerException

columns = {
    "x": (np.array([1.5, -0.0, 1e30, np.nan, np.inf]), "FP64"),
    "n": (np.array([1, 2, 3, 4, 5]), "INT64"),
    "flag": (np.array([True, False, True, True, False]), "BOOL"),
    "city": (np.array(["Zürich", "", "東京", 'a "quoted"\\n\\\\word', "x" * 70000], object), "BYTES"),
}
x = columns["x"][0]
expected = {
    "score": np.where(np.isnan(x), -1, x).astype(np.float32), "count": columns["n"][0].astype(np.float32),
    "flag": columns["flag"][0], "label": columns["city"][0],
}

def same(result, names):
    for name in names:
        values = result.as_numpy(name)
        if values.dtype == object:
            values = np.array([each if isinstance(each, str) else each.decode() for each in values], object)
        np.testing.assert_array_equal(values, expected[name])

def refused(act, *words):
    try:
        act()
    except InferenceServerException as error:
        assert all(word in str(error) + str(error.status()) for word in words), error
    else:
        raise AssertionError(words)

for client, module in ((rest.InferenceServerClient(sys.argv[1]), rest), (rpc.InferenceServerClient(sys.argv[2]), rpc)):
    is_rest = module is rest
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    assert client.is_model_ready("m", "1") and not (is_rest and client.is_model_ready("none"))
    metadata = client.get_model_metadata("m") if is_rest else client.get_model_metadata("m", as_json=True)
    assert [each["name"] for each in metadata["inputs"]] == [*columns], metadata
    assert [each["name"] for each in metadata["outputs"]] == [*expected], metadata
    index = client.get_model_repository_index(**({} if is_rest else {"as_json": True}))
    index = index if is_rest else index["models"]
    assert [(each["name"], each["state"]) for each in index] == [("m", "READY")], index
    assert (client.get_server_metadata() if is_rest else client.get_server_metadata(as_json=True))["name"]
    for is_binary in (True, False) if is_rest else (None,):
        inputs = []
        for name, (values, datatype) in columns.items():
            tensor = module.InferInput(name, [len(values)], datatype)
            tensor.set_data_from_numpy(values, **({"binary_data": is_binary} if is_rest else {}))
            inputs.append(tensor)
        wishes = {"binary_data": is_binary} if is_rest else {}
        for names in (expected, ["label", "score"]):
            asked = [module.InferRequestedOutput(name, **wishes) for name in names]
            result = client.infer("m", inputs, model_version="1", outputs=asked, request_id="seven")
            same(result, names)
            response = result.get_response()
            assert (response["id"] if is_rest else response.id) == "seven"
        print("rest" if is_rest else "grpc", "infer", "" if is_binary is None else "binary" if is_binary else "JSON")
        same(client.infer("m", inputs), expected)
        if is_rest and is_binary:
            same(client.async_infer("m", inputs).get_result(), expected)
            for compression in ("gzip", "deflate"):
                refused(lambda: client.infer("m", inputs, request_compression_algorithm=compression), "4")
    refused(lambda: client.infer("none", inputs), "no model")
    refused(lambda: client.infer("m", inputs, model_version="7"), "serves no version 7")
    refused(lambda: client.infer("m", inputs[1:]), "'x'")
    client.unload_model("m")
    refused(lambda: client.infer("m", inputs), "unloaded")
    client.load_model("m")
    same(client.infer("m", inputs), expected)
    print("rest" if is_rest else "grpc", "load, unload, index, metadata, health, refusals")

received = []
client.start_stream(lambda result, error: received.append((result, error)))
for number in range(20):
    client.async_stream_infer("m", inputs, request_id=str(number))
client.async_stream_infer("none", inputs)
client.stop_stream()
assert [result.get_response().id for result, error in received[:20]] == [str(number) for number in range(20)], received
for result, _ in received[:20]:
    same(result, expected)
assert "no model" in str(received[20][1])
print("grpc stream")
"""

_KSERVE: Final = """
import asyncio
import logging
import sys
import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferOutput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

rows = [{"x": 1.5, "n": 1, "flag": True, "city": "Zürich"}, {"x": None, "n": 2, "flag": False, "city": ""}]
expected = {"score": [1.5, -1.0], "count": [1.0, 2.0], "flag": [True, False], "label": ["Zürich", ""]}

def request(is_binary):
    inputs = [InferInput(name, [2], datatype) for name, datatype in
              (("x", "FP64"), ("n", "INT64"), ("flag", "BOOL"), ("city", "BYTES"))]
    for tensor, values in zip(inputs, (np.array([1.5, np.nan]), np.array([1, 2]), np.array([True, False]),
                                       np.array(["Zürich", ""], object))):
        tensor.set_data_from_numpy(values, binary_data=is_binary)
    wishes = [RequestedOutput(name, parameters={"binary_data": is_binary}) for name in expected]
    return InferRequest(model_name="m", infer_inputs=inputs, request_id="seven", request_outputs=wishes)

def check(response):
    assert response.model_name == "m" and response.id == "seven", response
    for output in response.outputs:
        values = [each.decode() if isinstance(each, bytes) else each for each in output.as_numpy().tolist()]
        assert values == expected[output.name], (output.name, values)
    assert [output.name for output in response.outputs] == [*expected]

async def main(address, target):
    v1 = InferenceRESTClient(RESTConfig(protocol="v1"))
    v2 = InferenceRESTClient(RESTConfig(protocol="v2"))
    predictions = (await v1.infer(address, {"instances": rows}, "m"))["predictions"]
    assert predictions == [dict(zip(expected, each)) for each in zip(*expected.values())], predictions
    (explanation,) = (await v1.explain(address, "m", {"instances": rows[:1], "output": "score"}))["explanations"]
    assert abs(explanation["inputs"][0]["attribution"] - 1.5) < 1e-3, explanation
    assert await v1.is_server_live(address)
    print("REST v1: live, predict, explain")
    assert await v2.is_server_live(address) and await v2.is_server_ready(address)
    assert await v2.is_model_ready(address, "m")
    for is_binary in (False, True):
        check(await v2.infer(address, request(is_binary), "m"))
    for name, code in (("none", 404), ("m", 400)):
        try:
            await v2.infer(address, {"inputs": []}, name)
        except httpx.HTTPStatusError as error:
            assert error.response.status_code == code, error
        else:
            raise AssertionError(name)
    print("REST v2: infer JSON and binary, live, ready, refusals")
    client = InferenceGRPCClient(target)
    assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("m")
    for is_binary in (False, True):
        check(await client.infer(request(is_binary)))
    unknown = request(False)
    unknown.model_name = "none"
    try:
        await client.infer(unknown)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND, error
    else:
        raise AssertionError("none")
    print("gRPC: infer, live, ready, refusals")
    for each in (v1, v2, client):
        await each.close()

logging.disable()  # what is refused on purpose
asyncio.run(main(*sys.argv[1:]))
"""

CLIENTS: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "tritonclient": (("tritonclient[all]",), _TRITON),
    "kserve": (("kserve",), _KSERVE),
}
"""Client → what pip installs for it, and its program, whose arguments are our addresses."""


def main() -> None:
    """Print what each client has done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="where clients are installed, and found by the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bundle = analyze(preprocess, pa.table({"x": [1.0], "n": [1], "flag": [True], "city": ["a"]}))
        bundle.save(folder / "m" / "1")
        with serving(folder, str(folder / "m"), "--grpc-port", "0") as server:
            for name, (packages, program) in CLIENTS.items():
                environment = (options.environments or folder) / name
                python = environment / "bin" / "python"
                if not python.exists():
                    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
                    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
                address = server.address if name == "kserve" else server.address.partition("//")[2]
                print(f"{name}:", flush=True)
                subprocess.run([python, "-c", program, address, str(server.grpc)], check=True)


if __name__ == "__main__":
    main()
