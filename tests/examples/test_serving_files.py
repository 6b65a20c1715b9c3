"""The files that put the server into production: read by Kubernetes' own types, and against the server's flags."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from drivetrain.console.serve import serve
from drivetrain.serving.config import read_models
from drivetrain.serving.server import ServerOptions

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "serving"
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))  # Any: YAML
RUNTIME, SERVICE = yaml.safe_load_all((FILES / "kserve-runtime.yaml").read_text())
DEPLOYMENT = next(each for each in KUBERNETES if each["kind"] == "Deployment")
UNIT = (FILES / "drivetrain-serve.service").read_text()
EXEC = re.findall(r"^ExecStart=\S+ serve (.*)$", UNIT, re.MULTILINE)[0].split()


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod's spec, and its one container."""
    for spec in (DEPLOYMENT["spec"]["template"]["spec"], RUNTIME["spec"]):
        (container,) = spec["containers"]
        yield spec, container


ARGUMENTS = {"systemd": EXEC} | dict(zip(("deployment", "kserve"), (each["args"] for _, each in pods()), strict=True))


def options_of(arguments: list[str]) -> dict[str, Any]:
    """What `drivetrain serve` makes of arguments, without what must be there on the machine."""
    command = copy.deepcopy(serve)
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type.exists = False
    return command.make_context("serve", [*arguments]).params


# --- Kubernetes ---


@pytest.mark.kubeflow
@pytest.mark.parametrize("document", KUBERNETES, ids=lambda each: each["kind"])
def test_kubernetes_reads_every_field(document: dict[str, Any]) -> None:
    """The client's types are made from the API's schema: an unknown field is lost in them, one that lacks raises."""
    client = pytest.importorskip("kubernetes.client")
    *_, version = document["apiVersion"].split("/")
    api = client.ApiClient(client.Configuration())
    read = api.deserialize(_Answer(document), f"{version.capitalize()}{document['kind']}")
    assert api.sanitize_for_serialization(read) == document


class _Answer:
    """What the client deserializes."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.data = json.dumps(document)


@pytest.mark.kubeflow
def test_the_pod_of_the_kserve_runtime_is_one_of_kubernetes() -> None:
    client = pytest.importorskip("kubernetes.client")
    api = client.ApiClient(client.Configuration())
    pod = {key: RUNTIME["spec"][key] for key in ("containers", "volumes")}
    assert api.sanitize_for_serialization(api.deserialize(_Answer(pod), "V1PodSpec")) == pod
    assert RUNTIME["spec"].keys() - pod.keys() == {
        "annotations", "supportedModelFormats", "protocolVersions", "multiModel",
    }  # fmt: skip  # as the resource definition of KServe 0.20 has them
    (known,) = RUNTIME["spec"]["supportedModelFormats"]
    model = SERVICE["spec"]["predictor"]["model"]
    assert model["modelFormat"]["name"] == known["name"]
    assert model["runtime"] == RUNTIME["metadata"]["name"]
    assert model["protocolVersion"] in RUNTIME["spec"]["protocolVersions"]


def test_what_belongs_together_has_the_same_labels() -> None:
    by_kind = {each["kind"]: each for each in KUBERNETES}
    template = DEPLOYMENT["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    assert by_kind["Service"]["spec"]["selector"] == labels
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    target = by_kind["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", DEPLOYMENT["metadata"]["name"])
    assert (
        by_kind["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
        > by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"]
    )
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {each["targetPort"]: each["port"] for each in by_kind["Service"]["spec"]["ports"]} == ports
    assert {
        each["port"] for rule in by_kind["NetworkPolicy"]["spec"]["ingress"] for each in rule["ports"]
    } == ports.keys()
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    assert volumes["models"]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]


def test_the_models_of_the_config_map_are_read(tmp_path: Path) -> None:
    (config_map,) = [each for each in KUBERNETES if each["kind"] == "ConfigMap"]
    options = options_of(ARGUMENTS["deployment"])
    (mount,) = [each for each in next(pods())[1]["volumeMounts"] if each["name"] == "models"]
    assert options["config"].parent == Path(mount["mountPath"])
    (tmp_path / options["config"].name).write_text(config_map["data"][options["config"].name])
    assert [model.name for model in read_models(tmp_path / options["config"].name)] == ["flights"]


def test_pods_may_do_nothing_but_serve() -> None:
    for spec, container in pods():
        security = {**spec.get("securityContext", {}), **container["securityContext"]}
        assert security["runAsNonRoot"]
        assert security["runAsUser"] == 65532
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert [volume["name"] for volume in spec["volumes"] if "emptyDir" in volume] == [*writable] == ["tmp"]
        assert container["resources"]["limits"]["memory"]
    assert DEPLOYMENT["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


# --- flags, ports, times ---


@pytest.mark.parametrize("where", sorted(ARGUMENTS))
def test_every_flag_is_one_of_the_server(where: str) -> None:
    options = options_of([argument.replace("{{.Name}}", "flights") for argument in ARGUMENTS[where]])
    assert (options["config"] is None) != (options["address"] is None)
    assert options["drain"] > 0


def test_ports_are_those_that_the_server_listens_at() -> None:
    for where, (_, container) in zip(("deployment", "kserve"), pods(), strict=True):
        options = options_of(ARGUMENTS[where])
        listening = {options["rest_port"], options["grpc_port"]}
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {*ports.values()} <= listening
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = container[name]["httpGet"]["port"]
            assert ports.get(port, port) == options["rest_port"]
    scraped = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"]
    assert int(scraped) == options_of(ARGUMENTS["deployment"])["rest_port"]
    assert int(RUNTIME["spec"]["annotations"]["prometheus.kserve.io/port"]) == options["rest_port"]


def test_there_is_time_to_drain_and_to_answer() -> None:
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    grace = DEPLOYMENT["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    answer = ServerOptions().timeout_seconds
    assert answer is not None
    for seconds, where in ((grace, "deployment"), (int(stop), "systemd")):
        assert seconds > options_of(ARGUMENTS[where])["drain"] + answer
    readiness = next(pods())[1]["readinessProbe"]
    noticed = readiness["periodSeconds"] * readiness["failureThreshold"]
    assert options_of(ARGUMENTS["deployment"])["drain"] > 2 * noticed


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """Its own check where it is there; everywhere, the names that a typing error would leave without effect."""
    (start,) = re.findall(r"^ExecStart=(\S+)", UNIT, re.MULTILINE)
    assert start.endswith("/bin/drivetrain")
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    assert {
        "DynamicUser": "yes",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "Type": "exec",
    }.items() <= settings.items()
    assert settings["CapabilityBoundingSet"] == ""
    if shutil.which("systemd-analyze") is not None:
        unit = tmp_path / "drivetrain-serve.service"
        unit.write_text(UNIT.replace(start, sys.executable))
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert (verified.returncode, verified.stderr) == (0, "")


# --- the image ---


def test_the_image_is_made_of_what_is_in_a_checkout() -> None:
    text = (FILES / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert "serving" in extras.split(",")
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    patterns = (FILES / "Containerfile.dockerignore").read_text().split()
    files = (".src", "constraints.txt", "pyproject.toml", project["readme"], *project["license-files"])
    for name in (*files, "examples", "serving"):
        (*_, last) = ["!", *(pattern for pattern in patterns if fnmatch(name, pattern.removeprefix("!")))]
        assert last.startswith("!"), f"{name} is left out by {last}"
        assert (ROOT / name).exists()
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert {container.get("securityContext", {}).get("runAsUser", int(user)) for _, container in pods()} == {int(user)}
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    words: list[str] = [*json.loads(entrypoint), *json.loads(command)]
    program, verb, *arguments = words
    assert (program, verb) == ("drivetrain", "serve")
    options = options_of(arguments)
    assert (options["host"], options["admin"], options["address"]) == ("0.0.0.0", False, "/models")
    exposed = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)[0].split()
    assert {*map(int, exposed)} == {port["containerPort"] for port in next(pods())[1]["ports"]}
    if shutil.which("hadolint") is not None:
        subprocess.run(["hadolint", FILES / "Containerfile"], check=True)


# --- the dashboard and the alerts ---


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 5
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert {*re.findall(r"\$(\w+)", target["expr"])} <= variables | {"__rate_interval"}
            assert target["expr"].count("(") == target["expr"].count(")")
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & covered, f"{panel['title']} lies over another"
        assert max(x for x, _ in cells) < 24
        covered |= cells


def test_alerts_say_what_to_do() -> None:
    (group,) = yaml.safe_load((FILES / "prometheus-rules.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        shown = {*re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))}
        assert shown <= {*re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"])))}, rule["alert"]
