"""Deletes logs of deleted topics that a start finds beside the log of a new topic with the same name.

If a topic is deleted and recreated while a log directory is offline, that directory still has the old topic's log, and
another directory may have the new one. The topic id in each log is compared with the topic's id in the store; a log
with another id is deleted. Apache Kafka refuses to start in this case.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from barnabas.replication.logs.directory import Contents, deleted_name, rename_durably
from barnabas.storage.checkpoint import PARTITION_METADATA, read_partition_metadata
from barnabas.storage.disk import Disk, join
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

TopicIds = Callable[[Collection[str]], Awaitable[Mapping[str, bytes | None]]]
"""Topic name -> topic id, for those of these topics that exist; None if the id is unknown."""


async def delete_old_duplicates(
    contents: Mapping[str, Contents], topic_ids: TopicIds, directories: "LogDirectories", world: "World"
) -> None:
    """Mark logs of deleted topics for deletion where another directory has a log of the same partition.

    Changes `contents`. Raises what `topic_ids` raises, and StorageError if the process lacks descriptors or memory.
    """
    # The store is asked only if there are twins, so an ordinary start needs no answer here.
    twins = _find_twins(contents)
    current = await topic_ids({key.topic: None for key in twins}) if twins else {}
    for key, places in twins.items():
        # The topic has no id (it is older than KIP-516), or its node cannot be read: no log of it may be deleted, and
        # the start ends with the refusal of the duplicate.
        if key.topic in current and current[key.topic] is None:
            continue
        # All places are looked at, because both logs may be of older topics.
        for path, name in places:
            directory = next(each for each in directories if each.path == path)
            deleted = deleted_name(key, world.rng.randbytes(16))
            where = join(path, name), current.get(key.topic), join(path, deleted)
            if await directories.at_start(directory, _delete_if_of_another_topic, world.disk, *where):
                contents[path].renamed(key, name, deleted)


def _find_twins(contents: Mapping[str, Contents]) -> dict[TopicPartition, list[tuple[str, str]]]:
    """The partitions with more than one log, each with the (log directory, name there) of all its logs."""
    # Future logs as well: a log and its future log are twins, too, and either may be of a deleted topic. In an ordinary
    # move both have the current topic's id, and both stay.
    places: dict[TopicPartition, list[tuple[str, str]]] = {}
    for path, found in contents.items():
        for name, key in [*((str(key), key) for key in found.partitions), *found.futures.items()]:
            places.setdefault(key, []).append((path, name))
    return {key: found for key, found in places.items() if len(found) > 1}


def _delete_if_of_another_topic(disk: Disk, path: str, topic_id: bytes | None, deleted_path: str) -> bool:
    """Rename the directory of a log to `deleted_path` if its topic has another id than `topic_id`.

    None stands for a topic that does not exist. True if it was renamed. Blocking: long.
    """
    found = read_partition_metadata(disk, join(path, PARTITION_METADATA))
    # Without an id in the log nothing proves that it is old, and a wrong guess would delete the only copy.
    if found is None or found == topic_id:
        return False
    # The rename is durable before the other log is opened: otherwise a power failure could bring
    # the duplicate back later.
    rename_durably(disk, path, deleted_path)
    logger.warning("%s belongs to a deleted topic whose name has been used again; it is deleted", path)
    return True
