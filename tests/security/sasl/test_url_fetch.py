"""Fetching key sets and access tokens: from a file, from a server, and from servers that misbehave."""

import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from barnabas.security.sasl.url_fetch import BYTES_MAX, Fetcher


class Answers(BaseHTTPRequestHandler):
    """Paths with different answers."""

    def do_GET(self):
        match self.path:
            case "/keys":
                self.answer(200, b'{"keys":[]}')
            case "/elsewhere":
                self.answer(302, b"", Location=f"http://127.0.0.1:{self.server.server_address[1]}/keys")
            case "/file":
                self.answer(302, b"", Location="file:///etc/hostname")
            case "/large":
                self.answer(200, b"x" * (BYTES_MAX + 1))
            case "/nonsense":
                self.wfile.write(b"nonsense\r\n\r\n")
            case _:
                self.answer(500, b"broken")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"].encode()
        self.answer(200, b"|".join([body, kind, self.headers["Authorization"].encode()]))

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Tests print nothing."""


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def base():
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as url:
        yield url


def test_what_is_fetched_and_posted(base, tmp_path):
    assert Fetcher().fetch(f"{base}/keys") == b'{"keys":[]}'
    answer = Fetcher().post(f"{base}/token", b"grant_type=x", {"Authorization": "Basic abc"})
    assert answer == b"grant_type=x|application/x-www-form-urlencoded|Basic abc"
    file = tmp_path / "key set.json"
    file.write_bytes(b"{}")
    assert Fetcher().fetch(file.as_uri()) == b"{}"


def test_proxies_of_the_environment_are_not_used(base, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Fetcher().fetch(f"{base}/keys") == b'{"keys":[]}'


@pytest.mark.parametrize("path", ["/elsewhere", "/file", "/broken"])
def test_redirects_and_errors_are_failures(base, path):
    with pytest.raises(HTTPError):
        Fetcher().fetch(base + path)


def test_a_large_or_senseless_answer_is_a_failure(base, tmp_path):
    with pytest.raises(ValueError, match="more than"):
        Fetcher().fetch(f"{base}/large")
    with pytest.raises(ConnectionError, match="BadStatusLine"):
        Fetcher().fetch(f"{base}/nonsense")
    file = tmp_path / "large"
    file.write_bytes(b"x" * (BYTES_MAX + 1))
    with pytest.raises(ValueError, match="more than"):
        Fetcher().fetch(file.as_uri())


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/keys", "data:,x", "keys", "FILE2:///etc/hostname"])
def test_other_schemes_are_refused(url):
    with pytest.raises(ValueError, match="only https, http, file"):
        Fetcher().fetch(url)


def test_a_server_that_says_nothing_is_given_up():
    class Silent(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1 << 16)
            released.wait(10)

    released = threading.Event()
    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent)) as url:
        with pytest.raises(OSError, match="timed out"):
            Fetcher(timeout_seconds=0.1).fetch(f"{url}/keys")
        released.set()
