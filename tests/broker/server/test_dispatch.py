"""Dispatch: the table, refusals in each API's own form, and what a mistake in a handler costs."""

import pytest
import trio

from barnabas.broker.server import dispatch
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.wire.schema import Field
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, fetched, produce_request

SERVED = [api for api in APIS.values() if api.served]
CANNOT_REFUSE = {(35, 0), (35, 1), (35, 2)}  # versions without an error for the whole, and nothing asked has its own

HOW_TO_REFUSE = (
    "refuse_<handler> in broker/handlers/ puts the error into each row of the response, "
    "and is the second part of the Route in HANDLERS of broker/server/dispatch.py"
)


class Planted(Exception):
    """A mistake of ours."""


@pytest.fixture
def plant(monkeypatch):
    """Let the handler of one API raise."""

    def planting(key: int, error: Exception) -> None:
        async def broken(broker, call, request):
            await trio.lowlevel.checkpoint()
            raise error

        monkeypatch.setitem(dispatch.HANDLERS, key, dispatch.HANDLERS[key]._replace(handle=broken))
        monkeypatch.setitem(dispatch._WAITS, key, True)

    return planting


def codes_in(value) -> list[int]:
    """Every error code of an answer, from whatever depth."""
    found = []
    for name in value.FIELDS:
        field = getattr(value, name)
        if name in ("error_code", "partition_error_code"):
            found.append(field)
        for each in field if isinstance(field, list | tuple) else [field]:
            if hasattr(each, "FIELDS"):
                found += codes_in(each)
    return found


def asking(key: int, version: int) -> m.Message:
    """A request with one element in every list."""
    message = m.request_class(APIS[key])
    schema = m.schemas()[message.__name__]

    def filled(cls: type, fields: tuple[Field, ...]):
        return cls(**{field.name: value_of(field) for field in fields if field.exists_in(version)})

    def value_of(field: Field):
        if field.name == "acks":
            return -1  # with 0 there is no response
        one = filled(getattr(message, field.element), schema.fields_of(field)) if field.is_struct else None
        if field.is_array:
            return [one or {"string": "t", "bytes": b"", "uuid": bytes(16)}.get(field.element, 0)]
        return one or ("t" if field.type == "string" else field.default_value())

    return filled(message, schema.fields)


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_api_can_refuse_a_whole_request_in_every_version(api):
    assert dispatch.HANDLERS[api.key].refuse is not None or hasattr(m.response_class(api), "error_code"), (
        f"{api.name}Response has no error_code for the whole request: {HOW_TO_REFUSE}"
    )
    for version in range(api.min_version, api.max_version + 1):
        asked = m.encode(asking(api.key, version), version)
        request = m.decode(m.request_class(api), version, asked)
        refused = dispatch.refused(api.key, request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        again = m.decode(m.response_class(api), version, m.encode(refused, version))
        expected = set() if (api.key, version) in CANNOT_REFUSE else {ErrorCode.UNKNOWN_SERVER_ERROR}
        refusal = f"{api.name} v{version} is refused with {again}: {HOW_TO_REFUSE}"
        assert set(codes_in(again)) - {ErrorCode.NONE} == expected, refusal


@pytest.mark.parametrize("key", [0, 1, 2, 3, 18, 19, 20, 22])
@pytest.mark.provokes_mistakes
async def test_an_exception_in_a_handler_is_answered_and_no_other_connection_notices(
    nursery, autojump_clock, plant, caplog, key
):
    machine = await Machine(nursery).start()
    client, bystander = await machine.connect(), await machine.connect()
    await client.create_topic("t")
    await bystander.send(fetch_request([("t", 0, 0)], max_wait_ms=10_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    plant(key, Planted("oh"))
    version = 12 if key == 1 else APIS[key].max_version
    answer = await client.ask(asking(key, version), version)
    assert ErrorCode.UNKNOWN_SERVER_ERROR in codes_in(answer)
    assert "Planted: oh" in caplog.text
    assert "from client 'test'" in caplog.text
    assert [row.error_code for _, row in fetched(await bystander.receive())] == [0]
    assert (await client.ask(m.ListGroupsRequest())).error_code == 0


@pytest.mark.provokes_mistakes
async def test_an_exception_in_a_produce_without_answer_closes_its_connection(nursery, autojump_clock, plant):
    machine = await Machine(nursery).start()
    client, bystander = await machine.connect(), await machine.connect()
    plant(0, Planted("oh"))
    await client.send(produce_request("t", b"x", acks=0))
    assert await client.is_closed(within_seconds=1)
    assert (await bystander.ask(m.MetadataRequest(topics=[]))).brokers


async def test_a_refusal_is_the_code_it_says(nursery, autojump_clock, plant):
    client = await (await Machine(nursery).start()).connect()
    plant(22, Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    answer = await client.ask(m.InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_violation_of_the_protocol_closes_the_connection(nursery, autojump_clock, plant):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    plant(18, ProtocolViolation("no"))
    await client.send(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert await client.is_closed(within_seconds=1)


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_tells_exactly_what_is_served(nursery, autojump_clock, version):
    client = await (await Machine(nursery).start()).connect()
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1") if version > 2 else None
    answer = await client.ask(request or m.ApiVersionsRequest(), version)
    listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert listed == {key: (api.min_version, api.max_version) for key, api in APIS.items() if api.served}
    assert listed.keys() <= dispatch.HANDLERS.keys()


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä"])
async def test_a_malformed_software_name_is_an_invalid_request(nursery, autojump_clock, name):
    client = await (await Machine(nursery).start()).connect()
    answer = await client.ask(m.ApiVersionsRequest(client_software_name=name, client_software_version="1"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_large_request_is_decoded_and_answered_as_a_small_one(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    names = [f"topic-{number:04d}-{'x' * 100}" for number in range(2000)]
    answer = await client.metadata(*names)
    assert list(answer) == names
    assert {topic.error_code for topic in answer.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
