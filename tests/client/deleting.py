"""What retention does to a log, at the moment that a test chooses."""

from barnabas.wire import messages as m


async def delete_records(cluster, key, offset):
    """Delete the records of a partition below this offset."""
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(
        name=key.topic,
        partitions=[
            m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=key.partition, offset=offset),
        ],
    )
    response = await cluster.ask_leader(*key, m.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))
    (answered,) = response.topics
    assert [(row.low_watermark, row.error_code) for row in answered.partitions] == [(offset, 0)]
