"""Find out which live clients read a stream by fan-out, and which poll instead."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from kinesumer.runtime.text import counted, first_three
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.model.rows import MemberRow

# A client writes the time into its row every two minutes. If an app's last client was
# killed, no other client marks its row as dead, so an old time must end its use.
LIVE_SECONDS = 300.0


class PollingClient(msgspec.Struct, frozen=True):
    """A client that polls although it requests fan-out, and why."""

    client_id: str
    problem: str


class ConsumerUse(msgspec.Struct, frozen=True):
    """The live clients of an app that request a stream consumer of one stream."""

    consumer: str
    clients: list[str]  # the ids of the clients that read by fan-out
    polling: list[PollingClient]

    @property
    def text(self) -> str:
        """The use in words: "fan-out billing (1 client, 1 polls instead)"."""
        clients, polling = len(self.clients), len(self.polling)
        counts = [
            *([counted(clients, "client")] if clients else []),
            *([f"{polling} poll{'s' * (polling == 1)} instead"] if polling else []),
        ]
        return f"fan-out {self.consumer} ({', '.join(counts)})"

    def problems(self) -> Iterator[str]:
        """Yield why clients poll, with one text for all clients of the same problem."""
        clients: dict[str, list[str]] = defaultdict(list)
        for one in self.polling:
            clients[one.problem].append(one.client_id)
        for problem, ids in clients.items():
            names = first_three(ids)
            verb = "polls" if len(ids) == 1 else "poll"
            yield f"{names} {verb} instead of fan-out {self.consumer}: {problem}"


def uses_of_stream(members: Iterable[MemberRow], arn: str) -> list[ConsumerUse]:
    """Return how the members use each consumer of a stream, by the consumer's name."""
    found: dict[str, ConsumerUse] = {}
    for member in members:
        if (use := member.fan_out.get(arn)) is None:
            continue
        known = found.setdefault(use.consumer, ConsumerUse(use.consumer, [], []))
        if use.problem:
            known.polling.append(PollingClient(member.client_id, use.problem))
        else:
            known.clients.append(member.client_id)
    return [found[name] for name in sorted(found)]


class LiveUses:
    """The apps in one table whose live clients request stream consumers."""

    def __init__(self, clients: Mapping[tuple[str, str], Counter[str]]) -> None:
        self._clients = clients

    def apps(self, stream_arn: str, consumer: str) -> Counter[str]:
        """Return the number of live clients of each app that request a consumer."""
        return self._clients.get((stream_arn, consumer), Counter())


async def read_live_uses(store: DynamoStateStore, now: float) -> LiveUses:
    """Read the rows of all clients in the table. ``now`` is in seconds since 1970."""
    clients: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in await store.scan(rows.member_key("", "").pk):
        # Only people see the result, so unreadable rows don't matter.
        for member in rows.parse_rows(rows.read_member, [row])[0]:
            at = rows.timestamp_seconds(member.last_update)
            if not member.dead and now - at <= LIVE_SECONDS:
                app = str(row["pk"]).removeprefix(rows.member_key("", "").pk)
                for arn, use in member.fan_out.items():
                    clients[arn, use.consumer][app] += 1
    return LiveUses(clients)
