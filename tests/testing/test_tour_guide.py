"""`barnabas lab --tour`: a reader chooses scenes, and goes through them step by step."""

import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner

from barnabas.testing import LocalBrokerError
from barnabas.testing.lab.cli import lab
from barnabas.testing.tour import guide as tour_guide
from barnabas.testing.tour.guide import guide, scene_of, scenes_list, show
from barnabas.testing.tour.scene import End, Moment
from barnabas.testing.tour.scenes import SCENES


class Reader:
    """Answers questions from a list, and has what was printed."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.lines = []

    def say(self, line):
        self.lines.append(line)

    def ask(self, question):
        self.lines.append(question)
        return self._answers.pop(0) if self._answers else None


@pytest.fixture
def played(monkeypatch):
    """Scenes are not played: a moment for each step, and the end that is expected. Which ones were begun."""
    begun = []

    def play(scene, *, with_bug=False):
        begun.append((scene.name, with_bug))
        yield Moment(0, "This is how it begins.", [], [])
        for number, step in enumerate(scene.steps, 1):
            yield Moment(number, step.text, [], [])
        ends = scene.bug.ends if with_bug else scene.ends
        yield End(ends, ends)

    monkeypatch.setattr(tour_guide, "play", play)
    return begun


def test_all_scenes_are_offered_with_their_numbers():
    lines = scenes_list()
    assert [line.split()[0] for line in lines] == [str(number + 1) for number in range(8)]
    assert [scene_of(str(number + 1)) for number in range(8)] == list(SCENES.values())
    assert all(each.title in line for each, line in zip(SCENES.values(), lines, strict=True))


def test_a_reader_chooses_a_scene_and_sees_it_with_its_bug_as_well(played):
    steps = len(SCENES["acks"].steps)
    reader = Reader("2", *[""] * steps, "y", *[""] * steps, "q")
    guide(reader.say, reader.ask)
    assert played == [("acks", False), ("acks", True)]
    shown = "\n".join(reader.lines)
    assert SCENES["acks"].text.rstrip() in shown
    assert f"At the end: {SCENES['acks'].ends}." in " ".join(shown.split())
    assert shown.count("Enter: the next step") == 2 * steps
    assert "With the planted bug early_ack" in shown


def test_a_slip_is_said_and_the_reader_chooses_again(played):
    reader = Reader("9", "six", "q")
    guide(reader.say, reader.ask)
    assert played == []
    assert [line for line in reader.lines if "there is no scene" in line] == [
        "there is no scene '9': a number from 1 to 8, or " + ", ".join(SCENES),
        "there is no scene 'six': a number from 1 to 8, or " + ", ".join(SCENES),
    ]


@pytest.mark.parametrize("answers", [(), ("1",), ("1", "", "")])
def test_a_reader_who_leaves_ends_the_tour(played, answers):
    reader = Reader(*answers)
    guide(reader.say, reader.ask)
    assert not any("At the end" in line for line in reader.lines)


def test_a_scene_that_ends_otherwise_is_an_error(monkeypatch):
    monkeypatch.setattr(tour_guide, "play", lambda scene, with_bug: (each for each in [End("lost", "there")]))
    with pytest.raises(LocalBrokerError, match="scene 'acks' has not ended as its text says"):
        show(SCENES["acks"], lambda line: None)


def test_a_scene_is_printed_without_a_terminal():
    ran = CliRunner().invoke(lab, ["--scene", "idempotence"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "6. A retry after a lost answer" in ran.stdout
    assert "acknowledged at offset 0" in ran.stdout
    assert SCENES["idempotence"].ends in " ".join(ran.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--tour"], "--tour: without a terminal, choose a scene by --scene N"),
        (["--scene", "9"], "there is no scene '9'"),
        (["--scene", "8", "--with-bug"], "scene 'compaction' has no planted bug"),
        (["--with-bug"], "--with-bug: of which scene? Give --scene as well"),
        (["--tour", "--topic", "t"], "--topic: the scenes of the tour have brokers of their own"),
        (["--scene", "1", "--upstream", "a:1"], "--upstream: the scenes of the tour have brokers of their own"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(arguments, error):
    ran = CliRunner().invoke(lab, arguments)
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith(f"barnabas: {error}")


def test_in_a_terminal_the_scenes_are_offered():
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "barnabas", "lab", "--tour"]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, text=True) as process:
        os.close(terminal)
        os.write(reader, b"q\n")
        shown, _ = process.communicate(timeout=60)
    os.close(reader)
    assert process.returncode == 0
    assert shown.splitlines()[:8] == scenes_list()
