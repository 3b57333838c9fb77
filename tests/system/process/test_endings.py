"""Test that fatal conditions end the iteration with an error that names the cause."""

from __future__ import annotations

from tests.system.process.client import Client
from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


def all_end(fleet: Fleet, clients: list[Client], error: str) -> None:
    for client in clients:
        fleet.until(lambda c=client: c.process.poll() is not None, f"{error} ends it")  # type: ignore[misc]
        assert client.failure.startswith(error), fleet.report()
        assert client.process.poll() == 1


@scenario
def test_a_deleted_stream_ends_all_and_a_recreated_one_is_refused(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = fleet.started("a", "b")
    fleet.producer.put(arn, 100)
    fleet.until(lambda: all(client.handled for client in clients), "both consume")
    fleet.aws.delete_stream(arn)
    all_end(fleet, clients, "StreamMissingError: ")

    fleet.aws.create_stream(arn.rpartition("/")[2], 3)
    all_end(fleet, fleet.start("c"), "StreamRecreatedError: ")
