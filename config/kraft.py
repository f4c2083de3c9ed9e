"""Files for Apache Kafka's KRaft mode: what a person who starts Barnabas with one has to change (pure).

The listeners in `controller.listener.names` are a KRaft controller's, and are left out. What makes a server a part of a
quorum is refused, because ignoring it would start a broker beside the cluster that was meant.
"""

from collections.abc import Collection, Mapping

QUORUM = ("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers")
NAMES = "controller.listener.names"
LISTENERS = ("listeners", "advertised.listeners")


def refusal(texts: Mapping[str, str], origins: Mapping[str, str]) -> str | None:
    """Why these settings are refused, and what to do; None if they are not of KRaft. `origins`: where each one is."""
    found = [name for name in QUORUM if texts.get(name, "").strip()]
    if not found:
        return None
    if [role.strip() for role in texts.get("process.roles", "").split(",")] == ["controller"]:
        return (
            "this is the configuration of a KRaft controller, and Barnabas has no process for that. One broker needs "
            "no controller, and brokers with the same zookeeper.connect elect one among themselves: start brokers alone"
        )
    places = " and ".join(f"{name} ({origins[name]})" for name in found)
    return (
        "this is a configuration for KRaft mode, which Barnabas does not have. One broker needs neither ZooKeeper nor "
        f"a controller: remove {places}. Brokers of a cluster need zookeeper.connect instead"
    )


def controllers_listeners(texts: Mapping[str, str]) -> frozenset[str]:
    """The names in `controller.listener.names`, in upper case."""
    return frozenset(name.strip().upper() for name in texts.get(NAMES, "").split(",") if name.strip())


def without(listeners: str, names: Collection[str]) -> str:
    """`listeners` or `advertised.listeners` without those of these names."""
    return ",".join(part for part in listeners.split(",") if _name_of(part) not in names)


def named_in(listeners: str, names: Collection[str]) -> list[str]:
    """Those of these names that `listeners` has, in its order."""
    return [name for name in map(_name_of, listeners.split(",")) if name in names]


def _name_of(listener: str) -> str:
    return listener.partition("://")[0].strip().upper()
