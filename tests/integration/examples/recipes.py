"""What the definitions under ``examples/deploying`` say of a process."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.integration.examples.loading import EXAMPLES

FOLDER = EXAMPLES / "deploying"
PROGRAM = str(FOLDER / "consumer.py")
SERVICE = FOLDER / "billing@.service"


class Recipe(NamedTuple):
    """One process of a fleet: how it is started, looked at and stopped."""

    client_id: str
    command: list[str]
    environment: dict[str, str]
    is_alive: list[str]
    is_ready: list[str]
    probe_seconds: float
    """How long the shortest of the probes may take."""
    before_stop: list[str]
    stop_seconds: float
    """How long all of the stop may take."""


def pod(kind: str, name: str) -> Recipe:
    """Return what Kubernetes does with a pod of this name."""
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
    started, alive, ready = (probe["exec"]["command"] for probe in probes)
    assert started == alive
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {})
    return Recipe(
        name,
        _program(container["command"]),
        given,
        alive,
        ready,
        min(probe["timeoutSeconds"] for probe in probes),
        hook.get("command", []),
        spec["spec"]["terminationGracePeriodSeconds"],
    )


def ecs_task() -> Recipe:
    """Return what ECS does with the task's container."""
    text = (FOLDER / "ecs-task-definition.json").read_text()
    (container,) = json.loads(text)["containerDefinitions"]
    kind, check = container["healthCheck"]["command"]
    assert kind == "CMD-SHELL"
    shell = ["/bin/sh", "-c", check]
    given = {each["name"]: each["value"] for each in container["environment"]}
    return Recipe(
        socket.gethostname(),
        [*container["entryPoint"], *_program(container["command"])],
        given,
        shell,
        ["/bin/sh", "-c", f"{check} --ready"],
        container["healthCheck"]["timeout"],
        [],
        container["stopTimeout"],
    )


class Unit(configparser.RawConfigParser):
    """A unit's file: names as they are, and ``Environment`` more than once."""

    def __init__(self, text: str, instance: str) -> None:
        super().__init__(strict=False)
        self.optionxform = str  # type: ignore[assignment]
        text = text.replace("%i", instance).replace("%H", socket.gethostname())
        lines = text.splitlines()
        start = "Environment="
        self.environment = dict(
            line.removeprefix(start).split("=", 1)
            for line in lines
            if line.startswith(start)
        )
        self.read_string("\n".join(lines))


def unit(instance: str) -> Recipe:
    """Return what systemd does with an instance of the service."""
    found = Unit(SERVICE.read_text(), instance)
    service = found["Service"]
    assert service["KillSignal"] == "SIGTERM"
    check = ["kinesumer", "health"]
    return Recipe(
        found.environment["KINESUMER_CLIENT_ID"],
        _program(shlex.split(service["ExecStart"])),
        found.environment,
        check,
        [*check, "--ready"],
        float("inf"),
        [],
        float(service["TimeoutStopSec"]),
    )


def path() -> str:
    """Return a PATH on which ``python`` and ``kinesumer`` are those of the tests."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _program(command: list[str]) -> list[str]:
    places = {"/app/consumer.py": PROGRAM, "/opt/billing/consumer.py": PROGRAM}
    places["/opt/billing/bin/python"] = sys.executable
    made: list[Any] = []
    for word in command:
        for there, here in places.items():
            word = word.replace(there, here)
        made.append(word)
    return made
