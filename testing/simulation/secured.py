"""Logins and ACLs in the simulated cluster (`make sim KIND=secured`): users, who tests them, and their rules.

Every listener asks for a login, a session ends after some seconds, and an authorizer decides:

    broker      the brokers among themselves; a super user
    admin       the administrator, and the `Keeper`s, who change ACLs and credentials of others; a super user
    client      every other client; ACLs that are there from the beginning, and stay, allow what it does
    stranger    may do nothing, and tries (`Stranger`); also with a wrong password

Keepers write to the same patterns that allow the clients' work, through several brokers at once, so a change that is
lost would take their rights away.

    S1  who has the right password, and the right by ACLs, is never refused
    S2  who has no right, or a wrong password, is never served
    S3  after the faults every broker has the ACLs and the credentials of the metadata store
    S4  an ACL whose creation was acknowledged is there until it is removed
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import trio

from barnabas.controller.store.paths import ConfigEntity
from barnabas.controller.store.store import Create, with_ancestors
from barnabas.security.acls import acls
from barnabas.security.acls.acls import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.security.jaas import LOGIN_MODULES
from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.scram import ITERATIONS_MIN, MECHANISMS, Alterations, Upsertion, salted_password
from barnabas.security.sasl.scram_credentials import ScramCredentials
from barnabas.testing.simulation.node import Node
from barnabas.testing.simulation.party import Admission, Link, Lost, Party
from barnabas.testing.simulation.plan import STEADY, SecuredPlan
from barnabas.testing.simulation.tree import Tree
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from barnabas.wire.runtime import Struct
from barnabas.wire.sentinels import ACKS_ALL

SECURED_RULES = {
    "S1": "who has the right password, and the right by ACLs, is never refused",
    "S2": "who has no right, or a wrong password, is never served",
    "S3": "after the faults every broker has the ACLs and the credentials of the metadata store",
    "S4": "an ACL whose creation was acknowledged is there until it is removed",
}
BROKER, ADMIN, CLIENT, STRANGER = "broker", "admin", "client", "stranger"
USERS = (BROKER, ADMIN, CLIENT, STRANGER)
OTHERS = ("other-1", "other-2")  # whose rights and credentials change
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
SALT = b"salt of the simulation"
NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
ALLOWED_TO_CLIENTS = {
    ResourcePattern("Topic", acls.WILDCARD): acls.ALL,
    ResourcePattern("Group", acls.WILDCARD): acls.ALL,
    ResourcePattern("TransactionalId", acls.WILDCARD): acls.ALL,
    ResourcePattern("Cluster", acls.CLUSTER_NAME): "IdempotentWrite",
}

BEAT_SECONDS = 0.3
OFTEN_CHANGED = (
    *ALLOWED_TO_CLIENTS,
    ResourcePattern("Topic", STEADY),
    ResourcePattern("Topic", "s", acls.PREFIXED),
)
# These change so seldom that a change which a broker has missed is not hidden by a later one.
SELDOM_CHANGED = tuple(ResourcePattern("Topic", f"seldom-{number}") for number in range(50))
ANY_NUMBER = 1  # as the type, the operation or the permission in a filter

Violate = Callable[[str, str], None]


def password_of(user: str) -> str:
    return f"password of {user}"


def properties_of(plan: SecuredPlan) -> dict[str, str]:
    """For every broker; its listener's name is SASL_PLAINTEXT."""
    own = f'username="{BROKER}" password="{password_of(BROKER)}"'
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
    return {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": plan.broker_mechanism,
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN_MODULES[PLAIN]} required {own} {users};",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{LOGIN_MODULES[SCRAM]} required {own};",
        "connections.max.reauth.ms": str(plan.session_ms),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{BROKER};User:{ADMIN}",
    }


def prepare(tree: Tree) -> None:
    """Write the credentials, and the ACLs of clients, into the metadata store, before any broker starts."""
    data: dict[str, bytes] = {}
    for user in USERS:
        salted = salted_password(password_of(user).encode(), SALT, ITERATIONS_MIN, MECHANISMS[1])
        made = Alterations((), (Upsertion(user, 1, ITERATIONS_MIN, SALT, salted),)).applied_to({})
        data[f"/config/users/{user}"] = ConfigEntity(made).encode()
    for pattern, operation in ALLOWED_TO_CLIENTS.items():
        entry = AccessControlEntry(f"User:{CLIENT}", acls.WILDCARD, operation, acls.ALLOW)
        data[pattern.node] = acls.encode_entries([entry])
    for path in with_ancestors(data):
        tree.write(Create(path, data.get(path, b"")), 0)


# -- the rules


class SecuredRules:
    """S1 and S2, of what clients are answered."""

    def __init__(self, violate: Violate, plan: SecuredPlan) -> None:
        self.counts = {"refused": 0, "not let in": 0, "ACLs changed": 0, "credentials changed": 0}
        self._violate = violate
        self._mechanism = plan.client_mechanism

    def admission(self, user: str, name: str) -> Admission:
        """How this client logs in; S1 holds for it."""

        def answered(answer: m.Message) -> None:
            codes = NOT_ALLOWED.intersection(error_codes(answer))
            if codes:
                self._violate("S1", f"{name} is refused: {answer}")

        def failed(text: str) -> None:
            self._violate("S1", f"{name} is not let in: {text}")

        return Admission(self._credentials(user, password_of(user)), answered, failed)

    def stranger(self, password: str = password_of(STRANGER)) -> Admission:
        """How a stranger logs in."""
        return Admission(self._credentials(STRANGER, password), lambda _: None, lambda _: self.count("not let in"))

    def must_be_refused(self, answer: m.Message) -> None:
        """S2: a stranger got this answer."""
        codes = [code for code in error_codes(answer) if code]
        if not codes or not NOT_ALLOWED.issuperset(codes):
            self._violate("S2", f"a stranger is answered {answer}")
        self.count("refused")

    def must_not_be_let_in(self) -> None:
        """S2: a stranger has logged in with a wrong password."""
        self._violate("S2", "a wrong password is taken")

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def _credentials(self, user: str, password: str) -> Credentials:
        return Credentials(self._mechanism, {"username": user, "password": password})


def error_codes(value: object) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from error_codes(each)
    elif isinstance(value, Struct):
        for name in value.FIELDS:
            if name == "error_code":
                yield getattr(value, name)
            else:
                yield from error_codes(getattr(value, name))


def why_rights_differ(nodes: Mapping[int, Node], tree: Tree, keepers: "Sequence[Keeper]") -> tuple[str, str] | None:
    """S3 or S4: what is missing when no keeper changes anything, or None."""
    stored = stored_acls(tree)
    if (why := _why_not_alike(nodes, stored, stored_credentials(tree))) is not None:
        return "S3", why
    return next((("S4", why) for keeper in keepers if (why := keeper.check(stored)) is not None), None)


def _why_not_alike(
    nodes: Mapping[int, Node],
    stored: Mapping[ResourcePattern, frozenset[AccessControlEntry]],
    credentials: ScramCredentials,
) -> str | None:
    for node in nodes.values():
        broker = node.broker
        if broker is None or broker.authorization is None or broker.secured is None:
            return f"{node} has no authorizer"
        cache = broker.authorization.authorizer.acls
        found = {pattern: cache.entries(pattern) for pattern in cache.patterns()}
        for pattern in sorted(stored.keys() | found.keys()):
            if stored.get(pattern) != found.get(pattern):
                return f"{node} has {found.get(pattern)} for {pattern}, the store {stored.get(pattern)}"
        for user in (*USERS, *OTHERS):
            for mechanism in MECHANISMS.values():
                if broker.secured.scram.find(mechanism, user) != credentials.find(mechanism, user):
                    return f"{node} has another credential of {user} than the store"
    return None


def stored_acls(tree: Tree) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
    patterns = [
        ResourcePattern(resource_type, name, pattern_type)
        for resource_type in acls.STORED_TYPES
        for pattern_type in (acls.LITERAL, acls.PREFIXED)
        for name in tree.children(acls.parent(resource_type, pattern_type))
    ]
    return {pattern: acls.decode_entries(tree.get(pattern.node)[0], pattern.node) for pattern in patterns}


def stored_credentials(tree: Tree) -> ScramCredentials:
    nodes = {name: f"/config/users/{name}" for name in tree.children("/config/users")}
    credentials = ScramCredentials()
    credentials.replace({name: ConfigEntity.decode(tree.get(path)[0], path).config for name, path in nodes.items()})
    return credentials


# -- who tests them


class Keeper:
    """Changes ACLs and credentials of a user all the time, through any broker; no other keeper changes this user's."""

    def __init__(self, party: Party, user: str, rules: SecuredRules) -> None:
        self.party = party
        self.user = user
        self._rules = rules
        self._stopping = False
        self._beat = 0
        self._removals_lost = 0
        # The ACLs of `_principal`: those that are there, and those that may be, as a creation got no answer.
        self._exist: set[AclBinding] = set()
        self._may_exist: set[AclBinding] = set()

    def stop(self) -> None:
        """Change nothing more."""
        self._stopping = True

    async def run(self) -> None:
        """Change something every so often, until stopped."""
        rng = self.party.rng
        while not self._stopping:
            self._beat = int(trio.current_time() / BEAT_SECONDS) + rng.choice((1, 1, 2))
            await trio.sleep_until(self._beat * BEAT_SECONDS)
            (change,) = rng.choices((self._add, self._remove, self._change_credential), (8, 1, 3))
            try:
                await change()
            except Lost:
                continue
        self.party.close()

    def check(self, stored: Mapping[ResourcePattern, frozenset[AccessControlEntry]]) -> str | None:
        """S4: which ACL of this user should be in the store, or should not, or None."""
        found = {
            AclBinding(pattern, entry)
            for pattern, entries in stored.items()
            for entry in entries
            if entry.principal == self._principal
        }
        for binding in sorted(self._exist - found):
            return f"{binding} is not in the store"
        for binding in sorted(found - self._exist - self._may_exist):
            return f"{binding} is in the store"
        return None

    @property
    def _principal(self) -> str:
        """Another one after a removal without an answer, which may come late, and remove what is created after it."""
        return f"User:{self.user}-{self._removals_lost}"

    async def _add(self) -> None:
        bindings = [self._any_acl() for _ in range(self.party.rng.randint(1, 3))]
        link = await any_broker(self.party)
        self._may_exist.update(bindings)
        request = m.CreateAclsRequest(creations=[_creation(binding) for binding in bindings])
        answer = await link.ask(request, m.CreateAclsResponse)
        for binding, result in zip(bindings, answer.results, strict=True):
            if not result.error_code:
                self._exist.add(binding)
                self._rules.count("ACLs changed")

    async def _remove(self) -> None:
        """All of the user. A broker removes those that it has heard of, so others may stay."""
        link = await any_broker(self.party)
        self._may_exist |= self._exist
        self._exist.clear()
        wanted = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ANY_NUMBER,
            resource_name_filter=None,
            pattern_type_filter=ANY_NUMBER,
            principal_filter=self._principal,
            host_filter=None,
            operation=ANY_NUMBER,
            permission_type=ANY_NUMBER,
        )
        try:
            answer = await link.ask(m.DeleteAclsRequest(filters=[wanted]), m.DeleteAclsResponse)
        except Lost:
            self._removals_lost += 1
            self._may_exist.clear()
            raise

        if not answer.filter_results[0].error_code:
            self._rules.count("ACLs changed")

    async def _change_credential(self) -> None:
        """Set or remove one. It is made of random bytes, as no client logs in with it."""
        rng = self.party.rng
        user = self.user
        mechanism = rng.choice(list(MECHANISMS))
        rows = m.AlterUserScramCredentialsRequest
        request = rows(deletions=[rows.ScramCredentialDeletion(name=user, mechanism=mechanism)], upsertions=[])
        if rng.random() < 0.7:
            upsertion = rows.ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=ITERATIONS_MIN, salt=SALT, salted_password=rng.randbytes(32)
            )
            request = rows(deletions=[], upsertions=[upsertion])

        link = await self.party.controller()
        answer = await link.ask(request, m.AlterUserScramCredentialsResponse)
        if not answer.results[0].error_code:
            self._rules.count("credentials changed")

    def _any_acl(self) -> AclBinding:
        rng = self.party.rng
        operation = rng.choice((acls.ALL, "Read", "Describe"))
        permission = rng.choice((acls.ALLOW, acls.DENY))
        entry = AccessControlEntry(self._principal, acls.WILDCARD, operation, permission)
        # The keepers share the beat, so they often change the same node at the same time, through
        # different brokers.
        common = OFTEN_CHANGED[self._beat % len(OFTEN_CHANGED)]
        return AclBinding(rng.choice((common, rng.choice(SELDOM_CHANGED))), entry)


def _creation(binding: AclBinding) -> m.CreateAclsRequest.AclCreation:
    pattern, entry = binding
    return m.CreateAclsRequest.AclCreation(
        resource_type=number_of(acls.RESOURCE_TYPES, pattern.resource_type),
        resource_name=pattern.name,
        resource_pattern_type=number_of(acls.PATTERN_TYPES, pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=number_of(acls.OPERATIONS, entry.operation),
        permission_type=number_of(acls.PERMISSION_TYPES, entry.permission_type),
    )


def number_of(names: Mapping[int, str], name: str) -> int:
    """The number of a name in requests."""
    return next(number for number, each in names.items() if each == name)


class Stranger:
    """Asks for what it may not have; and logs in with a wrong password."""

    def __init__(self, party: Party, intruder: Party, rules: SecuredRules, now_ms: Callable[[], int]) -> None:
        self.party = party
        self._intruder = intruder
        self._rules = rules
        self._now_ms = now_ms
        self._stopping = False

    def stop(self) -> None:
        """Try nothing more."""
        self._stopping = True

    async def run(self) -> None:
        """Try something every so often, until stopped."""
        rng = self.party.rng
        while not self._stopping:
            await trio.sleep(rng.expovariate(1.0))
            attempt = rng.choice((self._write, self._read, self._describe, self._intrude))
            try:
                await attempt()
            except Lost:
                continue
        self.party.close()
        self._intruder.close()

    async def _write(self) -> None:
        batch = build_batch([(None, b"of a stranger")], timestamp_ms=self._now_ms())
        row = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(bytes(batch.data)))
        topic = m.ProduceRequest.TopicProduceData(name=STEADY, partition_data=[row])
        link = await any_broker(self.party)
        request = m.ProduceRequest(acks=ACKS_ALL, timeout_ms=1000, topic_data=[topic])
        self._rules.must_be_refused(await link.ask(request, m.ProduceResponse))

    async def _read(self) -> None:
        row = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = m.FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[m.FetchRequest.FetchTopic(topic=STEADY, partitions=[row])]
        )
        link = await any_broker(self.party)
        self._rules.must_be_refused(await link.ask(request, m.FetchResponse))

    async def _describe(self) -> None:
        asked = [m.MetadataRequest.MetadataRequestTopic(name=STEADY)]
        link = await any_broker(self.party)
        request = m.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        self._rules.must_be_refused(await link.ask(request, m.MetadataResponse))

    async def _intrude(self) -> None:
        await self._intruder.refresh()
        self._rules.must_not_be_let_in()


async def any_broker(party: Party) -> Link:
    """A connection to one of the brokers, whichever. Lost."""
    if not party.view.brokers:
        await party.refresh()
    return await party.broker(party.rng.choice(sorted(party.view.brokers)))
