"""A topic of a command's own, which is there as long as the command needs it (edge)."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.cli.output import warn
from barnabas.cli.repeating import RepeatingCluster, done_before
from barnabas.client.admin import BROKERS_CHOICE, create_topic, delete_topic
from barnabas.client.errors import ClientError, Refused
from barnabas.wire.errors import ErrorCode


@asynccontextmanager
async def own_topic(
    cluster: RepeatingCluster, prefix: str, *, partitions: int, replicas: int = BROKERS_CHOICE
) -> AsyncIterator[str]:
    """Create a topic whose name begins so, and delete it at the end. Refused, Unreachable."""
    name = f"{prefix}-{secrets.token_hex(4)}"
    is_done = False
    try:
        # Nothing else has this name: if it is there already, it was created by a request whose answer was lost.
        with done_before(cluster, ErrorCode.TOPIC_ALREADY_EXISTS):
            await create_topic(cluster, name, partitions=partitions, replicas=replicas)
        yield name
        is_done = True
    finally:
        # It is deleted after a failure to create it, too: one that was not answered may have been carried out.
        try:
            await delete_topic(cluster, name)
        except ClientError as error:
            if not isinstance(error, Refused) or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                left = f"topic {name!r} may be left behind: {error}"
                # The failure before this one says more about the cluster.
                if is_done:
                    raise ClientError(left) from error
                warn(left)
