"""Hold the properties of MultiLangDaemon that kinesumer refuses, each with a reason.

The reasons end with what to do instead. ``docs/migrating-from-kcl.md`` has them, too.
"""

from __future__ import annotations

from typing import NamedTuple

TABLE = "the state store's table is made by `kinesumer init`: delete the line"
LEASE_TABLE = (
    "positions are in kinesumer's own table: copy those of the lease table with "
    "`kinesumer import kcl`, name the table with --table, and delete the line"
)
METRICS = (
    "nothing is sent to CloudWatch: use --metrics-port or OpenTelemetry, and delete "
    "the line"
)
METRICS_CLIENT = f"there is no client of CloudWatch, since {METRICS}"
LISTING = "kinesumer repeats listings by itself: delete the line"
RETRIES = "kinesumer repeats calls with a backoff of its own: delete the line"
BALANCING = (
    "shards are spread by a plan: choose it with kinesumer.assignor = range or load, "
    "and delete the line"
)
LEASES = "leases are not renewed or stolen one by one: delete the line"
STARTING = "a client starts without this wait: delete the line"

REASONS = {
    # The lease table.
    "tableName": LEASE_TABLE,
    "billingMode": TABLE,
    "initialLeaseTableReadCapacity": TABLE,
    "initialLeaseTableWriteCapacity": TABLE,
    "leaseTableDeletionProtectionEnabled": TABLE,
    "leaseTablePitrEnabled": TABLE,
    # Leases and their balance.
    "maxLeaseRenewalThreads": LEASES,
    "maxLeasesToStealAtOneTime": LEASES,
    "leasesRecoveryAuditorExecutionFrequencyMillis": LISTING,
    "leasesRecoveryAuditorInconsistencyConfidenceThreshold": LISTING,
    "leaseAssignmentIntervalMillis": BALANCING,
    "shardPrioritization": "shards take turns: delete the line",
    "allowThroughputOvershoot": BALANCING,
    "dampeningPercentage": BALANCING,
    "disableWorkerMetrics": BALANCING,
    "inMemoryWorkerMetricsCaptureFrequencyMillis": BALANCING,
    "maxThroughputPerHostKBps": BALANCING,
    "noOfPersistedMetricsPerWorkerMetrics": BALANCING,
    "reBalanceThresholdPercentage": BALANCING,
    "staleWorkerMetricsEntryCleanupDuration": BALANCING,
    "varianceBalancingFrequency": BALANCING,
    "workerMetricsEMAAlpha": BALANCING,
    "workerMetricsReporterFreqInMillis": BALANCING,
    # The coordination of KCL 3.
    "clientVersionConfig": "no KCL worker shares the table: delete the line",
    # Shards.
    "parentShardPollIntervalMillis": (
        "a shard's children are opened when its end is stored: delete the line"
    ),
    "skipShardSyncAtWorkerInitializationIfLeasesExist": LISTING,
    "listShardsBackoffTimeInMillis": LISTING,
    "maxListShardsRetryAttempts": LISTING,
    "schedulerInitializationBackoffTimeMillis": STARTING,
    "taskBackoffTimeMillis": RETRIES,
    # Reads.
    "maxGetRecordsThreadPool": (
        "reads need no threads: limit them with kinesumer.max_connections"
    ),
    "retryGetRecordsInSeconds": RETRIES,
    "maxPendingProcessRecordsInput": (
        "memory is limited for all shards together: set kinesumer.buffer_bytes"
    ),
    "fanoutConfig.maxDescribeStreamConsumerRetries": RETRIES,
    "fanoutConfig.maxDescribeStreamSummaryRetries": RETRIES,
    "fanoutConfig.registerStreamConsumerRetries": RETRIES,
    "fanoutConfig.retryBackoffMillis": RETRIES,
    # Threads and logs.
    "maxActiveThreads": (
        "each shard has a thread of its own: limit a client's shards with "
        "maxLeasesForWorker, or use more --processes"
    ),
    "logWarningForTaskAfterMillis": (
        "a processor that makes no progress is logged after timeoutInSeconds (300 by "
        "default): delete the line"
    ),
    # Endpoints and regions.
    "kinesisEndpoint": "set AWS_ENDPOINT_URL_KINESIS in the environment instead",
    "dynamoDBEndpoint": "set AWS_ENDPOINT_URL_DYNAMODB in the environment instead",
    "cloudWatchRegionName": METRICS_CLIENT,
    # Metrics.
    "metricsBufferTimeMillis": METRICS,
    "metricsMaxQueueSize": METRICS,
    "metricsLevel": METRICS,
    "metricsEnabledDimensions": METRICS,
}
# The first letters of names that belong together.
FAMILIES = {
    "coordinatorState": "there is no second table: delete the line",
    "workerMetrics": "there is no table of metrics: delete the line",
    "workerMetricStats": "there is no table of metrics: delete the line",
    "AwsCredentialsProviderCloudWatch": METRICS_CLIENT,
    "kinesisClient.": "set AWS_ENDPOINT_URL_KINESIS or AWS_PROFILE instead",
    "dynamoDbClient.": "set AWS_ENDPOINT_URL_DYNAMODB or AWS_PROFILE instead",
    "cloudWatchClient.": METRICS_CLIENT,
}


class OnlyValue(NamedTuple):
    """The value of a property that kinesumer always keeps to, and what to do else."""

    value: str
    otherwise: str


CREDENTIALS = (
    "credentials are those of the AWS SDK's standard chain: set AWS_PROFILE, or give "
    "the process a role, and write DefaultCredentialsProvider"
)
# Both names are those of the standard chain, of KCL 2 and 1.
DEFAULT_PROVIDERS = ("DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain")
ONLY = {
    "cleanupLeasesUponShardCompletion": OnlyValue(
        "true",
        "rows of ended shards are deleted when Kinesis no longer lists the shards: "
        "delete the line",
    ),
    "ignoreUnexpectedChildShards": OnlyValue(
        "false", "streams of DynamoDB are not supported: delete the line"
    ),
    "isGracefulLeaseHandoffEnabled": OnlyValue(
        "true", "every planned move waits for the processor: delete the line"
    ),
    "validateSequenceNumberBeforeCheckpointing": OnlyValue(
        "true",
        "checkpoints are compared with the records that the processor got: delete the "
        "line",
    ),
}


def refusal(name: str) -> str:
    """Return why a property is refused, and what to do instead."""
    lower = name.lower()
    for known, reason in REASONS.items():
        if known.lower() == lower:
            return reason
    for family, reason in FAMILIES.items():
        if lower.startswith(family.lower()):
            return reason
    return (
        "neither kinesumer nor the KCL knows it: correct the name, or delete the line"
    )
