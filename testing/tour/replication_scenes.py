"""Scenes about acknowledgements: what the high watermark, acks and min.insync.replicas are for (shell)."""

from barnabas.testing.tour.scene import Bug, Scene, Step
from barnabas.testing.tour.stage import Stage, Topic, fates

REPLICATED = Topic("letters", [1, 2, 3])


def _send_one(stage: Stage) -> None:
    # The answer comes later, so the request is sent and left alone.
    question = stage.send("one")
    stage.until(lambda: stage.ends()[1] == 1, "the leader has not appended it")
    stage.look_for_answer(question)


def _pass(follower: int) -> Step:
    def act(stage: Stage) -> None:
        before = stage.high_watermarks()[1]
        stage.let_one_pass(follower)

        # The next fetch of the follower is at the leader now, so the answer to this one has arrived.
        passed = stage.passed
        after = stage.high_watermarks()[1]
        stage.note(f"fetches so far: {', '.join(f'{passed[each]} by broker {each}' for each in sorted(passed))}")
        # `judge` says how many fetches it took until the high watermark moved.
        if before != after:
            stage.moved_after = dict(passed)

        question = stage.questions[stage.topic, "one"]
        if not question.is_acknowledged:
            # The high watermark moves, and the leader answers, in one step of its loop.
            if after:
                stage.answer(question)
            else:
                stage.look_for_answer(question)

    return Step(f"Broker {follower} asks for records, and is answered.", act)


def _let_all_fetch(stage: Stage) -> None:
    stage.release()
    stage.settle()


def _when_it_moved(stage: Stage) -> str:
    passed = ", ".join(f"{count} by broker {each}" for each, count in sorted(stage.moved_after.items()))
    return f"the high watermark moved after these fetches: {passed}"


TWO_FETCHES = Scene(
    name="two-fetches",
    title="Two fetches until the high watermark moves",
    text="""\
A follower copies its leader's log by Fetch requests, as a consumer does. Each request says from
which offset it wants to read, and that is all the leader knows of a follower: who asks from offset
1 has everything below 1.

So a record takes two fetches of each follower. The first one brings it to the follower. Only the
second one, which asks from the offset behind it, tells the leader that it has arrived. The high
watermark is the smallest of these offsets over all in-sync replicas. Records below it are
committed: consumers may read them, and acks=all is answered.

Watch the leader's high watermark, and when the producer gets its answer. The followers know the
new high watermark later still, from the answer to a fetch: theirs is behind more often than not,
which matters in the scene about KIP-101.
""",
    source="[Kafka's documentation: replication](https://kafka.apache.org/39/documentation.html#replication)",
    topics=[REPLICATED],
    steps=[
        Step("The next fetch of each follower is held back at the leader.", lambda stage: stage.hold(2, 3)),
        Step("A producer writes one with acks=all. The leader appends it.", _send_one),
        _pass(2),
        _pass(3),
        _pass(2),
        _pass(3),
        Step("Nothing is held back any more. The followers learn the high watermark.", _let_all_fetch),
    ],
    judge=_when_it_moved,
    ends="the high watermark moved after these fetches: 2 by broker 2, 2 by broker 3",
    bug=Bug(
        "forgotten_member",
        "The leader does not wait for the slowest in-sync replica. The high watermark moves, and the producer is "
        "answered, although broker 3 has not said that it has the record.",
        "the high watermark moved after these fetches: 2 by broker 2, 1 by broker 3",
    ),
)


def _send_two(stage: Stage) -> None:
    question = stage.send("two")
    stage.until(lambda: stage.ends()[1] == 2, "the leader has not appended it")
    # With the bug it is answered as soon as it is appended. Without it no answer can come, since the
    # followers do not fetch.
    if stage.bug:
        stage.answer(question)
    else:
        stage.look_for_answer(question)


def _kill_the_leader(stage: Stage) -> None:
    # The fetches that are held back end with the leader. Those to the next leader are not held back.
    stage.kill(1)
    stage.release()
    stage.until_led(2, [2, 3])
    question = stage.questions[stage.topic, "two"]
    if not question.is_acknowledged:
        stage.answer(question)


def _send_two_again(stage: Stage) -> None:
    # A producer keeps a record until it is acknowledged, and no longer.
    stage.send_again("two")
    stage.settle()


def _start_the_old_leader(stage: Stage) -> None:
    # It is in sync again when it has cut off what it had alone, and copied the rest.
    stage.start(1)
    stage.until_led(2, [1, 2, 3])
    stage.settle()


ACKS = Scene(
    name="acks",
    title="acks=1 beside acks=all, when the leader is killed",
    text="""\
With acks=1 the leader answers when the record is in its own log. With acks=all it answers when the
record is below the high watermark, so all in-sync replicas have it.

As long as the leader lives there is no difference but some milliseconds. Here it dies before its
followers have copied anything. Watch the two producers: one believes that its record is written,
the other gets no answer, does not know, and writes it again. Then the old leader comes back with
records that the new leader never had. It cuts them off, because the leader's log is right by
definition.
""",
    source="[acks](https://kafka.apache.org/39/documentation.html#producerconfigs_acks), "
    "[KIP-101](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-101+-+Alter+Replication+Protocol+to+use+Leader+Epoch+rather+than+High+Watermark+for+Truncation)",
    topics=[REPLICATED],
    steps=[
        Step("The fetches of both followers are held back.", lambda stage: stage.hold(2, 3)),
        Step("A producer writes one with acks=1.", lambda stage: stage.write("one", acks=1)),
        Step("Another producer writes two with acks=all.", _send_two),
        Step("The leader is killed, and broker 2 is elected.", _kill_the_leader),
        Step("A record that was not acknowledged is written again.", _send_two_again),
        Step("Broker 1 starts again, as a follower.", _start_the_old_leader),
    ],
    judge=fates,
    ends="one was acknowledged and is lost; two was acknowledged and is there",
    bug=Bug(
        "early_ack",
        "acks=all is answered as acks=1 is. So the second producer believes what the first one does, and its record is "
        "lost as well.",
        "one was acknowledged and is lost; two was acknowledged and is lost",
    ),
)


def _write_one(stage: Stage) -> None:
    stage.write("one")
    stage.settle()


def _kill_follower(broker_id: int, in_sync: list[int]) -> Step:
    def act(stage: Stage) -> None:
        # The controller hears of it at once, as if the session of the broker were over.
        stage.kill(broker_id)
        stage.until_led(1, in_sync)

    return Step(f"Broker {broker_id} is killed. The controller takes it out of the in-sync replicas.", act)


def _lose_what_it_has_alone(stage: Stage) -> None:
    # The first record was copied before the followers died.
    alone = stage.ends()[1] - 1
    if alone:
        stage.cluster.lose(1, stage.topic, records=alone)
    else:
        stage.kill(1)
        stage.start(1)
    stage.until_led(1, [1])
    stage.note(f"records that are lost: {alone}")


def _start_follower(stage: Stage) -> None:
    stage.start(2)
    stage.until_led(1, [1, 2])
    stage.write("three")
    stage.settle()


MIN_IN_SYNC = Scene(
    name="min-insync-replicas",
    title="min.insync.replicas: how many are all",
    text="""\
acks=all waits for all replicas that are in sync, and not for all that there are. If two of three
brokers are down, the in-sync replicas are the leader alone. Then "all" is one, and acks=all
promises no more than acks=1.

min.insync.replicas sets a lower limit. With 2, a leader that is alone refuses acks=all with
NOT_ENOUGH_REPLICAS before it appends anything. The topic cannot be written to for a while: that is
the price, and what an acknowledgement says stays true. Watch what happens when the disk of the
last broker loses what no other broker has.
""",
    source="[min.insync.replicas](https://kafka.apache.org/39/documentation.html#topicconfigs_min.insync.replicas)",
    topics=[Topic("letters", [1, 2, 3], {"min.insync.replicas": "2"})],
    steps=[
        Step("A producer writes one with acks=all.", _write_one),
        _kill_follower(3, [1, 2]),
        _kill_follower(2, [1]),
        Step("A producer writes two with acks=all.", lambda stage: stage.write("two")),
        Step(
            "Broker 1 crashes, its disk loses what it has written since it is alone, and it starts again.",
            _lose_what_it_has_alone,
        ),
        Step("Broker 2 starts again and is in sync. A producer writes three with acks=all.", _start_follower),
    ],
    judge=fates,
    ends="one was acknowledged and is there; two was refused (NOT_ENOUGH_REPLICAS) and is not there; "
    "three was acknowledged and is there",
    bug=Bug(
        "lonely_ack",
        "The leader acknowledges although fewer replicas are in sync than min.insync.replicas. The only copy of an "
        "acknowledged record is lost with one disk.",
        "one was acknowledged and is there; two was acknowledged and is lost; three was acknowledged and is there",
    ),
)
