"""What clients depend on, answer by answer, as a running Apache Kafka 3.9.1 in ZooKeeper mode gave it.

Every expectation in this file was measured: the same requests went to Apache Kafka. An answer that looks odd is
Kafka's. Left out are answers that Kafka gives only because of an internal exception, and transactions.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import CONTROL, TRANSACTIONAL, build_batch, read_all_records
from compat_tests.brokers import BrokerProcess
from compat_tests.raw import RawClient, ask, create_topic, eventually, produce_request

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
CLIENT_KEYS = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 34, 35, 61)
UNKNOWN_ID = b"\x11" * 16


def batch(*values: bytes | None, key: bytes | None = None, timestamp_ms: int = NOW_MS, **fields: Any) -> bytes:
    return bytes(build_batch([(key, value) for value in values or (b"v",)], timestamp_ms=timestamp_ms, **fields).data)


def produce(client: RawClient, topic: str, records: bytes | None, version: int = 9, **fields: Any) -> Any:
    """The answer about the one partition."""
    return ask(client, produce_request(topic, records, **fields), version).responses[0].partition_responses[0]


def topic_id_of(client: RawClient, topic: str) -> bytes:
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    return ask(client, request, 12).topics[0].topic_id


def fetch_request(
    topics: Iterable[tuple[str | bytes, Sequence[tuple[int, int]]]],
    version: int = 12,
    *,
    session: tuple[int, int] = (0, -1),
    partition_max_bytes: int = 1 << 20,
    epochs: dict[str, int] | None = None,
    **fields: Any,
) -> m.FetchRequest:
    """[(topic name or id, [(partition, offset)])]; epochs are `current_leader_epoch` and `last_fetched_epoch`."""
    key = "topic_id" if version >= 13 else "topic"
    wanted = [
        m.FetchRequest.FetchTopic(
            **{key: topic},
            partitions=[
                m.FetchRequest.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **(epochs or {})
                )
                for index, offset in partitions
            ],
        )
        for topic, partitions in topics
    ]
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    return m.FetchRequest(topics=wanted, session_id=session[0], session_epoch=session[1], **limits)


def fetch(client: RawClient, topics: Any, version: int = 12, **fields: Any) -> Any:
    return ask(client, fetch_request(topics, version, **fields), version)


def fetched(answer: Any) -> dict[int, Any]:
    """Rows by partition, of one topic or several without a partition in common."""
    return {row.partition_index: row for topic in answer.responses for row in topic.partitions}


def values_in(row: Any) -> list[bytes | None]:
    return [record.value for _, record in read_all_records(row.records)]


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Any:
    with RawClient(shared_broker.port) as raw:
        yield raw


# -- every version


def plainest(key: int, version: int) -> m.Message:
    """A request of defaults, beside what it takes to get an answer."""
    request = getattr(m, f"{APIS[key].name}Request")()
    if key == 0:
        request.acks = 1
    if key == 9 and version >= 8:  # Kafka never answers one that names no group
        request.groups = [m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g")]
    return request


@pytest.mark.parametrize("key", CLIENT_KEYS, ids=lambda key: APIS[key].name)
def test_every_version_that_is_announced_is_answered_in_its_own_format(client: RawClient, key: int) -> None:
    (announced,) = (row for row in ask(client, m.ApiVersionsRequest(), 0).api_keys if row.api_key == key)
    assert (announced.min_version, announced.max_version) == (APIS[key].min_version, APIS[key].max_version)
    for version in range(announced.min_version, announced.max_version + 1):
        assert isinstance(ask(client, plainest(key, version), version), m.response_class(APIS[key]))


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("a.b-9", "1.0", 0),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("-a", "1", ErrorCode.INVALID_REQUEST),
        ("a", "1.", ErrorCode.INVALID_REQUEST),
        ("a b", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_names_its_software_badly_gets_an_error(
    client: RawClient, name: str, version: str, code: int
) -> None:
    request = m.ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = ask(client, request, 3)
    assert (answer.error_code, bool(answer.api_keys)) == (code, code == 0)


# -- Metadata, CreateTopics, DeleteTopics


def asked_topics(
    client: RawClient, version: int, *names: str | None, topic_id: bytes = bytes(16), **fields: Any
) -> Any:
    topics = [m.MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id) for name in names]
    request = m.MetadataRequest(topics=topics, **({"allow_auto_topic_creation": False} | fields))
    return ask(client, request, version).topics


def test_metadata_names_what_is_wrong_with_each_topic(client: RawClient, topic: str) -> None:
    assert [row.error_code for row in asked_topics(client, 9, topic)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.error_code for row in asked_topics(client, 9, "a/b", "..", "..")] == [17, 17]
    (unknown,) = asked_topics(client, 9, topic, include_topic_authorized_operations=True)
    assert unknown.topic_authorized_operations == 3576
    (created,) = asked_topics(client, 9, topic, allow_auto_topic_creation=True)
    assert (created.error_code, created.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])


def test_metadata_by_id_is_for_version_12_and_by_name_for_the_others(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    known = topic_id_of(client, topic)
    (row,) = asked_topics(client, 12, None, topic_id=known)
    assert (row.error_code, row.name, row.topic_id) == (0, topic, known)
    (row,) = asked_topics(client, 12, None, topic_id=UNKNOWN_ID)
    assert (row.error_code, row.name, row.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID)
    for version in (10, 11):
        (row,) = asked_topics(client, version, None, topic_id=known)
        assert (row.error_code, row.name, row.topic_id) == (ErrorCode.INVALID_REQUEST, "", known)


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> Any:
    return m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", range(8))
def test_create_topics_gives_each_topic_its_own_code(client: RawClient, topic: str, version: int) -> None:
    rows = [
        (creatable(topic, -1, -1), ErrorCode.NONE),
        (creatable(f"{topic}-none", 0), ErrorCode.INVALID_PARTITIONS),
        (creatable(f"{topic}-two", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(f"{topic}-null", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (creatable(f"{topic}-bad", segment_bytes="1"), ErrorCode.INVALID_CONFIG),
        (creatable("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(f"{topic}-twice"), ErrorCode.INVALID_REQUEST),
        (creatable(f"{topic}-twice", 2), ErrorCode.INVALID_REQUEST),
    ]
    request = m.CreateTopicsRequest(topics=[row for row, _ in rows], timeout_ms=15_000)
    answered = sorted((row.name, row.error_code) for row in ask(client, request, version).topics)
    assert answered == sorted((row.name, code) for row, code in rows)
    again = m.CreateTopicsRequest(topics=[creatable(topic)], timeout_ms=15_000)
    assert ask(client, again, version).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_that_has_no_leaders_in_time_times_out_and_exists_all_the_same(client: RawClient, topic: str) -> None:
    request = m.CreateTopicsRequest(topics=[creatable(topic)], timeout_ms=0)
    (row,) = ask(client, request, 7).topics
    assert (row.error_code, row.error_message, row.num_partitions) == (ErrorCode.REQUEST_TIMED_OUT, None, -1)
    assert row.topic_id == eventually(lambda: topic_id_of(client, topic), lambda known: known != bytes(16))


def test_what_is_only_validated_is_not_created(client: RawClient, topic: str) -> None:
    request = m.CreateTopicsRequest(topics=[creatable(topic, 2)], timeout_ms=15_000, validate_only=True)
    (row,) = ask(client, request, 7).topics
    assert (row.error_code, row.num_partitions, row.topic_id) == (0, 2, bytes(16))
    assert [row.error_code for row in asked_topics(client, 9, topic)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def deleting(client: RawClient, *topics: tuple[str | None, bytes]) -> list[tuple[str | None, int]]:
    states = [m.DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    answer = ask(client, m.DeleteTopicsRequest(topics=states, timeout_ms=15_000), 6)
    return [(row.name, row.error_code) for row in answer.responses]


def test_topics_are_deleted_by_name_or_id_and_an_unknown_one_is_named(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        create_topic(shared_broker.port, name)
    ids, none = [topic_id_of(client, name) for name in names], bytes(16)
    assert deleting(client, (names[0], ids[0])) == [(names[0], ErrorCode.INVALID_REQUEST)]
    assert deleting(client, (names[0], none), (names[0], none)) == [(names[0], 0)] * 2
    assert deleting(client, (names[0], none)) == [(names[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert deleting(client, (None, ids[1])) == [(names[1], 0)]
    assert deleting(client, (None, UNKNOWN_ID), ("..", none)) == [(None, 100), ("..", 3)]
    assert deleting(client, (None, none)) == [(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    (kept,) = asked_topics(client, 9, names[2])
    assert kept.error_code == 0


# -- Produce


def test_produce_gives_each_partition_its_own_code(client: RawClient, shared_broker: BrokerProcess, topic: str) -> None:
    create_topic(shared_broker.port, topic, max_message_bytes="1000", segment_bytes="500")
    assert produce(client, topic, batch()).error_code == 0
    assert produce(client, topic, batch(), partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, "__transaction_state", batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, topic, batch(), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert produce(client, topic, b"").error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, batch() + batch()).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, batch(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, topic, batch(bytes(600))).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert produce(client, topic, batch(codec=Codec.ZSTD), 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, batch(codec=Codec.ZSTD), 7).error_code == 0
    assert produce(client, topic, batch(attributes=CONTROL)).error_code == ErrorCode.INVALID_RECORD
    of_producer = {"producer_id": 7, "producer_epoch": 0}
    assert produce(client, topic, batch(**of_producer)).error_code == ErrorCode.INVALID_RECORD
    in_transaction = batch(attributes=TRANSACTIONAL, base_sequence=0, **of_producer)
    assert produce(client, topic, in_transaction).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_no_one_writes_to_an_internal_topic(client: RawClient) -> None:
    asked = m.FindCoordinatorRequest(key="anybody")
    eventually(lambda: ask(client, asked, 0), lambda found: found.error_code == 0)
    assert produce(client, "__consumer_offsets", batch()).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_records_that_are_refused_are_named_by_index(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic, cleanup_policy="compact", message_timestamp_before_max_ms="1800000")
    now_ms = int(time.time() * 1000)  # the tests may have begun more than half an hour ago
    mixed = bytes(build_batch([(b"k", b"a"), (None, b"b"), (b"k", b"c"), (None, b"d")], timestamp_ms=now_ms).data)
    row = produce(client, topic, mixed)
    assert (row.error_code, [error.batch_index for error in row.record_errors]) == (ErrorCode.INVALID_RECORD, [1, 3])
    assert produce(client, topic, mixed, 7).error_code == ErrorCode.INVALID_RECORD
    row = produce(client, topic, batch(key=b"k", timestamp_ms=now_ms - HOUR_MS))
    assert (row.error_code, [error.batch_index for error in row.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0])


def test_a_topic_with_one_replica_serves_acks_all_whatever_min_insync_replicas_says(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic, min_insync_replicas="2")
    assert produce(client, topic, batch()).error_code == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_the_topics_codec_and_clock_win_over_the_producers(
    client: RawClient, shared_broker: BrokerProcess, topic: str, codec: Codec
) -> None:
    create_topic(shared_broker.port, topic, compression_type="gzip", message_timestamp_type="LogAppendTime")
    row = produce(client, topic, batch(b"a", b"b", timestamp_ms=1000, codec=codec))
    assert row.error_code == 0
    assert row.log_append_time_ms >= NOW_MS
    stored = list(read_all_records(fetched(fetch(client, [(topic, [(0, 0)])]))[0].records))
    assert {header.codec for header, _ in stored} == {Codec.GZIP}
    assert [(record.value, record.timestamp) for _, record in stored] == [
        (b"a", row.log_append_time_ms),
        (b"b", row.log_append_time_ms),
    ]


def test_duplicates_are_answered_as_their_original_and_gaps_and_old_epochs_refused(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    producer_id = ask(
        client, m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
    ).producer_id

    def send(sequence: int, epoch: int = 0, count: int = 1) -> tuple[int, int]:
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        row = produce(client, topic, batch(*[b"v"] * count, **fields))
        return row.error_code, row.base_offset

    out_of_order, old_epoch = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert [send(0, count=2), send(0, count=2)] == [(0, 0), (0, 0)]
    assert [send(0), send(1), send(9)] == [out_of_order] * 3, "neither part of a duplicate nor what comes too early"
    assert [send(sequence) for sequence in range(2, 8)] == [(0, offset) for offset in range(2, 8)]
    assert [send(3), send(2)] == [(0, 3), (0, 2)], "the last five are remembered, and older ones found in the log"
    assert [send(8, epoch=1), send(0, epoch=1), send(8)] == [out_of_order, (0, 8), old_epoch]


def test_sequence_numbers_go_on_from_zero_after_the_largest(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    for sequence, count, offset in [(2**31 - 3, 2, 0), (2**31 - 1, 3, 2), (2**31 - 1, 3, 2), (2, 1, 5)]:
        fields = {"producer_id": 1 << 40, "producer_epoch": 0, "base_sequence": sequence}
        row = produce(client, topic, batch(*[b"v"] * count, **fields))
        assert (row.error_code, row.base_offset) == (0, offset)


def test_an_id_and_an_epoch_of_a_producer_belong_together(client: RawClient) -> None:
    for fields in ({"producer_id": 3}, {"producer_epoch": 3}):
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, **fields)
        assert ask(client, request, 3).error_code == ErrorCode.INVALID_REQUEST
    request = m.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=3, producer_epoch=5
    )
    answer = ask(client, request, 3)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)


# -- Fetch


@pytest.mark.parametrize("version", [4, 8, 11, 12, 13, 17])
def test_fetch_gives_each_partition_its_own_code(
    client: RawClient, shared_broker: BrokerProcess, topic: str, version: int
) -> None:
    create_topic(shared_broker.port, topic)
    produce(client, topic, batch(b"a", b"b"))
    by_id = version >= 13
    known, unknown = (topic_id_of(client, topic), UNKNOWN_ID) if by_id else (topic, f"{topic}-unknown")
    for offset, code in [(0, 0), (2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)]:
        row = fetched(fetch(client, [(known, [(0, offset)])], version))[0]
        assert (row.error_code, row.high_watermark) == (code, -1 if code else 2)
    assert fetched(fetch(client, [(known, [(9, 0)])], version))[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(fetch(client, [(unknown, [(0, 0)])], version))[0].error_code == missing


def test_other_epochs_are_refused_or_answered_with_where_they_diverge(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    produce(client, topic, batch(b"a", b"b"))

    def at(offset: int, **epochs: int) -> Any:
        return fetched(fetch(client, [(topic, [(0, offset)])], epochs=epochs))[0]

    assert at(0, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert at(0, last_fetched_epoch=0).error_code == 0
    row = at(2, last_fetched_epoch=1)
    assert (row.error_code, row.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    row = at(9, last_fetched_epoch=0)
    assert (row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 0, 2)


def test_the_first_batch_is_sent_whatever_the_limits_and_no_further_one(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic, partitions=2)
    for partition in (0, 0, 1):
        produce(client, topic, batch(bytes(500)), partition=partition)
    both = [(topic, [(0, 0), (1, 0)])]
    size = len(batch(bytes(500)))
    for limits, sizes in [
        ({"max_bytes": 1}, [size, 0]),
        ({"max_bytes": size + 1}, [size + 1, 0]),
        ({"partition_max_bytes": 1}, [size, 0]),
        ({"partition_max_bytes": size}, [size, size]),
        ({}, [size * 2, size]),
    ]:
        rows = fetched(fetch(client, both, **limits))
        assert [len(rows[partition].records) for partition in (0, 1)] == sizes, limits


def test_aborted_transactions_are_a_list_for_who_reads_committed_and_null_for_others(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    produce(client, topic, batch())
    rows = [fetched(fetch(client, [(topic, [(0, 0)])], isolation_level=level))[0] for level in (0, 1)]
    assert [(row.aborted_transactions, row.last_stable_offset) for row in rows] == [(None, 1), ([], 1)]


def test_a_partition_that_is_named_twice_is_fetched_once_from_the_last_offset(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    produce(client, topic, batch(b"a"))
    produce(client, topic, batch(b"b"))
    (answered,) = fetch(client, [(topic, [(0, 0), (0, 1)])]).responses
    assert [values_in(row) for row in answered.partitions] == [[b"b"]]


def test_a_topic_of_zstd_is_not_for_clients_before_fetch_10(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic, compression_type="zstd")
    produce(client, topic, batch())
    codes = [fetched(fetch(client, [(topic, [(0, 0)])], version))[0].error_code for version in (4, 9, 10)]
    assert codes == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE] * 2 + [0]


def test_how_long_a_fetch_waits(client: RawClient, shared_broker: BrokerProcess, topic: str) -> None:
    create_topic(shared_broker.port, topic, partitions=2)
    produce(client, topic, batch())
    quiet, unknown = (topic, [(1, 0)]), (f"{topic}-unknown", [(0, 0)])

    def seconds(*topics: Any, **fields: Any) -> float:
        began = time.monotonic()
        fetch(client, topics, max_wait_ms=1000, **fields)
        return time.monotonic() - began

    assert seconds(quiet) >= 1, "for news"
    assert seconds(unknown, quiet) >= 1, "a topic that is not there makes no client spin"
    assert seconds(unknown) < 0.5, "there is nothing to wait for"
    assert seconds((topic, [(0, 99)]), quiet) < 0.5, "an offset out of range is news"
    assert seconds((topic, [(0, 0)]), min_bytes=5000) >= 1, "for enough"
    assert seconds((topic, [(0, 0)]), min_bytes=5000, max_bytes=10) < 0.5, "no more will come than may"


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_session_tells_news_only_and_its_epochs_count(
    client: RawClient, shared_broker: BrokerProcess, topic: str, version: int
) -> None:
    create_topic(shared_broker.port, topic, partitions=3)
    name = topic_id_of(client, topic) if version >= 13 else topic
    everything = [(name, [(0, 0), (1, 0), (2, 0)])]
    first = fetch(client, everything, version, session=(0, 0))
    session_id = first.session_id
    assert session_id > 0
    assert sorted(fetched(first)) == [0, 1, 2]

    def continued(epoch: int, topics: Any = (), **fields: Any) -> Any:
        answer = fetch(client, topics, version, session=(session_id, epoch), **fields)
        return answer.error_code or sorted(fetched(answer))

    assert continued(1) == []
    produce(client, topic, batch(), partition=1)
    assert continued(2) == [1]
    assert continued(3) == [1], "the fetch offset has not moved past the record"
    assert continued(4, [(name, [(1, 1)])]) == []
    assert continued(4) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert continued(5, [(name, [(0, 9)])]) == [0]
    assert continued(6) == [0], "an error is in each response until it is gone"
    assert continued(7, [(name, [(0, 0)])]) == [0], "one more response shows that it is gone"
    assert continued(8) == []
    assert fetch(client, [], version, session=(session_id ^ 1, 9)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(client, everything, version, session=(session_id, 0)).session_id not in (0, session_id)
    assert continued(9) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "a full request closes the session that it names"


def test_a_session_keeps_to_names_or_ids_and_ends_with_its_last_partition(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    session_id = fetch(client, [(topic, [(0, 0)])], session=(0, 0)).session_id
    assert fetch(client, [], 13, session=(session_id, 1)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert fetch(client, [], session=(session_id, 1)).error_code == 0
    forgotten = [m.FetchRequest.ForgottenTopic(topic=topic, partitions=[0])]
    assert fetch(client, [], session=(session_id, 2), forgotten_topics_data=forgotten).session_id == 0
    assert fetch(client, [], session=(session_id, 3)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# -- ListOffsets


def list_offsets(client: RawClient, version: int, *asked: tuple[str, int, int], **fields: Any) -> list[Any]:
    """[(topic, partition, timestamp)], one row each."""
    topics = [
        m.ListOffsetsRequest.ListOffsetsTopic(
            name=topic,
            partitions=[
                m.ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=partition, timestamp=timestamp, max_num_offsets=10 if version == 0 else 1
                )
            ],
        )
        for topic, partition, timestamp in asked
    ]
    answer = ask(client, m.ListOffsetsRequest(topics=topics, **fields), version)
    return [row for topic in answer.topics for row in topic.partitions]


@pytest.mark.parametrize("version", range(1, 10))
def test_special_timestamps_and_the_versions_that_know_them(
    client: RawClient, shared_broker: BrokerProcess, topic: str, version: int
) -> None:
    create_topic(shared_broker.port, topic)
    for age_ms in (4000, 1000, 2000, 1000):
        produce(client, topic, batch(timestamp_ms=NOW_MS - age_ms))
    since = {-1: (1, 4, -1), -2: (1, 0, -1), -3: (7, 1, NOW_MS - 1000), -4: (8, 0, -1), -5: (9, -1, -1)}
    for timestamp, (first_version, offset, of_record) in since.items():
        (row,) = list_offsets(client, version, (topic, 0, timestamp))
        expected = (0, offset, of_record) if version >= first_version else (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        assert (row.error_code, row.offset, row.timestamp) == expected, timestamp
    for timestamp, offset in [(0, 0), (NOW_MS - 4000, 0), (NOW_MS - 3999, 1), (NOW_MS - 1000, 1), (NOW_MS, -1)]:
        (row,) = list_offsets(client, version, (topic, 0, timestamp))
        assert (row.error_code, row.offset) == (0, offset), timestamp


def test_list_offsets_gives_each_partition_its_own_code(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    asked = [(topic, 0, -1), (topic, 7, -1), (f"{topic}-unknown", 0, -1), (f"{topic}-unknown", 1, -100)]
    assert [row.error_code for row in list_offsets(client, 7, *asked)] == [0, 3, 3, ErrorCode.UNSUPPORTED_VERSION]
    twice = list_offsets(client, 7, (topic, 0, -1), (topic, 0, -2))
    assert [row.error_code for row in twice] == [ErrorCode.INVALID_REQUEST] * 2


def test_list_offsets_0_knows_when_segments_were_written_and_no_record_times(
    client: RawClient, shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    produce(client, topic, batch(b"a", b"b", timestamp_ms=NOW_MS - HOUR_MS))
    for timestamp, offsets in [(-1, [2, 0]), (-2, [0]), (NOW_MS - HOUR_MS, []), (NOW_MS + HOUR_MS, [2, 0])]:
        (row,) = list_offsets(client, 0, (topic, 0, timestamp))
        assert row.old_style_offsets == offsets, timestamp
