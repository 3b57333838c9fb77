"""Define where a client gets its clock, its random numbers and its services."""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from kinesumer.config import Config, default_table
from kinesumer.coordination.heartbeat import HeartbeatTask, HeartbeatThread
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.coordination.state_store import StoreThread
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import QUERY_ID
from kinesumer.model.streams import Stream
from kinesumer.model.validation import require_text, validate_name
from kinesumer.ports import Clock, RowLeases, StateStore, StreamSource
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import IncidentLog
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.history import History
from kinesumer.telemetry.history_file import open_client_history
from kinesumer.telemetry.recorded_calls import recorded_source, recorded_store

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.session import ClientFactory, Loan

OpenStore = Callable[[], AbstractAsyncContextManager[StateStore]]


class Identity(NamedTuple):
    """The names of a client, its state store and its settings."""

    app: str
    client_id: str
    table: str
    region: str | None
    config: Config
    kcl_table: str | None = None  # the lease table of the KCL fleet to join

    @classmethod
    def checked(
        cls,
        app: str,
        client_id: str | None,
        table: str | None,
        region: str | None,
        config: Config,
        kcl_table: str | None = None,
    ) -> Self:
        """Return an identity, with a new client id and the default table for None.

        Raises ConfigurationError if a value can't be used.
        """
        if client_id is None:
            client_id = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        if table is None:
            table = default_table()
        names = {"app": app, "client_id": client_id, "table": table}
        for what, name in names.items():
            validate_name(what, name)
        if client_id == QUERY_ID:
            raise ConfigurationError(
                f"client_id={client_id!r} belongs to Spark queries: choose another one"
            )
        if region is not None:
            require_text("region", region)
        if not isinstance(config, Config):
            raise ConfigurationError(
                f"config={config!r:.200} must be a Config: write "
                "config=Config(lease_duration_seconds=8, …)"
            )
        if kcl_table is not None:
            validate_name("kcl_table", kcl_table)
            if config.assignor != "range":
                raise ConfigurationError(
                    f"assignor={config.assignor!r} can't plan for KCL's workers, which "
                    'follow no load: set assignor="range" while kcl_table is set'
                )
        return cls(app, client_id, table, region, config, kcl_table)


@dataclass(frozen=True, kw_only=True, slots=True)
class Connections:
    """A client's open connections to its state store and to streams."""

    store: StateStore
    open_source: Callable[[Stream], Awaitable[StreamSource]]
    heartbeat: Callable[[ClientContext], HeartbeatTask] = HeartbeatTask
    row_leases: RowLeases | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    # The AWS clients for the targets of dead letters; None if there is no AWS.
    clients: ClientFactory | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """A client's clock, random numbers and ids, and how it opens its connections.

    The connections are open while the context of ``connect`` is.
    """

    clock: Clock
    random: random.Random
    new_id: Callable[[], str]
    connect: Callable[[Identity, IncidentLog], AbstractAsyncContextManager[Connections]]
    history: History | None = None  # None unless the client writes one


def aws_ports(session: object | None) -> Ports:
    """Return the ports of a client that uses AWS with this session."""
    clock = SystemClock()
    history = open_client_history(clock, os.environ)
    return Ports(
        clock=clock,
        random=random.Random(),
        new_id=lambda: uuid.uuid4().hex,
        connect=partial(_connect_to_aws, session, history),
        history=history,
    )


@asynccontextmanager
async def _connect_to_aws(
    session: object | None,
    history: History | None,
    identity: Identity,
    incidents: IncidentLog,
) -> AsyncIterator[Connections]:
    # These imports are slow, so they aren't made when the package is imported.
    from kinesumer.aws.dynamodb import open_borrowed_store
    from kinesumer.aws.session import ClientFactory
    from kinesumer.aws.sources import open_reading_source
    from kinesumer.aws.table_streams import OwnRows
    from kinesumer.telemetry.otel import OpenTelemetry

    clients = ClientFactory(
        session,
        region=identity.region,
        role_session_name=f"kinesumer-{identity.app}",
        max_connections=identity.config.max_connections,
        on_trouble=incidents.note_credentials,
    )
    async with clients:
        loan = await clients.lend()
        if history is not None:
            config = identity.config
            history.begin(identity.app, identity.client_id, config.commit, config)
        open_own = partial(open_borrowed_store, loan, identity.table)
        open_store, row_leases = _store_of(identity, loan, open_own)
        own = OwnRows(identity.app, identity.table)
        open_source = partial(open_reading_source, clients, own=own)
        thread = StoreThread(partial(recorded_store, open_store, history))
        telemetry = OpenTelemetry(identity.app, SystemClock())
        try:
            yield Connections(
                store=await thread.start(),
                open_source=partial(recorded_source, open_source, history),
                heartbeat=partial(HeartbeatThread, thread=thread),
                row_leases=row_leases,
                telemetry=telemetry,
                clients=clients,
            )
        finally:
            telemetry.unwatch()
            await thread.stop()
            if history is not None:
                history.close()


def _store_of(
    identity: Identity, loan: Loan, open_own: OpenStore
) -> tuple[OpenStore, RowLeases | None]:
    """Return how to open a client's state store, and the leases that it renews."""
    if identity.kcl_table is None:
        return open_own, None
    from kinesumer.aws.lease_table import open_borrowed_tables
    from kinesumer.coordination.fleet_member import FleetMember
    from kinesumer.coordination.fleet_tables import open_fleet_store

    member = FleetMember(
        app=identity.app,
        client_id=identity.client_id,
        lease_table=identity.kcl_table,
        failover_seconds=identity.config.kcl_failover_seconds,
        clock=SystemClock(),
        random=random.Random(),
    )
    held = HeldLeases(member.failover_seconds)
    open_tables = partial(open_borrowed_tables, loan, member.lease_table)
    return partial(open_fleet_store, member, held, open_own, open_tables), held
