"""`fsck --repair` takes in what other stores recorded before it removes payloads that its own knows nothing of."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.metadata import MetadataStore, keep_payloads_at
from drivetrain.pipelines import Home, load_pipeline, open_run, run_pipeline
from drivetrain.pipelines.launcher import run_records as records
from drivetrain.tests.pipelines.kubeflow.pods import PARTS

pytest.importorskip("fsspec")
PIPELINE = """
import drivetrain as dt
from shop.parts import Double, Make

@dt.pipeline
def shop(count: int = 3) -> None:
    Double(Make(count=count))
"""


@pytest.mark.parametrize("recorded", [True, False])
def test_payloads_that_records_name_are_no_orphans(
    project: Callable[..., Path], tmp_path: Path, recorded: bool
) -> None:
    share = f"file://{tmp_path}/share"
    pod = Home(tmp_path / "pod" / ".drivetrain", artifacts=share)
    result = run_pipeline(pod, load_pipeline(project(pipeline=PIPELINE, parts=PARTS)))
    made = {each.uri for each in pod.store.artifacts()}
    if recorded:
        for task in result.nodes:
            records.write_record(pod, open_run(pod, result.run), task)
    else:
        shutil.rmtree(tmp_path / "share" / "records")
    pod.close()
    old = time.time() - 8 * 86400
    for path in (tmp_path / "share" / "artifacts").rglob("*"):
        os.utime(path, (old, old))
    root = tmp_path / "ours" / ".drivetrain"
    root.mkdir(parents=True)
    with MetadataStore.open(root / "metadata.db") as store:
        keep_payloads_at(store, share)
    asked = CliRunner().invoke(cli, ["fsck", "--root", str(root)])
    assert asked.output.count("payload that no artifact names") == 2
    assert CliRunner().invoke(cli, ["fsck", "--repair", "--root", str(root)]).exit_code == 0
    ours = Home(root)
    assert {each.uri for each in ours.store.artifacts()} == (made if recorded else set())
    assert {each.uri for each in ours.payloads.published()} == (made if recorded else set())
    assert CliRunner().invoke(cli, ["fsck", "--root", str(root)]).exit_code == 0
    ours.close()
