"""Settings of Sphinx for the site: `make site` builds it into build/site.

The pages are docs/ and the README of each folder, as they stand in the repository. What only the site has is in
`contents.py` (its navigation), `repository_files.py` (pages that show sources) and `diagrams.py` (what draws diagrams).
"""

import ast
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the extensions beside this file

from contents import CONTENTS  # noqa: E402  (only now is the folder on the path)

PACKAGE = ast.parse((HERE.parent.parent / "src/barnabas/__init__.py").read_text(encoding="utf-8"))

project = "Barnabas"
author = "the authors of Barnabas"
release = next(
    str(ast.literal_eval(node.value))
    for node in PACKAGE.body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
)
html_title = f"Barnabas {release}"
html_theme = "furo"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_extra_path = ["index.html"]
html_static_path = ["static"]

extensions = ["myst_parser", "contents", "diagrams", "repository_files"]
root_doc = "README"
include_patterns = [f"{page}.md" for pages in CONTENTS.values() for page in pages] + ["README.md"]
# Not looked into: environments, links to the folders, and what builds leave.
exclude_patterns = [".*", "src", "build", "dist", "**/node_modules", "**/target"]

myst_heading_anchors = 6  # a heading has the anchor that code hosts give it
myst_fence_as_directive = ["mermaid"]
highlight_language = "text"
smartquotes = False  # `--json` keeps its two hyphens


def setup(app: Sphinx) -> None:
    """Bytes in hexadecimal, which Pygments does not know as a language, are shown as text."""
    app.add_lexer("hex", TextLexer)
