"""Requests that only brokers send: refused from a deposed controller, or about a broker that is gone."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario

OLD_EPOCH, NO_EPOCH = 0, -1


@scenario
def requests_of_an_old_controller(side):
    for version in range(8):
        request = m.LeaderAndIsrRequest(controller_id=1, controller_epoch=OLD_EPOCH, broker_epoch=NO_EPOCH)
        yield f"LeaderAndIsr v{version}", side.ask(request, version)
    for version in range(5):
        request = m.StopReplicaRequest(controller_id=1, controller_epoch=OLD_EPOCH, broker_epoch=NO_EPOCH)
        yield f"StopReplica v{version}", side.ask(request, version)
    for version in range(9):
        request = m.UpdateMetadataRequest(controller_id=1, controller_epoch=OLD_EPOCH, broker_epoch=NO_EPOCH)
        yield f"UpdateMetadata v{version}", side.ask(request, version)


@scenario
def requests_for_an_earlier_life_of_the_broker(side):
    """A broker epoch of the past: 1 is the epoch of no broker that was ever registered."""
    for version in range(2, 8):
        request = m.LeaderAndIsrRequest(controller_id=1, controller_epoch=100, broker_epoch=1)
        yield f"LeaderAndIsr v{version}", side.ask(request, version)
    for version in range(1, 5):
        request = m.StopReplicaRequest(controller_id=1, controller_epoch=100, broker_epoch=1)
        yield f"StopReplica v{version}", side.ask(request, version)
    for version in range(5, 9):
        request = m.UpdateMetadataRequest(controller_id=1, controller_epoch=100, broker_epoch=1)
        yield f"UpdateMetadata v{version}", side.ask(request, version)


@scenario
def producer_ids_for_brokers(side):
    cases = {"unknown broker": (77, 1), "wrong epoch": (1, 1), "negative": (-1, -1)}
    for name, (broker, epoch) in cases.items():
        yield name, side.ask(m.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch), 0)


@scenario
def shutdowns_of_brokers_that_are_not_there(side):
    for version in range(4):
        for name, (broker, epoch) in {"unknown broker": (77, -1), "earlier life": (1, 1)}.items():
            if name == "unknown broker" or version >= 2:
                request = m.ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
                yield f"v{version} {name}", side.ask(request, version)


@scenario
def changes_of_in_sync_replicas(side):
    """AlterPartition from brokers that are not who they say, about partitions that are not as they say."""
    topic = side.create_topic("one")
    Request = m.AlterPartitionRequest
    for version in range(4):
        for name, (broker, epoch) in {"unknown broker": (77, -1), "earlier life": (1, 1)}.items():
            partition = Request.PartitionData(partition_index=0, leader_epoch=0, new_isr=[1], partition_epoch=0)
            partition.new_isr_with_epochs = [Request.BrokerState(broker_id=1)]
            changed = Request.TopicData(topic_name=topic, topic_id=side.topic_id(topic), partitions=[partition])
            request = Request(broker_id=broker, broker_epoch=epoch, topics=[changed])
            yield f"v{version} {name}", side.ask(request, version)
