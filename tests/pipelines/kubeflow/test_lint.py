"""The linter against mutations of pipelines that hold: each is found, at its place, and nothing else is said."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.pipelines.kubeflow.findings import Finding
from drivetrain.pipelines.kubeflow.lint import lint, lint_documents
from drivetrain.tests.pipelines.kubeflow.cluster import CASES, REFUSED, conformance
from drivetrain.tests.pipelines.kubeflow.planted import (
    EXITS,
    GOOD,
    HARMLESS,
    NAME,
    PLANTED,
    Change,
)
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.kubeflow


def mutated(name: str, change: Change) -> list[Finding]:
    documents = conformance(name)
    spec, platform = copy.deepcopy(documents.spec), copy.deepcopy(documents.platform)
    change(spec, platform)
    return lint(yaml.dump_all([spec, platform], Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))


@pytest.mark.parametrize(
    ("name", "change", "place", "says"), [each[1:] for each in PLANTED], ids=[p[0] for p in PLANTED]
)
def test_what_was_planted_is_found_at_its_place(name: str, change: Change, place: str, says: str) -> None:
    found = mutated(name, change)
    assert [finding for finding in found if finding.location == place and says in finding.message], found
    assert all(finding.fix for finding in found)


@pytest.mark.parametrize(("name", "change"), [each[1:] for each in HARMLESS], ids=[each[0] for each in HARMLESS])
def test_what_kfp_takes_is_no_finding(name: str, change: Change) -> None:
    assert mutated(name, change) == []


def test_kfps_loader_takes_most_of_them() -> None:
    """Why there is a linter; it says so itself should KFP learn to see them."""
    json_format = pytest.importorskip("google.protobuf.json_format")
    from drivetrain.pipelines.kubeflow.protobufs import pipeline_spec

    taken = []
    for number, (what, name, change, *_) in enumerate(PLANTED[:8]):
        spec, platform = copy.deepcopy(conformance(name).spec), copy.deepcopy(conformance(name).platform)
        change(spec, platform)
        try:
            json_format.ParseDict(spec, pipeline_spec().PipelineSpec())
            taken.append((number, what))
        except json_format.ParseError:
            assert what == "field"
    assert len(taken) == 7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "it is not YAML"),
        ("- 1\n", "one or two YAML documents"),
        ("a: 1\n---\nb: 1\n---\nc: 1\n", "one or two YAML documents"),
        ("schemaVersion: 3\n", "KFP cannot read it"),
        ("{}", "schemaVersion is ''"),
        ("schemaVersion: .nan\n", "it holds what is not JSON"),
        ("schemaVersion: 2026-11-22\n", "it holds what is not JSON"),
    ],
)
def test_files_that_are_no_pipeline(text: str, says: str) -> None:
    assert any(says in finding.message for finding in lint(text))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where everything below a value is: before what is in it, in its order."""
    paths = [path] if path else []
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        paths += _paths(each, (*path, key)) if isinstance(each, dict | list) else [(*path, key)]
    return paths


REFERENCES = {"name", "producerTask", "outputParameterKey", "outputArtifactKey", "componentInputParameter",
              "componentInputArtifact", "executorLabel", "itemInput", "inputParameter", "schemaVersion"}  # fmt: skip


@cache
def _references(name: str) -> list[tuple[Any, ...]]:
    """Where a pipeline of the suite refers to something."""
    spec = conformance(name).spec
    return [
        path
        for path in _paths({key: spec[key] for key in ("root", "components")})
        if path[-1] in REFERENCES and path[-2:] != ("taskInfo", "name") and "artifactType" not in path
    ]


@settings(max_examples=60)
@given(st.data())
def test_every_reference_that_is_broken_is_found(data: st.DataObject) -> None:
    """A reference of any kind, anywhere in a pipeline, that names something else: the linter has something to say."""
    names = sorted(CASES.keys() - REFUSED.keys())
    name = data.draw(st.sampled_from(names[:40]))
    spec = copy.deepcopy(conformance(name).spec)
    *above, last = data.draw(st.sampled_from(_references(name)))
    body: Any = spec
    for key in above:
        body = body[key]
    body[last] = body[last] + data.draw(st.sampled_from(["x", "-2", " "]))
    assert lint_documents(spec)


@settings(max_examples=60)
@given(st.data())
def test_it_ends_with_findings_or_none_whatever_is_taken_out_or_put_in(data: st.DataObject) -> None:
    """Nothing that is taken out of a pipeline, or is something else there, makes the linter fail."""
    found = conformance(data.draw(st.sampled_from([NAME, EXITS, GOOD])))
    documents = {"spec": copy.deepcopy(found.spec), "platform": copy.deepcopy(found.platform)}
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from([path for path in _paths(documents) if len(path) > 1]))
        body: Any = documents
        for key in above:
            body = body[key]
        if data.draw(st.booleans()):
            del body[last]
        else:
            body[last] = data.draw(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just([]), st.just({})))
    for finding in lint_documents(documents["spec"], documents["platform"]):
        assert finding.location
        assert finding.message
        assert finding.fix


def test_the_verb(tmp_path: Any) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(conformance(GOOD).yaml)
    bad.write_text(conformance(GOOD).yaml.replace("producerTask: make", "producerTask: maek"))
    assert CliRunner().invoke(cli, ["kubeflow", "lint", str(good)]).output.endswith("nothing is wrong\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["kubeflow", "lint", str(bad)])
    assert ended.value.code == 2


@pytest.mark.slow  # KFP's compiler takes seconds to import
def test_nothing_is_wrong_with_what_kfp_itself_compiles(tmp_path: Any) -> None:
    from drivetrain.tests.pipelines.kubeflow.kfp_everything import everything
    from kfp import compiler

    path = tmp_path / "everything.yaml"
    compiler.Compiler().compile(everything, str(path))
    assert lint(path.read_text()) == []
