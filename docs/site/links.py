"""Checks the links of the built site without a network: `python docs/site/links.py build/site`.

Each link, picture, script and style sheet of each page has to lead to a file of the site, and an anchor to an element
that has it. What leads to another host is not asked for, and no page may load anything from there: the site has to work
without a network. Prints one line a mistake; the status is 1 if there is any.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that hold an address.
ADDRESSES = ("href", "src")
# Of a `link`: what a browser loads to show the page. Others only name a page, such as the next one.
LOADED_LINKS = {"stylesheet", "preload", "modulepreload", "icon"}
IMPORTED = re.compile(r"""\b(?:import|from)\b[\s(]*["'](https?://[^"']+)""")


class Page(HTMLParser):
    """What one page leads to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[int, str]] = []  # (line, address)
        self.loaded: list[tuple[int, str]] = []  # of these, what a browser loads with the page
        self._is_in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the anchors and the addresses of an element."""
        self._is_in_script = tag == "script"
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ADDRESSES:
                found = (self.getpos()[0], value or "")
                self.links.append(found)
                if name == "src" or (tag == "link" and LOADED_LINKS & set((dict(attrs).get("rel") or "").split())):
                    self.loaded.append(found)

    def handle_data(self, data: str) -> None:
        """Keep what a script within the page loads."""
        if self._is_in_script:
            self.loaded += [(self.getpos()[0], address) for address in IMPORTED.findall(data)]


def broken_links(root: Path) -> Iterator[str]:
    """One line for each link that leads nowhere: the page, its line, the address, what is missing."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        for line, address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{name}:{line}: {address}: loaded from another host"
        for line, address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue

            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{name}:{line}: {address}"
            if not target.is_file():
                yield f"{where}: no such file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where}: no such anchor"


def main() -> None:
    """Print the broken links of a site."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python docs/site/links.py FOLDER")
    root = Path(sys.argv[1])
    found = list(broken_links(root))
    print(*found, sep="\n", end="\n" * bool(found))
    pages = len(list(root.rglob("*.html")))
    print(f"{pages} pages, {len(found)} broken links", file=sys.stderr)
    if found or not pages:
        sys.exit(1)


if __name__ == "__main__":
    main()
