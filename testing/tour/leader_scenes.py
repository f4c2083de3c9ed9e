"""Scenes about a change of the leader: which log is right, and who may lead (shell)."""

from barnabas.testing.tour.scene import Bug, Scene, Step
from barnabas.testing.tour.stage import Stage, Topic, fates


def _write_one(stage: Stage) -> None:
    stage.write("one")
    stage.settle()


def _write_two(stage: Stage) -> None:
    # The next answer that a follower gets brings the record. The one after it would bring the high watermark.
    stage.hold(2, 3)
    question = stage.send("two")
    stage.until(lambda: stage.ends()[1] == 2, "the leader has not appended it")
    stage.hold_answers(2, 3)
    stage.answer(question)


def _kill_the_first_leader(stage: Stage) -> None:
    # The answers to broker 3 stay away, so it cannot fetch again what it may cut off.
    fetches = stage.holds[3].fired
    stage.kill(1)
    stage.until_led(2, [2, 3])
    # Broker 3 has taken its new role when its first fetch is at the new leader.
    stage.holds[3].wait(fetches + 1)


def _kill_the_second_leader(stage: Stage) -> None:
    # Broker 3 is the only in-sync replica that is left, so this is a clean election.
    stage.kill(2)
    stage.release()
    stage.until_led(3, [3])
    stage.note(f"a consumer reads: {', '.join(stage.values())}")


TRUNCATION = Scene(
    name="truncation",
    title="KIP-101: what a new follower may cut off",
    text="""\
A replica that begins to follow a new leader may have records that the new leader does not have. It
has to cut them off. Where?

Until version 0.11 Kafka's answer was: at the replica's own high watermark, because everything
above it may not be committed. But a follower learns the high watermark one fetch late (see the
first scene). So it also cut off records that were committed, and fetched them again a moment
later. If the new leader died within that moment, and the replica was elected in its place, they
were gone: two deaths in a row, no disk lost, and an acknowledged record was missing.

KIP-101 gave every record the epoch of the leader that appended it. A new follower compares epochs
with its leader, and cuts only what the leader does not have. Watch broker 3 after the first death.
""",
    source="[KIP-101](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-101+-+Alter+Replication+Protocol+to+use+Leader+Epoch+rather+than+High+Watermark+for+Truncation), "
    "[KIP-279](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-279%3A+Fix+log+divergence+between+leader+and+follower+after+fast+leader+fail+over)",
    topics=[Topic("letters", [1, 2, 3])],
    steps=[
        Step("A producer writes one with acks=all.", _write_one),
        Step(
            "A producer writes two with acks=all. The followers copy it and ask for more, so the leader "
            "commits it. The answers that would tell them so do not arrive.",
            _write_two,
        ),
        Step(
            "Broker 1 is killed. Broker 2 leads, and broker 3 follows it. Its fetches get no answer yet.",
            _kill_the_first_leader,
        ),
        Step("Broker 2 is killed as well. Broker 3 was in sync, and leads.", _kill_the_second_leader),
    ],
    judge=fates,
    ends="one was acknowledged and is there; two was acknowledged and is there",
    bug=Bug(
        "high_watermark_cut",
        "A new follower cuts its log at its own high watermark, as before KIP-101. Broker 3 cuts off a record that is "
        "committed, and leads before it has fetched it again.",
        "one was acknowledged and is there; two was acknowledged and is lost",
    ),
)

# Two topics with the same replicas; the first letter of the topic is in the names of its records.
CAREFUL = "letters"
UNCLEAN = "notes"
BOTH = (CAREFUL, UNCLEAN)


def _write_to_both(value: str) -> Step:
    def act(stage: Stage) -> None:
        for topic in BOTH:
            stage.write(f"{value}-{topic[0]}", topic=topic)
            # The followers that run know the high watermark, too, so that the picture is the same in each run.
            if stage.partition(topic).leader_id is not None:
                stage.settle(topic)

    return Step(f"A producer writes a record to each topic, {value}-l and {value}-n, with acks=all.", act)


def _kill_follower(stage: Stage) -> None:
    stage.kill(2)
    for topic in BOTH:
        stage.until_led(1, [1], topic)


def _start_follower(stage: Stage) -> None:
    # Broker 2 is the controller now, and decides about both topics.
    stage.start(2)
    stage.until_led(None, [1], CAREFUL)
    stage.until_led(2, [2], UNCLEAN)


def _start_leader(stage: Stage) -> None:
    # Broker 1 is the only in-sync replica of letters, and leads it. Of notes it is a follower with
    # another history.
    stage.start(1)
    stage.until_led(1, [1, 2], CAREFUL)
    stage.until_led(2, [1, 2], UNCLEAN)

    # Both logs of each topic are the same again, whichever was right.
    for topic in BOTH:
        stage.settle(topic)


UNCLEAN_ELECTION = Scene(
    name="unclean-election",
    title="Unclean leader election: available, or complete",
    text="""\
Only an in-sync replica has everything that was acknowledged. If none of them runs, there are two
choices. Kafka's default is to wait until one comes back: until then nothing can be written or
read. With unclean.leader.election.enable=true a replica that was not in sync leads instead. The
topic works again at once, and what that replica does not have is lost, although it was
acknowledged.

Here two topics have the same history, and differ in this property alone: letters waits, and notes
does not. Watch what the old leader of notes does with its records when it comes back: the new
leader's log is right now, and they are cut off.
""",
    source="[unclean.leader.election.enable]"
    "(https://kafka.apache.org/39/documentation.html#topicconfigs_unclean.leader.election.enable), "
    "[KIP-106](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-106+-+Change+Default+unclean.leader.election.enabled+from+True+to+False)",
    brokers=2,
    topics=[
        Topic(CAREFUL, [1, 2], {"unclean.leader.election.enable": "false"}),
        Topic(UNCLEAN, [1, 2], {"unclean.leader.election.enable": "true"}),
    ],
    steps=[
        _write_to_both("one"),
        Step("Broker 2 is killed, and is not in sync any more.", _kill_follower),
        _write_to_both("two"),
        Step("Broker 1 is killed. No broker runs.", lambda stage: stage.kill(1)),
        Step("Broker 2 starts again. It has less than broker 1.", _start_follower),
        _write_to_both("three"),
        Step("Broker 1 starts again.", _start_leader),
    ],
    judge=fates,
    ends="one-l was acknowledged and is there; one-n was acknowledged and is there; "
    "two-l was acknowledged and is there; two-n was acknowledged and is lost; "
    "three-l was refused (NOT_LEADER_OR_FOLLOWER) and is not there; three-n was acknowledged and is there",
)
