"""Section 5: sessions, leases, clocks, deaths and static client ids."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, never, replace

OUTAGE = (
    "tests/integration/simulation/test_liveness.py"
    "::test_l5_an_outage_of_the_whole_store_fences_nobody"
)
client = Module("client", "tests/integration/aws/test_heart.py")
clock = Module("runtime.clock", "tests/unit/runtime/test_clock.py")
config = Module("config", "tests/unit/test_config.py")
delivery = Module("consuming.delivery", "tests/unit/consuming/test_delivery.py")
delivery_simulated = Module("consuming.delivery")
group = Module("coordination.group", "tests/unit/coordination/test_group.py")
heartbeat = Module(
    "coordination.heartbeat", "tests/unit/coordination/test_heartbeat.py"
)
heartbeat_simulated = Module("coordination.heartbeat")
shard_sync = Module(
    "coordination.shard_sync", "tests/unit/coordination/test_group_faults.py"
)
liveness = Module("core.liveness", "tests/unit/core/test_liveness.py")
membership = Module("coordination.membership")

MUTANTS = (
    # --- the holder
    heartbeat(
        "the lease counts from the retry",
        "5 Holder",
        "Heartbeater._beat_until_dead",
        replace(
            "first_sent + ... / 1000",
            "clock.now() + SAFE_LEASE_SHARE * trusted_ms / 1000",
        ),
    ),
    heartbeat_simulated(
        "the holder trusts itself for the whole lease",
        "5 Holder",
        "",
        replace("SAFE_LEASE_SHARE = 0.75", "SAFE_LEASE_SHARE = 1.0"),
    ),
    delivery(
        "the lease isn't checked between two records",
        "5 checked right before",
        "RecordDelivery.iterate",
        drop("moment >= lease.deadline"),
    ),
    delivery_simulated(
        "a lapsed lease doesn't pause",
        "5 past the deadline: pause; 9",
        "RecordDelivery._permitted",
        replace("owned.lease.permits(self._clock.now())", "not owned.lease.dead")
        + drop(
            "moment >= lease.deadline",
            where="consuming.delivery:RecordDelivery.iterate",
        ),
    ),
    delivery(
        "a lapsed lease gives the shards up",
        "5 past the deadline: keep the shards; K12",
        "RecordDelivery._permitted",
        replace(
            "self.sync_progress(); await asyncio.sleep(PAUSE_SECONDS)", "return False"
        ),
    ),
    heartbeat(
        "who is told dead goes on",
        "5 told dead: drop everything; Go 6",
        "Heartbeater._beat_until_dead",
        drop("not written.applied"),
    ),
    group(
        "who is told dead keeps its shards",
        "5 told dead: drop everything",
        "GroupConsumer._session_died",
        drop("session.shards.drop_all()"),
    ),
    heartbeat(
        "who is told dead never comes back",
        "5 told dead: register anew; K12",
        "Heartbeater.run",
        replace("await self._wait_for_progress()", "return"),
    ),
    heartbeat_simulated(
        "who registers anew keeps its session",
        "5 with a new session",
        "Heartbeater._register",
        replace(
            "context, session = ...",
            "context = self._context\n"
            "session = self.registering.session if self.registering else 's'\n"
            "session = session + context.client_id * (session == 's')",
        ),
    ),
    clock(
        "the clock stops in suspend",
        "5 the clock runs through suspend",
        "SystemClock.__init__",
        replace("getattr(time, 'CLOCK_BOOTTIME', None)", "None"),
        simulated=False,
        note="The simulator's machines have clocks of their own.",
    ),
    client(
        "the heart beats on the client's loop",
        "5 a thread of their own; K9, Go 14",
        "Kinesumer._build_group",
        replace(
            "heart = HeartbeatThread(context, thread)",
            "from kinesumer.coordination.heartbeat_thread import HeartbeatTask; "
            "heart = HeartbeatTask(context)",
        ),
        simulated=False,
        note="The simulator's hearts have machines of their own.",
    ),
    heartbeat(
        "user code that is stuck keeps its shards",
        "5 max_processing_seconds; K3",
        "Heartbeater._stuck_work",
        replace("work if ... else None", "None"),
        "tests/integration/simulation/test_known_failures.py::test_a_shard_whose_user_code_is_stuck_goes_to_another_client",
    ),
    # --- the observer
    liveness(
        "an observer fences too soon",
        "5 Observer",
        "HeartbeatWatch.observe",
        replace("member.lease_ms", "0.6 * member.lease_ms"),
    ),
    liveness(
        "an observer uses its own idea of the lease",
        "5 it travels in the row",
        "HeartbeatWatch.observe",
        replace("member.lease_ms / 1000", "8.0"),
    ),
    liveness(
        "an observer counts beats of other sessions",
        "5 (session, beat)",
        "HeartbeatWatch.observe",
        replace(
            "before[:2] != (member.session, member.beat)", "before.beat != member.beat"
        ),
    ),
    liveness(
        "an observer believes the member's wall clock",
        "5 no absolute times; Go 11",
        "HeartbeatWatch.observe",
        replace(
            "_Seen(member.session, member.beat, now)",
            "_Seen(member.session, member.beat, -math.inf)",
        ),
    ),
    liveness(
        "nobody is ever fenced",
        "5 Observer",
        "HeartbeatWatch.observe",
        drop("stale.append(member)"),
    ),
    liveness(
        "windows go on after an outage",
        "5 all windows start again",
        "HeartbeatWatch.observe",
        drop("now - self._last_observed_at > max_gap"),
        note="Its own beats lapse too in an outage of the store, which counts as well.",
    ),
    membership(
        "who can't beat itself judges others",
        "5 reads or beats lapsed",
        "MemberWatcher.read_members",
        drop("self._watch.reset()"),
        "tests/unit/coordination/test_leader.py::test_who_cannot_beat_itself_fences_nobody",
    ),
    liveness(
        "an outage of the store is the death of all",
        "5 nobody healthy is fenced; L5",
        "HeartbeatWatch.observe",
        drop("now - self._last_observed_at > max_gap")
        + drop(
            "self._watch.reset()",
            where="coordination.membership:MemberWatcher.read_members",
        ),
        OUTAGE,
    ),
    membership(
        "a fence is repeated until it is answered",
        "5 after an outage nobody healthy is fenced",
        "fence",
        replace("context.store.write", "context.write"),
        "tests/unit/coordination/test_leader.py::test_a_fence_that_was_not_answered_is_not_repeated_at_once",
    ),
    # --- the dead
    liveness(
        "any row proves a death",
        "7 the claimer verifies the death",
        "proves_death",
        replace("row.session != session and type(row.session) is str", "True"),
    ),
    liveness(
        "a mark proves nothing", "5 death is a mark", "proves_death", drop("row.dead")
    ),
    membership(
        "dead rows are pruned at once",
        "5 pruned after an hour",
        "",
        replace("PRUNE_SECONDS = 600.0", "PRUNE_SECONDS = 1.0")
        + replace("DEAD_ROW_SECONDS = 3600.0", "DEAD_ROW_SECONDS = 0.0"),
        "tests/unit/coordination/test_membership.py::test_rows_of_the_long_dead_are_pruned_and_no_sooner",
        note="MAX_REQUEST_DELAY_SECONDS still holds: see the next one.",
    ),
    membership(
        "dates alone decide on pruning",
        "5 no absolute times",
        "Pruner.prune",
        replace("since <= now - MAX_REQUEST_DELAY_SECONDS", "member.dead"),
        "tests/unit/coordination/test_membership.py::test_a_death_seen_just_now_is_not_pruned_whatever_its_date_says",
    ),
    # --- static ids
    heartbeat(
        "a successor doesn't wait for its predecessor",
        "5 Static ids",
        "Heartbeater._wait_out_predecessor",
        never("context.clock.now() - since < ..."),
    ),
    heartbeat(
        "a successor has its predecessor's incarnation",
        "5 Static ids",
        "_next_incarnation",
        replace("seen + 1", "seen"),
        "tests/unit/coordination/test_heartbeat.py::test_a_static_id_waits_for_its_dead_predecessor_and_takes_its_place",
    ),
    heartbeat(
        "two processes may have one id",
        "5 Two live processes with one id; Go 26",
        "Heartbeater._wait_out_predecessor",
        replace("changes > 1", "changes > 1 << 40"),
        "tests/unit/coordination/test_heartbeat.py::test_two_live_processes_with_one_id_are_an_error_for_the_second",
    ),
    heartbeat(
        "one late beat is a living process",
        "5 Two live processes with one id",
        "Heartbeater._wait_out_predecessor",
        replace("changes > 1", "changes > 0"),
        "tests/unit/coordination/test_heartbeat.py::test_one_late_beat_of_the_predecessor_is_no_sign_of_life",
    ),
    # --- fleets
    liveness(
        "a large fleet beats as often as a small one",
        "5 above 250 clients",
        "interval_seconds",
        replace("max(...)", "heartbeat_interval_seconds"),
    ),
    config(
        "a lease shorter than three heartbeats is taken",
        "5 L < 3 H is refused",
        "Config.__post_init__",
        replace(
            "3 * self.heartbeat_interval_seconds", "self.heartbeat_interval_seconds"
        ),
        simulated=False,
    ),
    # --- who reads no more
    group(
        "who met a fatal fault keeps its shards",
        "K3",
        "GroupConsumer._main",
        drop("await self.release_all(...)"),
        "tests/unit/coordination/test_group_faults.py",
        simulated=False,
    ),
    client(
        "who ended run() keeps its shards",
        "K3",
        "Kinesumer.run",
        drop("await self._group.release_all(0.0)"),
        "tests/unit/coordination/test_group_release.py",
        simulated=False,
    ),
    delivery(
        "who stopped asking keeps its shards",
        "K3",
        "RecordDelivery._take",
        drop("self._left_since = self._clock.now()"),
        "tests/unit/consuming/test_watchdog.py",
        simulated=False,
    ),
    shard_sync(
        "a stream that refresh left out goes on being kept",
        "Go 19",
        "ShardSyncer.run",
        replace("running.pop(arn).cancel()", "running.pop(arn)"),
        simulated=False,
    ),
)
