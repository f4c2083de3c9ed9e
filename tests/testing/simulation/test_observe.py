"""The observer looks at each replica as soon as there is one."""

from types import SimpleNamespace

from barnabas.testing.simulation.observe import Observer


class Partition:
    def __init__(self, name):
        self.name = name
        self.waiters = {}


class Looks:
    """What the observer has looked at, and what it has missed since."""

    def __init__(self):
        self.seen = []
        self.removed = []

    def look(self, _, partition):
        self.seen.append(partition.name)

    def replica_removed(self, _, partition):
        self.removed.append(partition.name)

    def looked(self):
        """After each step."""


def test_a_replica_that_comes_in_the_step_in_which_another_one_goes_is_looked_at():
    gone, stays, comes = map(Partition, ("gone", "stays", "comes"))
    replicas = [gone, stays]
    node = SimpleNamespace(broker_id=1, broker=SimpleNamespace(replicas=replicas))
    times = iter((0.0, 0.0, 0.1, 0.2))
    looks = Looks()
    observer = Observer(lambda: [node], looks, lambda: next(times))
    observer.step()
    looks.seen.clear()
    replicas[:] = [stays, comes]
    observer.step()
    assert looks.removed == ["gone"]
    assert looks.seen == ["comes"]
    observer.step()
    assert looks.seen == ["comes"]
