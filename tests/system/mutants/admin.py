"""Writes of operators while clients run: pauses, drains, seeks and resets."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, never, replace

OF_PAUSES = "tests/unit/coordination/test_pauses.py"
control = Module("admin.seek", "tests/unit/admin/test_seek.py")
drain_module = Module("admin.drain")
pauses = Module("coordination.pauses")
startup_checks = Module("coordination.startup_checks", "tests/unit/admin/test_reset.py")
resetting = Module("admin.reset", "tests/unit/admin/test_reset.py")
seeking = Module("core.seek", "tests/unit/core/test_seek.py")

MUTANTS = (
    control(
        "seek children before their parents",
        "Seek: parents first",
        "_seek_all",
        replace("planned.generations", "reversed(...)"),
    ),
    seeking(
        "children don't wait for parents that are sought",
        "Seek; I8",
        "steps",
        replace("i in shard_ids or not row.ended", "not row.ended"),
    ),
    control(
        "a seek passes over children born since its plan",
        "Seek",
        "seek",
        never("has_ended and planned.reopens"),
    ),
    control(
        "a seek passes over shards that nobody has met",
        "Seek",
        "_plan_stream",
        replace("lineage.repairs(...).create", "[]"),
    ),
    control(
        "a seek to LATEST opens what has ended",
        "Seek",
        "_plan_stream",
        drop("reopens or not row.ended"),
    ),
    control(
        "a shard that has ended is sought alone",
        "Seek; I8",
        "_check_shard",
        never("row.ended"),
    ),
    control(
        "children stay shut whose parents end before they are sought",
        "Seek",
        "seek",
        drop("await _open_children(context, planned.stream_arn)"),
    ),
    control(
        "a seek opens children of parents that have no row yet",
        "4 Ready; Seek",
        "_open_children",
        replace("pending", "()"),
    ),
    control(
        "a shard is sought to where it has no record",
        "Seek",
        "_check_shard",
        never("isinstance(to, Position)"),
    ),
    control(
        "a stream made anew is sought",
        "2; Seek",
        "plan_seek",
        drop("check_identity(row, info)"),
    ),
    pauses(
        "a change under a living query",
        "Operators: a query notices nothing",
        "_mark",
        drop("await require_no_spark_query(context, QUERY_ADVICE)"),
        OF_PAUSES,
    ),
    pauses(
        "nobody is told of a pause",
        "Operators: notices",
        "_mark",
        drop("await notify(context)"),
        OF_PAUSES,
    ),
    drain_module(
        "the last client is drained",
        "Operators: drain",
        "drain",
        never("not (undo or even_last or ...)"),
        OF_PAUSES,
    ),
    resetting(
        "a reset doesn't look again after its mark",
        "Reset",
        "reset",
        never("living"),
        simulated=False,
    ),
    startup_checks(
        "a client starts while its app is reset",
        "Reset",
        "check_group",
        never("group is not None and group.resetting"),
        simulated=False,
    ),
    resetting(
        "a reset forgets its mark before the rest",
        "Reset: the group's row last",
        "_delete_all",
        replace("(row for row in inventory.group if ...)", "inventory.group"),
        simulated=False,
    ),
)
