"""Fetches a key set or an access token over http, https, or from a file (edge): `sasl.oauthbearer.*.endpoint.url`.

The address comes from the broker's own properties, never from a client. Nothing that the other side says leads to
another address: redirects are errors, and proxies of the environment are not used, as in Java.
"""

import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    url2pathname,
)

BYTES_MAX = 1 << 20
SCHEMES = ("https", "http", "file")


class Fetcher(NamedTuple):
    """How to fetch. Its calls block: run them in a thread."""

    timeout_seconds: float = 10.0  # of each wait on the network
    context: ssl.SSLContext | None = None  # of https; None: the system's certificates

    def fetch(self, url: str) -> bytes:
        """What is at this address, at most BYTES_MAX. OSError, ValueError."""
        return self._read(url, None, {})

    def post(self, url: str, form: bytes, headers: Mapping[str, str]) -> bytes:
        """The answer to a form. OSError, ValueError."""
        return self._read(url, form, {"Content-Type": "application/x-www-form-urlencoded", **headers})

    def _read(self, url: str, form: bytes | None, headers: Mapping[str, str]) -> bytes:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"{url}: only {', '.join(SCHEMES)} are served")
        if parts.scheme == "file" and form is None:
            with open(url2pathname(parts.path), "rb") as file:
                return _bounded(url, file.read(BYTES_MAX + 1))
        opener = OpenerDirector()

        # The handlers are listed here, because `build_opener` adds redirects, proxies, ftp and
        # data.
        for handler in (
            HTTPHandler(),
            HTTPSHandler(context=self.context),
            HTTPErrorProcessor(),
            HTTPDefaultErrorHandler(),
        ):
            opener.add_handler(handler)

        try:
            with opener.open(Request(url, form, dict(headers)), timeout=self.timeout_seconds) as response:
                return _bounded(url, response.read(BYTES_MAX + 1))
        # HTTPException is no OSError, unlike the other errors of the network.
        except http.client.HTTPException as error:
            raise ConnectionError(f"{url} does not speak HTTP: {type(error).__name__}") from None


def _bounded(url: str, data: bytes) -> bytes:
    if len(data) > BYTES_MAX:
        raise ValueError(f"{url} sends more than {BYTES_MAX} bytes")
    return data
