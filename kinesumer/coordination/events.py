"""What a client's heartbeat reports: sessions that begin, are renewed, or are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.core.liveness import Lease
    from kinesumer.model.rows import MemberRow


class SessionRenewed(NamedTuple):
    """The session was registered, or its heartbeat was acknowledged with this row."""

    lease: Lease
    row: MemberRow


class SessionLost(NamedTuple):
    """The session is dead: it has lost all its shards. Another session follows."""

    lease: Lease


class Failed(NamedTuple):
    """The heartbeat has stopped because of this error."""

    error: BaseException


class LeaderElected(NamedTuple):
    """The session leads the group from now on."""


Event = SessionRenewed | SessionLost | Failed | LeaderElected

if TYPE_CHECKING:
    Notify = Callable[[Event], None]
