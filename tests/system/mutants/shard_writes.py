"""Section 4: the conditions of writes to rows of shards."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import always, drop, replace

REFUSES = "tests/unit/wire/test_writes.py::test_it_is_refused_by"
GREATER = "tests/unit/wire/test_writes.py::test_only_a_greater_position_is_committed"
NOT_SMALLER = "tests/unit/wire/test_writes.py::test_no_smaller_position_is_released"
checkpointer = Module(
    "consuming.checkpointer", "tests/unit/consuming/test_checkpointer.py"
)
operators = Module("wire.admin_writes", "tests/unit/wire/test_admin_writes.py")
model_rows = Module("model.rows", "tests/unit/wire/test_rows.py")
owned_shard = Module("consuming.owned_shard", "tests/unit/consuming/test_tips.py")
lease_coordinator = Module(
    "coordination.lease_coordinator",
    "tests/unit/coordination/test_lease_coordinator.py",
)
writes = Module("wire.writes", REFUSES)
writes_simulated = Module("wire.writes")

MUTANTS = (
    writes(
        "create a row over a row",
        "4 Create shard",
        "create_shard",
        replace("Compare('pk', 'absent')", "AllOf(())"),
    ),
    writes(
        "ready in any epoch",
        "4 Ready; a seek opens parents again",
        "ready",
        replace("Compare('epoch', ...)", "Compare('pk', 'exists')"),
    ),
    writes(
        "claim what isn't ready",
        "4 Claim",
        "claim",
        drop("Compare('ready', '=', True)"),
        note="A row once ready stays so: who read it ready may claim. Kept as written.",
    ),
    writes(
        "claim what has ended", "4 Claim", "claim", drop("Compare('ended', '=', False)")
    ),
    writes(
        "claim in any epoch",
        "4 Claim",
        "claim",
        drop("Compare('epoch', '=', shard.epoch)"),
    ),
    writes(
        "claim from the living",
        "4 Claim",
        "claim",
        replace("(Compare('ready', ...), ...)", "(...)[:-1]"),
    ),
    writes(
        "claim what is paused",
        "4 Claim; Pause",
        "claim",
        drop("Compare('paused', 'absent')"),
    ),
    operators(
        "seek in any epoch", "4 Seek", "seek", drop("Compare('epoch', ...)"), REFUSES
    ),
    operators(
        "seek in the owner's epoch",
        "4 Seek: late commits are refused",
        "seek",
        replace("shard.epoch + 1", "shard.epoch"),
    ),
    writes_simulated(
        "claim without a new epoch",
        "4 Claim",
        "claim",
        replace("shard.epoch + 1", "shard.epoch"),
    ),
    writes(
        "commit by anybody",
        "4 Commit; K5, Go 6, Go 7",
        "commit",
        drop("*_owned(shard)"),
    ),
    writes(
        "commit in another epoch",
        "4 Commit",
        "commit",
        replace("*_owned(shard)", "_owned(shard)[0]"),
    ),
    writes(
        "commit without being the owner",
        "4 Commit",
        "commit",
        replace("*_owned(shard)", "_owned(shard)[1]"),
    ),
    writes(
        "commit backwards",
        "4 Commit; Go 8",
        "commit",
        drop("_is_greater(position)"),
    ),
    writes(
        "a longer number isn't greater",
        "4 Greater",
        "_is_greater",
        drop("Compare('sequence_number', 'size<', len(number))"),
        GREATER,
    ),
    writes(
        "numbers compared as text",
        "4 Greater",
        "_is_greater",
        drop("Compare('sequence_number', 'size=', len(number))"),
        GREATER,
    ),
    writes(
        "parts of an aggregate compare as equal",
        "4 Greater",
        "_is_greater",
        drop("AllOf((same, earlier))"),
        GREATER,
    ),
    writes(
        "a whole record isn't after its parts",
        "4 Greater",
        "_is_greater",
        replace(
            "Compare('sub_sequence_number', 'exists')",
            "Compare('sub_sequence_number', '<', 0)",
        ),
        GREATER,
    ),
    writes_simulated(
        "a whole record syncs the part of the one before",
        "4 Commit",
        "commit",
        replace("... if position.sub_sequence_number is None else ()", "()"),
    ),
    writes(
        "release by anybody", "4 Release", "_give_up", replace("_owned(shard)", "()")
    ),
    writes(
        "release backwards",
        "4 Release",
        "_give_up",
        drop("AnyOf((_is_greater(position), _is_same(position)))"),
        NOT_SMALLER,
    ),
    writes(
        "release only forward",
        "4 Release",
        "_give_up",
        replace(
            "AnyOf((_is_greater(position), _is_same(position)))",
            "_is_greater(position)",
        ),
        NOT_SMALLER,
    ),
    writes_simulated(
        "release syncs the owner", "4 Release", "_give_up", drop("'owner'")
    ),
    writes_simulated(
        "release without the position",
        "7 one write; Go 13",
        "release",
        replace("position", "None"),
    ),
    writes_simulated(
        "end that isn't marked",
        "4 End; K7",
        "mark_ended",
        replace("{'ended': True}", "{}"),
    ),
    writes(
        "prune a shard that hasn't ended",
        "4 Prune shard",
        "prune_shard",
        replace("Compare('ended', '=', True)", "AllOf(())"),
    ),
    lease_coordinator(
        "a claim is won only if it is answered",
        "4 a lost answer; K4",
        "LeaseCoordinator._claim",
        replace("won.claim == nonce", "written.applied"),
    ),
    lease_coordinator(
        "a claim is won whoever has it",
        "4 a lost answer",
        "LeaseCoordinator._claim",
        replace("is_mine and won.claim == nonce", "won"),
    ),
    lease_coordinator(
        "a claim in doubt is forgotten",
        "4 a lost answer; K4",
        "LeaseCoordinator._claim",
        replace(
            "self._open_claims[row.key] = ...; "
            "self._context.failure_log.record_failure(...)",
            "self._context.failure_log.record_failure('state store', error)",
        ),
    ),
    checkpointer(
        "a refused commit is a lost shard",
        "4 a lost answer",
        "Checkpointer._commit",
        drop("is_stored(owned, now, position)"),
    ),
    checkpointer(
        "a refused commit is done",
        "4 a lost answer; K5",
        "Checkpointer._commit",
        always("written.applied or is_stored(owned, now, position)"),
    ),
    checkpointer(
        "what another epoch stored counts as ours",
        "4 a lost answer",
        "is_stored",
        drop("row.epoch != owned.row.epoch"),
    ),
    writes(
        "a former owner notes the tip",
        "4 Commit: owner and epoch",
        "note_tip",
        replace("AllOf(_owned(shard))", "Compare('pk', 'exists')"),
    ),
    model_rows(
        "a tip proves a position before it",
        "9 idle for longer than the retention",
        "ShardRow.read_until",
        always("self.position >= self.tip.position"),
    ),
    owned_shard(
        "a tip of what is not done",
        "9 idle for longer than the retention",
        "OwnedShard.due_tip",
        drop("not self.is_finished"),
    ),
)
