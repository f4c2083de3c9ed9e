"""SCRAM logins over TLS, one after the other on each of some threads: `python -m bench.logins PORT TRUSTED COUNT`.

A login is a connection, a TLS handshake, SaslHandshake and two SaslAuthenticate; the connection is closed then. The
salted password is computed once, so that most of the CPU is the broker's. Prints one line of JSON.
"""

import json
import secrets
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from barnabas.security.sasl.client import HANDSHAKE_VERSION, LoggedIn, SaslLogin
from barnabas.security.sasl.exchange import Compute
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramClient
from barnabas.wire import messages as m
from compat_tests.raw import RawClient, ask

MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "bench", "bench-secret-2207"
THREADS = 4
AUTHENTICATE_VERSION = 2
VERSIONS = {m.SaslHandshakeRequest: HANDSHAKE_VERSION, m.SaslAuthenticateRequest: AUTHENTICATE_VERSION}

_mechanism = next(each for each in MECHANISMS.values() if each.name == MECHANISM)


class Client(RawClient):
    """A connection with TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


class Logins:
    """Logins of one user at one broker."""

    def __init__(self, port: int, trusted: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=trusted)
        self._salted = b""  # the same for every login: the user has one password and one salt

    def once(self) -> float:
        """One login; seconds."""
        began = time.perf_counter()
        login = SaslLogin(MECHANISM, ScramClient(_mechanism, USER, PASSWORD, secrets.token_urlsafe(16)))
        step = login.begin()
        with Client(self._port, self._context) as client:
            while not isinstance(step, LoggedIn):
                if isinstance(step, Compute):
                    self._salted = self._salted or step.run()
                    step = step.then(self._salted)
                step = login.take(ask(client, step, VERSIONS[type(step)]))
        return time.perf_counter() - began


def main() -> None:
    port, trusted, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    logins = Logins(port, trusted)
    logins.once()
    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        each = sorted(threads.map(lambda _: logins.once(), range(count)))
    seconds = time.perf_counter() - began
    print(json.dumps({"rate": count / seconds, "p50_ms": each[count // 2] * 1000}), flush=True)


if __name__ == "__main__":
    main()
