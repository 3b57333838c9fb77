"""Log lines about handlers that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.handlers.retry import Failure
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable, safe_str

if TYPE_CHECKING:
    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.model.records import Record

LONGEST_ERROR = 500
"""Characters of an error's text that a log line has."""


def what_failed(item: WorkItem, failure: Failure) -> str:
    """Return one line that says which record failed, how often, and with what."""
    record = _record(item)
    times = "once" if failure.calls == 1 else f"{failure.calls} times"
    return (
        f"the handler failed {times} at record {_place(record)} of stream "
        f"{record.stream}, {record.shard_id}: {error_text(failure.error)}"
    )


def error_text(error: BaseException) -> str:
    """Return an error's type and text for one line of a log."""
    text = escape_unprintable(safe_str(error))[:LONGEST_ERROR]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure_fields(item: WorkItem, failure: Failure) -> dict[str, object]:
    """Return the fields of a log line about the record that failed."""
    record = _record(item)
    return {
        **item.queue.owned.log_fields,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "attempt": failure.calls,
        "error": error_text(failure.error),
    }


def log_first_failure(
    item: WorkItem, stop: int, failure: Failure, *, with_traceback: bool
) -> None:
    """Log that the records of an item up to ``stop`` failed for the first time."""
    record, count = _record(item), stop - item.done
    trace = failure.error if with_traceback else None
    fields = failure_fields(item, failure)
    if count == 1:
        logger.warning(
            "the handler failed at record %s of stream %s, %s, attempt %d: %s",
            _place(record),
            record.stream,
            record.shard_id,
            failure.calls,
            fields["error"],
            extra=fields,
            exc_info=trace,
        )
        return
    logger.warning(
        "the handler failed at a batch of %d records from %s on of stream %s, %s, "
        "attempt %d: %s",
        count,
        _place(record),
        record.stream,
        record.shard_id,
        failure.calls,
        fields["error"],
        extra=fields | {"records": count},
        exc_info=trace,
    )


def log_dead_letter(item: WorkItem, failure: Failure) -> None:
    """Log that the record that failed is stored as a dead letter."""
    record = _record(item)
    fields = failure_fields(item, failure)
    logger.warning(
        "a dead letter is stored for record %s of stream %s, %s, attempt %d: %s",
        _place(record),
        record.stream,
        record.shard_id,
        failure.calls,
        fields["error"],
        extra=fields,
    )


def log_letter_failure(item: WorkItem, failure: Failure, error: BaseException) -> None:
    """Log that the first try to store the dead letter of a record failed."""
    record = _record(item)
    logger.warning(
        "the dead letter of record %s of stream %s, %s couldn't be stored, trying "
        "again: %s",
        _place(record),
        record.stream,
        record.shard_id,
        error_text(error),
        extra=failure_fields(item, failure) | {"error": error_text(error)},
    )


def log_end(item: WorkItem, error: BaseException) -> None:
    """Log the error that ends ``run()``."""
    failure = item.failure or Failure(error, 1)
    logger.error(
        "run() ends: %s",
        escape_unprintable(safe_str(error)),
        extra=failure_fields(item, failure),
        exc_info=error,
    )


def _record(item: WorkItem) -> Record:
    # The error may come when the last record of the item is done.
    return item.records[min(item.done, len(item.records) - 1)]


def _place(record: Record) -> str:
    number, part = record.position
    return number if part is None else f"{number}:{part}"
