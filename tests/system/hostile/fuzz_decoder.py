"""Fuzz the compiled decoder under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.system.hostile.fuzz_decoder --inputs 10000000 --seed 1

An input that takes a branch in a new order is kept, and others are made from it. The
first input that breaks a rule ends the process, after it was printed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.page_records import ENTRY_BYTES

SOURCE = Path(__file__).parents[3] / "kinesumer" / "wire" / "_native.c"
FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
    "-fPIC",
    f"-I{sysconfig.get_paths()['include']}",
)
HEADS = bytes(major << 5 | low for major in range(8) for low in (0, 1, 24, 27, 31))
LARGE = (b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\x7f\xff\xff\xff")
MAX_BYTES = 20_000  # the columns of so many records grow beyond their first memory


def compile_decoder(directory: Path) -> tuple[Path, dict[str, str]]:
    """Return the module, and the environment of a process that can load it.

    Raises CalledProcessError if the compiler has no sanitizers.
    """
    parts = {SOURCE: ["-fsanitize-coverage=trace-pc"]}
    parts[Path(__file__).with_name("edges.c")] = []
    for source, flags in parts.items():
        target = directory / f"{source.stem}.o"
        _cc(*FLAGS, *flags, "-c", str(source), "-o", str(target))
    module = directory / "_native.so"
    _cc(*FLAGS, "-shared", *map(str, directory.glob("*.o")), "-o", str(module))
    environment = {
        # Python itself is not built with the sanitizer, so this comes before it.
        "LD_PRELOAD": _cc("-print-file-name=libasan.so").strip(),
        # Each object has its own memory then, so an access beside it is detected.
        "PYTHONMALLOC": "malloc",
        # Python does not free all that it has when it ends.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    return module, os.environ | environment


def _cc(*arguments: str) -> str:
    done = subprocess.run(
        ["cc", *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def page(count: int, *, key: bool = True, **fields: object) -> bytes:
    """Return an answer to GetRecords."""
    record = {
        "SequenceNumber": "4" * 56,
        "Data": b"x" * 20,
        "ApproximateArrivalTimestamp": Milliseconds(1_732_000_000_123),
        **({"PartitionKey": "key-ü"} if key else {}),
        **fields,
    }
    answer = {"Records": [record] * count, "NextShardIterator": "AAAA", "Ahead": 0}
    return encode(answer)


def json_page(time: str) -> bytes:
    """Return an answer in JSON, as services without CBOR send it."""
    record = (
        r'{"Data":"eHh4","PartitionKey":"\u00fc\ud83d\ude00\n","SequenceNumber":"49",'
        f'"ApproximateArrivalTimestamp":{time},"Other":[{{"a":"\\\\"}},5]}}'
    )
    records = f"[{record}, {record.replace('eHh4', 'eHh4eHg=')}]"
    return f'{{"Behind":{{}}, "Records":{records},"Next":"AAA"}}'.encode()


def corpus() -> list[bytes]:
    """Return the inputs from which others are made."""
    child = {"ShardId": "s", "ParentShards": ["p"], "HashKeyRange": {"Start": "0"}}
    one = b"\x1a\x05\x08\x00\x1a\x01x"
    user = b"\x1a\x0e\x10\x00\x08\x80\x00\x1a\x02xy\x21" + bytes(8)
    message = b"\x0a\x01k\x12\x027!\x12\x0212" + (user + one) * 30 + b"\x25" + bytes(4)
    plain = {"a": [1, -2, None, True, b"x", Milliseconds(5)], "b": {"c": "d"}}
    return [
        page(0),
        page(1),
        page(3),
        page(80),
        page(2, key=False),
        page(2, Data=b"xx" + message + bytes(16)),
        page(1, Data=b"xx" + one + b"\x0a\x02\xc3\xbc\x12\x27" + b"3" * 39 + bytes(16)),
        b"\x81" * 13,
        page(2, EncryptionType="KMS"),
        encode({"Records": [], "ChildShards": [child]}),
        encode(plain),
        b"\xbf\x67Records\x9f\xff\xff",
        *map(json_page, ("1732000000.123", "1.732E9", " 1e0")),
    ]


def mutated(body: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return an input that differs from another one in a few places."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(body))
        end = min(len(body), at + chance.choice((0, 1, 1, 2, 8, 60)))
        other = chance.choice(others)
        begin = chance.randint(0, len(other))
        new = chance.choice(
            (
                b"",
                bytes([chance.choice(HEADS)]),
                chance.randbytes(end - at),
                chance.choice(LARGE),
                other[begin : begin + chance.randint(1, 80)],
            )
        )
        body = body[:at] + new + body[end:]
    return body[:MAX_BYTES]


def rows_of(call: Callable[[], Any]) -> Any:
    """Return what a function returns, or None if it refuses the input."""
    try:
        return call()
    except ValueError:
        return None


def as_tuple(*fields: object) -> tuple[object, ...]:
    return fields


def check(native: Any, body: bytes) -> None:
    """Read an input in each way. A page has the same records in both forms."""
    rows_of(partial(native.decode, body))
    if found := rows_of(partial(native.read_page, body, b"xx")):
        check_page(native, body, *found[:2])
    if found := rows_of(partial(native.read_json, body, b"xx")):
        assert len(found[3]) <= len(body)
        check_page(native, *found[:3])


def check_page(native: Any, body: bytes, index: bytes, has_prefix: bool) -> None:
    """Read the records of a page in each way."""
    page = body, index, 0, len(index) // ENTRY_BYTES
    data = [fields[1] for fields in native.iterate(*page, as_tuple, None)]
    assert has_prefix == any(each.startswith(b"xx") for each in data)
    assert native.columns(*page)[2][2] == b"".join(data)
    assert native.data_bytes(*page) == len(b"".join(data))
    for has_data in (True, False):
        copied = native.copy(*page, has_data)
        again = [*native.iterate(*copied, *page[2:], as_tuple, None)]
        assert [fields[1] for fields in again] == (
            data if has_data else [b""] * len(data)
        )
    limits = 50, MAX_BYTES, lambda begin, end: (end - begin) % 7
    part, users, stop, _ = native.open_aggregates(*page, b"xx", *limits)
    assert stop <= page[3]
    opened = part, users, 0, len(users) // ENTRY_BYTES
    parts = [fields[1] for fields in native.iterate(*opened, as_tuple, None)]
    assert native.columns(*opened)[2][2] == b"".join(parts)
    if index:  # an index of another page
        rows_of(partial(list, native.iterate(body[:-9], *page[1:], as_tuple, None)))


def fuzz(native: Any, edges: Any, inputs: int, seed: int) -> int:
    """Try so many inputs. Return how many of them were kept."""
    chance = random.Random(seed)
    starts, seen = corpus(), 0
    kept = starts[:]
    for number in range(inputs):
        is_start = number < len(starts)
        body = (
            starts[number] if is_start else mutated(chance.choice(kept), kept, chance)
        )
        ctypes.memset(edges, 0, len(edges))
        try:
            check(native, body)
        except BaseException:
            print("input:", body.hex(), file=sys.stderr)
            raise
        taken = int.from_bytes(bytes(edges))
        if taken & ~seen:
            seen |= taken
            kept.append(body)
    return len(kept)


def main() -> None:
    """Compile the decoder, and fuzz it in a process that has the sanitizers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", help="used by this program itself")
    options = parser.parse_args()
    if options.module is None:
        with TemporaryDirectory() as directory:
            module, environment = compile_decoder(Path(directory))
            command = [sys.executable, "-m", "tests.system.hostile.fuzz_decoder"]
            command += ["--inputs", str(options.inputs), "--seed", str(options.seed)]
            command += ["--module", str(module)]
            raise SystemExit(subprocess.call(command, env=environment))
    spec = importlib.util.spec_from_file_location("_native", options.module)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    library = ctypes.CDLL(options.module)
    edges = (ctypes.c_uint8 * (1 << 13)).in_dll(library, "edges")
    kept = fuzz(native, edges, options.inputs, options.seed)
    print(f"{options.inputs} inputs, {kept} kept: no error")


if __name__ == "__main__":
    main()
