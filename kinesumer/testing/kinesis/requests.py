"""Define Kinesis's requests, the tokens in them, and its error responses.

Most classes of requests have an operation's name.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from email.utils import formatdate
from functools import partial
from typing import Annotated, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec import Meta

from kinesumer.runtime.partitions import partition_of

T = TypeVar("T")
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_.-]+$")]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=1)]
Place = Literal[
    "AT_SEQUENCE_NUMBER",
    "AFTER_SEQUENCE_NUMBER",
    "TRIM_HORIZON",
    "LATEST",
    "AT_TIMESTAMP",
]


class Request(msgspec.Struct, rename="pascal", kw_only=True):
    """A request about one stream, which is given by its name or ARN."""

    stream_name: Name | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)
    dry_run: bool = False  # only calls about records have this parameter in AWS


class ModeDetails(msgspec.Struct, rename="pascal", frozen=True):
    """The capacity mode of a stream."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"]


Distribution = Literal["AUTO", "USER_PARTITION_KEY"]


class CreateStream(Request):
    stream_name: Name
    shard_count: Count | None = None
    stream_mode_details: ModeDetails = ModeDetails("PROVISIONED")
    max_record_size: int = msgspec.field(name="MaxRecordSizeInKiB", default=1024)
    record_distribution_strategy: Distribution = "USER_PARTITION_KEY"
    tags: dict[str, str] = {}


class AddTagsToStream(Request):
    tags: dict[str, str]


class ResourceRequest(Request):
    """A request about a stream or a consumer, which is given by its ARN."""

    resource_arn: str = msgspec.field(name="ResourceARN")


class TagResource(ResourceRequest):
    tags: dict[str, str]


class DeleteStream(Request):
    enforce_consumer_deletion: bool = False


class DescribeStream(Request):
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    exclusive_start_shard_id: str = ""


class DescribeLimits(msgspec.Struct):
    pass


class DescribeAccountSettings(msgspec.Struct):
    pass


class Commitment(msgspec.Struct, rename="pascal"):
    """An account's commitment to a throughput (On-demand Advantage)."""

    status: Literal["ENABLED", "DISABLED"]


class UpdateAccountSettings(msgspec.Struct, rename="pascal"):
    minimum_throughput_billing_commitment: Commitment


class ListStreams(msgspec.Struct, rename="pascal", kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    exclusive_start_stream_name: str = ""
    next_token: str = ""


class ShardFilter(msgspec.Struct, rename="pascal", kw_only=True):
    """A filter that selects the shards of a listing."""

    type: Literal[
        "AFTER_SHARD_ID",
        "AT_TRIM_HORIZON",
        "FROM_TRIM_HORIZON",
        "AT_LATEST",
        "AT_TIMESTAMP",
        "FROM_TIMESTAMP",
    ]
    shard_id: str | None = None
    timestamp: float | None = None


class ListShards(Request):
    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    shard_filter: ShardFilter | None = None
    stream_creation_timestamp: float | None = None


class PutRecord(Request):
    data: bytes
    partition_key: Key | None = None
    explicit_hash_key: str | None = None
    sequence_number_for_ordering: str | None = None


class Entry(msgspec.Struct, rename="pascal"):
    """One record of PutRecords."""

    data: bytes
    partition_key: Key | None = None
    explicit_hash_key: str | None = None


class PutRecords(Request):
    records: Annotated[list[Entry], Meta(min_length=1)]


class GetShardIterator(Request):
    shard_id: str
    shard_iterator_type: Place
    starting_sequence_number: str | None = None
    timestamp: float | None = None


class GetRecords(Request):
    shard_iterator: Annotated[str, Meta(min_length=1)]
    limit: Count | None = None


class SplitShard(Request):
    shard_to_split: str
    new_starting_hash_key: str


class MergeShards(Request):
    shard_to_merge: str
    adjacent_shard_to_merge: str


class UpdateShardCount(Request):
    target_shard_count: Count
    scaling_type: Literal["UNIFORM_SCALING"]


class RetentionPeriod(Request):
    """A request to increase or decrease a stream's retention period."""

    retention_period_hours: int


class UpdateStreamMode(Request):
    stream_mode_details: ModeDetails


class UpdateStreamRecordDistributionStrategy(Request):
    record_distribution_strategy: Distribution


class UpdateMaxRecordSize(Request):
    max_record_size: int = msgspec.field(name="MaxRecordSizeInKiB")


class StreamEncryption(Request):
    """A request to start or stop the encryption of a stream."""

    encryption_type: Literal["KMS"]
    key_id: Annotated[str, Meta(min_length=1, max_length=2048)]


class RegisterStreamConsumer(Request):
    consumer_name: Name
    tags: dict[str, str] = {}


class ConsumerRequest(Request):
    """A request about one consumer, by its ARN, or by its name and stream."""

    consumer_name: Name | None = None
    consumer_arn: str | None = msgspec.field(name="ConsumerARN", default=None)


class ListStreamConsumers(Request):
    next_token: str = ""
    max_results: Annotated[int, Meta(ge=1, le=10_000)] = 100


class StartingPosition(msgspec.Struct, rename="pascal"):
    """The start of a subscription."""

    type: Place
    sequence_number: str | None = None
    timestamp: float | None = None


class SubscribeToShard(ConsumerRequest, kw_only=True):
    shard_id: str
    starting_position: StartingPosition


# Requests about an account, not about one stream.
AccountRequest = (
    DescribeAccountSettings | DescribeLimits | ListStreams | UpdateAccountSettings
)
AnyRequest = Request | AccountRequest


# --- errors ---------------------------------------------------------------------------


class AwsError(Exception):
    """An error response of AWS: code, message and HTTP status."""

    code: str
    message: str
    status: int

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


in_use: partial[AwsError] = partial(AwsError, "ResourceInUseException")
invalid_argument: partial[AwsError] = partial(AwsError, "InvalidArgumentException")
invalid_request: partial[AwsError] = partial(AwsError, "ValidationException")
limit_exceeded: partial[AwsError] = partial(AwsError, "LimitExceededException")
not_found: partial[AwsError] = partial(AwsError, "ResourceNotFoundException")
unknown_operation: partial[AwsError] = partial(AwsError, "UnknownOperationException")


def decode_request(
    decoders: Mapping[str, msgspec.json.Decoder[T]], operation: str, body: bytes
) -> T:
    """Return the request of an operation in a body. Raise AwsError if it is invalid."""
    decoder = decoders.get(operation)
    if decoder is None:
        raise unknown_operation(f"The embedded AWS has no operation {operation}.")
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise invalid_request(f"1 validation error detected: {error}") from None
    except msgspec.DecodeError as error:
        raise AwsError("SerializationException", str(error)) from None


def resource_arn(service: str, region: str, account: str, resource: str) -> str:
    """Return the ARN of a resource in a region."""
    return f"arn:{partition_of(region)}:{service}:{region}:{account}:{resource}"


# --- the tokens in requests and responses ---------------------------------------------


class Token(msgspec.Struct, array_like=True, frozen=True):
    """A place in a stream, which a response gives and a later request continues."""

    name: ClassVar[str]  # of the request's parameter
    stream_arn: str
    created_ms: int
    issued_at: float

    def encode(self) -> str:
        """Return the token as text."""
        # Kinesis's iterators begin with these letters.
        return "AAAAAAAA" + urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse a token. Raise InvalidArgumentException if the text isn't one."""
        try:
            data = urlsafe_b64decode(text.removeprefix("AAAAAAAA"))
            return msgspec.json.decode(data, type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise invalid_argument(f"Invalid {cls.name}.") from None


class ShardIterator(Token, array_like=True, frozen=True):
    """A position in a shard: the index of the next record in its log."""

    name = "ShardIterator"
    shard_id: str
    at: int

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredIteratorException if the iterator is older than ``seconds``."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredIteratorException",
                "Iterator expired. The iterator was created at time "
                f"{formatdate(self.issued_at, usegmt=True)} while right now it is "
                f"{formatdate(now, usegmt=True)} which is further in the future than "
                f"the tolerated delay of {round(seconds * 1000)} milliseconds.",
            )


class ListingToken(Token, array_like=True, frozen=True):
    """A paging token: where a listing continues, and the filter of its first call."""

    name = "NextToken"
    after: str
    filter_type: str
    filter_timestamp: float

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredNextTokenException if the token is older than ``seconds``."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredNextTokenException",
                "The NextToken has expired; start the listing again.",
            )
