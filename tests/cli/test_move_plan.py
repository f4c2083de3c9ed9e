"""Which replicas go where."""

import pytest

from barnabas.cli.move_plan import Move, merged, move_away, move_to, throttled_replicas
from barnabas.progress import time_left_text
from barnabas.wire.topics import TopicPartition

A, B, C = (TopicPartition("a", index) for index in range(3))


def test_preferred_leaders_go_round_among_the_brokers():
    current = {A: (1, 2), B: (3, 1), C: (2, 3)}
    moves = move_to(current, [2, 3], rotates=True)
    assert moves == [Move(A, (1, 2), (2, 3)), Move(B, (3, 1), (3, 2))]
    assert [move.adding for move in moves] == [(3,), (2,)]


def test_a_named_partition_gets_the_brokers_in_their_order():
    assert move_to({B: (3, 1)}, [2, 3], rotates=False) == [Move(B, (3, 1), (2, 3))]


def test_the_broker_with_the_fewest_replicas_takes_over_in_place():
    current = {A: (3, 1), B: (1, 3), C: (1, 2)}
    moves = move_away(current, [3], {1: None, 2: None, 3: None, 4: None}, current)
    assert moves == [Move(A, (3, 1), (4, 1)), Move(B, (1, 3), (1, 2))]


def test_another_rack_comes_before_fewer_replicas():
    racks = {1: "x", 2: "y", 3: "y", 4: "x"}
    current = {A: (1, 3), B: (2,)}
    assert move_away(current, [3], racks, [A]) == [Move(A, (1, 3), (1, 2))]


def test_a_partition_for_which_no_broker_is_left_is_named():
    with pytest.raises(ValueError, match="partition a-0: every broker that stays has a replica already"):
        move_away({A: (1, 2, 3)}, [3], {1: None, 2: None, 3: None}, [A])


def test_old_replicas_send_and_new_ones_receive_what_is_throttled():
    moves = [Move(A, (1, 2), (2, 3)), Move(B, (1,), (4,))]
    assert throttled_replicas(moves) == {"a": (["0:1", "0:2", "1:1"], ["0:3", "1:4"])}
    assert merged("0:1,0:9", ["0:1", "0:2"]) == "0:1,0:9,0:2"
    assert merged("*", ["0:1"]) == "*"
    assert merged(None, ["0:1"]) == "0:1"


@pytest.mark.parametrize(
    ("done_bytes", "left_bytes", "seconds", "text"),
    [
        (0, 100, 5.0, ""),
        (50, 100, 5.0, ", 0:00:10 left"),
        (1, 3_700, 1.0, ", 1:01:40 left"),
        (100, 0, 1.0, ", 0:00:00 left"),
        (-10, 100, 1.0, ""),  # more came in than was copied
    ],
)
def test_the_time_that_a_move_still_takes_follows_from_its_speed_so_far(done_bytes, left_bytes, seconds, text):
    assert time_left_text(done_bytes, left_bytes, seconds) == text
