"""Diagrams: the browser draws each block of `mermaid` in a document, without a network.

Mermaid draws them: `static/mermaid.tiny.js` is version 11.17.2 of npm's package `@mermaid-js/tiny`, unchanged, which
leaves out the kinds of diagrams that need KaTeX. Its licence is in `static/licences`, its checksum in
`tests/test_site.py`. It has 2.5 MB, so it is loaded only by pages that have a diagram.
"""

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DIAGRAM = "diagram"
SCRIPTS = ("mermaid.tiny.js", "diagrams.js")


class Mermaid(SphinxDirective):
    """A block of `mermaid`: its text, until a browser with JavaScript has drawn it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The element that Mermaid looks for."""
        text = escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>\n', format="html", classes=[DIAGRAM])]


def add_scripts(app: Sphinx, _page: str, _template: str, _context: dict[str, Any], document: nodes.document) -> None:
    """Load what draws diagrams, if the page has one."""
    # Pages that are made from no document have no tree.
    if document and any(DIAGRAM in node["classes"] for node in document.findall(nodes.raw)):
        for name in SCRIPTS:
            app.add_js_file(name, priority=900)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add what this file does to Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True}
