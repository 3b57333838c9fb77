"""A query, its mirror and its sink with exactly the documented policies, and less.

The embedded AWS enforces the policies of ``schema/iam/`` as they are documented.
"""

from __future__ import annotations

import pytest

from kinesumer import AccessDeniedError
from tests.system.security.conftest import READING, WRITING, Accounts
from tests.system.security.documents import Grant, grants
from tests.system.security.queries import Query, put

pytestmark = pytest.mark.usefixtures("connections_of_spark")

NOT_CALLED = {
    # A query is alone: nobody watches, so nobody prunes what died long ago.
    Grant(
        "consumer", "dynamodb:Query", "${TABLE_ARN}/index/index-client-key-last-update"
    ),
    # Only rows of shards that Kinesis forgot; looked for each ten minutes.
    Grant("consumer", "dynamodb:DeleteItem", "${TABLE_ARN}"),
}
READ = [grant for grant in grants(*READING.values()) if grant not in NOT_CALLED]


def test_a_query_works_with_exactly_the_policies_of_a_consumer(
    accounts: Accounts,
) -> None:
    accounts.enforce(READING)
    query = Query(accounts)
    accounts.put(5)
    rows = query.batches(accounts.count)
    accounts.aws.split("orders", accounts.aws.open_shards("orders")[0])
    accounts.put(5)
    rows += query.batches(accounts.count - len(rows))
    assert sorted(map(int, rows)) == list(range(1, accounts.count + 1))
    query.reader.stop()
    called, denied = accounts.calls()
    assert called == {grant.action for grant in READ}
    assert not denied


@pytest.mark.parametrize("removed", READ, ids=str)
def test_a_query_names_the_one_action_that_it_lacks(
    accounts: Accounts, removed: Grant
) -> None:
    accounts.enforce(READING, removed)
    accounts.put(1)
    query = Query(accounts)
    with pytest.raises(AccessDeniedError) as raised:
        query.batch()
    assert accounts.named(removed, raised.value)
    accounts.aws.allow()
    query.reader.stop()


def test_a_sink_works_with_exactly_the_policies_of_a_producer(
    accounts: Accounts,
) -> None:
    accounts.enforce(WRITING)
    for stream in accounts.streams:
        put(stream)
    called, denied = accounts.calls()
    assert called == {grant.action for grant in grants(*WRITING.values())}
    assert not denied


@pytest.mark.parametrize("removed", grants(*WRITING.values()), ids=str)
def test_a_sink_names_the_one_action_that_it_lacks(
    accounts: Accounts, removed: Grant
) -> None:
    accounts.enforce(WRITING, removed)
    with pytest.raises(AccessDeniedError) as raised:
        for stream in accounts.streams:
            put(stream)
    assert accounts.named(removed, raised.value)
