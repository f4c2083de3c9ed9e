"""Both networks: one direction can be cut without the other, and open connections continue after the cut."""

import socket
import subprocess
import sys
import time

import pytest

from compat_tests.cluster.network import NamespaceNetwork, all_ways, can_make_namespaces
from compat_tests.cluster.proxy import ProxyNetwork

PORT = 7000
SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(1):
        print(data.decode(), flush=True)
        connection.sendall(data)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for word in sys.stdin:
    connection.sendall(word[:1].encode())
    print(connection.recv(1).decode(), flush=True)
"""


@pytest.fixture(params=["namespaces", "proxies"])
def network(request):
    if request.param == "namespaces" and not can_make_namespaces():
        pytest.skip("network namespaces need root")
    made = NamespaceNetwork(["one", "two"]) if request.param == "namespaces" else ProxyNetwork(["one", "two"])
    yield made
    made.close()


@pytest.fixture
def talk(network):
    """A client (party one) of an echo server (party two), and the bytes that the server received."""
    host, port = network.listen_address("two", PORT)
    server = _spawn(network, "two", SERVER, host, port)
    assert server.stdout.readline() == "up\n"
    client = _spawn(network, "one", CLIENT, *network.reach_address("two", PORT))
    yield client, server
    for process in (client, server):
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            stream.close()


def _spawn(network, party, program, host, port):
    words = network.command(party, [sys.executable, "-c", program, host, str(port)])
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    network.note_process(party, process.pid)
    return process


def _say(client, word):
    client.stdin.write(f"{word}\n")
    client.stdin.flush()


def _hears(process, seconds):
    """Whether it prints a line in this time."""
    import select

    return bool(select.select([process.stdout], [], [], seconds)[0])


@pytest.mark.parametrize(
    ("ways", "server_hears"),
    [([("one", "two")], False), ([("two", "one")], True), (all_ways(["one"], ["two"]), False)],
)
def test_a_way_is_cut_and_healed(network, talk, ways, server_hears):
    client, server = talk
    _say(client, "a")
    assert client.stdout.readline() == "a\n"
    assert server.stdout.readline() == "a\n"
    for way in ways:
        network.cut(*way)
    time.sleep(0.2)  # the proxy's turn
    _say(client, "b")
    assert _hears(server, 0.5) is server_hears
    assert not _hears(client, 0.5)
    for way in ways:
        network.heal(*way)
    assert _hears(client, 20.0)
    assert client.stdout.readline() == "b\n"
    assert server.stdout.readline() == "b\n"


def test_what_was_made_is_removed():
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    network = NamespaceNetwork(["one"])
    bridge = network.bridge
    assert bridge in [name for _, name in socket.if_nameindex()]
    network.close()
    assert bridge not in [name for _, name in socket.if_nameindex()]
