"""Run the embedded AWS, an HTTP server on 127.0.0.1, and control it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Self, TextIO

import msgspec
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from kinesumer.config import STATE_STORE
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import require_list
from kinesumer.testing.embedded_aws.faults import Fault, Kind
from kinesumer.testing.embedded_aws.gateway import Gateway
from kinesumer.testing.embedded_aws.identity import (
    DEFAULT_ACCOUNT,
    DEFAULT_REGION,
    Credentials,
    Role,
    Rule,
    read_policy,
)
from kinesumer.testing.embedded_aws.state import Control, RequestLog, ServiceState
from kinesumer.testing.embedded_aws.table_stream_control import TableStreamControl
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.kinesis.operations import (
    record_kib,
    require_distribution,
)
from kinesumer.testing.kinesis.service import Caller, stream_arn
from kinesumer.testing.kinesis.streams import BY_KEY, Stream
from kinesumer.testing.table_streams.settings import TableStreamSettings
from kinesumer.wire.rows import DEFINITION

# Iterations of the event loop after which the server knows an accepted connection.
ACCEPTING_TURNS = 3


class EmbeddedAws:
    """Kinesis, DynamoDB and STS on one endpoint, as an async context manager.

    DynamoDB includes DynamoDB Streams, whose shards ``table_streams`` controls.
    The server runs until the context ends. The table of the state store exists from the
    start, under the name ``table``, unless that is None. All public methods may be
    called from any thread, and rate limits don't apply to them.
    An argument ``stream`` is an ARN, or a name in the default account and region.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        limits: Limits | None = None,
        seed: int = 0,
        table: str | None = STATE_STORE,
        table_stream_settings: TableStreamSettings | None = None,
    ) -> None:
        self.port: int = port
        if find_spec("moto") is None:
            raise ConfigurationError(
                "the embedded AWS needs moto: pip install 'kinesumer[local]'"
            )
        settings = table_stream_settings or TableStreamSettings()
        self._state = ServiceState(limits or Limits(), settings, seed)
        self.table_streams: TableStreamControl = TableStreamControl(self._state)
        self._control = Control(self, self._state)
        self._gateway = Gateway(self._state)
        self._runner: web.ServerRunner | None = None
        self._socket: socket.socket | None = None
        if table is not None:
            self.create_table(table)

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            # A PutRecords request has up to 10 MiB: read it in large pieces.
            web.Server(self._handle, access_log=None, read_bufsize=1 << 20),
            shutdown_timeout=0.1,
        )
        await self._runner.setup()
        try:
            self._socket = socket.create_server(("127.0.0.1", self.port))
        except OSError as error:
            await self.__aexit__()
            raise ConfigurationError(
                f"can't listen on 127.0.0.1:{self.port}: {error.strerror}; "
                "choose another port, or 0 for a free one"
            ) from error
        await web.SockSite(self._runner, self._socket).start()
        self.port = self._socket.getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            # Accept no more connections, and wait until the server knows those that it
            # has just accepted. Otherwise they would stay open.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _turn in range(ACCEPTING_TURNS):
                await asyncio.sleep(0)
        self._gateway.pushes.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._state.dynamodb.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(Control.PREFIX):
            return await self._control.handle(request)
        return await self._gateway.handle(request)

    # --- for clients -----------------------------------------------------------------

    @property
    def url(self) -> str:
        """The endpoint of all services."""
        return f"http://127.0.0.1:{self.port}"

    def environment(
        self, account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION
    ) -> dict[str, str]:
        """Return the environment variables that direct AWS's SDKs to this server."""
        credentials = self.account(account)
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            "AWS_DEFAULT_REGION": region,
            "AWS_REGION": region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    # --- accounts and permissions ----------------------------------------------------

    def account(self, account: str = DEFAULT_ACCOUNT) -> Credentials:
        """Return the credentials of an account, and create the account if it is new."""
        with self._state.lock:
            return self._state.identities.account(account)

    def replace_keys(
        self, account: str = DEFAULT_ACCOUNT, lifetime_seconds: float | None = None
    ) -> Credentials:
        """Replace an account's keys, and return the new ones. The old ones are refused.

        With ``lifetime_seconds``, the new keys are temporary.
        """
        with self._state.lock:
            return self._state.identities.replace_keys(
                account, self._state.clock.now(), lifetime_seconds
            )

    def create_role(
        self,
        name: str,
        *,
        account: str,
        trusted: Iterable[str] = (DEFAULT_ACCOUNT,),
        external_id: str | None = None,
        actions: Iterable[str] = ("*",),
        session_seconds: float | None = None,
    ) -> Role:
        """Create a role. ``session_seconds`` is the lifetime of its credentials."""
        role = Role(
            name=name,
            account=account,
            trusted=require_list("trusted", trusted),
            external_id=external_id,
            actions=require_list("actions", actions),
            session_seconds=session_seconds,
        )
        with self._state.lock:
            self._state.identities.add_role(role)
        return role

    def deny(self, action: str, resource: str = "*", caller: str = "*") -> None:
        """Deny an action, or a pattern of actions such as ``kinesis:Get*``."""
        with self._state.lock:
            self._state.identities.denials.append(Rule(action, resource, caller))

    def restrict(self, policy: Mapping[str, object], caller: str = "*") -> None:
        """Allow callers only what an IAM policy allows.

        ``caller`` is a pattern of ARNs. With several policies, a caller may do what any
        of them allows. A statement has the effect ``Allow``, and actions and resources,
        which may contain ``*``. Raise msgspec.ValidationError for other statements.
        """
        rules = read_policy(policy, caller)
        with self._state.lock:
            self._state.identities.allowed += rules

    def allow(self) -> None:
        """Remove all denials and restrictions."""
        with self._state.lock:
            self._state.identities.denials.clear()
            self._state.identities.allowed.clear()

    # --- streams and tables ----------------------------------------------------------

    def create_stream(
        self,
        name: str,
        shards: int = 1,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
        mode: str = "PROVISIONED",
        distribution: str = BY_KEY,
    ) -> str:
        """Create a stream and return its ARN.

        ``distribution`` may be AUTO for a stream whose mode is ON_DEMAND.
        """
        state = self._state
        with state.lock:
            state.identities.account(account)
            caller, now = Caller(account, region), state.clock.now()
            stream = state.kinesis.create(
                caller, name, shards, now, mode=mode, distribution=distribution
            )
            return stream.arn

    def change_stream(
        self,
        stream: str,
        *,
        distribution: str | None = None,
        max_record_kib: int | None = None,
    ) -> None:
        """Change the strategy of distribution, or the size of the largest record."""
        with self._opened(stream) as (target, _):
            if distribution is not None:
                require_distribution(target.mode, distribution)
                target.distribution = distribution
            if max_record_kib is not None:
                target.max_record_kib = record_kib(max_record_kib)

    def delete_stream(self, stream: str) -> None:
        """Delete a stream."""
        with self._opened(stream) as (target, now):
            self._state.kinesis.delete(target, now)

    def put(
        self,
        stream: str,
        data: bytes,
        partition_key: str | None = "key",
        *,
        explicit_hash_key: int | None = None,
    ) -> tuple[str, str]:
        """Store one record. Return its shard and sequence number.

        The explicit hash key has priority over the partition key. Without both, the
        hash key is 0. With AUTO, no key selects the shard.
        """
        with self._opened(stream) as (target, now):
            shard = target.choose(partition_key, explicit_hash_key)
            return shard.shard_id, target.append(shard, data, partition_key, now)

    def split(self, stream: str, shard_id: str, at: int | None = None) -> None:
        """Split an open shard in the middle, or at a hash key."""
        with self._opened(stream) as (target, now):
            target.split(*target.require_splittable(shard_id, at), now)

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        """Merge two adjacent open shards."""
        with self._opened(stream) as (target, now):
            target.merge(*target.require_mergeable(shard_id, adjacent_shard_id), now)

    def open_shards(self, stream: str) -> list[str]:
        """Return the ids of the open shards in order of their hash keys."""
        with self._opened(stream) as (target, _):
            return [shard.shard_id for shard in target.open]

    def create_table(
        self,
        name: str = STATE_STORE,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
    ) -> None:
        """Create the table of a state store, unless it exists."""
        body = json.dumps({"TableName": name, **DEFINITION}).encode()
        try:
            self.dynamodb("CreateTable", body, account=account, region=region)
        except RuntimeError as error:
            if "ResourceInUseException" not in str(error):
                raise

    def dynamodb(
        self,
        operation: str,
        body: bytes,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
    ) -> Any:
        """Execute a DynamoDB request without HTTP. Raise RuntimeError if it fails."""
        future = self._state.dynamodb.submit(account, region, operation, body)
        answer = future.result()
        if answer.error is not None:
            raise RuntimeError(f"{operation}: {answer.body.decode()}")
        return json.loads(answer.body)

    @contextmanager
    def _opened(self, stream: str) -> Iterator[tuple[Stream, float]]:
        """Hold the lock during the block. Yield the stream and the services' time."""
        arn = stream
        if not stream.startswith("arn:"):
            arn = stream_arn(Caller(DEFAULT_ACCOUNT, DEFAULT_REGION), stream)
        with self._state.lock:
            now = self._state.clock.now()
            yield self._state.kinesis.stream(arn, now), now

    # --- time, faults, journal -------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Advance the services' clock, so that iterators expire and records age."""
        with self._state.lock:
            self._state.clock.advance(seconds)
            # Subscriptions send what is due at the new time.
            self._state.kinesis.wake_subscriptions()

    def stop_clock(self) -> None:
        """Stop the services' clock. After that, only ``advance()`` changes it."""
        self._state.clock.stop()

    def fault(self, kind: Kind, **which: Any) -> int:
        """Add a fault with the given fields of ``Fault``. Return its number."""
        fault = msgspec.convert({"kind": kind, **which}, Fault)
        with self._state.lock:
            return self._state.faults.add(fault, self._state.clock.now())

    def outage(self, seconds: float, service: str = "dynamodb") -> int:
        """Make a service unavailable for some seconds."""
        return self.fault("refuse", service=service, seconds=seconds)

    def clear_faults(self, number: int | None = None) -> None:
        """Remove one fault, or all faults."""
        with self._state.lock:
            self._state.faults.remove(number)

    @property
    def limits(self) -> Limits:
        """The limits of accounts, and of the streams that are created from now on."""
        return self._state.kinesis.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        with self._state.lock:
            self._state.kinesis.limits = limits

    @property
    def journal(self) -> RequestLog:
        """The log of all requests."""
        return self._state.journal


async def serve(aws: EmbeddedAws, out: TextIO) -> None:
    """Write shell commands that set variables, and serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with aws:
        for name, value in aws.environment().items():
            out.write(f"export {name}={value}\n")
        out.write("unset AWS_PROFILE AWS_SESSION_TOKEN\n")
        out.flush()
        await stop.wait()


@contextmanager
def background(aws: EmbeddedAws) -> Iterator[EmbeddedAws]:
    """Serve on another thread while the block runs."""
    with (
        start_blocking_portal(name="kinesumer-local") as portal,
        portal.wrap_async_context_manager(aws),
    ):
        yield aws
