"""The layout of Kafka's nodes in ZooKeeper (pure): the path of each, and its JSON as a typed value (reference A.2-A.7).

`encode` gives what Apache Kafka 3.9 writes: compact UTF-8 JSON in Kafka's key order, with times and producer ids as
strings of digits. `decode` reads every version that Kafka reads. It ignores unknown keys, for the other writer may be
newer; malformed data raise a ValueError that names the node.

Nodes that Kafka writes with null data (parents, deletion markers) have a path here and no value.
"""

import base64
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller.store.node_json import INT32_MAX, Fields, is_int32, to_json
from barnabas.wire.topics import TopicPartition, topic_id_text

_KEPT_BY_SANITIZE = f"{string.ascii_letters}{string.digits}_.-".encode()
_SANITIZED = [chr(byte) if byte in _KEPT_BY_SANITIZE else f"%{byte:02X}" for byte in range(256)]

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONSUMERS = "/consumers"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"

# Every broker creates these at its start, in this order (parents first), and ignores NodeExists.
# Their data are null and not b"", which a Java controller would parse as JSON in
# /latest_producer_id_block, and fail.
PERSISTENT_PARENTS = (
    "/cluster",
    "/consumers",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/config",
    "/config/changes",
    "/admin",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)

DEFAULT_ENTITY = "<default>"  # literally so in the path: a user of this name is sanitized to %3Cdefault%3E
SEQUENCE_DIGITS = 10  # of the number that ZooKeeper appends to a sequential node's name


def broker(broker_id: int) -> str:
    """A broker's registration (`BrokerRegistration`), ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's replicas (`TopicAssignment`)."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """A partition's leader and ISR (`PartitionState`); the node's version is the partition epoch."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def delete_topic(name: str) -> str:
    """The node that marks a topic for deletion."""
    return f"{DELETE_TOPICS}/{name}"


def config_entities(entity_type: str) -> str:
    """The parent of the configs of one type: topics, brokers, clients, users, ips."""
    return f"{CONFIG}/{entity_type}"


def config_entity(entity_type: str, name: str) -> str:
    """An entity's `ConfigEntity`. `name` is the part of the path: users and clients are `sanitize`d before."""
    return f"{CONFIG}/{entity_type}/{name}"


def user_client_config(user: str, client: str) -> str:
    """The `ConfigEntity` of one client of one user; both names are `sanitize`d before."""
    return f"{CONFIG}/users/{user}/clients/{client}"


def consumer_offset(group: str, topic_name: str, index: int) -> str:
    """An offset as text. Only OffsetCommit and OffsetFetch version 0 use it."""
    return f"{CONSUMERS}/{group}/offsets/{topic_name}/{index}"


def acl(resource_type: str, name: str, *, prefixed: bool = False) -> str:
    """The ACLs of a resource; its type is written as `Topic`, `TransactionalId`."""
    return f"/kafka-acl-extended/prefixed/{resource_type}/{name}" if prefixed else f"/kafka-acl/{resource_type}/{name}"


def delegation_token(token_id: str) -> str:
    """A delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


# Sequential nodes are created with these paths and `sequential=True`.
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
ACL_CHANGE_PREFIX = f"{ACL_CHANGES}/acl_changes_"
EXTENDED_ACL_CHANGE_PREFIX = f"{EXTENDED_ACL_CHANGES}/acl_changes_"
DELEGATION_TOKEN_CHANGE_PREFIX = f"{DELEGATION_TOKEN_CHANGES}/token_change_"


def sequence_number(name: str) -> int:
    """The number at the end of a sequential node's name or path; ValueError when there is none."""
    digits = name[-SEQUENCE_DIGITS:]
    # `isdigit` alone accepts other digits than 0 to 9, and `int` accepts signs and underscores.
    if len(digits) < SEQUENCE_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{name}: not the name of a sequential node")
    return int(digits)


def sanitize(name: str) -> str:
    """A user's or client's name as one part of a path, as Kafka's Sanitizer makes it.

    That is Java's URL encoding, but with %2A for '*' and %20 for a space.
    """
    raw = name.encode(errors="replace")  # '?' for a lone surrogate, as in Java
    # Most names stay as they are.
    return "".join(map(_SANITIZED.__getitem__, raw)) if raw.translate(None, _KEPT_BY_SANITIZE) else name


def sanitized_bytes(name: str) -> int:
    """The length of `sanitize(name)`, which takes far longer to make."""
    raw = name.encode(errors="replace")
    return len(raw) + 2 * len(raw.translate(None, _KEPT_BY_SANITIZE))


def desanitize(name: str) -> str:
    """The reverse of `sanitize`."""
    if "%" not in name and "+" not in name:
        return name
    from urllib.parse import unquote_to_bytes

    # Java's decoder takes '+' for a space, though Kafka's Sanitizer does not write it.
    return unquote_to_bytes(name.replace("+", " ").encode(errors="replace")).decode(errors="replace")


def new_cluster_id(random_bytes: bytes) -> str:
    """A cluster id, 22 characters of base64url without padding. ValueError unless there are 16 random bytes."""
    if len(random_bytes) != 16:
        raise ValueError(f"a cluster id is made of 16 random bytes, not {len(random_bytes)}")
    return base64.urlsafe_b64encode(random_bytes).rstrip(b"=").decode("ascii")


class ClusterId(NamedTuple):
    """/cluster/id."""

    id: str

    def encode(self) -> bytes:
        # The version is a string in this node alone.
        return to_json({"version": "1", "id": self.id})

    @classmethod
    def decode(cls, data: bytes | None, path: str = CLUSTER_ID) -> "ClusterId":
        return cls(Fields.parse(data, path).text("id"))


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """The reverse of `str`; ValueError."""
        match = _ENDPOINT.fullmatch(text)
        if match is None or not is_int32(int(match["port"])):
            raise ValueError(f"{text!r:.100} is not an endpoint LISTENER://host:port")
        return cls(match["listener"], match["bracketed"] or match["host"] or "", int(match["port"]))


_ENDPOINT = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<bracketed>[^]]+)\]|(?P<host>[^:]*)):(?P<port>-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """/brokers/ids/N. The broker epoch is the node's czxid.

    Versions 1 to 5 are read; 4 and 5 are written, and 4 has no features.
    """

    endpoints: tuple[Endpoint, ...]
    security_protocols: Mapping[str, str]  # listener -> PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    timestamp_ms: int
    rack: str | None = None
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jmx_port: int = -1
    version: int = 5
    kept_since: int | None = None  # not Kafka's: the broker epoch since which no data were lost (decide/bounces.py)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address of this listener, or None if the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)

    def encode(self) -> bytes:
        plaintext = (each for each in self.endpoints if self.security_protocols.get(each.listener) == "PLAINTEXT")

        # `host` and `port` are for readers of version 1, which has no listeners.
        first = next(plaintext, None)
        value: dict[str, object] = {
            "features": dict(self.features),
            "listener_security_protocol_map": dict(self.security_protocols),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "rack": self.rack,
            "jmx_port": self.jmx_port,
            "port": first.port if first else -1,
            "host": first.host if first else None,
            "version": self.version,
            "timestamp": str(self.timestamp_ms),
        }
        if self.version < 5:
            del value["features"]

        # Kafka leaves the key out; it does not write null.
        if self.rack is None:
            del value["rack"]

        # Kafka's readers ignore the key, as they do with every key that they do not use.
        if self.kept_since is not None:
            value["kept_since"] = str(self.kept_since)
        return to_json(value)

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "BrokerRegistration":
        fields = Fields.parse(data, path)
        version = fields.integer("version")
        if version > 1:
            endpoints = _endpoints(fields)
        else:
            endpoints = (Endpoint("PLAINTEXT", fields.text("host"), fields.integer("port")),)

        protocols = fields.strings("listener_security_protocol_map")
        return cls(
            endpoints=endpoints,
            # Before version 4 a listener was named after its security protocol.
            security_protocols=protocols or {endpoint.listener: endpoint.listener for endpoint in endpoints},
            timestamp_ms=fields.long("timestamp", -1),
            rack=fields.optional_text("rack"),
            features={name: each.all_integers() for name, each in fields.members("features").items()},
            jmx_port=fields.integer("jmx_port", -1),
            version=version,
            kept_since=fields.own_long("kept_since"),
        )


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    try:
        return tuple(Endpoint.parse(each) for each in fields.array("endpoints", str, "an array of strings"))
    except ValueError as error:
        fields.fail(str(error))


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/T: the replicas of every partition. Written as version 3.

    Version 2 has no topic id, version 1 has neither that nor `adding` and `removing`. As in Kafka, the version is not
    read: each key but `partitions` is optional.
    """

    partitions: Mapping[int, Sequence[int]]  # partition index -> broker ids, the preferred leader first
    topic_id: bytes | None = None
    adding: Mapping[int, Sequence[int]] = field(default_factory=dict)  # only partitions that are being reassigned
    removing: Mapping[int, Sequence[int]] = field(default_factory=dict)  # likewise

    def encode(self) -> bytes:
        value: dict[str, object] = {"partitions": _keyed_by_text(self.partitions)}
        if self.topic_id is not None:
            value["topic_id"] = topic_id_text(self.topic_id)
        value["adding_replicas"] = _keyed_by_text(self.adding)
        value["removing_replicas"] = _keyed_by_text(self.removing)
        value["version"] = 3
        return to_json(value)

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "TopicAssignment":
        fields = Fields.parse(data, path)
        return cls(
            partitions=fields.replicas(fields.required("partitions")),
            topic_id=fields.optional_topic_id("topic_id"),
            adding=fields.replicas("adding_replicas"),
            removing=fields.replicas("removing_replicas"),
        )


RECOVERED, RECOVERING = 0, 1


class PartitionState(NamedTuple):
    """/brokers/topics/T/partitions/P/state. The partition epoch is the node's version."""

    leader: int  # NO_LEADER when the partition has none
    leader_epoch: int
    controller_epoch: int  # of the last controller that wrote the state
    isr: tuple[int, ...]
    leader_recovery_state: int = RECOVERED  # RECOVERING after an unclean election, until the leader reports (KIP-704)

    def encode(self) -> bytes:
        value: dict[str, object] = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        # An absent key means RECOVERED, as in Kafka.
        if self.leader_recovery_state != RECOVERED:
            value["leader_recovery_state"] = self.leader_recovery_state
        return to_json(value | {"leader_epoch": self.leader_epoch, "isr": list(self.isr)})

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "PartitionState":
        fields = Fields.parse(data, path)
        # The next election writes this epoch plus one, and that must be an int32 as well.
        if not 0 <= fields.integer("leader_epoch") < INT32_MAX:
            fields.wrong("leader_epoch", "an epoch that another can follow")
        return cls(
            leader=fields.integer("leader"),
            leader_epoch=fields.integer("leader_epoch"),
            controller_epoch=fields.integer("controller_epoch"),
            isr=tuple(fields.integers("isr")),
            leader_recovery_state=fields.integer("leader_recovery_state", RECOVERED),
        )


class ControllerNode(NamedTuple):
    """/controller: the active controller. Written as version 2; version 1 has no KRaft epoch."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1

    def encode(self) -> bytes:
        value = {"version": 2, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)}
        return to_json(value | {"kraftControllerEpoch": self.kraft_controller_epoch})

    @classmethod
    def decode(cls, data: bytes | None, path: str = CONTROLLER) -> "ControllerNode":
        fields = Fields.parse(data, path)
        return cls(fields.integer("brokerid"), fields.long("timestamp", -1), fields.integer("kraftControllerEpoch", -1))


class ControllerEpoch(NamedTuple):
    """/controller_epoch: decimal digits, not JSON. The node's version is the fencing token."""

    epoch: int

    def encode(self) -> bytes:
        return str(self.epoch).encode("ascii")

    @classmethod
    def decode(cls, data: bytes | None, path: str = CONTROLLER_EPOCH) -> "ControllerEpoch":
        if data is None or not data.isdigit() or int(data) > INT32_MAX:
            raise ValueError(f"{path}: {data!r:.100} is not an epoch")
        return cls(int(data))


class ConfigEntity(NamedTuple):
    """/config/<type>/<name>: the overrides of an entity; all values are strings."""

    config: Mapping[str, str]

    def encode(self) -> bytes:
        return to_json({"version": 1, "config": dict(self.config)})

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "ConfigEntity":
        # A parent of other entities, such as a user who has only clients, has null data and no overrides.
        if data is None:
            return cls({})
        fields = Fields.parse(data, path)
        # Another version may mean something else, so none of it is applied.
        if fields.integer("version") != 1:
            fields.fail("this version of a configuration is not known")
        return cls(fields.strings(fields.required("config")))


class ConfigChange(NamedTuple):
    """/config/changes/config_change_N: the entity whose configuration changed, such as `topics/orders`."""

    entity_path: str

    def encode(self) -> bytes:
        return to_json({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "ConfigChange":
        fields = Fields.parse(data, path)
        # Kafka reads version 1 still, and writes version 2.
        match fields.integer("version"):
            case 1:
                return cls(f"{fields.text('entity_type')}/{fields.text('entity_name')}")
            case 2:
                return cls(fields.text("entity_path"))
            case version:
                fields.fail(f"version {version} of a configuration change is not known")

    @property
    def entity_type(self) -> str:
        """The first part of the path: topics, brokers, clients, users, ips."""
        return self.entity_path.partition("/")[0]

    @property
    def entity_name(self) -> str:
        """The rest of the path, still sanitized; `U/clients/C` for a client of a user."""
        return self.entity_path.partition("/")[2]


class PartitionList(NamedTuple):
    """/admin/preferred_replica_election and /isr_change_notification/isr_change_N: the partitions concerned."""

    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        listed = [{"topic": each.topic, "partition": each.partition} for each in self.partitions]
        return to_json({"version": 1, "partitions": listed})

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "PartitionList":
        each = Fields.parse(data, path).objects("partitions")
        return cls(tuple(fields.topic_partition() for fields in each))


class Reassignment(NamedTuple):
    """/admin/reassign_partitions: the target replicas of each partition."""

    partitions: Mapping[TopicPartition, Sequence[int]]

    def encode(self) -> bytes:
        listed = [
            {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
            for each, replicas in self.partitions.items()
        ]
        return to_json({"version": 1, "partitions": listed})

    @classmethod
    def decode(cls, data: bytes | None, path: str = REASSIGN_PARTITIONS) -> "Reassignment":
        each = Fields.parse(data, path).objects("partitions")
        return cls({fields.topic_partition(): fields.integers("replicas") for fields in each})


class LogDirEvent(NamedTuple):
    """/log_dir_event_notification/log_dir_event_N: a broker lost a log directory (event 1; Kafka has no other)."""

    broker_id: int

    def encode(self) -> bytes:
        return to_json({"version": 1, "broker": self.broker_id, "event": 1})

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "LogDirEvent":
        return cls(Fields.parse(data, path).integer("broker"))


class ProducerIdBlock(NamedTuple):
    """/latest_producer_id_block: the last block that was allocated, both ends included (reference E.5)."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        start = str(self.first)
        end = str(self.last)
        return to_json({"version": 1, "broker": self.broker_id, "block_start": start, "block_end": end})

    @classmethod
    def decode(cls, data: bytes | None, path: str = PRODUCER_ID_BLOCK) -> "ProducerIdBlock":
        fields = Fields.parse(data, path)
        return cls(fields.integer("broker"), fields.long("block_start"), fields.long("block_end"))


@dataclass(frozen=True, slots=True)
class FeatureNode:
    """/feature: finalized feature levels. Version 1 (before 3.3) also has minimum levels, which were always 1."""

    enabled: bool
    max_version_levels: Mapping[str, int] = field(default_factory=dict)
    version: int = 2

    def encode(self) -> bytes:
        lowest = {"min_version_level": 1} if self.version == 1 else {}
        levels = {name: {**lowest, "max_version_level": level} for name, level in self.max_version_levels.items()}
        return to_json({"features": levels, "version": self.version, "status": int(self.enabled)})

    @classmethod
    def decode(cls, data: bytes | None, path: str = FEATURE) -> "FeatureNode":
        fields = Fields.parse(data, path)
        levels = {name: each.integer("max_version_level") for name, each in fields.members("features").items()}
        return cls(fields.integer("status") == 1, levels, fields.integer("version"))


def _keyed_by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(index): list(replicas[index]) for index in sorted(replicas)}
