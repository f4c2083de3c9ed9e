"""An ordinary client beside hostile ones: one short record written and read every ten milliseconds, each trip timed.

python -m compat_tests.hostile.bystander PORT      ends at a line on standard input, and prints what it saw
"""

import json
import os
import select
import sys
import time

from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from compat_tests.raw import RawClient, create_topic, produce_request

TOPIC = "ordinary"
PACE_SECONDS = 0.01


def trip(client: RawClient) -> None:
    """Write one record with acks=1 and read it where it was written."""
    batch = bytes(build_batch([(None, b"v" * 100)], timestamp_ms=int(time.time() * 1000)).data)
    (topic,) = client.ask(produce_request(TOPIC, batch, acks=1), 9, m.ProduceResponse).responses
    (row,) = topic.partition_responses
    if row.error_code:
        raise RuntimeError(f"Produce was answered {row.error_code}")
    wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=row.base_offset, partition_max_bytes=1 << 20)
    topics = [m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[wanted])]
    answer = client.ask(
        m.FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=topics), 4, m.FetchResponse
    )
    (fetched,) = answer.responses[0].partitions
    if fetched.error_code or not fetched.records:
        raise RuntimeError(f"Fetch was answered {fetched.error_code} with {len(fetched.records or b'')} bytes")


def main() -> None:
    port = int(sys.argv[1])
    os.nice(-5)  # what is measured is the broker, not the turns that the kernel gives to this process
    create_topic(port, TOPIC)
    milliseconds: list[float] = []
    error = ""
    with RawClient(port, timeout=100) as client:
        for _ in range(20):
            trip(client)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], PACE_SECONDS)[0]:
            began = time.perf_counter()
            try:
                trip(client)
            except (OSError, RuntimeError) as failure:
                error = repr(failure)
            milliseconds.append(round((time.perf_counter() - began) * 1000, 2))
            if error:
                break
    print(json.dumps({"ms": milliseconds, "error": error}))


if __name__ == "__main__":
    main()
