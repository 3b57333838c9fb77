"""Run the recipe for Dask, and kill its client while tasks wait and while they run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dask.distributed import Client

from kinesumer.testing import EmbeddedAws
from tests.integration.examples.conftest import stored_rows
from tests.support.clock import wait_until
from tests.support.crowd import EXAMPLES, ended, killed_app, running_app
from tests.support.dask_cluster import dask_scheduler, dask_worker

pytestmark = pytest.mark.process

FOLDER = EXAMPLES / "dask"
SHARDS = 2


class Orders:
    """A stream of orders, and the files that tasks make of them."""

    def __init__(self, aws: EmbeddedAws, output: Path) -> None:
        self._aws, self._output = aws, output
        self._count = 0
        aws.create_stream("orders", shards=SHARDS)

    def put(self, count: int) -> None:
        for total in range(self._count, self._count + count):
            data = json.dumps({"customer": "ann", "total": total}).encode()
            self._aws.put("orders", data, f"key {total}")
        self._count += count

    def stored(self) -> list[float | None]:
        """Return the totals of the orders in the files, each order once."""
        orders = [row["order"] for row in stored_rows(self._output)]
        totals = [order and order["total"] for order in orders]
        return sorted(totals, key=lambda total: (total is None, total))

    def are_stored(self) -> bool:
        return self.stored() == [*range(self._count)]


@pytest.fixture
def orders(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Orders:
    output = tmp_path / "output"
    output.mkdir()
    monkeypatch.setenv("OUTPUT", str(output))
    return Orders(kinesumer_aws, output)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with dask_scheduler(FOLDER, tmp_path / "scheduler.json") as address:
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
        yield address


def is_read(aws: EmbeddedAws) -> bool:
    """Tell whether each shard was read three times: its records have come by then."""
    entries = aws.journal.latest.copy()
    reads = Counter(each.shard for each in entries if each.operation == "GetRecords")
    return len(reads) == SHARDS and min(reads.values()) >= 3


def test_a_killed_client_loses_no_record_and_tasks_of_a_shard_follow_each_other(
    orders: Orders, scheduler: str, kinesumer_aws: EmbeddedAws
) -> None:
    most_tasks = 0
    with Client(scheduler) as client:  # type: ignore[no-untyped-call]

        def tasks() -> int:
            nonlocal most_tasks
            count = len(client.who_has())
            most_tasks = max(most_tasks, count)
            return count

        def holds(wanted: Callable[[], object]) -> bool:
            tasks()
            return bool(wanted())

        orders.put(30)
        with killed_app("dask", "app:app"):
            # There is no worker yet: a task waits for each shard.
            wait_until(lambda: tasks() == SHARDS, "tasks wait")
            orders.put(30)
            kinesumer_aws.journal.clear()
            wait_until(lambda: holds(lambda: is_read(kinesumer_aws)), "reads")
        wait_until(lambda: tasks() == 0, "Dask forgets the tasks of the dead client")
        with dask_worker(scheduler, FOLDER):
            with killed_app("dask", "app:app"):
                wait_until(lambda: holds(orders.stored), "a task is done")
                orders.put(30)
            orders.put(30)
            with running_app("dask", "app:app"):
                wait_until(lambda: holds(orders.are_stored), "all is stored")
                kinesumer_aws.put("orders", b"no JSON", "bad")
                wait_until(lambda: None in orders.stored(), "a bad record is stored")
    # So a shard's tasks run in order, and no further batch waits in Dask.
    assert most_tasks == SHARDS


def test_a_client_that_has_lost_dask_ends_and_the_next_one_loses_no_record(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long Dask's client tries to connect again.
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    orders.put(30)
    with ExitStack() as stack:
        with dask_scheduler(FOLDER, tmp_path / "first.json") as address:
            monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
            process = stack.enter_context(killed_app("dask", "app:app"))
            with Client(address) as client:  # type: ignore[no-untyped-call]
                wait_until(lambda: len(client.who_has()) == SHARDS, "tasks wait")
        assert "the handler failed" in ended(process, returncode=1)
    with (
        dask_scheduler(FOLDER, tmp_path / "second.json") as address,
        dask_worker(address, FOLDER),
    ):
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
        with running_app("dask", "app:app"):
            wait_until(orders.are_stored, "all is stored")
