"""No request holds the event loop for long: whatever it is filled with, and whatever earlier requests have left.

`make test ARGS="tests/broker/test_steps.py -s"` prints the longest steps of each API.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.server.dispatch import answer
from barnabas.storage.checkpoint import OFFSET_CHECKPOINTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Machine
from tests.broker.histories import Scene, scene_of
from tests.broker.steps import Step, StepMeter, step_max_ms
from tests.broker.worst_requests import ELEMENTS, SAMPLED_ELEMENTS, SERVED, TOPIC, Filler, Filling, Path, shapes

COUNT = 3_000
PATIENCE_SECONDS = 1.0  # in virtual time: what waits for others may do so for long
AFTERMATH_SECONDS = 0.1
MEASURED_AGAIN = 2  # other programs on the machine make a step longer, none makes it shorter


SAMPLE = (0, 3, 9, 10, 15, 42, 65)  # what clients ask often, and what hashes names

# Fields whose elements are gone through in one step, and why.
ONE_STEP = "from a controller: all partitions that it names enter their lines, or change, together"
EXCEPTIONS = {
    ("LeaderAndIsr", "topic_states"): ONE_STEP,
    ("LeaderAndIsr", "ungrouped_partition_states"): ONE_STEP,
    ("StopReplica", "topics"): ONE_STEP,
    ("StopReplica", "topic_states"): ONE_STEP,
    ("StopReplica", "ungrouped_partitions"): ONE_STEP,
    ("UpdateMetadata", "topic_states"): ONE_STEP,
    ("UpdateMetadata", "ungrouped_partition_states"): ONE_STEP,
    ("UpdateMetadata", "live_brokers"): "a cluster has some hundred brokers, not 20,000",
}


class Row(NamedTuple):
    """A row of the table: a request, and its longest step."""

    api: str
    version: int
    field: str
    content: str
    step: Step

    def __str__(self) -> str:
        return f"{self.step.ms:7.2f} ms  {self.api} {self.version}  {self.field}: {self.content}  {self.step}"


async def longest_step(scene: Scene, request: m.Message, version: int) -> Step:
    """The longest step of the broker while it handles this request, and a little later."""
    is_answered = False
    with StepMeter(but=trio.lowlevel.current_task()) as meter:
        with trio.move_on_after(PATIENCE_SECONDS):
            try:
                await scene.client.send(request, version)
                await scene.client.receive_frame()
                is_answered = True
            except ConnectionLost:
                pass
        # It waits, is not answered, or was refused by the end of the connection.
        if not is_answered:
            scene.client.close()
        await trio.sleep(AFTERMATH_SECONDS)
    if not is_answered:
        await scene.connect()
    return meter.longest


async def measured(scene: Scene, filler: Filler, path: Path, filling: Filling) -> Step:
    """The shortest of some measurements of the longest step, if the first one is too long."""
    steps = []
    while not steps or (steps[-1].ms >= step_max_ms() and len(steps) <= MEASURED_AGAIN):
        filler.seed += 1
        steps.append(await longest_step(scene, filler.request(path, filling), filler.version))
    return min(steps)


async def check(scene: Scene, *, sample: bool = False) -> None:
    """Compare the longest step of each request that the schema of the API allows with the limit."""
    api, table = APIS[scene.api_key], []
    for version in shapes(scene.api_key)[-1:] if sample else shapes(scene.api_key):
        filler = Filler(scene.api_key, version)
        filler.meant |= scene.meant
        few, elements = sample or version != api.max_version, SAMPLED_ELEMENTS if sample else ELEMENTS
        for path, field in filler.leaves():
            for filling in filler.fillings(path, field, few=few, elements=elements):
                step = await measured(scene, filler, path, filling)
                table.append(Row(api.name, version, ".".join(path), filling.name, step))
    print("", *sorted(table, key=lambda row: -row.step.ms)[:5], sep="\n")
    too_long = [
        row
        for row in table
        if row.step.ms >= step_max_ms() and (row.api, row.field.partition(".")[0]) not in EXCEPTIONS
    ]
    assert not too_long, "\n".join(map(str, too_long))


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: APIS[key].name)
async def test_no_request_takes_a_long_step_of_a_broker_with_much(nursery, autojump_clock, api_key):
    await check(await scene_of(nursery, api_key))


@pytest.mark.parametrize("api_key", SAMPLE, ids=lambda key: APIS[key].name)
async def test_a_request_of_long_names_takes_no_long_step(nursery, autojump_clock, api_key):
    await check(await scene_of(nursery, api_key, with_history=False), sample=True)


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
