"""Health of a broker, for a person's monitor and for what starts and stops brokers one after the other.

`/healthz`: the process does its work; if not, a restart may help. `/readyz`: clients are served; false while the broker
starts and from the moment it begins to stop. `/readyz?strict=1`: besides, ZooKeeper answers, and every replica here is
in its ISR, so the next broker of the cluster may be stopped. Each answer is 200 or 503 with the reasons.
"""

from collections.abc import Sequence
from functools import partial

from barnabas.broker.call import Broker
from barnabas.broker.life import BrokerState, Life
from barnabas.console.exchange import Answer, HttpRequest, Route, json_answer
from barnabas.world.pacing import paced

REPLICAS_NAMED_MAX = 20  # in one answer; their number is always there

WHY_NOT_READY = {
    BrokerState.NOT_RUNNING: "the broker does not run",
    BrokerState.STARTING: "the broker starts: the store is opened",
    BrokerState.RECOVERY: "the broker starts: logs are loaded, then it registers and waits for the metadata",
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: "the broker stops: leadership is handed over",
    BrokerState.SHUTTING_DOWN: "the broker stops: the last requests are answered",
}


def health_routes(life: Life) -> Sequence[Route]:
    """The routes of health."""
    return [
        Route("GET", "/healthz", partial(_healthz, life), is_open=True),
        Route("GET", "/readyz", partial(_readyz, life), is_open=True),
    ]


async def _healthz(life: Life, request: HttpRequest) -> Answer:
    # Before the logs are opened there is nothing to fail: an unusable directory ends the start.
    broker = life.broker
    failures = {} if broker is None else broker.replicas.logs.offline_directories
    return _verdict(life, [f"the log directory {path} is offline: {error}" for path, error in failures.items()])


async def _readyz(life: Life, request: HttpRequest) -> Answer:
    broker = life.broker
    if life.state is not BrokerState.RUNNING or broker is None:
        return _verdict(life, [WHY_NOT_READY.get(life.state, "the broker starts")])
    if not broker.metadata.is_complete.is_set():
        return _verdict(life, ["the controller has not sent the metadata of all topics yet"])
    # `?strict` without a value asks for nothing.
    if request.query.get("strict") in (None, "", "0"):
        return _verdict(life, [])
    # This comes last, because it looks at every partition of the cluster.
    return _verdict(life, [*_lost_store(broker), *await _out_of_sync(broker)])


def _lost_store(broker: Broker) -> list[str]:
    """Why this broker may know nothing of what happens to others."""
    sessions = broker.store.session_tally

    # The embedded store has no connection that could be lost.
    if sessions is None or sessions.connects > sessions.disconnects:
        return []
    return ["ZooKeeper does not answer: the picture of the replicas may be an old one"]


async def _out_of_sync(broker: Broker) -> list[str]:
    """Why this broker's replicas do not allow another broker to stop."""
    me = broker.broker_id

    # The controller's picture is asked, because a follower does not know whether it is in the ISR.
    missing = [
        f"{topic}-{index}"
        async for topic, info in paced(list(broker.metadata.topics.items()))
        for index, partition in info.partitions.items()
        if me in partition.replicas and me not in partition.in_sync_replicas
    ]
    if not missing:
        return []
    named = ", ".join(missing[:REPLICAS_NAMED_MAX])
    more = len(missing) - REPLICAS_NAMED_MAX
    return [f"{len(missing)} replicas are not in their ISR: {named}{f' and {more} more' if more > 0 else ''}"]


def _verdict(life: Life, reasons: Sequence[str]) -> Answer:
    body = {"ok": not reasons, "state": life.state.name.lower(), "reasons": reasons}
    return json_answer(body, 503 if reasons else 200)
