"""Test that fatal conditions end the iteration with an error that names the cause."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.system.process.scenarios import scenario

if TYPE_CHECKING:
    from tests.system.process.client import Client
    from tests.system.process.fleet import Fleet


def consuming(fleet: Fleet) -> list[Client]:
    clients = fleet.started("a", "b")
    for arn in fleet.arns:
        fleet.producer.put(arn, 100)
    fleet.until(lambda: all(client.handled for client in clients), "both consume")
    return clients


def assert_all_end(fleet: Fleet, clients: list[Client], *errors: str) -> None:
    for client in clients:
        fleet.until(lambda c=client: c.process.poll() is not None, f"{errors} ends it")  # type: ignore[misc]
        assert client.failure.startswith(errors), fleet.report()
        assert client.process.poll() == 1


@scenario
def test_a_deleted_stream_ends_all_and_a_recreated_one_is_refused(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = consuming(fleet)
    fleet.aws.delete_stream(arn)
    assert_all_end(fleet, clients, "StreamMissingError: ")

    fleet.aws.create_stream(arn.rpartition("/")[2], 3)
    assert_all_end(fleet, fleet.start("c"), "StreamRecreatedError: ")


@scenario
def test_a_recreated_table_ends_all(fleet: Fleet) -> None:
    fleet.stream("orders")
    clients = consuming(fleet)
    fleet.watcher.stop()
    body = json.dumps({"TableName": fleet.table}).encode()
    fleet.aws.dynamodb("DeleteTable", body)
    fleet.aws.create_table(fleet.table)

    # This error is possible, too: a client may read the table after its deletion and
    # before its creation.
    missing = "StateStoreMissingError: "
    assert_all_end(fleet, clients, "StateStoreRecreatedError: ", missing)


@scenario
def test_a_revoked_permission_ends_all(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = consuming(fleet)
    fleet.aws.deny("kinesis:GetRecords", arn)

    assert_all_end(
        fleet,
        clients,
        f"AccessDeniedError: access denied: kinesis:GetRecords on {arn}",
    )


@scenario
def test_only_a_live_fleet_of_kinesumer_for_go_under_the_same_app_is_left_alone(
    fleet: Fleet,
) -> None:
    fleet.stream("orders")
    put_go_client(fleet, f"{fleet.app}-go")
    clients = consuming(fleet)
    fleet.leave(*clients)
    put_go_client(fleet, fleet.app)

    assert_all_end(fleet, fleet.start("c"), "GroupBusyError: ")
    assert "c" not in fleet.look().members


def put_go_client(fleet: Fleet, app: str) -> None:
    now = datetime.now(UTC).isoformat()
    row = {"pk": f"client#{app}", "sk": "go-client", "last_update": now}
    item = {name: {"S": value} for name, value in row.items()}
    body = json.dumps({"TableName": fleet.table, "Item": item}).encode()
    fleet.aws.dynamodb("PutItem", body)
