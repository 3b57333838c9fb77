"""Section 8: resharding, starts, and what was made anew."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Patch, mutant

OF_ENDS = "tests/test_rounds_ends.py"
OF_LINEAGE = "tests/core/test_lineage.py"
OF_KEEPER = "tests/test_keeper.py"
OF_FATAL = "tests/simulation/test_fatal.py"

MUTANTS = (
    mutant(
        "a shard ends before its records are done",
        "8 all its records are done; K1",
        "holding.py",
        "await self._until(lambda: self.revoked or self.is_finished)",
        "await self._until(lambda: True)",
        OF_ENDS,
    ),
    mutant(
        "a shard without news never ends",
        "K7",
        "ends.py",
        "if await holding.finished() and holding.children is not None:",
        "if await holding.finished() and holding.children is not None"
        " and holding.position is not None:",
        OF_ENDS,
    ),
    mutant(
        "children are left to the leader",
        "8 no leader needed; L4",
        "ends.py",
        "            return await self._end(holding, await self._children(holding))",
        "            return await self._end(holding, [])",
        OF_ENDS,
    ),
    mutant(
        "children are made after the end",
        "8 a crash between them loses nothing",
        "ends.py",
        "        opening = []\n"
        "        for child in children:\n"
        "            made = await self._context.write("
        "writes.create_shard(app, child))\n"
        "            # Its epoch, read before its parents are, is what Ready names.\n"
        "            opening.append("
        "self._context.readable(rows.read_shard, made.row))\n"
        "        holding.revoke()\n"
        "        write = writes.end(app, holding.row, holding.position)\n"
        "        if not await self._give_up(holding, write):\n"
        "            return False\n",
        "        holding.revoke()\n"
        "        write = writes.end(app, holding.row, holding.position)\n"
        "        if not await self._give_up(holding, write):\n"
        "            return False\n"
        "        opening = []\n"
        "        for child in children:\n"
        "            made = await self._context.write("
        "writes.create_shard(app, child))\n"
        "            opening.append("
        "self._context.readable(rows.read_shard, made.row))\n",
        OF_ENDS,
        note="The leader's repairs make up for it within a listing; sooner is L4.",
    ),
    mutant(
        "siblings are read before the end is written",
        "8 both write End before they read the sibling",
        "ends.py",
        "        holding.revoke()\n"
        "        write = writes.end(app, holding.row, holding.position)\n"
        "        if not await self._give_up(holding, write):\n"
        "            return False\n"
        "        for row in opening:\n"
        "            if row and not row.ready and "
        "await self._parents_ended(holding, row):\n",
        "        holding.revoke()\n"
        "        write = writes.end(app, holding.row, holding.position)\n"
        "        ended = self._parents_ended\n"
        "        free = [r for r in opening if r and await ended(holding, r)]\n"
        "        if not await self._give_up(holding, write):\n"
        "            return False\n"
        "        for row in opening:\n"
        "            if row and row in free:\n",
        OF_ENDS,
        note="The leader's repairs make up for it within a listing; sooner is L4.",
    ),
    mutant(
        "children are ready when they are made",
        "8 children after all parents; K2, Go 2",
        "core/lineage.py",
        "return _row(arn, child, Start.TRIM_HORIZON)",
        "return _row(arn, child, Start.TRIM_HORIZON)._replace(ready=True)",
        OF_ENDS,
    ),
    mutant(
        "children start at LATEST",
        "8 from their beginning; K2, Go 3",
        "core/lineage.py",
        "return _row(arn, child, Start.TRIM_HORIZON)",
        "return _row(arn, child, Start.LATEST)",
        OF_LINEAGE,
    ),
    mutant(
        "one parent is enough",
        "8 if every one has ended; async-kinesis",
        "ends.py",
        "            elif known is None or not known.ended:\n"
        "                return False\n",
        "",
        OF_ENDS,
    ),
    mutant(
        "a sibling without a row has ended",
        "8 neither the table nor Kinesis knows it",
        "ends.py",
        "                if parent in ids or child.key.shard_id not in ids:\n"
        "                    return False\n",
        "                _ = ids\n",
        OF_ENDS,
    ),
    mutant(
        "a sibling that has expired never ends",
        "8 has expired, and counts as ended",
        "ends.py",
        "                if parent in ids or child.key.shard_id not in ids:\n",
        "                if ids:\n",
        OF_ENDS,
    ),
    mutant(
        "a listing without the child proves its parents gone",
        "8; truncated ListShards",
        "ends.py",
        "if parent in ids or child.key.shard_id not in ids:",
        "if parent in ids:",
        OF_ENDS,
    ),
    mutant(
        "children aren't opened by the owner",
        "8 writes Ready; L4",
        "ends.py",
        "                await self._context.write(writes.ready(app, row))\n",
        "                pass\n",
        OF_ENDS,
    ),
    mutant(
        "a repair opens children too soon",
        "8 children after all parents",
        "core/lineage.py",
        "rows[parent].ended if parent in rows else parent not in pending",
        "parent not in pending",
        OF_LINEAGE,
    ),
    mutant(
        "a repair counts a pending parent as expired",
        "8 neither the table nor Kinesis knows it",
        "core/lineage.py",
        "rows[parent].ended if parent in rows else parent not in pending",
        "rows[parent].ended if parent in rows else True",
        OF_LINEAGE,
    ),
    mutant(
        "a repair waits for expired parents",
        "8 has expired, and counts as ended",
        "core/lineage.py",
        "rows[parent].ended if parent in rows else parent not in pending",
        "rows[parent].ended if parent in rows else False",
        OF_LINEAGE,
    ),
    Mutant(
        "a child is read before its parent has ended",
        "8; K2, Go 2",
        (
            Patch(
                "core/ownership.py",
                "        if not row.ready:\n            continue\n",
                "",
            ),
            Patch(
                "wire/writes.py",
                '            Test("ready", "=", True),\n            Test("ended"',
                '            Test("ended"',
            ),
        ),
        ("tests/test_rounds.py::test_a_shard_that_is_not_ready_is_waited_for",),
    ),
    mutant(
        "what isn't ready is claimed again and again",
        "10 cost",
        "core/ownership.py",
        "        if not row.ready:\n            continue\n",
        "",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "what has ended is claimed again and again",
        "10 cost",
        "core/ownership.py",
        "if row.ended or row.key in held:",
        "if row.key in held:",
        "tests/core/test_ownership.py",
    ),
    mutant(
        "closed shards are dropped from the start",
        "2 drained to the end; Go 1",
        "core/lineage.py",
        "ended=shard.shard_id in ended,",
        "ended=shard.shard_id in ended or shard.closed,",
        OF_LINEAGE,
    ),
    # --- starts
    mutant(
        "LATEST is resolved by each shard",
        "8 LATEST is resolved once; Go 3",
        "keeper.py",
        'start = Start(type="AT_TIMESTAMP", timestamp=info.now)',
        "start = Start.LATEST",
        OF_KEEPER,
    ),
    mutant(
        "LATEST is the client's time",
        "8 from the Kinesis response; Go 11",
        "keeper.py",
        'start = Start(type="AT_TIMESTAMP", timestamp=info.now)',
        'start = Start(type="AT_TIMESTAMP", timestamp=context.clock.wall())',
        "tests/test_keeper_latest.py",
    ),
    mutant(
        "LATEST is the time before the listing",
        "8",
        "keeper.py",
        "            info = await context.until_available("
        "stream.source.describe, stream.label)\n"
        "            start = Start",
        "            start = Start",
        "tests/test_keeper_latest.py",
    ),
    mutant(
        "whoever finds a start resolved drops closed shards",
        "8 resolved once",
        "keeper.py",
        "closed = closed if written.applied else frozenset()",
        "closed = closed if written.row else frozenset()",
        OF_KEEPER,
    ),
    mutant(
        "claims before the baseline",
        "8 only then may anyone claim",
        "leader.py",
        "return [s.arn for s in streams if s.baseline and s.arn in arns]",
        "return [s.arn for s in streams if s.arn in arns]",
        "tests/test_leader.py::test_no_plan_is_made_before_a_baseline_stands",
    ),
    mutant(
        "a baseline that is never declared",
        "8 only then may anyone claim",
        "keeper.py",
        "    await context.write(writes.baseline(context.app, row))\n",
        "",
        OF_KEEPER,
    ),
    mutant(
        "a start by time delivers what came before",
        "8 AT_TIMESTAMP",
        "reader.py",
        "    return arrived >= after.timestamp\n",
        "    return True\n",
        "tests/test_reader.py",
    ),
    # --- made anew
    mutant(
        "a stream made anew is simply read on",
        "8 stops the client with an error",
        "keeper.py",
        "    if row.created_at != info.created_at:\n",
        "    if False:\n",
        OF_FATAL,
    ),
    mutant(
        "a state store made anew is simply used",
        "8 stops the client with an error",
        "identity.py",
        "if known is not None and found != known:",
        "if False:",
        OF_FATAL,
    ),
)
