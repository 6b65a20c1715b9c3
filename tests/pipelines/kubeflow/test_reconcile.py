"""The end of a run, settled by whoever is left: by one at a time, however long that takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from drivetrain.pipelines import Home, PipelineFunction, RunOptions
from drivetrain.pipelines.kubeflow import reconcile
from drivetrain.pipelines.kubeflow.settings import ClusterSettings
from drivetrain.pipelines.launcher.runs import new_run

from .shop import PLAIN


@pytest.mark.slow
def test_who_settles_longer_than_a_lease_is_still_alone(
    home: Home,
    settings: ClusterSettings,
    pipe: Callable[..., PipelineFunction[..., object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "LEASE", 3.0)
    pipeline = pipe(PLAIN)
    run = new_run(home, pipeline.build(), pipeline.project, {"count": 3}, RunOptions("kubeflow"))
    spans: list[tuple[float, float]] = []

    def settle() -> None:
        with reconcile._exclusively(home, run):
            begin = time.monotonic()
            time.sleep(5.0)  # a lease, and the half of one that the other watches
            spans.append((begin, time.monotonic()))

    threads = [threading.Thread(target=settle) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (_, first), (second, _) = sorted(spans)
    assert second >= first
