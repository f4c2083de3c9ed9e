"""What differs between a release and the sources of its commit: `python .ci/prepare_release.py VERSION HOME`.

HOME is the address of the repository. A package index shows README.md alone, so its links and pictures are made
absolute, and `pyproject.toml` gets the addresses of the project. VERSION has to be the one of the package, and
CHANGELOG.md has to have a section about it: otherwise nothing is changed, and the status is 1.

    python .ci/prepare_release.py 0.1.0 https://example.org/castle/barnabas
"""

import ast
import re
import sys
from pathlib import Path

# A link of Markdown, a picture included, that leads to a place in the repository.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
ANCHOR = re.compile(r"(?<!!)\[([^\]]*)\]\((#[^)\s]+)\)")
RELEASED = re.compile(r"^## ([0-9][^\s]*)(?: \(([0-9]{4}-[0-9]{2}-[0-9]{2})\))?$", re.MULTILINE)


def version_of(root: Path) -> str:
    """The version of the package in these sources."""
    module = ast.parse((root / "src/barnabas/__init__.py").read_text(encoding="utf-8"))
    return next(
        str(ast.literal_eval(node.value))
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )


def problems(root: Path, version: str, home: str) -> list[str]:
    """Why these sources cannot be released as this version; nothing if they can."""
    found = []
    if version_of(root) != version:
        found.append(f"src/barnabas/__init__.py has the version {version_of(root)}, not {version}")
    # A section without a date is not finished.
    dates = dict(RELEASED.findall((root / "CHANGELOG.md").read_text(encoding="utf-8")))
    if not dates.get(version):
        found.append(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`")
    if not re.fullmatch(r"https://[^/\s]+/\S+[^/\s]", home):
        found.append(f"{home!r} is no https address of a repository")
    return found


def absolute(readme: str, home: str, tag: str) -> str:
    """The text of README.md with links that lead somewhere from every page."""

    def whole(found: re.Match[str]) -> str:
        mark, text, path = found.groups()
        # A picture is shown as it is, and a document as the repository shows it.
        return f"{mark}[{text}]({home}/{'raw' if mark else 'blob'}/{tag}/{path})"

    return ANCHOR.sub(rf"[\1]({home}/blob/{tag}/README.md\2)", LINK.sub(whole, readme))


def urls(home: str, tag: str) -> str:
    """The table of `pyproject.toml` with the addresses of the project."""
    return (
        "\n[project.urls]\n"
        f'Homepage = "{home}"\n'
        f'Documentation = "{home}/blob/{tag}/docs/README.md"\n'
        f'Changelog = "{home}/blob/{tag}/CHANGELOG.md"\n'
        f'Issues = "{home}/issues"\n'
    )


def prepare(root: Path, version: str, home: str) -> None:
    """Change README.md and pyproject.toml. Exits with status 1 if the sources are not those of a release."""
    found = problems(root, version, home)
    if found:
        sys.exit("\n".join(found))
    tag = f"v{version}"
    readme = root / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), home, tag), encoding="utf-8")
    project = root / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    if "[project.urls]" not in text:
        project.write_text(text + urls(home, tag), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python .ci/prepare_release.py VERSION HOME")
    prepare(Path(__file__).resolve().parent.parent, sys.argv[1], sys.argv[2])
