"""Choose the recorded answer to each call of a replayed client.

A replayed client makes its calls some milliseconds sooner or later than the recorded
one, and some periodic calls once more or less. What that may change, and what is a
divergence, is decided here.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from kinesumer.telemetry.history import Line
from kinesumer.telemetry.recording_state import ToldState
from kinesumer.testing.simulation.replay.recorded_run import RecordedCall, RecordedRun
from kinesumer.testing.simulation.replay.view import ClientView
from kinesumer.testing.simulation.replay.writes import (
    REPEATED,
    essence,
    kind_of,
    same_ids,
    session_of,
    text_of,
)

# A client that was killed may not have made the calls of its last second.
END_SECONDS = 1.0


class DivergedError(Exception):
    """The replayed client does something else than the recorded one."""


class Recorded(NamedTuple):
    """The answer is that of a recorded call, at the time at which it came."""

    call: RecordedCall


class Inferred(NamedTuple):
    """No recorded call fits, but the answer follows from what was recorded."""

    result: Any


class Never(NamedTuple):
    """The recording ends before the answer."""


Answer = Recorded | Inferred | Never


class RecordedAnswers:
    """The answers to the calls of one replay, in which each is used once."""

    def __init__(self, run: RecordedRun) -> None:
        # The recorded id of each session and claim, and the one of the replay.
        self.ids: dict[str, str] = {}
        # Differences that change nothing, by kind.
        self.harmless: Counter[str] = Counter()
        self._view = ClientView(run.known or ToldState(), run.lines)
        self._decided_at = 0.0  # when the last of the used decisions was answered
        # The last attempt of a write that failed, if the next one is still due.
        self._failed: dict[tuple[str, ...], RecordedCall | None] = {}
        self._begin, self._end = run.begin, run.end
        self._own_row = ("write", f"member#{run.app}", run.client_id)
        # Whatever happens in a group happens within a lease.
        self._window = run.config.lease_duration_seconds
        self._near = run.config.heartbeat_interval_seconds
        self._lanes: defaultdict[tuple[str, ...], list[RecordedCall]]
        self._lanes = defaultdict(list)
        self._decisions: deque[RecordedCall] = deque()
        for call in run.calls:
            self._lanes[lane_of(call.name, call.arguments)].append(call)
            if is_decision(call):
                self._decisions.append(call)

    # --- writes -----------------------------------------------------------------------

    def write(self, write: Line, now: float) -> Answer:
        """Return the answer to a write. Raise DivergedError if none is recorded."""
        lane = self._lanes[lane_of("write", write)]
        unused = [call for call in lane if not call.is_used]
        if kind_of(write) in REPEATED:
            return self._repeated(write, unused, now)
        call = self._decided(write, unused, now)
        if call is not None:
            self._use(call, unused)
            self.ids |= same_ids(call.arguments, write)
            self._failed[lane_of("write", write)] = call if call.error else None
            self._wrote(call)
            return Recorded(call)
        failed = self._failed.get(lane_of("write", write))
        if failed is not None and self._is_same(failed, write):
            self.harmless["retry more than recorded"] += 1
            return Recorded(failed)
        if now >= self._end - END_SECONDS:
            return Never()
        raise DivergedError(
            f"{text_of(write)}, which the recorded client didn't do now. "
            f"{self._difference(next(filter(is_decision, unused), None), write)}"
        )

    def _decided(
        self, write: Line, unused: list[RecordedCall], now: float
    ) -> RecordedCall | None:
        """Return the recorded write of the same meaning that is next, if it is near.

        Attempts that failed may be skipped, since a replay waits for other times.
        """
        found = None
        for call in filter(is_decision, unused):
            if not self._is_same(call, write):
                break
            if found is not None and abs(call.begun - now) > abs(found.begun - now):
                break
            found = call
            if not call.error:
                break
        if found is None:
            return None
        has_failed = self._failed.get(lane_of("write", write)) is not None
        limit = self._near if has_failed else self._window
        return found if found.begun - now <= limit else None

    def _wrote(self, call: RecordedCall) -> None:
        if call.result is not None:
            self._decided_at = max(self._decided_at, call.answered)
            self._view.wrote(call.arguments["key"], call.result["row"], call.answered)

    def _is_same(self, call: RecordedCall, write: Line) -> bool:
        return bool(essence(call.arguments, self.ids) == essence(write, {}))

    def _difference(self, call: RecordedCall | None, write: Line) -> str:
        if call is None:
            return "It wrote the row no more"
        recorded, replayed = essence(call.arguments, self.ids), essence(write, {})
        if recorded[0] == replayed[0]:
            return f"At {call.begun:.3f} s it wrote {recorded[1:]}, not {replayed[1:]}"
        return f"Its next write of the row, at {call.begun:.3f} s: " + text_of(
            call.arguments
        )

    def _repeated(self, write: Line, unused: list[RecordedCall], now: float) -> Answer:
        """Return the answer to a heartbeat or a commit.

        It may come at another time, or once more if a later answer proves that the
        client still was the owner.
        """
        kind = kind_of(write)
        until = next(filter(is_decision, unused), None)
        before = unused if until is None else unused[: unused.index(until)]
        same = [call for call in before if kind_of(call.arguments) == kind]
        call = _nearest(same, now)
        if call is not None and abs(call.begun - now) <= self._window:
            self._use(call, [x for x in same if x.begun <= call.begun])
            return Recorded(call)
        if any(self._is_proof(x, write) for x in self._next_writes(unused, now)):
            return self._inferred(write, now)
        if now >= self._end - END_SECONDS:
            return Never()
        raise DivergedError(
            f"{text_of(write)}, which the recorded client didn't do, and no later "
            "answer shows that it might"
        )

    def _next_writes(
        self, unused: list[RecordedCall], now: float
    ) -> Iterator[RecordedCall]:
        """Yield the next answered write of a row, and that of the client's own row."""
        own = [call for call in self._lanes[self._own_row] if not call.is_used]
        for lane in (unused, own):
            later = (x for x in lane if x.begun > now and x.result is not None)
            yield from islice(later, 1)

    def _is_proof(self, later: RecordedCall, write: Line) -> bool:
        """Return whether a later write shows that a write's session was alive.

        While it is alive, no other client may own its shards.
        """
        session = session_of(later.arguments) or ""
        return (
            later.result["applied"]
            and kind_of(later.arguments) in PROOFS
            and self.ids.get(session, session) == session_of(write)
        )

    def _inferred(self, write: Line, now: float) -> Inferred:
        self.harmless[f"{kind_of(write)} more than recorded"] += 1
        pk, sk = write["key"]
        row = self._known(now).rows().get((pk, sk))
        return Inferred({"applied": True, "row": row})

    def _use(self, call: RecordedCall, others: Sequence[RecordedCall]) -> None:
        """Use a call, and skip repeated ones before it."""
        for each in others:
            if each is call:
                break
            each.is_used = True
            self.harmless[f"{kind_of(each.arguments)} fewer than recorded"] += 1
        call.is_used = True

    def overdue(self, now: float) -> str:
        """Return what the recorded client did, and the replayed one did not; or ""."""
        call = self._next_decision()
        if call is None or call.begun > now - self._window:
            return ""
        text = f"the recorded client did it at {call.begun:.3f} s"
        if self._begin and call.begun < self._begin + self._window:
            text += ", perhaps for what it had seen before the recording"
        return f"{text_of(call.arguments)}: {text}"

    def missing(self) -> str:
        """Return a decision that the replayed client did not make until the end."""
        return self.overdue(self._end + self._window - END_SECONDS)

    # --- reads ------------------------------------------------------------------------

    def read(self, name: str, arguments: Line, now: float) -> Answer:
        """Return the answer to a read. Raise DivergedError if none is known.

        A read that was recorded at another time gets what the client knew then.
        """
        if now < self._begin:
            return Inferred(self._known(now).answer(name, arguments))
        lane = self._lanes[lane_of(name, arguments)]
        unused = [call for call in lane if not call.is_used]
        # An earlier answer might not show what the client has written since.
        current = [call for call in unused if call.begun >= self._decided_at]
        call = _nearest(current, now)
        if call is not None and self._may_answer(call, now):
            for each in unused[: unused.index(call) + 1]:
                each.is_used = True
            return Recorded(call)
        if now >= self._end - END_SECONDS:
            return Never()
        known = self._known(now).answer(name, arguments)
        if known is None and len(unused) == len(lane) > 0:  # it was never told
            unused[0].is_used = True
            return Recorded(unused[0])
        if known is None and not lane:
            what = " ".join(lane_of(name, arguments))
            raise DivergedError(f"a read that is not recorded: {what}")
        self.harmless[f"{name} at another time"] += 1
        return Inferred(known)

    def _may_answer(self, read: RecordedCall, now: float) -> bool:
        """Return whether a read is near, and doesn't show what is still to be done."""
        due = self._next_decision()
        is_later = due is not None and due.answered < read.begun
        shows_rows = read.name in ("get", "query")
        return abs(read.begun - now) <= self._near and not (is_later and shows_rows)

    def _next_decision(self) -> RecordedCall | None:
        while self._decisions and self._decisions[0].is_used:
            self._decisions.popleft()
        return self._decisions[0] if self._decisions else None

    def _known(self, now: float) -> ClientView:
        """Return what the client knew at a time, and before its next decision."""
        due = self._next_decision()
        self._view.advance(now if due is None else min(now, due.begun))
        return self._view


# Writes that the table accepts only while the client is the owner, or alive.
PROOFS = REPEATED | {
    "release",
    "end shard",
    "note tried record",
    "forget deaths",
    "assign",
    "request streams",
}


def is_decision(call: RecordedCall) -> bool:
    """Return whether a call is a write that a client doesn't make at random times."""
    return call.name == "write" and kind_of(call.arguments) not in REPEATED


def lane_of(name: str, arguments: Line) -> tuple[str, ...]:
    """Return what the calls that answer one another's questions have in common."""
    if name in ("get", "write"):
        return (name, *arguments["key"])
    parts = ("pk", "first", "last", "stream", "shard_id")
    return (name, *(arguments[part] for part in parts if part in arguments))


def _nearest(calls: Sequence[RecordedCall], now: float) -> RecordedCall | None:
    return min(calls, key=lambda call: abs(call.begun - now), default=None)
