"""Test which checks ``scripts/check`` selects, and what it says of failed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import check
from tests.support.check import ROOT, Check, all_checks, checks_of, run_all


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("kinesumer/core/plan.py", "tests/unit/core/test_plan.py"),
        ("kinesumer/core/plan.py", "tests/unit/core/test_assignment.py"),
        ("kinesumer/aws/dynamodb.py", "tests/integration/aws/test_dynamodb.py"),
        ("kinesumer/wire", "tests/unit/wire"),
        ("tests/support/clients.py", "tests/unit/coordination/test_group.py"),
        ("tests/unit/test_client.py", "tests/unit/test_client.py"),
        ("tests/unit/spark/conftest.py", "tests/unit/spark"),
        ("docs/testing.md", "tests/integration/docs"),
    ],
)
def test_the_tests_that_concern_a_path_are_found(path: str, expected: str) -> None:
    assert expected in check.tests_of(Path(path))
    assert all((ROOT / test).exists() for test in check.tests_of(Path(path)))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("kinesumer/ops/cli", ["lint", "format", "types", "import contracts", "tests"]),
        ("tests/unit/core", ["lint", "format", "types", "tests"]),
        ("docs/testing.md", ["tests"]),
        ("LICENSE", []),
    ],
)
def test_only_checks_that_concern_a_path_are_run(path: str, names: list[str]) -> None:
    assert [each.name for each in checks_of([Path(path)])] == names


def test_a_simulated_module_is_simulated() -> None:
    found = checks_of([Path("kinesumer/core/plan.py")])
    assert [each.name for each in found] == [each.name for each in all_checks()]


async def test_the_check_that_fails_first_is_named_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    failed = await run_all(
        [
            Check("late", ("python", "-c", "import time; time.sleep(1); exit(1)")),
            Check("early", ("python", "-c", "print('the reason'); exit(1)")),
            Check("good", ("python", "-c", "print('unwanted')")),
        ]
    )

    assert failed == ["early", "late"]
    output = capfd.readouterr().out
    assert "== early failed:\nthe reason" in output
    assert "unwanted" not in output
