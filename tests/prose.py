"""How dense the sources are on the page, counted by package: `make prose` prints the table.

The limits are what was reached, and only ever made stricter. The goal stands beside each: blank lines in functions
>= 3 %, comments without a subject <= 6 %, lines of more than 100 characters <= 3 %, two assignments in one <= 2 in a
thousand lines, comments on lines of their own >= 6 %.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from tests.rooms import PACKAGES, ROOT, sources_in, tree_of

WIDE = 100  # characters

# A comment that begins so, and has none of these verbs in its first sentence, has no subject: "Once: a marker is long."
FIRST_WORDS = re.compile(
    r"^(Also|Once|Not|Only|Before|After|Without|With|By|In|Of|From|As|Unless|At|For|Until|To|So|Here|There|Under|Up|"
    r"Otherwise|Left|Set|Made|Asked|Cut|Nearly|Never|Now|First|Last|On|Again|Because|Both|Counted|Read|Kept|Compared|"
    r"Even|Unlike|Twice|Backwards|Found|Held|Gone|Shielded|Formatted|Imported|Looked|Checked|Cancelled|Registered|"
    r"Refused|Wrapped|Joined|Fenced|Elected|Returned|Stopped|Cached|Pinned|Opened|Dropped|Called|Built|Decided|Settled|"
    r"Encoded|Created|Committed|Freed|Bounded)\b"
)
VERBS = re.compile(r"\b(is|are|was|were|has|have|may|must|can|would|will|does|gets|needs)\b")


class Prose(NamedTuple):
    """The counts of some files."""

    lines: int
    blank_in_functions: float  # percent of the lines of functions
    fragments: float  # percent of the comments
    wide: float  # percent of the lines that are not blank
    double: float  # assignments of two values at once, in a thousand lines
    comments: float  # percent of the lines

    def __str__(self) -> str:
        shares = " | ".join(f"{share:.1f}" for share in self[1:])
        return f"{self.lines} | {shares}"


def prose_of(names: list[str]) -> Prose:
    """The counts of these files together."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    lines = [line for text in texts.values() for line in text.splitlines()]
    written = [line for line in lines if line.strip()]
    inside = [line for name in names for line in lines_in_functions(name, texts[name].splitlines())]
    comments = [comment for text in texts.values() for comment in comments_of(text)]
    pairs = [
        node
        for name in names
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    ]
    own = sum(line.lstrip().startswith("# ") for line in lines)
    return Prose(
        lines=len(lines),
        blank_in_functions=100 * sum(not line.strip() for line in inside) / max(len(inside), 1),
        fragments=100 * sum(map(is_fragment, comments)) / max(len(comments), 1),
        wide=100 * sum(len(line) > WIDE for line in written) / len(written),
        double=1000 * len(pairs) / len(lines),
        comments=100 * own / len(lines),
    )


def lines_in_functions(name: str, lines: list[str]) -> Iterator[str]:
    """Each line of a function's body once, without the docstring."""
    numbers = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_text = ast.get_docstring(node, clean=False) is not None
            first = node.body[0].end_lineno + 1 if has_text else node.body[0].lineno
            numbers.update(range(first, node.end_lineno + 1))
    return (lines[number - 1] for number in sorted(numbers))


def comments_of(text: str) -> Iterator[str]:
    """The comments on lines of their own; lines that follow each other are one."""
    comment, last = "", -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_own = token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
        if not is_own or token.string.startswith(("# --", "#!")):
            continue
        if token.start[0] != last + 1 and comment:
            yield comment
            comment = ""
        comment = f"{comment} {token.string.lstrip('# ')}".strip()
        last = token.start[0]
    if comment:
        yield comment


def is_fragment(comment: str) -> bool:
    """Whether its first sentence has no subject and no verb."""
    return bool(FIRST_WORDS.match(comment)) and not VERBS.search(re.split(r"[.:;]", comment)[0])


def main() -> None:
    """Print the table."""
    print("| package | lines | blank, % | fragments, % | wide, % | double, ‰ | comments, % |")
    print("|-|-:|-:|-:|-:|-:|-:|")
    for package in PACKAGES:
        print(f"| {package} | {prose_of(sources_in(package))} |")
    print(f"| all | {prose_of(sources_in(*PACKAGES))} |")


if __name__ == "__main__":
    main()
