"""What a move from a KCL fleet and back needs to be allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.cli import lease_table
from tests.integration.cli.conftest import error_text
from tests.integration.cli.lease_table import LEASES, lease
from tests.system.security.conftest import READING, USER
from tests.system.security.documents import grants

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Run
    from tests.system.security.conftest import Accounts

SHARDS = ("shardId-000000000000", "shardId-000000000001")
KCL = ("kcl", LEASES, "--app=a", "--stream=orders", "--look=0", "--yes")


def test_a_fleet_is_taken_over_and_comes_back_with_exactly_its_policies(
    accounts: Accounts, run: Run
) -> None:
    lease_table.create(accounts.aws, *(lease(key, "TRIM_HORIZON") for key in SHARDS))
    accounts.enforce(READING)
    accounts.enforce({USER: "kcl-migration"})
    done = run("import", *KCL)
    assert done.exit_code == 0, done.stderr
    assert run("distribution", "--kcl", LEASES).exit_code == 0
    accounts.aws.split("orders", SHARDS[0])
    done = run("export", *KCL)
    assert done.exit_code == 0, done.stderr


def test_it_names_the_one_action_that_it_lacks(accounts: Accounts, run: Run) -> None:
    lease_table.create(accounts.aws, *(lease(key, "TRIM_HORIZON") for key in SHARDS))
    run("import", *KCL)
    lease_table.delete(accounts.aws, SHARDS[1])
    for removed in grants("kcl-migration"):
        accounts.aws.allow()
        accounts.enforce(READING)
        accounts.enforce({USER: "kcl-migration"}, removed)
        refused = run("export", *KCL)
        assert f"{removed.action} on table {LEASES}" in error_text(refused)
