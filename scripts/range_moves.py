"""Draw docs/img/range-moves.svg: thirty seconds of a group, as the dashboard shows it.

Run ``PYTHONPATH=. .venv/bin/python scripts/range_moves.py [FILE]`` after a change of
the dashboard's model, of its colours, or of the steps below.

Real clients run in the simulator's virtual time, so that each run draws the same
picture. The dashboard's poller reads their rows four times a second.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from animated_svg import Animation, Element, document, look_of

from kinesumer.model.streams import HASH_KEYS
from kinesumer.ops.dashboard import poller
from kinesumer.ops.dashboard.model import DashboardInfo, State
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ops.group.status import ShardReport
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.run import reduce_logging
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "img" / "range-moves.svg"
STYLES = ROOT / "kinesumer" / "ops" / "dashboard" / "static" / "page.css"

STREAMS = {"orders": 6, "payments": 3}
SETTLING_SECONDS = 20.0  # the first plan, all claims and some heartbeats
# The still is at 9 s: three clients have settled.
ANIMATION = Animation(seconds=30.0, step_seconds=0.25, still=36)
RANGE_STEPS = 3  # a range takes longer to move than a shard to change its colour

WIDTH, MARGIN = 760, 20
NAMES, RANGES, SHARDS = 105, 110, 118  # the first stream's rows, from the top
SHARD_HEIGHT, LANE_HEIGHT, STREAM_HEIGHT = 44, 48, 118
HEIGHT = SHARDS + STREAM_HEIGHT * (len(STREAMS) - 1) + SHARD_HEIGHT + MARGIN
LEAST_NAME_WIDTH = 60  # of a range, in which its client's name fits


class Frame(NamedTuple):
    """The state that the dashboard shows at a time."""

    seconds: float
    state: State


class Step(NamedTuple):
    """What happens at a time, and the caption from then on."""

    seconds: float
    caption: str
    act: Callable[[Simulation], object]


def client(sim: Simulation, client_id: str) -> Process:
    """Return a living client of the simulation."""
    return next(one for one in sim.living if one.client_id == client_id)


STEPS = [
    Step(0.0, "Clients a and b share the shards of two streams.", lambda _: None),
    Step(
        1.5,
        "Client c starts. The leader writes a new plan, and shards move.",
        lambda sim: sim.start_process("c"),
    ),
    Step(
        10.0,
        "Shard 1 is split. Its children are read after it, and no range changes.",
        lambda sim: sim.split(sim.streams[0], "shardId-000000000001"),
    ),
    Step(
        14.0,
        "Client b is killed. When its lease is over, a and c take its shards.",
        lambda sim: client(sim, "b").machine.kill(),
    ),
    Step(
        25.0,
        "Client c gets SIGTERM. It reads on until a takes over.",
        lambda sim: client(sim, "c").leave(),
    ),
]


# --- the thirty seconds ---------------------------------------------------------------


class SimulatedFleet:
    """Reads the rows of a simulated group for the dashboard's poller."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    async def read(self) -> Snapshot:
        """Return all rows."""
        return await read_snapshot(self._sim.store, self._sim.scenario.app)

    async def read_lags(self, _snapshot: Snapshot) -> Lags:
        """Return no lags, which the picture doesn't show."""
        return NO_LAGS


def frames() -> list[Frame]:
    """Return what the dashboard shows during the thirty seconds."""
    shards = tuple(STREAMS.values())
    return Simulation(Scenario("picture", shards=shards, drift=0.0), 1).run(play)


async def play(sim: Simulation) -> list[Frame]:
    """Let two clients settle, then take the steps, and return the frames."""
    loop = asyncio.get_running_loop()
    fleet, clock = SimulatedFleet(sim), sim.loop.services
    # The fleet behaves as a StoreFleetSource does.
    polled = poller.Poller(DashboardInfo("billing", "table"), fleet, clock)  # type: ignore[arg-type]
    tasks = [loop.create_task(sim.produce()), loop.create_task(polled.run())]
    states = polled.states()
    for client_id in "ab":
        sim.start_process(client_id)
    await asyncio.sleep(SETTLING_SECONDS)
    found: list[Frame] = []
    left = list(STEPS)
    for number in range(round(ANIMATION.seconds / ANIMATION.step_seconds)):
        seconds = number * ANIMATION.step_seconds
        while left and left[0].seconds <= seconds:
            left.pop(0).act(sim)
        polled.wake()
        state = msgspec.json.decode(await anext(states), type=State)
        found.append(Frame(seconds, state))
        await asyncio.sleep(ANIMATION.step_seconds)
    for task in tasks:
        task.cancel()
    return found


# --- from frames to elements ----------------------------------------------------------


def ends_of(first_hash: str, last_hash: str) -> tuple[float, float]:
    """Return the left and right end of an interval of hash keys in hexadecimal."""
    inner = WIDTH - 2 * MARGIN
    keys = int(first_hash, 16), int(last_hash, 16) + 1
    left, right = (round(MARGIN + inner * key / HASH_KEYS, 1) for key in keys)
    return left, right


def captions(shown: list[Frame]) -> Iterator[Element]:
    """Yield the text that says what has just happened."""
    for number, step in enumerate(STEPS):
        until = (
            STEPS[number + 1].seconds if number + 1 < len(STEPS) else ANIMATION.seconds
        )
        looks = [look_of(step.seconds <= frame.seconds < until) for frame in shown]
        where = f'class="caption" x="{MARGIN}" y="32"'
        yield Element(f"caption-{number}", where, looks, step.caption)


def members(shown: list[Frame], hues: Mapping[str, int]) -> Iterator[Element]:
    """Yield a legend of clients, and the state of each."""
    for number, (client_id, hue) in enumerate(hues.items()):
        x = MARGIN + 170 * number
        states = [state_of(frame.state, client_id) for frame in shown]
        present = [look_of(bool(state)) for state in states]
        swatch = f'x="{x}" y="50" width="14" height="14" rx="3" fill="var(--hue-{hue})"'
        yield Element(f"swatch-{client_id}", swatch, present)
        for state in dict.fromkeys(filter(None, states)):
            looks = [look_of(state == each) for each in states]
            where = f'x="{x + 20}" y="62"'
            word = f"client {client_id}: {state}"
            yield Element(f"{client_id}-{state}", where, looks, word)


def state_of(state: State, client_id: str) -> str:
    """Return a client's state, or an empty text if the group doesn't have it."""
    found = [one for one in state.report.members if one.client_id == client_id]
    if not found:
        return ""
    [member] = found
    worst = member.states[0]
    return "leader" if member.leader and worst == "up" else worst


def ranges(shown: list[Frame], hues: Mapping[str, int]) -> Iterator[Element]:
    """Yield the ranges that the plan gives to clients, above the shards."""
    for row, arn in enumerate(arns(shown)):
        down = row * STREAM_HEIGHT
        for client_id, hue in hues.items():
            parts = [range_of(frame.state, client_id, arn) for frame in shown]
            last = next(filter(None, parts), None)
            if last is None:
                continue
            bars, names = [], []
            for part in parts:
                left, right = last = part or last  # it appears and disappears in place
                move, wide = f"translateX({left + 1:g}px)", right - left - 2
                bars.append(look_of(bool(part), f"{move} scaleX({wide:g})"))
                names.append(look_of(bool(part) and wide > LEAST_NAME_WIDTH, move))
            name = f"range-{client_id}-{row}"
            bar = f'y="{RANGES + down}" width="1" height="4" fill="var(--hue-{hue})"'
            yield Element(name, bar, bars, change_steps=RANGE_STEPS)
            where = f'class="name" y="{NAMES + down}"'
            yield Element(
                f"{name}-name", where, names, client_id, change_steps=RANGE_STEPS
            )


def range_of(state: State, client_id: str, arn: str) -> tuple[float, float] | None:
    """Return the left and right end of a client's range of a stream, if it has one."""
    for member in state.report.members:
        for part in member.range or ():
            if member.client_id == client_id and part.stream_arn == arn:
                return ends_of(part.first_hash, part.last_hash)
    return None


def shards(shown: list[Frame], hues: Mapping[str, int]) -> Iterator[Element]:
    """Yield the shards in the colours of their owners, with their numbers."""
    for row, arn in enumerate(arns(shown)):
        top = SHARDS + row * STREAM_HEIGHT
        found = {
            shard.shard_id: ends_of(shard.first_hash, shard.last_hash)
            for frame in shown
            for shard in reported(frame.state, arn)
        }
        for shard_id, (left, right) in found.items():
            looks = [shard_looks(one.state, arn, shard_id, hues) for one in shown]
            number = int(shard_id.rpartition("-")[2])
            box = (
                f'x="{left + 1:g}" y="{top}" width="{right - left - 2:g}"'
                f' height="{SHARD_HEIGHT}" rx="2"'
            )
            yield Element(f"shard-{row}-{number}", box, [box for box, _ in looks])
            where = f'class="number" x="{(left + right) / 2:g}" y="{top + 27}"'
            numbers = [number for _, number in looks]
            yield Element(f"number-{row}-{number}", where, numbers, str(number))


def shard_looks(
    state: State, arn: str, shard_id: str, hues: Mapping[str, int]
) -> tuple[str, str]:
    """Return the look of a shard and of its number."""
    lane = state.bands[arn].lane.get(shard_id)
    move = f"translateY({LANE_HEIGHT * (lane or 0)}px)"
    found = {shard.shard_id: shard.owner for shard in reported(state, arn)}
    owner = found.get(shard_id) or ""
    fill = f"var(--hue-{hues[owner]})" if owner else "var(--line)"
    # Shards without a lane aren't open yet, or have been read to their end.
    is_read = not owner or state_of(state, owner) not in ("silent", "")
    shade = 0 if lane is None else 1 if is_read else 0.4
    return look_of(shade, move, fill=fill), look_of(lane is not None, move)


def reported(state: State, arn: str) -> list[ShardReport]:
    """Return the shards of a stream."""
    return [
        s for one in state.report.streams if one.stream_arn == arn for s in one.shards
    ]


def arns(shown: list[Frame]) -> list[str]:
    """Return the streams' ARNs, in the order of STREAMS."""
    return [stream.stream_arn for stream in shown[0].state.report.streams]


# --- the file -------------------------------------------------------------------------


def picture(shown: list[Frame]) -> str:
    """Return the SVG of the frames."""
    slots: dict[str, int] = {}
    for frame in shown:
        slots |= frame.state.slots
    hues = dict(sorted(slots.items()))
    line = f'x="{MARGIN}" y="76" width="{WIDTH - 2 * MARGIN}" height="2"'
    titles = [
        f'<text class="title" x="{WIDTH - MARGIN}" text-anchor="end"'
        f' y="{NAMES + row * STREAM_HEIGHT}">stream {name}</text>'
        for row, name in enumerate(STREAMS)
    ]
    return document(
        (WIDTH, HEIGHT),
        "Ranges of shards move between clients",
        " ".join(step.caption for step in STEPS),
        ANIMATION,
        rules(),
        [
            f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
            f'<rect class="track" {line}/><rect id="time" {line}/>',
            *titles,
        ],
        chain(
            captions(shown),
            members(shown, hues),
            ranges(shown, hues),
            shards(shown, hues),
        ),
    )


def rules() -> Iterator[str]:
    """Yield the rules of all elements."""
    light, dark = palettes(STYLES.read_text())
    yield f"svg{{{light};font:14px system-ui,sans-serif}}"
    yield f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    yield ".card{fill:var(--card)}.track{fill:var(--line)}#time{fill:var(--soft)}"
    yield "text{fill:var(--ink)}.title,.name{fill:var(--soft);font-size:12px}"
    yield ".caption{font-size:16px}.number{fill:var(--on-hue);text-anchor:middle}"
    yield "@keyframes time{from{transform:scaleX(0)}to{transform:none}}"
    origin = f"transform-origin:{MARGIN}px"
    yield f"#time{{animation-name:time;animation-timing-function:linear;{origin}}}"


def palettes(styles: str) -> list[str]:
    """Return the dashboard's colours in the light and in the dark, as declarations."""
    names = r"--(?:card|ink|soft|line|on-hue|hue-[0-2]): #\w+"
    return [
        ";".join(re.findall(names, block)).replace(": ", ":")
        for block in re.findall(r":root \{(.+?)\}", styles, re.DOTALL)
    ]


def main(path: Path) -> None:
    """Write the picture."""
    reduce_logging()
    path.write_text(picture(frames()))
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
