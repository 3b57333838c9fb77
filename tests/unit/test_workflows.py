"""Test that workflows run this project's scripts, so that they can be run anywhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# What the head of docker-compose.yml and CONTRIBUTING.md say.
OTHERS = ("docker compose up --detach --wait",)


def steps(workflow: Path) -> list[dict[str, Any]]:
    """Return the steps of all jobs of a workflow."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_only_scripts_of_the_project(workflow: Path) -> None:
    for step in steps(workflow):
        if "run" not in step or step["run"] in OTHERS:
            continue
        script = step["run"].split()[0]
        assert script.startswith("scripts/")
        assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_no_permission_to_write_unless_a_job_asks(
    workflow: Path,
) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


PINNED = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_the_commit_of_a_version(workflow: Path) -> None:
    lines = workflow.read_text().splitlines()
    used = [line.partition("uses: ")[2] for line in lines if "uses: " in line]
    assert used
    assert not [action for action in used if not PINNED.fullmatch(action)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_job_that_runs_code_gets_a_token_of_its_identity(workflow: Path) -> None:
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        if "id-token" in job.get("permissions", {}):
            assert not [step for step in job["steps"] if "run" in step]


def test_the_package_names_every_python_that_the_workflow_tests() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    matrix = yaml.safe_load(text)["jobs"]["matrix"]["strategy"]["matrix"]
    project = (ROOT / "pyproject.toml").read_text()
    for python in matrix["python"]:
        assert f'"Programming Language :: Python :: {python}"' in project
