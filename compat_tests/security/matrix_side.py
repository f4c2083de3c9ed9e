"""One of two brokers, as the ACL matrix sees it: who connects, what exists before a row is asked, and each case.

Both brokers get the same names, and ids of their own, which are replaced by names before answers are compared.
"""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.security.acls.acls import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.records import build_batch
from compat_tests.differential.asking_sasl import plain as plain_token
from compat_tests.differential.plain import plain
from compat_tests.differential.side import Answer, Connection, Side
from compat_tests.secured import ADMIN, ADMIN_PASSWORD, PASSWORD
from compat_tests.security.cases import Asker, Rule, allow
from compat_tests.security.requests import (
    BATCH_OF_PRODUCER,
    HMAC,
    OWNER,
    PRODUCER_ID,
    STRANGER,
    TOKEN,
    TOPIC_ID,
    Need,
)
from compat_tests.security.resources import SHARED_TOPIC, Cell, Resources, filled
from tests.broker.clock import START_MS
from tests.broker.handlers.authorized import BATCH, codes_in, make

OPEN, LOGIN = "OPEN", "LOGIN"  # listeners
SUPER_USER, VISITOR = "super", "visitor"
AT_A_TIME = 100
ANSWER_SECONDS = 60.0
SILENT_SECONDS = 3.0  # for a request that Kafka never answers if it is refused
TRANSACTION_MS = 900_000
TRANSACTIONAL_BIT = 1 << 4
Item = TypeVar("Item")


def numbers_of(names: Mapping[int, str]) -> dict[str, int]:
    return {name: number for number, name in names.items()}


TYPE_NUMBERS, OPERATION_NUMBERS = numbers_of(RESOURCE_TYPES), numbers_of(OPERATIONS)
PATTERN_NUMBERS, PERMISSION_NUMBERS = numbers_of(PATTERN_TYPES), numbers_of(PERMISSION_TYPES)


class Creation(NamedTuple):
    """An ACL, as CreateAcls has it."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    left = list(dict.fromkeys(items))
    while left:
        yield left[:AT_A_TIME]
        del left[:AT_A_TIME]


def without_chance(answer: Answer) -> Answer:
    """The answer, in which what differs between any two runs is replaced by names."""
    match answer:
        case m.CreateDelegationTokenResponse():
            _name_token(answer)
        case m.DescribeDelegationTokenResponse():
            for token in answer.tokens:
                _name_token(token)
        case m.DescribeTransactionsResponse():
            for each in answer.transaction_states:
                each.transaction_start_time_ms = min(each.transaction_start_time_ms, 1)  # -1 if there is none
        # Which APIs there are is compared elsewhere (`compat_tests/differential/`).
        case m.ApiVersionsResponse():
            answer.api_keys = []
    return answer


def _name_token(token: Any) -> None:
    """Name what a token has; what is empty or -1 stays."""
    for name in ("issue_timestamp", "expiry_timestamp", "max_timestamp", "token_id", "hmac"):
        field = name if name in token.FIELDS else f"{name}_ms"
        value = getattr(token, field)
        if value and value != -1:
            setattr(token, field, f"the {name}")


class MatrixSide(Side):
    """One broker with its listeners."""

    def __init__(self, broker: str, ports: Mapping[str, int], directory: pathlib.Path) -> None:
        super().__init__(broker, ports[OPEN], directory, "m")
        self._ports = ports
        self.names.ports = dict.fromkeys(ports.values(), "PORT")
        self.names.places |= {f":{port}": ":PORT" for port in ports.values()}
        self._topic_ids: dict[str, bytes] = {}
        self._ids: dict[Resources, dict[Any, Any]] = {}  # what placeholders stand for at this broker alone

    # -- who asks

    def logged_in(self, user: str, password: str = PASSWORD) -> Connection:
        client = Connection(self, "raw", self._ports[LOGIN])
        client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.ask(m.SaslAuthenticateRequest(auth_bytes=plain_token(user, password)), 2)
        assert not isinstance(answer, str), answer
        assert answer.error_code == 0, answer
        return client

    def connection_of(self, cell: Cell) -> Connection:
        match cell.case.asker:
            case Asker.ANONYMOUS:
                return self.connect()
            case Asker.SUPER_USER:
                return self.logged_in(SUPER_USER)
            case _:
                return self.logged_in(cell.user)

    # -- what exists before

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Create what the rows ask about."""
        every = list(dict.fromkeys(cell.resources for cell in cells))
        self._ids = {each: {} for each in every}
        with self.logged_in(ADMIN, ADMIN_PASSWORD) as admin:
            self._create_topics(admin, [SHARED_TOPIC, *(each["t"] for each in every if {"t", TOPIC_ID} & each.used)])
            for each in every:
                self._ids[each][TOPIC_ID] = self._topic_ids.get(each["t"])
                if "g" in each.used:
                    topic = each["t"] if "t" in each.used else SHARED_TOPIC
                    self._commit(admin, each["g"], topic)
                if {"x", PRODUCER_ID} & each.used:
                    self._open_transaction(admin, each)
                if OWNER in each.used or HMAC in each.used:
                    self._create_token(admin, each)
            about = [(each["r"], allow(Need("Read", "Topic", "r"))) for each in every if "r" in each.used]
            self._create_acls(admin, [self._creation(rule, name, f"User:{STRANGER}") for name, rule in about])

    def _create_topics(self, admin: Connection, names: Iterable[str]) -> None:
        for some in chunks(names):
            topics = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in some]
            created = self._ask(admin, make("CreateTopics", topics=topics, timeout_ms=60_000), 7)
            assert not codes_in(created), created
            data = [{"name": each, "partition_data": [{"index": 0, "records": BATCH}]} for each in some]
            self._succeed(admin, make("Produce", acks=1, timeout_ms=9000, topic_data=data))
            self._topic_ids |= {each.name: bytes(each.topic_id) for each in created.topics}

    def _commit(self, admin: Connection, group: str, topic: str) -> None:
        self._succeed(admin, make("FindCoordinator", coordinator_keys=[group]))
        # Two, so that the group stays when the offset of one is deleted.
        partitions = [{"partition_index": 0, "committed_offset": 1}]
        topics = [{"name": each, "partitions": partitions} for each in {topic, SHARED_TOPIC}]
        self._succeed(admin, make("OffsetCommit", group_id=group, generation_id_or_member_epoch=-1, topics=topics))

    def _open_transaction(self, admin: Connection, each: Resources) -> None:
        """A producer id, and a transaction with the topic of the row if it has one."""
        name = each["x"]
        self._succeed(admin, make("FindCoordinator", key_type=1, coordinator_keys=[name]))
        wanted = make("InitProducerId", transactional_id=name, transaction_timeout_ms=TRANSACTION_MS)
        producer = self._succeed(admin, wanted).producer_id
        batch = build_batch(
            [(None, b"x")],
            timestamp_ms=START_MS,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL_BIT,
        )
        self._ids[each] |= {PRODUCER_ID: producer, BATCH_OF_PRODUCER: bytes(batch.data)}
        if "t" in each.used:
            added = {"transactional_id": name, "producer_id": producer, "producer_epoch": 0}
            fields = {f"v3_and_below_{key}": value for key, value in added.items()}
            topics = [{"name": each["t"], "partitions": [0]}]
            self._succeed(admin, make("AddPartitionsToTxn", **fields, v3_and_below_topics=topics), 3)

    def _create_token(self, admin: Connection, each: Resources) -> None:
        owner = {"owner_principal_type": "User", "owner_principal_name": each[OWNER]}
        created = self._succeed(admin, make("CreateDelegationToken", max_lifetime_ms=-1, **owner))
        self._ids[each] |= {TOKEN: created.token_id, HMAC: bytes(created.hmac)}

    # -- ACLs

    def grant(self, cells: Sequence[Cell]) -> None:
        """Create the ACLs of all these cases."""
        creations = [
            self._creation(rule, self._name_of(cell, rule), f"User:{cell.user}")
            for cell in cells
            for rule in cell.case.rules
        ]
        with self.logged_in(ADMIN, ADMIN_PASSWORD) as admin:
            self._create_acls(admin, creations)

    def revoke(self, principals: Iterable[str]) -> None:
        """Delete all ACLs of these principals."""
        filters = [
            {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "host_filter": None}
            | {"principal_filter": each, "operation": 1, "permission_type": 1}
            for each in principals
        ]
        with self.logged_in(ADMIN, ADMIN_PASSWORD) as admin:
            deleted = self._ask(admin, make("DeleteAcls", filters=filters))
        assert not codes_in(deleted), deleted

    def _name_of(self, cell: Cell, rule: Rule) -> str:
        return str(self._meanings(cell.resources).get(rule.need.name, rule.need.name))

    def _creation(self, rule: Rule, name: str, principal: str) -> Creation:
        pattern, kind = rule.pattern_of(name)
        who = rule.principal.format(name=principal.removeprefix("User:")) if rule.principal else principal
        return Creation(
            TYPE_NUMBERS[rule.need.resource_type],
            pattern,
            PATTERN_NUMBERS[kind],
            who,
            rule.host,
            OPERATION_NUMBERS[rule.operation],
            PERMISSION_NUMBERS[rule.permission],
        )

    def _create_acls(self, admin: Connection, creations: Iterable[Creation]) -> None:
        # Those of a pattern together: both brokers write its node once.
        for some in chunks(sorted(creations)):
            created = self._ask(admin, make("CreateAcls", creations=[each._asdict() for each in some]))
            assert not codes_in(created), created

    # -- the cases

    def play(self, cell: Cell) -> Any:
        """What the case brings, comparable."""
        row = cell.case.row
        with self.connection_of(cell) as client:
            request = filled(row.request, self._meanings(cell.resources))
            seconds = SILENT_SECONDS if row.is_unanswered else ANSWER_SECONDS
            return plain(without_chance(client.ask(request, row.version, seconds)), self.names)

    def _meanings(self, resources: Resources) -> dict[Any, Any]:
        return {**resources.meanings, **self._ids[resources]}

    def _ask(self, client: Connection, request: m.Message, version: int | None = None) -> Answer:
        used = APIS[key_of(request)].max_version if version is None else version
        answer = client.ask(request, used, ANSWER_SECONDS)
        assert not isinstance(answer, str), (request, answer)
        return answer

    def _succeed(self, client: Connection, request: m.Message, version: int | None = None) -> Answer:
        """Ask until there is no error."""
        answers: list[Answer] = []

        def has_succeeded() -> bool:
            answers.append(self._ask(client, request, version))
            return not codes_in(answers[-1])

        self.wait(has_succeeded, ANSWER_SECONDS)
        return answers[-1]
