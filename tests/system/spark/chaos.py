"""Kill, reshard and throttle at the same time, and expect each row exactly once.

    python -m tests.system.spark.chaos --restarts 20 --seed 1  # local mode
    python -m tests.system.spark.chaos --restarts 20 --seed 1 --cluster

The run kills the driver (its JVM, its Python process, or all), the process that plans
its batches, Python workers, and executors at any moment. It ends after the given number
of restarts of the driver. Meanwhile shards split and merge, and Kinesis throttles and
fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kinesumer.model.streams import ShardKey, Stream
from kinesumer.spark.options.streams import streams_option
from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.embedded_aws.faults import Kind
from tests.support.aws_keys import KeyFile
from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import Member, Program, kill, spark_environment
from tests.system.spark.standalone import EXECUTOR_MEMORY, Cluster

OTHER_ACCOUNT = "210987654321"
KINDS: tuple[Kind, ...] = (
    "throttle",
    "error",
    "refuse",
    "drop",
    "expired_iterator",
    "no_iterator",
    "latency",
)
MAX_SHARDS = 9
QUIET_SECONDS = 1.5  # between two mishaps, on average
BURST_SECONDS = 0.2
MAX_BEHIND = 8_000
START_SECONDS = 180.0
# At the end, without faults, rows must arrive at least this often.
STUCK_SECONDS = 180.0

# A fault of Spark itself: with two queries in a session, it may serialize a collection
# while the collection changes.
SPARKS_FAULT = (
    "Task serialization failed: java.lang.IllegalStateException: Illegal size"
)


class Plan(NamedTuple):
    restarts: int
    seed: int
    cluster: bool = False
    burst: int = 10  # records that are put to each of the two streams at once
    # A driver is killed after this time, whether or not it made progress.
    life_seconds: float = 90.0


class Chaos:
    def __init__(self, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
        self.drivers = 0
        self._plan, self._directory, self._say = plan, directory, say
        self._chance = random.Random(plan.seed)
        self._stack = ExitStack()
        self._over = threading.Event()
        self._written = 0
        self._began = time.monotonic()
        self._aws: EmbeddedAws
        self._producer: Producer
        self._keys: KeyFile
        self._cluster: Cluster | None = None
        self._arns: list[str] = []
        self._start: Callable[[str], Program]

    def run(self) -> list[str]:
        with self._stack:
            self._set_up()
            while self.drivers < self._plan.restarts:
                self._live(self._drive())
            self._over.set()
            self._aws.clear_faults()
            self._note("no more mishaps: the rest is read")
            while not self._drained():
                self._note("Spark ended a query by a fault of its own: once more")
            return self._faults()

    # --- what there is ---------------------------------------------------------------

    def _set_up(self) -> None:
        aws = self._aws = self._stack.enter_context(
            background(EmbeddedAws(seed=self._plan.seed))
        )
        aws.create_table()
        aws.account(OTHER_ACCOUNT)
        # These credentials expire and are renewed while tasks run.
        role = aws.create_role(
            "reader", account=OTHER_ACCOUNT, external_id="chaos", session_seconds=60
        )
        self._arns = [
            aws.create_stream("orders", 4),
            aws.create_stream("payments", 2, account=OTHER_ACCOUNT),
        ]
        self._keys = KeyFile(aws, self._directory / "credentials")
        environment = spark_environment(self._keys.environment(), self._directory)
        conf, master = {}, "local[2,20]"
        if self._plan.cluster:
            self._cluster = Cluster(self._directory, environment)
            master = self._stack.enter_context(self._cluster).url
            conf["spark.executor.memory"] = EXECUTOR_MEMORY
        other = Stream(self._arns[1], role_arn=role.arn, external_id="chaos")
        self._start = partial(
            crashing_query.start,
            environment,
            self._directory,
            master=master,
            conf=conf,
            batches=True,
            streams=streams_option("orders", other),
            maxPartitions="2",
            maxRowsPerBatch="3000",
        )
        self._producer = Producer(aws)
        producing = threading.Thread(target=self._produce, name="producer")
        producing.start()
        self._stack.callback(producing.join)
        self._stack.callback(self._over.set)

    def _produce(self) -> None:
        """Produce records, but pause while the queries are far behind."""
        records = self._producer.records
        while not self._over.wait(BURST_SECONDS):
            if sum(map(len, records.values())) - self._written < MAX_BEHIND:
                for arn in self._arns:
                    self._producer.put(arn, self._plan.burst)

    def _drive(self) -> Program:
        """Start a driver. Most drivers get enough time to begin to work."""
        self.drivers += 1
        driver = self._start(f"driver-{self.drivers}.log")
        if self._chance.random() < 0.1 and self.drivers < self._plan.restarts:
            time.sleep(self._chance.uniform(0, 12))
            return driver
        try:
            driver.wait_until(
                lambda: crashing_query.STARTED in driver.text(),
                "queries",
                START_SECONDS,
            )
        except BaseException:
            driver.kill()
            raise
        return driver

    # --- what happens ----------------------------------------------------------------

    def _live(self, driver: Program) -> None:
        end = time.monotonic() + self._plan.life_seconds
        enough = self._batches() + self._chance.choice((0, 1, 2, 4))
        with driver:
            while driver.is_running and time.monotonic() < end:
                self._written = output.count(self._directory)
                if self._batches() >= enough:
                    break
                time.sleep(self._chance.expovariate(1 / QUIET_SECONDS))
                self._chance.choice(self._mishaps())(driver)
            time.sleep(self._chance.uniform(0, 1.5))
            if driver.is_running:
                self._kill_driver(driver)
            else:
                self._note(f"driver {self.drivers} has ended by itself")
        self._written = output.count(self._directory)
        self._note(
            f"driver {self.drivers} is gone; {self._written} rows are written, "
            f"in {self._batches()} batches"
        )

    def _mishaps(self) -> Sequence[Callable[[Program], None]]:
        # A Python worker may be the process that finds the source's offsets.
        python = partial(self._kill_one, "Python worker", lambda m: m.is_python_worker)
        executor = partial(self._kill_one, "executor", lambda m: m.is_executor)
        return (
            self._split,
            self._merge,
            self._split_twice,
            self._break_kinesis,
            self._replace_keys,
            python,
            executor if self._cluster else self._nothing,
            self._nothing,
            self._nothing,
        )

    def _nothing(self, _: Program) -> None:
        time.sleep(self._chance.uniform(0, 3))

    def _kill_driver(self, driver: Program) -> None:
        """Kill the driver or one of its two processes. The other one must end, too."""
        members = driver.members()
        jvms = [m.pid for m in members if m.is_driver_jvm]
        whole = [m.pid for m in members]
        what, victims = self._chance.choice(
            [("all", whole), ("JVM", jvms), ("Python", [driver.process.pid])]
        )
        self._note(f"kill driver {self.drivers}: {what}")
        for pid in victims:
            kill(pid)
        driver.process.wait(START_SECONDS)

    def _kill_one(
        self, what: str, is_meant: Callable[[Member], bool], driver: Program
    ) -> None:
        workers = [] if self._cluster is None else self._cluster.workers
        programs = [driver, *workers]
        found = [m for program in programs for m in program.members() if is_meant(m)]
        if found:
            victim = self._chance.choice(found)
            self._note(f"kill {what} {victim.pid}")
            kill(victim.pid)

    def _split(self, _: Program) -> None:
        arn = self._chance.choice(self._arns)
        shards = self._aws.open_shards(arn)
        if len(shards) < MAX_SHARDS:
            self._split_one(arn, self._chance.choice(shards))

    def _split_twice(self, _: Program) -> None:
        """Split a shard and its children at once. Some children never get a record."""
        arn = self._chance.choice(self._arns)
        shards = self._aws.open_shards(arn)
        if len(shards) < MAX_SHARDS - 2:
            self._split_one(arn, self._chance.choice(shards))
            for child in set(self._aws.open_shards(arn)) - set(shards):
                self._split_one(arn, child)

    def _split_one(self, arn: str, shard_id: str) -> None:
        self._note(f"split {arn.rpartition('/')[2]} {shard_id}")
        self._aws.split(arn, shard_id)

    def _merge(self, _: Program) -> None:
        arn = self._chance.choice(self._arns)
        shards = self._aws.open_shards(arn)
        if len(shards) > 2:
            place = self._chance.randrange(len(shards) - 1)
            left, right = shards[place : place + 2]
            self._note(f"merge {arn.rpartition('/')[2]} {left} {right}")
            self._aws.merge(arn, left, right)

    def _break_kinesis(self, _: Program) -> None:
        kind = self._chance.choice(KINDS)
        seconds = self._chance.uniform(0.2, 3)
        probability = self._chance.choice((0.2, 0.6, 1.0))
        self._note(f"{kind} for {seconds:.1f} s, {probability:.0%} of calls")
        how = {"seconds": seconds, "probability": probability, "latency_seconds": 0.5}
        self._aws.fault(kind, service="kinesis", **how)

    def _replace_keys(self, _: Program) -> None:
        """Replace the keys. The file has them only a moment later."""
        seconds = self._chance.choice((0.0, 0.5, 2.0))
        self._note(f"replace the keys, and the file's {seconds:g} s later")
        late = self._keys.rotate(seconds)
        if seconds:
            late.join()  # a driver that starts without keys would end

    # --- the end ---------------------------------------------------------------------

    def _drained(self) -> bool:
        """Read the rest. Return False if Spark itself failed and needs a restart."""
        with self._drive() as driver:
            try:
                self._drain(driver)
            except AssertionError:
                too_often = self.drivers > self._plan.restarts + 10
                if too_often or SPARKS_FAULT not in driver.text():
                    raise
                return False
        return True

    def _drain(self, driver: Program) -> None:
        total = sum(map(len, self._producer.records.values()))

        def rows() -> tuple[int, int]:
            by_batch = output.count_by_batch(self._directory)
            return output.count(self._directory), by_batch

        while min(before := rows()) < total:
            driver.wait_until(lambda: rows() > before, "more rows", STUCK_SECONDS)

    def _faults(self) -> list[str]:
        produced = [p for found in self._producer.records.values() for p in found]
        parents = self._parents()
        for name, rows in (
            ("file sink", output.file_sink(self._directory)),
            ("foreachBatch", output.by_batch(self._directory)),
        ):
            found = output.faults(rows, produced, parents)
            self._note(f"{name}: {len(produced)} rows, {len(found)} faults {found}")
            if found:
                return found
        return list(output.miscounted(self._directory))

    def _parents(self) -> dict[ShardKey, list[ShardKey]]:
        kinesis = self._aws._state.kinesis
        return {
            ShardKey(arn, shard_id): [ShardKey(arn, p) for p in shard.shard.parents]
            for arn in self._arns
            for shard_id, shard in kinesis.stream(arn, time.time()).shards.items()
        }

    def _batches(self) -> int:
        return len({found.batch for found in output.files(self._directory)})

    def _note(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:7.1f} s  {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    chosen = parser.parse_args()
    plan = Plan(chosen.restarts, chosen.seed, chosen.cluster)
    with tempfile.TemporaryDirectory(prefix="kinesumer-chaos-") as directory:
        found = Chaos(plan, Path(directory), lambda text: print(text, flush=True)).run()
    print("\n".join(found) or "GOOD: every row is there exactly once, in order")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
