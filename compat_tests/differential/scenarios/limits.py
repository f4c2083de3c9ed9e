"""Where Barnabas has limits that Kafka lacks: both serve what is within them; what is beyond is in `known.py`."""

import socket
import struct

import snappy

from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.runtime import varint
from compat_tests.differential.asking import MIB, PAST_MS, batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_groups import join, offsets_of
from compat_tests.differential.scenario import scenario
from tests.wire.bombs import batch_of, header_bomb, record_of_zeros, value_bomb, window_bomb

HEADERS_MAX = 65_536  # of one record
TAGS_MAX = 100  # unknown ones, of one struct
TIMES_MAX = 11  # that one request may name the same thing
PROTOCOLS_MAX = 100  # of a member
SECONDS = 60.0  # for what takes Kafka long
METADATA = 3
NO_TOPICS = b"\x01\x00\x00\x00"  # Metadata v9: no topics, and three flags
BROKER = 4
FRESH = (0, 0)  # a full fetch that may open a session


def _in_one_snappy_block(value_bytes):
    """One record without the frame of the Java library, as librdkafka sends it."""
    return batch_of(snappy.compress(b"".join(record_of_zeros(value_bytes))), Codec.SNAPPY)


@scenario
def batches_that_decompress_to_much(side):
    """A few kilobytes each, or one or two MiB of snappy; what is refused is not in the log."""
    batches = {
        "a value of 100 MiB": value_bomb(100 * MIB, Codec.GZIP),
        "a zstd window of 32 MiB": window_bomb(25, 40 * MIB),
        "a snappy block of 30 MiB": _in_one_snappy_block(30 * MIB),
        "beyond: a value of 129 MiB": value_bomb(129 * MIB),
        "beyond: a zstd window of 64 MiB": window_bomb(26, 40 * MIB),
        "beyond: a snappy block of 40 MiB": _in_one_snappy_block(40 * MIB),
    }
    topic = side.create_topic("one", max_message_bytes=str(4 * MIB))
    with side.connect() as client:
        for name, records in batches.items():
            yield name, client.ask(produce_one(topic, bytes(records)), 9, SECONDS)
            yield f"{name}, the end", client.ask(list_offsets({topic: [(0, -1)]}), 7)


@scenario
def records_with_many_headers(side):
    topics = {
        "stored as it is": side.create_topic("plain"),
        "compressed again": side.create_topic("lz4", compression_type="lz4"),
        "compacted": side.create_topic("compacted", cleanup_policy="compact"),
    }
    with side.connect() as client:
        for name, topic in topics.items():
            for count in (HEADERS_MAX, HEADERS_MAX + 1):
                request = produce_one(topic, bytes(header_bomb(count)))
                yield f"{name}, {count} headers", client.ask(request, 9, SECONDS)
                yield f"{name}, {count} headers, the end", client.ask(list_offsets({topic: [(0, -1)]}), 7)


@scenario
def requests_with_many_tags(side):
    """Unknown tags, in the header and in the body."""
    head = struct.pack(">hhih", METADATA, 9, 1, 2) + b"ab"
    for count in (TAGS_MAX, TAGS_MAX + 1, 1000):
        tags = varint(count) + b"".join(varint(number) + b"\x01z" for number in range(count))
        for name, header, body in (("header", head + tags, b"\x00"), ("body", None, tags)):
            with side.connect() as client:
                client.send_body(METADATA, 9, NO_TOPICS + body, header)
                answer = client.receive()
            yield f"{count} in the {name}", answer if isinstance(answer, str) else "answered"


@scenario
def requests_that_name_one_thing_often(side):
    topic, group = side.create_topic("one"), side.name("group")
    side.await_coordinator(group)
    Described, Resource = m.DescribeConfigsRequest, m.DescribeConfigsRequest.DescribeConfigsResource
    broker = Resource(resource_type=BROKER, resource_name="1", configuration_keys=["log.retention.ms"])
    Producers, Partitions = m.DescribeProducersRequest, m.DescribeProducersRequest.TopicRequest
    for times in (TIMES_MAX, TIMES_MAX + 1):
        cases = {
            "groups": (m.DescribeGroupsRequest(groups=[group] * times), 5),
            "configs": (Described(resources=[broker] * times), 4),
            "offsets": (m.OffsetFetchRequest(groups=offsets_of(group, [(topic, [0])]).groups * times), 8),
            "producers": (Producers(topics=[Partitions(name=topic, partition_indexes=[0] * times)]), 0),
            "coordinators": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group] * times), 4),
        }
        with side.connect() as client:
            for name, (request, version) in cases.items():
                yield f"{name}, {times} times", client.ask(request, version)


@scenario
def members_that_bring_much(side):
    cases = {
        "100 protocols": [(f"p{number}", b"m") for number in range(PROTOCOLS_MAX)],
        "a subscription of 900 kB": [("range", bytes(900_000))],
        "beyond: 101 protocols": [(f"p{number}", b"m") for number in range(PROTOCOLS_MAX + 1)],
        "beyond: a subscription of 3 MiB": [("range", bytes(3 * MIB))],
    }
    for name, protocols in cases.items():
        group = side.name(str(len(protocols)) + str(len(protocols[0][1])))
        side.await_coordinator(group)
        yield name, side.ask(join(group, protocols=protocols), 2)


@scenario
def requests_for_many_partitions(side):
    """The partitions are unknown, so an answer has a row for each; only the number of rows per error is compared."""
    topic, own = side.create_topic("one"), []
    for name, count in {"50,000": 50_000, "40,000 more": 40_000, "and 40,000 more": 40_000, "100,000": 100_000}.items():
        asked = fetch([(topic, [(1 + number, 0) for number in range(count)])], session=FRESH)
        answer = side.ask(asked, 12, SECONDS)
        yield name, answer if isinstance(answer, str) else _summary(answer)
        own += [] if isinstance(answer, str) else [answer.session_id]
    for session in filter(None, own):
        side.ask(fetch([], session=(session, -1)), 12)


def _summary(answer):
    rows = [row for topic in answer.responses for row in topic.partitions]
    errors = sorted({row.error_code for row in rows})
    return {"error": answer.error_code, "has a session": answer.session_id > 0, "rows": len(rows), "errors": errors}


@scenario
def a_client_that_sends_no_more(side):
    """It ends its own direction of the connection behind a request."""
    topic = side.create_topic("one")
    requests = {
        "answered at once": m.MetadataRequest(topics=[]),
        "while it waits": fetch([(topic, [(0, 0)])], wait_ms=5000),
    }
    for name, request in requests.items():
        with side.connect() as client:
            client.send(request, 12)
            client.socket.shutdown(socket.SHUT_WR)
            answer = client.receive()
            yield name, answer if isinstance(answer, str) else "answered"


@scenario
def much_for_an_old_consumer(side):
    """Three batches of 900 kB, which are converted to format 1."""
    topic = side.create_topic("one")
    with side.connect() as client:
        for number in range(3):
            client.ask(produce_one(topic, batch(b"%d" % number * 900_000, at=PAST_MS)), 9)
        for offset in range(3):
            answer = client.ask(fetch([(topic, [(0, offset)])], max_bytes=8 * MIB, partition_bytes=8 * MIB), 3)
            ((row,),) = [of.partitions for of in answer.responses]
            yield f"from {offset}", [row.error_code, row.high_watermark, len(row.records) // 900_000]
