"""All that may be asked of the laboratory: the table from which the routes, the schema and docs/lab.md come (pure)."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.testing.lab import actions
from barnabas.testing.lab.actions import RECORDS_MAX, WAIT_SECONDS_MAX, Run
from barnabas.testing.lab.words import Word


class Action(NamedTuple):
    """One method and path. `words` are those of its body, or of its query if it is a GET; `path_words` of the path."""

    method: str
    path: str
    about: str
    run: Run
    words: Sequence[Word] = ()
    path_words: Sequence[Word] = ()
    status: int = 200
    checks_words: bool = True  # else the action does


SECONDS = Word("seconds", "number", f"how long at most; 5 without it, and no more than {WAIT_SECONDS_MAX:g}")
FAULT = Word("id", "string", "the name of a fault: f1")
BROKER = Word("broker", "integer", "the id of a broker")
GROUP = Word("group", "string", "a consumer group")
TOPIC = Word("topic", "string", "a topic")
PARTITION = Word("partition", "integer", "a partition of the topic")
TO = Word("to", "integer", "the id of a broker", is_required=True)


TIMES = Word("times", "integer", "how often; 1 without it")

ACTIONS: Sequence[Action] = (
    # Pretended faults, and what clients have asked meanwhile. The words of the first action depend
    # on the kind of fault.
    Action("POST", "/v1/faults", "sets a fault", actions.set_, (), (), 201, False),
    Action("GET", "/v1/faults", "all faults since the last reset", actions.faults),
    Action("GET", "/v1/faults/{id}", "one fault, with the requests that it has hit", actions.fault, (), [FAULT]),
    Action(
        "GET",
        "/v1/faults/{id}/wait",
        "answers when it has fired so often; 409 if it has not in time",
        actions.wait_for_fault,
        [TIMES, SECONDS],
        [FAULT],
    ),
    Action("DELETE", "/v1/faults/{id}", "removes it; requests that it holds back go on", actions.remove, (), [FAULT]),
    Action(
        "POST",
        "/v1/reset",
        "removes all faults, forgets the requests, and has all brokers run, healed and in sync;"
        " `missed` are the faults that never fired",
        actions.reset,
    ),
    Action(
        "GET",
        "/v1/requests",
        "the request log; with `wait` when there are `count` of them, with their responses, or the time is over",
        actions.requests,
        [
            Word("api", "string", "of this API only"),
            Word("client_id", "string", "of this client only"),
            Word("after", "integer", "those after this number: the `last` of an earlier answer"),
            Word("count", "integer", "how many to wait for; 1 without it"),
            Word("wait", "number", f"how many seconds at most, up to {WAIT_SECONDS_MAX:g}"),
        ],
    ),
    # The time of all brokers; the laboratory itself has that of the operating system.
    Action("GET", "/v1/clock", "the time of the brokers", actions.clock),
    Action(
        "POST",
        "/v1/clock",
        "moves the time on, or holds it",
        actions.change_clock,
        [
            *(Word(unit, "number", f"how many {unit} forward") for unit in ("seconds", "minutes", "hours", "days")),
            Word("stopped", "boolean", "whether the time stands still from now on"),
        ],
    ),
    # Real faults: what is done to a broker, to its disk and to its log.
    Action("GET", "/v1/brokers", "the brokers", actions.brokers),
    Action(
        "POST",
        "/v1/brokers/{broker}/kill",
        "ends a broker like `kill -9`",
        actions.kill,
        [Word("failover", "string", "when the others notice it", choices=("now", "session"))],
        [BROKER],
    ),
    *(
        Action("POST", f"/v1/brokers/{{broker}}/{verb}", about, run, (), [BROKER])
        for verb, about, run in (
            ("start", "starts it again on its ports and data", actions.start),
            ("stop", "stops it cleanly", actions.stop),
            ("restart", "stops and starts it", actions.restart),
            ("freeze", "it stands still, as a process that is stopped", actions.freeze),
            ("thaw", "undoes `freeze`", actions.thaw),
        )
    ),
    Action(
        "POST",
        "/v1/brokers/{broker}/lose",
        "it dies and restarts, and its log has lost its end",
        actions.lose,
        [
            Word("topic", "string", "the topic", is_required=True),
            Word("partition", "integer", "the partition; 0 without it"),
            Word("records", "integer", "so many records, or a few more", is_required=True),
        ],
        [BROKER],
    ),
    Action(
        "POST",
        "/v1/brokers/{broker}/disk/fill",
        "only so much more can be written to its disk",
        actions.fill,
        [Word("left_bytes", "integer", "how many bytes; 0 without it")],
        [BROKER],
    ),
    Action(
        "POST",
        "/v1/brokers/{broker}/disk/slow",
        "each sync takes so much longer",
        actions.slow,
        [Word("seconds", "number", "how long", is_required=True)],
        [BROKER],
    ),
    Action("POST", "/v1/brokers/{broker}/disk/fail", "every change of its disk fails", actions.fail, (), [BROKER]),
    Action("POST", "/v1/brokers/{broker}/disk/heal", "undoes the others", actions.heal_disk, (), [BROKER]),
    Action(
        "GET",
        "/v1/brokers/{broker}/producers",
        "the producer ids that it remembers",
        actions.producers,
        [Word("topic", "string", "of this topic only")],
        [BROKER],
    ),
    Action(
        "POST",
        "/v1/brokers/{broker}/producers/{producer_id}/forget",
        "it forgets this producer",
        actions.forget,
        (),
        [BROKER, Word("producer_id", "integer", "a producer id")],
    ),
    Action(
        "POST",
        "/v1/transactions/{transactional_id}/fence",
        "a newer producer has this transactional id",
        actions.fence,
        (),
        [Word("transactional_id", "string", "a transactional id")],
    ),
    Action(
        "POST",
        "/v1/cut",
        'nothing that one sends reaches the other; each is the id of a broker, "clients" or "store"',
        actions.cut,
        [
            Word("sender", "integer", "one of them", is_required=True, other_type="string"),
            Word("receiver", "integer", "the other one", is_required=True, other_type="string"),
            Word("both", "boolean", "false: only in this direction"),
        ],
    ),
    # Broken links, and the end of everything that is broken.
    Action("POST", "/v1/heal", "undoes every cut", actions.heal),
    Action("POST", "/v1/recover", "has all brokers run, healed and in sync", actions.recover),
    # The coordinator of a group is looked for, so no request needs its id.
    Action("GET", "/v1/groups/{group}", "a group, its members and its coordinator", actions.group, (), [GROUP]),
    Action("POST", "/v1/groups/{group}/rebalance", "all members join again", actions.rebalance, (), [GROUP]),
    Action(
        "POST",
        "/v1/groups/{group}/evict",
        "removes a member; it joins again as a new one",
        actions.evict,
        [Word("member", "string", "its member id or its instance id", is_required=True)],
        [GROUP],
    ),
    Action(
        "GET",
        "/v1/groups/{group}/wait",
        "answers when it is so; 409 if it is not in time",
        actions.wait_for_group,
        [
            Word("state", "string", "Empty, PreparingRebalance, CompletingRebalance, Stable or Dead"),
            Word("members", "integer", "how many"),
            SECONDS,
        ],
        [GROUP],
    ),
    Action(
        "POST",
        "/v1/groups/{group}/coordinator",
        "another broker coordinates it",
        actions.move_coordinator,
        [TO],
        [GROUP],
    ),
    Action(
        "POST",
        "/v1/topics",
        "creates a topic; all replicas are in sync then",
        actions.create_topic,
        [
            Word("name", "string", "the name", is_required=True),
            Word("partitions", "integer", "how many; 1 without it"),
            Word("replicas", "integer", "how many; without it as many as there are brokers, but at most three"),
            Word("config", "object", "properties of topics, each value a text"),
        ],
        (),
        201,
    ),
    Action(
        "GET",
        "/v1/topics/{topic}/records",
        f"all records, up to {RECORDS_MAX:,} of them, with what became of transactions",
        actions.records,
        [Word("partition", "integer", "of this partition only")],
        [TOPIC],
    ),
    Action(
        "GET",
        "/v1/partitions/{topic}/{partition}",
        "the leader and the in-sync replicas",
        actions.partition,
        (),
        [TOPIC, PARTITION],
    ),
    Action(
        "GET",
        # A test waits for what it wants to see, and never for a time.
        "/v1/partitions/{topic}/{partition}/wait",
        "answers when it is so; 409 if it is not in time",
        actions.wait_for_partition,
        [Word("leader", "integer", "who leads"), Word("isr", "array", "the in-sync replicas: 1,3"), SECONDS],
        [TOPIC, PARTITION],
    ),
    Action(
        "POST",
        "/v1/partitions/{topic}/{partition}/leader",
        "another in-sync replica leads",
        actions.move_leader,
        [TO],
        [TOPIC, PARTITION],
    ),
)
