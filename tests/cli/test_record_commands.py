"""`produce` and `consume` with what goes wrong in practice: large lines, odd bytes, several topics, missing topics."""

import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import trio

from barnabas.client.cluster import TRANSACTION_KEY_TYPE, Cluster, Place
from barnabas.client.remote import RemotePeer
from barnabas.client.settings import bootstrap_of
from barnabas.testing import LocalBroker
from barnabas.testing.looking.live import wait_until
from barnabas.wire import messages as m
from barnabas.wire.apis import served_apis
from barnabas.wire.record_batch import TRANSACTIONAL
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import OsNet
from tests.cli.running import Commands
from tests.client.deleting import delete_records


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("records"))


def random_lines(count, seed):
    """Records of random bytes as `consume --json` prints them, without topic, offset and timestamp."""
    rng = random.Random(seed)
    ways = [lambda: None, lambda: "", lambda: rng.randbytes(rng.randrange(40))]
    for number in range(count):
        key, value, content = (rng.choice(ways)() for _ in range(3))
        name = shown(rng.randbytes(rng.randrange(3)))
        row = {"key": shown(key), "value": shown(value), "headers": [[name, shown(content)]] * (number % 3)}
        yield json.dumps({**row, "timestamp": number, "partition": number % 4})


def shown(data):
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.thorough)])
def test_records_of_random_bytes_come_back_byte_by_byte(run, count):
    first, second = f"first-{count}", f"second-{count}"
    # The timestamps are of 1970, and a broker deletes what is older than a week.
    run("topics", "create", first, second, "--partitions", "4", "--set", "retention.ms=-1")
    given = "\n".join(random_lines(count, seed=1)).encode()
    run("produce", first, "--json", "--codec", "zstd", given=given, seconds=600)
    printed = run("consume", first, "--json", seconds=600).stdout
    assert sorted(map(content, printed.splitlines())) == sorted(map(content, given.splitlines()))
    run("produce", second, "--json", given=printed, seconds=600)
    again = run("consume", second, "--json", seconds=600).stdout
    # Each partition has its records in the same order, with the same offsets.
    assert by_partition(again.replace(b'"topic":"second-', b'"topic":"first-')) == by_partition(printed)


def content(line):
    row = json.loads(line)
    return json.dumps([row[name] for name in ("key", "value", "headers", "timestamp", "partition")])


def by_partition(printed):
    found = {}
    for line in printed.splitlines():
        found.setdefault(json.loads(line)["partition"], []).append(line)
    return found


@pytest.mark.parametrize("size", [1, 1000, 1100])
def test_a_batch_larger_than_its_topic_allows_is_divided(run, size):
    topic = f"narrow-{size}"
    run("topics", "create", topic, "--partitions", "1", "--set", "max.message.bytes=1200")
    lines = b"".join(b"%05d" % number + b"x" * size + b"\n" for number in range(300))
    run("produce", topic, given=lines)
    assert run("consume", topic).stdout == lines


def test_a_record_larger_than_its_topic_allows_says_what_to_do(run):
    run("topics", "create", "tight", "--partitions", "1")
    ended = run("produce", "tight", given=b"x" * 2_000_000 + b"\n", status=1)
    assert b"topic 'tight' does not take a record of 2,000,0" in ended.stderr
    assert b"raise its limit with `topics set tight max.message.bytes=...`" in ended.stderr


def test_a_line_of_20_mb_goes_through(run):
    run("topics", "create", "wide", "--partitions", "1", "--set", "max.message.bytes=30000000")
    line = os.urandom(10_000_000).hex().encode() + b"\n"
    run("produce", "wide", given=b"before\n" + line + b"after\n")
    assert run("consume", "wide").stdout == b"before\n" + line + b"after\n"
    assert len(run("consume", "wide", "--json").stdout) > 20_000_000


def test_what_stands_before_a_bad_line_is_written(run):
    run("topics", "create", "partly", "--partitions", "1")
    rows = b'{"value":"a"}\n{"value":"b"}\n{"value":\xff}\n{"value":"c"}\n'
    ended = run("produce", "partly", "--json", given=rows, status=1)
    counts, said = ended.stderr.splitlines()
    assert counts == b"2 records written to partly"
    assert said.startswith(b"barnabas: line 3: ")
    assert run("consume", "partly").stdout == b"a\nb\n"


@pytest.mark.parametrize("broken", ["large", "invalid"])
def test_a_record_that_its_topic_does_not_take_is_named_by_its_line(run, broken):
    topic = f"picky-{broken}"
    run("topics", "create", topic, "--partitions", "1", "--set", "max.message.bytes=2000")
    rows = [json.dumps({"key": "k", "value": str(number)}) for number in range(40)]
    if broken == "invalid":
        # A record without a key has no place in a compacted topic.
        run("topics", "set", topic, "cleanup.policy=compact")
        rows[20] = '{"value":"no key"}'
    else:
        rows[20] = json.dumps({"key": "k", "value": "x" * 3000})
    ended = run("produce", topic, "--json", given="\n".join(rows).encode(), status=1)
    counts, said = ended.stderr.splitlines()
    assert counts == b"20 records written to %s, 20 are not acknowledged" % topic.encode()
    assert said.startswith(b"barnabas: line 21: ")
    assert run.lines("consume", topic) == [str(number) for number in range(20)]


def test_the_failure_of_one_topic_leaves_the_records_of_others_alone(run):
    run("topics", "create", "pickier", "--partitions", "1", "--set", "max.message.bytes=2000")
    run("topics", "create", "z-other", "--partitions", "3")
    rows = [
        json.dumps({"key": str(n), "value": "v", "headers": {"to": "z-other" if n % 2 else "pickier"}})
        for n in range(20)
    ]
    rows.insert(10, json.dumps({"value": "B" * 3000, "headers": {"to": "pickier"}}))
    ended = run("produce", "--to-header", "to", given="\n".join(rows).encode(), status=1)
    *counts, said = ended.stderr.splitlines()
    assert counts == [b"5 records written to pickier, 6 are not acknowledged", b"10 records written to z-other"]
    assert said.startswith(b"barnabas: line 11: topic 'pickier' does not take a record of 3,0")
    assert len(run.lines("consume", "z-other")) == 10


def test_after_a_failure_the_records_that_are_written_are_counted(run):
    run("topics", "create", "denied", "--partitions", "1")
    with run.broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="denied", nth=3):
        ended = run("produce", "denied", given=WIDE_LINES[: 3_000 * 1001], status=1)
    written = int(re.match(rb"(\d+) records written to denied, \d+ are not acknowledged\n", ended.stderr)[1])
    assert 0 < written == len(run.lines("consume", "denied"))
    assert b"barnabas: partition denied-0: TOPIC_AUTHORIZATION_FAILED" in ended.stderr


def test_a_line_for_a_partition_that_there_is_not_is_named(run):
    run("topics", "create", "few", "--partitions", "2")
    ended = run("produce", "few", "--json", given=b'{"value":"a","partition":2}\n', status=1)
    assert b"line 1: topic 'few' has the partitions 0 to 1, and no partition 2" in ended.stderr
    ended = run("produce", "few", "-p", "7", given=b"a\n", status=1)
    assert b"topic 'few' has the partitions 0 to 1, and no partition 7" in ended.stderr


def test_a_missing_topic_is_named_with_the_command_that_creates_it(run):
    ended = run("produce", "never-made", given=b"a\n", status=1)
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("barnabas: topic 'never-made': UNKNOWN_TOPIC_OR_PARTITION: there is no such topic")
    assert line.endswith("; to create it: `barnabas topics create never-made`")


def test_records_before_a_damaged_batch_are_printed_and_the_batch_is_named(tmp_path):
    with LocalBroker(data_dir=tmp_path, topics=["scratched"]) as broker:
        run = Commands(broker, tmp_path)
        for value in (b"first\n", b"second\n", b"third\n"):
            run("produce", "scratched", given=value)
        broker.stop()
        (segment,) = tmp_path.glob("scratched-0/*.log")
        content = segment.read_bytes()
        segment.write_bytes(content.replace(b"second", b"sec0nd"))
        broker.restart()

        ended = run("consume", "scratched", status=1)
        assert ended.stdout == b"first\n"
        (line,) = ended.stderr.decode().splitlines()
        assert line.startswith("barnabas: partition scratched-0, offset 1: the checksum of the entry at position ")
        assert line.endswith("; what is behind it: `consume scratched -p 0 --from OFFSET`")
        # The batch is passed over by naming an offset behind it.
        assert run("consume", "scratched", "-p", "0", "--from", "2").stdout == b"third\n"


# -- redrive


def test_dead_letters_go_back_to_the_topics_that_they_come_from(run):
    run("topics", "create", "dead", "orders", "bills", "--partitions", "1")
    for topic, value in (("orders", b"o1\no2\n"), ("bills", b"b1\n")):
        run("produce", "dead", "-H", f"x-original-topic={topic}", given=value)
    letters = run("consume", "dead", "--json").stdout
    ended = run("produce", "--to-header", "x-original-topic", given=letters)
    assert sorted(ended.stderr.splitlines()) == [b"1 records written to bills", b"2 records written to orders"]
    assert run("consume", "orders").stdout == b"o1\no2\n"
    assert run("consume", "bills").stdout == b"b1\n"


def test_a_dead_letter_without_a_known_origin_is_named_or_goes_to_the_given_topic(run):
    run("topics", "create", "lost", "found", "--partitions", "1")
    rows = b'{"value":"a"}\n'
    ended = run("produce", "--to-header", "origin", given=rows, status=1)
    assert b"line 1: the record has no header 'origin', and no TOPIC is given" in ended.stderr
    run("produce", "lost", "--to-header", "origin", given=rows)
    assert run("consume", "lost").stdout == b"a\n"
    rows = b'{"value":"a","headers":{"origin":"fuond"}}\n'
    ended = run("produce", "--to-header", "origin", given=rows, status=1)
    assert b"line 1: topic 'fuond'" in ended.stderr
    assert b"the nearest name is 'found'" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "to which topic?"),
        (("--to-header", "h", "-p", "1"), "--to-header is for records of several topics"),
        (("t", "--tombstone"), "--tombstone deletes a key"),
    ],
)
def test_a_mistake_in_the_options_of_produce_is_said(run, arguments, said):
    assert said in run("produce", *arguments, status=2).stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--json", "-o", "%k"), "--json is a form of its own"),
        (("-f", "--until", "latest"), "--follow goes on at the end"),
    ],
)
def test_options_of_consume_that_contradict_each_other_are_said(run, arguments, said):
    assert said in run("consume", "t", *arguments, status=2).stderr.decode()


# -- what happens meanwhile


def started(run, *arguments, **pipes):
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": run.broker.bootstrap_servers}
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments], stderr=subprocess.PIPE, env=environment, **pipes
    )


def consuming(run, topic, *options):
    return started(run, "consume", topic, *options, stdout=subprocess.PIPE)


def values(run, topic):
    return [record.value for record in run.broker.records(topic)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_lines_are_written_when_they_pause_and_before_a_signal_ends_the_command(run, number, status):
    topic = f"slowly-{status}"
    run("topics", "create", topic, "--partitions", "1")
    with started(run, "produce", topic, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_until(lambda: values(run, topic) == [b"one", b"two"], 30, "what was read is not written")
        # They are in the pipe when the signal comes. The end of the last one is missing.
        process.stdin.write(b"three\nfour\nfi")
        process.stdin.flush()
        process.send_signal(number)
        said = process.stderr.read().decode().splitlines()
    assert process.returncode == status
    assert said == [
        f"4 records written to {topic}",
        "barnabas: the end of the last line had not come: it is left out",
    ]
    assert values(run, topic) == [b"one", b"two", b"three", b"four"]


def test_lines_that_never_pause_are_written_within_a_moment(run):
    run("topics", "create", "steady", "--partitions", "1")
    with started(run, "produce", "steady", stdin=subprocess.PIPE) as process:

        def is_written_after_another():
            process.stdin.write(b"a line\n")
            process.stdin.flush()
            return values(run, "steady") != []

        wait_until(is_written_after_another, 30, "nothing is written")
        process.stdin.close()
        process.stderr.read()
    assert process.returncode == 0


def test_a_second_signal_ends_a_command_whose_broker_is_silent(run):
    run("topics", "create", "silent", "--partitions", "1")
    silence = run.broker.faults.delay("Produce", 60, topic="silent")
    with silence, started(run, "produce", "silent", stdin=subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        silence.wait(1, seconds=30)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        # After one signal it waits for ten seconds.
        assert time.monotonic() - began < 9
    assert process.returncode == 143
    assert said == b"0 records written to silent, 1 are not acknowledged\n"


def test_a_redrive_that_is_interrupted_has_written_what_its_group_has_committed(run):
    run("topics", "create", "dead-group", "revived", "--partitions", "1")
    run("produce", "dead-group", "-H", "to=revived", given=b"".join(b"r%d\n" % number for number in range(100)))
    consume = started(run, "consume", "dead-group", "--json", "-g", "redrive", "-f", stdout=subprocess.PIPE)
    produce = started(run, "produce", "--to-header", "to", stdin=consume.stdout)
    consume.stdout.close()
    wait_until(lambda: values(run, "revived"), 30, "nothing is written")
    for process in (consume, produce):
        process.send_signal(signal.SIGINT)
    assert [process.wait(30) for process in (consume, produce)] == [130, 130]
    (row,) = run.rows("groups", "show", "redrive")
    assert row["committed"] == len(values(run, "revived")) == 100
    assert produce.stderr.read() == b"100 records written to revived\n"
    for process in (consume, produce):
        process.stderr.close()


def test_a_partition_that_cannot_be_read_is_named_and_the_others_are_followed(run):
    run("topics", "create", "torn", "--partitions", "2")
    away = run.broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="torn", partition=1)
    with away, consuming(run, "torn", "-f", "--timeout", "1") as process:
        said = process.stderr.readline().decode()
        run("produce", "torn", "-p", "0", given=b"a\n")
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert said.startswith("barnabas: partition torn-1: NOT_LEADER_OR_FOLLOWER: ")
    assert said.endswith("; the other partitions are read meanwhile\n")


def test_a_topic_that_is_deleted_while_it_is_read_ends_the_command(run):
    run("topics", "create", "short", "--partitions", "1")
    run("produce", "short", given=b"seen\n")
    with consuming(run, "short", "-f") as process:
        assert process.stdout.readline() == b"seen\n"
        run("topics", "delete", "short", "--yes")
        said = process.stderr.read().decode()
    assert process.returncode == 1
    assert said.startswith("barnabas: topic 'short': UNKNOWN_TOPIC_OR_PARTITION: there is no such topic")


@pytest.mark.parametrize("group", [None, "overtaken"])
def test_a_topic_that_is_deleted_while_it_is_read_to_its_end_ends_the_command(run, group):
    topic = f"vanishing-{group}"
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, given=WIDE_LINES)
    options = [] if group is None else ["--group", group]
    with consuming(run, topic, *options) as process:
        process.stdout.readline()
        run("topics", "delete", topic, "--yes")
        process.stdout.read()
        said = process.stderr.read().decode()
    assert process.returncode == 1
    assert f"barnabas: topic '{topic}': UNKNOWN_TOPIC_OR_PARTITION: there is no such topic" in said
    assert "Traceback" not in said


# The command has read a part of them when it has printed the first one, and waits for the reader of the pipe.
WIDE_COUNT = 12_000
WIDE_LINES = b"".join(b"%06d" % number + b"x" * 994 + b"\n" for number in range(WIDE_COUNT))


@pytest.mark.parametrize(
    ("options", "last", "ends"),
    [
        ([], 11_999, 12_000),
        (["--until", "8000"], 7_999, 8_000),
        (["--until", "5000"], None, 5_000),
        (["-n", "6000"], None, None),
        (["--group", "late"], 11_999, 12_000),
    ],
)
def test_what_retention_deletes_before_it_is_read_is_counted_and_passed_over(run, options, last, ends):
    topic = "overtaken" + "".join(options)
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, given=WIDE_LINES)
    with consuming(run, topic, *options) as process:
        first = process.stdout.readline()
        deleted_below(run, topic, 6_000)
        numbers = [int(line[:6]) for line in [first, *process.stdout]]
        said = process.stderr.read().decode()
    assert process.returncode == 0

    before = [number for number in numbers if number < 6_000]
    behind = [number for number in numbers if number >= 6_000]
    assert before == list(range(len(before)))
    assert behind == list(range(6_000, 6_000 + len(behind)))
    assert ends is None or len(numbers) + lost_of(topic, said) == ends
    assert last is None or numbers[-1] == last
    assert "-n" not in options or len(numbers) == 6_000
    assert lost_of(topic, said) == min(6_000, ends or 6_000) - len(before)


def lost_of(topic, said):
    (lost,) = re.findall(
        rf"barnabas: partition {topic}-0: (\d+) records were deleted before they were read; it goes on at offset", said
    )
    return int(lost)


def deleted_below(run, topic, offset):
    async def delete():
        with Cluster(OsNet(), bootstrap_of(run.broker.bootstrap_servers)) as cluster:
            await delete_records(cluster, TopicPartition(topic, 0), offset)

    trio.run(delete)


async def begin_transaction(bootstrap, topic):
    """Write one record in a transaction that stays open."""
    with Cluster(OsNet(), bootstrap) as cluster:
        begun = m.InitProducerIdRequest(
            transactional_id="open", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        producer = await cluster.ask_coordinator("open", begun, TRANSACTION_KEY_TYPE)
        assert producer.error_code == 0
        about = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        ours = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        # The versions above it are for requests of brokers.
        peer = RemotePeer(OsNet(), lambda: Place(*bootstrap[0]), "a client", {24: 3})
        await peer.ask(
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="open",
                v3_and_below_producer_id=about["producer_id"],
                v3_and_below_producer_epoch=about["producer_epoch"],
                v3_and_below_topics=[ours],
            ),
            10_000,
        )
        peer.close()
        batch = build_batch([(None, b"open")], timestamp_ms=1, base_sequence=0, attributes=TRANSACTIONAL, **about)
        row = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(batch.data))
        data = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[row])]
        request = m.ProduceRequest(transactional_id="open", acks=-1, timeout_ms=10_000, topic_data=data)
        written = await cluster.ask_leader(topic, 0, request)
        assert written.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("options", [[], ["--group", "patient"]])
def test_committed_records_end_where_an_open_transaction_begins(run, options):
    topic = "open" + "".join(options)
    run("topics", "create", topic, "--partitions", "1", "--set", "retention.ms=-1")
    run("produce", topic, given=b"a\nb\n")
    trio.run(begin_transaction, bootstrap_of(run.broker.bootstrap_servers), topic)
    run("produce", topic, given=b"c\n")
    assert run.lines("consume", topic, "--committed", *options, seconds=20) == ["a", "b"]
    assert run.lines("consume", topic) == ["a", "b", "open", "c"]


def test_a_broker_that_lacks_an_api_is_named_with_the_api_and_since_when():
    with LocalBroker(topics=["t"]) as broker:
        run = Commands(broker, None)
        served = [
            m.ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in served_apis()
            if api.name != "DescribeClientQuotas"
        ]
        broker.faults.answer("ApiVersions", m.ApiVersionsResponse(api_keys=served))
        began = time.monotonic()
        ended = run("quotas", "ls", status=1)
    assert b"it does not serve DescribeClientQuotas, which Apache Kafka has since 2.6" in ended.stderr
    assert time.monotonic() - began < 15, "it asks again, as if the broker could learn it"
