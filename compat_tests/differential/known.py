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
RECORDED = "Ours is what is recorded; Kafka keeps in memory, until it loads the log again, what no record says."

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
    *(
        Known(
            "every_changeable_broker*",
            f"{name}=*",
            "responses.0.error_*",
            "A property of ours, read at the start; Kafka stores any name that it does not know.",
        )
        for name in ("replica.lag.max.messages", "group.members.max.bytes", "delegation.token.owner.max.bytes")
    ),
    *(
        Known(
            "every_changeable_broker*",
            f"{name}=*",
            "responses.0.error_*",
            "The authorizer's, and read at the start; Kafka's broker does not know it, and stores any such name.",
        )
        for name in ("super.users", "allow.everyone.if.no.acl.found")
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
    *(
        Known(scenario, answer, "*.transaction_start_time_ms", RECORDED)
        for scenario, answer in (
            ("producer_ids_after_a_transaction", "* then"),
            ("transactions_in_every_state_are_described", "*"),
            ("transactions_of_two_ids_at_once", "two"),
            ("a_transaction_that_takes_too_long", "then"),
            ("a_successor_takes_the_id_over", "who"),
            ("an_open_transaction_is_aborted_for_*", "* then"),
        )
    ),
    Known("offsets_are_deleted_in_a_transaction", "* group", "*.group_state", RECORDED),
    Known("a_group_of_which_only_a_failed_commit_is_known", "*", "groups*", RECORDED),
    Known(
        "an_open_transaction_and_a_client_that_was_fenced",
        "*",
        "*",
        "A client with an outdated epoch is fenced; Kafka aborts the transaction of its successor first.",
    ),
    Known(
        "epochs_that_are_exhausted",
        "last, again",
        "*",
        "The repetition of the request that gave the last epoch gets its answer; Kafka fails inside.",
    ),
    Known(
        "sequences_in_transactions",
        "next transaction, 0: 3",
        "*",
        "Kafka takes other records with the numbers of an ended transaction for a retry: acknowledged, and lost.",
    ),
    Known("markers_that_kafka_does_not_answer", "*", "", KAFKA_IS_SILENT),
    Known("a_request_for_no_transaction", "*", "", KAFKA_IS_SILENT),
    Known(
        "several_transactions_in_one_request",
        "* one id twice",
        "*.results_by_partition.*",
        "Each row is about its own partitions; Kafka answers both with those of the last one.",
    ),
    Known(
        "partitions_that_cannot_be_verified",
        "* unknown partition beside others",
        "*.partition_error_code",
        "A partition that a broker does not know yet is no reason to refuse the others, whose producers would fail.",
    ),
    Known(
        "a_higher_epoch_in_an_open_transaction",
        "higher",
        "*",
        "Kafka takes it into the open transaction, whose marker it refuses afterwards: it cannot be ended.",
    ),
    Known(
        "plain_batches_after_transactions",
        "* behind it",
        "*",
        "A plain batch need not wait for a transactional one that was refused: anybody can ask for that, in any name.",
    ),
    Known(
        "aborted_transactions",
        "*",
        "*.aborted_transactions*",
        "Ours lists what the records that are sent need; Kafka goes on to the next entry of its sparse index.",
    ),
    Known(
        "markers_in_topics_for_small_messages",
        "77",
        "*.error_code",
        "A marker has no size limit: Kafka's coordinator could never end a transaction there.",
    ),
    Known(
        "markers_with_negative_numbers",
        "*",
        "*",
        "Kafka refuses the producer id -1 only, and writes markers of other ids that no producer has.",
    ),
]
