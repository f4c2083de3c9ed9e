"""The laboratory on the page of each broker (edge): its routes under /lab, and the buttons that use them.

The page of `barnabas serve` has neither: its own files name nothing of the laboratory, and no module that is served
imports this one.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from pathlib import Path

from barnabas.console.exchange import Answer, HttpRequest, Route
from barnabas.console.static import CONTENT_TYPES
from barnabas.console.static import FOLDER as PAGE_FOLDER

PREFIX = "/lab"  # beside the page's own /v1
FOLDER = Path(__file__).parent / "static"
FILES = ("lab.js", "lab-parts.js", "lab.css")
# Browsers run module scripts in the order of the page: `lab.js` adds its views before `app.js`
# draws them.
APP = '<script type="module" src="app.js"></script>'
ADDED = '<link rel="stylesheet" href="lab.css">\n<script type="module" src="lab.js"></script>\n'


def mounted_routes(control: Sequence[Route]) -> Sequence[Route]:
    """The routes of the laboratory for the page of a broker, which work while it is down.

    They need no login: as the laboratory's own address, the page is reached from this machine only.
    """
    files: dict[str, Callable[[], bytes]] = {"/": index, **{f"/{name}": partial(content, name) for name in FILES}}
    return [
        *(route._replace(path=PREFIX + route.path, is_open=True) for route in control),
        *(Route("GET", path, _giver(path, read), is_open=True) for path, read in files.items()),
    ]


def index() -> bytes:
    """The page with the laboratory's script in it."""
    text = (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
    before, app, after = text.partition(APP)
    assert app, "index.html has changed"
    return (before + ADDED + app + after).encode()


@cache
def content(name: str) -> bytes:
    """One of the files."""
    return (FOLDER / name).read_bytes()


def _giver(path: str, read: Callable[[], bytes]) -> Callable[[HttpRequest], Awaitable[Answer]]:
    content_type = CONTENT_TYPES[Path(path).suffix or ".html"]

    async def give(request: HttpRequest) -> Answer:
        return Answer(200, content_type, read(), [("cache-control", "no-cache")])

    return give
