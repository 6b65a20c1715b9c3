"""What the tests of ops share: a namespace in use, and the sample's C++ kernel compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.engine import custom_ops
from drivetrain.engine.custom_ops.extensions import _LOCAL
from drivetrain.engine.custom_ops.registry import _OPS

SAMPLE = Path(__file__).with_name("sample_extension")


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> custom_ops.Extension:
    """The namespace `shop`, in use for one test; what the test registers is forgotten after it."""
    kept, local = dict(_OPS), dict(_LOCAL)
    monkeypatch.setattr("drivetrain.engine.custom_ops.registry._OPS", kept)
    monkeypatch.setattr("drivetrain.engine.custom_ops.extensions._LOCAL", local)
    return custom_ops.use("shop", distribution="shop-features", version="0.3")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ kernel of the sample extension, compiled."""
    out = tmp_path_factory.mktemp("native") / "soft_clip.so"
    return custom_ops.compile_cpp(SAMPLE / "acme_ops" / "soft_clip.cc", out)
