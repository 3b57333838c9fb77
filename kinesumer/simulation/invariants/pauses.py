"""What the judge says of pauses: who begins after one claims nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.invariants.checker import Judge


class Pauses:
    """Checks I14 at each claim. Who began before a pause may not have met it yet."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._began: dict[str, float] = {}
        """When each session was registered."""
        self._since: dict[str, float] = {}
        """Since when what is paused is so: streams by ARN, all by an empty one."""

    @property
    def is_any(self) -> bool:
        """Whether a stream, or all of them, are paused."""
        return bool(self._since)

    def registered(self, session: str) -> None:
        """A session began."""
        self._began[session] = self._judge.loop.real

    def group_write(
        self, _write: Write, _before: Row | None, after: Row | None
    ) -> None:
        """The row of the group or of a stream was written."""
        if after is None:
            return
        arn = str(after["sk"]).partition("#")[2]
        if after.get("paused") is True:
            self._since.setdefault(arn, self._judge.loop.real)
        else:
            self._since.pop(arn, None)

    def check_claim(self, before: Row, session: str) -> None:
        """A shard was claimed."""
        name = f"{before['sk']} is claimed by {session}"
        if before.get("paused") is True:
            self._judge.fail("I14", f"{name}, but paused")
        for arn in ("", str(before["pk"]).split("#", 2)[2]):
            since = self._since.get(arn)
            if since is not None and self._began.get(session, since) > since:
                self._judge.fail("I14", f"{name}, which began after its pause")
