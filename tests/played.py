"""docs/tour.md: the scenes of `barnabas.testing.tour`, with what a run of each shows.

`make generated` plays them, and writes the document. `testing/test_tour.py` plays them as well, and compares.
"""

from collections.abc import Iterable
from pathlib import Path

from barnabas.testing.tour.play import lines_of, play
from barnabas.testing.tour.scene import End, Moment, Scene
from barnabas.testing.tour.scenes import SCENES
from tests.generated import with_block
from tests.rooms import ROOT

PAGE = ROOT / "docs" / "tour.md"


def block_of(scene: Scene, *, with_bug: bool) -> str:
    """The name of the block of the document that shows this run."""
    return f"scene {scene.name} with {scene.bug.name}" if with_bug and scene.bug else f"scene {scene.name}"


def section(scene: Scene, moments: Iterable[Moment | End], *, with_bug: bool) -> str:
    """The text of this block."""
    shown = ["```text", *lines_of(moments), "```"]
    if with_bug and scene.bug:
        return "\n".join([f"With the planted bug `{scene.bug.name}`: {scene.bug.text}", "", *shown])
    return "\n".join([f"## {scene.title}", "", scene.text.rstrip(), "", f"Read more: {scene.source}.", "", *shown])


def runs() -> list[tuple[Scene, bool]]:
    """Each scene without its planted bug, and with it, if it has one."""
    return [(scene, with_bug) for scene in SCENES.values() for with_bug in (False, True) if scene.bug or not with_bug]


def main(page: Path = PAGE) -> None:
    """Write the document, if it is out of date."""
    text = before = page.read_text(encoding="utf-8")
    for scene, with_bug in runs():
        shown = section(scene, play(scene, with_bug=with_bug), with_bug=with_bug)
        text = with_block(text, block_of(scene, with_bug=with_bug), shown)
    if text != before:
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
