"""Pipelines in KFP's form: what its loader and its protobufs make of them, and what is refused, at the user's line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from drivetrain.errors import InputError
from drivetrain.pipelines import load_pipeline
from drivetrain.pipelines.kubeflow.compiler import CompiledPipeline, compile_pipeline
from drivetrain.pipelines.kubeflow.lint import lint
from drivetrain.pipelines.kubeflow.protobufs import pipeline_spec
from drivetrain.pipelines.kubeflow.refusals import parameter_type
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference, PodSettings
from drivetrain.tests.pipelines.kubeflow.cluster import (
    CASES,
    CLUSTER,
    REFUSED,
    built,
    compiled,
    conformance,
    original,
)

pytestmark = pytest.mark.kubeflow

HOUSE = Path(__file__).parents[3]
GOLDEN = HOUSE / "tests" / "fixtures" / "kubeflow"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, seven times as fast
Project = Callable[..., Path]


def dags(found: CompiledPipeline) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, tasks) of each DAG."""
    yield "root", found.spec["root"]["dag"]["tasks"]
    for name, component in found.spec["components"].items():
        if "dag" in component:
            yield name.removeprefix("comp-"), component["dag"]["tasks"]


def task(found: CompiledPipeline, name: str) -> dict[str, Any]:
    (one,) = (tasks[name] for _, tasks in dags(found) if name in tasks)
    return dict(one)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_pipeline_of_the_suite_compiles_or_is_refused(name: str) -> None:
    from google.protobuf import json_format

    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]) as caught:
            conformance(name)
        assert f"{name.partition('/')[2].partition(':')[0]}.py:" in (caught.value.where or "")
        return
    documents = conformance(name)
    assert lint(documents.yaml) == []
    spec = json_format.ParseDict(documents.spec, pipeline_spec().PipelineSpec())
    assert json_format.MessageToDict(spec) == documents.spec  # nothing is said that is a default, or another way
    assert list(yaml.load_all(documents.yaml, LOADER)) == [documents.spec, documents.platform]
    pipeline = original(name)
    assert sorted(documents.nodes.values()) == sorted(pipeline.ids)


@pytest.mark.slow  # it imports KFP's SDK
@pytest.mark.parametrize("name", sorted(CASES.keys() - REFUSED.keys()))
def test_kfps_own_loader_takes_it(name: str, tmp_path: Path) -> None:
    from google.protobuf import json_format
    from kfp.components import load_component_from_file

    documents = conformance(name)
    (tmp_path / "pipeline.yaml").write_text(documents.yaml, encoding="utf-8")
    loaded = load_component_from_file(str(tmp_path / "pipeline.yaml"))
    assert json_format.MessageToDict(loaded.pipeline_spec) == documents.spec
    assert json_format.MessageToDict(loaded.platform_spec) == documents.platform


@pytest.mark.parametrize("name", sorted(CASES.keys() - REFUSED.keys()))
def test_everything_waits_for_what_the_pipeline_says(name: str) -> None:
    found, pipeline = conformance(name), original(name)
    inside: dict[str, set[str]] = {}  # task -> the nodes that it is or holds
    components = found.spec["components"]

    def nodes(name: str, body: dict[str, Any]) -> set[str]:
        inner = components[body["componentRef"]["name"]].get("dag", {}).get("tasks", {})
        inside.setdefault(name, set())
        inside[name] |= {found.nodes[name]} if name in found.nodes else set()
        for task_name, task_body in inner.items():
            inside[name] |= nodes(task_name, task_body)
        return inside[name]

    for name_, body in found.spec["root"]["dag"]["tasks"].items():
        nodes(name_, body)
    for _, tasks in dags(found):
        after = {name_: set(body.get("dependentTasks", [])) for name_, body in tasks.items()}
        for one, its in ((name_, node) for name_ in tasks for node in inside[name_]):
            for other in tasks:
                if other != one and inside[other] & set(pipeline.upstream(its)):
                    assert other in after[one], (one, other)


def test_what_a_task_is_given(project: Project) -> None:
    documents = compiled(
        built(
            project,
            """
            @dt.pipeline
            def shop(count: int, rate: float = 0.5, names: list[str] = ["a"], span: int | None = None) -> None:
                made = Make(count=count)
                Double.options(retries=3, backoff=1.5, cpus=0.5, memory="2GiB", accelerators=1, timeout=60)(made)
            """,
        )
    )
    parameters = {
        "count": {"parameterType": "NUMBER_INTEGER"},
        "rate": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.5, "isOptional": True},
        "names": {"parameterType": "LIST", "defaultValue": ["a"], "isOptional": True},
        "span": {"parameterType": "STRING", "defaultValue": "null", "isOptional": True},
        "drivetrain_run": {"parameterType": "STRING", "defaultValue": "", "isOptional": True},
    }
    assert documents.spec["root"]["inputDefinitions"] == {"parameters": parameters}
    double = task(documents, "double")
    assert double["dependentTasks"] == ["make"]
    assert double["inputs"] == {
        "parameters": {name: {"componentInputParameter": name} for name in parameters},
        "artifacts": {"numbers": {"taskOutputArtifact": {"producerTask": "make", "outputArtifactKey": "numbers"}}},
    }
    assert double["retryPolicy"] == {"maxRetryCount": 3, "backoffDuration": "2s", "backoffFactor": 2.0}
    assert double["cachingOptions"] == {}
    container = documents.spec["deploymentSpec"]["executors"]["exec-double"]["container"]
    assert container["image"] == "registry.example/shop:1"
    assert container["command"] == ["python", "-m", "drivetrain.pipelines.kubeflow.pod"]
    assert container["args"] == [
        "--project", "/app/shop", "--ir", documents.digest, "--node", "Double", "--executor-input", "{{$}}",
    ]  # fmt: skip
    assert container["resources"] == {
        "resourceCpuRequest": "500m", "resourceCpuLimit": "500m",
        "resourceMemoryRequest": str(2**31), "resourceMemoryLimit": str(2**31),
        "accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"},
    }  # fmt: skip
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert env["DRIVETRAIN_ARTIFACTS"] == "s3://bucket/shop"
    assert env["DRIVETRAIN_ROOT"] == "/drivetrain/.drivetrain"


def test_a_loops_items_come_as_indices() -> None:
    documents = conformance("control/loops:in_each_other")
    outer, inner = task(documents, "for-map"), task(documents, "for-inner")
    assert outer["parameterIterator"] == {"itemInput": "loop--map", "items": {"raw": "[0, 1, 2]"}}
    name = "pipelinechannel--open-inner--items"
    assert inner["parameterIterator"] == {"itemInput": "loop--inner", "items": {"inputParameter": name}}
    assert inner["inputs"]["parameters"]["loop--map"] == {"componentInputParameter": "loop--map"}
    note = task(documents, "note")["inputs"]["parameters"]
    assert {"loop--map", "loop--inner"} <= note.keys()
    opening = documents.spec["deploymentSpec"]["executors"]["exec-open-inner"]["container"]["args"]
    assert opening[4:6] == ["--open", "inner"]
    few = task(conformance("control/loops:few_at_once"), "for-map")
    assert few["iteratorPolicy"] == {"parallelismLimit": 2}


def test_a_condition_within_a_loop_reads_what_is_around_it(project: Project) -> None:
    documents = compiled(
        built(
            project,
            """
            @dt.pipeline
            def shop() -> None:
                made = Make()

                def one(n: int) -> None:
                    inner = Make.options(id="Inner")(count=n)
                    with dt.when((made.total > 2) & (inner.total == 1)):
                        Double(inner)

                dt.map_(one, over=[1, 2])
            """,
        )
    )
    outer, inner = "pipelinechannel--make--numbers--total", "pipelinechannel--inner--numbers--total"
    double = task(documents, "double")
    assert double["inputs"]["parameters"][outer] == {"componentInputParameter": outer}
    assert double["inputs"]["parameters"][inner]["taskOutputParameter"]["producerTask"] == "inner"
    loop = task(documents, "for-map")
    assert loop["inputs"]["parameters"][outer]["taskOutputParameter"] == {
        "producerTask": "make", "outputParameterKey": "numbers--total",
    }  # fmt: skip
    assert documents.spec["components"]["comp-make"]["outputDefinitions"]["parameters"] == {
        "numbers--total": {"parameterType": "LIST"}
    }
    assert lint(documents.yaml) == []


def test_there_is_one_exit_task_and_what_closes_the_run_comes_last() -> None:
    plain = conformance("control/orders:linear").spec["root"]["dag"]["tasks"]
    assert plain.keys() == {"work", "drivetrain-close"}
    documents = conformance("control/others:on_exit")
    root = documents.spec["root"]["dag"]["tasks"]
    assert root.keys() == {"work", "leave"}
    assert root["leave"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert root["leave"]["dependentTasks"] == ["work"]
    assert root["leave"]["inputs"]["parameters"]["status"] == {"taskFinalStatus": {"producerTask": "work"}}
    inner = documents.spec["components"]["comp-leave"]["dag"]["tasks"]
    assert inner.keys() == {"exits", "drivetrain-close"}
    assert inner["drivetrain-close"]["dependentTasks"] == ["exits"]
    assert inner["drivetrain-close"]["inputs"]["parameters"]["status"] == {"componentInputParameter": "status"}
    exits = documents.spec["components"]["comp-exits"]["dag"]["tasks"]
    assert exits.keys() == {"note", "skipped", "alarm"}
    assert not any("triggerPolicy" in body for body in exits.values())


def test_the_digest_can_be_that_of_the_whole_pipeline() -> None:
    compiled = compile_pipeline(original("control/orders:linear"), CLUSTER, digest="abc")
    assert compiled.digest == "abc"
    assert "abc" in compiled.spec["deploymentSpec"]["executors"]["exec-make"]["container"]["args"]


def test_a_parameter_that_is_called_container_makes_no_container(project: Project) -> None:
    function = built(
        project,
        """
        @dt.component
        def Deploy(*, container: dict[str, int]) -> int:
            return container["images"]

        @dt.pipeline
        def shop() -> None:
            Deploy(container={"images": 3})
        """,
    )
    assert "exec-deploy" in compiled(function).spec["deploymentSpec"]["executors"]


@pytest.mark.parametrize(
    ("source", "says", "fix"),
    [
        ("Make.options(jitter=0.5)()", "Make has a jitter of its own", "leave jitter= out"),
        ("Make.options(priority=2)()", "Make has a priority", "leave priority= out"),
        ("Make.options(retries=2, backoff_factor=1.5)()", "the back-off factor 1.5", "backoff_factor=2"),
        ("Make.options(retries=9, backoff_max=60)()", "before its last retry", "backoff_max=256"),
        ("Login(token=dt.secret('OTHER'))", "Login needs the secret OTHER", "secrets: {OTHER:"),
        ("Make.options(env={'A': dt.secret('OTHER')})()", "Make needs the secret OTHER", "/run/secrets"),
        ("Box()", "Box is a container component", "dt.shell_component"),
    ],
)
def test_what_kubeflow_cannot_keep_of_a_node(project: Project, source: str, says: str, fix: str) -> None:
    function = built(
        project,
        f"""
        Box = dt.container_component("Box", "busybox@sha256:{"a" * 64}", ["true"])

        @dt.pipeline
        def shop() -> None:
            {source}
        """,
    )
    with pytest.raises(InputError) as caught:
        compiled(function)
    assert says in caught.value.message
    assert fix in (caught.value.fix or "")
    assert (caught.value.where or "").endswith("pipeline.py:9")


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        ("what: object = 3", "KFP has no type"),
        ("either: int | str = 3", "KFP has no type"),
        ("status: str = 'x'", "has the name of one that drivetrain gives"),
    ],
)
def test_what_kubeflow_cannot_keep_of_a_parameter(project: Project, parameter: str, says: str) -> None:
    function = built(project, f"@dt.pipeline\ndef shop({parameter}) -> None:\n    Make()\n")
    with pytest.raises(InputError, match=says) as caught:
        compiled(function)
    assert (caught.value.where or "").endswith("pipeline.py:4")


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        ("int", ("NUMBER_INTEGER", False)),
        ("float | None", ("NUMBER_DOUBLE", True)),
        ("Optional[str]", ("STRING", True)),
        ("list[int | str]", ("LIST", False)),
        ("list[int] | None", ("LIST", True)),
        ("dict[str, int]", ("STRUCT", False)),
        ("Sequence[str]", ("LIST", False)),
        ("int | str", ("", False)),
        ("Any", ("", False)),
    ],
)
def test_types_of_parameters(hint: str, kind: tuple[str, bool]) -> None:
    assert parameter_type(hint) == kind


def test_defaults_of_every_type(project: Project) -> None:
    source = """
        @dt.pipeline
        def shop(
            sizes: dict[str, list[int]] = {"a": [1], "$b": []}, deep: list[Any] = [{"x": None}], text: str | None = "t"
        ) -> None:
            Make()
    """
    documents = compiled(built(project, "from typing import Any\n" + textwrap.dedent(source)))
    defined = documents.spec["root"]["inputDefinitions"]["parameters"]
    assert defined["deep"]["defaultValue"] == [{"x": None}]
    assert defined["text"] == {"parameterType": "STRING", "defaultValue": "t", "isOptional": True}
    assert defined["sizes"]["defaultValue"] == {"a": [1], "$b": []}
    assert lint(documents.yaml) == []


def test_a_long_name_is_cut_to_what_a_label_takes(project: Project) -> None:
    name = "p" * 80
    documents = compiled(built(project, f"@dt.pipeline\ndef {name}() -> None:\n    Make()\n"))
    assert documents.spec["pipelineInfo"] == {"name": "p" * 57, "displayName": name}
    assert lint(documents.yaml) == []


def test_settings_of_a_node_that_is_not_there(project: Project, tmp_path: Path) -> None:
    function = built(project, "@dt.pipeline\ndef shop() -> None:\n    Make()\n")
    (tmp_path / "kubeflow.yaml").write_text(
        "image: i\nartifacts: s3://b\nstore: {secret: s, key: k}\nnodes:\n  Mkae: {shm: 1Gi}\n"
    )
    with pytest.raises(InputError, match="no node 'Mkae'") as caught:
        compiled(function, ClusterSettings.load(tmp_path))
    assert caught.value.where == f"{tmp_path / 'kubeflow.yaml'}:5"
    assert "Make" in (caught.value.fix or "")


def test_the_variable_of_a_querys_connection_must_be_in_the_pod(project: Project) -> None:
    function = built(
        project,
        """
        from drivetrain.pipelines import Files, SqlQuery

        @dt.component
        def Rows(*, data: Files | SqlQuery) -> int:
            return 1

        @dt.pipeline
        def shop() -> None:
            Rows(data=dt.query("SELECT 1", connection="env:SHOP_DB"))
        """,
    )
    with pytest.raises(InputError, match="URL is in the variable SHOP_DB, which") as caught:
        compiled(function, replace(CLUSTER, defaults=PodSettings(secret_volumes=(("/run/secrets", "all"),))))
    assert "secrets: {SHOP_DB: {secret: NAME, key: KEY}}" in str(caught.value.fix)
    compiled(function, replace(CLUSTER, defaults=PodSettings(secrets=(("SHOP_DB", KeyReference("shop", "db")),))))


def test_secrets_may_come_as_files(project: Project) -> None:
    function = built(project, "@dt.pipeline\ndef shop() -> None:\n    Login(token=dt.secret('OTHER'))\n")
    compiled(function, replace(CLUSTER, defaults=PodSettings(secret_volumes=(("/run/secrets", "all"),))))


@pytest.mark.slow
def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    seen = set()
    for seed in ("0", "1", "77"):
        command = [sys.executable, "-m", "drivetrain", "kubeflow", "compile", str(HOUSE / "examples" / "flights")]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        seen.add(subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True, timeout=120).stdout)
    assert len(seen) == 1
    assert lint(seen.pop().decode()) == []


def _golden(found: CompiledPipeline) -> str:
    """Without what changes with every release and every line of code."""
    text = found.yaml.replace(found.digest, "DIGEST").replace(found.spec["sdkVersion"], "drivetrain-VERSION")
    documents = list(yaml.load_all(text, LOADER))
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        for variable in executor["container"]["env"]:
            if variable["name"] == "DRIVETRAIN_NODE":
                variable["value"] = json.loads(variable["value"])["component"]
    return str(yaml.safe_dump_all(documents, sort_keys=True, width=120))


@pytest.mark.parametrize("name", ["flights", "on_exit", "few_at_once_in_each_other"])
def test_the_form_changes_on_purpose_only(name: str) -> None:
    # After a change that is meant: DRIVETRAIN_GOLDEN=1 writes them anew; look at the difference.
    if name == "flights":
        folder = HOUSE / "examples" / "flights"
        documents = compiled(load_pipeline(folder), ClusterSettings.load(folder))
    else:
        (path,) = (case for case in CASES if case.endswith(f":{name}"))
        documents = conformance(path)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("DRIVETRAIN_GOLDEN"):
        file.write_text(_golden(documents), encoding="utf-8")
    assert _golden(documents) == file.read_text("utf-8")
