"""The files of the page (edge): read from the package when one is first asked for, and served by their names."""

import hashlib
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from barnabas.console.exchange import Answer, HttpRequest, Route

FOLDER = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def static_routes() -> Sequence[Route]:
    """A route for each file of the page; `index.html` is at `/`."""
    # The table has the files that are there, so no path of a request reaches the file system.
    names = sorted(path.name for path in FOLDER.iterdir() if path.suffix in CONTENT_TYPES)
    return [
        Route("GET", "/" if name == "index.html" else f"/{name}", partial(_file, name), is_open=True) for name in names
    ]


async def _file(name: str, request: HttpRequest) -> Answer:
    content, tag = _content(name)

    # The browser asks each time whether its copy is the one of this version of the broker.
    headers = [("cache-control", "no-cache"), ("etag", tag)]
    if request.headers.get("if-none-match") == tag:
        return Answer(304, CONTENT_TYPES[Path(name).suffix], b"", headers)
    return Answer(200, CONTENT_TYPES[Path(name).suffix], content, headers)


@cache
def _content(name: str) -> tuple[bytes, str]:
    content = (FOLDER / name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
