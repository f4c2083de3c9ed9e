"""The rules about listeners, with the messages of a running Apache Kafka 3.9 (reference B.15).

Names and ports in `listeners` differ, except for an IPv4 and an IPv6 address that share a port. `advertised.listeners`
selects some of them by name. Brokers reach each other at one of these, and the controller may reach them at another.
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.config.attributes import BrokerAttributes
from barnabas.config.listeners import Endpoint, parse_connection_limits, parse_endpoints, parse_protocols

NO_LISTENER = "requirement failed: There must be at least one broker advertised listener."


class Problem(NamedTuple):
    """A rule that is broken: the properties that may be the cause, the likeliest first, and the message."""

    names: tuple[str, ...]
    why: str


def listener_problems(config: BrokerAttributes) -> list[Problem]:
    """The broken rules about listeners, and about the limits on connections."""
    try:
        protocols = parse_protocols(config.listener_security_protocol_map)
    except ValueError as error:
        return [Problem(("listener.security.protocol.map",), str(error))]

    problems = []
    parsed: dict[str, tuple[Endpoint, ...]] = {}
    for name, text in (("listeners", config.listeners), ("advertised.listeners", config.advertised_listeners or "")):
        try:
            parsed[name] = parse_endpoints(text, protocols)
        except ValueError as error:
            problems.append(Problem((name,), f"Error creating broker listeners from '{text}': {error}"))

    try:
        parse_connection_limits(config.max_connections_per_ip_overrides)
    except ValueError as error:
        problems.append(Problem(("max.connections.per.ip.overrides",), str(error)))

    # The rules below compare parsed listeners, so they need a text that can be parsed.
    if problems:
        return problems
    bound = parsed["listeners"]
    advertised = parsed["advertised.listeners"]
    problems = _bound_problems(config, bound)
    if config.advertised_listeners is not None:
        problems += _advertised_problems(config, bound, advertised)
    return problems + _broker_problems(config, bound if config.advertised_listeners is None else advertised, protocols)


def _bound_problems(config: BrokerAttributes, bound: Sequence[Endpoint]) -> list[Problem]:
    whys = [NO_LISTENER] if not bound else []
    if not _have_different_names(bound):
        whys.append(f"requirement failed: Each listener must have a different name, listeners: {config.listeners}")
    else:
        whys += _port_problems(bound, config.listeners)

    problems = [Problem(("listeners",), why) for why in whys]
    names = _names(bound)
    for early in filter(None, (part.strip() for part in (config.early_start_listeners or "").split(","))):
        if bound and early.upper() not in names:
            why = (
                f"early.start.listeners contains listener {early.upper()}, but this is not contained in listeners or "
                "controller.listener.names"
            )
            problems.append(Problem(("early.start.listeners",), why))

    return problems


def _port_problems(bound: Sequence[Endpoint], text: str) -> list[str]:
    """Ports that two listeners share, unless one of them is an IPv4 address and the other an IPv6 address."""
    by_port: dict[int, list[str]] = {}
    for endpoint in bound:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    problems = []
    for port, hosts in by_port.items():
        families = [_ip_version(host) for host in hosts]
        if families.count(None) > 1:
            problems.append(f"requirement failed: Each listener must have a different port, listeners: {text}")
        elif len(families) > 2 or (len(families) == 2 and None in families):
            problems.append(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, listeners: {text}, port: {port}"
            )
        elif len(families) == 2 and families[0] == families[1]:
            problems.append(
                "requirement failed: If you have two listeners on the same port then one needs to be IPv4 and the "
                f"other IPv6, listeners: {text}, port: {port}"
            )

    return problems


def _advertised_problems(
    config: BrokerAttributes, bound: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> list[Problem]:
    whys = [NO_LISTENER] if not advertised else []
    if not _have_different_names(advertised):
        text = config.advertised_listeners
        whys.append(f"requirement failed: Each listener must have a different name, listeners: {text}")
    if not set(_names(advertised)) <= set(_names(bound)):
        whys.append(
            "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {_listed(advertised)}. The valid options based on the current configuration are "
            f"{_listed(bound)}"
        )

    whys += [
        f"requirement failed: advertised.listeners cannot use the nonroutable meta-address {endpoint.host}. "
        "Use a routable IP address."
        for endpoint in advertised
        if endpoint.host in ("0.0.0.0", "::")
    ]
    return [Problem(("advertised.listeners",), why) for why in whys]


def _broker_problems(
    config: BrokerAttributes, advertised: Sequence[Endpoint], protocols: dict[str, str]
) -> list[Problem]:
    """The broken rules about the listeners that brokers use among themselves."""
    problems = []
    among_brokers = (config.inter_broker_listener_name or config.security_inter_broker_protocol).upper()
    for_control = config.control_plane_listener_name
    if config.inter_broker_listener_name is not None and among_brokers not in protocols:
        why = (
            f"Listener with name {among_brokers} defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map."
        )
        problems.append(Problem(("inter.broker.listener.name",), why))
    elif advertised and among_brokers not in _names(advertised):
        why = _not_advertised("inter.broker.listener.name", advertised)
        problems.append(Problem(("inter.broker.listener.name", "security.inter.broker.protocol", "listeners"), why))

    if for_control is not None:
        problems += [
            Problem(("control.plane.listener.name",), why)
            for why in _control_plane_problems(for_control.upper(), among_brokers, advertised, protocols)
        ]

    return problems


def _control_plane_problems(
    name: str, among_brokers: str, advertised: Sequence[Endpoint], protocols: dict[str, str]
) -> list[str]:
    if name not in protocols:
        return [
            f"Listener with {name} defined in control.plane.listener.name not found in listener.security.protocol.map."
        ]
    if name == among_brokers:
        return [
            "requirement failed: control.plane.listener.name, when defined, should have a different value from the "
            f"inter broker listener name. Currently they both have the value ListenerName({name})"
        ]
    if advertised and name not in _names(advertised):
        return [_not_advertised("control.plane.listener.name", advertised)]
    return []


def _not_advertised(name: str, advertised: Sequence[Endpoint]) -> str:
    return (
        f"requirement failed: {name} must be a listener name defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {_listed(advertised)}"
    )


def _names(endpoints: Sequence[Endpoint]) -> list[str]:
    return [endpoint.listener for endpoint in endpoints]


def _listed(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(_names(endpoints))


def _have_different_names(endpoints: Sequence[Endpoint]) -> bool:
    return len(set(_names(endpoints))) == len(endpoints)


def _ip_version(host: str) -> int | None:
    """4 or 6 for an address, None for a name and for every interface."""
    import ipaddress  # imported here: two listeners on one port are rare

    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return None
