"""Controlled shutdown: the first step of a stop hands over the leadership of partitions (reference B.13).

The broker asks the controller to move its leaderships to other in-sync replicas, and asks again while the response
names partitions that it still leads. It stops in any case: after `controlled.shutdown.max.retries` attempts, or when no
controller answers within `controller.socket.timeout.ms`. If the controller changes meanwhile, `ControllerPeer` sends
the request to the new one.
"""

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost, error_name

if TYPE_CHECKING:
    from barnabas.broker.peers.controller_peer import ControllerPeer
    from barnabas.config.live import BrokerConfig
    from barnabas.replication.replicas import Replicas
    from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)


async def controlled_shutdown(
    config: "BrokerConfig", metadata: "ClusterMetadata", replicas: "Replicas", controller: "ControllerPeer"
) -> None:
    """Ask the controller until nothing is left to hand over, or `controlled.shutdown.max.retries` times."""
    # If no other broker is alive, none can take over leadership.
    if not config.controlled_shutdown_enable or metadata.brokers.keys() <= {replicas.broker_id}:
        return
    for attempt in range(1, config.controlled_shutdown_max_retries + 1):
        if attempt > 1:
            await trio.sleep(max(config.controlled_shutdown_retry_backoff_ms, 0) / 1000)
        try:
            problem = await _ask(config, replicas, controller)
        # `ControllerPeer` has already repeated the request until the deadline.
        except PeerLost as error:
            logger.warning("stopping, although no controller answers: %s", error)
            return
        if problem is None:
            logger.info("all leadership that other brokers can have is handed over")
            return
        logger.warning("controlled shutdown, attempt %d: %s", attempt, problem)

    logger.warning("stopping, although leadership is not handed over")


async def _ask(config: "BrokerConfig", replicas: "Replicas", controller: "ControllerPeer") -> str | None:
    """One attempt: None if all is handed over, or else what is wrong or left. PeerLost when no controller answers."""
    request = m.ControlledShutdownRequest(broker_id=replicas.broker_id, broker_epoch=replicas.broker_epoch)
    response = await controller.ask(request, config.controller_socket_timeout_ms)
    if not isinstance(response, m.ControlledShutdownResponse):
        raise TypeError(f"{response!r} answers ControlledShutdown")
    if response.error_code:
        return f"the controller answers {error_name(response.error_code)}"
    # The other replicas of these partitions are not in the ISR; they may catch up before the next attempt.
    if response.remaining_partitions:
        first = response.remaining_partitions[0]
        count = len(response.remaining_partitions)
        return f"{count} partitions have no other replica in sync, {first.topic_name}-{first.partition_index} first"
    return None
