"""Makes the example's streams in an embedded AWS, and half an hour of a shop's life.

    python produce.py set-up     # streams, and a role in the other account, once
    python produce.py round 0    # the events from 12:00 to 12:30; 1: the next half hour

Each round is the same whenever it is made. It has what real streams have: repeated
records, late ones, some that nobody can read, and payments that don't fit the order.
"""

from __future__ import annotations

import json
import os
import random
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import boto3

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROUND = timedelta(minutes=30)
ORDERS = 120
"""Orders in a round."""
COUNTRIES = ("de", "fr", "nl", "pl")
OTHER_ACCOUNT = "210987654321"
EXTERNAL_ID = "example-external-id"
WRITERS_NAME = "writer"


class Event(NamedTuple):
    """One record."""

    kind: str
    """orders or payments: its stream."""
    key: str
    at: datetime
    body: str


def events(number: int) -> list[Event]:
    """Return the records of a round, in the order in which they arrive."""
    first, end = START + number * ROUND, START + (number + 1) * ROUND
    # Payments come up to an hour after their orders: two rounds later.
    made = [e for n in range(max(0, number - 2), number + 1) for e in _orders(n)]
    found = sorted(e for e in made if first <= e.at < end)
    found.sort(key=lambda event: event.at)
    chance = random.Random(f"round {number}")
    for event in chance.sample(found, len(found) // 10):
        found.insert(found.index(event) + chance.randrange(1, 9), event)
    if number:
        found[5:5] = _late(number, chance)
    for place in (10, 20, 30):
        body = ["no JSON", '{"order_id": "A"}', '{"order_id": "B", "placed_at": "?"}']
        found.insert(place, Event("orders", "?", first, body[place // 10 - 1]))
    return found


def _orders(number: int) -> list[Event]:
    chance = random.Random(f"orders {number}")
    found = []
    for place in range(ORDERS):
        id_ = f"order-{number}-{place}"
        at = START + number * ROUND + ROUND * chance.random()
        cents = chance.randrange(500, 50_000)
        found.append(_order(id_, at, chance.choice(COUNTRIES), cents))
        if chance.random() < 0.85:
            paid_at = at + timedelta(minutes=59) * chance.random()
            wrong = chance.random() < 0.05
            found.append(_payment(id_, paid_at, cents - 100 if wrong else cents))
    return found


def _late(number: int, chance: random.Random) -> list[Event]:
    """Return orders from long before the round, and what the last one already had."""
    early = START + number * ROUND - timedelta(minutes=35)
    late = [_order(f"late-{number}-{n}", early, "de", 1000) for n in range(5)]
    border = START + number * ROUND
    repeated = [
        event
        for event in _orders(number - 1)
        if event.kind == "orders" and event.at > border - timedelta(minutes=5)
    ]
    return [*late, *repeated]


def _order(id_: str, at: datetime, country: str, cents: int) -> Event:
    fields = {"order_id": id_, "placed_at": _text(at), "country": country}
    return Event("orders", id_, _cut(at), json.dumps({**fields, "total": cents / 100}))


def _payment(id_: str, at: datetime, cents: int) -> Event:
    fields = {"payment_id": f"payment-of-{id_}", "order_id": id_, "paid_at": _text(at)}
    body = json.dumps({**fields, "amount": cents / 100})
    return Event("payments", id_, _cut(at), body)


def _cut(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _text(at: datetime) -> str:
    return _cut(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def put(found: list[Event]) -> None:
    """Write events to the streams."""
    for kind, client in (("orders", boto3.client("kinesis")), ("payments", _other())):
        records = [
            {"Data": e.body.encode(), "PartitionKey": e.key}
            for e in found
            if e.kind == kind
        ]
        for first in range(0, len(records), 500):
            client.put_records(StreamName=kind, Records=records[first : first + 500])


def set_up() -> dict[str, str]:
    """Make streams and role; return the pipeline's environment."""
    reading = ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"]
    reader = _control(
        "roles",
        {
            "name": "reader",
            "account": OTHER_ACCOUNT,
            "external_id": EXTERNAL_ID,
            "actions": [f"kinesis:{action}" for action in reading],
        },
    )
    _control("roles", {"name": WRITERS_NAME, "account": OTHER_ACCOUNT})
    here = boto3.client("kinesis")
    for name in ("orders", "alerts"):
        here.create_stream(StreamName=name, ShardCount=2)
    _other().create_stream(StreamName="payments", ShardCount=2)
    arn = _other().describe_stream_summary(StreamName="payments")
    return {
        "PAYMENTS_STREAM_ARN": arn["StreamDescriptionSummary"]["StreamARN"],
        "PAYMENTS_ROLE_ARN": reader["arn"],
        "PAYMENTS_EXTERNAL_ID": EXTERNAL_ID,
    }


def _other() -> boto3.client:
    """Return a Kinesis client of the other account."""
    role = f"arn:aws:iam::{OTHER_ACCOUNT}:role/{WRITERS_NAME}"
    answer = boto3.client("sts").assume_role(RoleArn=role, RoleSessionName="produce")
    given = answer["Credentials"]
    return boto3.client(
        "kinesis",
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
    )


def _control(path: str, body: dict[str, object]) -> dict[str, str]:
    """Ask the embedded AWS for what real accounts are asked for by their owners."""
    request = urllib.request.Request(  # noqa: S310  http, on this machine
        f"{os.environ['AWS_ENDPOINT_URL']}/_kinesumer/{path}",
        data=json.dumps(body).encode(),
        method="POST",
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        found: dict[str, str] = json.load(answer)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["set-up"]:
            for name, value in set_up().items():
                print(f"export {name}={value}")
        case ["round", number]:
            made = events(int(number))
            put(made)
            print(f"{len(made)} records")
        case _:
            sys.exit(__doc__)
