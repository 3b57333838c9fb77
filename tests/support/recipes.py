"""Read from the files in ``examples/deploying`` how to run a process."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.crowd import EXAMPLES
from tests.support.ports import free_port

FOLDER = EXAMPLES / "deploying"
SERVICE = FOLDER / "billing@.service"


class Recipe(NamedTuple):
    """The commands that start, check and stop one process of a fleet."""

    client_id: str
    command: list[str]
    environment: dict[str, str]
    is_alive: list[str]
    is_ready: list[str]
    probe_seconds: float  # the shortest timeout of a probe
    before_stop: list[str]
    stop_seconds: float  # the time allowed for the whole stop


def pod(kind: str, name: str) -> Recipe:
    """Return the recipe by which Kubernetes runs a pod of this name."""
    spec = yaml.safe_load((FOLDER / f"{kind}.yaml").read_text())["spec"]["template"]
    (container,) = spec["spec"]["containers"]
    given = {
        each["name"]: each.get("value")
        or {"metadata.name": name}[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    probes = [
        container[f"{what}Probe"] for what in ("startup", "liveness", "readiness")
    ]
    given |= _on_this_machine(given)
    started, alive, ready = (_probe(probe, given) for probe in probes)
    assert started in (alive, ready)
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {})
    return Recipe(
        name,
        container["command"],
        given,
        alive,
        ready,
        min(probe.get("timeoutSeconds", float("inf")) for probe in probes),
        hook.get("command", []),
        spec["spec"]["terminationGracePeriodSeconds"],
    )


def _on_this_machine(given: dict[str, str]) -> dict[str, str]:
    """Return the variables that differ here: all pods share the ports."""
    here = {"KINESUMER_HOST": "127.0.0.1", "KINESUMER_HEALTH_PORT": str(free_port())}
    return {name: value for name, value in here.items() if name in given}


def _probe(probe: dict[str, Any], given: dict[str, str]) -> list[str]:
    """Return a command that does the same as a probe of Kubernetes."""
    if "exec" in probe:
        command: list[str] = probe["exec"]["command"]
        return command
    assert probe["httpGet"]["port"] == "health"
    place = f"127.0.0.1:{given['KINESUMER_HEALTH_PORT']}{probe['httpGet']['path']}"
    get = f"import urllib.request; urllib.request.urlopen('http://{place}')"
    return [sys.executable, "-c", get]


def ecs_task() -> Recipe:
    """Return the recipe by which ECS runs the task's container."""
    text = (FOLDER / "ecs-task-definition.json").read_text()
    (container,) = json.loads(text)["containerDefinitions"]
    kind, check = container["healthCheck"]["command"]
    assert kind == "CMD-SHELL"
    shell = ["/bin/sh", "-c", check]
    given = {each["name"]: each["value"] for each in container["environment"]}
    return Recipe(
        socket.gethostname(),
        [*container["entryPoint"], *container["command"]],
        given,
        shell,
        ["/bin/sh", "-c", f"{check} --ready"],
        container["healthCheck"]["timeout"],
        [],
        container["stopTimeout"],
    )


def container(name: str) -> Recipe:
    """Return the recipe by which Docker runs a container of this name."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, str] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        found[word] = rest
    assert found["STOPSIGNAL"] == "SIGTERM"
    options, _, check = found["HEALTHCHECK"].partition(" CMD ")
    given = dict(each.split("=", 1) for each in shlex.split(found["ENV"]))
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    given |= _on_this_machine(given)
    is_alive = json.loads(check)
    return Recipe(
        name,
        json.loads(found["CMD"]),
        {**given, "HOSTNAME": name},
        is_alive,
        [*is_alive[:-1], is_alive[-1].replace("/live", "/ready")],
        _seconds(dict(re.findall(r"--(\S+)=(\S+)", options))["timeout"]),
        [],
        _seconds(compose["services"]["consumer"]["stop_grace_period"]),
    )


def scaling_file(name: str) -> Any:
    """Return the content of a file in ``examples/scaling``, which is YAML or JSON."""
    return yaml.safe_load((EXAMPLES / "scaling" / name).read_text())


def scaling_query(name: str) -> str:
    """Return the query by which Kubernetes scales: of ``scaledobject`` or ``hpa``."""
    spec = scaling_file(f"{name}.yaml")["spec"]
    if name == "scaledobject":
        (trigger,) = spec["triggers"]
        return str(trigger["metadata"]["query"])
    (metric,) = spec["metrics"]
    wanted = metric["external"]["metric"]
    (rule,) = scaling_file("prometheus-adapter.yaml")["externalRules"]
    assert rule["name"]["as"] == wanted["name"]
    labels = wanted["selector"]["matchLabels"]
    matchers = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return str(rule["metricsQuery"]).replace("<<.LabelMatchers>>", matchers)


def ecs_queries() -> list[dict[str, Any]]:
    """Return the queries of metrics by which ECS scales."""
    policy = scaling_file("ecs-policy.json")["TargetTrackingScalingPolicyConfiguration"]
    queries: list[dict[str, Any]] = policy["CustomizedMetricSpecification"]["Metrics"]
    return queries


def ecs_metrics() -> list[dict[str, Any]]:
    """Return the metrics of the exporter by which ECS scales."""
    stats = [each["MetricStat"] for each in ecs_queries() if "MetricStat" in each]
    metrics = [stat["Metric"] for stat in stats]
    return [each for each in metrics if each["Namespace"] == "kinesumer"]


def ecs_dimensions() -> list[dict[str, str]]:
    """Return the dimensions of the exporter's metrics by which ECS scales."""
    return [
        {each["Name"]: each["Value"] for each in metric["Dimensions"]}
        for metric in ecs_metrics()
    ]


def unit(instance: str) -> Recipe:
    """Return the recipe by which systemd runs an instance of the service."""
    text = SERVICE.read_text().replace("%i", instance)
    text = text.replace("%H", socket.gethostname())
    settings = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    given = dict(each.split("=", 1) for name, each in settings if name == "Environment")
    service = dict(settings)
    assert service["KillSignal"] == "SIGTERM"
    check = ["kinesumer", "health"]
    return Recipe(
        given["KINESUMER_CLIENT_ID"],
        shlex.split(_here(service["ExecStart"])),
        given,
        check,
        [*check, "--ready"],
        float("inf"),
        [],
        float(service["TimeoutStopSec"]),
    )


def path() -> str:
    """Return a PATH that finds the ``python`` and ``kinesumer`` of the tests."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _here(text: str) -> str:
    """Return a text with this machine's places instead of the service's."""
    text = text.replace("/opt/billing/bin", str(Path(sys.executable).parent))
    return text.replace("/opt/billing", str(FOLDER))


def unit_here() -> str:
    """Return the service's unit with this machine's places."""
    return _here(SERVICE.read_text())
