"""Pods for tests: a small project as an image holds it, and its container started as KFP's launcher does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drivetrain.pipelines import Home, load_pipeline

PARTS = """
import os, signal, time
from pathlib import Path
import drivetrain as dt
from drivetrain.errors import InputError

class Numbers(dt.Artifact):
    total: int = 0

class Verdict(dt.Artifact):
    passed: bool = True

def made(total):
    numbers = Numbers.new(total=total)
    (numbers.content / "total.txt").write_text(str(total))
    return numbers

@dt.component
def Make(*, count: int) -> Numbers:
    print("making", count)
    return made(count)

@dt.component
def Double(numbers: Numbers) -> Numbers:
    return made(2 * numbers.total)

@dt.component(gates="numbers")
def Check(numbers: Numbers, *, limit: int) -> Verdict:
    return Verdict.new(passed=numbers.total <= limit)

@dt.component
def Fails(numbers: Numbers, *, how: str) -> Numbers:
    if how == "user":
        raise InputError("mend your count", fix="give another")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "slow":
        time.sleep(240)
    if how == "held":
        Path("begun").touch()
        time.sleep(240)
    raise ValueError("told to fail")

@dt.component
def Login(*, token: dt.Secret) -> int:
    print("the token is", token.reveal())
    return len(token.reveal())
"""


@dataclass
class Image:
    """A project, and where its pods work.

    Attributes:
        folder: The project's.
        base: What relative paths mean.
        environment: Of every pod.
        parameters: Of the run.
    """

    folder: Path
    base: Path
    environment: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, object] = field(default_factory=dict)
    kfp_run: str = "3e0f9c52-77a6-4d7f-9d53-0a8f3f1f5c11"

    @property
    def run(self) -> str:
        """Our id of the run that its pods make."""
        return f"kubeflow-{self.kfp_run}"

    @property
    def root(self) -> Path:
        return self.base / ".drivetrain"

    @property
    def digest(self) -> str:
        """Of the pipeline that is in it."""
        return load_pipeline(self.folder).build().digest

    def home(self) -> Home:
        """The runs."""
        return Home(self.root)

    def given(
        self,
        place: Path | None = None,
        status: Mapping[str, object] | None = None,
        outputs: tuple[str, ...] = (),
        artifacts: tuple[str, ...] = (),
    ) -> str:
        """What KFP's driver resolved for a container, which answers below a folder."""
        place = place or self.base / "out" / "pod"
        executor_input = {
            "inputs": {"parameterValues": {"drivetrain_run": "", "status": status, **self.parameters}},
            "outputs": {
                "outputFile": str(place / "output.json"),
                "parameters": {name: {"outputFile": str(place / name)} for name in outputs},
                "artifacts": {name: {"artifacts": [{"name": name, "uri": str(place / name)}]} for name in artifacts},
            },
        }
        return json.dumps(executor_input)

    def start(
        self,
        *what: str,
        status: Mapping[str, object] | None = None,
        outputs: tuple[str, ...] = (),
        artifacts: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        digest: str = "",
    ) -> Pod:
        """Start a container: `--node ID`, `--open LOOP` or `--leave`."""
        place = self.base / "out" / "-".join(what).strip("-")
        given = self.given(place, status, outputs, artifacts)
        command = [sys.executable, "-P", "-m", "drivetrain.pipelines.kubeflow.pod", "--project", str(self.folder)]
        command += ["--ir", digest or self.digest, *what, "--executor-input", given]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.base,
            env={**os.environ, "DRIVETRAIN_KUBEFLOW_RUN": self.kfp_run, "DRIVETRAIN_ROOT": str(self.root),
                 **self.environment, **(environment or {})},
        )  # fmt: skip
        return Pod(process, place)


@dataclass
class Pod:
    """A container that was started."""

    process: subprocess.Popen[str]
    place: Path
    out: str = ""
    err: str = ""

    def end(self, seconds: float = 240) -> int:
        """Wait for its end; gives its status."""
        self.out, self.err = self.process.communicate(timeout=seconds)
        return self.process.returncode

    @property
    def output(self) -> dict[str, Any]:
        """What it told KFP."""
        body: dict[str, Any] = json.loads((self.place / "output.json").read_text())
        return body

    def manifest(self, name: str) -> dict[str, Any]:
        """The file that it left in place of an artifact."""
        body: dict[str, Any] = json.loads((self.place / name).read_text())
        return body
