"""A broker of Apache Kafka 3.9.1 and one of Barnabas with ACLs, and the answers of both to all cases of the matrix."""

import pathlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from compat_tests.kafka import SINGLE_BROKER, KafkaProcess, free_port
from compat_tests.secured import ADMIN, ADMIN_PASSWORD, PASSWORD, PLAIN_MODULE, SecuredBroker
from compat_tests.security.cases import ANONYMOUS, ANOTHER, EVERYONE, Case
from compat_tests.security.matrix_side import LOGIN, OPEN, SUPER_USER, VISITOR, MatrixSide
from compat_tests.security.resources import Cell, cells_of

PROTOCOLS = {LOGIN: "SASL_PLAINTEXT", OPEN: "PLAINTEXT"}
Answers = dict[str, dict[str, Any]]  # row -> case -> what came


def settings(users: Sequence[str]) -> dict[str, str]:
    """Properties of both brokers; these users may log in, with one password."""
    passwords = {ADMIN: ADMIN_PASSWORD} | dict.fromkeys(users, PASSWORD)
    options = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    own = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
    return {
        **SINGLE_BROKER,
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
        "inter.broker.listener.name": LOGIN,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{LOGIN.lower()}.sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LOGIN.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {options};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:{SUPER_USER}",
        "delegation.token.secret.key": "token-secret-4402",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.retention.ms": "-1",  # the times of records are years ago
    }


class MatrixBrokers:
    """Both brokers; the caller must close them."""

    def __init__(
        self,
        directory: pathlib.Path,
        cases: Sequence[Case],
        rounds: Sequence[Sequence[Case]],
        properties: Mapping[str, str],
    ) -> None:
        cells = list(cells_of([*cases, *chain.from_iterable(rounds)]))
        self._cells, in_rounds = cells[: len(cases)], iter(cells[len(cases) :])
        # In rounds one user is enough: no ACL names it.
        self._rounds = [[next(in_rounds)._replace(user=VISITOR) for _ in round_] for round_ in rounds]
        usual = {**settings([VISITOR, SUPER_USER, *(cell.user for cell in self._cells)]), **properties}
        self.barnabas = SecuredBroker(directory / "barnabas", PROTOCOLS, usual)
        self.kafka = KafkaProcess(directory / "kafka")
        ports = {name: free_port() for name in PROTOCOLS}
        self.kafka.port = ports[OPEN]
        self.kafka.settings = {
            **usual,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        }
        self._sides = {
            "kafka": MatrixSide("kafka", ports, directory / "kafka"),
            "barnabas": MatrixSide("barnabas", self.barnabas.ports, directory / "barnabas"),
        }

    def start(self) -> None:
        """Start both at the same time."""
        starts: list[Any] = [self.kafka.start, self.barnabas.start]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda start: start(), starts))

    def close(self) -> None:
        self.kafka.close()
        self.barnabas.kill()

    def answers(self) -> dict[str, Answers]:
        """The answers of both brokers; each gets all cases in the same order."""
        with ThreadPoolExecutor() as threads:
            return dict(zip(self._sides, threads.map(self._answers_of, self._sides.values()), strict=True))

    def _answers_of(self, side: MatrixSide) -> Answers:
        side.prepare([*self._cells, *chain.from_iterable(self._rounds)])
        found: Answers = {}
        side.grant(self._cells)
        self._play(side, self._cells, found)
        for round_ in self._rounds:
            side.grant(round_)
            self._play(side, round_, found)
            side.revoke([ANONYMOUS, ANOTHER, EVERYONE])
        return found

    def _play(self, side: MatrixSide, cells: Sequence[Cell], found: Answers) -> None:
        for cell in cells:
            found.setdefault(cell.case.row.name, {})[cell.case.name] = side.play(cell)
