"""Additions to `known` for clusters: scenarios that do not run on them, and differences only there."""

from compat_tests.differential.compare import Known
from compat_tests.differential.known import WITHOUT_REPLICAS

ONE_CONNECTION = "The broker that is asked decides it alone, from the bytes: nothing of it depends on other brokers."
OWN_CONFIGS = "About the properties of one broker, or of topics, which clusters tell as one broker does; it takes long."
DRAWN = "It looks at topics whose leaders the controller draws by chance."
OTHER_STEPS = (
    "How many steps a change takes: Kafka writes one state for a new leader or assignment and one for the shorter ISR, "
    "an epoch each; ours is written at once."
)

# Patterns of scenario names; a pattern that fits none is an error of the suite.
ABOUT_ONE_BROKER: dict[str, str] = {
    **dict.fromkeys(("damaged_batches*", "first_bytes", "*_that_lie", "every_api_above_its_versions"), ONE_CONNECTION),
    **dict.fromkeys(("api_versions*", "client_software_names", "sasl_on_a_plain_listener"), ONE_CONNECTION),
    **dict.fromkeys(("old_messages_*", "new_batches_in_old_requests"), ONE_CONNECTION),
    **dict.fromkeys(("*_in_old_formats", "codecs", "zstd_for_old_consumers", "fetch_*s"), ONE_CONNECTION),
    **dict.fromkeys(("*_to_much", "*_with_many_*", "*_for_many_partitions", "*_thing_often"), ONE_CONNECTION),
    **dict.fromkeys(("much_for_an_old_consumer", "a_client_that_sends_no_more"), ONE_CONNECTION),
    **dict.fromkeys(("keys_on_a_compacted_topic", "times_of_records", "sizes_of_batches"), ONE_CONNECTION),
    **dict.fromkeys(("every_*_with_every_value", "what_is_*", "broker_configs_*", "topic_configs_*"), OWN_CONFIGS),
    "epochs_that_are_exhausted": "It takes as many requests as there are epochs, each of them replicated.",
    **dict.fromkeys(("metadata_creates_topics", "log_directories", "largest_names"), DRAWN),
}

KNOWN_DIFFERENCES_OF_CLUSTERS: list[Known] = [
    Known(
        "requests_to_those_who_do_not_coordinate",
        "offsets v1",
        "topics",
        "Kafka forgets to say it in version 1, as if nothing had been committed; ours names the error.",
    ),
    Known(
        "a_log_of_an_earlier_topic_of_that_name",
        "v* by the earlier id*",
        "*",
        "Ours knows the ids of what it hosts from LeaderAndIsr on, Kafka from UpdateMetadata on.",
    ),
    Known(
        "a_log_of_an_earlier_topic_of_that_name",
        "the topic's id",
        "topics.*.error_code",
        "Ours looks into the store: the topic that took the name exists, so the one before it was deleted.",
    ),
    Known(
        "in_sync_replicas_in_every_version",
        "v* from the follower",
        "*",
        "Kafka's controller trusts that the sender leads; in KRaft mode it refuses with the same code as ours.",
    ),
    Known("topics_are_placed_by_hand", "v* empty", "*", WITHOUT_REPLICAS),
    Known(
        "levels_of_loggers_are_refused",
        "*",
        "responses.0.error_message",
        "Kafka names itself twice, not the broker that was meant.",
    ),
    *(
        Known(scenario, answer, field, OTHER_STEPS)
        for scenario, answer, field in (
            ("replicas_are_reassigned", "*, then", "partitions.*.leader_epoch"),
            ("a_broker_is_dead", "after cancelling", "partitions.0.leader_epoch"),
            ("a_broker_is_dead", "*back: *", "*leader_epoch"),
            ("a_log_directory_is_lost", "back: *", "*leader_epoch"),
            ("the_controller_is_dead", "*", "partitions.0.leader_epoch"),
        )
    ),
]
