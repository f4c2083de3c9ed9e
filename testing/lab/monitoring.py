"""The requests of a laboratory, printed as they come (edge)."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from barnabas.testing.errors import LocalBrokerError

WAIT_SECONDS = 1.0  # in one question; the end of the process waits as long at most
PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 10.0


def print_requests(url: str, api: str | None, ended: threading.Event, *, as_json: bool) -> None:
    """Print one line for each request that ends from now on, until `ended`. LocalBrokerError without a laboratory."""
    words = {} if api is None else {"api": api}
    # What came before this began is skipped.
    after = 0
    while (answer := _asked(url, {**words, "after": after})).requests:
        after = answer.last

    printed: set[int] = set()
    while not ended.is_set():
        answer = _asked(url, {**words, "after": after, "wait": WAIT_SECONDS})
        waiting = [request.number for request in answer.requests if request.outcome == "waits"]
        fresh = [each for each in answer.requests if each.number not in printed and each.number not in waiting]
        for request in fresh:
            print(json.dumps(request.whole) if as_json else request.text, flush=True)
        printed.update(request.number for request in fresh)

        # A long poll is printed when it ends, so it is asked for again until then.
        after = min(waiting) - 1 if waiting else answer.last
        printed = {number for number in printed if number > after}
        if waiting and not fresh:
            ended.wait(PAUSE_SECONDS)


class _Request(NamedTuple):
    number: int
    outcome: str
    text: str
    whole: Mapping[str, object]


class _Answer(NamedTuple):
    requests: Sequence[_Request]
    last: int


def _asked(url: str, words: Mapping[str, object]) -> _Answer:
    if urlsplit(url).scheme != "http":
        raise LocalBrokerError(f"{url!r} is no http://HOST:PORT/ of a laboratory")
    try:
        with urlopen(f"{url.rstrip('/')}/v1/requests?{urlencode(words)}", timeout=PATIENCE_SECONDS) as answer:
            found = json.load(answer)
    # The laboratory says in words what is wrong, such as the name of an API.
    except HTTPError as error:
        raise LocalBrokerError(json.load(error)["error"]) from error
    except (URLError, TimeoutError, ConnectionError) as error:
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or cause
        raise LocalBrokerError(f"no laboratory answers at {url}: {why}") from error
    rows = [_Request(row["number"], row["outcome"], row["text"], row) for row in found["requests"]]
    return _Answer(rows, found["last"])
