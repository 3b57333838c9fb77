"""Credentials of an assumed role, and credentials borrowed from another loop."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiobotocore.credentials import AioCredentials

from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    translated_errors,
)
from kinesumer.errors import KinesumerError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

    from botocore.credentials import ReadOnlyCredentials

LOGGER = logging.getLogger("kinesumer")

MAX_EARLY_SECONDS = 15 * 60.0
"""Renewal begins at half of the lifetime, but at most this long before expiry."""
MAX_PAUSE_SECONDS = 30.0
"""A failed renewal is retried after a tenth of the lifetime, but at most this."""
DATE_SECONDS = 2.0
"""If the local clock is off by more than this, the service's time is used."""
REQUEST_SECONDS = 1.0
"""Interval at which the other loop is asked for its credentials."""
BORROW_SECONDS = 0.25
"""How long to wait for the other loop before its last credentials are used again."""


class FrozenCredentials(NamedTuple):
    """An immutable set of keys, with the attributes that botocore's signers need."""

    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None

    def __repr__(self) -> str:
        """Omit secrets, since error reports may contain local variables."""
        return f"Frozen(access_key={self.access_key!r}, …)"


_TASK_KEYS: ContextVar[FrozenCredentials | None] = ContextVar("used", default=None)
"""The role's keys that the running task received last."""


class Credentials(Protocol):
    """Credentials of a client, which asks for the keys at each request."""

    async def get_frozen_credentials(
        self,
    ) -> FrozenCredentials | ReadOnlyCredentials: ...


class StsClient(Protocol):
    """The STS call that assumes a role."""

    async def assume_role(self, **arguments: str) -> Mapping[str, Any]: ...


class Role(NamedTuple):
    """A role to assume, with the arguments of AssumeRole."""

    arn: str
    session_name: str
    external_id: str | None = None

    def __repr__(self) -> str:
        """Omit the external id, since error reports may contain local variables."""
        return f"Role(arn={self.arn!r}, session_name={self.session_name!r}, …)"


class RoleCredentials(AioCredentials):  # type: ignore[misc]
    """A role's credentials, renewed well before they expire.

    One call renews the keys while other calls use the valid keys. Calls wait for STS
    only if there are no valid keys. ``now`` is any clock in seconds.
    """

    def __init__(
        self,
        role: Role,
        sts: Callable[[], AbstractAsyncContextManager[StsClient]],
        now: Callable[[], float],
    ) -> None:
        super().__init__("", "", method="assume-role")
        self._role, self._sts, self._now = role, sts, now
        self._frozen: FrozenCredentials | None = None
        self._renew_at = self._expires_at = 0.0
        self._pause = 0.0
        self._attempts = 0
        self._failure: KinesumerError | None = None
        self._lock = asyncio.Lock()

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return valid keys, and renew them first if they are due."""
        used = await self._valid()
        _TASK_KEYS.set(used)
        return used

    async def _valid(self) -> FrozenCredentials:
        frozen = self._frozen
        now = self._now()
        if frozen is not None and (now < self._renew_at or self._lock.locked()):
            if now < self._expires_at:
                return frozen
        attempts = self._attempts
        async with self._lock:
            if self._failure is not None and self._attempts != attempts:
                # Another call tried while this one waited: share its error.
                raise self._failure.with_traceback(None)
            if self._frozen is None or self._now() >= self._renew_at:
                try:
                    self._frozen = await self._renewed()
                finally:
                    self._attempts += 1
            return self._frozen

    async def get_account_id(self) -> str | None:
        """Return the account that the role belongs to."""
        return _account(self._role)

    def forget(self) -> bool:
        """Discard the running task's keys, after AWS said that they have expired.

        Keys that were renewed meanwhile stay. Return True, since a retry gets new keys.
        """
        if _TASK_KEYS.get() is self._frozen:
            self._frozen = None
        return True

    async def _renewed(self) -> FrozenCredentials:
        self._failure = None
        try:
            with translated_errors("AssumeRole", SourceUnavailableError):
                answer = await self._assume()
                lifetime, keys = _lifetime(answer), _keys(answer, self._role)
        except KinesumerError as error:
            if self._frozen is None or self._now() >= self._expires_at:
                self._failure = error
                raise
            self._renew_at = self._now() + self._pause
            LOGGER.warning("%s; the credentials in use are still valid", error)
            return self._frozen
        self._expires_at = self._now() + lifetime
        self._renew_at = self._expires_at - min(lifetime / 2, MAX_EARLY_SECONDS)
        self._pause = min(lifetime / 10, MAX_PAUSE_SECONDS)
        return keys

    async def _assume(self) -> Mapping[str, Any]:
        role = self._role
        arguments = {"RoleArn": role.arn, "RoleSessionName": role.session_name}
        if role.external_id is not None:
            arguments["ExternalId"] = role.external_id
        try:
            async with self._sts() as sts:
                return await sts.assume_role(**arguments)
        except FOREIGN as error:
            fault = failure_of(error)
            if fault.kind in (Kind.THROTTLED, Kind.UNAVAILABLE):
                text = f"sts:AssumeRole on {role.arn}: {describe(fault)}"
                raise SourceUnavailableError(text) from error
            raise fatal_error(fault, "sts:AssumeRole", role.arn) from error


def _keys(answer: Mapping[str, Any], role: Role) -> FrozenCredentials:
    keys = answer["Credentials"]
    return FrozenCredentials(
        keys["AccessKeyId"],
        keys["SecretAccessKey"],
        keys["SessionToken"],
        _account(role),
    )


def _account(role: Role) -> str:
    return role.arn.split(":")[4]


def _lifetime(answer: Mapping[str, Any]) -> float:
    """Return the keys' lifetime by the service's clock, as the local one may be off."""
    expires: datetime = answer["Credentials"]["Expiration"]
    now = datetime.now(UTC)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    if date is not None:
        theirs = parsedate_to_datetime(date)
        # The Date has whole seconds only, so an almost correct clock is preferred.
        if abs((now - theirs).total_seconds()) > DATE_SECONDS:
            now = theirs
    return (expires - now).total_seconds()


class BorrowedCredentials(AioCredentials):  # type: ignore[misc]
    """Another event loop's credentials, for a thread that must not wait for that loop.

    Refreshable credentials hold locks of their loop, so they are fetched there. While
    that loop is busy, the last keys are used again. Those stay valid longer than any
    stall that the group tolerates.
    """

    def __init__(
        self,
        owner: Credentials,
        last: FrozenCredentials | ReadOnlyCredentials,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__("", "", method="loaned")
        self._owner, self._last, self._loop = owner, last, loop
        self._asked: Future[FrozenCredentials | ReadOnlyCredentials] | None = None
        self._ask_at = 0.0

    async def get_frozen_credentials(self) -> FrozenCredentials | ReadOnlyCredentials:
        """Return the owner's keys, or the last ones while its loop is busy."""
        if self._loop.is_closed() or not can_renew(self._owner):
            return self._last
        if self._asked is None:
            now = asyncio.get_running_loop().time()
            if now < self._ask_at:
                return self._last
            self._ask_at = now + REQUEST_SECONDS
            self._asked = asyncio.run_coroutine_threadsafe(self._fetch(), self._loop)
            answer = asyncio.wrap_future(self._asked)
            answer.add_done_callback(_retrieve_error)
            await asyncio.wait([answer], timeout=BORROW_SECONDS)
        # If another call has requested the keys, don't wait here, too.
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._last = asked.result()
        return self._last

    async def get_account_id(self) -> str | None:
        """Return the account, or None if the owner doesn't know it."""
        return getattr(self._last, "account_id", None)

    async def _fetch(self) -> FrozenCredentials | ReadOnlyCredentials:
        return await self._owner.get_frozen_credentials()


def _retrieve_error(
    answer: asyncio.Future[FrozenCredentials | ReadOnlyCredentials],
) -> None:
    """Retrieve a late error, so that asyncio doesn't log it."""
    if not answer.cancelled():
        answer.exception()


def can_renew(credentials: object) -> bool:
    """Return whether credentials may renew their keys. Only plain ones don't."""
    return type(credentials) is not AioCredentials


class FixedProvider:
    """A session's credential chain with one entry."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def load_credentials(self) -> Awaitable[Credentials]:
        """Return the credentials."""
        return self._load()

    async def _load(self) -> Credentials:
        return self._credentials
