"""All responses in which Barnabas differs from Apache Kafka 3.9.1, with reasons.

An entry that no difference needs any more is an error of the suite, as an unexplained difference is.
"""

from barnabas.wire.apis import APIS
from compat_tests.differential.compare import Known

NOT_SERVED = "Not listed on purpose: clients would use what is not there, and do well without it."
KAFKA_FAILS = "Kafka fails inside and says UNKNOWN_SERVER_ERROR; we know what is meant, or what is wrong."
KAFKA_FORGETS = "Kafka refuses the repetition of a batch older than a producer's last five; ours finds it in the log."
WITHOUT_REPLICAS = "A partition without replicas can never be used; Kafka in KRaft mode refuses it with the same code."
KAFKA_IS_SILENT = "Kafka fails inside and never answers; ours is the answer that it means to give."
JAVA_ACCIDENT = "Kafka shows the text of whatever exception was thrown; ours says what is wrong with the value."
LIMITED = "What one client may cost the others is bounded here; broker/README.md says how."

KNOWN_DIFFERENCES = [
    *(Known("api_versions", "*", api.name, NOT_SERVED) for api in APIS.values() if not api.served),
    Known(
        "fetch_in_old_formats",
        "* codec ? at 1",
        "*.records",
        "Ours begin with the record that is asked for; Kafka's are compressed together again.",
    ),
    Known(
        "fetch_in_old_formats",
        "* at most *",
        "*.records",
        "The limit holds for what is sent, message by message; one is sent always, or a reader would stand still.",
    ),
    Known("batches_that_decompress_to_much", "beyond: *", "*", LIMITED),
    Known("records_with_many_headers", "* 65537 headers*", "*", LIMITED),
    *(Known("requests_with_many_tags", f"{count} in the *", "", LIMITED) for count in (101, 1000)),
    Known("requests_that_name_one_thing_often", "*, 12 times", "*", LIMITED),
    Known("members_that_bring_much", "beyond: *", "*", LIMITED),
    Known("requests_for_many_partitions", "and 40,000 more", "has a session", LIMITED),
    Known("requests_for_many_partitions", "100,000", "", LIMITED),
    Known(
        "a_client_that_sends_no_more",
        "while it waits",
        "",
        "What waits for a client that has hung up is given up within seconds, also if it still reads.",
    ),
    Known("much_for_an_old_consumer", "from 0", "2", LIMITED),
    Known("new_batches_in_old_requests", "null", "", KAFKA_IS_SILENT),
    Known(
        "create_topics_on_brokers_that_are_not_there",
        "v* brokers [[]]",
        "*",
        WITHOUT_REPLICAS,
    ),
    Known("what_is_described", "*", "*queued.max.request.bytes*value", "Requests of many may not exhaust memory."),
    *(
        Known("every_changeable_broker*", f"{name}=*", "responses.0.error_message", JAVA_ACCIDENT)
        for name in (
            "listener.security.protocol.map",
            "max.connections.per.ip.overrides",
            "log.cleaner.threads",
            "principal.builder.class",
            "ssl.engine.factory.class",
        )
    ),
    Known(
        "every_changeable_broker*",
        "replica.lag.max.messages=*",
        "responses.0.error_*",
        "A property of ours, read at the start; Kafka stores any name that it does not know.",
    ),
    Known(
        "topic_configs_are_changed_one_by_one",
        "* bad name",
        "responses.0.error_*",
        "Kafka passes the name to ZooKeeper and tells what its client thinks of the path.",
    ),
    *(
        Known(
            "what_is_described",
            "* 4 '1', synonyms True",
            f"results.0.configs.{name}.synonyms.*",
            "With the embedded store the default differs: it suits a single broker that was just installed.",
        )
        for name in (
            "listeners",
            "group.initial.rebalance.delay.ms",
            "offsets.topic.replication.factor",
            "transaction.state.log.min.isr",
            "transaction.state.log.replication.factor",
        )
    ),
    Known("levels_of_loggers_are_refused", "broker '7'", "responses.0.error_message", "Kafka names itself, not who."),
    Known("several_resources_in_one_request", "a topic twice, replaced", "", KAFKA_IS_SILENT),
    Known("fetch_positions", "* isolation 2*", "*", KAFKA_FAILS),
    Known("list_offsets_by_time", "* isolation 2", "*", KAFKA_FAILS),
    Known("fetch_limits", "* at most -1", "*", KAFKA_FAILS),
    Known("list_offsets_by_time", "v0 *, at most -1", "*", KAFKA_FAILS),
    Known("metadata_by_id", "v12 zero", "*", KAFKA_FAILS),
    Known("partitions_are_added", "* bad name", "results.*", KAFKA_FAILS),
    Known("partitions_are_added", "* empty name", "results.*", KAFKA_FAILS),
    Known("committed_offsets_are_read", "* no groups", "", KAFKA_IS_SILENT),
    Known("a_protocol_twice", "v3", "", KAFKA_IS_SILENT),
    Known(
        "a_protocol_twice", "v9", "member_id", "The number of the member, which is the first that Kafka answers about."
    ),
    Known(
        "one_member_asks_twice",
        "the first *",
        "",
        "Kafka drops a request that another one of the same member replaces; ours responds that it must rejoin.",
    ),
    Known(
        "bodies_that_lie",
        "array of -2",
        "",
        "Kafka takes any negative length for null; ours treats a length below -1 as a malformed frame.",
    ),
    Known("headers_that_lie", "client id of -2", "", "As with an array of -2."),
    *(Known("sequence_numbers", answer, "*", KAFKA_FORGETS) for answer in ("6 back", "first again, forgotten")),
    Known(
        "commits",
        "v0 * twice",
        "topics.*.partitions",
        "Version 0 names a partition twice that was committed twice; the others do not, and neither do we.",
    ),
]
