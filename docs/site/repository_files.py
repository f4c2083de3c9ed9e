"""Pages that show files of the repository which are no documents, so that links to them lead somewhere.

`[log.py](../storage/log.py)` leads to the page code/storage/log.py.html with the file's text. A link to a folder leads
to its README; if it has none, to a page with all of its files. Pictures are not changed.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx

FOLDER = "code"


def shown(path: Path) -> str:
    """The text of a file as HTML, in colours if its language is known."""
    text = path.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path.name, text)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, HtmlFormatter(cssclass="highlight"))


def page_of(root: Path, name: str) -> tuple[str, dict[str, Any], str]:
    """The page about a file, or about all files of a folder, as Sphinx wants it: name, context, template."""
    path = root / name
    files = [each for each in sorted(path.iterdir()) if each.is_file()] if path.is_dir() else [path]

    parts = [f"<h1>{escape(name)}</h1>"]
    for each in files:
        parts += [f"<h2>{escape(each.name)}</h2>"] * path.is_dir()
        parts.append(shown(each))
    return f"{FOLDER}/{name}", {"title": name, "body": "\n".join(parts)}, "page.html"


def link_files(app: Sphinx, doctree: nodes.document) -> None:
    """Let each link to a file or a folder of the repository lead to a page of the site."""
    root = Path(app.srcdir)
    for node in [*doctree.findall(download_reference), *doctree.findall(pending_xref)]:
        document = Path(app.env.doc2path(node["refdoc"]))
        path = (document.parent / node["reftarget"]).resolve()
        if node.get("refdomain") is not None or not path.is_relative_to(root) or not path.exists():
            continue

        name = path.relative_to(root).as_posix()
        page = f"{name}/README" if (path / "README.md").is_file() else f"{FOLDER}/{name}"
        uri = app.builder.get_relative_uri(node["refdoc"], page)
        node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))
        if page.startswith(FOLDER):
            app.env.shown_files.add(name)


def begin(app: Sphinx, *_: object) -> None:
    """Forget which files an earlier build has shown."""
    app.env.shown_files = set()


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file that a document has a link to."""
    for name in sorted(app.env.shown_files):
        yield page_of(Path(app.srcdir), name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add what this file does to Sphinx."""
    app.connect("env-before-read-docs", begin)
    # Before Sphinx collects what is linked to and no page, and copies it beside the pages.
    app.connect("doctree-read", link_files, priority=100)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": False}
