"""Mistakes planted in compiled pipelines that hold: what is changed, and what the linter must say where."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

Json = dict[str, Any]
Change = Callable[[Json, Json], object]

NAME = "control/loops:in_each_other"
EXITS = "control/others:on_exit"
GOOD = "control/branches:over_a_scalar"
FEW = "spec.components[comp-work].dag.tasks[few]"


def tasks(spec: Json, dag: str = "work") -> Json:
    found: Json = spec["components"][f"comp-{dag}"]["dag"]["tasks"]
    return found


def container(spec: Json, name: str) -> Json:
    return dict.__getitem__(spec["deploymentSpec"]["executors"][f"exec-{name}"], "container")


def inputs(spec: Json) -> Json:
    return dict.__getitem__(tasks(spec)["few"]["inputs"], "parameters")


def put(body: Json, **more: object) -> Json:
    body.update(more)
    return body


def kubernetes(platform: Json) -> Json:
    return dict.__getitem__(platform["platforms"]["kubernetes"]["deploymentSpec"], "executors")


def configured(_: Json, platform: Json, **config: object) -> None:
    kubernetes(platform)["exec-few"].update(config)


def importer(spec: Json, _: Json) -> None:
    spec["deploymentSpec"]["executors"]["exec-many"] = {
        "importer": {"artifactUri": {"constant": "s3://x"}, "typeSchema": {"schemaTitle": "drivetrain.Numbers"}}
    }


MISFITS: list[tuple[Json, str, str]] = [
    ({"imagePullPolicy": 3}, "imagePullPolicy", "3.0 is where KFP wants a text"),
    ({"activeDeadlineSeconds": "soon"}, "activeDeadlineSeconds", "wants a whole number"),
    ({"activeDeadlineSeconds": 1.5}, "activeDeadlineSeconds", "wants a whole number"),
    ({"tolerations": {"key": "x"}}, "tolerations", "wants a list"),
    ({"tolerations": [None]}, "tolerations[0]", "null is where"),
    ({"nodeSelector": "gpu"}, "nodeSelector", "wants an object"),
    ({"nodeSelector": {"labels": {"gpu": True}}}, "nodeSelector.labels.gpu", "wants a text"),
    ({"podMetadata": {"labels": {"x": None}}}, "podMetadata.labels.x", "wants a text"),
    ({"securityContext": {"runAsNonRoot": "yes"}}, "securityContext.runAsNonRoot", "wants true or false"),
    (
        {"secretAsEnv": [{"secretNameParameter": {"componentInputParameter": 2}}]},
        "secretAsEnv[0].secretNameParameter",
        "KFP cannot read it",
    ),
]
"""Values that the platform document does not take: what an executor is given, where that shows, what is said."""

PLANTED: list[tuple[str, str, Change, str, str]] = [
    # the eight that neither protobuf nor KFP's loader sees, but for the last
    (
        "component",
        GOOD,
        lambda s, p: put(tasks(s)["count"], componentRef={"name": "comp-cuont"}),
        "work/count",
        "no component 'comp-cuont'",
    ),
    (
        "producer",
        GOOD,
        lambda s, p: put(
            tasks(s)["count"]["inputs"]["artifacts"]["numbers"]["taskOutputArtifact"], producerTask="maek"
        ),
        "work/count",
        "an output of 'maek', which is not a task",
    ),
    (
        "executor",
        GOOD,
        lambda s, p: s["deploymentSpec"]["executors"].pop("exec-few"),
        "work/few",
        "no executor 'exec-few'",
    ),
    (
        "type",
        GOOD,
        lambda s, p: put(
            s["components"]["comp-make"]["outputDefinitions"]["artifacts"]["numbers"]["artifactType"],
            schemaTitle="drivetrain.Model",
        ),
        "work/count",
        "is drivetrain.Numbers, and gets drivetrain.Model",
    ),
    ("cycle", GOOD, lambda s, p: put(tasks(s)["make"], dependentTasks=["many"]), "work", "tasks wait for each other"),
    (
        "implied cycle",
        GOOD,
        lambda s, p: put(
            tasks(s)["make"],
            inputs={"parameters": {"x": {"taskOutputParameter": {"producerTask": "count", "outputParameterKey": "x"}}}},
        ),
        "work",
        "tasks wait for each other",
    ),
    (
        "name",
        GOOD,
        lambda s, p: tasks(s).update({"Few_": tasks(s).pop("few")}),
        "work/Few_",
        "is not a name for Kubernetes",
    ),
    (
        "field",
        GOOD,
        lambda s, p: put(tasks(s)["few"], dependendTasks=[]),
        "spec.components[comp-work].dag.tasks[few]",
        "the field 'dependendTasks' is unknown",
    ),
    # values of another kind, which protobuf's JSON passes over while it ignores unknown fields
    (
        "scalar",
        GOOD,
        lambda s, p: put(tasks(s)["few"], inputs="x"),
        f"{FEW}.inputs",
        '"x" is where KFP wants an object',
    ),
    ("empty text", GOOD, lambda s, p: put(tasks(s)["few"], componentRef=""), f"{FEW}.componentRef", "wants an object"),
    ("list", GOOD, lambda s, p: put(tasks(s)["few"], cachingOptions=[]), f"{FEW}.cachingOptions", "wants an object"),
    (
        "not a list",
        GOOD,
        lambda s, p: put(tasks(s)["many"], dependentTasks="x"),
        "spec.components[comp-work].dag.tasks[many].dependentTasks",
        "wants a list",
    ),
    (
        "null",
        GOOD,
        lambda s, p: put(tasks(s)["few"], dependentTasks=[None]),
        f"{FEW}.dependentTasks[0]",
        "null is where",
    ),
    (
        "enum",
        GOOD,
        lambda s, p: put(tasks(s)["few"], triggerPolicy={"strategy": "ALL_UPSTREAM"}),
        f"{FEW}.triggerPolicy.strategy",
        "'ALL_UPSTREAM' is unknown",
    ),
    (
        "enum number",
        GOOD,
        lambda s, p: put(tasks(s)["few"], triggerPolicy={"strategy": 1.5}),
        f"{FEW}.triggerPolicy.strategy",
        "wants a name",
    ),
    ("deployment", GOOD, lambda s, p: put(s, deploymentSpec=[]), "spec.deploymentSpec", "wants an object"),
    # and what else KFP's backend does not do
    ("schema", GOOD, lambda s, p: put(s, schemaVersion="2.0.0"), "spec", "schemaVersion is '2.0.0'"),
    ("pipeline name", GOOD, lambda s, p: put(s["pipelineInfo"], name="a" * 58), "spec.pipelineInfo", "58 characters"),
    (
        "task name",
        GOOD,
        lambda s, p: tasks(s).update({"f" * 64: tasks(s).pop("few")}),
        f"work/{'f' * 64}",
        "64 characters",
    ),
    (
        "driver",
        GOOD,
        lambda s, p: tasks(s).update({"make-driver": tasks(s).pop("few")}),
        "work/make-driver",
        "the driver of another task",
    ),
    (
        "unknown dependency",
        GOOD,
        lambda s, p: tasks(s)["many"]["dependentTasks"].append("x"),
        "work/many",
        "dependentTasks names 'x'",
    ),
    ("itself", GOOD, lambda s, p: tasks(s)["many"]["dependentTasks"].append("many"), "work/many", "waits for itself"),
    ("twice", GOOD, lambda s, p: tasks(s)["many"]["dependentTasks"].append("count"), "work/many", "'count' twice"),
    ("no root", GOOD, lambda s, p: s["root"]["dag"].pop("tasks"), "root", "it has no tasks"),
    (
        "placeholder",
        GOOD,
        lambda s, p: container(s, "few")["args"].append("{{$.pipeline_job_uuid}}"),
        "executors/exec-few",
        "{{$.pipeline_job_uuid}} is in the container",
    ),
    (
        "embedded",
        GOOD,
        lambda s, p: put(
            tasks(s)["few"]["inputs"]["parameters"],
            drivetrain_run={"runtimeValue": {"constant": "run-{{$.pipeline_job_name}}"}},
        ),
        "work/few",
        "only where it is the whole value",
    ),
    ("importer", GOOD, importer, "work/many", "an importer has a condition"),
    (
        "resolver",
        GOOD,
        lambda s, p: s["deploymentSpec"]["executors"].update({"exec-few": {"resolver": {}}}),
        "executors/exec-few",
        "runs on Vertex AI",
    ),
    ("no image", GOOD, lambda s, p: container(s, "few").pop("image"), "executors/exec-few", "it has no image"),
    (
        "quantity",
        GOOD,
        lambda s, p: put(container(s, "few"), resources={"resourceMemoryLimit": "8 gigs"}),
        "executors/exec-few",
        "'8 gigs', which is not a quantity",
    ),
    (
        "cache",
        GOOD,
        lambda s, p: put(tasks(s)["few"], cachingOptions={"enableCache": True}),
        "work/few",
        "KFP's cache is on",
    ),
    (
        "same container",
        GOOD,
        lambda s, p: s["deploymentSpec"]["executors"].update(
            {"exec-few": copy.deepcopy(s["deploymentSpec"]["executors"]["exec-count"])}
        ),
        "components/comp-few",
        "the same container as comp-count",
    ),
    (
        "required",
        GOOD,
        lambda s, p: tasks(s)["count"]["inputs"]["artifacts"].pop("numbers"),
        "work/count",
        "the artifact 'numbers' of its component has no value",
    ),
    (
        "around",
        GOOD,
        lambda s, p: put(tasks(s)["few"]["inputs"]["parameters"], count={"componentInputParameter": "cuont"}),
        "work/few",
        "the DAG around it has no parameter 'cuont'",
    ),
    (
        "parameter type",
        GOOD,
        lambda s, p: put(
            s["components"]["comp-few"]["inputDefinitions"]["parameters"], count={"parameterType": "LIST"}
        ),
        "work/few",
        "is LIST, and gets NUMBER_INTEGER",
    ),
    (
        "constant",
        GOOD,
        lambda s, p: put(tasks(s)["few"]["inputs"]["parameters"], count={"runtimeValue": {"constant": "3"}}),
        "work/few",
        "does not fit, which is NUMBER_INTEGER",
    ),
    (
        "output key",
        GOOD,
        lambda s, p: s["components"]["comp-count"]["outputDefinitions"]["parameters"].update(
            {"total": s["components"]["comp-count"]["outputDefinitions"]["parameters"].pop("value")}
        ),
        "work/few",
        "count has no output parameter 'value'",
    ),
    (
        "reads",
        GOOD,
        lambda s, p: put(tasks(s)["few"], triggerPolicy={"condition": "inputs.parameter_values['cuont'] > 1.0"}),
        "work/few",
        "its condition reads 'cuont'",
    ),
    (
        "not CEL",
        GOOD,
        lambda s, p: put(tasks(s)["few"], triggerPolicy={"condition": "1.0 >"}),
        "work/few",
        "its condition is not CEL",
    ),
    (
        "factor",
        GOOD,
        lambda s, p: put(tasks(s)["few"], retryPolicy={"maxRetryCount": 2, "backoffFactor": 1.5}),
        "work/few",
        "back-off factor is 1.5",
    ),
    (
        "artifacts",
        NAME,
        lambda s, p: (
            tasks(s)["for-map"].pop("parameterIterator"),
            put(tasks(s)["for-map"], artifactIterator={"itemInput": "a"}),
        ),
        "work/for-map",
        "iterates over artifacts",
    ),
    (
        "item",
        NAME,
        lambda s, p: put(tasks(s)["for-map"]["parameterIterator"], itemInput="x"),
        "work/for-map",
        "come in as 'x', which is not a parameter",
    ),
    (
        "items",
        NAME,
        lambda s, p: put(tasks(s, "for-map")["for-inner"]["parameterIterator"], items={"inputParameter": "x"}),
        "work/for-map/for-inner",
        "iterates over 'x', which is not an input",
    ),
    (
        "raw",
        NAME,
        lambda s, p: put(tasks(s)["for-map"]["parameterIterator"], items={"raw": "3"}),
        "work/for-map",
        "iterates over 3, which is not a list",
    ),
    (
        "within itself",
        NAME,
        lambda s, p: put(tasks(s, "for-inner")["note"], componentRef={"name": "comp-for-map"}),
        "components/comp-for-inner",
        "is within itself",
    ),
    (
        "empty DAG",
        NAME,
        lambda s, p: s["components"]["comp-for-inner"]["dag"].pop("tasks"),
        "work/for-map/for-inner",
        "a DAG without tasks",
    ),
    (
        "two exits",
        EXITS,
        lambda s, p: put(s["root"]["dag"]["tasks"], again=copy.deepcopy(s["root"]["dag"]["tasks"]["leave"])),
        "leave",
        "again runs on exit of work as well",
    ),
    (
        "exit of an exit",
        EXITS,
        lambda s, p: put(
            tasks(s, "leave"),
            more={
                "componentRef": {"name": "comp-exits"},
                "dependentTasks": ["drivetrain-close"],
                "inputs": tasks(s, "leave")["exits"]["inputs"],
            },
        ),
        "leave/more",
        "waits for drivetrain-close, which runs on exit",
    ),
    ("only exits", EXITS, lambda s, p: s["root"]["dag"]["tasks"].pop("work"), "root", "every task of it runs on exit"),
    (
        "status",
        EXITS,
        lambda s, p: s["root"]["dag"]["tasks"]["leave"].pop("triggerPolicy"),
        "leave",
        "does not run on exit",
    ),
    (
        "platform executor",
        GOOD,
        lambda s, p: kubernetes(p).update({"exec-x": {}}),
        "platform/exec-x",
        "which the pipeline has not",
    ),
    (
        "platform field",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"], nodeSelectors={}),
        "platform/exec-few",
        "the field 'nodeSelectors' is unknown",
    ),
    *(
        (f"platform {number}", GOOD, partial(configured, **change), f"platform/exec-few.{location}", message)
        for number, (change, location, message) in enumerate(MISFITS)
    ),
    (
        "platform inner field",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"]["emptyDirMounts"][0], mount="/x"),
        "platform/exec-few.emptyDirMounts[0]",
        "the field 'mount' is unknown",
    ),
    (
        "mounts",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"], pvcMount=[{"constant": "c", "mountPath": "/drivetrain"}]),
        "platform/exec-few",
        "2 volumes are mounted at /drivetrain",
    ),
    (
        "secret name",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"]["secretAsEnv"][0], secretName="My_Secret"),
        "platform/exec-few.secretAsEnv",
        "'My_Secret' is not a name",
    ),
    (
        "volumes",
        GOOD,
        lambda s, p: put(
            kubernetes(p)["exec-few"],
            pvcMount=[{"constant": "c", "mountPath": "/a"}, {"constant": "c", "mountPath": "/b"}],
        ),
        "platform/exec-few",
        "2 volumes are called c",
    ),
    (
        "policy",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"], imagePullPolicy="Maybe"),
        "platform/exec-few",
        "'Maybe'",
    ),
    ("platform", GOOD, lambda s, p: put(p["platforms"], vertex={}), "platform", "'vertex' is unknown"),
]


HARMLESS: list[tuple[str, str, Change]] = [
    # what looks wrong, and KFP's own compiler and driver take it
    ("implied dependency", GOOD, lambda s, p: tasks(s)["many"].pop("dependentTasks")),
    ("an input of no parameter", GOOD, lambda s, p: put(inputs(s), wrong={"runtimeValue": {"constant": 1}})),
    (
        "a part of another type",
        GOOD,
        lambda s, p: put(
            inputs(s),
            drivetrain_run={
                "runtimeValue": {"constant": '{"run": 1}'},
                "parameterExpressionSelector": 'parseJson(string_value)["run"]',
            },
        ),
    ),
    ("a name in a namespace", GOOD, lambda s, p: put(s["pipelineInfo"], name="namespace/Shop/name/shop")),
    (
        "a relative mount",
        GOOD,
        lambda s, p: put(kubernetes(p)["exec-few"]["emptyDirMounts"][0], mountPath="scratch"),
    ),
    ("whole numbers as texts", GOOD, lambda s, p: put(kubernetes(p)["exec-few"], activeDeadlineSeconds="60")),
    ("a type's address", GOOD, lambda s, p: put(s["deploymentSpec"], **{"@type": "type.googleapis.com/x"})),
]  # fmt: skip
