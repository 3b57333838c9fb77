"""Section 5: sessions, leases, clocks, deaths and static ids."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Patch, mutant

LIVENESS = "core/liveness.py"
OF_LIVENESS = "tests/core/test_liveness.py"
OF_HEARTBEAT = "tests/test_heartbeat.py"
OUTAGE = (
    "tests/simulation/test_liveness.py"
    "::test_l5_an_outage_of_the_whole_store_fences_nobody"
)

MUTANTS = (
    # --- the holder
    mutant(
        "the lease counts from the retry",
        "5 Holder",
        "heartbeat.py",
        "lease.deadline = first_sent + TRUST * trusted_ms / 1000",
        "lease.deadline = clock.now() + TRUST * trusted_ms / 1000",
        OF_HEARTBEAT,
    ),
    mutant(
        "the holder trusts itself for the whole lease",
        "5 Holder",
        "heartbeat.py",
        "TRUST = 0.75",
        "TRUST = 1.0",
    ),
    mutant(
        "the lease isn't checked between two records",
        "5 checked right before",
        "delivery.py",
        "if moment >= lease.deadline or holding.revoked or moment >= due:",
        "if holding.revoked or moment >= due:",
        "tests/test_delivery.py",
    ),
    Mutant(
        "a lapsed lease doesn't pause",
        "5 past the deadline: pause; 9",
        (
            Patch(
                "delivery.py",
                "if holding.lease.permits(self._clock.now()):\n                return",
                "if not holding.lease.dead:\n                return",
            ),
            Patch(
                "delivery.py",
                "if moment >= lease.deadline or holding.revoked or moment >= due:",
                "if holding.revoked or moment >= due:",
            ),
        ),
    ),
    mutant(
        "a lapsed lease gives the shards up",
        "5 past the deadline: keep the shards; K12",
        "delivery.py",
        "            self.take_stock()\n            await asyncio.sleep(PAUSE_SECONDS)",
        "            return False",
        "tests/test_delivery.py",
    ),
    mutant(
        "who is told dead goes on",
        "5 told dead: drop everything; Go 6",
        "heartbeat.py",
        "            if not written.applied or written.row is None:\n"
        "                return\n",
        "            if written.row is None:\n                return\n",
        OF_HEARTBEAT,
    ),
    mutant(
        "who is told dead keeps its shards",
        "5 told dead: drop everything",
        "group.py",
        "        session.rounds.drop_all()\n",
        "",
        "tests/test_group.py",
    ),
    mutant(
        "who is told dead never comes back",
        "5 told dead: register anew; K12",
        "heartbeat.py",
        "                await self._wait_for_progress()",
        "                return",
        OF_HEARTBEAT,
    ),
    mutant(
        "who registers anew keeps its session",
        "5 with a new session",
        "heartbeat.py",
        "        context, session = self._context, self._context.new_id()",
        "        context = self._context\n"
        '        session = self.registering.session if self.registering else "s"\n'
        "        session = session + context.client_id * (session == 's')",
    ),
    mutant(
        "the clock stops in suspend",
        "5 the clock runs through suspend",
        "clock.py",
        'boot = getattr(time, "CLOCK_BOOTTIME", None)',
        "boot = None",
        "tests/test_clock.py",
        simulated=False,
        note="The simulator's machines have clocks of their own.",
    ),
    mutant(
        "the heart beats on the client's loop",
        "5 a thread of their own; K9, Go 14",
        "client.py",
        "heart = ThreadHeart(context, thread)",
        "from kinesumer.heart_runner import TaskHeart\n\n"
        "        heart = TaskHeart(context)",
        "tests/aws/test_heart.py",
        simulated=False,
        note="The simulator's hearts have machines of their own.",
    ),
    mutant(
        "user code that is stuck keeps its shards",
        "5 max_processing_time; K3",
        "heartbeat.py",
        "return work if work is not None and now - work.since > limit else None",
        "return None",
        "tests/simulation/test_known_failures.py"
        "::test_a_shard_whose_user_code_is_stuck_goes_to_another_client",
    ),
    # --- the observer
    mutant(
        "an observer fences too soon",
        "5 Observer",
        LIVENESS,
        "elif now - before.since >= member.lease_ms / 1000:",
        "elif now - before.since >= 0.6 * member.lease_ms / 1000:",
        OF_LIVENESS,
    ),
    mutant(
        "an observer uses its own idea of the lease",
        "5 it travels in the row",
        LIVENESS,
        "elif now - before.since >= member.lease_ms / 1000:",
        "elif now - before.since >= 8.0:",
        OF_LIVENESS,
    ),
    mutant(
        "an observer counts beats of other sessions",
        "5 (session, beat)",
        LIVENESS,
        "before is None or before[:2] != (member.session, member.beat)",
        "before is None or before.beat != member.beat",
        OF_LIVENESS,
    ),
    mutant(
        "an observer believes the member's wall clock",
        "5 no absolute times; Go 11",
        LIVENESS,
        "                before = _Seen(member.session, member.beat, now)\n",
        "                before = _Seen(member.session, member.beat, -math.inf)\n",
        OF_LIVENESS,
    ),
    mutant(
        "nobody is ever fenced",
        "5 Observer",
        LIVENESS,
        "                stale.append(member)\n",
        "                pass\n",
        OF_LIVENESS,
    ),
    mutant(
        "windows go on after an outage",
        "5 all windows start again",
        LIVENESS,
        "if self._last_look is None or now - self._last_look > longest_gap:",
        "if self._last_look is None:",
        OF_LIVENESS,
        note="Its own beats lapse too in an outage of the store, which counts as well.",
    ),
    mutant(
        "who can't beat itself judges others",
        "5 reads or beats lapsed",
        "leader.py",
        "            self._watch.reset()\n        stale",
        "            pass\n        stale",
        "tests/test_leader.py::test_who_cannot_beat_itself_fences_nobody",
    ),
    Mutant(
        "an outage of the store is the death of all",
        "5 nobody healthy is fenced; L5",
        (
            Patch(
                LIVENESS,
                "if self._last_look is None or now - self._last_look > longest_gap:",
                "if self._last_look is None:",
            ),
            Patch(
                "leader.py",
                "            self._watch.reset()\n        stale",
                "            pass\n        stale",
            ),
        ),
        (OUTAGE,),
    ),
    mutant(
        "a fence is repeated until it is answered",
        "5 after an outage nobody healthy is fenced",
        "leader.py",
        "            written = await context.store.write(\n"
        "                writes.fence(context.app, member, moment)\n"
        "            )\n",
        "            written = await context.write(\n"
        "                writes.fence(context.app, member, moment)\n"
        "            )\n",
        "tests/test_leader.py"
        "::test_a_fence_that_was_not_answered_is_not_repeated_at_once",
    ),
    # --- the dead
    mutant(
        "any row proves a death",
        "7 the claimer verifies the death",
        LIVENESS,
        "return row.session != session and type(row.session) is str",
        "return True",
        OF_LIVENESS,
    ),
    mutant(
        "a mark proves nothing",
        "5 death is a mark",
        LIVENESS,
        "    if row is None or row.dead:\n        return True\n    return row.session",
        "    if row is None:\n        return True\n    return row.session",
        OF_LIVENESS,
    ),
    mutant(
        "dead rows are pruned at once",
        "5 pruned after an hour",
        "pruning.py",
        "PRUNE_SECONDS = 600.0\nDEAD_SECONDS = 3600.0",
        "PRUNE_SECONDS = 1.0\nDEAD_SECONDS = LATE = 0.0",
        "tests/test_pruning.py::test_rows_of_the_long_dead_are_pruned_and_no_sooner",
        note="LATE_SECONDS still holds: see the next one.",
    ),
    mutant(
        "dates alone decide on pruning",
        "5 no absolute times",
        "pruning.py",
        "if self._since.get(member.session, math.inf) <= now - LATE_SECONDS:\n"
        "                await",
        "if member.dead:\n                await",
        "tests/test_pruning.py"
        "::test_a_death_seen_just_now_is_not_pruned_whatever_its_date_says",
    ),
    # --- static ids
    mutant(
        "a successor doesn't wait for its predecessor",
        "5 Static ids",
        "heartbeat.py",
        "while context.clock.now() - since < before.lease_ms / 1000:",
        "while False:",
        OF_HEARTBEAT,
    ),
    mutant(
        "a successor has its predecessor's incarnation",
        "5 Static ids",
        "heartbeat.py",
        "return seen + 1 if type(seen) is int else 0",
        "return seen if type(seen) is int else 0",
        "tests/test_heartbeat.py"
        "::test_a_static_id_waits_for_its_dead_predecessor_and_takes_its_place",
    ),
    mutant(
        "two processes may have one id",
        "5 Two live processes with one id; Go 26",
        "heartbeat.py",
        "            if changes > 1:\n                raise ClientIdInUseError",
        "            if changes > 1 << 40:\n                raise ClientIdInUseError",
        "tests/test_heartbeat.py"
        "::test_two_live_processes_with_one_id_are_an_error_for_the_second",
    ),
    mutant(
        "one late beat is a living process",
        "5 Two live processes with one id",
        "heartbeat.py",
        "            if changes > 1:\n                raise ClientIdInUseError",
        "            if changes > 0:\n                raise ClientIdInUseError",
        "tests/test_heartbeat.py"
        "::test_one_late_beat_of_the_predecessor_is_no_sign_of_life",
    ),
    # --- fleets
    mutant(
        "a large fleet beats as often as a small one",
        "5 above 250 clients",
        LIVENESS,
        "return max(heartbeat_seconds, clients / CLIENTS_PER_SECOND)",
        "return heartbeat_seconds",
        OF_LIVENESS,
    ),
    mutant(
        "a lease shorter than three heartbeats is taken",
        "5 L < 3 H is refused",
        "config.py",
        "if self.lease_seconds < 3 * self.heartbeat_seconds:",
        "if self.lease_seconds < self.heartbeat_seconds:",
        "tests/test_config.py",
        simulated=False,
    ),
    # --- who reads no more
    mutant(
        "who met a fatal fault keeps its shards",
        "K3",
        "group.py",
        "            await self.retire(self.context.config.drain_timeout)\n",
        "",
        "tests/test_group_faults.py",
        simulated=False,
    ),
    mutant(
        "who ended run() keeps its shards",
        "K3",
        "client.py",
        "                await self._group.retire(0.0)\n",
        "                pass\n",
        "tests/test_retiring.py",
        simulated=False,
    ),
    mutant(
        "who stopped asking keeps its shards",
        "K3",
        "delivery.py",
        "        except asyncio.CancelledError:\n"
        "            self._left_since = self._clock.now()\n",
        "        except asyncio.CancelledError:\n",
        "tests/test_watchdog.py",
        simulated=False,
    ),
    mutant(
        "a stream that refresh left out goes on being kept",
        "Go 19",
        "keeper.py",
        "                    running.pop(arn).cancel()\n",
        "                    running.pop(arn)\n",
        "tests/test_group_faults.py",
        simulated=False,
    ),
)
