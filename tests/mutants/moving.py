"""Section 7: hand-overs, takeovers, and what is bounded when a client dies."""

from __future__ import annotations

from tests.mutants.mutant import mutant

OF_ROUNDS = "tests/test_rounds.py"
OF_CLAIMS = "tests/test_rounds_claims.py"
KNOWN = "tests/simulation/test_known_failures.py"

MUTANTS = (
    mutant(
        "a hand-over doesn't drain",
        "7 waits for what is in user code",
        "rounds.py",
        "if not await holding.drained(drain_seconds) and drain_seconds:",
        "if not await holding.drained(0.0) and drain_seconds:",
        "tests/test_rounds.py::test_a_release_waits_for_user_code_but_not_for_ever",
    ),
    mutant(
        "a hand-over drains for ever",
        "7 drain_timeout; K4, K14",
        "holding.py",
        "async with asyncio.timeout(seconds):",
        "async with asyncio.timeout(None):",
        OF_ROUNDS,
    ),
    mutant(
        "a shard is delivered while it is given up",
        "7 drops what is fetched but undelivered",
        "rounds.py",
        "        holding.revoke()\n"
        "        self._buffer.drop(holding)\n"
        "        if not await",
        "        if not await",
        OF_ROUNDS,
    ),
    mutant(
        "a shard is read while it is given up",
        "7 stops fetching",
        "holding.py",
        "        if self.task is not None:\n            self.task.cancel()\n",
        "",
        "tests/test_holding.py",
    ),
    mutant(
        "what is fetched of a lost shard is kept",
        "9 memory is bounded; K16",
        "buffer.py",
        "            if batch.holding is holding:\n",
        "            if False:\n",
        "tests/test_buffer.py",
    ),
    mutant(
        "what was done while draining isn't stored",
        "7 releases with the last position",
        "rounds.py",
        "        self._take_stock()\n"
        "        app, position = self._context.app, holding.position\n",
        "        app, position = self._context.app, None\n",
        OF_ROUNDS,
    ),
    mutant(
        "a plan moves every shard",
        "7 shards that don't move never pause; Go 23",
        "core/ownership.py",
        "        if not contains(range_, key.stream_arn, first_hash)\n",
        "        if range_\n",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "shards outside the range are kept",
        "7; L2; Go 13",
        "core/ownership.py",
        "[key for key, since in outside.items() if now - since >= delay]",
        "[]",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "a range ends before its last hash key",
        "2 a client owns the shards in its range",
        "core/ownership.py",
        "interval.first <= first_hash <= interval.last",
        "interval.first < first_hash <= interval.last",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "a range is of any stream",
        "2; Go 28",
        "core/ownership.py",
        "arn == interval.stream_arn and interval.first <= first_hash",
        "interval.first <= first_hash",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "what lies at a range's end isn't seen",
        "2 exactly its own rows with one Query",
        "shard_rows.py",
        'last=rows.hash_text(last) + "/~"',
        "last=rows.hash_text(last)",
        "tests/test_shard_rows.py",
    ),
    mutant(
        "a claimer believes in no death",
        "7 claim with the dead session named",
        "core/ownership.py",
        'if row.owner in ("", session) or row.owner in dead:',
        'if row.owner in ("", session):',
        "tests/core/test_ownership.py",
    ),
    mutant(
        "a claimer takes any silence for death",
        "7 the claimer verifies the death",
        "core/ownership.py",
        "            round_.verify.add((row.owner_id, row.owner))\n",
        "            round_.claim.append(row)\n",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "a claimer looks for deaths in a stale read",
        "7 by a consistent read; Go 12",
        "deaths.py",
        "                rows.member_key(self._context.app, client_id)\n"
        "            )\n",
        "                rows.member_key(self._context.app, client_id),\n"
        "                consistent=False,\n"
        "            )\n",
        OF_CLAIMS,
    ),
    mutant(
        "a claim without a lease",
        "5 what it owns, it proved within its lease",
        "rounds.py",
        "        if not self._lease.permits(self._context.clock.now()):\n"
        "            return\n        await self._claim_each(self._open_claims",
        "        await self._claim_each(self._open_claims",
        OF_ROUNDS,
    ),
    mutant(
        "a dead session takes what it claimed",
        "5 told dead: drop everything",
        "rounds.py",
        "if won is None or self._lease.dead:",
        "if won is None:",
        OF_CLAIMS,
    ),
    mutant(
        "the position comes from before the claim",
        "7 from the claim's answer; Go 12",
        "rounds.py",
        "            self._take(won)",
        "            self._take(won._replace(position=row.position))",
        OF_CLAIMS,
    ),
    mutant(
        "a failed look is never tried again",
        "7; Go 16",
        "rounds.py",
        "                self._next_read = now + SLOW_POLL_SECONDS",
        '                self._next_read = float("inf")',
        OF_ROUNDS,
    ),
    mutant(
        "pending shards are looked for once a minute",
        "7 every 250 ms",
        "rounds.py",
        "            self._next_read = self._context.clock.now() + pause\n",
        "",
        OF_ROUNDS,
    ),
    mutant(
        "reading doesn't pause at max_uncommitted",
        "7 max_uncommitted",
        "holding.py",
        "while self._outstanding + count > self._max_uncommitted "
        "and self._outstanding:",
        "while False:",
        "tests/test_holding.py",
    ),
    mutant(
        "the fence is that of the epoch before",
        "7 a record carries its fence",
        "holding.py",
        "Fence(row.key, row.epoch, app)",
        "Fence(row.key, row.epoch - 1, app)",
    ),
    mutant(
        "a stop gives nothing up",
        "7; K6, KCL's graceful stop",
        "group.py",
        "            await asyncio.gather(*releases)\n",
        "            for release in releases:\n                release.close()\n",
        "tests/test_group.py",
    ),
    mutant(
        "a stop leaves the session alive",
        "4 Leave; K6",
        "group.py",
        "            await self.context.write(writes.leave("
        "self.context.app, member, moment))\n",
        "            _ = moment\n",
        "tests/test_group.py",
    ),
    mutant(
        "a stop waits for ever",
        "K14, Go 15",
        "group.py",
        "async with timeout(drain + self.context.config.lease_seconds):",
        "async with asyncio.timeout(None):",
        f"{KNOWN}::test_a_stop_ends_in_time_though_the_store_does_not_answer",
    ),
    mutant(
        "who leaves doesn't wait for its heirs",
        "7 a graceful hand-over; K6",
        "group.py",
        "async with timeout(LEAVE_BEATS * beat):",
        "async with asyncio.timeout(0):",
        "tests/simulation/test_liveness.py"
        "::test_l2_shards_hardly_pause_when_a_fleet_is_restarted_one_by_one",
    ),
    mutant(
        "who leaves says so to nobody",
        "7 planned move; K6",
        "group.py",
        '        self._set_state("leaving")\n',
        "",
        "tests/simulation/test_liveness.py"
        "::test_l2_a_leave_ends_in_the_plan_without_a_record_repeated",
    ),
    mutant(
        "streams removed by refresh are still consumed",
        "Go 19",
        "rounds.py",
        "return tuple(part for part in range_ if part.stream_arn in self._asked)",
        "return range_",
        OF_ROUNDS,
    ),
    mutant(
        "a refresh tells the leader nothing",
        "6; Go 19",
        "group.py",
        "        await self.context.write("
        "writes.ask(self.context.app, session.member, asked))\n",
        "",
        "tests/test_group_faults.py::test_refresh_adds_and_removes_streams",
    ),
)
