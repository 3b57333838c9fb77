"""The promises of producers and clients, end to end."""

from __future__ import annotations

import asyncio

from kinesumer import Kinesumer, Producer, Record, Start, Stream
from kinesumer.aws.account import DryRuns
from kinesumer.aws.kinesis import open_source
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.trial.acceptance.account import Account
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    CheckSkippedError,
    expect,
    expect_equal,
    registrar,
)
from kinesumer.testing.trial.acceptance.resources import ACTIVE_SECONDS

KEYS = 20
RECORDS = KEYS * KEYS
# A shard needs ten seconds to take these records.
FLOOD_RECORDS = int(10 * Limits().write_records_per_second)
FLOOD_BYTES = int(Limits().write_bytes_per_second / Limits().write_records_per_second)

CLIENT_CHECKS: list[Check[[Account, str]]] = []
OTHER_ACCOUNT_CHECKS: list[Check[[Account, str]]] = []
FAN_OUT_CLIENT_CHECKS: list[Check[[Account, str]]] = []
check = registrar(CLIENT_CHECKS)


@check(2)
async def kpl_aggregates_are_unpacked_in_order(account: Account, name: str) -> None:
    await account.streams.create(name, 2)
    retried = await put(account, Stream(name), range(RECORDS), aggregate=True)
    records = await consume(account, Stream(name), "kpl", RECORDS)
    unpacked = [r for r in records if r.sub_sequence_number is not None]
    expect(bool(unpacked), "no record came from an aggregate")
    expect_complete(records, RECORDS, once=retried == 0)


@check(1)
async def rights_are_proved_without_effect(account: Account, name: str) -> None:
    await account.streams.create(name)
    source = await open_source(account.clients, Stream(name))
    [shard] = await source.list_shards()
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    tries = DryRuns(source)
    if not await tries.read(iterator):
        raise CheckSkippedError("botocore or the endpoint doesn't know DryRun")
    expect(await tries.put(b"never stored"), "DryRun of PutRecords had an effect")
    await put(account, Stream(name), range(RECORDS))
    records = await consume(account, Stream(name), "dry", RECORDS)
    expect_complete(records, RECORDS, once=False)


@check(1)
async def a_shard_above_its_limits_loses_nothing(account: Account, name: str) -> None:
    await account.streams.create(name)
    stream = Stream(name)
    async with asyncio.TaskGroup() as tasks:
        putting = tasks.create_task(
            put(account, stream, range(FLOOD_RECORDS), FLOOD_BYTES)
        )
        reads = [
            tasks.create_task(consume(account, stream, app, FLOOD_RECORDS))
            for app in ("flood-a", "flood-b", "flood-c")
        ]
    for read in reads:
        expect_complete(read.result(), FLOOD_RECORDS, once=False, ordered=False)
    if putting.result() == 0:
        raise CheckSkippedError("nothing was lost, but the endpoint didn't throttle")


@registrar(OTHER_ACCOUNT_CHECKS)(1)
async def a_stream_of_another_account_is_consumed_by_its_role(
    account: Account, name: str
) -> None:
    other = account.other
    if other is None:
        raise CheckSkippedError("no --role-arn was given")
    await other.create(name)
    described = await (await other.source(name)).describe()
    stream = other.stream(described.arn)
    number = (other.role_arn or "").split(":")[4]
    expect(f":{number}:" in described.arn, "the stream isn't in the role's account")
    await put(account, stream, range(RECORDS))
    records = await consume(account, stream, "role", RECORDS)
    expect_complete(records, RECORDS, once=False)


@registrar(FAN_OUT_CLIENT_CHECKS)(1)
async def a_client_reads_by_fan_out(account: Account, name: str) -> None:
    await account.streams.create(name)
    await put(account, Stream(name), range(RECORDS))
    stream = Stream(name, fan_out="acceptance")
    records = await consume(account, stream, "fan-out", RECORDS)
    expect_complete(records, RECORDS, once=False)


# --- helpers --------------------------------------------------------------------------


async def put(
    account: Account,
    stream: Stream,
    numbers: range,
    size: int = 0,
    *,
    aggregate: bool = False,
) -> int:
    """Put numbered records. Return how often a record was put again."""
    async with Producer(
        stream, aggregate=aggregate, ordered=size == 0, region=account.region
    ) as producer:
        for number in numbers:
            data = b"%020d" % number
            await producer.put(
                data.ljust(size, b"."), partition_key=f"key-{number % KEYS}"
            )
        await producer.flush()
        return producer.counts.retried


async def consume(
    account: Account,
    stream: Stream,
    app: str,
    count: int,
) -> list[Record]:
    """Consume a stream from its beginning until ``count`` different records arrived."""
    found: list[Record] = []
    numbers: set[int] = set()
    client = Kinesumer(app, table=account.names.table, region=account.region)
    try:
        async with asyncio.timeout(ACTIVE_SECONDS), client:
            async for record in client.consume(stream, start=Start.TRIM_HORIZON):
                found.append(record)
                numbers.add(number_of(record))
                if len(numbers) >= count:
                    break
    except TimeoutError:
        raise CheckFailedError(
            f"{len(numbers):,} of {count:,} records arrived in {ACTIVE_SECONDS:g} s"
        ) from None
    return found


def number_of(record: Record) -> int:
    """Return the number in a record's data."""
    return int(record.data[:20])


def expect_complete(
    records: list[Record], count: int, *, once: bool, ordered: bool = True
) -> None:
    """Raise CheckFailedError if records are missing, repeated or out of order.

    A producer may put a record twice if a response was lost. Its first arrival counts.
    """
    first = list(dict.fromkeys(map(number_of, records)))
    missing = sorted(set(range(count)) - set(first))
    expect(not missing, f"{len(missing):,} records were lost (first: {missing[:5]})")
    if once:
        expect_equal(len(records), count, "deliveries")
    if ordered:
        for key in range(KEYS):
            of_key = [number for number in first if number % KEYS == key]
            expect(of_key == sorted(of_key), f"key-{key} is out of order: {of_key}")
