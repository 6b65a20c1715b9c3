"""The simulator's order of tasks against what KFP's driver and Argo do, over documents written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("cel")

from drivetrain.errors import InputError
from drivetrain.pipelines.kubeflow.simulate import read
from drivetrain.pipelines.kubeflow.simulate.dag import DagWalk
from drivetrain.pipelines.kubeflow.simulate.driver import DriverError, TaskEnd, TaskValues, holds, inputs

pytestmark = pytest.mark.kubeflow
Body = dict[str, Any]


def _pod(inputs: Body | None = None, outputs: Body | None = None, artifacts: Body | None = None) -> Body:
    """A component that is a container."""
    return {
        "executorLabel": "exec",
        "inputDefinitions": {"parameters": inputs or {}, "artifacts": (artifacts or {}).get("in", {})},
        "outputDefinitions": {"parameters": outputs or {}, "artifacts": (artifacts or {}).get("out", {})},
    }


def _document(tasks: Body, components: Body | None = None, parameters: Body | None = None) -> Any:
    spec = {
        "schemaVersion": "2.1.0",
        "pipelineInfo": {"name": "by-hand"},
        "components": {"pod": _pod(), **(components or {})},
        "deploymentSpec": {"executors": {"exec": {"container": {"image": "x:1", "command": ["true"]}}}},
        "root": {"dag": {"tasks": tasks}, "inputDefinitions": {"parameters": parameters or {}}},
    }
    return read((spec, {}))


def _task(*after: str, component: str = "pod", condition: str = "", **more: Any) -> Body:
    body: Body = {"componentRef": {"name": component}, "dependentTasks": list(after), **more}
    if condition:
        body["triggerPolicy"] = {"condition": condition}
    return body


def _exit(*after: str, **more: Any) -> Body:
    return _task(*after, triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}, **more)


@dataclass
class Fake:
    """Pods that end as they are told, and what happened."""

    ends: Mapping[str, TaskEnd] = field(default_factory=dict)
    began: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    given: dict[str, TaskValues] = field(default_factory=dict)
    most: int = 0

    async def run(self, where: str, task: Any, component: Any, values: TaskValues) -> TaskEnd:
        self.began.append(where)
        self.given[where] = values
        self.most = max(self.most, len(self.began) - len(self.ended))
        for _ in range(100):  # turns of the loop, not seconds: of two that began together neither ends much later
            await asyncio.sleep(0)
        self.ended.append(where)
        return self.ends.get(where, TaskEnd("SUCCEEDED"))


def _walk(document: Any, pods: Fake, *, fail_fast: bool = False, **parameters: Any) -> tuple[str, dict[str, str]]:
    decided: dict[str, str] = {}

    def tell(where: str, state: str, why: str) -> None:
        decided[where] = state

    walk = DagWalk(document, pods, "the-run", fail_fast, tell, lambda: False)
    return asyncio.run(walk.root(parameters)), decided


def test_only_what_it_depends_on_holds_a_task_up() -> None:
    pods = Fake()
    state, _ = _walk(
        _document({"a": _task(), "b": _task("a"), "c": _task("a"), "d": _task("b", "c"), "e": _task()}), pods
    )
    assert state == "SUCCEEDED"
    assert pods.began[:2] == ["a", "e"]
    for before, after in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")):
        assert pods.ended.index(before) < pods.began.index(after)
    assert pods.most == 2


def test_what_depends_on_a_skipped_task_is_omitted_and_that_is_no_failure() -> None:
    pods = Fake()
    tasks = {"a": _task(condition="1.0 > 2.0"), "b": _task("a"), "c": _task("b"), "d": _task()}
    state, decided = _walk(_document(tasks), pods)
    assert (state, decided) == ("SUCCEEDED", {"a": "SKIPPED", "b": "OMITTED", "c": "OMITTED"})
    assert pods.began == ["d"]


@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_failure_stops_what_depends_on_it_and_with_argo_all_that_has_not_begun(fail_fast: bool) -> None:
    pods = Fake({"a": TaskEnd("FAILED")})
    tasks = {"a": _task(), "b": _task("a"), "c": _task(), "d": _task("c")}
    state, decided = _walk(_document(tasks), pods, fail_fast=fail_fast)
    assert state == "FAILED"
    assert decided == {"b": "OMITTED"} | ({"d": "OMITTED"} if fail_fast else {})
    assert sorted(pods.began) == (["a", "c"] if fail_fast else ["a", "c", "d"])


@pytest.mark.parametrize("end", [TaskEnd("SUCCEEDED"), TaskEnd("FAILED")])
def test_an_exit_task_runs_however_the_other_ended_and_is_told(end: TaskEnd) -> None:
    final_status = {"parameters": {"status": {"taskFinalStatus": {"producerTask": "work"}}}}
    components = {
        "work": {"dag": {"tasks": {"inside": _task()}}},
        "close": _pod({"status": {"parameterType": "TASK_FINAL_STATUS", "isOptional": True}}),
    }
    pods = Fake({"work/inside": end})
    tasks = {"work": _task(component="work"), "close": _exit("work", component="close") | {"inputs": final_status}}
    tasks["close"]["componentRef"] = {"name": "close"}
    assert _walk(_document(tasks, components), pods)[0] == end.state
    assert pods.began == ["work/inside", "close"]
    status = pods.given["close"].parameters["status"]
    assert (status["state"], status["pipelineTaskName"]) == (end.state, "work")


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ({"a": _task(), "x": _exit("a"), "y": _exit("a")}, "x and y are exit tasks of a"),
        ({"a": _task(), "b": _task(), "x": _exit("a", "b")}, "the exit task x depends on a, b"),
        ({"a": _task(), "x": _exit("a"), "y": _exit("x")}, "the exit task y depends on x"),
    ],
)
def test_exit_tasks_that_kfp_would_not_run_are_refused(tasks: Body, says: str) -> None:
    with pytest.raises(InputError, match=says):
        _document(tasks)


def _loop(over: Body, limit: int = 0, *after: str, **inputs: Any) -> Body:
    policy: Body = {"iteratorPolicy": {"parallelismLimit": limit}} if limit else {}
    return _task(
        *after, component="each", parameterIterator={"itemInput": "item", "items": over}, **policy, **inputs
    )  # fmt: skip


ITEM = {"item": {"componentInputParameter": "item"}}
EACH = {
    "each": {
        "dag": {"tasks": {"a": _task(component="one", inputs={"parameters": ITEM})},
                "outputs": {"parameters": {"made": {"valueFromParameter": {"producerSubtask": "a",
                                                                           "outputParameterKey": "made"}}}}},
        "inputDefinitions": {"parameters": {"item": {"parameterType": "NUMBER_INTEGER"}}},
        "outputDefinitions": {"parameters": {"made": {"parameterType": "LIST"}}},
    },
    "one": _pod({"item": {"parameterType": "NUMBER_INTEGER"}}, {"made": {"parameterType": "NUMBER_INTEGER"}}),
    "gather": _pod({"all": {"parameterType": "LIST"}}),
}  # fmt: skip


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_loop_goes_over_its_items_as_many_at_once_as_it_may_and_gathers_in_order(limit: int) -> None:
    pods = Fake({f"loop[{n}]/a": TaskEnd("SUCCEEDED", TaskValues({"made": 10 * n})) for n in range(7)})
    made = {"taskOutputParameter": {"producerTask": "loop", "outputParameterKey": "made"}}
    gather = _task("loop", component="gather", inputs={"parameters": {"all": made}})
    tasks = {
        "loop": _loop({"raw": "[0,1,2,3,4,5,6]"}, limit),
        "gather": gather,
    }
    assert _walk(_document(tasks, EACH), pods)[0] == "SUCCEEDED"
    assert pods.most == (limit or 7)
    assert [pods.given[f"loop[{n}]/a"].parameters["item"] for n in range(7)] == list(range(7))
    assert pods.given["gather"].parameters["all"] == [10 * n for n in range(7)]


def test_a_loop_of_nothing_succeeds_so_that_what_follows_starts() -> None:
    pods = Fake()
    assert _walk(_document({"loop": _loop({"raw": "[]"}), "after": _task("loop")}, EACH), pods)[0] == "SUCCEEDED"
    assert pods.began == ["after"]


def test_a_loop_over_no_list_fails() -> None:
    given = {"inputs": {"parameters": {"over": {"componentInputParameter": "over"}}}}
    each = EACH | {"each": EACH["each"] | {"inputDefinitions": {"parameters": {
        "item": {"parameterType": "NUMBER_INTEGER"}, "over": {"parameterType": "STRING"}}}}}  # fmt: skip
    loop = _loop({"inputParameter": "over"}, 0, **given)
    document = _document({"loop": loop}, each, {"over": {"parameterType": "STRING"}})
    state, decided = _walk(document, Fake(), over="text")
    assert (state, decided) == ("FAILED", {"loop": "FAILED"})


def test_a_failed_item_fails_the_loop_and_leaves_the_others() -> None:
    pods = Fake(
        {
            "loop[1]/a": TaskEnd("FAILED"),
            **{f"loop[{n}]/a": TaskEnd("SUCCEEDED", TaskValues({"made": n})) for n in (0, 2)},
        }
    )
    state, decided = _walk(_document({"loop": _loop({"raw": "[0,1,2]"}), "after": _task("loop")}, EACH), pods)
    assert (state, decided) == ("FAILED", {"after": "OMITTED"})
    assert len(pods.began) == 3


def _from(producer: str, key: str) -> Body:
    return {"parameters": {"k": {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}}}


NUMBER = {"k": {"parameterType": "NUMBER_DOUBLE"}}
PRODUCERS = {"makes": _pod(outputs=NUMBER), "takes": _pod(NUMBER)}


def test_a_condition_reads_an_output_as_a_double() -> None:
    tasks = {
        "a": _task(component="makes"),
        "b": _task("a", component="takes", condition="inputs.parameter_values['k'] > 2.5", inputs=_from("a", "k")),
    }
    for value, began in ((3, ["a", "b"]), (2, ["a"])):
        pods = Fake({"a": TaskEnd("SUCCEEDED", TaskValues({"k": value}))})
        assert _walk(_document(tasks, PRODUCERS), pods)[0] == "SUCCEEDED"
        assert pods.began == began


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tasks: tasks["b"]["inputs"]["parameters"]["k"]["taskOutputParameter"].update(outputParameterKey="other"),
        lambda tasks: tasks["b"].update(inputs={}),
        lambda tasks: tasks["b"].update(triggerPolicy={"condition": "inputs.parameter_values['no'] > 1.0"}),
        lambda tasks: tasks["b"].update(triggerPolicy={"condition": "inputs.parameter_values['k']"}),
        lambda tasks: tasks["b"].update(triggerPolicy={"condition": "inputs.parameter_values['k'] >"}),
    ],
    ids=["a missing output", "a missing input", "a condition over nothing", "one without truth", "one without sense"],
)
def test_what_the_driver_fails_at_fails_here(spoil: Callable[[Body], None]) -> None:
    tasks = {"a": _task(component="makes"), "b": _task("a", component="takes", inputs=_from("a", "k")), "c": _task("b")}
    spoil(tasks)
    state, decided = _walk(_document(tasks, PRODUCERS), Fake({"a": TaskEnd("SUCCEEDED", TaskValues({"k": 1.0}))}))
    assert (state, decided) == ("FAILED", {"b": "FAILED", "c": "OMITTED"})


def test_an_optional_parameter_may_be_missing_and_a_default_stands_in() -> None:
    taken = {
        "may": {"parameterType": "STRING", "isOptional": True},
        "set": {"parameterType": "STRING", "defaultValue": "x"},
    }
    inputs = {"parameters": {"may": {"componentInputParameter": "may"}}}
    pods = Fake()
    root = {"may": {"parameterType": "STRING", "isOptional": True}}
    document = _document({"a": _task(component="takes", inputs=inputs)}, {"takes": _pod(taken)}, root)
    assert _walk(document, pods)[0] == "SUCCEEDED"
    assert pods.given["a"].parameters == {"set": "x"}
    assert _walk(document, pods, may="y")[0] == "SUCCEEDED"
    assert pods.given["a"].parameters == {"may": "y", "set": "x"}


def test_a_run_without_a_parameter_that_is_needed_or_with_an_unknown_one_does_not_start() -> None:
    document = _document({"a": _task()}, parameters={"count": {"parameterType": "NUMBER_INTEGER"}})
    with pytest.raises(DriverError, match="the parameter count has no value"):
        _walk(document, Fake())
    with pytest.raises(DriverError, match="no parameter other"):
        _walk(document, Fake(), count=1, other=2)


@pytest.mark.parametrize("takes", ["drivetrain.Numbers", "drivetrain.Model"])
def test_a_manifest_of_another_type_is_not_taken(takes: str) -> None:
    def kind(name: str) -> Body:
        return {"one": {"artifactType": {"schemaTitle": name, "schemaVersion": "0.0.1"}}}

    components = {
        "makes": _pod(artifacts={"out": kind("drivetrain.Numbers")}),
        "takes": _pod(artifacts={"in": kind(takes)}),
    }
    source = {"artifacts": {"one": {"taskOutputArtifact": {"producerTask": "a", "outputArtifactKey": "one"}}}}
    tasks = {"a": _task(component="makes"), "b": _task("a", component="takes", inputs=source)}
    manifest = {"name": "one", "uri": "/x", "type": {"schemaTitle": "drivetrain.Numbers"}}
    pods = Fake({"a": TaskEnd("SUCCEEDED", TaskValues(artifacts={"one": [manifest]}))})
    state, _ = _walk(_document(tasks, components), pods)
    assert state == ("SUCCEEDED" if takes == "drivetrain.Numbers" else "FAILED")


def test_the_run_id_is_put_in_where_it_is_the_whole_value_only() -> None:
    constants = {"whole": "{{$.pipeline_job_uuid}}", "part": "run {{$.pipeline_job_uuid}}"}
    inputs = {"parameters": {key: {"runtimeValue": {"constant": value}} for key, value in constants.items()}}
    pods = Fake()
    takes = _pod({key: {"parameterType": "STRING"} for key in constants})
    assert _walk(_document({"a": _task(component="takes", inputs=inputs)}, {"takes": takes}), pods)[0] == "SUCCEEDED"
    assert pods.given["a"].parameters == {"whole": "the-run", "part": constants["part"]}


@pytest.mark.parametrize("spec", [{"schemaVersion": "2.0.0"}, {"schemaVersion": "2.1.0", "nonsense": 1}])
def test_a_document_that_kfp_refuses(spec: Body) -> None:
    with pytest.raises(InputError):
        read((spec, {}))


def test_cel_says_what_go_does() -> None:
    """By the language's specification: all numbers of a protobuf `Value` are doubles, which compare with doubles."""
    given = {"n": 3, "s": "it's", "l": [1, "a"], "b": True}
    for text, value in {
        "inputs.parameter_values['n'] == 3.0": True,
        "int(inputs.parameter_values['n']) == 3": True,
        "inputs.parameter_values['s'] == \"it's\"": True,
        "size(inputs.parameter_values['l']) == 2 && inputs.parameter_values['l'][1] == 'a'": True,
        "inputs.parameter_values['b'] && !(inputs.parameter_values['n'] > 3.5)": True,
        "inputs.parameter_values['n'] > 3.5 || inputs.parameter_values['n'] <= 2.0": False,
    }.items():
        assert holds(text, given) is value, text


@pytest.mark.parametrize(
    ("value", "selector", "part"),
    [
        ('{"a": "x"}', 'parseJson(string_value)["a"]', "x"),
        ({"a": [1, 2.5]}, 'parseJson(string_value)["a"]', [1, 2.5]),
        ({"a": {"b": True}}, 'struct_value["a"]["b"]', True),
        ([3, 4], "list_value[1]", 4),
        (2, "number_value + 1.0", 3),
        (2, "string_value", "2"),
    ],
)
def test_a_selector_takes_a_part_of_a_parameter(value: Any, selector: str, part: Any) -> None:
    document = _document(
        {
            "takes": _task(
                component="wants",
                inputs={
                    "parameters": {
                        "part": {"componentInputParameter": "whole", "parameterExpressionSelector": selector}
                    }
                },
            )
        },
        components={"wants": _pod({"part": {"parameterType": "STRING"}})},
        parameters={"whole": {"parameterType": "STRUCT"}},
    )
    task = document.spec.root.dag.tasks["takes"]
    assert inputs(document, "takes", task, TaskValues({"whole": value}), {}, "run").parameters == {"part": part}


def test_a_selector_without_a_value_ends_the_task() -> None:
    source = {"componentInputParameter": "whole", "parameterExpressionSelector": 'parseJson(string_value)["b"]'}
    document = _document(
        {"takes": _task(component="wants", inputs={"parameters": {"part": source}})},
        components={"wants": _pod({"part": {"parameterType": "STRING"}})},
        parameters={"whole": {"parameterType": "STRUCT"}},
    )
    task = document.spec.root.dag.tasks["takes"]
    with pytest.raises(DriverError, match=r'selector parseJson\(string_value\)\["b"\] has no value'):
        inputs(document, "takes", task, TaskValues({"whole": {"a": 1}}), {}, "run")
