"""The network between the parties of a cluster, each way of which can be cut: network namespaces, made by root.

Theory of operation. Every party (a broker, ZooKeeper, the clients) has a namespace of its own with one interface, and
all interfaces hang on one bridge that only this run uses; the test itself sits on the bridge, in the namespace it was
started in. ARP is not used: every party has permanent neighbour entries with the hardware addresses of all others. The
direction from A to B is cut by an entry at A with a hardware address that no interface has. Packets from A are then
lost without an error, as in a network that is cut, for existing and new connections, and B still reaches A. This needs
nothing but `ip`.

Names contain the process id, so that runs do not disturb each other, and a run can find and remove what a killed run
left behind. Without root `proxy.ProxyNetwork` is used, which has the same methods.
"""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import Protocol

Address = tuple[str, int]

PREFIX = "bnb"
NAMESPACES = pathlib.Path("/run/netns")
UNUSED_ADDRESS = "02:00:00:00:00:00"
NEEDED = ("ip", "nsenter")


class Network(Protocol):
    """Where the parties live, and the ways between them."""

    def listen_address(self, party: str, port: int) -> Address:
        """What a server of this party binds; `port` is its own choice where addresses are private."""

    def reach_address(self, party: str, port: int) -> Address:
        """Where others, clients as well, reach a server of this party."""

    def command(self, party: str, words: Sequence[str]) -> list[str]:
        """The command that runs these words as this party."""

    def cut(self, source: str, target: str) -> None:
        """What the source sends to the target is lost from now on."""

    def heal(self, source: str, target: str) -> None:
        """The way from source to target is open again."""

    def note_process(self, party: str, pid: int) -> None:
        """This process acts for the party."""

    def close(self) -> None:
        """Take everything down."""


def can_make_namespaces() -> bool:
    """Whether this process may make network namespaces here."""
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in NEEDED):
        return False
    name = f"{PREFIX}{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


class NamespaceNetwork:
    """One namespace a party, on one bridge."""

    def __init__(self, parties: Sequence[str]) -> None:
        remove_leftovers()
        self.parties = list(parties)
        self._stem = f"{PREFIX}{os.getpid()}n{_free_number()}"
        self._subnet = _free_subnet()
        self._hardware: dict[str, str] = {}
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    @property
    def bridge(self) -> str:
        return f"{self._stem}b"

    def address(self, party: str) -> str:
        return f"{self._subnet}.{10 + self.parties.index(party)}"

    def namespace(self, party: str) -> str:
        return f"{self._stem}p{self.parties.index(party)}"

    def listen_address(self, party: str, port: int) -> Address:
        return self.address(party), port

    def reach_address(self, party: str, port: int) -> Address:
        return self.address(party), port

    def command(self, party: str, words: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={NAMESPACES / self.namespace(party)}", *words]

    def cut(self, source: str, target: str) -> None:
        self._tell(source, target, UNUSED_ADDRESS)

    def heal(self, source: str, target: str) -> None:
        self._tell(source, target, self._hardware[target])

    def note_process(self, party: str, pid: int) -> None:
        """A namespace knows its own."""

    def close(self) -> None:
        for party in self.parties:
            _ip_quietly("link", "del", f"{self.namespace(party)}v")
            _ip_quietly("netns", "del", self.namespace(party))
        _ip_quietly("link", "del", self.bridge)

    def _build(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.1/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for party in self.parties:
            space, cable = self.namespace(party), f"{self.namespace(party)}v"
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self.bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.address(party)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            self._hardware[party] = _hardware_address("-n", space, "link", "show", "eth0")
        for source in self.parties:
            for target in self.parties:
                if source != target:
                    self.heal(source, target)

    def _tell(self, source: str, target: str, hardware: str) -> None:
        place = ("dev", "eth0", "nud", "permanent")
        _ip("-n", self.namespace(source), "neigh", "replace", self.address(target), "lladdr", hardware, *place)


def remove_leftovers() -> None:
    """Remove the namespaces, with who lives there, the cables and bridges of runs whose process is no more."""
    stems = {stem for name in _names_there() if (stem := _dead_stem(name))}
    for name in _names_there():
        if any(name.startswith(stem) for stem in stems):
            if (NAMESPACES / name).exists():
                for pid in _ip("netns", "pids", name).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            _ip_quietly("netns", "del", name)
            _ip_quietly("link", "del", name)


def _dead_stem(name: str) -> str | None:
    match = re.match(rf"{PREFIX}(\d+)(?:n\d+[bp]|try)", name)
    if match is None or pathlib.Path(f"/proc/{match[1]}").exists():
        return None
    return match[0][:-1]


def _names_there() -> list[str]:
    spaces = [path.name for path in NAMESPACES.iterdir()] if NAMESPACES.is_dir() else []
    return [*spaces, *(path.name for path in pathlib.Path("/sys/class/net").iterdir())]


def _free_number() -> int:
    """A number that no other network of this process has."""
    taken = set(_names_there())
    return next(number for number in range(100) if f"{PREFIX}{os.getpid()}n{number}b" not in taken)


def _free_subnet() -> str:
    """The first three bytes of a private network that no interface here is part of."""
    taken = _ip("-o", "-4", "addr", "show")
    choices = [f"10.{213 + high}.{low}" for high in range(4) for low in range(256)]
    random.SystemRandom().shuffle(choices)
    return next(choice for choice in choices if f" {choice}." not in taken)


def _hardware_address(*arguments: str) -> str:
    match = re.search(r"link/ether ([0-9a-f:]{17})", _ip(*arguments))
    assert match is not None, "an interface without a hardware address"
    return match[1]


def _ip(*arguments: str) -> str:
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {ran.stderr.strip()}")
    return ran.stdout


def _ip_quietly(*arguments: str) -> None:
    with contextlib.suppress(RuntimeError):
        _ip(*arguments)


def all_ways(between: Iterable[str], and_: Iterable[str]) -> list[tuple[str, str]]:
    """Both ways between each of the ones and each of the others."""
    others = list(and_)
    return [way for one in between for other in others if one != other for way in ((one, other), (other, one))]
