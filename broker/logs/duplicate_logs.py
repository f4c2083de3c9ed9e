"""Partitions that a start finds in two log directories, one of them of a topic that does not exist any more.

A log directory may be offline while a topic is deleted and made again under its name. When it comes back it still holds
the old topic's log, and another directory may hold the new one's. The topic ids in the logs say which is which, and the
store says which topic there is. The other one is removed. Apache Kafka does not start then.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.logs.directory import Contents, deleted_name, rename_durably
from barnabas.storage.checkpoint import PARTITION_METADATA, read_partition_metadata
from barnabas.storage.disk import Disk, join
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.world import World

logger = logging.getLogger(__name__)

TopicIds = Callable[[Collection[str]], Awaitable[Mapping[str, bytes | None]]]
"""The ids of those of these topics that exist; None where it is not known."""


async def delete_old_duplicates(
    contents: Mapping[str, Contents], topic_ids: TopicIds, directories: "LogDirectories", world: "World"
) -> None:
    """Give logs of deleted topics the name of those to be removed, if they are in another log's way.

    Changes `contents`. Raises what `topic_ids` raises, and StorageError where the process is short of something.
    """
    twins = _find_twins(contents)
    current = await topic_ids({key.topic: None for key in twins}) if twins else {}
    for key, places in twins.items():
        if key.topic in current and current[key.topic] is None:
            continue  # the topic has no id, or its node cannot be read
        for path, name in places:
            directory = next(each for each in directories if each.path == path)
            deleted = deleted_name(key, world.rng.randbytes(16))
            where = join(path, name), current.get(key.topic), join(path, deleted)
            if await directories.at_start(directory, _delete_if_of_another_topic, world.disk, *where):
                contents[path].renamed(key, name, deleted)


def _find_twins(contents: Mapping[str, Contents]) -> dict[TopicPartition, list[tuple[str, str]]]:
    """The partitions that lie in more than one place, each with (log directory, name there) of all its places."""
    places: dict[TopicPartition, list[tuple[str, str]]] = {}
    for path, found in contents.items():
        for key, name in [*((key, str(key)) for key in found.partitions), *found.futures.items()]:
            places.setdefault(key, []).append((path, name))
    return {key: found for key, found in places.items() if len(found) > 1}


def _delete_if_of_another_topic(disk: Disk, path: str, topic_id: bytes | None, deleted_path: str) -> bool:
    """Rename the directory of a log to `deleted_path`, if it says that its topic has another id than this (None: the
    topic does not exist). Blocking: long."""
    found = read_partition_metadata(disk, join(path, PARTITION_METADATA))
    if found is None or found == topic_id:
        return False
    rename_durably(disk, path, deleted_path)
    logger.warning("%s is of a deleted topic, which was made again under its name; it is removed", path)
    return True
