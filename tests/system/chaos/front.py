"""Other people's servers behind one port, with the faults of the embedded AWS."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from kinesumer.local.faults import Call, Fault, Faults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy

THEIRS = ("Host", "Content-Length", "Transfer-Encoding", "Connection")
"""Headers of one connection, not of the message."""

REFUSALS = {
    "throttle": (400, "ProvisionedThroughputExceededException"),
    "error": (500, "InternalFailure"),
    "expired_iterator": (400, "ExpiredIteratorException"),
}


class Front:
    """Passes requests on to whoever serves them, unless a fault strikes."""

    def __init__(self, targets: Mapping[str, str], seed: int) -> None:
        self.port = 0
        self._targets = targets
        self._faults = Faults(random.Random(seed))
        self._lock = threading.Lock()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._session: aiohttp.ClientSession
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="front"
        )

    def start(self) -> None:
        """Serve from a thread."""
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        """Stop serving."""
        loop, over = self._ready.result()
        loop.call_soon_threadsafe(over.set)
        self._thread.join()

    def add(self, fault: Fault) -> int:
        """Put a fault in force and return its number."""
        with self._lock:
            return self._faults.add(fault, time.monotonic())

    def remove(self, number: int | None) -> None:
        """End one fault, or all of them."""
        with self._lock:
            self._faults.remove(number)

    async def _serve(self) -> None:
        over = asyncio.Event()
        runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            self._ready.set_result((asyncio.get_running_loop(), over))
            await over.wait()
            await runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, or close the connection if a fault says so."""
        call = called(http.headers)
        body = await http.read()
        with self._lock:
            struck = self._faults.strike(call, time.monotonic())
        kinds = {fault.kind for fault in struck}
        for fault in struck:
            await asyncio.sleep(fault.latency_seconds)
        for kind in ("throttle", "error", "expired_iterator"):
            if kind in kinds:
                return refused(kind)
        if "refuse" in kinds:
            return hung_up(http)
        answer = await self._pass_on(call, http, body)
        return hung_up(http) if "drop" in kinds else answer

    async def _pass_on(
        self, call: Call, http: web.BaseRequest, body: bytes
    ) -> web.StreamResponse:
        url = self._targets[call.service] + http.path_qs
        headers = {k: v for k, v in http.headers.items() if k not in THEIRS}
        try:
            async with self._session.request(
                http.method, url, data=body, headers=headers
            ) as answer:
                content = await answer.read()
                kept = {k: v for k, v in answer.headers.items() if k not in THEIRS}
                return web.Response(status=answer.status, body=content, headers=kept)
        except aiohttp.ClientError:
            return refused("error")  # the server itself fails now and then


def called(headers: CIMultiDictProxy[str]) -> Call:
    """Return what a request asks for, as far as its headers tell."""
    target, _, operation = headers.get("X-Amz-Target", "").partition(".")
    return Call(
        service=target.partition("_")[0].lower() or "sts",
        operation=operation,
        user_agent=headers.get("User-Agent", ""),
    )


def refused(kind: str) -> web.Response:
    """Return AWS's answer to a request that isn't carried out."""
    status, code = REFUSALS[kind]
    body = json.dumps({"__type": code, "message": "by order of the chaos"})
    return web.Response(
        status=status, text=body, content_type="application/x-amz-json-1.1"
    )


def hung_up(http: web.BaseRequest) -> web.Response:
    """Close the connection in place of answering."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response()
