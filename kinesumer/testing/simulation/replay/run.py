"""Replay a recording: run the client's code in virtual time on recorded answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from random import Random

from kinesumer.client import Kinesumer
from kinesumer.coordination.heartbeat import HeartbeatTask
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.simulation.client import on_thread
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.machine import EPOCH
from kinesumer.testing.simulation.memory_ports import memory_ports
from kinesumer.testing.simulation.replay.answers import DivergedError
from kinesumer.testing.simulation.replay.earlier_store import EarlierStore
from kinesumer.testing.simulation.replay.ports import (
    STOP_SECONDS,
    Playback,
    ReplayedSource,
    ReplayedStore,
)
from kinesumer.testing.simulation.replay.recorded_run import (
    RecordedRun,
    read_recording,
)
from kinesumer.testing.simulation.replay.timeline import Event, Timeline
from kinesumer.testing.simulation.replay.user import ReplayedUser

# How often is checked whether the client did what was recorded.
CHECK_SECONDS = 0.25


@dataclass(frozen=True)
class ReplayOutcome:
    """The actions of a replayed client."""

    events: list[Event]
    lines: list[str]  # the events as text
    divergence: str  # empty if the client did what was recorded
    harmless: Counter[str]  # differences that change nothing, by kind
    seconds: float  # the virtual time of the replay


def replay(path: Path) -> ReplayOutcome:
    """Replay the recording in a file. Raises RecordingError if it can't be read."""
    return _Replay(read_recording(path)).run()


class _Replay:
    """One replay of a recorded client."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._loop = VirtualLoop(Random(0))
        self._machine = self._loop.machine(run.client_id)
        self._heartbeats = self._machine.thread("heartbeats")
        for thread in (self._machine, self._heartbeats):
            thread.wall_offset = run.wall_offset - EPOCH
        self._timeline = Timeline(lambda: self._loop.real)
        self._playback = Playback(run, self._loop, self._timeline)
        before = EarlierStore(run, self._loop)
        self._store = ReplayedStore(self._playback, before.store)
        drawn = (f"replay-{number}" for number in count(1))
        self._ids = chain(before.sessions, drawn)

    def run(self) -> ReplayOutcome:
        """Run the client until the end of the recording, or until it diverges."""
        logger = logging.getLogger("kinesumer")
        level = logger.level
        logger.addHandler(self._timeline)
        logger.setLevel(logging.INFO)
        try:
            self._loop.run(self._main())
        except DivergedError:
            pass  # the timeline and the outcome have it
        finally:
            logger.removeHandler(self._timeline)
            logger.setLevel(level)
        playback = self._playback
        return ReplayOutcome(
            self._timeline.events,
            self._timeline.lines(),
            playback.divergence,
            playback.answers.harmless,
            self._loop.real,
        )

    async def _main(self) -> None:
        run, playback = self._run, self._playback
        for begin, end in run.gaps():
            self._loop.at_real(begin + STOP_SECONDS, self._stop, end - begin)
        user = self._loop.spawn(self._machine, self._consume())
        while self._loop.real < run.end and not user.done():
            await asyncio.sleep(CHECK_SECONDS)
            if late := playback.answers.overdue(self._loop.real):
                playback.diverge(f"not done within a lease: {late}")
        if not playback.divergence and (late := playback.answers.missing()):
            playback.diverge(f"not done: {late}")
        if not playback.divergence:
            self._timeline.note("end", "the client did what was recorded")

    def _stop(self, seconds: float) -> None:
        text = f"the process does nothing for {seconds:.1f} s"
        self._timeline.note("stopped", text)
        self._machine.freeze(seconds - 2 * STOP_SECONDS)

    async def _consume(self) -> None:
        run = self._run
        by_handler = any(line.get("by") == "handler" for line in run.lines)
        client = Kinesumer(
            run.app,
            client_id=run.client_id,
            config=replace(run.config, commit="manual") if by_handler else run.config,
            _ports=memory_ports(
                self._machine,
                Random(0),
                lambda: next(self._ids),
                self._store,
                self._open_source,
                heartbeat=self._new_heartbeat,
            ),
        )
        try:
            await ReplayedUser(run, self._machine, client).run()
        except Exception as error:
            self._timeline.note("ended", f"{type(error).__name__}: {error}")
        else:
            self._timeline.note("ended", "the program left the client")

    def _new_heartbeat(self, context: ClientContext) -> HeartbeatTask:
        return on_thread(self._heartbeats, HeartbeatTask(context))

    async def _open_source(self, stream: Stream) -> StreamSource:
        about = {"name": "open_source", "stream": stream.name}
        playback = self._playback
        opened = await playback.answer(
            lambda: playback.answers.read("open_source", about, self._loop.real)
        )
        return ReplayedSource(playback, stream.name, opened)
