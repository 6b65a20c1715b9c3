"""A second opinion on what we compile: KFP's own local runner carries the very documents out, as the simulator does.

It needs kfp 2.17 or newer, in this environment or in that of the Python which `DRIVETRAIN_KFP_PYTHON` names. What it
cannot do is left out: conditions over lists (it prints a protobuf into a Python expression) or with a `!` before no
parenthesis, loops over the output of a task that is not called `Output`, and what depends on a skipped task (it fails
instead of leaving that out).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("cel")

from drivetrain.pipelines import Home
from drivetrain.pipelines.kubeflow.compiler import compile_pipeline
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference
from drivetrain.pipelines.kubeflow.simulate import SimulatedKfpRun, result_of
from drivetrain.pipelines.kubeflow.submit import arguments_of
from drivetrain.tests.conformance import control_cases
from drivetrain.tests.conformance.case import carry_out, seen
from drivetrain.tests.conformance.on_kubeflow import image

# Not marked kubeflow: what CI requires by that name is there without KFP's SDK.
pytestmark = pytest.mark.slow
OLDEST = (2, 17)
SCRIPT = """
import json, sys
from kfp import components, local
from kfp.local import subprocess_task_handler as handler
# It would refuse whatever is not a function of its own; ours are Python all the same.
handler.SubprocessTaskHandler.validate_not_container_component = lambda self, *args, **kwargs: None
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2], raise_on_error=False)
components.load_component_from_file(sys.argv[1])(**json.loads(sys.argv[3]))
"""


def _python() -> str | None:
    """A Python whose kfp is new enough."""
    for python in filter(None, (os.environ.get("DRIVETRAIN_KFP_PYTHON"), sys.executable)):
        ask = "import importlib.metadata; print(importlib.metadata.version('kfp'))"
        said = subprocess.run([python, "-c", ask], check=False, capture_output=True, text=True)
        found = re.match(r"(\d+)\.(\d+)", said.stdout)
        if found and (int(found[1]), int(found[2])) >= OLDEST:
            return python
    return None


CASES = ("orders:diamond", "branches:over_a_parameter", "loops:over_a_literal", "others:on_exit")


@pytest.mark.parametrize("name", CASES)
def test_kfps_own_runner_agrees(name: str, tmp_path: Path) -> None:
    python = _python()
    if python is None:
        pytest.skip("no kfp 2.17 or newer; DRIVETRAIN_KFP_PYTHON may name a Python that has it")
    case = next(each for each in control_cases.CASES if each.pipeline == f"control/{name}")
    inline = Home(tmp_path / "inline" / ".drivetrain")
    result = carry_out(case.steps[0], case, inline, "inline")
    pipeline, base = case.load(), tmp_path / "kfp"
    project = image(pipeline, base / "image")
    settings = ClusterSettings("x:1", "s3://bucket/x", KeyReference("x", "store"), project=str(project))
    documents = list(yaml.safe_load_all(compile_pipeline(pipeline.build(), settings).yaml))
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        executor["container"]["command"][0] = sys.executable
        executor["container"]["env"] = []  # the place of the payloads is here
    (base / "compiled.yaml").write_text(yaml.safe_dump_all(documents))
    arguments = json.dumps(arguments_of(pipeline.build(), pipeline.values(case.steps[0].parameters)))
    environment = {"DRIVETRAIN_KUBEFLOW_RUN": "opinion", "DRIVETRAIN_ROOT": str(base / ".drivetrain")}
    said = subprocess.run(
        [python, "-c", SCRIPT, str(base / "compiled.yaml"), str(base / "kfp"), arguments],
        check=False, capture_output=True, text=True, cwd=base, env={**os.environ, **environment},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    home = Home(base / ".drivetrain")
    ended = result_of(home, "kubeflow-opinion", SimulatedKfpRun("", "", (), ()))
    assert seen(ended, home) == seen(result, inline)
    assert ended.state == result.state
    home.close()
    inline.close()
