"""Scenes about what clients do: retries, and rebalances of a group (shell)."""

from barnabas.testing.tour.members import Member
from barnabas.testing.tour.picture import GroupPicture
from barnabas.testing.tour.scene import Scene, Step
from barnabas.testing.tour.stage import Stage, Topic, fates

PLAIN = "plain"
IDEMPOTENT = "idempotent"


def _lose_an_answer(topic: str) -> Step:
    def act(stage: Stage) -> None:
        # The broker appends the record, and then the connection breaks before the answer has left.
        producer_id = stage.new_producer_id() if topic == IDEMPOTENT else -1
        lost = stage.cluster.faults.drop("Produce", "after", topic=topic, times=1)
        stage.write(f"{topic}-1", topic=topic, producer_id=producer_id)
        lost.wait()
        stage.settle(topic)

    who = "An idempotent producer" if topic == IDEMPOTENT else "A plain producer"
    return Step(f"{who} writes {topic}-1. The record is appended, and the answer is lost.", act)


def _retry(topic: str) -> Step:
    def act(stage: Stage) -> None:
        # With a producer id the batch has the numbers of the first attempt.
        stage.send_again(f"{topic}-1", topic)
        stage.settle(topic)

    return Step("It has no answer, so it sends the same batch again.", act)


IDEMPOTENCE = Scene(
    name="idempotence",
    title="A retry after a lost answer",
    text="""\
A producer that gets no answer does not know whether its record was written. If it does not send it
again the record may be missing. If it does, the record may be there twice.

An idempotent producer (enable.idempotence, the default since Kafka 3.0) has a producer id, and
gives each batch a sequence number within its partition. The leader remembers the last five batches
of each producer. It recognises a batch that it has already, and answers with the offset of the
first time. Watch the offsets in the answers.
""",
    source="[KIP-98](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging)",
    brokers=1,
    topics=[Topic(PLAIN, [1]), Topic(IDEMPOTENT, [1])],
    steps=[_lose_an_answer(PLAIN), _retry(PLAIN), _lose_an_answer(IDEMPOTENT), _retry(IDEMPOTENT)],
    judge=fates,
    ends="plain-1 was acknowledged and is there 2 times; idempotent-1 was acknowledged and is there",
)


# -- rebalances

PARTITIONS = [0, 1, 2, 3]
EAGER = "eager"
COOPERATIVE = "cooperative"


def _show(stage: Stage, group: str) -> None:
    """Draw who reads what, and remember the partitions that no one reads."""
    members = [each for (name, _), each in stage.members.items() if name == group]
    owners = {index: next((each.name for each in members if index in each.owned), None) for index in PARTITIONS}
    stage.show_group(GroupPicture(group, owners))
    stage.unread.setdefault(group, {}).update(dict.fromkeys(each for each, owner in owners.items() if owner is None))


def _rebalance(stage: Stage, group: str, shares: dict[str, list[int]]) -> None:
    """The members that have asked to join get the answers, and the first one of them divides the partitions."""
    members = {name: stage.members[group, name] for name in shares}
    for each in members.values():
        each.joined()

    # Member A was the first one of the group, so the broker has made it the leader.
    for name, each in members.items():
        each.send_sync({members[other]: share for other, share in shares.items()} if name == "A" else {})
    for each in members.values():
        each.owned = each.synced()


def _first_member(group: str) -> Step:
    def act(stage: Stage) -> None:
        member = Member("A", group, stage.topic, stage.cluster.brokers[1].port)
        stage.members[group, "A"] = member
        member.send_join()
        _rebalance(stage, group, {"A": PARTITIONS})

        # Until now there was no member, which is no fault of the protocol.
        stage.unread.pop(group, None)
        _show(stage, group)

    return Step(f"Group {group}: member A joins, and reads all partitions.", act)


def _second_member(group: str) -> Step:
    def act(stage: Stage) -> None:
        member = Member("B", group, stage.topic, stage.cluster.brokers[1].port)
        stage.members[group, "B"] = member
        member.send_join()
        first = stage.members[group, "A"]
        # The heartbeat may come before the broker has read the request of the second member.
        stage.until(first.must_rejoin, "the group does not rebalance")
        stage.note("A's heartbeat is answered: REBALANCE_IN_PROGRESS")
        _show(stage, group)

    return Step("Member B asks to join. The broker lets it wait until A has asked as well.", act)


def _give_all_up(stage: Stage) -> None:
    # In Kafka's consumer: onPartitionsRevoked with all partitions, before JoinGroup.
    first = stage.members[EAGER, "A"]
    first.owned = []
    first.send_join()
    _show(stage, EAGER)


def _divide_at_once(stage: Stage) -> None:
    # Nothing is owned, so everything can be dealt out.
    _rebalance(stage, EAGER, {"A": [0, 1], "B": [2, 3]})
    _show(stage, EAGER)


def _keep_all(stage: Stage) -> None:
    # Member A says in its subscription what it owns, and goes on reading that.
    stage.members[COOPERATIVE, "A"].send_join()
    _show(stage, COOPERATIVE)


def _divide_what_is_free(stage: Stage) -> None:
    # B gets nothing that A has not given up: A says what it owns when it joins.
    _rebalance(stage, COOPERATIVE, {"A": [0, 1], "B": []})
    _show(stage, COOPERATIVE)


def _divide_the_rest(stage: Stage) -> None:
    # A has given something up, so it joins again, and B hears of that in a heartbeat.
    stage.members[COOPERATIVE, "A"].send_join()
    second = stage.members[COOPERATIVE, "B"]
    stage.until(second.must_rejoin, "the group does not rebalance")
    second.send_join()
    _rebalance(stage, COOPERATIVE, {"A": [0, 1], "B": [2, 3]})
    _show(stage, COOPERATIVE)


def _who_had_to_wait(stage: Stage) -> str:
    return "; ".join(
        f"{group}: no one read {', '.join(map(str, sorted(unread)))} for a while"
        for group, unread in stage.unread.items()
    )


REBALANCE = Scene(
    name="rebalance",
    title="Eager and cooperative rebalance",
    text="""\
In a consumer group each partition is read by one member. When a member comes or goes all members
join again, and the partitions are divided again by one of them. No two members may read a partition
at the same time, so who gives one up must do so before another one begins. When?

With the eager protocol each member gives up everything before it joins again. Until the last one
has joined, and the shares are known, the whole group stands still.

With the cooperative protocol (KIP-429) a member goes on with what it has, and tells what that is
when it joins. The first rebalance takes from a member only what it has to lose. It gives that up,
joins again, and a second rebalance deals it out. There are two rebalances instead of one, and only
partitions that move stand still. The broker does the same in both: the difference is in the
clients. Watch partitions 0 and 1, which A has before and after.
""",
    source="[KIP-429](https://cwiki.apache.org/confluence/display/KAFKA/"
    "KIP-429%3A+Kafka+Consumer+Incremental+Rebalance+Protocol)",
    brokers=1,
    topics=[Topic("letters", [1], partitions=len(PARTITIONS))],
    steps=[
        _first_member(EAGER),
        _second_member(EAGER),
        Step("A gives up all partitions, and asks to join again.", _give_all_up),
        Step("Both have asked, so both are answered. A divides the partitions.", _divide_at_once),
        _first_member(COOPERATIVE),
        _second_member(COOPERATIVE),
        Step("A goes on reading, and asks to join again.", _keep_all),
        Step("Both are answered. A keeps its share and gives up the rest; B has nothing yet.", _divide_what_is_free),
        Step("Both join again, and B gets what A has given up.", _divide_the_rest),
    ],
    judge=_who_had_to_wait,
    ends="eager: no one read 0, 1, 2, 3 for a while; cooperative: no one read 2, 3 for a while",
)
