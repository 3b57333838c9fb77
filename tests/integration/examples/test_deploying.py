"""Test the commands in the definitions for Kubernetes, ECS, Docker and systemd."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from kinesumer.config import STATE_STORE
from kinesumer.ops.group.connect import connect
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS, wait_until
from tests.support.crowd import EXAMPLES
from tests.support.recipes import (
    FOLDER,
    SERVICE,
    Recipe,
    container,
    ecs_task,
    path,
    pod,
    unit,
    unit_here,
)

# The longest time for leaving, according to docs/operations.md.
HAND_OVER_SECONDS = 16
# A probe may watch for a whole lease, and then wait for one more response.
PROBE_SECONDS = 8 + 5
USER = 10001
SCRIPT, UV = "scripts/build", ".venv-uv/bin/uv"


def all_recipes() -> list[Recipe]:
    return [
        pod("deployment", "billing-5d8f-x7k2p"),
        pod("statefulset", "billing-0"),
        ecs_task(),
        container("f3a1"),
        unit("1"),
    ]


@pytest.mark.parametrize("recipe", all_recipes(), ids=lambda r: str(r.client_id))
def test_there_is_time_for_probes_and_for_the_hand_over(recipe: Recipe) -> None:
    assert recipe.environment["KINESUMER_APP"] == "billing"
    assert recipe.probe_seconds > PROBE_SECONDS
    waits = 30 if recipe.before_stop else 0
    assert recipe.stop_seconds > waits + HAND_OVER_SECONDS


class Running:
    """A process that was started by its recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        given = {**os.environ, **recipe.environment, "PATH": path()}
        # Each line is written at once then, so that the lines of processes don't mix.
        given.pop("PYTHONUNBUFFERED", None)
        self._environment = given
        self.process = subprocess.Popen(
            recipe.command,
            cwd=FOLDER,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self, command: list[str]) -> int:
        """Return the exit status of a probe or a hook of the process."""
        assert self.process.poll() is None, self.process.communicate()[1]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        return done.returncode

    def await_ready(self) -> None:
        wait_until(lambda: self.status(self.recipe.is_ready) == 0, "it is ready")

    def stop(self) -> str:
        """Stop the process as its platform does, and return its output."""
        began = time.monotonic()
        if self.recipe.before_stop:
            assert self.status(self.recipe.before_stop) == 0
        self.process.terminate()
        written, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, errors
        assert time.monotonic() - began < self.recipe.stop_seconds
        return written


async def all_have_shards(count: int) -> None:
    """Wait until clients have shards. Don't use probes, which are slow processes."""
    owners = 0
    async with asyncio.timeout(PATIENCE_SECONDS), connect(STATE_STORE, None) as opened:
        while owners < count:
            await asyncio.sleep(0.1)
            snapshot = await read_snapshot(opened[1], "billing")
            owners = sum(snapshot.owned[m.session] > 0 for m in snapshot.alive)


@pytest.mark.process
def test_each_recipe_starts_a_client_finds_it_ready_and_stops_it(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=len(all_recipes()))
    for number in range(100):
        kinesumer_aws.put("orders", b"%d" % number, f"key {number}")
    processes = [Running(recipe) for recipe in all_recipes()]
    try:
        asyncio.run(all_have_shards(len(processes)))
        with ThreadPoolExecutor(len(processes)) as pool:
            list(pool.map(Running.await_ready, processes))
            assert processes[0].status(processes[0].recipe.is_alive) == 0
            # Stop the drained client first: the last client has nobody to drain to.
            (drained,) = [r for r in processes if r.recipe.before_stop]
            written = drained.stop()
            others = [r for r in processes if r is not drained]
            written += "".join(pool.map(Running.stop, others))
    finally:
        for running in processes:
            running.process.kill()
            running.process.communicate()
    seen = sorted(int(line.split()[-1]) for line in written.splitlines())
    assert seen == list(range(100))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here to read the unit")
    copy = tmp_path / SERVICE.name
    copy.write_text(unit_here())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, copy.name in done.stderr) == (0, False), done.stderr


# --- what a process may do ---


PODS = ("deploying/deployment", "deploying/statefulset", "scaling/exporter")
TASKS = ("deploying/ecs-task-definition", "scaling/ecs-exporter-task")


@pytest.mark.parametrize("name", PODS)
def test_pods_have_no_privileges_and_a_memory_limit(name: str) -> None:
    pod = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]["template"]
    assert pod["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for each in pod["spec"]["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in each["resources"]["limits"]


@pytest.mark.parametrize("name", TASKS)
def test_tasks_have_no_privileges_and_a_memory_limit(name: str) -> None:
    task = json.loads((EXAMPLES / f"{name}.json").read_text())
    for each in task["containerDefinitions"]:
        assert each["user"] == str(USER)
        assert each["readonlyRootFilesystem"] is True
        assert each["linuxParameters"]["capabilities"] == {"drop": ["ALL"]}
        assert each["memory"] <= int(task["memory"])
        assert not each["image"].endswith(":latest")


def test_a_container_and_a_service_have_no_privileges_and_a_memory_limit() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    service = compose["services"]["consumer"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    lines = SERVICE.read_text().splitlines()
    hardening = {"DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet="}
    assert hardening <= {*lines}
    assert any(line.startswith("MemoryMax=") for line in lines)
    assert f"USER {USER}" in (FOLDER / "Dockerfile").read_text().splitlines()


def test_the_image_installs_nothing_from_an_index_without_a_hash() -> None:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [part for part in re.split(r"\n|&&", text) if "pip install" in part]
    assert installs
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install


def test_the_image_is_made_by_what_a_checkout_has() -> None:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    steps = re.findall(r"^#   (?! )(\S+)", text, re.M)
    assert steps == [SCRIPT, "cp", UV, UV, "docker"]
    assert (EXAMPLES.parent / SCRIPT).exists()
    assert f"{UV} export" in (EXAMPLES.parent / "scripts/environment.sh").read_text()
