"""Test rows of a KCL table that another version, a person or an attacker wrote."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.ops.group.distribution import report
from kinesumer.ops.migration.kcl import (
    distribution_of,
    read_table,
    resume_point_of_lease,
    streams_to_open,
)
from kinesumer.ops.migration.kcl_positions import plan_kcl_export, plan_kcl_import
from tests.support.kcl_fleet import ORDERS, S0, S1, World, leases
from tests.support.lease_table import lease
from tests.support.steps import growth

AGGREGATE = "49017952649043560000000000000000000000000000002300000000"

numbers = st.integers(-(10**38), 10**38).map(str) | st.sampled_from(["1E+125", "1.5"])
attributes: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"S": st.text(max_size=8) | numbers}),
    st.fixed_dictionaries({"N": numbers}),
    st.fixed_dictionaries({"B": st.binary(max_size=4)}),
    st.fixed_dictionaries({"SS": st.lists(st.text(max_size=4), min_size=1)}),
    st.just({"NULL": True}),
    st.just({"BOOL": True}),
    st.just({"L": []}),
    st.just({"M": {"S": {"S": "x"}}}),
    st.sampled_from(["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP", "SHARD_END"]).map(
        lambda text: {"S": text}
    ),
)
NAMES = (*lease(S0, "49"), "pendingCheckpoint", "throughputKBps", "childShardIds")
KEYS = (
    *(S0, S1, "", "shard 1", "a:b:c", "123456789012:orders:1:" + S0),
    *("123456789012:orders:01:" + S0, "123456789012:orders:" + "9" * 1900 + ":" + S0),
)


@example([{"leaseKey": {"S": S0}, "checkpoint": {"S": "49"}}])
@example([lease(S0, "AT_TIMESTAMP", 10**17)])
@example([lease(S0, "49", throughputKBps={"N": "1E+125"})])
@given(
    st.lists(
        st.builds(
            lambda key, changes: lease(key, "49") | changes,
            st.sampled_from(KEYS),
            st.dictionaries(st.sampled_from(NAMES), attributes, max_size=3),
        ),
        max_size=4,
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_any_lease_table_is_read_or_refused_with_a_message(
    items: list[dict[str, Any]],
) -> None:
    try:
        table = read_table(items)
    except ConfigurationError:
        return
    for at in (None, 1.0):
        for lease_row in table.leases:
            resume_point_of_lease(lease_row, at)
    report(distribution_of(table), "prefix")
    shards = [(row.stream, row.shard_id) for row in table.leases]
    assert len(set(shards)) == len({row.key for row in table.leases})
    with suppress(ConfigurationError):
        streams_to_open(table, ["orders"], "eu-west-1")


BAD = {
    "checkpoint": {"S": "yesterday"},
    "checkpointSubSequenceNumber": {"N": "-1"},
    "leaseCounter": {"S": "many"},
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_row_is_named_and_nothing_is_written(name: str) -> None:
    world, table = World(), leases("kclsingle")
    table.rows[S1][name] = BAD[name]
    before = dict(table.rows)
    with pytest.raises(ConfigurationError, match=f"'{S1}': {name} isn't that of"):
        await plan_kcl_import(world.context(), world.open, table, ["orders"])
    assert table.rows == before


async def test_a_start_in_the_future_is_named_and_nothing_is_written() -> None:
    world, table = World(), leases("kclsingle")
    table.rows[S1].update(lease(S1, "AT_TIMESTAMP", 10**13))
    planned = await plan_kcl_import(world.context(), world.open, table, ["orders"])
    [problem] = planned.problems
    assert problem.startswith(f"{ORDERS}: {S1}: the start 2286-11-20T17:46:40Z is in ")
    table.rows[S1].update(lease(S1, "AT_TIMESTAMP", 10**17))
    with pytest.raises(ConfigurationError, match="checkpointSubSequenceNumber"):
        await plan_kcl_import(world.context(), world.open, table, ["orders"])


@pytest.mark.parametrize("counter", [None, {"S": "7"}], ids=["none", "text"])
async def test_leases_are_unchanged_if_one_of_them_cannot_be_written(
    counter: dict[str, str] | None,
) -> None:
    world, table = World(), leases("kclsingle")
    planned = await plan_kcl_import(world.context(), world.open, table, ["orders"])
    await planned.write(world.context())
    table.rows[S1].pop("leaseCounter")
    if counter is not None:
        table.rows[S1]["leaseCounter"] = counter
    before = dict(table.rows)
    with pytest.raises(KinesumerError, match=f"'{S1}': leaseCounter is not a number"):
        await plan_kcl_export(world.context(), world.open, table, ["orders"])
    assert table.rows == before


def test_the_work_of_reading_leases_is_linear() -> None:
    def work(size: int) -> Any:
        items = [lease(f"shardId-{number:012}", "49") for number in range(size)]
        return lambda: report(distribution_of(read_table(items)), "prefix")

    assert growth(work) < 5
