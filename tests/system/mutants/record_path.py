"""The record path: from a page to user code and to the checkpoint."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import always, drop, replace

OF_DELIVERY = "tests/unit/consuming/test_delivery.py"
KNOWN = "tests/integration/simulation/test_known_failures.py"
aggregation = Module("wire.aggregation", "tests/unit/wire/test_aggregation.py")
attributes = Module("wire.fields", "tests/unit/wire/test_rows.py")
buffer = Module("consuming.prefetch", "tests/unit/consuming/test_prefetch.py")
checkpointer = Module(
    "consuming.checkpointer", "tests/unit/consuming/test_checkpointer.py"
)
connection = Module("aws.http.connection", "tests/integration/aws/test_connection.py")
contention = Module("core.contention", "tests/unit/core/test_contention.py")
context = Module("runtime.context", "tests/unit/runtime/test_context.py")
delivery = Module("consuming.delivery", OF_DELIVERY)
expressions = Module(
    "aws.expressions",
    "tests/integration/aws/test_dynamodb.py",
    "tests/integration/aws/test_expressions.py",
)
fair_share = Module("core.fair_share", "tests/unit/core/test_pacing.py")
in_hand = Module("consuming.delivered_batch", OF_DELIVERY)
kinesis = Module("aws.kinesis", "tests/integration/aws/test_kinesis.py")
model_records = Module("model.records", "tests/unit/model/test_records.py")
model_positions = Module("model.positions", "tests/unit/model/test_records.py")
pacing = Module("core.pacing", "tests/unit/core/test_pacing.py")
progress = Module("core.progress", "tests/unit/core/test_progress.py")
reachability = Module(
    "coordination.reachability", "tests/unit/coordination/test_reachability.py"
)
reader = Module("consuming.shard_reader", "tests/unit/consuming/test_shard_reader.py")
records = Module("wire.records", "tests/unit/wire/test_records.py")

MUTANTS = (
    # --- what is done
    in_hand(
        "what is handed out is done",
        "I2; K1, Go 9",
        "DeliveredBatch.sync_progress",
        replace("last - self.in_hand", "last"),
    ),
    in_hand(
        "asking marks although commits are manual",
        "I2; K1",
        "DeliveredBatch.sync_progress",
        drop("marks"),
    ),
    delivery(
        "a failed record is passed over",
        "K1",
        "RecordDelivery.iterate",
        replace(
            "delivered.busy_since = moment",
            "delivered.busy_since, delivered.in_hand = moment, 0",
        ),
    ),
    progress(
        "the last mark is the checkpoint",
        "I2: a contiguous prefix; Go 8",
        "Progress.mark",
        replace(
            "if batch.first + index == self._done: ...",
            "self._advance(max(self._done, batch.first + index + 1))",
        ),
    ),
    progress(
        "marks ahead of the prefix are forgotten",
        "I2; L3",
        "Progress.mark",
        drop("batch.marks[index] = 1"),
    ),
    model_records(
        "an aggregate is done with its first part",
        "I2: sub-sequence numbers",
        "Record.position",
        drop("self.sub_sequence_number"),
    ),
    model_positions(
        "positions compare as text",
        "1 longer is greater",
        "Position.order",
        replace("len(number)", "0"),
    ),
    progress(
        "places of marks compare as text",
        "1 longer is greater",
        "_order",
        replace("len(number)", "0"),
    ),
    progress(
        "a commit stores what is done by the time it is answered",
        "I10",
        "Progress.committed",
        replace(
            "self._committed_position, self._committed = ...",
            "self._committed_position, _ = self._handed_out.popleft(); "
            "self._committed = self._done",
        ),
    ),
    checkpointer(
        "nothing is committed before a shard is given up",
        "10 every 5 s; I10",
        "Checkpointer.run",
        replace("await self._commit_each(due)", "True"),
    ),
    progress(
        "commits go on without progress",
        "10 only where there was progress; K13",
        "Progress.pending",
        replace("None if ... else position", "position"),
    ),
    # --- what is delivered
    reader(
        "the record of the checkpoint comes again",
        "I9: just after the claimed position",
        "_is_after",
        replace("record.position > after", "True"),
        "tests/unit/consuming/test_shard_reader_aggregates.py",
    ),
    reader(
        "every page is searched for the start",
        "I9",
        "ShardReader._skip",
        drop("self._skip_to = None"),
    ),
    reader(
        "an expired iterator starts from the old checkpoint",
        "9 iterator expired; K10, Go 4, Go 5",
        "ShardReader._batches",
        drop("self._after = Position(opened.last)"),
    ),
    reader(
        "an expired iterator starts at LATEST",
        "9 iterator expired; K10, Go 4",
        "ShardReader._call",
        replace(
            "self._forget_iterator()",
            "self._after, self._iterator = Start.LATEST, None",
        ),
    ),
    reader(
        "an expired iterator is tried for ever",
        "K10, Go 21",
        "ShardReader._call",
        replace("self._forget_iterator()", "pass"),
    ),
    reader(
        "a position that expired ends the client",
        "11 parents trimmed by retention",
        "ShardReader._call",
        replace("self._trimmed(error)", "raise"),
    ),
    reader(
        "a failed read loses its page",
        "I9; K11",
        "ShardReader._read",
        replace(
            "return page",
            "if self._context.random.random() < 0.01:\n"
            "    page = Page([], page.next_iterator, page.millis_behind)\n"
            "...",
        ),
    ),
    reader(
        "records are dropped when the queue is full",
        "I9; async-kinesis",
        "ShardReader._put",
        replace(
            "await self._owned.wait_for_capacity(len(batch))",
            "if len(batch) > 20: break",
        ),
    ),
    delivery(
        "what is left of a batch is lost in a pause",
        "I9; 5 pause",
        "RecordDelivery._pass",
        always("self._closed or not delivered.has_rest"),
    ),
    reader(
        "a missing shard ends the client",
        "8 a parent that has expired",
        "ShardReader._missing",
        replace("return Page([], None, 0)", "raise error"),
    ),
    # --- pace and room
    reader(
        "throttled reads end the client",
        "9 never an error to the user; K11",
        "ShardReader._call",
        replace(
            "if not isinstance(error, SourceThrottledError): ...",
            "if isinstance(error, SourceThrottledError): raise\n...",
        ),
    ),
    pacing(
        "a shard is read as often as it answers",
        "9 at most 5 calls/s; K11, Go 22",
        "Pacing.__init__",
        replace(
            "max(min_read_interval_seconds, CALL_SECONDS)",
            "min(min_read_interval_seconds, 0.01)",
        ),
        f"{KNOWN}::test_a_shard_is_read_about_five_times_a_second_and_not_more",
    ),
    fair_share(
        "large pages aren't paid for",
        "9 at most 2 MB/s",
        "Share.pause_seconds",
        replace("payload_bytes / BYTES_PER_SECOND", "0.0"),
    ),
    pacing(
        "a refused reader goes on as fast as before",
        "9 at most 5 calls/s, by all apps together",
        "Pacing._refuse",
        drop("share.cut(now, 1 / self._wait)"),
    ),
    contention(
        "a foreign consumer is never noticed",
        "9 at most 5 calls/s, by all apps together",
        "Contention._count",
        replace("self.foreign = True", "self.foreign = False"),
    ),
    pacing(
        "failed reads don't back off",
        "9 backed off; Go 20",
        "Pacing.after_failure",
        replace("now + max(self._pace, jitter * limit)", "now"),
    ),
    buffer(
        "the buffer has no limit",
        "9 a byte budget; K9, K16",
        "PrefetchBuffer._fits",
        replace("self.used + size <= self.limit or self.used <= 0", "True"),
    ),
    buffer(
        "any number of answers is under way at once",
        "9 a byte budget; K9",
        "PrefetchBuffer._exceeds_window",
        replace("0 < self.in_flight > self.window.size - size", "False"),
        "tests/unit/consuming/test_read_request.py",
    ),
    connection(
        "an answer is received though there is no room for it",
        "9 a byte budget; K9, K16",
        "Connection._admit",
        always("reservation is None or reservation.covers(size)"),
    ),
    context(
        "a failing store ends the client",
        "9 store unreachable; K12",
        "ClientContext.until_available",
        replace(
            "(StoreUnavailableError, SourceUnavailableError)", "SourceUnavailableError"
        ),
    ),
    context(
        "a failing Kinesis ends the client",
        "9 Kinesis unreachable",
        "ClientContext.until_available",
        replace(
            "(StoreUnavailableError, SourceUnavailableError)", "StoreUnavailableError"
        ),
    ),
    reachability(
        "who can't reach Kinesis says so to nobody",
        "9 degraded after 30 s",
        "Reachability._is_unreachable",
        replace("until - since > ...", "False"),
        f"{KNOWN}::test_a_client_that_cannot_reach_kinesis_gives_its_shards_to_the_others",
    ),
    reachability(
        "who gets answers, though no records, takes the shards again",
        "9 degraded after 30 s",
        "Reachability._probe",
        replace("await source.get_records(iterator, limit=1)", "del iterator"),
    ),
    reader(
        "who never gets an answer takes the shard again",
        "K3",
        "ShardReader._watched",
        drop("self._failed(since=-math.inf)"),
        "tests/unit/coordination/test_reachability.py",
    ),
    # --- aggregates
    aggregation(
        "aggregates aren't opened",
        "Go 29",
        "open_records",
        always("not has_aggregates(records)"),
    ),
    reader(
        "records outside the shard's range are dropped",
        "K19",
        "ShardReader._batches",
        replace(
            "records = self._skip(opened.records, self._skip_to)",
            "...; records = [] if opened.outside else records",
        ),
        "tests/unit/consuming/test_shard_reader_aggregates.py",
    ),
    reader(
        "records outside the shard's range aren't counted",
        "K19",
        "ShardReader._open",
        drop("self._owned.outside_hash_range += opened.outside"),
        "tests/unit/consuming/test_shard_reader_aggregates.py",
    ),
    aggregation(
        "an aggregate isn't checked by its digest",
        "decode path",
        "_open",
        drop("if _md5(message) != ...: ..."),
    ),
    aggregation(
        "parts of an aggregate are counted from one",
        "decode path",
        "_read_any",
        replace(
            "parts: ... = []",
            "parts: list[tuple[int, int | None, bytes]] = [(0, None, b'')]",
        ),
    ),
    records(
        "an answer that was cut off is an empty page",
        "decode path",
        "decode_page",
        replace("_refuse(body, str(fault), fault)", "answer = _Answer([])"),
    ),
    attributes(
        "a checkpoint that can't be read is none",
        "decode path; Go 16",
        "read_position",
        replace("raise corrupt(row, 'sequence_number')", "return None"),
    ),
    attributes(
        "a checkpoint loses its part",
        "decode path",
        "read_position",
        drop("count(...)"),
    ),
    kinesis(
        "an iterator begins at the checkpoint, not after it",
        "9; K10",
        "_iterator_arguments",
        replace("'AFTER_SEQUENCE_NUMBER'", "'AT_SEQUENCE_NUMBER'"),
        simulated=False,
    ),
    expressions(
        "a refused write doesn't tell the row",
        "4 ReturnValuesOnConditionCheckFailure",
        "request_of",
        drop("arguments['ReturnValuesOnConditionCheckFailure'] = ..."),
        simulated=False,
    ),
)
