"""What people do with groups, brokers, quotas, ACLs and replicas by Kafka's scripts, and our commands for it."""

import json
import re
from collections.abc import Sequence

from compat_tests.command_answers import (
    acls,
    all_properties,
    api_versions,
    broker_ids,
    cluster_id,
    columns,
    committed,
    leaders,
    listed_acls,
    log_dirs,
    own_acls,
    own_cluster_id,
    own_log_dirs,
    own_properties,
    planned_offsets,
    quotas,
    replicas_when_moved,
    throttles,
    words,
)
from compat_tests.command_task import READ, Setup, Task

ADMIN_TASKS: Sequence[Task] = (
    # groups
    Task(
        "list groups",
        "kafka-consumer-groups.sh --list",
        "groups ls",
        setup=READ,
        parse_theirs=words,
        parse_ours=lambda text: sorted(line.split()[0] for line in text.splitlines()[1:]),
    ),
    Task(
        "committed offsets and lag",
        "kafka-consumer-groups.sh --describe --group billing",
        "groups show billing",
        setup=READ,
        parse_theirs=columns("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        parse_ours=columns("PARTITION", "COMMITTED", "END", "LAG"),
    ),
    Task(
        "the state of a group",
        "kafka-consumer-groups.sh --describe --group billing --state",
        "groups show billing --by group",
        setup=READ,
        parse_theirs=lambda text: "Empty" in text.split(),
        parse_ours=lambda text: "Empty" in text.split(),
    ),
    Task(
        "read again from the start",
        "kafka-consumer-groups.sh --reset-offsets --group billing --topic orders --to-earliest --execute",
        "groups reset billing --topic orders --to earliest --yes",
        setup=READ,
        look=committed,
    ),
    Task(
        "skip everything",
        "kafka-consumer-groups.sh --reset-offsets --group billing --topic orders --to-latest --execute",
        "groups reset billing --to latest --yes",
        setup=READ,
        look=committed,
    ),
    Task(
        "go to an offset",
        "kafka-consumer-groups.sh --reset-offsets --group billing --topic orders --to-offset 3 --execute",
        "groups reset billing --to 3 --yes",
        setup=READ,
        look=committed,
    ),
    Task(
        "go to a time",
        "kafka-consumer-groups.sh --reset-offsets --group billing --topic orders "
        "--to-datetime 2001-09-09T01:46:40.650 --execute",
        "groups reset billing --to 2001-09-09T01:46:40.650 --yes",
        setup=READ,
        look=committed,
    ),
    Task(
        "see where it would go",
        "kafka-consumer-groups.sh --reset-offsets --group billing --topic orders --to-offset 3 --dry-run",
        "groups reset billing --to 3 --dry-run",
        setup=READ,
        parse_theirs=planned_offsets,
        parse_ours=columns("PARTITION", "NEW"),
    ),
    Task(
        "forget a group",
        "kafka-consumer-groups.sh --delete --group billing",
        "groups delete billing --yes",
        setup=READ,
        look=committed,
    ),
    # brokers
    Task(
        "list brokers",
        "kafka-broker-api-versions.sh",
        "brokers ls",
        parse_theirs=broker_ids,
        parse_ours=lambda text: [row[0] for row in columns("BROKER")(text)],
    ),
    Task(
        "the APIs of a broker",
        "kafka-broker-api-versions.sh",
        "brokers show 1 --apis",
        parse_theirs=api_versions,
        parse_ours=columns("API", "MIN", "MAX"),
    ),
    Task(
        "the properties of a broker",
        "kafka-configs.sh --describe --all --entity-type brokers --entity-name 1",
        "brokers show 1 --json",
        parse_theirs=all_properties,
        parse_ours=own_properties,
    ),
    Task(
        "log directories",
        "kafka-log-dirs.sh --describe --broker-list 1",
        "brokers show 1 --json",
        parse_theirs=log_dirs,
        parse_ours=own_log_dirs,
    ),
    Task(
        "the id of the cluster",
        "kafka-cluster.sh cluster-id",
        "brokers ls --json",
        parse_theirs=cluster_id,
        parse_ours=own_cluster_id,
    ),
    # quotas
    Task(
        "limit a user",
        "kafka-configs.sh --alter --add-config producer_byte_rate=1024 --entity-type users --entity-name alice",
        "quotas set --user alice producer_byte_rate=1024",
        look=quotas,
    ),
    Task(
        "limit a client of a user",
        "kafka-configs.sh --alter --add-config request_percentage=50.5 --entity-type users --entity-name alice "
        "--entity-type clients --entity-name app",
        "quotas set --user alice --client-id app request_percentage=50.5",
        look=quotas,
    ),
    Task(
        "limit connections from an address",
        "kafka-configs.sh --alter --add-config connection_creation_rate=5 --entity-type ips --entity-name 10.0.0.1",
        "quotas set --ip 10.0.0.1 connection_creation_rate=5",
        look=quotas,
    ),
    Task(
        "see the limits of a user",
        "kafka-configs.sh --describe --entity-type users --entity-name alice",
        "quotas ls --user alice",
        setup=(("quotas set --user alice producer_byte_rate=1024 consumer_byte_rate=99", ""),),
        parse_theirs=lambda text: sorted(map(list, re.findall(r"(\w+_rate)=(\d+)", text))),
        parse_ours=columns("QUOTA", "VALUE"),
    ),
    Task(
        "remove a limit",
        "kafka-configs.sh --alter --delete-config producer_byte_rate --entity-type users --entity-name alice",
        "quotas delete producer_byte_rate --user alice --yes",
        setup=(("quotas set --user alice producer_byte_rate=1024 consumer_byte_rate=99", ""),),
        look=quotas,
    ),
    # ACLs
    Task(
        "allow a user to read",
        "kafka-acls.sh --add --allow-principal User:alice --operation Read --topic orders",
        "acls add --allow User:alice --operation read --topic orders",
        look=acls,
    ),
    Task(
        "deny names that begin so, from an address",
        "kafka-acls.sh --add --deny-principal User:alice --deny-host 10.0.0.1 --operation Write --topic orders "
        "--resource-pattern-type prefixed",
        "acls add --deny User:alice --host 10.0.0.1 --operation write --topic orders --prefixed",
        look=lambda both, names: [row[:2] + row[3:] for row in acls(both, names)],
    ),
    Task(
        "what a producer needs",
        "kafka-acls.sh --add --allow-principal User:alice --producer --topic orders",
        "acls add --allow User:alice --producer --topic orders",
        look=acls,
    ),
    Task(
        "what a consumer needs",
        "kafka-acls.sh --add --allow-principal User:alice --consumer --topic orders --group billing",
        "acls add --allow User:alice --consumer --topic orders --group billing",
        look=acls,
    ),
    Task(
        "list ACLs",
        "kafka-acls.sh --list --topic orders",
        "acls ls --topic orders --json",
        setup=(("acls add --allow User:alice --topic orders --operation read,write", ""),),
        parse_theirs=listed_acls,
        parse_ours=own_acls,
    ),
    Task(
        "delete ACLs",
        "kafka-acls.sh --remove --force --topic orders",
        "acls delete --topic orders --yes",
        setup=(("acls add --allow User:alice --topic orders --operation read,write", ""),),
        look=lambda both, names: {"left": acls(both, names)},
    ),
)

SPREAD: Sequence[Setup] = (("topics create orders --partitions 2 --replicas 1", ""),)
TURNED: Sequence[Setup] = (
    ("topics create orders --partitions 1 --replicas 3", ""),
    ("move orders -p 0 --to 1,2,3 --yes --wait", ""),
    ("elect orders", ""),
    ("move orders -p 0 --to 2,1,3 --yes --wait", ""),
)


def assigned(*replicas):
    rows = [{"topic": "orders", "partition": number, "replicas": each} for number, each in enumerate(replicas)]
    return json.dumps({"version": 1, "partitions": rows})


CLUSTER_TASKS: Sequence[Task] = (
    Task(
        "elect the preferred leader of a partition",
        "kafka-leader-election.sh --election-type preferred --topic orders --partition 0",
        "elect orders -p 0",
        setup=TURNED,
        look=leaders,
    ),
    Task(
        "move a topic to other brokers",
        "kafka-reassign-partitions.sh --execute --reassignment-json-file orders.json",
        "move orders --to 2,3 --yes",
        setup=SPREAD,
        files={"orders.json": assigned([2, 3], [3, 2])},
        look=replicas_when_moved,
    ),
    Task(
        "see whether it is moved, and take the throttle off",
        "kafka-reassign-partitions.sh --verify --reassignment-json-file orders.json",
        "move orders --to 2,3 --verify",
        setup=(
            *SPREAD,
            ("move orders --to 2,3 --yes --wait", ""),
            ("topics set orders leader.replication.throttled.replicas=0:2,1:3", ""),
        ),
        files={"orders.json": assigned([2, 3], [3, 2])},
        look=throttles,
    ),
    Task(
        "list the moves that go on",
        "kafka-reassign-partitions.sh --list",
        "move",
        parse_theirs=lambda text: "No partition reassignments found." in text,
        parse_ours=lambda text: len(text.splitlines()) == 1,
    ),
)
