"""The site: every document is on it, it builds without a warning, and no link on it leads nowhere."""

import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess

import pytest

from tests.rooms import ROOT

SITE_SOURCES = ROOT / "docs" / "site"
BUILD_SECONDS_MAX = 900  # a quarter of a minute of processor time, and the environment if it is not there
PAGES_MIN = 100
DRAWN_MS_MAX = 60_000
ALL_DRAWN = "[...document.querySelectorAll('pre.mermaid')].every(each => each.querySelector('svg'))"
# What draws the diagrams, as it is in the package @mermaid-js/tiny of npm, version 11.17.2: file -> SHA-256.
VENDORED = {"mermaid.tiny.js": "7a644017d37f93c8359790884e6b67fb1f747c78eb20475952404bd87190a3f8"}


@pytest.fixture(scope="module")
def links():
    spec = importlib.util.spec_from_file_location("links", SITE_SOURCES / "links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    """A site of a page, a picture and a page in a folder, without a broken link."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "index.html").write_text('<h1 id="top">A</h1><a href="sub/b.html#b">b</a><img src="a.png">')
    (tmp_path / "sub" / "b.html").write_text('<h1 id="b">B</h1><a href="../index.html">a</a><a href="#b">b</a>')
    return tmp_path


def contents():
    """The table `CONTENTS`, read without Sphinx."""
    tree = ast.parse((SITE_SOURCES / "contents.py").read_text(encoding="utf-8"))
    (found,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONTENTS"
    )
    return ast.literal_eval(found)


def test_every_document_of_the_repository_is_on_the_site():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = [page for pages in contents().values() for page in pages]
    assert sorted([*pages, "README"]) == sorted(name.removesuffix(".md") for name in listed.stdout.split())


def test_a_site_without_a_broken_link_passes(links, site):
    assert list(links.broken_links(site)) == []


@pytest.mark.parametrize(
    ("element", "found"),
    [
        ('<a href="d.html">', "sub/c.html:1: d.html: no such file"),
        ('<a href="../index.html#bottom">', "sub/c.html:1: ../index.html#bottom: no such anchor"),
        ('<a href="#bottom">', "sub/c.html:1: #bottom: no such anchor"),
        ('<img src="../b.png">', "sub/c.html:1: ../b.png: no such file"),
        ('<a href="../sub/">', "sub/c.html:1: ../sub/: no such file"),
        ('<a href="https://example.org/c">', None),
        ('<a href="../a%2Epng">', None),
        ('<script src="https://example.org/a.js">', "sub/c.html:1: https://example.org/a.js: loaded from another host"),
        (
            '<link rel="stylesheet" href="//example.org/a.css">',
            "sub/c.html:1: //example.org/a.css: loaded from another host",
        ),
        (
            '<script>import a from "https://example.org/a.js"</script>',
            "sub/c.html:1: https://example.org/a.js: loaded from another host",
        ),
        ('<link rel="canonical" href="https://example.org/c">', None),
    ],
)
def test_a_link_that_leads_nowhere_is_named(links, site, element, found):
    (site / "sub" / "c.html").write_text(element)
    assert list(links.broken_links(site)) == ([found] if found else [])


@pytest.mark.parametrize("name", VENDORED)
def test_what_others_wrote_for_the_site_is_unchanged_and_has_its_licence(name):
    static = SITE_SOURCES / "static"
    assert hashlib.sha256((static / name).read_bytes()).hexdigest() == VENDORED[name]
    assert "The MIT License" in (static / "licences" / "mermaid.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site, which was built without a warning and without a broken link."""
    if not (ROOT / ".venv-site" / "made").exists() and "CI" not in os.environ:
        pytest.skip("the environment of the site is not made (`make site`)")
    folder = tmp_path_factory.mktemp("built") / "site"
    built = subprocess.run(
        ["make", "site", f"SITE={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    assert built.stderr.endswith(" pages, 0 broken links\n")
    return folder


@pytest.mark.thorough
def test_the_site_builds_without_a_warning_and_its_links_lead_somewhere(built):
    assert len(list(built.rglob("*.html"))) >= PAGES_MIN

    # What stands behind the links: figures, text of sources, and the front page.
    assert (built / "index.html").read_text().count("README.html") == 2
    assert list((built / "_images").glob("performance*.svg"))
    assert "PartitionLog" in (built / "code" / "storage" / "log.py.html").read_text()
    assert 'href="../code/storage/log.py.html"' in (built / "docs" / "architecture.html").read_text()
    # A page loads what draws diagrams if it has one.
    for page in built.rglob("*.html"):
        text = page.read_text()
        assert ('<pre class="mermaid">' in text) == ("mermaid.tiny.js" in text), page


@pytest.mark.thorough
def test_a_browser_without_a_network_draws_every_diagram(built):
    browsers = pytest.importorskip("playwright.sync_api", reason="the extra `dev` installs it")
    chromium = shutil.which("chromium")
    if chromium is None and "CI" not in os.environ:
        pytest.skip("chromium is not installed")
    pages = [path for path in built.rglob("*.html") if '<pre class="mermaid">' in path.read_text()]
    assert built / "docs" / "architecture.html" in pages
    with browsers.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path in pages:
            complaints = []
            page = browser.new_context(offline=True).new_page()
            page.on("pageerror", lambda error, to=complaints: to.append(str(error)))
            page.on("console", lambda message, to=complaints: to.append(message.text))
            page.goto(path.as_uri())
            page.wait_for_function(ALL_DRAWN, timeout=DRAWN_MS_MAX)
            assert complaints == [], path
        browser.close()
