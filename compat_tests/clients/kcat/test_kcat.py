"""kcat in each of its modes: what it produces comes back as it was, and what it says of the cluster is true."""

import json
import subprocess
import time

import pytest

from compat_tests.tools import require_tool

SECONDS = 30


@pytest.fixture
def kcat(bootstrap):
    """Run kcat to its end; its standard output, after it has ended well."""
    require_tool("kcat")

    def run(*arguments, stdin=""):
        return kcat_ended(bootstrap, *arguments, stdin=stdin, status=0).stdout

    return run


def kcat_ended(bootstrap, *arguments, stdin="", status=0):
    command = ["kcat", "-b", bootstrap, "-m", "5", *arguments]
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran


def consume(kcat, topic, *arguments):
    return kcat("-C", "-q", "-t", topic, "-e", "-X", "fetch.wait.max.ms=50", *arguments)


def test_metadata_is_listed_as_json(kcat, bootstrap, new_topic):
    listed = json.loads(kcat("-L", "-J", "-t", new_topic))
    brokers = {broker["id"]: broker["name"] for broker in listed["brokers"]}
    assert set(brokers.values()) == set(bootstrap.split(","))
    assert listed["controllerid"] in brokers
    (found,) = listed["topics"]
    assert found["topic"] == new_topic
    (partition,) = found["partitions"]
    assert (partition["partition"], partition["leader"] in brokers) == (0, True)
    assert {replica["id"] for replica in partition["replicas"]} == set(brokers)
    assert {replica["id"] for replica in partition["isrs"]} == set(brokers)


def test_all_topics_are_listed(kcat, new_topic):
    kcat("-P", "-t", new_topic, stdin="one\n")
    assert f'topic "{new_topic}" with 1 partitions:' in kcat("-L")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_line_of_every_codec_comes_back_in_order(kcat, new_topic, codec):
    lines = "".join(f"line {number} of {codec}\n" for number in range(5000))
    kcat("-P", "-t", new_topic, "-z", codec, stdin=lines)
    assert consume(kcat, new_topic) == lines


def test_keys_headers_and_timestamps_come_back(kcat, new_topic):
    before = int(time.time() * 1000)
    kcat("-P", "-t", new_topic, "-K:", "-H", "first=1", "-H", "second=two", stdin="a key:a value\n")
    (record,) = [json.loads(line) for line in consume(kcat, new_topic, "-J").splitlines()]
    assert (record["key"], record["payload"]) == ("a key", "a value")
    assert record["headers"] == ["first", "1", "second", "two"]
    assert record["tstype"] == "create"
    assert before <= record["ts"] <= int(time.time() * 1000)


def test_null_values_differ_from_empty_ones(kcat, new_topic):
    kcat("-P", "-t", new_topic, "-K:", "-Z", stdin="gone:\n")
    kcat("-P", "-t", new_topic, "-K:", stdin="empty:\n")
    assert consume(kcat, new_topic, "-f", "%k %S\n") == "gone -1\nempty 0\n"


def test_a_partition_is_chosen_and_read_alone(kcat, create_topic):
    topic = create_topic(3)
    for partition in "012":
        kcat("-P", "-t", topic, "-p", partition, stdin=f"in {partition}\n")
    assert consume(kcat, topic, "-p", "1") == "in 1\n"
    assert sorted(consume(kcat, topic).splitlines()) == ["in 0", "in 1", "in 2"]


@pytest.mark.parametrize(
    ("offset", "expected"), [("beginning", "0123456789"), ("7", "789"), ("-2", "89"), ("end", ""), ("25", "0123456789")]
)
def test_consumption_starts_where_it_is_asked_to(kcat, new_topic, offset, expected):
    """Offset 25 is out of range: `auto.offset.reset` of a plain consumer says where to go on."""
    kcat("-P", "-t", new_topic, stdin="".join(f"{digit}\n" for digit in range(10)))
    arguments = ["-p", "0", "-o", offset, "-X", "topic.auto.offset.reset=earliest"]
    assert consume(kcat, new_topic, *arguments).replace("\n", "") == expected


def test_a_time_is_a_place_to_start_and_to_stop(kcat, new_topic):
    for number in range(3):
        kcat("-P", "-t", new_topic, stdin=f"{number}\n")
    times = [json.loads(line)["ts"] for line in consume(kcat, new_topic, "-J").splitlines()]
    assert times[0] < times[1] < times[2]
    assert consume(kcat, new_topic, "-o", f"s@{times[1]}") == "1\n2\n"
    assert consume(kcat, new_topic, "-o", f"s@{times[0]}", "-o", f"e@{times[2]}") == "0\n1\n"


def test_offsets_are_queried_by_time(kcat, new_topic):
    for number in range(3):
        kcat("-P", "-t", new_topic, stdin=f"{number}\n")
    times = [json.loads(line)["ts"] for line in consume(kcat, new_topic, "-J").splitlines()]
    for asked, answered in [(times[0], 0), (times[1], 1), (times[1] + 1, 2), (times[2] + 1, -1), (-1, 3), (-2, 0)]:
        assert kcat("-Q", "-t", f"{new_topic}:0:{asked}") == f"{new_topic} [0] offset {answered}\n"


def test_a_group_goes_on_where_it_stopped(kcat, new_topic):
    kcat("-P", "-t", new_topic, stdin="one\ntwo\nthree\n")
    group = ["-G", f"group-{new_topic}", "-q", "-X", "auto.offset.reset=earliest"]
    assert kcat(*group, "-c", "2", new_topic) == "one\ntwo\n"
    assert kcat(*group, "-e", new_topic) == "three\n"
    assert kcat(*group, "-e", new_topic) == ""


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_reads_every_partition(kcat, create_topic, strategy):
    topic = create_topic(3)
    for partition in "012":
        kcat("-P", "-t", topic, "-p", partition, stdin=f"in {partition}\n")
    options = ["-X", "auto.offset.reset=earliest", "-X", f"partition.assignment.strategy={strategy}"]
    read = kcat("-G", f"group-{topic}", "-q", *options, "-c", "3", topic)
    assert sorted(read.splitlines()) == ["in 0", "in 1", "in 2"]


def test_a_group_subscribes_by_pattern(kcat, new_topic):
    for suffix in ("a", "b"):
        kcat("-P", "-t", f"{new_topic}-{suffix}", stdin=f"{suffix}\n")
    read = kcat("-G", f"group-{new_topic}", "-q", "-X", "auto.offset.reset=earliest", "-c", "2", f"^{new_topic}-.*")
    assert sorted(read.split()) == ["a", "b"]


def test_a_static_member_comes_back(kcat, new_topic):
    kcat("-P", "-t", new_topic, stdin="one\ntwo\n")
    group = ["-G", f"group-{new_topic}", "-q", "-X", "auto.offset.reset=earliest", "-X", "group.instance.id=olga"]
    assert kcat(*group, "-c", "1", new_topic) == "one\n"
    assert kcat(*group, "-c", "1", new_topic) == "two\n"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_delivers(kcat, new_topic, acks):
    kcat("-P", "-t", new_topic, "-X", f"acks={acks}", stdin="heard\n")
    # With fewer than all the end that readers see comes later: this one does not end there.
    assert kcat("-C", "-q", "-t", new_topic, "-c", "1") == "heard\n"


def test_an_idempotent_producer_delivers_once_in_order(kcat, new_topic):
    lines = "".join(f"{number}\n" for number in range(5000))
    kcat("-P", "-t", new_topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=10", stdin=lines)
    assert consume(kcat, new_topic) == lines


def test_a_transaction_is_read_once_it_is_committed(kcat, new_topic):
    kcat("-P", "-t", new_topic, "-X", f"transactional.id={new_topic}", stdin="one\ntwo\n")
    assert consume(kcat, new_topic, "-X", "isolation.level=read_committed") == "one\ntwo\n"


def test_a_message_that_is_too_large_is_refused(kcat, bootstrap, new_topic):
    options = ["-X", "message.max.bytes=3000000", "-D", "|"]
    ran = kcat_ended(bootstrap, "-P", "-t", new_topic, *options, stdin="x" * 2_000_000, status=1)
    assert "Message size too large" in ran.stderr


def test_a_configured_protocol_version_is_spoken(kcat, new_topic):
    """Without ApiVersions a client guesses: the versions of 0.10.0 and of 2.0."""
    for number, version in enumerate(["0.11.0", "2.0.0"]):
        old = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
        kcat("-P", "-t", new_topic, *old, stdin=f"{number}\n")
        assert consume(kcat, new_topic, *old, "-o", str(number)) == f"{number}\n"
