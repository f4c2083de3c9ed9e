"""The page's views of the cluster: its brokers, its topics, its configuration, its ACLs and quotas.

Each function answers one route with JSON. What it says comes from Kafka's own handlers (`asking.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import trio

import barnabas
from barnabas.broker.life import Life
from barnabas.console.asking import Asking, asking_for, check
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, json_answer, whole_number
from barnabas.console.long_json import long_json_answer
from barnabas.console.offsets import PARTITIONS_MAX, UNKNOWN, Ends, ends_of
from barnabas.console.replica_rows import Row, replica_row
from barnabas.security.acls.acls import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost, error_name
from barnabas.wire.topics import INTERNAL_TOPICS, TopicPartition, topic_id_text
from barnabas.world.metadata import TopicInfo
from barnabas.world.pacing import paced

ANY = 1  # a filter of DescribeAcls that takes everything
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
# DescribeConfigs says where a value comes from, by number.
CONFIG_SOURCES = {
    1: "topic",
    2: "broker, dynamic",
    3: "cluster, dynamic",
    4: "file or command line",
    5: "default",
    6: "logger, dynamic",
}


async def cluster(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/cluster`: brokers, and what is wrong with partitions."""
    asking = asking_for(life, request)
    broker = asking.broker

    # The feed sends the state again when it changes. The rest is sent once for each load of the page: the directories
    # of other brokers are no live figures.
    state = await cluster_state(asking)
    return json_answer(
        state
        | {
            "version": barnabas.__version__,
            "state": life.state.name.lower(),
            "principal": asking.principal,
            "now_ms": broker.world.now_ms(),
            "log_dirs": await _log_dirs(asking),
        }
    )


async def cluster_state(asking: Asking) -> Row:
    """Brokers, the controller, and counts of the partitions that the caller may see."""
    described = await asking.ask(m.DescribeClusterRequest(), m.DescribeClusterResponse)
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    counts: Counter[str] = Counter()
    topics: dict[str, None] = {}

    # Only the partitions that the caller may see are counted: a count of all would reveal the others.
    async for key, info in asking.partitions():
        topics[key.topic] = None
        leaders[info.leader_id] += 1
        replicas.update(info.replicas)
        in_sync.update(info.in_sync_replicas)
        counts["partitions"] += 1
        counts["under_replicated"] += len(info.in_sync_replicas) < len(info.replicas)

        # The controller has not elected another leader yet, or there is none to elect.
        counts["offline"] += info.leader_id not in asking.broker.metadata.brokers

    return {
        "broker": asking.broker.broker_id,
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "topics": len(topics),
        "partitions": counts["partitions"],
        "under_replicated": counts["under_replicated"],
        "offline": counts["offline"],
        "brokers": [
            {
                "broker": each.broker_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "leaders": leaders[each.broker_id],
                "replicas": replicas[each.broker_id],
                "out_of_sync": replicas[each.broker_id] - in_sync[each.broker_id],
            }
            for each in sorted(described.brokers, key=lambda each: each.broker_id)
        ],
    }


async def _log_dirs(asking: Asking) -> list[Row]:
    """The log directories of all brokers; none for a caller who may not describe the cluster."""
    if not asking.may("Describe", "Cluster"):
        return []
    found: list[Row] = []

    async def ask(broker_id: int) -> None:
        try:
            # No topic: the directories alone.
            response = await asking.ask_at(broker_id, m.DescribeLogDirsRequest(topics=[]), m.DescribeLogDirsResponse)
        # The page shows the directories of the brokers that answer.
        except PeerLost:
            return
        found.extend(
            {
                "broker": broker_id,
                "path": each.log_dir,
                "error": error_name(each.error_code) if each.error_code else None,
                "total_bytes": each.total_bytes,
                "usable_bytes": each.usable_bytes,
            }
            for each in response.results
        )

    async with trio.open_nursery() as nursery:
        for broker_id in asking.broker.metadata.brokers:
            nursery.start_soon(ask, broker_id)
    return sorted(found, key=lambda each: (str(each["broker"]), str(each["path"])))


# -- topics


async def topics(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics`: every topic that the caller may see, with the number of its records where leaders say it."""
    asking = asking_for(life, request)
    seen = await asking.topics()
    keys = [TopicPartition(topic.name, index) for topic in seen for index in topic.partitions]

    # Two requests to each leader. In a large cluster the list is shown without the numbers of records.
    ends = await ends_of(asking, keys) if len(keys) <= PARTITIONS_MAX else {}
    return await long_json_answer({"topics": [_topic_row(asking, topic, ends) async for topic in paced(seen)]})


def _topic_row(asking: Asking, topic: TopicInfo, ends: Mapping[TopicPartition, Ends]) -> Row:
    states = topic.partitions.values()
    alive = asking.broker.metadata.brokers
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in states), default=0),
        "under_replicated": sum(len(each.in_sync_replicas) < len(each.replicas) for each in states),
        "offline": sum(each.leader_id not in alive for each in states),
        "records": _records([ends.get(TopicPartition(topic.name, index), UNKNOWN) for index in topic.partitions]),
    }


def _records(ends: Sequence[Ends]) -> int | None:
    """How many offsets lie between the ends; None if one of them is not known."""
    # Compaction and markers of transactions leave gaps, so this is the most that there may be.
    total = 0
    for start, end in ends:
        if start is None or end is None:
            return None
        total += end - start
    return total


async def topic(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics/{topic}`: its partitions, as the feed sends them."""
    asking = asking_for(life, request)
    info = asking.topic(request.params["topic"])
    rows = await partition_rows(asking, info)
    head: Row = {"topic": info.name, "topic_id": topic_id_text(info.topic_id)}
    return await long_json_answer(head | {"partitions": rows})


async def partition_rows(asking: Asking, topic: TopicInfo) -> list[Row]:
    """A row of each partition of a topic that the caller sees."""
    keys = [TopicPartition(topic.name, index) for index in sorted(topic.partitions)]
    ends = await ends_of(asking, keys[:PARTITIONS_MAX])

    # If the topic was deleted while the leaders were asked, it has lost its partitions.
    return [
        replica_row(asking.broker, key, topic.partitions[key.partition], ends.get(key, UNKNOWN))
        async for key in paced(keys)
        if key.partition in topic.partitions
    ]


# -- configuration, ACLs, quotas


async def topic_configs(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics/{topic}/configs`."""
    asking = asking_for(life, request)
    return await _configs(asking, asking.broker.broker_id, TOPIC_RESOURCE, request.params["topic"])


async def broker_configs(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/brokers/{broker}/configs`: only that broker can say it."""
    asking = asking_for(life, request)
    name = request.params["broker"]
    broker_id = whole_number(name)
    if broker_id is None or broker_id not in asking.broker.metadata.brokers:
        raise BadRequest(f"there is no broker {name!r:.40}", status=404)

    # The other broker checks the rights of this broker, which has all rights. So the caller is checked here.
    if not asking.may("DescribeConfigs", "Cluster"):
        check(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"broker {broker_id}")
    return await _configs(asking, broker_id, BROKER_RESOURCE, str(broker_id))


async def _configs(asking: Asking, broker_id: int, resource_type: int, name: str) -> Answer:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    # Null for the keys asks for all of them.
    asked = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    response = await asking.ask_at(broker_id, asked, m.DescribeConfigsResponse)
    (result,) = response.results
    check(result.error_code, f"the configuration of {name}")

    # The synonyms say which value would be in effect if the one above were removed.
    return json_answer(
        {
            "configs": [
                {
                    "name": each.name,
                    "value": each.value,  # null if there is none, or if it is secret
                    "source": CONFIG_SOURCES.get(each.config_source, "unknown"),
                    "is_read_only": each.read_only,
                    "is_sensitive": each.is_sensitive,
                    "doc": each.documentation,
                    "synonyms": [
                        {
                            "name": synonym.name,
                            "value": synonym.value,
                            "source": CONFIG_SOURCES.get(synonym.source, "unknown"),
                        }
                        for synonym in each.synonyms
                    ],
                }
                for each in sorted(result.configs, key=lambda each: each.name)
            ]
        }
    )


async def acls(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/acls`: every ACL, or that there is no authorizer."""
    asking = asking_for(life, request)
    everything = m.DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = await asking.ask(everything, m.DescribeAclsResponse)

    # Kafka answers with an error if there is no authorizer. For a person who looks it is a state, not a failure.
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        return json_answer({"is_enabled": False, "acls": []})
    check(response.error_code, "ACLs")

    # A row for each entry: the page sorts and filters them by any column.
    rows = [
        {
            "resource_type": RESOURCE_TYPES.get(resource.resource_type, "unknown"),
            "resource": resource.resource_name,
            "pattern": PATTERN_TYPES.get(resource.pattern_type, "unknown"),
            "principal": entry.principal,
            "host": entry.host,
            "operation": OPERATIONS.get(entry.operation, "unknown"),
            "permission": PERMISSION_TYPES.get(entry.permission_type, "unknown"),
        }
        async for resource in paced(response.resources)
        for entry in resource.acls
    ]
    return await long_json_answer({"is_enabled": True, "acls": rows})


async def quotas(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/quotas`: every quota of users, client ids and addresses."""
    asking = asking_for(life, request)
    response = await asking.ask(
        m.DescribeClientQuotasRequest(components=[], strict=False), m.DescribeClientQuotasResponse
    )
    check(response.error_code, "quotas")

    # A name that is null is the default of its type.
    rows = [
        {
            "entity": [{"type": part.entity_type, "name": part.entity_name} for part in entry.entity],
            "values": {value.key: value.value for value in entry.values},
        }
        async for entry in paced(response.entries or ())
    ]
    return await long_json_answer({"quotas": rows})
