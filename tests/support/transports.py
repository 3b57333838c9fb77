"""Be the other side of a connection, without a socket."""

from __future__ import annotations

import asyncio

from kinesumer.aws.http.connection import Connection


class Wire(asyncio.Transport):
    """A transport that drops what is written, and notes what the client permits."""

    def __init__(self, client: Connection) -> None:
        super().__init__()
        self._client = client
        self.is_aborted = False
        self._is_receiving = True
        client.connection_made(self)

    def write(self, data: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_receiving = False

    def resume_reading(self) -> None:
        self._is_receiving = True

    def is_receiving(self) -> bool:
        """Return whether the client lets the server send."""
        return self._is_receiving

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def feed(self, data: bytes) -> None:
        """Let the client receive bytes, in as many pieces as its buffer needs."""
        while data and not self.is_aborted:
            buffer = self._client.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size], data = data[:size], data[size:]
            buffer.release()
            self._client.buffer_updated(size)
