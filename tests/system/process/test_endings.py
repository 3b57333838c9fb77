"""What can't be survived ends the iteration, with the exception that says why."""

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
def test_a_stream_that_is_deleted_ends_all(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = consuming(fleet)
    fleet.aws.delete_stream(arn)

    assert_all_end(fleet, clients, "StreamMissingError: ")


@scenario
def test_a_stream_that_is_made_anew_ends_all(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = consuming(fleet)
    fleet.aws.delete_stream(arn)
    fleet.aws.create_stream(arn.rpartition("/")[2], 3)

    assert_all_end(fleet, clients, "StreamRecreatedError: ")
    assert_all_end(fleet, fleet.start("c"), "StreamRecreatedError: ")


@scenario
def test_a_table_that_is_deleted_ends_all(fleet: Fleet) -> None:
    fleet.stream("orders")
    clients = consuming(fleet)
    delete_table(fleet)

    assert_all_end(fleet, clients, "StateStoreMissingError: ")


@scenario
def test_a_table_that_is_made_anew_ends_all(fleet: Fleet) -> None:
    fleet.stream("orders")
    clients = consuming(fleet)
    delete_table(fleet)
    fleet.aws.create_table(fleet.table)

    # A client that asks between the deletion and the creation finds no table.
    missing = "StateStoreMissingError: "
    assert_all_end(fleet, clients, "StateStoreRecreatedError: ", missing)


@scenario
def test_a_permission_that_is_taken_away_ends_all(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = consuming(fleet)
    fleet.aws.deny("kinesis:GetRecords", arn)

    assert_all_end(
        fleet,
        clients,
        f"AccessDeniedError: access denied: kinesis:GetRecords on {arn}",
    )


@scenario
def test_a_live_fleet_of_kinesumer_for_go_is_left_alone(fleet: Fleet) -> None:
    fleet.stream("orders")
    put_row(
        fleet,
        {
            "pk": f"client#{fleet.app}",
            "sk": "go-client",
            "last_update": datetime.now(UTC).isoformat(),
        },
    )

    assert_all_end(fleet, fleet.start("a"), "GroupBusyError: ")
    assert not fleet.look().members


@scenario
def test_a_live_fleet_of_kinesumer_for_go_under_another_app_disturbs_nobody(
    fleet: Fleet,
) -> None:
    fleet.stream("orders")
    put_row(
        fleet,
        {
            "pk": f"client#{fleet.app}-go",
            "sk": "go-client",
            "last_update": datetime.now(UTC).isoformat(),
        },
    )
    consuming(fleet)
    fleet.drain()
    fleet.leave()

    assert fleet.verdict().duplicates == 0


def delete_table(fleet: Fleet) -> None:
    fleet.watcher.stop()
    body = json.dumps({"TableName": fleet.table}).encode()
    fleet.aws.dynamodb("DeleteTable", body)


def put_row(fleet: Fleet, row: dict[str, str]) -> None:
    item = {name: {"S": value} for name, value in row.items()}
    body = json.dumps({"TableName": fleet.table, "Item": item}).encode()
    fleet.aws.dynamodb("PutItem", body)
