"""What people do with Kafka's scripts, and how our commands do the same: the table of docs/commands.md.

Each task is run twice on one broker, by Kafka's script and by our command, with names of its own for the topics, groups
and users in it; what both leave behind, or print, is compared.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from compat_tests.command_answers import (
    acls,
    all_properties,
    api_versions,
    broker_ids,
    cluster_id,
    columns,
    committed,
    copied_records,
    described_partitions,
    end_offsets,
    first_offset,
    leaders,
    lines,
    listed_acls,
    log_dirs,
    own_acls,
    own_cluster_id,
    own_log_dirs,
    own_properties,
    planned_offsets,
    printed_records,
    quotas,
    records,
    replicas_when_moved,
    throttles,
    topic_state,
    words,
)

Setup = tuple[str, str]  # one of our commands, and its standard input
Look = Callable[..., object]

# The records are old, and a broker deletes what is older than a week.
FILLED: Sequence[Setup] = (
    ("topics create orders --partitions 1 --set retention.ms=-1", ""),
    (
        "produce orders --json",
        "".join(
            json.dumps({"key": f"k{n}", "value": f"v{n}", "timestamp": 1_000_000_000_000 + 100 * n}) + "\n"
            for n in range(10)
        ),
    ),
)
EMPTY: Sequence[Setup] = (("topics create orders --partitions 1", ""),)
READ: Sequence[Setup] = (*FILLED, ("groups reset billing --topic orders --to 4 --yes", ""))
LINES = "one\ntwo\nthree\n"
FROM_START = "--from-beginning --timeout-ms 8000"


class Task(NamedTuple):
    """One row of the table. `look` is what is left behind; or the two `parse` make the printed answers comparable."""

    title: str
    theirs: str
    ours: str
    setup: Sequence[Setup] = ()
    given: str = ""  # standard input
    ours_given: str | None = None  # where it differs
    look: Look | None = None  # (both, names) -> what is compared
    parse_theirs: Callable[[str], object] | None = None
    parse_ours: Callable[[str], object] | None = None
    files: Mapping[str, str] = {}  # those that the script wants, by their names


TASKS: Sequence[Task] = (
    # topics
    Task(
        "create a topic",
        "kafka-topics.sh --create --topic orders --partitions 3 --config retention.ms=1000",
        "topics create orders --partitions 3 --set retention.ms=1000",
        look=topic_state,
    ),
    Task(
        "create it unless it is there",
        "kafka-topics.sh --create --if-not-exists --topic orders --partitions 5",
        "topics create orders --partitions 5 --if-missing",
        setup=EMPTY,
        look=topic_state,
    ),
    Task(
        "list topics",
        "kafka-topics.sh --list --exclude-internal",
        "topics ls",
        parse_theirs=words,
        parse_ours=lambda text: sorted(line.split()[0] for line in text.splitlines()[1:]),
    ),
    Task(
        "partitions, leaders, ISRs",
        "kafka-topics.sh --describe --topic orders",
        "topics show orders",
        setup=(("topics create orders --partitions 3", ""),),
        parse_theirs=described_partitions,
        parse_ours=columns("PARTITION", "LEADER", "REPLICAS", "ISR"),
    ),
    Task(
        "end offsets",
        "kafka-get-offsets.sh --topic orders",
        "topics show orders",
        setup=FILLED,
        parse_theirs=end_offsets,
        parse_ours=columns("PARTITION", "END"),
    ),
    Task(
        "start offsets",
        "kafka-get-offsets.sh --topic orders --time earliest",
        "topics show orders",
        setup=FILLED,
        parse_theirs=end_offsets,
        parse_ours=columns("PARTITION", "START"),
    ),
    Task(
        "more partitions",
        "kafka-topics.sh --alter --topic orders --partitions 4",
        "topics grow orders --partitions 4",
        setup=EMPTY,
        look=topic_state,
    ),
    Task(
        "set a property",
        "kafka-configs.sh --alter --entity-type topics --entity-name orders --add-config max.message.bytes=2000",
        "topics set orders max.message.bytes=2000",
        setup=EMPTY,
        look=topic_state,
    ),
    Task(
        "give a property its default back",
        "kafka-configs.sh --alter --entity-type topics --entity-name orders --delete-config retention.ms",
        "topics set orders retention.ms=",
        setup=(("topics create orders --partitions 1 --set retention.ms=5000", ""),),
        look=topic_state,
    ),
    Task(
        "delete a topic",
        "kafka-topics.sh --delete --topic orders",
        "topics delete orders --yes",
        setup=EMPTY,
        look=topic_state,
    ),
    # records
    Task(
        "a line is a record",
        "kafka-console-producer.sh --topic orders",
        "produce orders",
        setup=EMPTY,
        given=LINES,
        look=records,
    ),
    Task(
        "keys",
        "kafka-console-producer.sh --topic orders --property parse.key=true --property key.separator=:",
        "produce orders -K :",
        setup=EMPTY,
        given="a:1\nb:2\na:3\n",
        look=records,
    ),
    Task(
        "keys go to the same partitions",
        "kafka-console-producer.sh --topic orders --property parse.key=true --property key.separator=:",
        "produce orders -K :",
        setup=(("topics create orders --partitions 7", ""),),
        given="".join(f"key-{n}:{n}\n" for n in range(100)),
        look=lambda both, names: sorted(records(both, names)),
    ),
    Task(
        "a header",
        "kafka-console-producer.sh --topic orders --property parse.headers=true --property headers.delimiter=;",
        "produce orders -H source=shop",
        setup=EMPTY,
        given="source:shop;one\nsource:shop;two\n",
        ours_given="one\ntwo\n",
        look=records,
    ),
    Task(
        "a codec",
        "kafka-console-producer.sh --topic orders --compression-codec lz4",
        "produce orders --codec lz4",
        setup=EMPTY,
        given=LINES,
        look=records,
    ),
    Task(
        "acknowledged by the leader alone",
        "kafka-console-producer.sh --topic orders --producer-property acks=1",
        "produce orders --acks 1",
        setup=EMPTY,
        given=LINES,
        look=records,
    ),
    Task(
        "delete a key of a compacted topic",
        "kafka-console-producer.sh --topic orders --property parse.key=true --property null.marker=NULL",
        "produce orders -k 42 --tombstone",
        setup=EMPTY,
        given="42\tNULL\n",
        ours_given="",
        look=records,
    ),
    Task(
        "all records",
        f"kafka-console-consumer.sh --topic orders {FROM_START}",
        "consume orders",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "the first two",
        "kafka-console-consumer.sh --topic orders --from-beginning --max-messages 2",
        "consume orders -n 2",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "from an offset on",
        "kafka-console-consumer.sh --topic orders --partition 0 --offset 7 --max-messages 3",
        "consume orders -p 0 --from 7",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "the last two, of ten",
        "kafka-console-consumer.sh --topic orders --partition 0 --offset 8 --max-messages 2",
        "consume orders --from -2",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "the first offset of a time",
        "kafka-get-offsets.sh --topic orders --time 1000000000500",
        r"consume orders --from 2001-09-09T01:46:40.500 -n 1 -o %o\n",
        setup=FILLED,
        parse_theirs=first_offset,
        parse_ours=str.strip,
    ),
    Task(
        "with keys, partitions and offsets",
        "kafka-console-consumer.sh --topic orders --from-beginning --max-messages 10 --property print.key=true "
        "--property print.partition=true --property print.offset=true",
        r"consume orders -o Partition:%p\tOffset:%o\t%k\t%v\n",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "only committed transactions",
        "kafka-console-consumer.sh --topic orders --from-beginning --max-messages 10 --isolation-level read_committed",
        "consume orders --committed",
        setup=FILLED,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "as a member of a group",
        "kafka-console-consumer.sh --topic orders --group billing --from-beginning --max-messages 10",
        "consume orders --group billing",
        setup=FILLED,
        look=committed,
    ),
    Task(
        "go on where the group is",
        "kafka-console-consumer.sh --topic orders --group billing --max-messages 6",
        "consume orders --group billing",
        setup=READ,
        parse_theirs=printed_records,
        parse_ours=lines,
    ),
    Task(
        "from one topic to another",
        "kafka-console-consumer.sh --topic orders --from-beginning --max-messages 10 --property print.key=true "
        "| kafka-console-producer.sh --topic copies --property parse.key=true",
        "consume orders --json | produce copies --json",
        setup=(*FILLED, ("topics create copies --partitions 1", "")),
        look=copied_records,
    ),
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
