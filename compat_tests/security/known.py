"""Differences in the ACL matrix from Apache Kafka 3.9.1, with reasons."""

import re
from typing import NamedTuple

from compat_tests.differential.compare import Difference, Known


class KnownTexts(NamedTuple):
    """A known difference of which both sides are known."""

    known: Known
    kafka: str  # a regular expression
    barnabas: str

    @property
    def scenario(self) -> str:
        return self.known.scenario

    def covers(self, difference: Difference) -> bool:
        return (
            self.known.covers(difference)
            and difference.barnabas == self.barnabas
            and bool(re.fullmatch(self.kafka, str(difference.kafka)))
        )


DUMP = "Kafka's message shows the request as an object of Java, with the addresses of objects."
KAFKA_FAILS = "Kafka fails inside, and never answers; ours is the answer that it means to give."

KAFKA_FORGETS = "Kafka forgets to say it in version 1, as if nothing had been committed; ours names the error."

KNOWN_DIFFERENCES_OF_ACLS = [
    *(
        KnownTexts(
            Known(f"{api} v*", "*", "*error_message", DUMP),
            r"Request Request\(.*\) is not authorized\.",
            "Cluster authorization failed.",
        )
        for api in (
            "CreateAcls",
            "DeleteAcls",
            "DescribeAcls",
            "AlterPartitionReassignments",
            "ListPartitionReassignments",
        )
    ),
    Known("DescribeUserScramCredentials v0 of all users, needs *", "no ACL", "", KAFKA_FAILS),
    Known("OffsetFetch v1 *", "*", "topics", KAFKA_FORGETS),
]
