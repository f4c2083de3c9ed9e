"""Plays a scene on a `LocalCluster` (shell): `play` yields moments, `tell` the lines of text that show them.

Both are lazy: a step is done when its moment is asked for, so the front end decides when the next one comes.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from textwrap import wrap

from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.tour.picture import LEGEND, PartitionPicture
from barnabas.testing.tour.scene import Bug, End, Moment, Scene
from barnabas.testing.tour.stage import Stage

WIDTH = 100  # characters of a line of text
# The reader may take long between two steps. Meanwhile no follower may leave the ISR, and no
# checkpoint may change what a killed broker knows of its high watermark. Short polls make the steps
# quick.
CONFIG = {
    "replica.lag.time.max.ms": "3600000",
    "replica.socket.timeout.ms": "3600000",
    "replica.high.watermark.checkpoint.interval.ms": "3600000",
    "replica.fetch.wait.max.ms": "20",
}


def play(scene: Scene, *, with_bug: bool = False) -> Generator[Moment | End]:
    """A moment for each step, the first one before all of them, and then the end.

    LocalBrokerError if a step cannot be done, or if there is no bug to be planted.
    """
    # Another run of the same steps: only the code of the brokers differs.
    bug = scene.bug if with_bug else None
    if with_bug and bug is None:
        raise LocalBrokerError(f"scene {scene.name!r} has no planted bug")
    with _planted(bug), LocalCluster(scene.brokers, config={**CONFIG, **scene.config}) as cluster:
        stage = Stage(cluster, scene.topics, "" if bug is None else bug.name)
        try:
            stage.open()

            # A picture that has not changed is not shown again.
            shown = stage.pictures()
            yield Moment(0, "This is how it begins.", [], shown)
            for number, step in enumerate(scene.steps, 1):
                stage.notes = []
                step.act(stage)
                pictures = stage.pictures()

                # The front end decides how long this takes.
                yield Moment(number, step.text, stage.notes, [each for each in pictures if each not in shown])
                shown = pictures
            yield End(scene.judge(stage), scene.ends if bug is None else bug.ends)
        finally:
            stage.close()


def tell(scene: Scene, *, with_bug: bool = False) -> Iterator[str]:
    """The lines that show a scene: each step, what clients were answered, and the logs of all replicas."""
    return lines_of(play(scene, with_bug=with_bug))


def lines_of(moments: Iterable[Moment | End]) -> Iterator[str]:
    """The lines that show these moments, as they come."""
    for each in moments:
        if isinstance(each, End):
            yield ""
            yield from _wrapped(f"At the end: {each.found}.")
            if not each.is_as_expected:
                yield from _wrapped(f"Expected was: {each.expected}.")
            continue

        # The state before the first step has no number.
        if each.number:
            yield ""
        yield from _wrapped(f"{each.number}. {each.text}" if each.number else each.text)
        yield from (f"   > {note}" for note in each.notes)
        yield from (f"   {line}" for picture in each.pictures for line in picture.lines())

        # The signs are explained once, below the first picture in which they are.
        if not each.number and any(isinstance(picture, PartitionPicture) for picture in each.pictures):
            yield f"   {LEGEND}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent="   ")


@contextmanager
def _planted(bug: Bug | None) -> Iterator[None]:
    if bug is None:
        yield
        return
    # The simulator and its bugs are large, and a scene without a bug needs none of them.
    from barnabas.testing.simulation.bugs import planted

    with planted([bug.name]):
        yield
