"""Hold what the embedded AWS knows, and serve the requests that show and change it."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple

import msgspec
from aiohttp import web

from kinesumer.errors import KinesumerError
from kinesumer.testing.embedded_aws.dynamodb import DynamoDB, Units
from kinesumer.testing.embedded_aws.faults import Call, Faults
from kinesumer.testing.embedded_aws.identity import Identities
from kinesumer.testing.embedded_aws.table_changes import TableChanges
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.kinesis.requests import AwsError
from kinesumer.testing.kinesis.service import Kinesis
from kinesumer.testing.table_streams.service import TableStreams
from kinesumer.testing.table_streams.settings import TableStreamSettings

# Greatest number of requests in ``latest``. The counters include older requests, too.
MAX_ENTRIES = 20_000


class AdjustableClock:
    """The services' own time, which can be advanced and never goes back."""

    def __init__(self) -> None:
        # Use the monotonic clock, so that changes of the machine's clock don't move the
        # services' time backwards.
        self._ahead = time.time() - time.monotonic()
        self._stopped_at: float | None = None

    def now(self) -> float:
        """Return the seconds since 1970, rounded to milliseconds."""
        ticks = time.monotonic() if self._stopped_at is None else self._stopped_at
        return round(ticks + self._ahead, 3)

    def stop(self) -> None:
        """Stop the clock. After that, only ``advance()`` changes it."""
        self._stopped_at = time.monotonic()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        if seconds < 0:
            raise ValueError("seconds is negative: the clock can only advance")
        self._ahead += seconds


class Entry(NamedTuple):
    """One request and its result."""

    at: float
    service: str
    operation: str
    resource: str
    shard: str | None
    account: str
    caller: str
    user_agent: str
    status: int
    # The error code, or "dropped" or "refused" if a fault closed the connection.
    error: str | None
    read_units: float
    write_units: float


class Count(NamedTuple):
    """The number of a caller's requests with equal operation, resource and error."""

    service: str
    operation: str
    resource: str
    caller: str
    error: str | None
    requests: int
    read_units: float
    write_units: float


class RequestLog:
    """The requests of all callers: counters, and the latest requests in order."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str, str | None], Count] = {}
        self.latest: deque[Entry] = deque(maxlen=MAX_ENTRIES)

    def add(
        self,
        call: Call,
        *,
        at: float,
        status: int,
        error: str | None,
        units: Units,
    ) -> None:
        """Add one request."""
        key = (call.service, call.operation, call.resource, call.caller, error)
        count = self._counts.get(key, Count(*key, 0, 0.0, 0.0))
        self._counts[key] = count._replace(
            requests=count.requests + 1,
            read_units=count.read_units + units.read,
            write_units=count.write_units + units.write,
        )
        self.latest.append(Entry(at, *call[:7], status, error, *units))

    def counts(self) -> list[Count]:
        """Return the counters, one for each caller, action, resource and error."""
        return list(self._counts.values())

    def count(self, service: str = "", operation: str = "") -> int:
        """Return the number of requests of a service and operation."""
        return sum(
            count.requests
            for count in self.counts()
            if service in ("", count.service) and operation in ("", count.operation)
        )

    def clear(self) -> None:
        """Remove all requests and counters."""
        self._counts.clear()
        self.latest.clear()


class ServiceState:
    """Accounts, streams, tables, faults and the request log.

    The server's event loop and other threads use this object. Hold ``lock`` while you
    use any attribute except ``dynamodb`` and ``clock``.
    """

    def __init__(
        self, limits: Limits, stream_settings: TableStreamSettings, seed: int
    ) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.clock: AdjustableClock = AdjustableClock()
        self.identities: Identities = Identities(lambda: uuid.uuid4().hex)
        self.faults: Faults = Faults(random.Random(seed))
        self.journal: RequestLog = RequestLog()
        self.kinesis: Kinesis = Kinesis(limits)
        self.table_streams: TableStreams = TableStreams(stream_settings)
        self.dynamodb: DynamoDB = DynamoDB(
            TableChanges(self.table_streams, self.lock, self.clock.now)
        )


# --- control over HTTP ---------------------------------------------------------------


class Control:
    """Serves ``/_kinesumer/…``, without authentication, only on 127.0.0.1.

    A POST request has the arguments of a method of ``EmbeddedAws`` as JSON. Those that
    change a table's shards return the open ones.

    | path | GET | POST | DELETE |
    |---|---|---|---|
    | ``health`` | check that the server runs | | |
    | ``faults`` | the active faults | ``fault()``; returns its number | all faults |
    | ``requests`` | counters and the latest requests | | the log |
    | ``denials`` | | ``deny()`` | all denials and policies |
    | ``accounts`` | | ``account()``; returns its credentials | |
    | ``keys`` | | ``replace_keys()``; returns the new ones | |
    | ``roles`` | | ``create_role()``; returns its ARN | |
    | ``clock`` | the services' time | ``advance()`` | |
    | ``table-rollovers`` | | ``table_streams.roll_over()`` | |
    | ``table-splits`` | | ``table_streams.split()`` | |
    | ``table-expiries`` | | ``table_streams.delete_expired_items()`` | |
    """

    PREFIX: ClassVar[str] = "/_kinesumer/"

    def __init__(self, aws: Any, state: ServiceState) -> None:
        # The type of ``aws`` is EmbeddedAws, whose module imports this one.
        clock = state.clock
        self._routes: dict[tuple[str, str], Callable[..., Any]] = {
            ("GET", "health"): lambda: {"status": "ok"},
            ("GET", "faults"): lambda: {"faults": state.faults.active(clock.now())},
            ("POST", "faults"): lambda **which: {"number": aws.fault(**which)},
            ("DELETE", "faults"): aws.clear_faults,
            ("GET", "requests"): lambda: _requests(state.journal),
            ("DELETE", "requests"): state.journal.clear,
            ("POST", "denials"): aws.deny,
            ("DELETE", "denials"): aws.allow,
            ("POST", "accounts"): lambda **which: aws.account(**which)._asdict(),
            ("POST", "keys"): lambda **which: aws.replace_keys(**which)._asdict(),
            ("POST", "roles"): lambda **role: {"arn": aws.create_role(**role).arn},
            ("GET", "clock"): lambda: {"now": clock.now()},
            ("POST", "clock"): aws.advance,
            ("POST", "table-rollovers"): _naming_shards(aws.table_streams.roll_over),
            ("POST", "table-splits"): _naming_shards(aws.table_streams.split),
            ("POST", "table-expiries"): lambda **which: {
                "deleted": aws.table_streams.delete_expired_items(**which)
            },
        }

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a control request."""
        name = http.path.removeprefix(self.PREFIX).rstrip("/")
        serve = self._routes.get((http.method, name))
        if serve is None:
            return _response(
                HTTPStatus.NOT_FOUND, {"error": f"nothing to {http.method} at {name}"}
            )
        body = await http.content.read() if http.method == "POST" else b"{}"
        try:
            arguments = msgspec.json.decode(body, type=dict[str, Any])
            return _response(HTTPStatus.OK, serve(**arguments) or {})
        except (
            AwsError,
            KinesumerError,
            msgspec.MsgspecError,
            ValueError,
            TypeError,
        ) as error:
            return _response(HTTPStatus.BAD_REQUEST, {"error": str(error)})


def _naming_shards(change: Callable[..., list[str]]) -> Callable[..., dict[str, Any]]:
    return lambda **which: {"open": change(**which)}


def _requests(journal: RequestLog) -> dict[str, Any]:
    return {
        "counts": [count._asdict() for count in journal.counts()],
        "latest": [entry._asdict() for entry in journal.latest],
    }


def _response(status: HTTPStatus, content: Any) -> web.Response:
    body = msgspec.json.encode(content)
    return web.Response(status=status, body=body, content_type="application/json")
