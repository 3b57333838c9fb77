"""Test real KCL workers and clients in one fleet, under load and through faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesumer.testing import EmbeddedAws, background
from tests.system.kcl.fleet import FAILOVER_SECONDS, STREAM, Fleet, jars

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(params=["2.7.2", "3.4.0", "3.5.1"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    if not (jars(request.param) / "made").exists():
        pytest.skip("scripts/kcl_jars has fetched no KCL: it needs Maven and a JDK")
    with background(EmbeddedAws()) as aws:
        made = Fleet(aws, tmp_path, request.param)
        yield made
        made.close()


def test_workers_become_clients_and_workers_again_and_no_record_is_lost(
    fleet: Fleet,
) -> None:
    # Of workers of KCL 3 that start together on an empty table, some may give up.
    fleet.worker("w1")
    fleet.until_owned(w1=4)
    fleet.client("c1")
    fleet.until_owned(w1=1, c1=1)
    fleet.pause("c1", 2 * FAILOVER_SECONDS)
    fleet.until_owned(w1=1, c1=1)
    fleet.kill("w1")
    fleet.until_owned(c1=4)
    # Only the client has leases, so it alone ends the shards and begins the children.
    fleet.aws.split(STREAM, fleet.aws.open_shards(STREAM)[0])
    fleet.until_owned(c1=5)
    fleet.aws.merge(STREAM, *fleet.aws.open_shards(STREAM)[:2])
    fleet.until_owned(c1=4)
    fleet.client("c2")
    fleet.until_owned(c1=2, c2=2)
    fleet.worker("w2")
    fleet.stop("c1")
    fleet.kill("c2")
    fleet.until_owned(w2=4)
    fleet.client("c3")
    fleet.until_owned(w2=1, c3=1)
    fleet.stop("w2")
    fleet.until_owned(c3=4)
    fleet.finish()
    seen = fleet.seen()
    assert fleet.produced.keys() == seen.keys()
    repeats = Counter(
        tuple(name for _, name in times) for times in seen.values() if len(times) > 1
    )
    # A client that was stopped gave all its positions to those that were there.
    assert not {("c1", "c2"), ("c1", "w2")} & repeats.keys()
    print(len(seen), "records, processed more than once:", dict(repeats))
