"""TLS and logins: Barnabas beside a warm Apache Kafka, and what encryption adds to the broker's CPU.

Each broker has three listeners: CLEAR, TLS, and LOGIN, which asks for a SCRAM login inside TLS. The same client does
the same over CLEAR and TLS, one right after the other; the difference of the broker's CPU is what encryption adds.
"""

import json
import pathlib
import subprocess
import sys

from barnabas.wire import messages as m
from bench.against_kafka import run_client
from bench.contenders import Barnabas, Contender, Kafka
from bench.growth import share_of
from bench.load import Client, frame
from bench.logins import MECHANISM, PASSWORD, USER
from bench.pairs import BARNABAS, COMPILED
from bench.run import MB, TOOL_SECONDS_MAX, Cases, Cost, Run, Size, add_cost, tell
from compat_tests.kafka import free_port
from compat_tests.secured import Certificates, create_scram_user

SIZES = (Size("1 kB", 1000, 400_000), Size("10 kB", 10_000, 40_000))
CLEAR, TLS, LOGIN = "CLEAR", "TLS", "LOGIN"
PROTOCOLS = {CLEAR: "PLAINTEXT", TLS: "SSL", LOGIN: "SASL_SSL"}
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SECONDS = 5.0
LOGINS, IDLE_CONNECTIONS = 1000, 1000


class TlsRun(Run):
    """One broker of each, with three listeners."""

    def __init__(self, directory: pathlib.Path, *, pairs: int, shrink: int) -> None:
        super().__init__(directory, pairs=pairs, shrink=shrink)
        self.certificates = Certificates(directory / "certificates")
        self.ports: dict[str, dict[str, int]] = {}  # contender -> listener -> port
        kafka = Kafka(directory / "kafka", self.zookeeper, "bench", settings=self._settings(Kafka.name))
        barnabas = Barnabas(directory / "barnabas", self.installed, settings=self._settings(BARNABAS))
        compiled = Barnabas(
            directory / "compiled", self.installed_compiled, name=COMPILED, settings=self._settings(COMPILED)
        )
        self.brokers = self.contenders = kafka, barnabas, compiled
        kafka.port = self.ports[kafka.name][CLEAR]

    def start(self) -> None:
        super().start()
        for contender in self.brokers:
            create_scram_user(contender.port, MECHANISM, USER, PASSWORD)

    def _settings(self, name: str) -> dict[str, str]:
        ports = self.ports[name] = {listener: free_port() for listener in PROTOCOLS}
        return {
            "listeners": ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "inter.broker.listener.name": CLEAR,
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.protocol": "TLSv1.3",
            "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.{LOGIN.lower()}.{MECHANISM.lower()}.sasl.jaas.config": SCRAM_LOGIN,
            **self.certificates.pem_stores(),
        }


def use_client(run: TlsRun, what: str, contender: Contender, topic: str, size: Size, listener: str) -> float:
    """Seconds of confluent-kafka at this listener."""
    settings = ["security.protocol=ssl", f"ssl.ca.location={run.certificates.trusted}"] if listener == TLS else []
    port = run.ports[contender.name][listener]
    return run_client(
        f"confluent-{what}", contender, topic, run.count(size.records), size.record_bytes, *settings, port=port
    )


def bulk(run: TlsRun, size: Size) -> None:
    """confluent-kafka produces and consumes, over TLS and in clear text."""
    count, listeners = run.count(size.records), (CLEAR, TLS)
    data_bytes = count * size.record_bytes

    def use_once(contender: Contender, topic: str) -> None:
        for what in ("produce", "consume"):
            use_client(run, what, contender, topic, size, TLS)

    run.warm_up(size.name, run.brokers, use_once, 2 * data_bytes)
    for pair in range(run.pairs):
        topics = {listener: run.new_topic(run.brokers) for listener in listeners}
        for what in ("produce", "consume"):
            for contender in run.order(pair, *run.brokers):
                costs = {
                    listener: measured(run, what, contender, topics[listener], size, listener)
                    for listener in listeners[:: 1 if pair % 2 else -1]
                }
                line = run.book.line("Encryption adds", f"{what} {size.name}", "ms per MB", higher_is_better=False)
                clear, tls = costs[CLEAR], costs[TLS]
                added = None if clear is None or tls is None else (tls - clear) * 1000 / (data_bytes / MB)
                line.add(contender.name, added)
        for topic in topics.values():
            run.drop(topic, run.brokers)


def measured(run: TlsRun, what: str, contender: Contender, topic: str, size: Size, listener: str) -> float | None:
    """One run's CPU seconds, after its figures were noted."""
    case, count = f"{what} {size.name}, {listener}", run.count(size.records)
    cost = Cost(contender)
    seconds = run.attempt(
        f"{case} on {contender.name}", lambda: use_client(run, what, contender, topic, size, listener)
    )
    cpu = cost.seconds() if seconds is not None else None
    rate = None if seconds is None else count / seconds
    tell(case, contender, rate, "records/s", cpu)
    is_tls = listener == TLS
    run.book.line("confluent-kafka", case, "records/s", target=1.0 if is_tls else None).add(contender.name, rate)
    add_cost(run, case, contender, cpu, count * size.record_bytes, 1.0 if is_tls else None)
    return cpu


def small_requests(run: TlsRun) -> None:
    """One record after the other on one connection, in clear text and over TLS: CPU per request."""

    def use(contender: Contender, topic: str, listener: str) -> dict[str, list[float]]:
        command = [sys.executable, "-m", "bench.pacing_clients", "back-to-back"]
        command += [str(run.ports[contender.name][listener]), topic, "1", str(SECONDS / run.shrink)]
        if listener == TLS:
            command.append(run.certificates.trusted)
        found: dict[str, list[float]] = said_by(command)
        return found

    run.warm_up("small requests", run.brokers, lambda c, t: use(c, t, TLS))
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers)
        for contender in run.order(pair, *run.brokers):
            each: dict[str, float] = {}
            for listener in (CLEAR, TLS):
                cost = Cost(contender)
                found = run.attempt(
                    f"requests at {listener} of {contender.name}",
                    lambda c=contender, t=topic, at=listener: use(c, t, at),
                )
                latencies = found["produce"] if found else []
                if latencies:
                    each[listener] = cost.seconds() / len(latencies) * 1e6
                tell(f"small requests, {listener}", contender, each.get(listener), "µs")
                for name, unit, figure in (
                    ("CPU", "µs a request", each.get(listener)),
                    ("p50", "ms", share_of(latencies, 0.5)),
                ):
                    line = run.book.line("Small requests", f"{listener}, {name}", unit, higher_is_better=False)
                    line.add(contender.name, figure)
            added = each[TLS] - each[CLEAR] if len(each) > 1 else None
            line = run.book.line("Encryption adds", "a small request", "µs", higher_is_better=False)
            line.add(contender.name, added)
        run.drop(topic, run.brokers)


def logins(run: TlsRun) -> None:
    """SCRAM logins over TLS, four at a time, each on a connection of its own."""
    count = run.count(LOGINS)

    def use(contender: Contender) -> dict[str, float]:
        port = run.ports[contender.name][LOGIN]
        found: dict[str, float] = said_by(
            [sys.executable, "-m", "bench.logins", str(port), run.certificates.trusted, str(count)]
        )
        return found

    run.warm_up("logins", run.brokers, lambda c, t: use(c))
    for pair in range(run.pairs):
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            found = run.attempt(f"logins at {contender.name}", lambda c=contender: use(c)) or {}
            cpu = cost.seconds() / count * 1000 if found else None
            tell("logins", contender, found.get("rate"), "a second")
            run.book.line("Logins", "SCRAM-SHA-256 over TLS", "a second").add(contender.name, found.get("rate"))
            for name, figure in (("p50", found.get("p50_ms")), ("CPU of one", cpu)):
                run.book.line("Logins", name, "ms", higher_is_better=False).add(contender.name, figure)


def idle(run: TlsRun) -> None:
    """Resident memory that an idle connection with TLS adds."""
    count = run.count(IDLE_CONNECTIONS)
    for contender in run.brokers:
        before = contender.resident_bytes()
        port, trusted = run.ports[contender.name][TLS], run.certificates.trusted
        connections = [Client(port, trusted) for _ in range(count)]
        for each in connections:
            each.ask_frame(frame(m.ApiVersionsRequest(), 0))
        added = (contender.resident_bytes() - before) / count / 1000
        for each in connections:
            each.close()
        tell("an idle connection with TLS", contender, added, "kB")
        run.book.line("Idle connections", "with TLS", "kB each", higher_is_better=False).add(contender.name, added)


def said_by(command: list[str]) -> dict:
    """The line of JSON that a program prints."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{command[2]} ended with status {ran.returncode}: {ran.stderr[-1500:]}")
    return json.loads(ran.stdout)


CASES: Cases = {
    **{f"tls-{size.name.replace(' ', '')}": lambda run, size=size: bulk(run, size) for size in SIZES},
    "tls-requests": small_requests,
    "tls-logins": logins,
    "tls-idle": idle,
}
