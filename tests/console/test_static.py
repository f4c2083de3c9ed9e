"""The files of the page: small, our own but for one, and none that runs what a record contains."""

import hashlib
import re

import pytest

from barnabas.console.static import CONTENT_TYPES, FOLDER
from tests.broker.harness import with_topic
from tests.console.page import Page
from tests.console.page_files import check_file

BYTES_MAX = 150_000

# What others have written: file -> (package, version, licences, checksum).
VENDORED = {
    "htm-preact.js": (
        "htm, preact/standalone.module.js with Preact 10",
        "3.1.1",
        ("htm.txt", "preact.txt"),
        "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    ),
}
LICENCES = {"htm.txt": "Apache License", "preact.txt": "The MIT License"}
OWN = sorted(path for path in FOLDER.iterdir() if path.suffix in CONTENT_TYPES and path.name not in VENDORED)


def test_the_page_is_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= BYTES_MAX


@pytest.mark.parametrize("name", VENDORED)
def test_what_others_wrote_is_unchanged_and_has_its_licence(name):
    _, _, licences, checksum = VENDORED[name]
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == checksum
    for licence in licences:
        assert LICENCES[licence] in (FOLDER / "licences" / licence).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", OWN, ids=[path.name for path in OWN])
def test_our_files_are_short_and_run_no_text(path):
    check_file(path)


async def test_every_file_that_the_page_names_is_served(nursery, autojump_clock):
    machine, _ = await with_topic(nursery)
    page = await Page(machine).open(nursery)
    waiting = ["/"]
    seen = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        status, headers, body = await page.ask(path)
        assert status == 200, path
        assert headers["content-security-policy"].startswith("default-src 'self'")
        named = re.findall(r'(?:from "\./|src="|href=")([\w-]+\.(?:js|css|svg))"', body.decode())
        waiting += {f"/{name}" for name in named} - seen
    assert {"/", "/app.js", "/style.css", "/htm-preact.js", "/messages.js", "/icon.svg"} <= seen
