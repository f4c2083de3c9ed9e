"""The scenes of the tour end as their texts say, with the planted bug and without, and docs/tour.md shows it."""

import pytest

from barnabas.testing import LocalBrokerError
from barnabas.testing.tour.picture import Cell, GroupPicture, PartitionPicture, ReplicaPicture
from barnabas.testing.tour.play import play, tell
from barnabas.testing.tour.scene import End, Moment, Scene, Step
from barnabas.testing.tour.scenes import SCENES
from tests.generated import with_block
from tests.played import PAGE, block_of, runs, section

WITH_BUG = [scene for scene, with_bug in runs() if with_bug]


def check(scene: Scene, *, with_bug: bool) -> None:
    moments = list(play(scene, with_bug=with_bug))
    end = moments[-1]
    assert isinstance(end, End)
    assert end.found == end.expected, "\n".join(tell(scene, with_bug=with_bug))
    assert [each.number for each in moments[:-1]] == list(range(len(scene.steps) + 1))

    page = PAGE.read_text(encoding="utf-8")
    shown = section(scene, moments, with_bug=with_bug)
    assert page == with_block(page, block_of(scene, with_bug=with_bug), shown), "out of date: run make generated"


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_its_text_says(name):
    check(SCENES[name], with_bug=False)


@pytest.mark.pure_form(reason="plants a bug in a module that is compiled")
@pytest.mark.parametrize("scene", WITH_BUG, ids=lambda scene: f"{scene.name}-{scene.bug.name}")
def test_a_planted_bug_shows_the_mistake(scene):
    assert scene.bug.ends != scene.ends
    check(scene, with_bug=True)


def test_a_scene_without_a_bug_is_not_played_with_one():
    scene = SCENES["unclean-election"]
    with pytest.raises(LocalBrokerError, match="'unclean-election' has no planted bug"):
        list(play(scene, with_bug=True))


def short_scene(**changes) -> Scene:
    values = {
        "name": "short",
        "title": "A short scene",
        "text": "Nothing happens.",
        "source": "",
        "topics": [],
        "steps": [],
        "judge": lambda stage: "nothing has happened",
        "ends": "nothing has happened",
        "brokers": 1,
    }
    return Scene(**{**values, **changes})


def test_a_step_is_done_when_its_moment_is_asked_for():
    done = []
    steps = [Step(f"Step {number}.", lambda stage, number=number: done.append(number)) for number in (1, 2)]
    moments = play(short_scene(steps=steps))
    assert isinstance(next(moments), Moment)
    assert done == []
    assert next(moments).text == "Step 1."
    assert done == [1]
    moments.close()
    assert done == [1], "a reader who stops ends the brokers, and no further step is done"


def test_a_scene_that_ends_otherwise_says_what_was_expected():
    lines = list(tell(short_scene(ends="all is lost")))
    assert lines[-2:] == ["At the end: nothing has happened.", "Expected was: all is lost."]


def test_the_logs_are_drawn_with_their_high_watermarks():
    cells = [Cell(0, "one"), Cell(1, "two")]
    replicas = {
        1: ReplicaPicture(is_running=True, cells=cells, high_watermark=1, log_end_offset=2),
        2: ReplicaPicture(is_running=True, cells=[], high_watermark=0, log_end_offset=0),
        3: ReplicaPicture(is_running=False, cells=cells[:1], high_watermark=0, log_end_offset=1),
    }
    picture = PartitionPicture("t-0", 1, 4, [1], replicas)
    assert picture.lines() == [
        "t-0  leader 1 · epoch 4 · in sync 1",
        "  1 ★  █ 0 one │ ▒ 1 two |   HW 1  LEO 2",
        "  2 ✕  │|                    HW 0  LEO 0",
        "  3    down, with 0 one",
    ]
    assert picture._replace(replicas={3: replicas[3]}).lines()[0] == "t-0  no broker runs"
    assert picture._replace(leader_id=None).lines()[0] == "t-0  no leader · epoch 4 · in sync 1"


def test_a_group_is_drawn_with_who_reads_what():
    assert GroupPicture("clerks", {0: "A", 1: None}).lines() == ["clerks  0 A   1 —"]
