"""Kafka's TransactionalMessageCopier as processes, one for each partition of the input."""

import signal
import subprocess

from compat_tests.cluster.live import LiveCluster
from compat_tests.copier.cases import Case
from compat_tests.kafka import java_command

INPUT, OUTPUT, GROUP = "numbers", "copies", "copiers"
TRANSACTION_SIZE = 750
# A transaction must outlive a pause, and a Produce that a killed broker leaves unanswered for request.timeout.ms, 30 s.
# A killed copier's successor asks for the committed offsets before it calls initTransactions: if the open transaction
# has offsets, it waits until that has timed out.
TRANSACTION_TIMEOUT_MS = {"brokers": 300_000, "copiers": 20_000}
END_SECONDS = 30.0


class Copier:
    """A copier that ends when it has copied its partition up to the end that it had when the copier was started."""

    def __init__(self, cluster: LiveCluster, number: int, case: Case) -> None:
        self.name = f"copier-{number}"
        self.starts = 0
        self._cluster = cluster
        self._log_path = cluster.directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._words = java_command(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", cluster.bootstrap, "--transactional-id", self.name, "--consumer-group", GROUP),
            *("--input-topic", INPUT, "--input-partition", str(number), "--output-topic", OUTPUT),
            *("--transaction-timeout", str(TRANSACTION_TIMEOUT_MS[case.target])),
            *("--transaction-size", str(TRANSACTION_SIZE)),
            "--enable-random-aborts",
            *(["--use-group-metadata"] if case.group != "id" else []),
            *(["--group-mode"] if case.group == "member" else []),
        )

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        assert self._process is not None, "not started"
        return self._process.poll()

    def log_text(self) -> str:
        """What it said, over all its lives."""
        return self._log_path.read_text(errors="replace")

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._cluster.command(self._words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run, which ends what it started
            )
        self.starts += 1

    def restart(self, with_signal: signal.Signals) -> None:
        """End it with this signal, and start its successor."""
        self.send(with_signal)
        assert self._process is not None
        self._process.wait(END_SECONDS)
        self.start()

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """SIGKILL, for good."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(END_SECONDS)
