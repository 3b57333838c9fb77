"""The embedded AWS: an HTTP server on 127.0.0.1, and methods to control it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, TextIO

from aiohttp import web

from kinesumer.errors import ConfigurationError
from kinesumer.local.control import Control
from kinesumer.local.faults import Fault, Kind
from kinesumer.local.gateway import Gateway
from kinesumer.local.identity import (
    DEFAULT_ACCOUNT,
    Credentials,
    Denial,
    Role,
    read_policy,
)
from kinesumer.local.kinesis import resharding
from kinesumer.local.kinesis.limits import Limits
from kinesumer.local.kinesis.reading import store
from kinesumer.local.kinesis.service import Caller, stream_arn
from kinesumer.local.kinesis.tokens import hash_key
from kinesumer.local.state import ServiceState
from kinesumer.wire.table_definition import DEFINITION, STATE_STORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kinesumer.local.kinesis.shards import Stream
    from kinesumer.local.request_log import RequestLog


DEFAULT_REGION = "us-east-1"
ACCEPTING_TURNS = 3
"""Turns of asyncio's loop after which a server knows a connection that has arrived."""


class EmbeddedAws:
    """Kinesis, DynamoDB and STS on one endpoint, as an async context manager.

    Its other methods may be called from any thread, and go around the limits. A stream
    is given by its ARN, or by its name in the default account and region.
    """

    def __init__(
        self, *, port: int = 0, limits: Limits | None = None, seed: int = 0
    ) -> None:
        self.port = port
        self._world = ServiceState(limits or Limits(), seed)
        self._control, self._gateway = Control(self._world), Gateway(self._world)
        self._runner: web.ServerRunner | None = None
        self._socket: socket.socket | None = None

    async def __aenter__(self) -> Self:
        if find_spec("moto") is None:
            raise ConfigurationError(
                "the embedded AWS needs moto: pip install 'kinesumer[local]'"
            )
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, read_bufsize=1 << 20),
            shutdown_timeout=0.1,
        )
        await self._runner.setup()
        try:
            self._socket = socket.create_server(("127.0.0.1", self.port))
        except OSError as error:
            await self.__aexit__()
            raise ConfigurationError(
                f"127.0.0.1:{self.port} can't be served: {error.strerror}; "
                "choose another port, or 0 for a free one"
            ) from error
        await web.SockSite(self._runner, self._socket).start()
        self.port = self._socket.getsockname()[1]
        self._world.dynamodb.warm_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            # The server learns of an accepted connection a few turns later. Closing it
            # earlier would leave that connection open.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _turn in range(ACCEPTING_TURNS):
                await asyncio.sleep(0)
        if self._runner is not None:
            await self._runner.cleanup()
        self._world.dynamodb.close()

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
        with self._world.lock:
            return self._world.identities.account(account)

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
        """Create a role; ``session_seconds`` makes its credentials expire early."""
        with self._world.lock:
            return self._world.identities.create_role(
                name,
                account=account,
                trusted=trusted,
                external_id=external_id,
                actions=actions,
                session_seconds=session_seconds,
            )

    def deny(self, action: str, resource: str = "*", caller: str = "*") -> None:
        """Deny an action from now on. Patterns such as ``kinesis:Get*`` are allowed."""
        with self._world.lock:
            self._world.identities.denials.append(Denial(action, resource, caller))

    def restrict(self, policy: Mapping[str, object], caller: str = "*") -> None:
        """Allow callers (a pattern of their ARN) only what an IAM policy allows.

        Several policies of one caller add up. A policy's statements may have ``Allow``,
        actions and resources, with ``*``; raises msgspec.ValidationError for more.
        """
        restriction = read_policy(policy, caller)
        with self._world.lock:
            self._world.identities.policies.append(restriction)

    def allow(self) -> None:
        """Remove all denials and restrictions."""
        with self._world.lock:
            self._world.identities.denials.clear()
            self._world.identities.policies.clear()

    # --- streams and tables ----------------------------------------------------------

    def create_stream(
        self,
        name: str,
        shards: int = 1,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
        mode: str = "PROVISIONED",
    ) -> str:
        """Create a stream and return its ARN."""
        world = self._world
        with world.lock:
            world.identities.account(account)
            place, now = Caller(account, region), world.clock.now()
            return world.kinesis.create(place, name, shards, now, mode=mode).arn

    def delete_stream(self, stream: str) -> None:
        """Delete a stream."""
        with self._world.lock:
            found = self._stream(stream)
            self._world.kinesis.delete(found, self._world.clock.now())

    def put(
        self,
        stream: str,
        data: bytes,
        partition_key: str | None = "key",
        *,
        explicit_hash_key: int | None = None,
    ) -> tuple[str, str]:
        """Store one record; return its shard and sequence number.

        A record without a partition key goes to its explicit hash key, else to 0.
        """
        with self._world.lock:
            found = self._stream(stream)
            routed = explicit_hash_key or 0
            if explicit_hash_key is None and partition_key is not None:
                routed = hash_key(partition_key)
            shard = found.route(routed)
            now = self._world.clock.now()
            return shard.shard_id, store(found, shard, data, partition_key, now)

    def split(self, stream: str, shard_id: str, at: int | None = None) -> None:
        """Split an open shard in the middle, or at a hash key."""
        with self._world.lock:
            found, now = self._stream(stream), self._world.clock.now()
            shard = resharding.open_shard(found, shard_id, now)
            middle = (shard.first_hash + shard.last_hash + 1) // 2
            at_hash = middle if at is None else at
            resharding.require_inside(found, shard, at_hash)
            found.split(shard, at_hash, now)

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        """Merge two adjacent open shards."""
        with self._world.lock:
            found, now = self._stream(stream), self._world.clock.now()
            left = resharding.open_shard(found, shard_id, now)
            right = resharding.open_shard(found, adjacent_shard_id, now)
            resharding.require_adjacent(found, left, right)
            found.merge(left, right, now)

    def open_shards(self, stream: str) -> list[str]:
        """Return the ids of the open shards in order of their hash keys."""
        with self._world.lock:
            return [shard.shard_id for shard in self._stream(stream).open]

    def create_table(
        self,
        name: str = STATE_STORE,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
    ) -> None:
        """Create a state store."""
        body = json.dumps({"TableName": name, **DEFINITION}).encode()
        self.dynamodb("CreateTable", body, account=account, region=region)

    def dynamodb(
        self,
        operation: str,
        body: bytes,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
    ) -> Any:
        """Execute a DynamoDB request directly. Raise RuntimeError if it fails."""
        future = self._world.dynamodb.submit(account, region, operation, body)
        answer = future.result()
        if answer.error is not None:
            raise RuntimeError(f"{operation}: {answer.body.decode()}")
        return json.loads(answer.body)

    def _stream(self, stream: str) -> Stream:
        default = Caller(DEFAULT_ACCOUNT, DEFAULT_REGION)
        arn = stream if stream.startswith("arn:") else stream_arn(default, stream)
        return self._world.kinesis.stream(arn, self._world.clock.now())

    # --- time, faults, journal -------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Advance the services' clock, so that iterators expire and records age."""
        self._world.clock.advance(seconds)

    def stop_clock(self) -> None:
        """Stop the services' clock except for ``advance()``, to test limits."""
        self._world.clock.stop()

    def fault(self, kind: Kind, **which: Any) -> int:
        """Add a fault and return its number. See ``Fault`` for the fields."""
        with self._world.lock:
            fault = Fault(kind=kind, **which)
            return self._world.faults.add(fault, self._world.clock.now())

    def outage(self, seconds: float, service: str = "dynamodb") -> int:
        """Make a service unavailable for some seconds."""
        return self.fault("refuse", service=service, seconds=seconds)

    def clear_faults(self, number: int | None = None) -> None:
        """End one fault, or all faults."""
        with self._world.lock:
            self._world.faults.remove(number)

    @property
    def journal(self) -> RequestLog:
        """The log of all requests."""
        return self._world.journal


async def serve(aws: EmbeddedAws, out: TextIO) -> None:
    """Write the shell's environment variables, and serve until SIGINT or SIGTERM."""
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
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_run(aws, started)), name="kinesumer-local"
    )
    thread.start()
    try:
        loop, stop = started.result()
        try:
            yield aws
        finally:
            loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join()


async def _run(
    aws: EmbeddedAws,
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    stop = asyncio.Event()
    try:
        await aws.__aenter__()
    except BaseException as error:
        started.set_exception(error)
        return
    try:
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
    finally:
        await aws.__aexit__()
