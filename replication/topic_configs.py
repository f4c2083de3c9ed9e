"""The configuration of each topic as the store has it (shell): one `TopicConfig` a topic, shared by all its readers.

Partitions and logs keep the view they were given; it is refreshed in place, so a change needs no new object. A value in
the store that this version cannot read (another version may have written it) is left out with a warning, and the
broker's own value holds: a topic must not become unreadable because of its configuration.
"""

import logging
from collections.abc import Collection, Mapping
from weakref import WeakValueDictionary

import trio

from barnabas.config.live import BrokerConfig, TopicConfig
from barnabas.controller.admin.entity_configs import TOPICS, list_entities, read_entity
from barnabas.controller.image.loading import catch_up, read_topic_configs
from barnabas.controller.store.store import MetadataStore

logger = logging.getLogger(__name__)

UPDATED_A_STEP = 50  # views, before other tasks get a turn


class TopicConfigs:
    """Topic name -> its view."""

    def __init__(self, config: BrokerConfig, store: MetadataStore) -> None:
        self._config = config
        self._store = store
        self._views: WeakValueDictionary[str, TopicConfig] = WeakValueDictionary()  # as long as a partition needs it

    def get(self, topic: str) -> TopicConfig:
        """The view that `load` made; the broker's own values for a topic whose configuration is not in the store."""
        view = self._views.get(topic)
        if view is None:
            view = self._views[topic] = self._config.topic()
        return view

    async def load(self, topics: Collection[str]) -> dict[str, TopicConfig]:
        """Read these topics' configurations from the store into their views, which the caller should keep.

        The controller asked for them, perhaps a moment after they were created, and nothing makes this broker read them
        again: so the server that is asked must know all that the controller's knew.
        """
        if not topics:
            return {}
        await catch_up(self._store)
        views = {topic: self.get(topic) for topic in topics}
        unread = list(views)
        while unread:
            before = {topic: views[topic].overrides for topic in unread}
            found = await read_topic_configs(self._store, unread)
            unread = []
            for number, (topic, overrides) in enumerate(before.items(), 1):
                # A view that has changed since may be newer than what was found: its topic is read again.
                if views[topic].overrides is overrides:
                    views[topic].update(self._readable(topic, found.get(topic, {})))
                else:
                    unread.append(topic)
                if number % UPDATED_A_STEP == 0:
                    await trio.lowlevel.checkpoint()

        return views

    async def reload(self, topic: str) -> dict[str, str]:
        """Read it again for the holders of its view; what it sets, whether or not there are any."""
        overrides = await self.read(topic)
        view = self._views.get(topic)
        if view is not None:
            view.update(overrides)
        return overrides

    async def read(self, topic: str) -> dict[str, str]:
        """What the topic sets, as far as it can be used."""
        return self._readable(topic, await read_entity(self._store, f"{TOPICS}/{topic}"))

    async def load_all(self) -> list[TopicConfig]:
        """Every topic's view, for the logs that are opened at start."""
        names = await list_entities(self._store, TOPICS)
        found = await read_topic_configs(self._store, names)
        views = []
        for name in names:
            view = self.get(name)
            view.update(self._readable(name, found.get(name, {})))
            views.append(view)
        return views

    def _readable(self, topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
        good = {name: text for name, text in overrides.items() if not self._wrong(name, text)}
        for name in overrides.keys() - good.keys():
            logger.warning("topic %s: %s=%s in the store is not valid and is ignored", topic, name, overrides[name])
        return good

    def _wrong(self, name: str, text: str) -> bool:
        return any(problem.of_value for problem in self._config.topic_problems({name: text}))
