"""Rows of a KCL table as another version, a human or an attacker might leave them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.admin.distribution import report
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.migration.kcl import Table, read_table, resume_point_of_lease
from kinesumer.migration.kcl_export import LeaseExport
from kinesumer.migration.kcl_import import LeaseImport
from kinesumer.migration.kcl_workers import spread_of, streams_to_open
from tests.integration.cli.lease_table import lease
from tests.system.hostile.steps import growth
from tests.unit.migration.fleet import ORDERS, S0, S1, World, leases

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
def test_a_table_is_read_or_refused_in_words(items: list[dict[str, Any]]) -> None:
    try:
        table = read_table(items)
    except ConfigurationError:
        return
    for at in (None, 1.0):
        for found in table.leases:
            resume_point_of_lease(found, at)
    report(spread_of(table), "prefix")
    places = [(found.stream, found.shard_id) for found in table.leases]
    assert len(set(places)) == len({found.key for found in table.leases})
    look_up(table)


def look_up(table: Table) -> None:
    try:
        streams_to_open(table, ["orders"], "eu-west-1")
    except ConfigurationError:
        return


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
        await LeaseImport(table, ["orders"]).draft(world.context(), world.open)
    assert table.rows == before


async def test_a_start_that_no_record_has_is_named_and_nothing_is_written() -> None:
    world, table = World(), leases("kclsingle")
    table.rows[S1].update(lease(S1, "AT_TIMESTAMP", 10**13))
    takeover = await LeaseImport(table, ["orders"]).draft(world.context(), world.open)
    [problem] = takeover.problems
    assert problem.startswith(f"{ORDERS}: {S1}: its start lies ")
    table.rows[S1].update(lease(S1, "AT_TIMESTAMP", 10**17))
    with pytest.raises(ConfigurationError, match="checkpointSubSequenceNumber"):
        await LeaseImport(table, ["orders"]).draft(world.context(), world.open)


@pytest.mark.parametrize("counter", [None, {"S": "7"}], ids=["none", "text"])
async def test_leases_that_could_not_all_be_written_are_left_as_they_are(
    counter: dict[str, str] | None,
) -> None:
    world, table = World(), leases("kclsingle")
    done = await LeaseImport(table, ["orders"]).draft(world.context(), world.open)
    await done.write(world.context())
    table.rows[S1].pop("leaseCounter")
    if counter is not None:
        table.rows[S1]["leaseCounter"] = counter
    before = dict(table.rows)
    export = LeaseExport(table, ["orders"], "us-east-1")
    with pytest.raises(KinesumerError, match=f"'{S1}': leaseCounter is not a number"):
        await export.draft(world.context(), world.open)
    assert table.rows == before


def test_reading_leases_grows_with_their_number_and_not_with_its_square() -> None:
    def work(size: int) -> Any:
        items = [lease(f"shardId-{number:012}", "49") for number in range(size)]
        return lambda: report(spread_of(read_table(items)), "prefix")

    assert growth(work) < 5
