"""Kubernetes, ECS and systemd: what the definitions say is run for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.integration.examples.crowd import PATIENCE_SECONDS, until
from tests.integration.examples.recipes import (
    PROGRAM,
    SERVICE,
    ecs_task,
    path,
    pod,
    unit,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.local import EmbeddedAws
    from tests.integration.examples.recipes import Recipe

HAND_OVER_SECONDS = 16
"""What leaving takes at most, as docs/operations.md says."""
PROBE_SECONDS = 8 + 5
"""A lease without a heartbeat, and the last answer."""


def all_recipes() -> list[Recipe]:
    return [
        pod("deployment", "billing-5d8f-x7k2p"),
        pod("statefulset", "billing-0"),
        ecs_task(),
        unit("1"),
    ]


@pytest.mark.parametrize("recipe", all_recipes(), ids=lambda r: str(r.client_id))
def test_there_is_time_for_probes_and_for_the_hand_over(recipe: Recipe) -> None:
    assert recipe.environment["KINESUMER_APP"] == "billing"
    assert recipe.probe_seconds > PROBE_SECONDS
    waits = 30 if recipe.before_stop else 0
    assert recipe.stop_seconds > waits + HAND_OVER_SECONDS


class Running:
    """A process that was started as its recipe says."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._environment = {**os.environ, **recipe.environment, "PATH": path()}
        self.process = subprocess.Popen(
            recipe.command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self, command: list[str]) -> int:
        """Return the exit status of a probe or a hook beside it."""
        assert self.process.poll() is None, self.process.communicate()[1]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        return done.returncode

    def await_ready(self) -> None:
        until(lambda: self.status(self.recipe.is_ready) == 0, "it is ready")

    def stop(self) -> str:
        """Stop it as its machine does; return what it wrote."""
        began = time.monotonic()
        if self.recipe.before_stop:
            assert self.status(self.recipe.before_stop) == 0
        self.process.terminate()
        written, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, errors
        assert time.monotonic() - began < self.recipe.stop_seconds
        return written


@pytest.mark.process
def test_what_each_says_starts_a_client_finds_it_ready_and_stops_it_in_peace(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=8)
    for number in range(100):
        kinesumer_aws.put("orders", b"%d" % number, f"key {number}")
    everybody = [Running(recipe) for recipe in all_recipes()]
    try:
        with ThreadPoolExecutor(len(everybody)) as pool:
            list(pool.map(Running.await_ready, everybody))
            assert everybody[0].status(everybody[0].recipe.is_alive) == 0
            # The last client of all isn't drained: who drains goes first.
            (drained,) = [r for r in everybody if r.recipe.before_stop]
            written = drained.stop()
            others = [r for r in everybody if r is not drained]
            written += "".join(pool.map(Running.stop, others))
    finally:
        for running in everybody:
            running.process.kill()
            running.process.communicate()
    seen = sorted(int(line.split()[-1]) for line in written.splitlines())
    assert seen == list(range(100))


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here to read the unit")
    text = SERVICE.read_text().replace("/opt/billing/bin/python", sys.executable)
    copy = tmp_path / SERVICE.name
    copy.write_text(text.replace("/opt/billing/consumer.py", PROGRAM))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, copy.name in done.stderr) == (0, False), done.stderr
