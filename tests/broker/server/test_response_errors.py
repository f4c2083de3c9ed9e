"""The codes of a response, counted by what is made for its API and by its schema."""

from collections import defaultdict
from functools import partial

import pytest

from barnabas.broker.server import response_errors
from barnabas.broker.server.response_errors import count_errors
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

Produce, Fetch, Metadata = m.ProduceResponse, m.FetchResponse, m.MetadataResponse


def produced(*codes):
    rows = [Produce.PartitionProduceResponse(error_code=code) for code in codes]
    return Produce(responses=[Produce.TopicProduceResponse(partition_responses=rows)])


def fetched(code, *codes):
    rows = [Fetch.PartitionData(error_code=each) for each in codes]
    return Fetch(error_code=code, responses=[Fetch.FetchableTopicResponse(partitions=rows)])


def described(code, *codes):
    rows = [Metadata.MetadataResponsePartition(error_code=each) for each in codes]
    return Metadata(topics=[Metadata.MetadataResponseTopic(error_code=code, partitions=rows)])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (produced(0, 6, 6), {0: 1, 6: 2}),
        (fetched(0, 0, 6), {0: 2, 6: 1}),
        (described(3, 0, 9), {3: 1, 0: 1, 9: 1}),
        (Metadata(topics=[]), {}),
        (m.HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), {27: 1}),
        (m.DescribeGroupsResponse(groups=[m.DescribeGroupsResponse.DescribedGroup(error_code=15)]), {15: 1}),
        (m.SaslHandshakeResponse(error_code=33), {33: 1}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_each_code_is_counted_once_as_the_schema_has_it(response, expected):
    counted, by_schema = defaultdict(int), defaultdict(int)
    count_errors(response, counted)
    fields = type(response).SCHEMA.fields
    rows = response_errors._rows_in(type(response).SCHEMA, fields)
    partial(response_errors._count_all, response_errors._Places(response_errors._have_code(fields), rows))(
        response, by_schema
    )
    assert counted == by_schema == expected
