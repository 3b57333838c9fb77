"""``kinesumer status`` shows what can't be read, and survives how much there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kinesumer.admin.lag import Lags
from kinesumer.admin.snapshot import Snapshot, read_snapshot
from kinesumer.admin.status import report
from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.wire import rows
from tests.integration.cli.conftest import aws, environment, run
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.hands import NULL, member_key, put, shard_keys, spoil
from tests.system.hostile.steps import growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Run

__all__ = ["aws", "environment", "run"]


async def told(world: World) -> dict[str, Any]:
    """Return what status tells, as it comes out of JSON."""
    found = await read_snapshot(world.table, APP)
    told: dict[str, Any] = json.loads(
        json.dumps(report(APP, "table", found, Lags({}, {}), {}))
    )
    return told


@in_virtual_time
async def test_rows_that_cannot_be_read_are_problems_and_the_rest_is_shown(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    clients = [world.client(name) for name in ("c1", "c2")]
    await world.until(lambda: sum(len(client.held) for client in clients) == 2)
    broken = [
        (shard_keys(world)["shardId-000000000000"], "epoch"),
        (member_key("c1"), "lease_ms"),
        (rows.leader_key(APP), "client_id"),
    ]
    for key, attribute in broken:
        await spoil(world, key, **{attribute: NULL})
    put(world, {"pk": f"group#{APP}", "sk": "stream#payments", "start": "?"})
    answer = await told(world)
    for pk, sk, attribute in [
        *((*key, attribute) for key, attribute in broken),
        (f"group#{APP}", "stream#payments", "stream_created_at"),
    ]:
        start = f"state store row pk={pk!r} sk={sk!r}: attribute {attribute}"
        assert any(problem.startswith(start) for problem in answer["problems"])
    assert [member["client_id"] for member in answer["members"]] == ["c2"]
    (stream,) = answer["streams"]
    assert [s["shard_id"] for s in stream["shards"]] == ["shardId-000000000001"]
    assert stream["shards"][0]["owner"] == "c2"


def test_the_command_names_rows_that_it_cannot_read(aws: EmbeddedAws, run: Run) -> None:
    import boto3

    assert run("init").exit_code == 0
    table = boto3.resource("dynamodb").Table("kinesumer-state-store")
    for row in (
        {"pk": f"member#{APP}", "sk": "c1", "session": None},
        {"pk": f"leader#{APP}", "sk": "leader", "leader_epoch": {"a": 1}},
        {"pk": f"group#{APP}", "sk": f"stream#{ARN}", "stream_created_at": b"1"},
    ):
        table.put_item(Item=row)
    result = run("status", "--app", APP, "--json", "--no-lag")
    assert result.exit_code == 0, result.stderr
    problems = " ".join(json.loads(result.stdout)["problems"])
    assert "sk='c1': attribute session '{\"NULL\": true}' can't be read" in problems
    assert "sk='leader': attribute session is missing" in problems
    assert f"sk='stream#{ARN}': attribute stream_created_at" in problems
    assert "sk='c1'" in run("status", "--app", APP, "--no-lag").stdout
    spread = run("distribution", "--app", APP, "--json")
    assert spread.exit_code == 0, spread.stderr
    problems = " ".join(json.loads(spread.stdout)["problems"])
    assert f"sk='stream#{ARN}': attribute stream_created_at" in problems


def test_what_status_does_grows_with_the_fleet_and_not_with_its_square() -> None:
    def work(size: int) -> Callable[[], object]:
        step = HASH_KEYS // size
        places = range(size)
        found = Snapshot(
            [
                MemberRow(
                    f"c{n:05}",
                    f"s{n}",
                    range=(Interval(ARN, n * step, (n + 1) * step - 1),),
                )
                for n in places
            ],
            LeaderRow("s0", "c00000", 1),
            [StreamRow(ARN, 1.0, Start.LATEST, baseline=True)],
            {
                ARN: [
                    ShardRow(
                        ShardKey(ARN, f"shardId-{n}"),
                        n * step,
                        (n + 1) * step - 1,
                        Start.LATEST,
                        owner=f"s{n}",
                        owner_id=f"c{n:05}",
                        ready=True,
                    )
                    for n in places
                ]
            },
        )

        def tell() -> None:
            answer = report(APP, "table", found, Lags({}, {}), {})
            assert answer["streams"][0]["states"] == {"owned": size}
            assert {member["shards"] for member in answer["members"]} == {1}

        return tell

    assert growth(work) < 5
