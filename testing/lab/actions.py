"""What the laboratory does for a request (edge): functions of a `Lab` and of the words that the request gives.

An action returns what is answered as JSON. It runs in a thread of its own, where it may wait, and calls what a test
calls in Python. `table.py` has them all.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.testing.cluster.member import ClusterBroker
from barnabas.testing.cluster.network import Party
from barnabas.testing.errors import FaultError, LocalBrokerError, NotThere
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.faults import Fault, Faults
from barnabas.testing.faults.matching import api_key_of
from barnabas.testing.faults.requests import RequestLog
from barnabas.testing.lab.fault_words import set_fault
from barnabas.testing.lab.values import Json, of_entry, of_fault, of_record
from barnabas.testing.lab.words import Given
from barnabas.testing.looking.groups import LiveGroup
from barnabas.wire.apis import APIS

if TYPE_CHECKING:
    from barnabas.broker.call import Broker

WAIT_SECONDS_MAX = 60.0
SLICE_SECONDS = 0.2  # of a wait for requests, between two looks whether the laboratory closes
REQUESTS_MAX = 1000  # in one answer
RECORDS_MAX = 100_000


class Intercepted(Protocol):
    """What has faults and a request log: `LocalCluster`, `LocalBroker`, and a proxy before another Kafka."""

    @property
    def faults(self) -> Faults: ...
    @property
    def requests(self) -> RequestLog: ...


class Lab:
    """What the actions act on, and the names of the faults that were set."""

    def __init__(self, kafka: Intercepted) -> None:
        self.kafka = kafka
        self.is_closing = False
        # A cluster is started and stopped by one thread at a time, and each request here has a thread of its own.
        self.lives = threading.Lock()
        self._lock = threading.Lock()
        self._ids: dict[Fault, str] = {}
        self._count = 0

    @property
    def cluster(self) -> LocalCluster:
        """The brokers. LocalBrokerError if they are not in this process."""
        # A proxy reaches the brokers over Kafka's protocol alone, and a single broker has another interface.
        if not isinstance(self.kafka, LocalCluster):
            raise LocalBrokerError("this is no LocalCluster: there are faults and the request log only")
        return self.kafka

    def broker(self, broker_id: int) -> ClusterBroker:
        """One of the brokers. NotThere if there is none with this id."""
        found = self.cluster.brokers.get(broker_id)
        if found is None:
            raise NotThere(f"there is no broker {broker_id!r}, only {sorted(self.cluster.brokers)}")
        return found

    def group(self, group_id: str) -> LiveGroup:
        """A group at its coordinator."""
        return self.broker(self.cluster.coordinator(group_id)).groups[group_id]

    def id_of(self, fault: Fault) -> str:
        """The name of a fault: f1, f2 …"""
        # Two requests at the same moment must not give one fault two names.
        with self._lock:
            if fault not in self._ids:
                self._count += 1
                self._ids[fault] = f"f{self._count}"
            return self._ids[fault]

    def fault(self, fault_id: str) -> Fault:
        """The fault of this name. NotThere if there is none."""
        with self._lock:
            found = {known: fault for fault, known in self._ids.items()}
        if fault_id not in found:
            raise NotThere(f"there is no fault {fault_id!r}, only {list(found)}")
        return found[fault_id]

    def forget_all(self) -> None:
        """No fault has a name."""
        with self._lock:
            self._ids.clear()


Run = Callable[[Lab, Given], Json]


# -- faults and requests


def set_(lab: Lab, given: Given) -> Json:
    # From here on the fault may fire, even before the test gets its name.
    fault = set_fault(lab.kafka.faults, given)
    return of_fault(lab.id_of(fault), fault)


def faults(lab: Lab, given: Given) -> Json:
    # Faults that were set in Python get their names here.
    return {"faults": [of_fault(lab.id_of(fault), fault) for fault in lab.kafka.faults]}


def fault(lab: Lab, given: Given) -> Json:
    return _with_seen(lab, lab.fault(_text(given, "id")))


def _with_seen(lab: Lab, fault: Fault) -> Json:
    return {**of_fault(lab.id_of(fault), fault), "seen": [of_entry(entry) for entry in list(fault.seen)]}


def wait_for_fault(lab: Lab, given: Given) -> Json:
    fault = lab.fault(_text(given, "id"))
    fault.wait(_int(given, "times", 1), _seconds(given))
    return _with_seen(lab, fault)


def remove(lab: Lab, given: Given) -> Json:
    fault = lab.fault(_text(given, "id"))
    fault.remove()
    # Its name stays until the reset, so how often it fired can be asked after its end.
    return of_fault(lab.id_of(fault), fault)


def reset(lab: Lab, given: Given) -> Json:
    # As with `check` in Python, a fault that never fired is reported: it has tested nothing. The
    # caller decides whether that is an error.
    missed = [str(fault) for fault in lab.kafka.faults if not fault.fired and not fault.may_miss]
    # The faults are removed first, so that requests which they hold back go on.
    lab.kafka.faults.clear()
    lab.kafka.requests.clear()
    lab.forget_all()
    if isinstance(lab.kafka, LocalCluster):
        recover(lab, given)
    return {"missed": missed}


def requests(lab: Lab, given: Given) -> Json:
    # The first use switches the log on.
    log = lab.kafka.requests
    api = given.get("api")
    name = None if api is None else APIS[api_key_of(_text(given, "api"))].name
    client_id = given.get("client_id")
    after = _int(given, "after", 0)
    count = _int(given, "count", 1)
    found: list[Entry] = []

    def are_there() -> bool:
        found[:] = [
            entry for entry in log.entries(after) if name in (None, entry.api) and client_id in (None, entry.client_id)
        ]
        return sum(entry.outcome != "waits" for entry in found) >= count or lab.is_closing

    # The wait is cut into slices, so that a laboratory that closes does not wait for its end, up to
    # a minute.
    left = _seconds(given, 0.0, "wait")
    while not log.until(are_there, min(left, SLICE_SECONDS)) and left > 0:
        left -= SLICE_SECONDS
    # Requests that still wait for their response are shown, too: `outcome` says so.
    shown = found[:REQUESTS_MAX]
    return {"requests": [of_entry(entry) for entry in shown], "last": shown[-1].number if shown else after}


# -- brokers


def brokers(lab: Lab, given: Given) -> Json:
    rows = [
        {
            "id": broker.id,
            "bootstrap_servers": broker.bootstrap_servers,
            "is_running": broker.is_running,
            "is_frozen": broker.is_frozen,
            "page_url": None if broker.page is None else broker.page_url,
            "disk": broker.disk.harms() if lab.cluster.is_in_memory else None,
        }
        for broker in lab.cluster.brokers.values()
    ]
    return {"bootstrap_servers": lab.cluster.bootstrap_servers, "brokers": rows, "cuts": lab.cluster.cuts}


def at_broker(act: Callable[[LocalCluster, int], object]) -> Run:
    def run(lab: Lab, given: Given) -> Json:
        broker_id = _int(given, "broker")
        with lab.lives:
            act(lab.cluster, broker_id)
        # The answer has the new state of the broker, so that a test need not ask for it.
        broker = lab.broker(broker_id)
        return {"id": broker_id, "is_running": broker.is_running, "is_frozen": broker.is_frozen}

    return run


def kill(lab: Lab, given: Given) -> Json:
    failover = given.get("failover", "now")
    return at_broker(lambda cluster, each: cluster.kill(each, "now" if failover == "now" else "session"))(lab, given)


start = at_broker(lambda cluster, each: cluster.start(each))
stop = at_broker(lambda cluster, each: cluster.stop(each))
restart = at_broker(lambda cluster, each: cluster.restart(each))
freeze = at_broker(lambda cluster, each: cluster.freeze(each))
thaw = at_broker(lambda cluster, each: cluster.thaw(each))


def lose(lab: Lab, given: Given) -> Json:
    topic, partition = _text(given, "topic"), _int(given, "partition", 0)
    with lab.lives:
        lost = lab.cluster.lose(_int(given, "broker"), topic, partition, records=_int(given, "records"))
    return {"lost": lost}


def at_disk(harm: str, word: str = "") -> Run:
    def run(lab: Lab, given: Given) -> Json:
        broker_id = _int(given, "broker")
        # The names in the path are those of the methods of `LiveDisk`.
        act = getattr(lab.broker(broker_id).disk, harm)
        act(*([given[word]] if word in given else []))
        return {"id": broker_id}

    return run


fill = at_disk("fill", "left_bytes")
slow = at_disk("slow", "seconds")
fail = at_disk("fail")
heal_disk = at_disk("heal")


def cut(lab: Lab, given: Given) -> Json:
    sender, receiver = cast(Party, given["sender"]), cast(Party, given["receiver"])
    lab.cluster.cut(sender, receiver, both=bool(given.get("both", True)))
    return {}


def heal(lab: Lab, given: Given) -> Json:
    lab.cluster.heal()
    return {}


def recover(lab: Lab, given: Given) -> Json:
    with lab.lives:
        lab.cluster.recover()
    return {}


def producers(lab: Lab, given: Given) -> Json:
    # Without a topic these are the producers of all partitions that have a replica here.
    topic = given.get("topic")
    return {"ids": lab.broker(_int(given, "broker")).producers.ids(None if topic is None else str(topic))}


def forget(lab: Lab, given: Given) -> Json:
    lab.broker(_int(given, "broker")).producers.forget(_int(given, "producer_id"))
    return {}


def fence(lab: Lab, given: Given) -> Json:
    name = _text(given, "transactional_id")
    lab.broker(lab.cluster.coordinator(transactional_id=name)).producers.fence(name)
    return {}


# -- time


def clock(lab: Lab, given: Given) -> Json:
    time = lab.cluster.clock
    return {"now_ms": time.now_ms(), "is_stopped": time.is_stopped}


def change_clock(lab: Lab, given: Given) -> Json:
    time = lab.cluster.clock
    if not given:
        raise FaultError("nothing is to be done: give seconds, minutes, hours, days or stopped")
    jump = {unit: cast(float, given[unit]) for unit in ("seconds", "minutes", "hours", "days") if unit in given}
    # The jump comes before the stop: a test may jump to a time and then hold the clock there.
    if jump:
        time.advance(**jump)
    if "stopped" in given:
        (time.stop if given["stopped"] else time.resume)()
    return clock(lab, given)


# -- groups


def group(lab: Lab, given: Given) -> Json:
    name = _text(given, "group")
    # The coordinator is asked for each time, because it may have moved since the last request.
    coordinator = lab.cluster.coordinator(name)
    group = lab.broker(coordinator).groups[name]
    members = [member._asdict() for member in group.members]
    return {"group": name, "state": group.state, "members": members, "coordinator": coordinator}


def rebalance(lab: Lab, given: Given) -> Json:
    name = _text(given, "group")
    lab.group(name).rebalance()
    return group(lab, given)


def evict(lab: Lab, given: Given) -> Json:
    name = _text(given, "group")
    lab.group(name).evict(_text(given, "member"))
    return group(lab, given)


def wait_for_group(lab: Lab, given: Given) -> Json:
    name = _text(given, "group")
    # What is not given may be anything.
    state = _text(given, "state") if "state" in given else None
    members = _int(given, "members") if "members" in given else None
    lab.group(name).wait(state=state, members=members, seconds=_seconds(given))
    return group(lab, given)


def move_coordinator(lab: Lab, given: Given) -> Json:
    lab.cluster.move_coordinator(_text(given, "group"), to=_int(given, "to"))
    return group(lab, given)


# -- topics


def create_topic(lab: Lab, given: Given) -> Json:
    # The default of the brokers holds if no number of replicas is given.
    replicas = _int(given, "replicas") if "replicas" in given else None
    name, partitions = _text(given, "name"), _int(given, "partitions", 1)
    config = cast("dict[str, str]", given.get("config", {}))
    lab.cluster.create_topic(name, partitions, replicas, config)
    return {"name": name, "partitions": partitions}


def records(lab: Lab, given: Given) -> Json:
    topic = _text(given, "topic")
    # Each record becomes an object and a line of JSON in the process of the brokers, so their
    # number is limited.
    count = lab.cluster.look(lambda brokers: sum(_records_led(each, topic) for each in brokers.values()))
    if count > RECORDS_MAX:
        raise LocalBrokerError(f"topic {topic!r} has {count} records, and {RECORDS_MAX} are shown at most")
    found = lab.cluster.records(topic)
    # The records of all partitions are read even if one is shown: the topics of a test are small.
    wanted = given.get("partition")
    return {"records": [of_record(each) for each in found if wanted in (None, each.partition)]}


def _records_led(broker: "Broker", topic: str) -> int:
    led = (each for each in broker.replicas if each.is_leader and each.topic_partition.topic == topic)
    return sum(each.high_watermark - each.log.log_start_offset for each in led if each.log is not None)


def partition(lab: Lab, given: Given) -> Json:
    topic, partition = _text(given, "topic"), _int(given, "partition")
    leader = lab.cluster.leader(topic, partition)
    return {
        "topic": topic,
        "partition": partition,
        "leader": leader,
        "isr": sorted(lab.cluster.isr(topic, partition)),
    }


def wait_for_partition(lab: Lab, given: Given) -> Json:
    key = (_text(given, "topic"), _int(given, "partition"))
    leader = {key: _int(given, "leader")} if "leader" in given else {}
    # In a query the ids are one text.
    try:
        in_sync = {key: {int(each) for each in cast("list[str]", given["isr"])}} if "isr" in given else {}
    except ValueError:
        raise FaultError(f"isr: ids of brokers, such as 1,3, not {given['isr']!r}") from None
    lab.cluster.wait_for(leader=leader, isr=in_sync, seconds=_seconds(given))
    return partition(lab, given)


def move_leader(lab: Lab, given: Given) -> Json:
    lab.cluster.move_leader(_text(given, "topic"), _int(given, "partition"), to=_int(given, "to"))
    return partition(lab, given)


# -- words


def _text(given: Given, name: str) -> str:
    return str(given[name])


def _int(given: Given, name: str, default: int = 0) -> int:
    value = given.get(name, default)
    # `words.py` has checked the type.
    assert isinstance(value, int)
    return value


def _seconds(given: Given, default: float = 5.0, name: str = "seconds") -> float:
    value = given.get(name, default)
    assert isinstance(value, int | float)
    # The limit is there because a wait holds a thread and a connection.
    if not 0 <= value <= WAIT_SECONDS_MAX:
        raise FaultError(f"{name}: a number of seconds from 0 to {WAIT_SECONDS_MAX:g}, not {value!r}")
    return value
