"""Receive many event streams over one HTTP/2 connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from h2.config import H2Configuration
from h2.connection import (
    ConnectionInputs,
    ConnectionState,
    H2Connection,
    H2ConnectionStateMachine,
)
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from kinesumer.aws.http.connection import RECEIVE_BYTES
from kinesumer.aws.http.event_stream import FrameQueue, RefusedError
from kinesumer.errors import SourceUnavailableError
from kinesumer.wire.event_stream import Frame

# Bytes that the server may send of one stream before its reader has taken them, in one
# frame or in several, and the greatest part of a refusal's body that is kept.
STREAM_WINDOW_BYTES = RECEIVE_BYTES
# The window of the whole connection never limits it, since each stream has a limit.
CONNECTION_WINDOW_BYTES = (1 << 31) - 1
# So many frames are examined in one step of the event loop. ``h2`` takes up to 25 µs
# for the smallest, which has nine bytes.
STEP_FRAMES = 500
_HEAD_BYTES = 9
# After GOAWAY, the open streams continue (RFC 9113, 6.8). ``h2`` would end them.
_TRANSITIONS = {
    **H2ConnectionStateMachine._transitions,
    (ConnectionState.CLIENT_OPEN, ConnectionInputs.RECV_GOAWAY): (
        None,
        ConnectionState.CLIENT_OPEN,
    ),
}


class Http2Stream:
    """One request and its event stream. See ``EventStream``."""

    def __init__(self, connection: Http2Connection, stream_id: int) -> None:
        self.stream_id = stream_id
        self.queue: FrameQueue = FrameQueue(self._pause, self._resume)
        self._connection = connection
        self._begun = asyncio.get_running_loop().create_future()
        self._status = 0
        self._refusal = bytearray()
        self._is_paused = False
        self._unacknowledged = 0

    async def begin(self) -> None:
        """Wait for the response's head. Raise RefusedError if its status is not 200."""
        await self._begun

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end. See ``EventStream.next()``."""
        return await self.queue.next()

    def close(self) -> None:
        """Cancel the stream. The other streams of the connection continue."""
        self._connection.cancel(self)

    def suspect(self) -> None:
        """Open no further streams on this connection, since it was silent."""
        self._connection.has_room = False

    def responded(self, status: int) -> None:
        """Note the status of the response."""
        self._status = status
        if status == 200 and not self._begun.done():
            self._begun.set_result(None)

    def received(self, data: bytes, size: int) -> None:
        """Take a piece of the body, which used ``size`` bytes of the window."""
        self._unacknowledged += size
        if self._status != 200:
            self._refusal += data[: STREAM_WINDOW_BYTES - len(self._refusal)]
        else:
            self.queue.feed(data)
        self._acknowledge()

    def ended(self, error: BaseException | None = None) -> None:
        """Note the end of the stream."""
        if error is None and self._status != 200:
            error = RefusedError(self._status, self._refusal)
        self.queue.end(error)
        if not self._begun.done():
            self._begun.set_exception(error or ConnectionResetError("no response"))
            self._begun.exception()  # mark as seen, if no task waits

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        self._acknowledge()

    def _acknowledge(self) -> None:
        if not self._is_paused and 2 * self._unacknowledged > STREAM_WINDOW_BYTES:
            size, self._unacknowledged = self._unacknowledged, 0
            self._connection.widen(self.stream_id, size)


class Http2Connection(asyncio.Protocol):
    """A connection that opens streams until the server permits no more."""

    def __init__(self) -> None:
        self.has_room: bool = True
        loop = asyncio.get_running_loop()
        # Future that is done when the connection is closed.
        self.lost: asyncio.Future[None] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport
        self._http = H2Connection(
            H2Configuration(client_side=True, header_encoding="utf-8")
        )
        self._http.state_machine._transitions = _TRANSITIONS
        self._streams: dict[int, Http2Stream] = {}
        self._unread = b""  # received bytes that are not examined yet
        self._is_reading = False  # whether further steps examine them
        self._frame_rest = 0  # bytes of the last frame that have not arrived yet
        self._received = 0  # bytes since the last update of the connection's window

    async def open(
        self, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Http2Stream | None:
        """Send a request, and return its stream. Return None if there is no room.

        Raise OSError if the connection is closed.
        """
        # The server's settings say how many streams it permits.
        await asyncio.shield(self._ready)
        if not self.has_room or not self._permits_stream():
            return None
        stream_id = self._http.get_next_available_stream_id()
        stream = self._streams[stream_id] = Http2Stream(self, stream_id)
        self._http.send_headers(stream_id, headers)
        self._http.send_data(stream_id, body, end_stream=True)
        self._flush()
        return stream

    def _permits_stream(self) -> bool:
        limit = self._http.remote_settings.max_concurrent_streams
        return self._http.open_outbound_streams < limit

    def cancel(self, stream: Http2Stream) -> None:
        """Reset a stream. Close the connection if it is of no more use."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        stream.ended(ConnectionAbortedError("the subscription was closed"))
        try:
            self._http.reset_stream(stream.stream_id, error_code=8)  # CANCEL
        except H2Error:
            pass  # the server has just ended the stream
        self._flush()
        self._close_if_useless()

    def widen(self, stream_id: int, size: int) -> None:
        """Let the server send ``size`` more bytes of a stream."""
        try:
            self._http.increment_flow_control_window(size, stream_id)
        except H2Error:
            return  # the server has just ended the stream
        self._flush()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await self.lost

    def _close_if_useless(self) -> None:
        if not self.has_room and not self._streams:
            self._transport.close()

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._http.data_to_send())

    # --- what asyncio calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the connection's preface and settings."""
        self._transport = cast("asyncio.Transport", transport)
        # update() would only become valid after an acknowledgement, and the first
        # SETTINGS frame would still hold the defaults.
        self._http.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: STREAM_WINDOW_BYTES,
            },
        )
        self._http.max_inbound_frame_size = STREAM_WINDOW_BYTES
        self._http.initiate_connection()
        self._http.increment_flow_control_window(CONNECTION_WINDOW_BYTES - 65_535)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Pass received data to the streams, step by step."""
        self._unread = self._unread + data if self._unread else data
        if not self._is_reading:
            self._is_reading = True
            self._read_on()

    def _read_on(self) -> None:
        size, is_all = self._step_size()
        step, self._unread = self._unread[:size], self._unread[size:]
        self._read(step)
        if is_all or not self._unread:  # a failure has dropped what was left
            self._is_reading = False
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _step_size(self) -> tuple[int, bool]:
        """Return how many bytes to examine now, and whether the rest is incomplete."""
        unread, end = self._unread, self._frame_rest
        for _ in range(STEP_FRAMES):
            if end + _HEAD_BYTES > len(unread):
                break
            end += _HEAD_BYTES + int.from_bytes(unread[end : end + 3])
        size = min(end, len(unread))
        self._frame_rest = end - size
        return size, end + _HEAD_BYTES > len(unread)

    def _read(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._handle(event)
        except (H2Error, ValueError) as error:
            self._unread = b""
            self._fail(ConnectionResetError(f"invalid HTTP/2: {error}"))
            return
        if self._received > CONNECTION_WINDOW_BYTES // 4:
            self._http.increment_flow_control_window(self._received)
            self._received = 0
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all streams."""
        self._unread = b""
        self._fail(exc or ConnectionResetError("closed by the server"))
        if not self.lost.done():
            self.lost.set_result(None)

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._received += event.flow_controlled_length
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    self._pass_on(stream, event)
            case ResponseReceived():
                headers = {str(name): value for name, value in event.headers or ()}
                status = int(headers.get(":status", 0))
                if event.stream_id in self._streams:
                    self._streams[event.stream_id].responded(status)
            case StreamEnded():
                self._end(event.stream_id)
            case StreamReset():
                code = event.error_code
                self._end(event.stream_id, ConnectionResetError(f"reset, code {code}"))
            case RemoteSettingsChanged() if not self._ready.done():
                self._ready.set_result(None)
            case ConnectionTerminated():
                self._going_away(event.last_stream_id or 0)

    def _going_away(self, last_stream_id: int) -> None:
        """End the streams that the server ignores, and open no others."""
        self.has_room = False
        error = ConnectionResetError("the server closes the connection")
        for stream_id in [sid for sid in self._streams if sid > last_stream_id]:
            self._end(stream_id, error)
        self._close_if_useless()

    def _pass_on(self, stream: Http2Stream, event: DataReceived) -> None:
        try:
            stream.received(event.data or b"", event.flow_controlled_length or 0)
        except SourceUnavailableError as error:
            stream.ended(error)
            self.cancel(stream)

    def _end(self, stream_id: int, error: BaseException | None = None) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.ended(error)
            self._close_if_useless()

    def _fail(self, error: Exception) -> None:
        self.has_room = False
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # mark as seen, if no task waits
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.ended(error)
        self._transport.abort()
