// The Java clients against the broker named on the command line. Every scenario prints a line `plan NAME` before it
// begins, and `ok NAME` or `not ok NAME: why` at its end. Java runs this file from its source, with the jars of Kafka 3.9
// or of Kafka 4 on the class path.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

public class Scenarios {
    static String bootstrap;
    static Admin admin;
    static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    interface Scenario {
        void run() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        bootstrap = words[0];
        Pattern chosen = Pattern.compile(words.length > 1 ? words[1] : "");
        Producing.add();
        Consuming.add();
        Administering.add();
        SCENARIOS.keySet().removeIf(name -> !chosen.matcher(name).find());
        SCENARIOS.keySet().forEach(name -> System.out.println("plan " + name));
        try (Admin made = Admin.create(settings())) {
            admin = made;
            SCENARIOS.forEach(Scenarios::tell);
        }
        System.exit(0); // whatever threads a failure left behind
    }

    static void tell(String name, Scenario scenario) {
        try {
            scenario.run();
            System.out.println("ok " + name);
        } catch (Exception | AssertionError failed) {
            Throwable why = failed instanceof ExecutionException ? failed.getCause() : failed;
            System.out.println("not ok " + name + ": " + String.valueOf(why).replace('\n', ' '));
        }
    }

    static void scenario(String name, Scenario scenario) {
        if (SCENARIOS.put(name, scenario) != null) throw new IllegalStateException(name);
    }

    static Map<String, Object> settings(Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int at = 0; at < more.length; at += 2) settings.put((String) more[at], more[at + 1]);
        return settings;
    }

    static void equal(Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) throw new AssertionError("expected " + expected + ", got " + actual);
    }

    static void refused(Class<? extends Exception> with, Scenario scenario) throws Exception {
        try {
            scenario.run();
        } catch (Exception refused) {
            Throwable why = refused instanceof ExecutionException ? refused.getCause() : refused;
            if (with.isInstance(why)) return;
            throw refused;
        }
        throw new AssertionError("not refused with " + with.getSimpleName());
    }

    static String newTopic(int partitions, String... config) throws Exception {
        String topic = "java-" + UUID.randomUUID();
        Map<String, String> configs = new HashMap<>();
        for (int at = 0; at < config.length; at += 2) configs.put(config[at], config[at + 1]);
        admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()).configs(configs))).all().get();
        return topic;
    }

    static KafkaProducer<String, String> producer(Object... more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> settings = settings("auto.offset.reset", "earliest", "fetch.max.wait.ms", 50,
            "enable.auto.commit", false);
        settings.putAll(settings(more));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).collect(Collectors.toList());
    }

    static void produce(String topic, List<String> values, Object... more) {
        try (var producer = producer(more)) {
            for (String value : values) producer.send(new ProducerRecord<>(topic, value));
        }
    }

    static List<ConsumerRecord<String, String>> read(Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (records.size() < count && System.nanoTime() < deadline)
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        return records;
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.toList());
    }

    static List<String> readAll(String topic, int count, Object... more) {
        try (var consumer = consumer(more)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return values(read(consumer, count));
        }
    }

    static class Producing {
        static void add() {
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                scenario("a batch compressed with " + codec + " comes back in order", () -> {
                    String topic = newTopic(1);
                    produce(topic, numbers(1000), "compression.type", codec);
                    equal(numbers(1000), readAll(topic, 1000));
                });
            }
            for (String acks : List.of("0", "1", "all")) {
                scenario("acks=" + acks + " delivers", () -> {
                    String topic = newTopic(1);
                    produce(topic, numbers(10), "acks", acks, "enable.idempotence", acks.equals("all"));
                    equal(numbers(10), readAll(topic, 10));
                });
            }
            scenario("key, headers and timestamp come back", Producing::wholeRecord);
            scenario("an idempotent producer delivers once and in order", () -> {
                String topic = newTopic(1);
                produce(topic, numbers(3000), "batch.size", 100, "linger.ms", 0);
                equal(numbers(3000), readAll(topic, 3000));
            });
            scenario("a record that is too large for the topic is refused", () -> {
                String topic = newTopic(1, "max.message.bytes", "1000");
                try (var producer = producer()) {
                    refused(RecordTooLargeException.class,
                        () -> producer.send(new ProducerRecord<>(topic, "x".repeat(5000))).get());
                }
            });
            scenario("a transaction is seen once it is committed", Producing::transactions);
        }

        static void wholeRecord() throws Exception {
            String topic = newTopic(1);
            long sentAt = System.currentTimeMillis() - 5000;
            List<org.apache.kafka.common.header.Header> headers =
                List.of(new RecordHeader("one", "1".getBytes()), new RecordHeader("none", (byte[]) null));
            try (var producer = producer(); var consumer = consumer()) {
                var sent = producer.send(new ProducerRecord<>(topic, 0, sentAt, "key", null, headers)).get();
                equal(List.of(0L, sentAt), List.of(sent.offset(), sent.timestamp()));
                consumer.assign(List.of(new TopicPartition(topic, 0)));
                var record = read(consumer, 1).get(0);
                equal(Arrays.asList("key", null, sentAt),
                    Arrays.asList(record.key(), record.value(), record.timestamp()));
                equal(headers, Arrays.asList(record.headers().toArray()));
                equal(Optional.of(0), record.leaderEpoch());
            }
        }

        static void transactions() throws Exception {
            String topic = newTopic(1);
            try (var producer = producer("transactional.id", topic, "max.block.ms", 30_000)) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "aborted"));
                producer.flush();
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "committed"));
                producer.commitTransaction();
            }
            equal(List.of("committed"), readAll(topic, 1, "isolation.level", "read_committed"));
        }
    }

    static class Consuming {
        static void add() {
            scenario("a consumer seeks and finds offsets", Consuming::seeking);
            scenario("a paused partition is silent", Consuming::pausing);
            scenario("an offset out of range is reported", () -> {
                String topic = newTopic(1);
                TopicPartition partition = new TopicPartition(topic, 0);
                try (var consumer = consumer("auto.offset.reset", "none")) {
                    consumer.assign(List.of(partition));
                    consumer.seek(partition, 1000);
                    refused(OffsetOutOfRangeException.class, () -> read(consumer, 1));
                }
            });
            scenario("a group goes on where it stopped", Consuming::resuming);
            scenario("offsets are committed asynchronously", Consuming::asynchronously);
            scenario("a pattern finds topics", () -> {
                String prefix = newTopic(1);
                produce(prefix + "-a", List.of("a"));
                produce(prefix + "-b", List.of("b"));
                try (var consumer = consumer("group.id", prefix)) {
                    consumer.subscribe(Pattern.compile(prefix + "-.*"));
                    equal(Set.of("a", "b"), Set.copyOf(values(read(consumer, 2))));
                }
            });
            for (String assignor : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky"))
                scenario("two members share by " + assignor, () -> sharing(assignor));
            scenario("a static member comes back with its share", Consuming::staying);
            scenario("the new group protocol is refused", () -> {
                try (var consumer = consumer("group.id", "new", "group.protocol", "consumer")) {
                    consumer.subscribe(List.of(newTopic(1)));
                    refused(UnsupportedVersionException.class, () -> read(consumer, 1));
                }
            });
        }

        static void seeking() throws Exception {
            String topic = newTopic(1);
            TopicPartition partition = new TopicPartition(topic, 0);
            long begin = System.currentTimeMillis() - 60_000;
            try (var producer = producer(); var consumer = consumer()) {
                for (int at = 0; at < 10; at++)
                    producer.send(new ProducerRecord<>(topic, 0, begin + at * 1000L, null, "" + at));
                producer.flush();
                consumer.assign(List.of(partition));
                consumer.seek(partition, 7);
                equal(List.of("7", "8", "9"), values(read(consumer, 3)));
                consumer.seekToBeginning(List.of(partition));
                equal(0L, consumer.position(partition));
                consumer.seekToEnd(List.of(partition));
                equal(10L, consumer.position(partition));
                equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
                equal(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
                equal(3L, consumer.offsetsForTimes(Map.of(partition, begin + 2500)).get(partition).offset());
                equal(null, consumer.offsetsForTimes(Map.of(partition, begin + 60_000)).get(partition));
                equal(1, consumer.partitionsFor(topic).size());
                equal(true, consumer.listTopics().containsKey(topic));
            }
        }

        static void pausing() throws Exception {
            String topic = newTopic(2);
            TopicPartition quiet = new TopicPartition(topic, 0), loud = new TopicPartition(topic, 1);
            try (var producer = producer(); var consumer = consumer()) {
                consumer.assign(List.of(quiet, loud));
                consumer.pause(List.of(quiet));
                producer.send(new ProducerRecord<>(topic, 0, null, "quiet")).get();
                producer.send(new ProducerRecord<>(topic, 1, null, "loud")).get();
                equal(List.of("loud"), values(read(consumer, 1)));
                consumer.resume(List.of(quiet));
                equal(List.of("quiet"), values(read(consumer, 1)));
            }
        }

        static void resuming() throws Exception {
            String topic = newTopic(1);
            TopicPartition partition = new TopicPartition(topic, 0);
            produce(topic, numbers(10));
            try (var consumer = consumer("group.id", topic, "max.poll.records", 4)) {
                consumer.subscribe(List.of(topic));
                equal(numbers(4), values(read(consumer, 4)));
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, Optional.of(0), "four")));
            }
            try (var consumer = consumer("group.id", topic)) {
                consumer.subscribe(List.of(topic));
                equal(numbers(10).subList(4, 10), values(read(consumer, 6)));
                var committed = consumer.committed(Set.of(partition)).get(partition);
                equal(new OffsetAndMetadata(4, Optional.of(0), "four"), committed);
            }
        }

        static void asynchronously() throws Exception {
            String topic = newTopic(1);
            TopicPartition partition = new TopicPartition(topic, 0);
            produce(topic, numbers(3));
            AtomicInteger heard = new AtomicInteger();
            try (var consumer = consumer("group.id", topic)) {
                consumer.subscribe(List.of(topic));
                read(consumer, 3);
                consumer.commitAsync((offsets, failed) -> heard.set(failed == null ? offsets.size() : -1));
                for (int turn = 0; turn < 200 && heard.get() == 0; turn++) consumer.poll(Duration.ofMillis(50));
                equal(1, heard.get());
                equal(3L, consumer.committed(Set.of(partition)).get(partition).offset());
            }
        }

        // Two consumers polled in turns, until each has this many partitions.
        static void untilShares(Consumer<?, ?> first, int ofFirst, Consumer<?, ?> second, int ofSecond) {
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (first.assignment().size() != ofFirst || second != null && second.assignment().size() != ofSecond) {
                if (System.nanoTime() > deadline)
                    throw new AssertionError("shares: " + first.assignment() + ", " + (second != null ? second.assignment() : ""));
                first.poll(Duration.ofMillis(20));
                if (second != null) second.poll(Duration.ofMillis(20));
            }
        }

        static Object[] member(String topic, Object... more) {
            List<Object> settings = new ArrayList<>(List.of("group.id", topic, "heartbeat.interval.ms", 100));
            settings.addAll(List.of(more));
            return settings.toArray();
        }

        static void sharing(String assignor) throws Exception {
            String topic = newTopic(4);
            Object[] settings = member(topic, "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + assignor + "Assignor");
            AtomicInteger lost = new AtomicInteger();
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> given) {}

                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    lost.addAndGet(taken.size());
                }
            };
            try (var first = consumer(settings)) {
                first.subscribe(List.of(topic), listener);
                untilShares(first, 4, null, 0);
                try (var second = consumer(settings)) {
                    second.subscribe(List.of(topic));
                    untilShares(first, 2, second, 2);
                    equal(assignor.startsWith("Coop") ? 2 : 4, lost.get());
                }
                untilShares(first, 4, null, 0);
            }
        }

        static void staying() throws Exception {
            String topic = newTopic(2);
            try (var anna = consumer(member(topic, "group.instance.id", "anna"))) {
                anna.subscribe(List.of(topic));
                Set<TopicPartition> share;
                int generation;
                try (var olga = consumer(member(topic, "group.instance.id", "olga"))) {
                    olga.subscribe(List.of(topic));
                    untilShares(anna, 1, olga, 1);
                    share = Set.copyOf(olga.assignment());
                    generation = olga.groupMetadata().generationId();
                }
                try (var olga = consumer(member(topic, "group.instance.id", "olga"))) {
                    olga.subscribe(List.of(topic));
                    untilShares(anna, 1, olga, 1);
                    equal(share, olga.assignment());
                    equal(generation, olga.groupMetadata().generationId());
                }
            }
        }
    }

    static class Administering {
        static void add() {
            scenario("topics are created, described and deleted, also by id", Administering::topics);
            scenario("partitions are added", () -> {
                String topic = newTopic(1);
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
                until(() -> describe(topic).partitions().size() == 3);
                refused(InvalidPartitionsException.class,
                    () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
            });
            scenario("the cluster is described", () -> {
                var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
                var addresses = new HashSet<String>();
                for (var node : cluster.nodes().get()) addresses.add(node.host() + ":" + node.port());
                equal(Set.of(bootstrap.split(",")), addresses);
                equal(true, cluster.nodes().get().contains(cluster.controller().get()));
                equal(true, cluster.authorizedOperations().get().contains(AclOperation.CREATE));
            });
            scenario("features are described, and there is nothing to update", () -> {
                equal(true, admin.describeFeatures().featureMetadata().get().finalizedFeatures().isEmpty());
            });
            scenario("configurations are described and altered", Administering::configurations);
            scenario("a broker's configuration is described and altered", Administering::brokerConfiguration);
            scenario("offsets are listed", Administering::offsets);
            scenario("records are deleted", () -> {
                String topic = newTopic(1);
                TopicPartition partition = new TopicPartition(topic, 0);
                produce(topic, numbers(5));
                var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3)));
                equal(3L, deleted.lowWatermarks().get(partition).get().lowWatermark());
                equal(List.of("3", "4"), readAll(topic, 2));
            });
            scenario("groups are listed, described and deleted", Administering::groups);
            scenario("offsets of a group are altered and deleted", Administering::groupOffsets);
            scenario("members are removed from a group", Administering::removing);
            scenario("log directories are described and replicas stay", Administering::logDirectories);
            scenario("leaders need no election", () -> {
                TopicPartition partition = new TopicPartition(newTopic(1), 0);
                for (ElectionType type : ElectionType.values())
                    refused(ElectionNotNeededException.class,
                        () -> { throw (Exception) admin.electLeaders(type, Set.of(partition)).partitions().get().get(partition).get(); });
            });
            scenario("reassignments are altered and listed", Administering::reassignments);
            scenario("client quotas are altered and described", Administering::quotas);
            scenario("SCRAM credentials are kept, described and deleted", Administering::scram);
            scenario("without an authorizer ACLs are refused", Administering::acls);
            scenario("without authentication there are no delegation tokens", () -> {
                refused(UnsupportedByAuthenticationException.class, () -> admin.createDelegationToken().delegationToken().get());
                refused(UnsupportedByAuthenticationException.class, () -> admin.describeDelegationToken().delegationTokens().get());
            });
            scenario("producers of a partition are described", () -> {
                String topic = newTopic(1);
                TopicPartition partition = new TopicPartition(topic, 0);
                produce(topic, numbers(5));
                var described = admin.describeProducers(Set.of(partition)).partitionResult(partition).get();
                equal(1, described.activeProducers().size());
                equal(4, described.activeProducers().get(0).lastSequence());
            });
            scenario("an unknown transactional id is not found", () -> {
                String unknown = "unknown-" + UUID.randomUUID();
                equal(false, admin.listTransactions().all().get().stream().anyMatch(t -> t.transactionalId().equals(unknown)));
                refused(TransactionalIdNotFoundException.class,
                    () -> admin.describeTransactions(Set.of(unknown)).description(unknown).get());
            });
            scenario("what only KRaft has is refused", () -> {
                refused(UnsupportedVersionException.class, () -> admin.describeMetadataQuorum().quorumInfo().get());
                refused(UnsupportedVersionException.class, () -> admin.unregisterBroker(99).all().get());
            });
        }

        static TopicDescription describe(String topic) throws Exception {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        }

        static int brokerId() throws Exception {
            return admin.describeCluster().controller().get().id();
        }

        /** Each look may ask another broker, and not all hear of a change at once. */
        static void until(Callable<Boolean> look) throws Exception {
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (!holds(look)) {
                if (System.nanoTime() > deadline) throw new AssertionError("timed out");
                Thread.sleep(20);
            }
        }

        static boolean holds(Callable<Boolean> look) throws Exception {
            try {
                return look.call();
            } catch (ExecutionException failed) {
                if (failed.getCause() instanceof UnknownTopicOrPartitionException) return false;
                throw failed;
            }
        }

        static int brokerCount() throws Exception {
            return admin.describeCluster().nodes().get().size();
        }

        static void topics() throws Exception {
            String topic = "java-" + UUID.randomUUID();
            var created = admin.createTopics(List.of(new NewTopic(topic, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "7"))));
            equal(List.of(3, brokerCount()), List.of(created.numPartitions(topic).get(), created.replicationFactor(topic).get()));
            equal("7", created.config(topic).get().get("retention.ms").value());
            Uuid id = created.topicId(topic).get();
            refused(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, Optional.of(1), Optional.empty()))).all().get());
            until(() -> describe(topic).partitions().size() == 3);
            var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
            equal(List.of(topic, id, 3), List.of(byId.name(), describe(topic).topicId(), byId.partitions().size()));
            until(() -> admin.listTopics().names().get().contains(topic));
            equal(false, admin.listTopics().names().get().contains("__consumer_offsets"));
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            until(() -> !admin.listTopics().names().get().contains(topic));
            refused(UnknownTopicOrPartitionException.class, () -> describe(topic));
            String other = topic + "-2";
            admin.createTopics(List.of(new NewTopic(other, Optional.empty(), Optional.empty())),
                new CreateTopicsOptions().validateOnly(true)).all().get();
            equal(false, admin.listTopics().names().get().contains(other));
        }

        static Config config(ConfigResource resource) throws Exception {
            var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
        }

        static void alter(ConfigResource resource, AlterConfigOp.OpType operation, String name, String value) throws Exception {
            var change = new AlterConfigOp(new ConfigEntry(name, value), operation);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        }

        static void configurations() throws Exception {
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, newTopic(1));
            alter(resource, AlterConfigOp.OpType.SET, "retention.ms", "60000");
            alter(resource, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
            Config described = config(resource);
            equal("60000", described.get("retention.ms").value());
            equal("delete,compact", described.get("cleanup.policy").value());
            ConfigEntry segment = described.get("segment.bytes");
            equal(List.of(true, ConfigEntry.ConfigType.INT, "log.segment.bytes"),
                List.of(segment.isDefault(), segment.type(), segment.synonyms().get(0).name()));
            equal(false, segment.documentation().isEmpty());
            alter(resource, AlterConfigOp.OpType.DELETE, "retention.ms", null);
            equal(true, config(resource).get("retention.ms").isDefault());
            refused(InvalidConfigurationException.class,
                () -> alter(resource, AlterConfigOp.OpType.SET, "retention.ms", "soon"));
        }

        static void brokerConfiguration() throws Exception {
            var resource = new ConfigResource(ConfigResource.Type.BROKER, "" + brokerId());
            alter(resource, AlterConfigOp.OpType.SET, "log.cleaner.backoff.ms", "15003");
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (!config(resource).get("log.cleaner.backoff.ms").value().equals("15003"))
                if (System.nanoTime() > deadline) throw new AssertionError("not altered");
            alter(resource, AlterConfigOp.OpType.DELETE, "log.cleaner.backoff.ms", null);
            refused(InvalidRequestException.class, () -> alter(resource, AlterConfigOp.OpType.SET, "zookeeper.connect", "x"));
        }

        static void offsets() throws Exception {
            String topic = newTopic(1);
            TopicPartition partition = new TopicPartition(topic, 0);
            produce(topic, numbers(5));
            Map<OffsetSpec, Long> asked = Map.of(OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 5L, OffsetSpec.forTimestamp(0), 0L);
            for (var each : asked.entrySet()) {
                var found = admin.listOffsets(Map.of(partition, each.getKey())).partitionResult(partition).get();
                equal(each.getValue(), found.offset());
            }
            equal(true, admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get().offset() >= 0);
        }

        static String emptyGroup(String topic) {
            try (var consumer = consumer("group.id", "group-" + topic)) {
                consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3, "three")));
            }
            return "group-" + topic;
        }

        static void groups() throws Exception {
            String group = emptyGroup(newTopic(1));
            equal(true, admin.listConsumerGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group)));
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            equal(List.of("Empty", 0), List.of(described.state().toString(), described.members().size()));
            equal(true, admin.describeCluster().nodes().get().contains(described.coordinator()));
            admin.deleteConsumerGroups(List.of(group)).all().get();
            refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        }

        static void groupOffsets() throws Exception {
            String topic = newTopic(1), group = emptyGroup(topic);
            TopicPartition partition = new TopicPartition(topic, 0);
            var listed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            equal(Map.of(partition, new OffsetAndMetadata(3, "three")), listed);
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(1))).all().get();
            equal(1L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).offset());
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            equal(Map.of(), admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
        }

        static void removing() throws Exception {
            String topic = newTopic(1);
            try (var member = consumer(Consuming.member(topic, "group.instance.id", "olga"))) {
                member.subscribe(List.of(topic));
                Consuming.untilShares(member, 1, null, 0);
                var described = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
                equal(Optional.of("olga"), described.members().iterator().next().groupInstanceId());
                refused(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
                var olga = new MemberToRemove("olga");
                admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(Set.of(olga))).all().get();
                equal(0, admin.describeConsumerGroups(List.of(topic)).all().get().get(topic).members().size());
            }
        }

        static void logDirectories() throws Exception {
            String topic = newTopic(1);
            produce(topic, numbers(5));
            int broker = brokerId();
            var directories = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
            var directory = directories.entrySet().stream()
                .filter(each -> each.getValue().replicaInfos().containsKey(new TopicPartition(topic, 0))).findFirst().get();
            equal(true, directory.getValue().totalBytes().getAsLong() > 0);
            var replica = new TopicPartitionReplica(topic, 0, broker);
            admin.alterReplicaLogDirs(Map.of(replica, directory.getKey())).all().get();
            equal(directory.getKey(), admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir());
        }

        static void reassignments() throws Exception {
            TopicPartition partition = new TopicPartition(newTopic(1), 0);
            List<Integer> replicas = new ArrayList<>();
            for (var node : describe(partition.topic()).partitions().get(0).replicas()) replicas.add(node.id());
            var same = Optional.of(new NewPartitionReassignment(replicas));
            admin.alterPartitionReassignments(Map.of(partition, same)).all().get();
            equal(Map.of(), admin.listPartitionReassignments(Set.of(partition)).reassignments().get());
            refused(NoReassignmentInProgressException.class,
                () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
            var nowhere = Optional.of(new NewPartitionReassignment(List.of(77)));
            refused(InvalidReplicaAssignmentException.class,
                () -> admin.alterPartitionReassignments(Map.of(partition, nowhere)).all().get());
        }

        static void quotas() throws Exception {
            var entity = new ClientQuotaEntity(Map.of("client-id", "client-" + UUID.randomUUID()));
            var filter = ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntity("client-id", entity.entries().get("client-id"))));
            for (Double rate : Arrays.asList(1024.0, null)) {
                var operation = new ClientQuotaAlteration.Op("producer_byte_rate", rate);
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(operation)))).all().get();
                var expected = rate == null ? Map.of() : Map.of(entity, Map.of("producer_byte_rate", rate));
                equal(expected, admin.describeClientQuotas(filter).entities().get());
            }
        }

        static void scram() throws Exception {
            String user = "user-" + UUID.randomUUID();
            var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, "secret"))).all().get();
            equal(List.of(info), admin.describeUserScramCredentials(List.of(user)).all().get().get(user).credentialInfos());
            admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, info.mechanism()))).all().get();
            refused(ResourceNotFoundException.class, () -> admin.describeUserScramCredentials(List.of(user)).description(user).get());
        }

        static void acls() throws Exception {
            var pattern = new ResourcePattern(ResourceType.TOPIC, "anything", PatternType.LITERAL);
            var entry = new AccessControlEntry("User:olga", "*", AclOperation.READ, AclPermissionType.ALLOW);
            refused(SecurityDisabledException.class, () -> admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get());
            refused(SecurityDisabledException.class, () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
            refused(SecurityDisabledException.class, () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        }
    }
}
