"""Listeners as configuration writes them: `NAME://host:port`, comma separated, each name mapped to a protocol.

An empty host means every interface. Names are compared in upper case, as Kafka does.
"""

import re
from typing import NamedTuple

_ENDPOINT = r"(.*)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):([0-9]+)"
WILDCARDS = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    """One listener: where to listen, or what to tell clients."""

    listener: str
    protocol: str
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """Whether the host stands for every interface."""
        return self.host in WILDCARDS

    def __str__(self) -> str:
        return f"{self.listener}://{host_port(self.host, self.port)}"


def host_port(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_protocols(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the protocol of each listener name; ValueError says what is wrong."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.rpartition(":")
        protocol = protocol.strip().upper()
        if not colon:
            raise ValueError(f"Unable to parse {pair} as LISTENER:PROTOCOL")
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
        protocols[name.strip().upper()] = protocol
    return protocols


def parse_endpoints(text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    """The value of `listeners` or `advertised.listeners`; ValueError says what is wrong, in Kafka's words."""
    endpoints = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(_ENDPOINT, part)
        if not match or int(match[4]) > 65535:
            raise ValueError(f"Unable to parse {part} to a broker endpoint")
        name = match[1].upper()
        if name not in protocols:
            raise ValueError(f"No security protocol defined for listener {name}")
        endpoints.append(Endpoint(name, protocols[name], match[2] or match[3] or "", int(match[4])))
    return tuple(endpoints)


def parse_connection_limits(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: host -> number of connections."""
    limits = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = pair.rpartition(":")
        if not host or not count.strip().isascii() or not count.strip().isdigit():
            raise ValueError(f"Unable to parse {pair} as host:count")
        limits[_as_peers_have_it(host.strip().strip("[]"))] = int(count)
    return limits


def _as_peers_have_it(host: str) -> str:
    """An IPv6 address in its short form; anything else as it is."""
    if ":" not in host:
        return host
    import ipaddress  # imported here: such limits are rare

    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        return host
