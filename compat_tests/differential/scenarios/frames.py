"""Frames and headers that are odd or broken, and ApiVersions: what a client meets before anything else."""

import struct

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from compat_tests.differential.scenario import scenario

METADATA = 3
NO_TOPICS = b"\x01\x00\x00\x00"  # Metadata v9: no topics, and three flags


@scenario
def api_versions(side):
    for version in range(5):
        request = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = side.ask(request, version)
        yield f"v{version}", {APIS[row.api_key].name: [row.min_version, row.max_version] for row in answer.api_keys}
        answer.api_keys = ()
        yield f"v{version} rest", answer


@scenario
def client_software_names(side):
    pairs = [("", "1"), ("x", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1.0 x"), ("ü", "1"), ("a.b-c.9", "1")]
    pairs += [("a_b", "1"), ("a\n", "1"), (".", "."), ("a", "-")]
    for name, software_version in pairs:
        request = m.ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        answer = side.ask(request, 3)
        has_rows = bool(answer.api_keys)
        answer.api_keys = ()
        yield f"{name!r} {software_version!r}", [has_rows, answer]


@scenario
def api_versions_of_the_future(side):
    for version in (5, 99, 32767, -1):
        with side.connect() as client:
            client.socket.sendall(struct.pack(">ihhih", 11, 18, version, 7, -1) + b"\x00")
            client.socket.settimeout(2)
            try:
                yield f"v{version}", client.socket.recv(1000).hex()
            except OSError as error:
                yield f"v{version}", type(error).__name__


@scenario
def first_bytes(side):
    openings = {
        "length 0": struct.pack(">i", 0),
        "length 3": struct.pack(">i", 3) + b"abc",
        "length -1": struct.pack(">i", -1),
        "length of 2 GiB": struct.pack(">i", 2**31 - 1),
        "length above the limit": struct.pack(">i", 104857601),
        "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "header without client id": struct.pack(">ihhi", 8, 18, 3, 1),
        "unknown key": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
        "negative key": struct.pack(">ihhih", 10, -3, 0, 1, -1),
        "version too high": struct.pack(">ihhih", 10, 3, 99, 1, -1),
        "version too low": struct.pack(">ihhih", 10, 3, -1, 1, -1),
        "client id is not UTF-8": struct.pack(">ihhih", 16, 18, 0, 1, 2) + b"\xff\xfe" + bytes(4),
    }
    for name, opening in openings.items():
        with side.connect() as client:
            client.socket.sendall(opening)
            yield name, client.listen()


@scenario
def every_api_above_its_versions(side):
    """A version that no broker has: the connection is closed, for every API but ApiVersions."""
    for key, api in APIS.items():
        if api.served and key != 18:
            with side.connect() as client:
                client.socket.sendall(struct.pack(">ihhih", 10, key, api.max_version + 1, 1, -1))
                yield f"{api.name} v{api.max_version + 1}", client.listen()


@scenario
def bodies_that_lie(side):
    bodies = {
        "array beyond the frame": (1, struct.pack(">i", 2**31 - 1)),
        "array of a million": (1, struct.pack(">i", 1_000_000)),
        "array of -2": (1, struct.pack(">i", -2)),
        "string beyond the frame": (1, struct.pack(">ih", 1, 32000) + b"short"),
        "string of -5": (1, struct.pack(">ih", 1, -5)),
        "null string": (1, struct.pack(">ih", 1, -1)),
        "string is not UTF-8": (1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        "boolean of 2": (4, struct.pack(">ib", 0, 2)),
        "compact array beyond the frame": (9, b"\xff\xff\xff\xff\x0f"),
        "spare bytes": (9, bytes.fromhex("00000000010000")),
        "unknown tag": (9, NO_TOPICS + b"\x01\x63\x02ab"),
        "tag beyond the frame": (9, NO_TOPICS + b"\x01\x63\x7fab"),
        "descending tags": (9, NO_TOPICS + b"\x02\x63\x01a\x62\x01a"),
    }
    for name, (version, body) in bodies.items():
        with side.connect() as client:
            client.send_body(METADATA, version, body)
            yield name, _answered(client.receive())


@scenario
def headers_that_lie(side):
    headers = {
        "with a tag": struct.pack(">hhih", METADATA, 9, 1, 2) + b"ab\x01\x05\x01z",
        "null client id": struct.pack(">hhih", METADATA, 9, 1, -1) + b"\x00",
        "client id of -2": struct.pack(">hhih", METADATA, 9, 1, -2) + b"\x00",
        "client id beyond the frame": struct.pack(">hhih", METADATA, 9, 1, 3000) + b"\x00",
    }
    for name, header in headers.items():
        with side.connect() as client:
            client.send_body(METADATA, 9, NO_TOPICS + b"\x00", header)
            yield name, _answered(client.receive())


def _answered(answer):
    """The other scenarios' topics are in some of these answers: that there is one is what counts."""
    return answer if isinstance(answer, str) else "answered"
