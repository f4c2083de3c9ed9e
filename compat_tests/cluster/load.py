"""The load on a cluster: producers and group members as processes where the clients are, each with its own ledger.

`VerifiableLoad` is a second kind: Kafka's VerifiableProducer and VerifiableConsumer, whose JSON is carried over into
the same ledger.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any, Protocol

from compat_tests.cluster.ledger import Ledger, read_stamp
from compat_tests.cluster.live import LiveCluster
from compat_tests.kafka import java_command

TOOLS = "org.apache.kafka.tools"
END_SECONDS = 120.0
MEMBERS = 2
GROUP = "readers"


class Load(Protocol):
    """What writes and reads while the cluster is harmed."""

    def start(self) -> None: ...

    def stop_producing(self) -> None:
        """Send no more, and wait until every record's fate is known."""

    def stop(self) -> None:
        """The group members end in order."""

    def kill(self) -> None: ...


class ConfluentLoad:
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
        self._cluster = cluster
        self._directory = directory or cluster.directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _spawn(self, work: str, name: str) -> None:
        options: dict[str, Any] = {
            **self._common,
            "name": name,
            "bootstrap": self._cluster.bootstrap,
            "ledger": str(self._directory / f"ledger-{name}.jsonl"),
            "group": GROUP,
            "commit_every": 1.0,
        }
        words = [sys.executable, "-m", "compat_tests.cluster.worker", work, json.dumps(options)]
        self._processes[name] = _spawned(self._cluster, name, words)

    def _end(self, names: list[str]) -> None:
        _end_all({name: self._processes[name] for name in names})


class VerifiableLoad:
    """VerifiableProducer with idempotence and retries, and VerifiableConsumer, both of Kafka 3.9."""

    def __init__(self, cluster: LiveCluster, topic: str, *, rate: int = 200) -> None:
        self._cluster = cluster
        self._topic = topic
        self._rate = rate
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        directory, server = self._cluster.directory, ("--bootstrap-server", self._cluster.bootstrap)
        settings = directory / "verifiable-producer.properties"
        settings.write_text(
            "retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms=300000\nreconnect.backoff.max.ms=500\n"
            # The partitioner stays with a partition, drawn by chance, until it has sent so much. With the usual 16 kB,
            # 8 s at this rate, now and then a partition gets nothing for as long as a recovery may take.
            "batch.size=1024\n"
        )
        produce = ("--topic", self._topic, "--throughput", str(self._rate), "--value-prefix", "7", "--acks", "-1")
        self._spawn("v0", "VerifiableProducer", *server, *produce, "--producer.config", str(settings))
        for name in ("w0", "w1"):
            consume = ("--topic", self._topic, "--group-id", GROUP, "--reset-policy", "earliest", "--verbose")
            self._spawn(name, "VerifiableConsumer", *server, *consume, "--session-timeout", "10000")

    def stop_producing(self) -> None:
        _end_all({"v0": self._processes["v0"]}, may_fail=True)  # a Java machine ends with 143 at SIGTERM

    def stop(self) -> None:
        _end_all({name: self._processes[name] for name in ("w0", "w1")}, may_fail=True)
        for reader in self._readers:
            reader.join()

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

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
