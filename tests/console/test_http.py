"""Requests over HTTP, well-formed and not, to a server on a network in memory."""

import gzip
import json
from collections import Counter

import h11
import pytest
import trio

from barnabas.console.exchange import TEXT, Answer, BadRequest, Route, error_answer, json_answer, parsed_json
from barnabas.console.http import BODY_BYTES_MAX, COMPRESSED_BYTES_AT_A_TIME, HEAD_BYTES_MAX, HEADERS_MAX
from barnabas.console.server import CONNECTIONS_MAX, LOGINS_MAX, HttpServer
from barnabas.world.net import ConnectionLost
from tests.broker.memnet import PIPE_BYTES, MemNet
from tests.console.page import read_answer

HOST = b"Host: localhost:9644\r\n"


async def greet(request):
    return json_answer({"hello": request.params["name"], "query": dict(request.query)})


async def echo(request):
    return json_answer(parsed_json(request.body))


async def fail(request):
    raise RuntimeError("planted")


async def refuse(request):
    raise BadRequest("there is no such moon", status=404)


async def long_text(request):
    return Answer(200, TEXT, b"moon " * 1000)


async def endless(request):
    async def write(send):
        while True:
            await send(bytes(PIPE_BYTES))

    return Answer(200, TEXT, write)


async def very_long_text(request):
    return Answer(200, TEXT, b"moon " * 1_000_000)


class Bystander:
    """A task beside the server that takes every turn which the server leaves it."""

    def __init__(self):
        self.turns = 0

    async def run(self):
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1


class Counting:
    """An answer that is written piece by piece until the client leaves."""

    def __init__(self):
        self.has_ended = trio.Event()

    async def handle(self, request):
        return Answer(200, "text/event-stream", self._write)

    async def _write(self, send):
        number = 0
        try:
            while True:
                await send(b"data: %d\n\n" % number)
                number += 1
                await trio.sleep(1)
        finally:
            self.has_ended.set()


class Place:
    """A server, its network and what tests ask of both."""

    def __init__(self, nursery):
        self.net = MemNet()
        self.counting = Counting()
        self.server = HttpServer(
            self.net,
            [
                Route("GET", "/hello/{name}", greet),
                Route("POST", "/echo", echo),
                Route("GET", "/fail", fail),
                Route("GET", "/refuse", refuse),
                Route("GET", "/long", long_text),
                Route("GET", "/very-long", very_long_text),
                Route("GET", "/endless", endless),
                Route("GET", "/counting", self.counting.handle),
            ],
            names=["castle.example"],
        )

    async def connect(self):
        return await self.net.connect("127.0.0.1", self.port)

    async def ask(self, raw):
        """The answer to these bytes, on a connection of its own: (status, headers, body)."""
        stream = await self.connect()
        try:
            await stream.send_all(raw)
            return await read_answer(stream, method=method_of(raw))
        finally:
            stream.close()

    async def get(self, path, *lines):
        head = b"".join(line.encode() + b"\r\n" for line in lines)
        hosts = b"" if any(line.lower().startswith("host:") for line in lines) else HOST
        return await self.ask(b"GET %s HTTP/1.1\r\n%s%s\r\n" % (path.encode(), hosts, head))


def method_of(raw):
    """The method of these bytes, for h11; they may be no request at all."""
    method = raw.split(b" ")[0].decode("latin-1")
    return method if method in ("GET", "POST", "HEAD", "DELETE", "PUT", "OPTIONS") else "GET"


@pytest.fixture
async def place(nursery, autojump_clock):
    place = Place(nursery)
    place.port = await place.server.open("127.0.0.1", 9644)
    nursery.start_soon(place.server.run)
    await trio.testing.wait_all_tasks_blocked()
    return place


async def test_a_request_is_routed_by_path_and_its_braces_are_unquoted(autojump_clock, place):
    status, headers, body = await place.get("/hello/a%2Fb%20c?x=1&y=%C3%BC")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"hello": "a/b c", "query": {"x": "1", "y": "ü"}}
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["cache-control"] == "no-store"


async def test_one_connection_serves_several_requests(autojump_clock, place):
    stream = await place.connect()
    for _ in range(3):
        await stream.send_all(b"GET /hello/k HTTP/1.1\r\n" + HOST + b"\r\n")
        status, _, body = await read_answer(stream)
        assert (status, json.loads(body)["hello"]) == (200, "k")
    assert place.server.connection_count == 1


async def test_requests_that_arrive_together_are_answered_in_order(autojump_clock, place):
    stream = await place.connect()
    await stream.send_all(b"".join(b"GET /hello/%d HTTP/1.1\r\n%s\r\n" % (number, HOST) for number in range(3)))
    http = h11.Connection(h11.CLIENT)
    heard = []
    for _ in range(3):
        _, _, body = await read_answer(stream, http)
        heard.append(json.loads(body)["hello"])
        http.start_next_cycle()
    assert heard == ["0", "1", "2"]


async def test_a_long_body_is_compressed_for_a_client_that_takes_it(autojump_clock, place):
    _, plain, body = await place.get("/long")
    _, packed, packed_body = await place.get("/long", "Accept-Encoding: gzip")
    assert "content-encoding" not in plain
    assert packed["content-encoding"] == "gzip"
    assert gzip.decompress(packed_body) == body == b"moon " * 1000


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [("gzip;q=0", False), ("identity, gzip; q=0.0", False), ("br, GZIP;q=0.5", True), ("gzipped", False)],
)
async def test_a_client_that_refuses_compression_gets_the_body_as_it_is(autojump_clock, place, accepted, is_packed):
    _, headers, _ = await place.get("/long", f"Accept-Encoding: {accepted}")
    assert ("content-encoding" in headers) == is_packed


async def test_head_has_the_headers_of_get_and_no_body(autojump_clock, place):
    status, headers, body = await place.ask(b"HEAD /long HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (status, headers["content-length"], body) == (200, "5000", b"")


@pytest.mark.parametrize(
    ("raw", "status", "said"),
    [
        (b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n", 404, "/nowhere"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404, "nothing at"),
        (b"GET /hello/%2e%2e/%2e%2e HTTP/1.1\r\n" + HOST + b"\r\n", 404, "nothing at"),
        (b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n", 405, "takes POST, not GET"),
        (b"OPTIONS /echo HTTP/1.1\r\n" + HOST + b"\r\n", 415, "application/json"),
        (b"GET /hello/k HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET /hello/k HTTP/1.0\r\n\r\n", 421, "no name of this listener"),
        (b"GET /hello/k HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "evil.example"),
        (b"GET /hello/k HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421, "evil.example"),
        (b"GET /hello/k HTTP/1.1\r\nHost: [::1].evil.example\r\n\r\n", 421, "evil.example"),
        (b"GET /hello/k HTTP/1.1\r\nHost: localhost:1@evil.example\r\n\r\n", 421, "evil.example"),
        (b"GET /hello/k HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\n\r\n", 403, "another site"),
        (b"GET /hello/k HTTP/1.1\r\n" + HOST + b"Origin: null\r\n\r\n", 403, "another site"),
        (b"GET /hello/k HTTP/1.1\r\n" + HOST + b"Sec-Fetch-Site: cross-site\r\n\r\n", 403, "another site"),
        (b"nonsense\r\n\r\n", 400, "illegal request line"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * HEAD_BYTES_MAX, 431, ""),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", 431, str(HEAD_BYTES_MAX)),
        (b"GET /long HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "Content-Length"),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400, "Content-Length"),
        (b"GET /hello/k HTTP/1.1\r\n" + HOST + b"a:\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431, f"{HEADERS_MAX} headers"),
        (b"GET /hello/k HTTP/1.1\r\n" + HOST + b"a:\r\n" * (HEADERS_MAX + 1), 431, f"{HEADERS_MAX} headers"),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 411, "content-length"),
    ],
)  # fmt: skip
async def test_what_cannot_be_answered_hears_why(autojump_clock, place, raw, status, said):
    heard, headers, body = await place.ask(raw)
    assert heard == status
    assert said in body.decode()
    assert headers["x-content-type-options"] == "nosniff", "a part of the request may be in the answer"
    assert "default-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("content_type", "sent", "status", "said"),
    [
        ("application/json", b'{"a": 1}', 200, '"a": 1'),
        ("application/json; charset=utf-8", b'{"a": 1}', 200, '"a": 1'),
        ("application/x-www-form-urlencoded", b"a=1", 415, "application/json"),
        ("text/plain", b'{"a": 1}', 415, "application/json"),
        ("application/json", b'{"a":\n 1,}', 400, "line 2, column"),
        ("application/json", b"\xff", 400, "byte 0"),
        ("application/json", b"[]", 400, "object"),
        ("application/json", b"[" * 100_000, 400, "nested too deeply"),
        ("application/json", b'{"a": %s}' % (b"9" * 5000), 400, "a number that is too long"),
        ("application/json", b" " * (BODY_BYTES_MAX + 1), 413, str(BODY_BYTES_MAX)),
    ],
)
async def test_a_body_is_json_or_its_place_of_error_is_said(autojump_clock, place, content_type, sent, status, said):
    head = (
        f"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {len(sent)}\r\n\r\n"
    )
    heard, _, body = await place.ask(head.encode() + sent)
    assert heard == status
    assert said in body.decode()


async def test_a_body_is_asked_for_when_the_client_waits_for_that(autojump_clock, place):
    stream = await place.connect()
    await stream.send_all(
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
        b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 100")
    await stream.send_all(b"{}")
    status, _, body = await read_answer(stream)
    assert (status, body) == (200, b"{}")


@pytest.mark.parametrize("host", ["127.0.0.1:9644", "[::1]:9644", "10.0.0.7", "Castle.Example:9644", "localhost"])
async def test_addresses_and_the_listeners_names_are_hosts(autojump_clock, place, host):
    status, _, _ = await place.get("/hello/k", f"Host: {host}", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin")
    assert status == 200


async def test_a_link_on_another_site_leads_to_the_page(autojump_clock, place):
    status, _, _ = await place.get("/hello/k", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
    assert status == 200


async def test_what_a_handler_refuses_is_said(autojump_clock, place):
    status, _, body = await place.get("/refuse")
    assert (status, json.loads(body)) == (404, {"error": "there is no such moon"})


@pytest.mark.provokes_mistakes
async def test_a_bug_ends_its_answer_and_nothing_else(autojump_clock, place):
    status, _, body = await place.get("/fail")
    assert (status, "its log says why" in body.decode()) == (500, True)
    assert (await place.get("/hello/k"))[0] == 200


async def test_half_a_request_is_given_up_after_a_while(autojump_clock, place):
    stream = await place.connect()
    await stream.send_all(b"GET /hello/k HTTP/1.1\r\nHo")
    began = trio.current_time()
    status, _, _ = await read_answer(stream)
    assert (status, trio.current_time() - began) == (408, pytest.approx(10))
    assert await stream.receive_some(1) == b""


async def test_a_connection_that_asks_nothing_is_closed_after_a_while(autojump_clock, place):
    stream = await place.connect()
    began = trio.current_time()
    assert await stream.receive_some(1) == b""
    assert trio.current_time() - began == pytest.approx(60)
    await trio.testing.wait_all_tasks_blocked()
    assert place.server.connection_count == 0


async def test_pieces_are_written_until_the_client_leaves(autojump_clock, place):
    stream = await place.connect()
    await stream.send_all(b"GET /counting HTTP/1.1\r\n" + HOST + b"\r\n")
    heard = b""
    while b"data: 2\n\n" not in heard:
        heard += await stream.receive_some(1 << 16)
    stream.close()
    with trio.fail_after(2):
        await place.counting.has_ended.wait()
    await trio.testing.wait_all_tasks_blocked()
    assert place.server.connection_count == 0


async def test_a_client_that_takes_nothing_is_given_up(autojump_clock, place):
    stream = await place.connect()
    await stream.send_all(b"GET /long HTTP/1.1\r\n" + HOST + b"\r\n")
    for _ in range(100):
        with trio.move_on_after(0.01):
            await stream.send_all(b"GET /long HTTP/1.1\r\n" + HOST + b"\r\n")
    await trio.sleep(200)
    assert place.server.connection_count == 0


async def test_a_full_server_closes_the_connection_that_has_waited_longest(autojump_clock, place):
    first = await place.connect()
    await trio.testing.wait_all_tasks_blocked()
    others = [await place.connect() for _ in range(CONNECTIONS_MAX - 1)]
    await trio.testing.wait_all_tasks_blocked()
    status, _, _ = await place.get("/hello/k")
    assert status == 200
    with pytest.raises(ConnectionLost):
        assert await first.receive_some(1) == b""
        raise ConnectionLost("closed in order")
    assert len(others) == CONNECTIONS_MAX - 1


async def test_a_server_whose_connections_are_all_answered_is_busy(autojump_clock, place):
    streams = [await place.connect() for _ in range(CONNECTIONS_MAX)]
    for stream in streams:
        await stream.send_all(b"GET /counting HTTP/1.1\r\n" + HOST + b"\r\n")
        await stream.receive_some(1 << 16)
    status, _, body = await place.get("/hello/k")
    assert (status, body) == (503, b"too many connections\n")
    for stream in streams:
        stream.close()


async def test_a_client_that_takes_no_bytes_makes_room_for_others(autojump_clock, place):
    streams = [await place.connect() for _ in range(CONNECTIONS_MAX)]
    for stream in streams:
        await stream.send_all(b"GET /endless HTTP/1.1\r\n" + HOST + b"\r\n")
        await stream.receive_some(1)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        assert (await place.get("/hello/k"))[0] == 200
    assert place.server.connection_count <= CONNECTIONS_MAX
    for stream in streams:
        stream.close()


async def test_requests_that_arrive_together_leave_others_their_turns(place):
    seen = []
    bystander = Bystander()

    async def note(request):
        seen.append(bystander.turns)
        return json_answer({})

    place.server.mount([Route("GET", "/note", note)])
    stream = await place.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        await stream.send_all((b"GET /note HTTP/1.1\r\n" + HOST + b"\r\n") * 100)
        with trio.fail_after(10):
            while len(seen) < 100:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    # The order of the tasks in a turn is random.
    assert len(set(seen)) >= 50


async def test_a_very_long_body_is_compressed_in_many_steps(place):
    bystander = Bystander()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        _, _, body = await place.get("/very-long", "Accept-Encoding: gzip")
        nursery.cancel_scope.cancel()
    assert gzip.decompress(body) == b"moon " * 1_000_000
    assert bystander.turns >= len(b"moon " * 1_000_000) // COMPRESSED_BYTES_AT_A_TIME


async def test_many_wrong_logins_keep_no_open_route_from_answering(nursery, autojump_clock):
    async def refuse_late(request):
        await trio.sleep(1)
        return error_answer(401, "wrong")

    routes = [Route("GET", "/hello/{name}", greet), Route("GET", "/open/{name}", greet, is_open=True)]
    place = Place(nursery)
    place.server = HttpServer(place.net, routes, admit=refuse_late)
    place.port = await place.server.open("127.0.0.1", 9644)
    nursery.start_soon(place.server.run)
    found = Counter()

    async def ask():
        found[(await place.get("/hello/k"))[0]] += 1

    async with trio.open_nursery() as asking:
        for _ in range(LOGINS_MAX + 5):
            asking.start_soon(ask)
        await trio.sleep(0.5)
        assert (await place.get("/open/k"))[0] == 200
    assert found == {401: LOGINS_MAX, 503: 5}
    assert (await place.get("/hello/k"))[0] == 401
