"""Find out which live clients read a stream by fan-out, and which poll instead."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.runtime.text import abbreviate
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.model.rows import MemberRow

# A client writes the time into its row every two minutes. If an app's last client was
# killed, no other client marks its row as dead, so an old time must end its use.
LIVE_SECONDS = 300.0
MAX_CLIENTS_NAMED = 3


class ConsumerUse(NamedTuple):
    """The live clients of an app that request a stream consumer of one stream."""

    consumer: str
    clients: tuple[str, ...]  # the ids of the clients that read by fan-out
    polling: Mapping[str, str]  # by id of each client that polls instead: why

    def report(self) -> dict[str, Any]:
        """Return the use as JSON."""
        return {
            "consumer": self.consumer,
            "clients": list(self.clients),
            "polling": [
                {"client_id": client_id, "problem": problem}
                for client_id, problem in self.polling.items()
            ],
        }

    def problems(self) -> Iterator[str]:
        """Yield why clients poll, with one text for all clients of the same problem."""
        clients: dict[str, list[str]] = defaultdict(list)
        for client_id, problem in self.polling.items():
            clients[problem].append(client_id)
        for problem, ids in clients.items():
            names = abbreviate(ids, MAX_CLIENTS_NAMED)
            verb = "polls" if len(ids) == 1 else "poll"
            yield f"{names} {verb} instead of fan-out {self.consumer}: {problem}"


def uses_of_stream(members: Iterable[MemberRow], arn: str) -> list[ConsumerUse]:
    """Return how the members use each consumer of a stream, by the consumer's name."""
    found: dict[str, ConsumerUse] = {}
    for member in members:
        if (use := member.fan_out.get(arn)) is None:
            continue
        before = found.get(use.consumer, ConsumerUse(use.consumer, (), {}))
        if use.problem:
            polling = {**before.polling, member.client_id: use.problem}
            found[use.consumer] = before._replace(polling=polling)
        else:
            clients = (*before.clients, member.client_id)
            found[use.consumer] = before._replace(clients=clients)
    return [found[name] for name in sorted(found)]


def use_text(use: Mapping[str, Any]) -> str:
    """Return a reported use in words: "fan-out billing (1 client, 1 polls instead)"."""
    clients, polling = len(use["clients"]), len(use["polling"])
    counts = [
        *([f"{clients} client{'s' * (clients != 1)}"] if clients else []),
        *([f"{polling} poll{'s' * (polling == 1)} instead"] if polling else []),
    ]
    return f"fan-out {use['consumer']} ({', '.join(counts)})"


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
