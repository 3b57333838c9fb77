"""How many shards an account may have, and how many clients a stream can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.operations.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.aws.account import AccountLimits
    from kinesumer.operations.doctor.seen import Seen

CHECK = "shard limits"
NEAR = 0.9


def account_full(limits: AccountLimits | None) -> Iterator[Finding]:
    """Tell that splits will be refused."""
    if limits is None or limits.open_shards < NEAR * limits.shard_limit:
        return
    yield Finding(
        CHECK,
        Severity.WARNING,
        "the account",
        f"{limits.open_shards:,} of {limits.shard_limit:,} shards are open in this "
        "region: splits and new streams are refused from there on",
        "ask AWS for a higher limit (Service Quotas), or merge shards",
    )


def idle(seen: Seen) -> Iterator[Finding]:
    """Tell of clients that have no shard, since there are fewer shards than clients."""
    rows = [row for page in seen.second.shards.values() for row in page]
    shards = sum(not row.ended and row.ready for row in rows)
    if shards and len(seen.takers) > shards:
        yield Finding(
            CHECK,
            Severity.NOTE,
            f"app {seen.app}",
            f"{len(seen.takers)} clients share {shards} shards: a shard is read by one",
            "spare clients take over at once when others die; for more throughput, "
            "split the shards",
        )
