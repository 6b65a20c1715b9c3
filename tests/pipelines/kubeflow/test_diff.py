"""What changed from one compiled pipeline to another, by node and by fact."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.pipelines.kubeflow.diff import compare
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, PodSettings
from drivetrain.tests.pipelines.kubeflow.cluster import CLUSTER, built, compiled

pytestmark = pytest.mark.kubeflow

Project = Callable[..., Path]
SHOP = """
    @dt.pipeline
    def shop(count: int = 3) -> None:
        made = Make(count=count)
        doubled = Double(made)
        with dt.when(made.total > 2):
            Count(doubled)
"""


def changes(project: Project, old: str, new: str, settings: ClusterSettings = CLUSTER) -> dict[str, Any]:
    return compare(compiled(built(project, SHOP)).yaml, compiled(built(project, SHOP.replace(old, new)), settings).yaml)


def test_nothing(project: Project) -> None:
    assert changes(project, "x", "x") == {"pipeline": {}, "nodes": {}, "added": [], "removed": []}


@pytest.mark.parametrize(
    ("old", "new", "node", "what", "values"),
    [
        ("count=count", "count=4", "Make", "parameter count", [{"$param": "count"}, 4]),
        (
            "Double(made)",
            "Double.options(after=[Make.options(id='B')()])(made)",
            "Double",
            "waits for",
            [["Make"], ["B", "Make"]],
        ),
        ("Count(doubled)", "Count(made)", "Count", "waits for", [["Double", "Make"], ["Make"]]),
        ("Double(made)", "Double.options(cache=False)(made)", "Double", "cache", [True, False]),
        (
            "Double(made)",
            "Double.options(cpus=2)(made)",
            "Double",
            "resources",
            [None, {"resourceCpuRequest": "2000m", "resourceCpuLimit": "2000m"}],
        ),
        (
            "Double(made)",
            "Double.options(retries=1)(made)",
            "Double",
            "retries",
            [None, {"maxRetryCount": 1, "backoffDuration": "1s", "backoffFactor": 2.0}],
        ),
        ("Double(made)", "Double.options(timeout=60)(made)", "Double", "platform activeDeadlineSeconds", [None, "660"]),
    ],
)
def test_of_a_node(project: Project, old: str, new: str, node: str, what: str, values: list[object]) -> None:
    assert changes(project, old, new)["nodes"][node][what] == values


def test_a_condition_and_its_node(project: Project) -> None:
    differences = changes(project, "> 2", "> 5")
    assert differences["nodes"].keys() == {"Count"}
    before, after = differences["nodes"]["Count"]["condition"]
    assert before == after.replace("5.0", "2.0")
    assert differences["nodes"]["Count"]["when"] == ["Make.total > 2", "Make.total > 5"]


LOOP = """
    @dt.pipeline
    def shop(count: int = 3) -> None:
        made = Make(count=count)

        def each(item: int):
            one = Double.options(id="One")(made)
            two = Double.options(id="Two")(one)
            return one

        Sum(dt.map_(each, over=[1, 2]))
        Add.options(id="Late")(made, dt.latest(Numbers))
        with dt.when(Count(made) != Total(values=[1])):
            Double.options(id="Held")(made)
"""


@pytest.mark.parametrize(
    ("old", "new", "node", "what", "values"),
    [
        ("return one", "return two", "Sum", "input numbers", [["One.numbers"], ["Two.numbers"]]),
        ("[1, 2]", "[1, 3]", "One", "over map", [[1, 2], [1, 3]]),
        ("Count(made) != Total", "Count(made) == Total", "Held", "when", ["Count != Total", "Count == Total"]),
        ("Sum(", "Sum.options(env={'A': 'b'})(", "Sum", "node's env A", [None, "b"]),
        ("Sum(", "Sum.options(replicas=2)(", "Sum", "option replicas", [None, 2]),
        ("Sum(", "Sum.options(retries=1, retry_on=OSError)(", "Sum", "option retry_on", [None, ["OSError"]]),
        (
            "latest(Numbers)", "latest(Numbers, node='Make')", "Late", "input right",
            [[{"query": "latest", "type": "Numbers"}], [{"query": "latest", "type": "Numbers", "made_by": "Make"}]],
        ),
    ],
)  # fmt: skip
def test_what_the_spec_does_not_say(
    project: Project, old: str, new: str, node: str, what: str, values: list[object]
) -> None:
    """What differs here is between our launcher and our store; to KFP it is the same DAG of the same containers."""
    one, other = (compiled(built(project, text)).yaml for text in (LOOP, LOOP.replace(old, new)))
    assert compare(one, other)["nodes"][node][what] == values


def test_code(project: Project) -> None:
    old = compiled(built(project, SHOP)).yaml
    folder = built(project, SHOP).project
    (folder / "parts.py").write_text((folder / "parts.py").read_text().replace("2 * part", "part * 2"))
    from drivetrain.pipelines import load_pipeline

    found = compare(old, compiled(load_pipeline(folder)).yaml)
    assert {"Make", "Double", "Count"} == found["nodes"].keys()  # all of the module
    assert all(each.keys() == {"code"} for each in found["nodes"].values())
    assert found["pipeline"].keys() == {"version"}


def test_nodes_and_parameters_that_come_and_go(project: Project) -> None:
    differences = changes(project, "count: int = 3", "count: int = 4, more: str = 'x'")
    assert differences["pipeline"]["parameter count"][1]["defaultValue"] == 4
    assert differences["pipeline"]["parameter more"][0] is None
    differences = changes(project, "doubled = Double(made)", "doubled = Double.options(id='Twice')(made)")
    assert (differences["added"], differences["removed"]) == (["Twice"], ["Double"])


def test_the_platform(project: Project) -> None:
    settings = replace(CLUSTER, nodes={"Double": PodSettings(node_selector=(("pool", "gpu"),))})
    double = changes(project, "x", "x", settings)["nodes"]["Double"]
    assert double["platform nodeSelector"] == [None, {"labels": {"pool": "gpu"}}]
    differences = changes(project, "x", "x", replace(CLUSTER, image="other:2", ttl=60))
    assert differences["nodes"]["Make"] == {"image": ["registry.example/shop:1", "other:2"]}
    assert differences["pipeline"]["platform resourceTtlOnCompletion"] == [None, 60]


def test_what_is_no_compiled_pipeline(project: Project) -> None:
    good = compiled(built(project, SHOP)).yaml
    spec = yaml.safe_load(good.partition("\n---")[0])
    (label, *_) = spec["deploymentSpec"]["executors"]
    containers = {}
    for name, variables in (("text", "x"), ("number", 3), ("nameless", [{"value": "x"}])):
        containers[name] = {"container": {"env": variables}}
    executors = [{"executors": {**spec["deploymentSpec"]["executors"], label: each}} for each in containers.values()]
    shapes = [spec | {"components": []}, *(spec | {"deploymentSpec": each} for each in executors)]
    for bad in ("", "a: 1\n", "- 1\n", "a: [", *map(yaml.safe_dump, shapes)):
        with pytest.raises(InputError, match="new is not a compiled pipeline"):
            compare(good, bad)


def test_the_verb_takes_files_and_projects(project: Project, tmp_path: Path) -> None:
    folder = built(project, SHOP).project
    (folder / "kubeflow.yaml").write_text("image: i:1\nartifacts: s3://b\nstore: {secret: s, key: k}\n")
    file = tmp_path / "old.yaml"
    made = CliRunner().invoke(cli, ["kubeflow", "compile", str(folder), "-o", str(file)])
    assert made.exit_code == 0
    assert "3 nodes" in made.output
    printed = CliRunner().invoke(cli, ["kubeflow", "compile", str(folder)])
    assert printed.output == file.read_text()
    answer = json.loads(CliRunner().invoke(cli, ["kubeflow", "compile", str(folder), "--json"]).output)
    assert [answer["spec"], answer["platform"]] == list(yaml.safe_load_all(printed.output))
    assert answer["nodes"] == {"count": "Count", "double": "Double", "make": "Make"}
    nowhere = CliRunner().invoke(cli, ["kubeflow", "compile", str(folder), "-o", str(tmp_path / "no" / "x.yaml")])
    assert (nowhere.exit_code, "cannot be written" in nowhere.output) == (2, True)
    result = CliRunner().invoke(cli, ["kubeflow", "diff", str(file), str(folder)])
    assert result.output == "nothing changed\n"
    (folder / "kubeflow.yaml").write_text("image: i:2\nartifacts: s3://b\nstore: {secret: s, key: k}\n")
    result = CliRunner().invoke(cli, ["kubeflow", "diff", str(file), str(folder)])
    assert "Make: image: i:1 → i:2" in result.output
    result = CliRunner().invoke(cli, ["kubeflow", "diff", str(file), str(folder), "--json"])
    assert json.loads(result.output)["nodes"]["Make"]["image"] == ["i:1", "i:2"]


def test_what_changed_is_said_without_what_stands_around_it(project: Project, tmp_path: Path) -> None:
    folder = built(project, SHOP).project
    (folder / "kubeflow.yaml").write_text("image: i:1\nartifacts: s3://b\nstore: {secret: s, key: k}\n")
    file = tmp_path / "old.yaml"
    assert CliRunner().invoke(cli, ["kubeflow", "compile", str(folder), "-o", str(file)]).exit_code == 0
    source = (folder / "pipeline.py").read_text()
    (folder / "pipeline.py").write_text(source.replace("count: int = 3", "count: int = 77"))
    said = CliRunner().invoke(cli, ["kubeflow", "diff", str(file), str(folder)]).output
    assert "pipeline: parameter count: 3 → 77\n" in said
    assert "parameterType" not in said
    assert re.search(r"pipeline: version: [0-9a-f]{12} → [0-9a-f]{12}\n", said)
