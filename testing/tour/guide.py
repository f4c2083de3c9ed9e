"""The tour in a terminal: the scenes are listed, one is chosen, and it is played step by step (shell).

`barnabas lab --tour` calls it. What it prints and what it asks goes through two functions, so a test reads and answers.
"""

from collections.abc import Callable
from textwrap import wrap

from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.tour.play import WIDTH, lines_of, play
from barnabas.testing.tour.scene import End, Scene
from barnabas.testing.tour.scenes import SCENES

Say = Callable[[str], None]  # prints a line
Ask = Callable[[str], str | None]  # the answer to a question, without its end of line; None when there is none any more


def scene_of(text: str) -> Scene:
    """The scene of this number or name. LocalBrokerError if there is none."""
    scenes = list(SCENES.values())
    if text.isdecimal() and 1 <= int(text) <= len(scenes):
        return scenes[int(text) - 1]
    if text in SCENES:
        return SCENES[text]
    raise LocalBrokerError(f"there is no scene {text!r}: a number from 1 to {len(scenes)}, or {', '.join(SCENES)}")


def scenes_list() -> list[str]:
    """A line for each scene."""
    return [
        f"{number}  {each.title}" + (f" (with a bug that can be planted: {each.bug.name})" if each.bug else "")
        for number, each in enumerate(SCENES.values(), 1)
    ]


def guide(say: Say, ask: Ask) -> None:
    """Offer the scenes until the reader has seen enough."""
    for line in scenes_list():
        say(line)
    while True:
        say("")
        chosen = ask(f"Which scene? 1 to {len(SCENES)}, or q to end: ")
        if chosen is None or chosen.strip().lower() in ("q", "quit", "exit"):
            return
        # A typing error is reported, and the reader chooses again.
        try:
            scene = scene_of(chosen.strip())
        except LocalBrokerError as error:
            say(str(error))
            continue
        if not _guided(scene, say, ask):
            return


def _guided(scene: Scene, say: Say, ask: Ask) -> bool:
    """A scene, and perhaps again with its bug; whether the reader is still there."""
    is_there = show(scene, say, ask)
    if not is_there or scene.bug is None:
        return is_there
    say("")
    answer = ask("The same again, with the planted bug? y or n: ")
    if answer is None or answer.strip().lower() not in ("y", "yes"):
        return answer is not None
    return show(scene, say, ask, with_bug=True)


def show(scene: Scene, say: Say, ask: Ask | None = None, *, with_bug: bool = False) -> bool:
    """Play a scene; with `ask` each step waits for the reader. Whether it was played to its end.

    LocalBrokerError if it has not ended as its text says.
    """
    for line in _introduction(scene, with_bug=with_bug):
        say(line)
    moments = play(scene, with_bug=with_bug)
    try:
        for number, moment in enumerate(moments):
            # The next step is done when the reader wants to see it.
            if number and ask is not None and not isinstance(moment, End) and ask("  Enter: the next step ") is None:
                return False
            for line in lines_of([moment]):
                say(line)
            if isinstance(moment, End) and not moment.is_as_expected:
                raise LocalBrokerError(f"scene {scene.name!r} has not ended as its text says")
    finally:
        # The brokers end also when the reader leaves in the middle.
        moments.close()
    return True


def _introduction(scene: Scene, *, with_bug: bool) -> list[str]:
    if with_bug and scene.bug:
        return ["", *wrap(f"With the planted bug {scene.bug.name}: {scene.bug.text}", WIDTH), ""]
    number = list(SCENES).index(scene.name) + 1
    return ["", f"{number}. {scene.title}", "", scene.text.rstrip(), "", *wrap(f"Read more: {scene.source}", WIDTH), ""]
