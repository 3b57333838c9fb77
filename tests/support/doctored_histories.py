"""Histories that were changed by hand: each change breaks one rule."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from kinesumer.ops.history.lines import position_of

Line = dict[str, Any]
Lines = dict[str, list[Line]]


def all_lines(lines: Lines) -> list[Line]:
    return [line for each in lines.values() for line in each]


class Doctor:
    """Finds lines of histories, and changes them."""

    def __init__(self, lines: Lines) -> None:
        self.lines = deepcopy(lines)

    def writes(self, *names: str, to: str = "shard#") -> list[tuple[str, Line, Line]]:
        """Return applied writes that set all of these attributes of such rows.

        The rows' partition keys begin with ``to``. Each write comes with its process
        and its answer, in the order of their times.
        """
        found = []
        for process, lines in self.lines.items():
            answers = {line["call"]: line for line in lines if line["kind"] == "answer"}
            for line in lines:
                if line["kind"] != "call" or line["name"] != "write":
                    continue
                answer = answers.get(line["call"], {})
                is_applied = (answer.get("result") or {}).get("applied")
                is_such = line["key"][0].startswith(to)
                if is_applied and is_such and set(names) <= set(line["set"]):
                    found.append((process, line, answer))
        return sorted(found, key=lambda each: each[1]["at"])

    def commit(self) -> tuple[str, Line, Line]:
        """Return a write that moved a checkpoint, and did nothing else."""
        return next(
            each
            for each in self.writes("sequence_number")
            if not {"epoch", "ended", "last_hash"} & set(each[1]["set"])
            and not each[1]["remove"][1:]
        )

    def takeover(self) -> tuple[str, Line, Line]:
        """Return a claim of a shard that had another owner before."""
        return next(
            each for each in self.writes("owner") if each[1]["set"]["epoch"] > 1
        )

    def end(self) -> tuple[str, Line, Line]:
        """Return a write that marked a shard as ended."""
        return next(each for each in self.writes("ended") if each[1]["set"]["ended"])

    def deliveries(self, key: list[str], epoch: int) -> list[tuple[str, Line]]:
        """Return the deliveries of a shard, given by its row's key, in an epoch."""
        shard = [key[0].split("#", 2)[2], key[1].partition("/")[2]]
        return [
            (process, line)
            for process, lines in self.lines.items()
            for line in lines
            if line["kind"] == "deliver"
            and line["shard"] == shard
            and line["epoch"] == epoch
        ]

    def client(self, other_than: str = "") -> list[Line]:
        """Return the lines of a client."""
        return next(
            lines
            for name, lines in self.lines.items()
            if name.startswith("client") and name != other_than
        )

    def move(self, process: str, *lines: Line) -> None:
        """Move lines of a process to another client."""
        for line in lines:
            self.lines[process].remove(line)
            self.client(other_than=process).append(line)

    def read(self, row: Line, at: float) -> None:
        """Let a client read a row, with a consistent read."""
        about = {"name": "get", "key": [row["pk"], row["sk"]], "consistent": True}
        self.client().extend(
            [
                {"kind": "call", "at": at, "call": 10**9, **about},
                {"kind": "answer", "at": at + 0.01, "call": 10**9, "result": row},
            ]
        )


def two_owners(doctor: Doctor) -> None:
    _, call, answer = doctor.takeover()
    call["set"]["owner"] = answer["result"]["row"]["owner"] = "another"
    copy = deepcopy((call, answer))
    for line in copy:
        line["call"] += 1_000_000
    copy[0]["set"]["owner"] = copy[1]["result"]["row"]["owner"] = "one more"
    doctor.client().extend(copy)


def epoch_gone_back(doctor: Doctor) -> None:
    _, call, answer = doctor.takeover()
    row = dict(answer["result"]["row"], epoch=call["set"]["epoch"] - 1)
    doctor.read(row, answer["at"] + 1)


def checkpoint_gone_back(doctor: Doctor) -> None:
    _, call, answer = doctor.commit()
    row = dict(answer["result"]["row"])
    before = min(
        (line for _, line in doctor.deliveries(call["key"], row["epoch"])),
        key=lambda line: line["at"],
    )["positions"][0]
    row["sequence_number"] = before[0]
    doctor.read(row, answer["at"] + 0.5)


def opened_again(doctor: Doctor) -> None:
    _, _, answer = doctor.end()
    doctor.read(dict(answer["result"]["row"], ended=False), answer["at"] + 0.5)


def commit_of_a_former_owner(doctor: Doctor) -> None:
    process, *lines = doctor.commit()
    doctor.move(process, *lines)
    for line in lines:
        line["call"] = 10**9


def checkpoint_from_nowhere(doctor: Doctor) -> None:
    _, call, answer = doctor.commit()
    number = str(int(call["set"]["sequence_number"]) + 1)
    answer["result"]["row"]["sequence_number"] = number


def two_leaders(doctor: Doctor) -> None:
    line = next(
        line
        for line in all_lines(doctor.lines)
        if line["kind"] == "answer"
        and isinstance(line.get("result"), dict)
        and (line["result"].get("row") or {}).get("pk", "").startswith("leader#")
    )
    doctor.read(dict(line["result"]["row"], session="another"), line["at"])


def plan_gone_back(doctor: Doctor) -> None:
    *_, last = doctor.writes("plan_version", to="member#")[-1]
    last["result"]["row"] |= {"leader_epoch": 0, "plan_version": 0}


def delivery_without_a_claim(doctor: Doctor) -> None:
    _, call, _ = doctor.takeover()
    doctor.move(*doctor.deliveries(call["key"], call["set"]["epoch"])[0])


def delivery_after_a_later_claim(doctor: Doctor) -> None:
    _, call, answer = doctor.takeover()
    _, line = doctor.deliveries(call["key"], call["set"]["epoch"] - 1)[-1]
    line["at"] = answer["at"] + 0.001


def delivery_after_the_death(doctor: Doctor) -> None:
    died = next(
        line
        for line in all_lines(doctor.lines)
        if line["kind"] == "answer"
        and isinstance(line.get("result"), dict)
        and (line["result"].get("row") or {}).get("dead") is True
    )
    session = died["result"]["row"]["session"]
    owned = [
        call for _, call, _ in doctor.writes("owner") if call["set"]["owner"] == session
    ]
    found = [
        line
        for call in owned
        for _, line in doctor.deliveries(call["key"], call["set"]["epoch"])
    ]
    found[-1]["at"] = died["at"] + 0.001


def swapped(doctor: Doctor) -> None:
    _, call, _ = doctor.takeover()
    (_, one), (_, two) = doctor.deliveries(call["key"], call["set"]["epoch"])[:2]
    one["positions"], two["positions"] = two["positions"], one["positions"]


def got_by_the_former_owner(doctor: Doctor) -> None:
    _, call, _ = doctor.takeover()
    epoch = call["set"]["epoch"]
    _, late = doctor.deliveries(call["key"], epoch)[1]
    process, former = doctor.deliveries(call["key"], epoch - 1)[-1]
    positions = doctor.deliveries(call["key"], epoch)[2][1]["positions"]
    assert late["positions"] < positions
    doctor.lines[process].append(former | {"positions": positions})


def repeated(doctor: Doctor) -> None:
    _, call, _ = doctor.takeover()
    process, line = doctor.deliveries(call["key"], call["set"]["epoch"])[-1]
    doctor.lines[process].append(dict(line, at=line["at"] + 0.001))


def skipped(doctor: Doctor) -> None:
    _, call, _ = doctor.commit()
    epoch = {c[0]: c[2] for c in call["condition"][1:] if c[1] == "="}["epoch"]
    committed = position_of((call["set"]["sequence_number"], None))
    process, line = next(
        (process, line)
        for process, line in doctor.deliveries(call["key"], epoch)
        if position_of(line["positions"][0]) <= committed
    )
    doctor.lines[process].remove(line)


def committed_before_it_was_delivered(doctor: Doctor) -> None:
    _, call, answer = doctor.commit()
    epoch = answer["result"]["row"]["epoch"]
    committed = [call["set"]["sequence_number"], None]
    line = next(
        line
        for _, line in doctor.deliveries(call["key"], epoch)
        if committed in line["positions"]
    )
    line["at"] = call["at"] + 0.001


def child_before_its_parent(doctor: Doctor) -> None:
    for line in doctor.end()[1:]:
        line["at"] += 1_000


def lost(doctor: Doctor) -> None:
    _, call, _ = doctor.commit()
    number = call["set"]["sequence_number"]
    for lines in doctor.lines.values():
        for line in [*lines]:
            if line["kind"] == "deliver" and line["positions"][0][0] == number:
                lines.remove(line)


def two_answers(doctor: Doctor) -> None:
    process, _, answer = doctor.commit()
    doctor.lines[process].append(answer)


def answered_before_the_call(doctor: Doctor) -> None:
    _, call, answer = doctor.commit()
    answer["at"] = call["at"] - 1


DOCTORED: list[tuple[str, Callable[[Doctor], None]]] = [
    ("epochs with two owners", two_owners),
    ("rows gone back", epoch_gone_back),
    ("rows gone back", checkpoint_gone_back),
    ("rows gone back", opened_again),
    ("checkpoints of former owners", commit_of_a_former_owner),
    ("checkpoints without a writer", checkpoint_from_nowhere),
    ("leader epochs with two leaders", two_leaders),
    ("plans gone back", plan_gone_back),
    ("deliveries without a claim", delivery_without_a_claim),
    ("deliveries after a later claim", delivery_after_a_later_claim),
    ("deliveries after the session's death", delivery_after_the_death),
    ("records out of order", swapped),
    ("records out of order", got_by_the_former_owner),
    ("records repeated in an epoch", repeated),
    ("gaps in what a loop got", skipped),
    ("records passed by a checkpoint, not delivered", skipped),
    (
        "records passed by a checkpoint, not delivered",
        committed_before_it_was_delivered,
    ),
    ("children before their parents", child_before_its_parent),
    ("records lost", lost),
    ("lines that contradict one another", two_answers),
    ("lines that contradict one another", answered_before_the_call),
]
