"""A client of the laboratory: one request, and what is answered."""

import http.client
import json
from urllib.parse import urlsplit


def ask(lab, method, path, body=None, **headers):
    """The status and the JSON of the answer; `body` is an object, or bytes as they are."""
    where = urlsplit(lab.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent, {"content-type": "application/json", **named})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def done(lab, method, path, body=None):
    """The JSON of an answer that is no error."""
    status, answer = ask(lab, method, path, body)
    assert status in (200, 201), (status, answer)
    return answer
