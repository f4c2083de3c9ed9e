"""No request holds the event loop for long, however many things it names: for every list that a request can have."""

from collections.abc import Iterator

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.server.dispatch import HANDLERS, answer
from barnabas.storage.checkpoint import OFFSET_CHECKPOINTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, request_class
from barnabas.wire.errors import ErrorCode
from barnabas.wire.schema import Field
from barnabas.wire.topics import TopicPartition
from tests.broker.harness import Machine
from tests.broker.steps import StepMeter

COUNT = 3_000  # of elements
PATIENCE_SECONDS = 1.0  # in virtual time: what waits for the store at each element may go on for long
TOPIC = "t"
LEFT_OUT = {"group_instance_id"}  # a group of static members alone waits for more of them
Fields = tuple[Field, ...]
Path = tuple[str, ...]

# What a field must hold for a request to get beyond the first look at it. Other names are those of a topic that exists,
# but for the many elements, which all have other names; other numbers are 0.
MEANT = {
    "acks": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "operation": 3,
    "permission_type": 3,
    "permission_type_filter": 3,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "mechanism": 1,
    "iterations": 4096,
    "num_partitions": 0,
    "replication_factor": 1,
    "entity_type": "user",
    "session_timeout_ms": 10_000,
    "broker_epoch": -1,
}


class Filler:
    """Makes the request of one API that has COUNT elements in one of its lists, and one in those around it."""

    def __init__(self, api_key: int) -> None:
        self.version = APIS[api_key].max_version
        self.message = request_class(APIS[api_key])
        self.schema = m.schemas()[self.message.__name__]

    def lists(self, fields: Fields | None = None) -> Iterator[Path]:
        """The way to each list: ("topics",), ("topics", "partitions") ..."""
        for field in self.schema.fields if fields is None else fields:
            if field.exists_in(self.version):
                if field.is_array:
                    yield (field.name,)
                if field.is_struct:
                    yield from ((field.name, *inner) for inner in self.lists(self.schema.fields_of(field)))

    def request(self, path: Path) -> m.Message:
        return self.message(**self._values(self.schema.fields, path))

    def _values(self, fields: Fields, path: Path, number: int | None = None) -> dict:
        existing = [field for field in fields if field.exists_in(self.version)]
        return {field.name: self._value(field, path, number) for field in existing if field.name not in LEFT_OUT}

    def _value(self, field: Field, path: Path, number: int | None):
        if field.is_array:
            count = COUNT if path == (field.name,) else int(path[:1] == (field.name,))
            return [self._element(field, path[1:], each if count == COUNT else None) for each in range(count)]
        if field.is_struct:
            return self._element(field, path[1:] if path[:1] == (field.name,) else (), None)
        return self._scalar(field, field.type, number)

    def _element(self, field: Field, path: Path, number: int | None):
        if not field.is_struct:
            return self._scalar(field, field.element, number)
        return getattr(self.message, field.element)(**self._values(self.schema.fields_of(field), path, number))

    def _scalar(self, field: Field, kind: str, number: int | None):
        if field.name in MEANT:
            return MEANT[field.name]
        if kind == "string":
            return TOPIC if number is None else f"{TOPIC}{number}"
        if (
            kind in ("int32", "int64")
            and number is not None
            and (field.is_array or "partition" in field.name or field.name == "index")
        ):
            return number
        return field.default_value() if not field.is_array else {"uuid": bytes(16), "bytes": b""}.get(kind, 0)


EVERY_LIST = [
    pytest.param(key, path, id=f"{APIS[key].name}-{'.'.join(path)}")
    for key in sorted(HANDLERS)
    for path in Filler(key).lists()
]


@pytest.mark.thorough
@pytest.mark.parametrize(("api_key", "path"), EVERY_LIST)
async def test_a_long_list_in_a_request_is_gone_through_in_many_steps(nursery, autojump_clock, api_key, path):
    machine = await Machine(nursery).start()
    await (await machine.connect()).create_topic(TOPIC)
    call = Call(api_key, APIS[api_key].max_version, "test", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    request = Filler(api_key).request(path)
    with StepMeter() as meter, trio.move_on_after(PATIENCE_SECONDS):
        await answer(machine.broker, call, request, 100 * COUNT)
    meter.check()


async def test_the_leaders_of_many_partitions_led_elsewhere_are_named_in_many_steps(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    state, rows = m.UpdateMetadataRequest, m.ProduceRequest
    states = [state.UpdateMetadataPartitionState(partition_index=each, leader=2, replicas=[2]) for each in range(COUNT)]
    topic = state.UpdateMetadataTopicState(topic_name=TOPIC, topic_id=bytes(15) + b"1", partition_states=states)
    endpoint = state.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT")
    update = state(
        controller_id=machine.serving.broker_id,
        controller_epoch=await machine.controller_epoch(),
        broker_epoch=-1,
        topic_states=[topic],
        live_brokers=[
            state.UpdateMetadataBroker(id=each, endpoints=[endpoint]) for each in (2, machine.serving.broker_id)
        ],
    )
    client = await machine.connect()
    # Twice: after the first one the broker looks which topics exist in the store.
    for _ in range(2):
        assert (await client.ask(update, 8)).error_code == 0
        await trio.sleep(1)
    data = [rows.PartitionProduceData(index=each, records=memoryview(b"")) for each in range(COUNT)]
    request = rows(acks=1, topic_data=[rows.TopicProduceData(name=TOPIC, partition_data=data)])
    call = Call(0, 10, "test", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    with StepMeter() as meter:
        answered = await answer(machine.broker, call, request)
    assert {row.current_leader.leader_id for row in answered.responses[0].partition_responses} == {2}
    assert [node.host for node in answered.node_endpoints] == ["h"]
    meter.check()


async def test_all_of_a_broker_and_of_its_topics_is_described_in_many_steps(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await (await machine.connect()).create_topic(TOPIC)
    call = Call(32, 4, "test", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    me = str(machine.serving.broker_id)
    resources = [
        m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in [(4, me), (2, TOPIC), (8, me), (4, ""), (4, f"+{me}"), (2, TOPIC)]
    ]
    request = m.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    with StepMeter() as meter:
        answered = await answer(machine.broker, call, request)
    assert [row.error_code for row in answered.results] == [0] * 6
    meter.check()


@pytest.mark.parametrize(
    "repeated",
    [
        m.DescribeGroupsRequest(groups=["g"] * 12),
        m.DescribeConfigsRequest(
            resources=[m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="")] * 12
        ),
        m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)] * 12),
        m.DescribeProducersRequest(
            topics=[m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0] * 12)]
        ),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_a_request_that_names_one_thing_too_often_is_refused(nursery, autojump_clock, repeated):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic(TOPIC)
    answered = await client.ask(repeated)
    codes = [code for name, code in every_code(answered) if name == "error_code"]
    assert ErrorCode.INVALID_REQUEST in codes


def every_code(struct) -> Iterator[tuple[str, int]]:
    """Each number in an answer that has a name like a code's."""
    for name in struct.__slots__:
        value = getattr(struct, name)
        if name.endswith("error_code"):
            yield name, value
        for inner in value if isinstance(value, (list, tuple)) else ():
            if hasattr(inner, "__slots__"):
                yield from every_code(inner)


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
async def test_the_offsets_of_many_logs_are_collected_in_many_steps(nursery, autojump_clock, name):
    machine = await Machine(nursery).start()
    await (await machine.connect()).create_topic(TOPIC)
    logs = machine.broker.replicas.logs
    (directory,) = logs.directories
    (log,) = directory.logs.values()
    directory.logs |= {TopicPartition("many", number): log for number in range(COUNT)}
    with StepMeter() as meter:
        await logs.checkpoints.write(directory, name)
    meter.check()
