"""The record path: from a page to user code and to the checkpoint. Known failures."""

from __future__ import annotations

from tests.mutants.mutant import mutant

OF_PROGRESS = "tests/core/test_progress.py"
OF_READER = "tests/test_reader.py"
OF_DELIVERY = "tests/test_delivery.py"
KNOWN = "tests/simulation/test_known_failures.py"

MUTANTS = (
    # --- what is done
    mutant(
        "what is handed out is done",
        "I2; K1, Go 9",
        "delivery.py",
        "            done = max(0, handed - self._in_hand)\n",
        "            done = handed\n",
        OF_DELIVERY,
    ),
    mutant(
        "asking marks although commits are manual",
        "I2; K1",
        "delivery.py",
        "        if self._auto:\n            done",
        "        if True:\n            done",
        OF_DELIVERY,
    ),
    mutant(
        "a failed record is passed over",
        "K1",
        "delivery.py",
        "                self.busy_since = moment\n                yield record\n",
        "                self.busy_since, self._in_hand = moment, 0\n"
        "                yield record\n",
        OF_DELIVERY,
    ),
    mutant(
        "the last mark is the checkpoint",
        "I2: a contiguous prefix; Go 8",
        "core/progress.py",
        "        if batch.first + index == self._done:\n"
        "            self._advance(self._done + 1)\n",
        "        self._advance(max(self._done, batch.first + index + 1))\n",
        OF_PROGRESS,
    ),
    mutant(
        "marks ahead of the prefix are forgotten",
        "I2; L3",
        "core/progress.py",
        "        batch.marks[index] = 1\n",
        "",
        OF_PROGRESS,
    ),
    mutant(
        "an aggregate is done with its first part",
        "I2: sub-sequence numbers",
        "model.py",
        "        return Position(self.sequence_number, self.sub_sequence_number)\n",
        "        return Position(self.sequence_number)\n",
        "tests/test_model.py",
    ),
    mutant(
        "positions compare as text",
        "1 longer is greater",
        "model.py",
        "return (len(number), number, WHOLE_RECORD if sub is None else sub)",
        "return (0, number, WHOLE_RECORD if sub is None else sub)",
        "tests/test_model.py",
    ),
    mutant(
        "places of marks compare as text",
        "1 longer is greater",
        "core/progress.py",
        "return (len(number), number, WHOLE_RECORD if part is None else part)",
        "return (0, number, WHOLE_RECORD if part is None else part)",
        OF_PROGRESS,
    ),
    mutant(
        "a commit stores what is done by the time it is answered",
        "I10",
        "core/progress.py",
        "            self._committed_position, self._committed = "
        "self._handed_out.popleft()\n",
        "            self._committed_position, _ = self._handed_out.popleft()\n"
        "            self._committed = self._done\n",
        OF_PROGRESS,
    ),
    mutant(
        "nothing is committed before a shard is given up",
        "10 every 5 s; I10",
        "checkpointer.py",
        "            stored = await self._commit_each(due)\n",
        "            stored = True\n",
        "tests/test_checkpointer.py",
    ),
    mutant(
        "commits go on without progress",
        "10 only where there was progress; K13",
        "core/progress.py",
        "return None if position == self._committed_position else position",
        "return position",
        OF_PROGRESS,
    ),
    # --- what is delivered
    mutant(
        "the record of the checkpoint comes again",
        "I9: just after the claimed position",
        "reader.py",
        "    if isinstance(after, Position):\n        return record.position > after\n",
        "    if isinstance(after, Position):\n        return True\n",
        "tests/test_reader_aggregates.py",
    ),
    mutant(
        "every page is searched for the start",
        "I9",
        "reader.py",
        "                self._skip_to = None\n",
        "",
        OF_READER,
    ),
    mutant(
        "an expired iterator starts from the old checkpoint",
        "9 iterator expired; K10, Go 4, Go 5",
        "reader.py",
        "        self._after = Position(opened.last)\n",
        "",
        OF_READER,
    ),
    mutant(
        "an expired iterator starts at LATEST",
        "9 iterator expired; K10, Go 4",
        "reader.py",
        "        except ExpiredIteratorError:\n            self._iterator = None\n",
        "        except ExpiredIteratorError:\n"
        "            self._after, self._iterator = Start.LATEST, None\n",
        OF_READER,
    ),
    mutant(
        "an expired iterator is tried for ever",
        "K10, Go 21",
        "reader.py",
        "        except ExpiredIteratorError:\n            self._iterator = None\n",
        "        except ExpiredIteratorError:\n            pass\n",
        OF_READER,
    ),
    mutant(
        "a position that expired ends the client",
        "11 parents trimmed by retention",
        "reader.py",
        "            self._after, self._iterator = Start.TRIM_HORIZON, None\n",
        "            raise\n",
        OF_READER,
    ),
    mutant(
        "a failed read loses its page",
        "I9; K11",
        "reader.py",
        "        self._iterator = page.next_iterator\n        return page\n",
        "        self._iterator = page.next_iterator\n"
        "        if self._context.random.random() < 0.01:\n"
        "            page = Page([], page.next_iterator, page.millis_behind)\n"
        "        return page\n",
        OF_READER,
    ),
    mutant(
        "records are dropped when the queue is full",
        "I9; async-kinesis",
        "reader.py",
        "            await self._holding.room(len(batch))\n",
        "            if len(batch) > 20:\n                break\n",
        OF_READER,
    ),
    mutant(
        "what is left of a batch is lost in a pause",
        "I9; 5 pause",
        "delivery.py",
        "            if not batch.holding.revoked:\n                return batch\n",
        "            pass\n",
        OF_DELIVERY,
    ),
    mutant(
        "a missing shard ends the client",
        "8 a parent that has expired",
        "reader.py",
        "        return Page([], None, 0)\n",
        "        raise error\n",
        OF_READER,
    ),
    # --- pace and room
    mutant(
        "throttled reads end the client",
        "9 never an error to the user; K11",
        "reader.py",
        "        except SourceUnavailableError as error:\n",
        "        except SourceThrottledError:\n"
        "            raise\n"
        "        except SourceUnavailableError as error:\n",
        OF_READER,
    ),
    mutant(
        "a shard is read as often as it answers",
        "9 at most 5 calls/s; K11, Go 22",
        "core/pacing.py",
        "self._pace = max(pace_seconds, CALL_SECONDS)",
        "self._pace = min(pace_seconds, 0.01)",
        f"{KNOWN}::test_a_shard_is_read_about_five_times_a_second_and_not_more",
    ),
    mutant(
        "large pages aren't paid for",
        "9 at most 2 MB/s",
        "core/pacing.py",
        "wait = max(self._pace, payload_bytes / BYTES_PER_SECOND)",
        "wait = self._pace",
        "tests/core/test_pacing.py",
    ),
    mutant(
        "failed reads don't back off",
        "9 backed off; Go 20",
        "core/pacing.py",
        "        return now + max(self._pace, jitter * limit)\n",
        "        return now\n",
        "tests/core/test_pacing.py",
    ),
    mutant(
        "the buffer has no limit",
        "9 a byte budget; K9, K16",
        "buffer.py",
        "return self.used + size <= self.limit or self.used <= 0",
        "return True",
        "tests/test_buffer.py",
    ),
    mutant(
        "a failing store ends the client",
        "9 store unreachable; K12",
        "context.py",
        "except (StoreUnavailableError, SourceUnavailableError) as error:",
        "except SourceUnavailableError as error:",
        "tests/test_context.py",
    ),
    mutant(
        "a failing Kinesis ends the client",
        "9 Kinesis unreachable",
        "context.py",
        "except (StoreUnavailableError, SourceUnavailableError) as error:",
        "except StoreUnavailableError as error:",
        "tests/test_context.py",
    ),
    mutant(
        "who can't reach Kinesis says so to nobody",
        "9 degraded after 30 s",
        "reachability.py",
        "        return until - since > self._context.config.degraded_seconds\n",
        "        return False\n",
        f"{KNOWN}::test_a_client_that_cannot_reach_kinesis_gives_its_shards_to_the_others",
    ),
    mutant(
        "who gets answers, though no records, takes the shards again",
        "9 degraded after 30 s",
        "reachability.py",
        "                await source.get_records(iterator, limit)\n",
        "                del iterator, limit\n",
        "tests/test_reachability.py",
    ),
    mutant(
        "who never gets an answer takes the shard again",
        "K3",
        "reader.py",
        "                self._failed(since=-math.inf)  # however long that is\n",
        "                pass\n",
        "tests/test_reachability.py",
    ),
    # --- aggregates
    mutant(
        "aggregates aren't opened",
        "Go 29",
        "wire/aggregation.py",
        "    if not has_aggregates(records):\n",
        "    if True:\n",
        "tests/wire/test_aggregation.py",
    ),
    mutant(
        "records outside the shard's range are dropped",
        "K19",
        "reader.py",
        "        records = self._skip(opened.records, self._skip_to)\n",
        "        records = self._skip(opened.records, self._skip_to)\n"
        "        records = [] if opened.outside else records\n",
        "tests/test_reader_aggregates.py",
    ),
    mutant(
        "records outside the shard's range aren't counted",
        "K19",
        "reader.py",
        "            self._holding.outside += opened.outside\n",
        "",
        "tests/test_reader_aggregates.py",
    ),
    mutant(
        "an aggregate isn't checked by its digest",
        "decode path",
        "wire/aggregation.py",
        "    if _md5(message) != record.data[len(MAGIC) + len(message) :]:\n"
        "        return None\n",
        "",
        "tests/wire/test_aggregation.py",
    ),
    mutant(
        "parts of an aggregate are counted from one",
        "decode path",
        "wire/aggregation.py",
        "keys: list[str] = []\n    hashes: list[str] = []\n"
        "    parts: list[tuple[int, int | None, bytes]] = []\n",
        "keys: list[str] = []\n    hashes: list[str] = []\n"
        '    parts: list[tuple[int, int | None, bytes]] = [(0, None, b"")]\n',
        "tests/wire/test_aggregation.py",
    ),
    mutant(
        "an answer that was cut off is an empty page",
        "decode path",
        "wire/records.py",
        "        _refuse(body, str(fault), fault)\n",
        "        answer = _Answer([])\n",
        "tests/wire/test_records.py",
    ),
    mutant(
        "a checkpoint that can't be read is none",
        "decode path; Go 16",
        "wire/attributes.py",
        '        raise corrupt(row, "sequence_number")\n',
        "        return None\n",
        "tests/wire/test_rows.py",
    ),
    mutant(
        "a checkpoint loses its part",
        "decode path",
        "wire/attributes.py",
        'return Position(number, count(row, "sub_sequence_number", last=WHOLE_RECORD))',
        "return Position(number)",
        "tests/wire/test_rows.py",
    ),
    mutant(
        "an iterator begins at the checkpoint, not after it",
        "9; K10",
        "aws/kinesis.py",
        'kind = "AFTER_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"',
        'kind = "AT_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"',
        "tests/aws/test_kinesis.py",
        simulated=False,
    ),
    mutant(
        "a refused write doesn't tell the row",
        "4 ReturnValuesOnConditionCheckFailure",
        "aws/expressions.py",
        '        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"\n',
        "",
        "tests/aws/test_dynamodb.py",
        "tests/aws/test_expressions.py",
        simulated=False,
    ),
)
