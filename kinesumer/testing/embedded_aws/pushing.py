"""Send the events of subscriptions over HTTP."""

from __future__ import annotations

import asyncio

from aiohttp import web

from kinesumer.runtime.tasks import wait_and_clear
from kinesumer.testing.embedded_aws.faults import PUSHED_EVENT, Call, Fault
from kinesumer.testing.embedded_aws.state import ServiceState
from kinesumer.testing.kinesis.subscription import (
    Subscription,
    exception_frame,
    initial_response,
    without_continuation,
)

KEY_TEXT = "The key of the stream can't be used (a fault on demand)."


class ConnectionAborted(Exception):
    """The connection must be closed without a response."""


class _Waiter:
    """Waits for a change of a subscription, which any thread may cause."""

    def __init__(self, subscription: Subscription) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        subscription.wake = self.wake

    def wake(self) -> None:
        if not self._changed.is_set():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, seconds: float) -> None:
        """Wait for a change, but at most for some seconds."""
        await wait_and_clear(self._changed, seconds)


class Pushes:
    """The responses to SubscribeToShard that are being sent."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._is_closing = False
        self._connections: dict[_Waiter, asyncio.Transport | None] = {}

    async def send(
        self, http: web.BaseRequest, subscription: Subscription, call: Call
    ) -> web.StreamResponse:
        """Send the events of a subscription until it ends."""
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/vnd.amazon.eventstream",
                "x-amzn-RequestId": f"{id(http):032x}",
            }
        )
        response.enable_chunked_encoding()
        waiter = _Waiter(subscription)
        self._connections[waiter] = http.transport
        try:
            await response.prepare(http)
            await response.write(initial_response())
            call = call._replace(operation=PUSHED_EVENT)
            if await self._send_all(response, subscription, waiter, call):
                return response
        except ConnectionError:  # the client has closed the connection
            return response
        finally:
            del self._connections[waiter]
            with self._state.lock:
                subscription.close()
        raise ConnectionAborted

    async def _send_all(
        self,
        response: web.StreamResponse,
        subscription: Subscription,
        waiter: _Waiter,
        call: Call,
    ) -> bool:
        """Send events to the end. Return False if the server stops before."""
        while not self._is_closing:
            with self._state.lock:
                now = self._state.clock.now()
                step = subscription.step(now)
                faults = self._state.faults.strike(call, now) if step.frame else []
            frame, is_last = step.frame, step.is_last
            for fault in faults:
                if fault.kind == "stall":
                    left = subscription.ends_at - now
                    await self._stall(waiter, fault.latency_seconds or left)
                else:
                    frame, is_last = await _apply(fault, frame, response)
            if frame:
                await response.write(frame)
            if is_last:
                await response.write_eof()
                return True
            if not frame:
                await waiter.wait(step.wait_seconds)
        return False

    async def _stall(self, waiter: _Waiter, seconds: float) -> None:
        """Send nothing for some seconds, or until the server stops."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._is_closing and (left := end - loop.time()) > 0:
            await waiter.wait(left)

    def close(self) -> None:
        """End all subscriptions, because the server stops."""
        self._is_closing = True
        for waiter, transport in self._connections.items():
            waiter.wake()
            if transport is not None:
                transport.abort()


async def _apply(
    fault: Fault, frame: bytes, response: web.StreamResponse
) -> tuple[bytes, bool]:
    """Return the frame to send in place of another one, and whether it is the last."""
    match fault.kind:
        case "exception_event":
            text = "Internal failure (a fault on demand)"
            return exception_frame("InternalFailureException", text), True
        case "key":
            return exception_frame(fault.key_error, KEY_TEXT), True
        case "corrupt":
            return frame[:-1] + bytes([frame[-1] ^ 1]), False
        case "no_continuation":
            return without_continuation(frame), True
        case _:
            await response.write(frame[: len(frame) // 2])
            raise ConnectionAborted
