"""Two brokers at every `inter.broker.protocol.version`, which fixes the versions of the requests between them.

Each one is a whole scenario, through encoder, network and decoder: topics are created, change leaders, and are deleted.
"""

import pytest

from barnabas.wire import asking
from barnabas.wire.apis import APIS, inter_broker_versions
from barnabas.wire.frame import LENGTH_BYTES, read_request_header
from tests.broker.clusters import cluster, create_topic, leader_of, until

METADATA_VERSIONS = [
    "2.0", "2.1", "2.2", "2.3", "2.4-IV0", "2.4", "2.5", "2.6", "2.7-IV0", "2.7-IV1", "2.7", "2.8-IV0", "2.8",
    "3.0", "3.1", "3.2", "3.3", "3.4", "3.5-IV0", "3.5", "3.6", "3.7", "3.8", "3.9",
]  # fmt: skip
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7


@pytest.fixture
def sent(monkeypatch):
    """Key -> versions of the requests that brokers sent to each other."""
    versions = {}
    encode = asking.request_frame

    def note(*arguments):
        frame = encode(*arguments)
        header = read_request_header(memoryview(frame)[LENGTH_BYTES:])
        versions.setdefault(header.api_key, set()).add(header.api_version)
        return frame

    monkeypatch.setattr(asking, "request_frame", note)
    return versions


@pytest.mark.parametrize("metadata_version", METADATA_VERSIONS)
async def test_brokers_of_one_metadata_version_understand_each_other(autojump_clock, nursery, metadata_version, sent):
    async with cluster(nursery, 2, inter_broker_protocol_version=metadata_version) as machines:
        one, two = machines
        client = await one.connect()
        await create_topic(client, "t", [2, 1], [1, 2])
        assert await leader_of(machines, "t", 0) is two
        await create_topic(client, "gone", [2])
        await leader_of(machines, "gone")
        assert two.disk.is_directory("/data/gone-0")
        await client.delete_topic("gone")
        await until(lambda: not two.disk.is_directory("/data/gone-0"))
        assert "gone" not in two.broker.metadata.topics
        await two.stop()
        assert await leader_of([one], "t", 0) is one
    implied = inter_broker_versions(metadata_version)
    for key in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN):
        assert sent[key] == {implied[key]}, APIS[key].name
