"""Decide which checkpoints of a record processor are stored, by the rules of the KCL.

The rules are those of ``ShardRecordProcessorCheckpointer`` in the KCL for Java, and the
names of errors are those that MultiLangDaemon sends to amazon_kclpy.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from threading import Lock, RLock
from typing import NamedTuple

from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.positions import Position


class CheckpointError(KinesumerError):
    """A checkpoint was not stored. ``value`` is the name of the KCL's exception.

    ``ShutdownException``: another client owns the shard, or its processor has ended.
    ``ThrottlingException``: the state store throttles. Try again after a while.
    ``KinesisClientLibDependencyException``: the state store didn't answer.
    ``IllegalArgumentException``: the sequence number isn't between the last checkpoint
    and the last record that the processor got, or it isn't a number.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value: str = value

    def __str__(self) -> str:
        return repr(self.value)


class Place(NamedTuple):
    """A record's sequence number and its index in a KPL aggregate, in the KCL's order.

    The index of a record that isn't part of an aggregate is 0.
    """

    number: int
    part: int

    @classmethod
    def of(cls, position: Position) -> Place:
        """Return the place of a stored position, or of a record."""
        return cls(int(position.sequence_number), position.sub_sequence_number or 0)

    @property
    def position(self) -> Position:
        """The place as a position."""
        return Position(str(self.number), self.part)


class Phase(Enum):
    """The phases of a processor's checkpoints in one shard."""

    OPEN = auto()  # records are processed
    SHARD_ENDED = auto()  # all records were processed, and the end isn't checkpointed
    END_STORED = auto()  # the end is checkpointed
    CLOSED = auto()  # the processor has lost its shard


# Stores a position before it returns, or raises CheckpointError.
StorePosition = Callable[[Position], None]


class Checkpointer:
    """Stores how far a record processor has come. The processor's methods get it.

    Any thread may call it.
    """

    def __init__(self, store: StorePosition, initial: Position | None) -> None:
        """Begin after ``initial``, the position before the first record, if any."""
        self._store = store
        # One checkpoint is stored at a time. The event loop, which stores positions,
        # calls this object, too. So it must not wait for this lock.
        self._storing = RLock()
        self._lock = Lock()  # protects the attributes below; held only for moments
        self._last = self._largest = None if initial is None else Place.of(initial)
        self._phase = Phase.OPEN

    def checkpoint(
        self,
        sequence_number: str | int | None = None,
        sub_sequence_number: int | None = None,
    ) -> None:
        """Store the position of a record, by default of the last one.

        The last record is that of the last ``process_records()``. With a sequence
        number alone, the position is that of the first record of a KPL aggregate. At
        the end of a shard, a checkpoint of the last record is one of the end.

        Raises CheckpointError.
        """
        with self._storing:
            with self._lock:
                place = self._asked(sequence_number, sub_sequence_number)
                if self._phase is Phase.CLOSED:
                    raise CheckpointError("ShutdownException")
                is_end = self._phase is Phase.SHARD_ENDED and place == self._largest
            if place is not None and place != self._last:
                self._store(place.position)
                self._last = place
            with self._lock:
                if is_end and self._phase is Phase.SHARD_ENDED:
                    self._phase = Phase.END_STORED

    def prepare_checkpoint(
        self,
        sequence_number: str | int | None = None,
        sub_sequence_number: int | None = None,
    ) -> PreparedCheckpointer:
        """Return what stores the position of a record later.

        The arguments and the errors are those of ``checkpoint()``. Nothing is stored
        before ``PreparedCheckpointer.checkpoint()``.
        """
        with self._lock:
            place = self._asked(sequence_number, sub_sequence_number)
            if self._phase is Phase.CLOSED:
                raise CheckpointError("ShutdownException")
        return PreparedCheckpointer(self, place)

    def _asked(self, number: str | int | None, index: int | None) -> Place | None:
        """Return the place that a call names. Raises CheckpointError.

        None means that the processor has got no record, and there is no position.
        """
        if number is None:
            return self._largest
        place = _read_place(number, 0 if index is None else index)
        last, largest = self._last, self._largest
        if largest is None or place > largest or (last is not None and place < last):
            raise _illegal(
                f"checkpoint {place.number}/{place.part} is not between the last "
                f"checkpoint ({_shown(last)}) and the last record that the processor "
                f"got ({_shown(largest)}): pass the number of a record between them"
            )
        return place

    # --- what the shard's driver calls -----------------------------------------------

    def delivering(self, last: Position) -> None:
        """Permit checkpoints up to a record that the processor is about to get."""
        with self._lock:
            self._largest = Place.of(last)

    def shard_ended(self) -> None:
        """Let the next checkpoint of the last record be one of the shard's end."""
        with self._lock:
            if self._phase is Phase.OPEN:
                self._phase = Phase.SHARD_ENDED

    def close(self) -> None:
        """Refuse checkpoints from now on, because the shard is lost or given up."""
        with self._lock:
            self._phase = Phase.CLOSED

    @property
    def phase(self) -> Phase:
        """The phase of the processor's checkpoints."""
        return self._phase


class PreparedCheckpointer:
    """A checkpoint that is stored when ``checkpoint()`` is called."""

    def __init__(self, checkpointer: Checkpointer, place: Place | None) -> None:
        self._checkpointer, self._place = checkpointer, place

    @property
    def sequence_number(self) -> str | None:
        """The sequence number of the checkpoint; None before the first record."""
        return None if self._place is None else str(self._place.number)

    @property
    def sub_sequence_number(self) -> int:
        """The index in a KPL aggregate; 0 for other records."""
        return 0 if self._place is None else self._place.part

    def checkpoint(self) -> None:
        """Store the position. Raises CheckpointError, as ``Checkpointer`` does.

        A later checkpoint that was stored meanwhile makes this one illegal.
        """
        self._checkpointer.checkpoint(self.sequence_number, self.sub_sequence_number)


def closed_checkpointer() -> Checkpointer:
    """Return a checkpointer of a lost shard, which refuses all checkpoints."""
    checkpointer = Checkpointer(_store_nothing, None)
    checkpointer.close()
    return checkpointer


def _store_nothing(position: Position) -> None:
    raise CheckpointError("ShutdownException")


def _read_place(number: object, index: object) -> Place:
    """Return a place. Raises CheckpointError if it can't be one."""
    digits = str(number) if type(number) in (int, str) else ""
    if not (digits.isascii() and digits.isdigit()):
        raise _illegal(f"sequence number {number!r:.200} is not a number: pass digits")
    if type(index) is not int or index < 0:
        raise _illegal(
            f"sub-sequence number {index!r:.200} is not a whole number of at least 0: "
            "pass the record's sub_sequence_number"
        )
    return Place(int(digits), index)


def _shown(place: Place | None) -> str:
    return "none" if place is None else f"{place.number}/{place.part}"


def _illegal(reason: str) -> CheckpointError:
    error = CheckpointError("IllegalArgumentException")
    error.__cause__ = ConfigurationError(reason)
    return error
