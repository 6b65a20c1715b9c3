"""A project, a home whose payloads pods see too, and KFP's API to submit to."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, PipelineFunction, load_pipeline
from drivetrain.pipelines.kubeflow.connection import ApiSettings
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference

from .api_server import KfpServer, serving
from .shop import PARTS


@pytest.fixture
def no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server(no_config: None) -> Iterator[KfpServer]:
    with serving() as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Payloads behind a URL, as pods see them too."""
    (tmp_path / "bucket").mkdir()
    home = Home(tmp_path / "home" / ".drivetrain", artifacts=f"file://{tmp_path}/bucket")
    yield home
    home.close()


@pytest.fixture
def settings(server: KfpServer, tmp_path: Path) -> ClusterSettings:
    return ClusterSettings(
        "registry/shop@sha256:" + "0" * 64, f"file://{tmp_path}/bucket", KeyReference("store", "url"),
        api=ApiSettings(host=server.url, timeout=60, retries=1),
    )  # fmt: skip


@pytest.fixture
def pipe(project: Callable[..., Path]) -> Callable[..., PipelineFunction[..., object]]:
    def write(body: str) -> PipelineFunction[..., object]:
        head = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef shop(count: int = 3) -> None:\n"
        text = head + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
        return load_pipeline(project("shop", parts=PARTS, pipeline=text))

    return write
