"""The load on a cluster: producers and group members as processes where the clients are, each with its own ledger.

`VerifiableLoad` is a second kind: Kafka's VerifiableProducer and VerifiableConsumer, whose JSON is carried over into
the same ledger. `TransactionalLoad` is the third: members of a group that read, transform and write exactly once.
"""

import abc
import contextlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from compat_tests.clients.access import write_private
from compat_tests.cluster.ledger import Event, Ledger, read_ledger, read_stamp
from compat_tests.cluster.live import LiveCluster, NotWhole, await_none
from compat_tests.cluster.nodes import write_properties
from compat_tests.kafka import java_command

TOOLS = "org.apache.kafka.tools"
END_SECONDS = 120.0
MEMBERS = 2
GROUP = "readers"
READERS = ("read_committed", "read_uncommitted")  # their names are their isolation levels
OUTPUTS = {"debits": 2, "credits": 2, "letters": 2}  # what a TransactionalLoad writes to: partitions by topic
MARKERS_SECONDS = 30.0


class Load(abc.ABC):
    """What writes and reads while the cluster is harmed."""

    members = MEMBERS  # of GROUP, which reads the first topic
    transactional_ids: Sequence[str] = ()

    def __init__(self, cluster: LiveCluster, topics: Mapping[str, int], directory: pathlib.Path | None = None) -> None:
        self.topics = dict(topics)  # partitions by topic
        self._cluster = cluster
        self._directory = directory or cluster.directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._settled = threading.Event()

    @abc.abstractmethod
    def start(self) -> None: ...

    def settle(self) -> None:
        """The faults are over: those that the load itself makes as well."""
        self._settled.set()

    def late_ids(self, since: float) -> list[str]:
        """The transactional ids that have not begun and committed a transaction since then."""
        return []

    @abc.abstractmethod
    def stop_producing(self) -> None:
        """Send no more, and wait until every record's fate is known."""

    def what_is_unread(self, ends: Mapping[int, int]) -> list[str]:
        """The partitions that no member has read to these ends."""
        furthest: dict[int, int] = {}
        for event in read_ledger(self._directory.glob("ledger-[cw]*.jsonl"), ["read"]):
            furthest[event["partition"]] = max(furthest.get(event["partition"], 0), event["offset"] + 1)
        return [
            f"partition {partition} was read to {furthest.get(partition, 0)} of {end}"
            for partition, end in ends.items()
            if furthest.get(partition, 0) < end
        ]

    @abc.abstractmethod
    def stop(self) -> None:
        """The group members end in order."""

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


class ConfluentLoad(Load):
    """Idempotent producers and a group of members, by confluent-kafka."""

    def __init__(
        self,
        cluster: LiveCluster,
        topic: str,
        partitions: int,
        *,
        producers: int = 2,
        rate: int = 200,
        size: int = 200,
        directory: pathlib.Path | None = None,
    ) -> None:
        super().__init__(cluster, {topic: partitions}, directory)
        self._producers = [f"p{number}" for number in range(producers)]
        self._members = [f"c{number}" for number in range(MEMBERS)]
        self._common = {"topic": topic, "partitions": partitions, "rate": rate, "size": size}

    def start(self) -> None:
        self.start_producers()
        for name in self._members:
            self._spawn("consume", name)

    def start_producers(self) -> None:
        for name in self._producers:
            self._spawn("produce", name)

    def stop_producing(self) -> None:
        self._end(self._producers)

    def stop(self) -> None:
        self._end(self._members)

    def _spawn(self, work: str, name: str) -> None:
        options: dict[str, Any] = {
            **self._common,
            "name": name,
            "client": self._cluster.client_settings,
            "ledger": str(self._directory / f"ledger-{name}.jsonl"),
            "group": GROUP,
            "commit_every": 1.0,
        }
        self._processes[name] = _spawned_program(self._cluster, "worker", work, options)

    def _end(self, names: list[str]) -> None:
        _end_all({name: self._processes[name] for name in names})


class VerifiableLoad(Load):
    """VerifiableProducer with idempotence and retries, and VerifiableConsumer, both of Kafka 3.9."""

    def __init__(self, cluster: LiveCluster, topic: str, partitions: int, *, rate: int = 200) -> None:
        super().__init__(cluster, {topic: partitions})
        self._topic = topic
        self._rate = rate
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        directory, access = self._cluster.directory, self._cluster.java_settings
        server = ("--bootstrap-server", access["bootstrap.servers"])
        producing = {
            "retries": "2147483647",
            "enable.idempotence": "true",
            "delivery.timeout.ms": "300000",
            "reconnect.backoff.max.ms": "500",
            # The partitioner stays with a partition, drawn by chance, until it has sent so much. With the usual 16 kB,
            # 8 s at this rate, now and then a partition gets nothing for as long as a recovery may take.
            "batch.size": "1024",
        }
        settings = write_properties(directory / "verifiable-producer.properties", {**producing, **access})
        reading = write_properties(directory / "verifiable-consumer.properties", access)
        produce = ("--topic", self._topic, "--throughput", str(self._rate), "--value-prefix", "7", "--acks", "-1")
        self._spawn("v0", "VerifiableProducer", *server, *produce, "--producer.config", str(settings))
        for name in ("w0", "w1"):
            consume = (
                "--topic",
                self._topic,
                "--group-id",
                GROUP,
                "--reset-policy",
                "earliest",
                "--verbose",
                "--consumer.config",
            )
            self._spawn(name, "VerifiableConsumer", *server, *consume, str(reading), "--session-timeout", "10000")

    def stop_producing(self) -> None:
        _end_all({"v0": self._processes["v0"]}, may_fail=True)  # a Java machine ends with 143 at SIGTERM

    def stop(self) -> None:
        _end_all({name: self._processes[name] for name in ("w0", "w1")}, may_fail=True)
        for reader in self._readers:
            reader.join()

    def _spawn(self, name: str, main_class: str, *arguments: str) -> None:
        words = java_command(f"{TOOLS}.{main_class}", *arguments)
        self._processes[name] = process = _spawned(self._cluster, name, words, stdout=subprocess.PIPE)
        ledger = Ledger(self._cluster.directory / f"ledger-{name}.jsonl")
        reader = threading.Thread(target=self._carry_over, args=(name, process, ledger), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _carry_over(self, name: str, process: subprocess.Popen[bytes], ledger: Ledger) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                carry_over(name, json.loads(line), ledger)
        ledger.close()


class TransactionalLoad(Load):
    """Members of a group that read committed records and write one to each output topic, offsets included, in
    transactions. A plain and a transactional producer write the input. Two readers are there all the time.

    Transactional clients are killed at times drawn by the seed, and started again.
    """

    def __init__(self, cluster: LiveCluster, topic: str, partitions: int, seed: int, *, workers: int = 3) -> None:
        super().__init__(cluster, {topic: partitions, **OUTPUTS})
        self.members = workers
        self._workers = [f"e{number}" for number in range(workers)]
        self._feeder = "t0"
        self.transactional_ids = (*self._workers, self._feeder)
        self._source = topic
        self._rng = random.Random(seed)
        self._incarnations = dict.fromkeys(self.transactional_ids, 0)
        self._killer = threading.Thread(target=self._kill_at_times, daemon=True)

    def start(self) -> None:
        plain = {"topic": self._source, "partitions": self.topics[self._source], "rate": 40}
        self._spawn("p0", "worker", "produce", **plain)
        for isolation in READERS:
            self._spawn(isolation, "etl", "read", isolation=isolation)
        for name in self.transactional_ids:
            self._start_transactional(name)
        self._killer.start()

    def settle(self) -> None:
        super().settle()
        if self._killer.is_alive():
            self._killer.join()

    def stop_producing(self) -> None:
        for name in ("p0", self._feeder):  # the feeder's last records are behind those of the other
            _end_all({name: self._processes[name]})

    def what_is_unread(self, ends: Mapping[int, int]) -> list[str]:
        """By the group's offsets. The last records are those that the feeder commits at its end; markers follow."""
        last = dict.fromkeys(ends, 0)
        events = self._events(self._feeder)
        committed_ones = {event["transaction"] for event in events if event.get("outcome") == "committed"}
        for event in events:
            if event["event"] == "acked" and event["offset"] is not None and event["producer"] in committed_ones:
                last[event["partition"]] = max(last[event["partition"]], event["offset"] + 1)
        committed = self._cluster.view.committed(GROUP, self._source, ends)
        return [
            f"{self._source}-{partition}: the group is at {committed[partition]} of {end}"
            for partition, end in last.items()
            if committed[partition] < end
        ]

    def late_ids(self, since: float) -> list[str]:
        found = []
        for name in self.transactional_ids:
            begun: set[str] = set()
            is_late = True
            for event in self._events(name, "begun", "ended"):
                if event["event"] == "begun" and event["time"] > since:
                    begun.add(event["transaction"])
                elif event["transaction"] in begun and event.get("outcome") == "committed":
                    is_late = False
            if is_late:
                found.append(f"{name} has committed no transaction that it began since the last fault")
        return found

    def stop(self) -> None:
        """Readers last: when they end, every transaction has its markers, if it gets them at all."""
        _end_all({name: self._processes[name] for name in self._workers})
        with contextlib.suppress(NotWhole):  # found by the run
            await_none(lambda: self._cluster.view.open_partitions(self.topics), MARKERS_SECONDS)
        for isolation in READERS:
            self._end_reader(isolation)

    def _end_reader(self, isolation: str) -> None:
        """Replace a reader that does not end: librdkafka can hang when a broker leaves the metadata.

        What it got until then is checked as well. If the cluster is the cause, the other one does not end either.
        """
        try:
            _end_all({isolation: self._processes[isolation]})
            return
        except subprocess.TimeoutExpired:
            self._processes[isolation].kill()
        with contextlib.closing(Ledger(self._ledger_of("hung", isolation))) as ledger:
            ledger.write("hung", member=isolation)
        another = f"{isolation}-again"
        self._spawn(another, "etl", "read", isolation=isolation)
        await_none(lambda: [] if self._ledger_of(another).exists() else [f"{another} has not begun"], END_SECONDS)
        _end_all({another: self._processes[another]})

    def kill(self) -> None:
        self.settle()
        super().kill()

    def _events(self, name: str, *kinds: str) -> list[Event]:
        """What the ledgers of all its processes say; `kinds` saves the reading of others."""
        paths = sorted(self._directory.glob(f"ledger-{name}-*.jsonl"))
        return read_ledger(paths, kinds)

    def _kill_at_times(self) -> None:
        ledger = Ledger(self._directory / "ledger-load.jsonl")
        while not self._settled.wait(self._rng.uniform(6.0, 16.0)):
            name = self._rng.choice(self.transactional_ids)
            if self._processes[name].poll() is not None:
                break  # it has ended by itself, which ends the run
            ledger.write("fault", name="kill client", victims=[name])
            self._processes[name].kill()
            self._processes[name].wait()
            self._settled.wait(self._rng.uniform(0.0, 3.0))
            self._start_transactional(name)
            ledger.write("healed", name="kill client", victims=[name])
        ledger.close()

    def _ledger_of(self, name: str, incarnation: object = 1) -> pathlib.Path:
        """Each incarnation has its own, for a killed process leaves half a line behind."""
        return self._directory / f"ledger-{name}-{incarnation}.jsonl"

    def _start_transactional(self, name: str) -> None:
        self._incarnations[name] += 1
        more = {"incarnation": self._incarnations[name], "seed": self._rng.random(), "rate": 40}
        self._spawn(name, "etl", "feed" if name == self._feeder else "transform", **more)

    def _spawn(self, name: str, module: str, work: str, **more: object) -> None:
        options = {
            "name": name,
            "client": self._cluster.client_settings,
            "ledger": str(self._ledger_of(name, more.get("incarnation", 1))),
            "group": GROUP,
            "source": self._source,
            "topics": self.topics,
            "size": 200,
            **more,
        }
        self._processes[name] = _spawned_program(self._cluster, module, work, options)


def carry_over(name: str, event: dict[str, Any], ledger: Ledger) -> None:
    """One line of a verifiable client as events of ours."""
    place = {key: event[key] for key in ("topic", "partition", "offset") if key in event}
    kind, who = event.get("name"), {"member": name, "group": GROUP}
    if kind == "producer_send_success":
        ledger.write("acked", **place, **read_stamp(event["value"].encode())._asdict())
    elif kind == "producer_send_error":
        stamp = read_stamp(event["value"].encode())
        ledger.write("failed", topic=event["topic"], reason=event.get("message"), **stamp._asdict())
    elif kind == "record_data":
        ledger.write("read", **who, **place, **read_stamp(event["value"].encode())._asdict())
    elif kind == "offsets_committed" and event.get("success"):
        for entry in event["offsets"]:
            where = {"topic": entry["topic"], "partition": entry["partition"], "offset": entry["offset"]}
            ledger.write("committed", **who, **where)
    elif kind == "partitions_revoked":
        for entry in event["partitions"]:
            ledger.write("revoked", **who, topic=entry["topic"], partition=entry["partition"])


def _spawned_program(
    cluster: LiveCluster, module: str, work: str, options: Mapping[str, Any]
) -> subprocess.Popen[bytes]:
    """A program of this folder; its options, in which there may be a password, are in a file."""
    path = cluster.directory / f"{options['name']}.{options.get('incarnation', 1)}.json"
    write_private(path, options)
    return _spawned(cluster, options["name"], [sys.executable, "-m", f"compat_tests.cluster.{module}", work, str(path)])


def _spawned(cluster: LiveCluster, name: str, words: list[str], stdout: int | None = None) -> subprocess.Popen[bytes]:
    root = pathlib.Path(__file__).parent.parent.parent
    with (cluster.directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            cluster.command(words),
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            cwd=root,
            start_new_session=True,
        )


def _end_all(processes: dict[str, subprocess.Popen[bytes]], may_fail: bool = False) -> None:
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for name, process in processes.items():
        status = process.wait(END_SECONDS)
        if status != 0 and not may_fail:
            raise RuntimeError(f"{name} ended with status {status}: see {name}.log beside the ledger")
