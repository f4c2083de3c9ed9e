"""Differences in logins from Apache Kafka 3.9.1, with reasons."""

from compat_tests.differential.compare import Known

LIMITED = "What a stranger may make a broker keep in memory is bounded; no client has such a nonce."
GENERAL_TEXT = "Kafka gives its general text, or none, in these responses; ours says in each what was out of place."
KAFKA_FAILS = "Kafka fails inside, and closes the connection without the answer that it means to give."

KNOWN_DIFFERENCES_OF_SASL = [
    Known("first_messages_of_scram", "*: a long nonce", "*", LIMITED),
    *(
        Known("every_api_instead_of_a_token", f"{name} *", "*error_message", GENERAL_TEXT)
        for name in ("FindCoordinator", "DeleteTopics", "DescribeConfigs", "AlterClientQuotas", "DescribeProducers")
    ),
    Known("every_api_instead_of_a_token", "DescribeUserScramCredentials *", "", KAFKA_FAILS),
    Known("tokens_of_oauthbearer", "token: no algorithm*", "", KAFKA_FAILS),
    Known("tokens_of_oauthbearer", "token: sub null*", "*", "Kafka logs such a client in as a user called null."),
]
