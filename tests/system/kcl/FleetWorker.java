import java.lang.reflect.Method;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.CoordinatorConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.leases.LeaseManagementConfig;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * Runs one worker of a KCL 2 or KCL 3 fleet: ENDPOINT STREAM TABLE WORKER FAILOVER_MILLIS
 * MODE. A worker of KCL 3 may have another mode than "default": with "compatible", it
 * begins as one of KCL 2, and with "counts", it balances the numbers of leases.
 * Prints a line for each event: the milliseconds, the event, the shard, and a record's data.
 */
public class FleetWorker {
    private static synchronized void say(String event, String shard, String data) {
        System.out.println(System.currentTimeMillis() + " " + event + " " + shard + " " + data);
        System.out.flush();
    }

    private static class Processor implements ShardRecordProcessor {
        private String shard;

        public void initialize(InitializationInput input) {
            shard = input.shardId();
        }

        public void processRecords(ProcessRecordsInput input) {
            for (KinesisClientRecord record : input.records()) {
                say("record", shard, StandardCharsets.UTF_8.decode(record.data()).toString());
            }
            if (!input.records().isEmpty()) {
                checkpoint(input.checkpointer());
            }
        }

        public void leaseLost(LeaseLostInput input) {
            say("lost", shard, "");
        }

        public void shardEnded(ShardEndedInput input) {
            checkpoint(input.checkpointer());
            say("ended", shard, "");
        }

        public void shutdownRequested(ShutdownRequestedInput input) {
            checkpoint(input.checkpointer());
        }

        private void checkpoint(RecordProcessorCheckpointer checkpointer) {
            try {
                checkpointer.checkpoint();
            } catch (Exception error) {
                say("refused", shard, error.getClass().getSimpleName());
            }
        }
    }

    /** Calls a setter with the name of an enum's constant. KCL 2 has neither. */
    private static void choose(Object config, String setter, String constant) throws Exception {
        for (Method method : config.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                for (Object value : method.getParameterTypes()[0].getEnumConstants()) {
                    if (value.toString().equals(constant)) {
                        method.invoke(config, value);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException(setter + " " + constant);
    }

    public static void main(String[] args) throws Exception {
        URI endpoint = URI.create(args[0]);
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder()
                .endpointOverride(endpoint)
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1))
                .build();
        ConfigsBuilder configs = new ConfigsBuilder(
                args[1],
                args[2],
                kinesis,
                DynamoDbAsyncClient.builder().endpointOverride(endpoint).build(),
                CloudWatchAsyncClient.builder().endpointOverride(endpoint).build(),
                args[3],
                Processor::new);
        InitialPositionInStreamExtended oldest =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        CoordinatorConfig coordinator = configs.coordinatorConfig()
                .parentShardPollIntervalMillis(500)
                .shardConsumerDispatchPollIntervalMillis(200);
        LeaseManagementConfig leases = configs.leaseManagementConfig();
        if (args[5].equals("compatible")) {
            choose(coordinator, "clientVersionConfig", "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X");
        } else if (args[5].equals("counts")) {
            choose(leases, "leaseAssignmentStrategy", "LEASE_COUNT_BASED");
        }
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                coordinator,
                leases
                        .failoverTimeMillis(Long.parseLong(args[4]))
                        .shardSyncIntervalMillis(2000)
                        .initialPositionInStream(oldest),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig()
                        .initialPositionInStreamExtended(oldest)
                        .retrievalSpecificConfig(
                                new PollingConfig(args[1], kinesis).idleTimeBetweenReadsInMillis(250)));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(20, TimeUnit.SECONDS);
            } catch (Exception error) {
                say("stopping", "-", error.toString());
            }
        }));
        scheduler.run();
    }
}
