"""`consume --group`: members share a topic, commit what they print, and end quietly."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios

import pytest
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import commit_offsets
from barnabas.client.settings import bootstrap_of
from barnabas.testing import LocalBroker
from barnabas.testing.looking.live import wait_until
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import OsNet
from tests.cli.running import Commands


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("groups"))


@pytest.fixture
def start(run):
    """Starts members in the background; those that still run at the end are killed."""
    started = []

    def start_one(topic, *options, program=("-m", "barnabas"), **settings):
        command = [sys.executable, *program, "consume", topic, *options]
        environment = {**os.environ, "BARNABAS_BOOTSTRAP": run.broker.bootstrap_servers}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        started.append(subprocess.Popen(command, env=environment, **pipes))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def rows_of(run, group):
    """The partitions of a group, which may not exist yet."""
    there = [row["group"] for row in run.rows("groups", "ls")]
    return run.rows("groups", "show", group) if group in there else []


def committed(run, group):
    return {row["partition"]: row["committed"] or 0 for row in rows_of(run, group)}


def members(run, group):
    return {row["member"] for row in rows_of(run, group) if row["member"]}


def test_a_member_goes_on_where_the_group_is(run):
    run("topics", "create", "letters", "--partitions", "1")
    run("produce", "letters", given=b"a\nb\nc\nd\n")
    assert run.lines("consume", "letters", "--group", "readers", "-n", "2") == ["a", "b"]
    assert committed(run, "readers") == {0: 2}
    assert run.lines("consume", "letters", "--group", "readers") == ["c", "d"]
    assert run.lines("consume", "letters", "--group", "readers") == []
    assert committed(run, "readers") == {0: 4}
    assert run.rows("groups", "show", "readers")[0]["state"] == "Empty"


def test_a_new_group_begins_where_from_says(run):
    run("topics", "create", "tail", "--partitions", "1")
    run("produce", "tail", given=b"a\nb\nc\nd\n")
    assert run.lines("consume", "tail", "--group", "late", "--from", "-1") == ["d"]
    assert run.lines("consume", "tail", "--group", "late", "--from", "earliest") == []


def test_records_that_are_left_out_count_as_read(run):
    run("topics", "create", "sifted", "--partitions", "1")
    run("produce", "sifted", "-K", ":", given=b"k:1\nx:2\nk:3\nx:4\n")
    assert run.lines("consume", "sifted", "--group", "sift", "--where", "key=k") == ["1", "3"]
    assert committed(run, "sift") == {0: 4}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_member_quietly_with_a_commit(run, start, number, status):
    topic = f"endless-{status}"
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, given=b"a\nb\n")
    member = start(topic, "-g", topic, "-f")
    assert [member.stdout.readline(), member.stdout.readline()] == [b"a\n", b"b\n"]
    member.send_signal(number)
    assert member.wait(30) == status
    assert member.stderr.read() == b""
    assert committed(run, topic) == {0: 2}
    assert run.rows("groups", "show", topic)[0]["state"] == "Empty"


def held_bytes(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("size", [500, 9_000])
def test_a_signal_while_the_pipe_is_full_doubles_and_cuts_no_line(run, start, number, size):
    topic = f"full-{size}-{number}"
    run("topics", "create", topic, "--partitions", "1")
    lines = [b"%04d" % line + b"x" * size + b"\n" for line in range(400)]
    run("produce", topic, given=b"".join(lines))
    member = start(topic, "-g", topic)
    wait_until(lambda: held_bytes(member.stdout) > 40_000, 30, "the pipe is not full")
    member.send_signal(number)
    # A line of which the pipe has a part is written to its end, so the reader has to go on.
    if size < select.PIPE_BUF:
        member.wait(30)
    printed = member.stdout.read()
    assert member.wait(30) == 128 + number
    assert member.stderr.read() == b""
    first = printed.splitlines(keepends=True)
    assert 0 < len(first) < 400
    assert committed(run, topic) == {0: len(first)}
    assert first + run("consume", topic, "--group", topic).stdout.splitlines(keepends=True) == lines


def test_members_share_the_partitions_and_lose_and_repeat_nothing(run, start):
    run("topics", "create", "shared", "--partitions", "4")
    run("produce", "shared", "-K", ":", given=b"".join(b"%d:first-%d\n" % (n, n) for n in range(200)))
    one = start("shared", "-g", "team", "-f")
    wait_until(lambda: sum(committed(run, "team").values()) == 200, 30, "the first member has not committed")
    two = start("shared", "-g", "team", "-f")
    wait_until(lambda: len(members(run, "team")) == 2, 30, "the second member has no partitions")
    run("produce", "shared", "-K", ":", given=b"".join(b"%d:second-%d\n" % (n, n) for n in range(200)))
    wait_until(lambda: sum(committed(run, "team").values()) == 400, 30, "not everything is committed")
    for member in (one, two):
        member.send_signal(signal.SIGINT)
    printed = [member.communicate(timeout=30)[0].splitlines() for member in (one, two)]
    assert sorted(printed[0] + printed[1]) == sorted(
        b"%s-%d" % (word, number) for word in (b"first", b"second") for number in range(200)
    )
    assert 0 < len(printed[1]) < 200


def test_when_a_member_is_killed_the_others_take_over(run, start):
    run("topics", "create", "taken", "--partitions", "2")
    first = start("taken", "-g", "heirs", "-f")
    wait_until(lambda: len(members(run, "heirs")) == 1, 30, "it has not joined")
    start("taken", "-g", "heirs", "-f", stdout=subprocess.DEVNULL)
    wait_until(lambda: len(members(run, "heirs")) == 2, 30, "it has not joined")
    first.kill()
    wait_until(lambda: len(members(run, "heirs")) == 1, 30, "the killed member keeps its partitions")
    run("produce", "taken", "-K", ":", given=b"".join(b"%d:v\n" % n for n in range(50)))
    wait_until(lambda: sum(committed(run, "heirs").values()) == 50, 30, "not everything is read")


def test_a_member_too_many_says_so_and_ends_unless_it_follows(run, start):
    run("topics", "create", "single", "--partitions", "1")
    reading = start("single", "-g", "crowd", "-f")
    wait_until(lambda: len(members(run, "crowd")) == 1, 30, "it has not joined")
    # The partition is with the member whose id comes first, which no test can choose.
    late = run("consume", "single", "--group", "crowd")
    if late.stderr:
        assert b"group 'crowd' has more members than partitions to read" in late.stderr
    wait_until(lambda: len(members(run, "crowd")) == 1, 30, "the first member has lost the partition")
    assert reading.poll() is None


def test_a_slow_reader_of_the_pipe_does_not_cost_the_membership(run, start):
    run("topics", "create", "slow", "--partitions", "1")
    run("produce", "slow", given=b"x" * 1000 + b"\n" + (b"y" * 1000 + b"\n") * 500)
    member = start("slow", "-g", "sleepers", "-f")
    seen = member.stdout.read(1001)
    (known,) = members(run, "sleepers")
    beats = run.broker.faults.delay("Heartbeat", 0, times=4)
    # A session is over after ten seconds, in which there are three heartbeats.
    beats.wait(4, seconds=30)
    assert members(run, "sleepers") == {known}
    while len(seen) < 501 * 1001:
        seen += member.stdout.read(1001)
    assert seen.count(b"\n") == 501


def test_a_reader_of_the_pipe_that_leaves_ends_a_member_quietly(run, start):
    run("topics", "create", "left", "--partitions", "1")
    run("produce", "left", given=b"y\n" * 200_000)
    member = start("left", "-g", "leavers")
    assert member.stdout.readline() == b"y\n"
    member.stdout.close()
    assert member.wait(30) == -signal.SIGPIPE
    assert member.stderr.read() == b""
    assert members(run, "leavers") == set()


def test_a_member_names_no_partitions_and_an_unknown_topic_is_said(run):
    run("topics", "create", "letter-box", "--partitions", "1")
    ended = run("consume", "letters", "--group", "g", "-p", "0", status=2)
    assert b"a member of a group gets its partitions from the group" in ended.stderr
    ended = run("consume", "leter-box", "--group", "g", status=1)
    assert b"the nearest name is 'letter-box'" in ended.stderr


@pytest.mark.parametrize("options", [[], ["-f"], ["--until", "2"]])
def test_a_group_beyond_the_end_of_a_log_is_refused(run, options):
    topic = "".join(["ahead", *options])
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, given=b"a\nb\nc\n")

    async def commit():
        with Cluster(OsNet(), bootstrap_of(run.broker.bootstrap_servers)) as cluster:
            await commit_offsets(cluster, topic, {TopicPartition(topic, 0): 100})

    trio.run(commit)
    ended = run("consume", topic, "--group", topic, *options, status=1)
    assert ended.stdout == b""
    assert f"partition {topic}-0, offset 100: OFFSET_OUT_OF_RANGE: the log ends at 3" in ended.stderr.decode()
    assert committed(run, topic) == {0: 100}


# A client looks for new partitions each half minute, so the test shortens it.
EAGER = """
import barnabas.client.cluster
barnabas.client.cluster.METADATA_SECONDS = 0.5
from barnabas.cli.commands import main
main()
"""


@pytest.mark.parametrize("options", [[], ["--group", "growers"]])
def test_who_follows_a_topic_reads_new_partitions_from_their_beginning(run, start, options):
    topic = "growing" + "".join(options)
    run("topics", "create", topic, "--partitions", "1")
    run("produce", topic, given=b"a\nb\n")
    follower = start(topic, *options, "-f", "--from", "-1", program=["-c", EAGER])
    assert follower.stdout.readline() == b"b\n"
    run("topics", "grow", topic, "--partitions", "3")
    run("produce", topic, "-p", "2", given=b"c\nd\n")
    assert [follower.stdout.readline(), follower.stdout.readline()] == [b"c\n", b"d\n"]
    follower.send_signal(signal.SIGINT)
    assert follower.wait(30) == 130
    assert follower.stderr.read() == b""
    if options:
        assert committed(run, "growers") == {0: 2, 2: 2}
