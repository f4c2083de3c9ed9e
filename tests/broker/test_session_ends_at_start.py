"""The session with the store ends while a broker starts, when no candidate runs yet that would begin another one."""

from types import SimpleNamespace

import trio

from barnabas.broker.cluster.dynamic_config import DynamicConfig
from barnabas.broker.cluster.registration import Registration
from barnabas.controller.store.store import SessionExpired


class ExpiringStore:
    """Whatever is asked is refused until the session is renewed."""

    def __init__(self):
        self.session_id = 1

    def on_expired(self, callback):
        pass

    async def children(self, path, watch):
        if self.session_id == 1:
            raise SessionExpired(1)
        return []

    async def renew(self):
        self.session_id = 2


async def test_changes_of_configuration_are_followed_in_another_session(nursery, autojump_clock):
    store = ExpiringStore()
    parts = ("broker_configs", "topic_configs", "config", "replicas", "candidate", "quotas")
    made = {name: SimpleNamespace(advertised_listeners="") for name in parts}
    changes = DynamicConfig(store, **made, now_ms=lambda: 0)
    with trio.fail_after(60):
        await nursery.start(changes.run, None)
    assert store.session_id == 2
    nursery.cancel_scope.cancel()


async def test_the_broker_registers_in_another_session(autojump_clock, monkeypatch):
    store = ExpiringStore()
    registration = Registration(store, SimpleNamespace(), SimpleNamespace(), lambda: 0)
    sessions = []

    async def join_again():
        sessions.append(store.session_id)
        if store.session_id == 1:
            raise SessionExpired(1)

    monkeypatch.setattr(registration, "join_again", join_again)
    await registration.join((), SimpleNamespace())
    assert sessions == [1, 2]
