"""A consumer with the credentials of a profile, through an aioboto3 session.

    python consume.py PROFILE

The profile may use SSO, assume a role, or both. The state store's table is that of
KINESUMER_TABLE.
"""

# docs: consume
import asyncio
import sys

import aioboto3

from kinesumer import Kinesumer, Start, Stream

STREAMS = [
    "orders",
    Stream("payments", role_arn="arn:aws:iam::210987654321:role/reader"),
]


async def consume(profile: str) -> None:
    session = aioboto3.Session(profile_name=profile)
    async with Kinesumer("billing", session=session, stop_signals=True) as client:
        async for record in client.consume(STREAMS, start=Start.TRIM_HORIZON):
            print(record.stream, record.data.decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1]))
# docs: end
