"""The way of a request through the runtime of a coordinator whose state is a dict."""

from functools import partial

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.runtime import Outcome
from barnabas.wire.errors import ErrorCode
from tests.coordinators.runtime.conftest import put


def putting(value):
    """A step that stores a value and answers with it."""
    return lambda shard, made: put(b"k", value)


def put_when_made(release, seen, shard, made):
    """As `putting`, with a value that is made before, from the state as it is then."""
    now = shard.state.get(b"k", b"")
    if made is None or made != now + b"!":
        seen.append(now)

        async def make():
            await release.wait()
            return now + b"!"

        return make
    return put(b"k", made)


async def answers_of(nursery, post, act):
    """A list that gets the answer."""
    answers = []

    async def ask():
        answers.append(await post.shards.write("any key", act, lambda error: error))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    return answers


async def test_an_answer_is_held_until_its_record_is_committed(post, nursery, autojump_clock):
    post.lead(replicas=(0, 1))
    answers = await answers_of(nursery, post, putting(b"1"))
    assert (post.shards.find(0).state, answers) == ({b"k": b"1"}, [])
    post.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [b"1"]


async def test_a_record_that_is_not_committed_in_time_is_an_error_and_stays(post, autojump_clock):
    post.lead(replicas=(0, 1))
    answer = await post.shards.write("any key", putting(b"1"), lambda error: error)
    assert answer is ErrorCode.REQUEST_TIMED_OUT
    assert post.shards.find(0).state == {b"k": b"1"}


async def test_what_was_made_for_another_state_is_made_again(post, nursery, autojump_clock):
    post.lead()
    release, seen = trio.Event(), []
    answers = await answers_of(nursery, post, partial(put_when_made, release, seen))
    assert await post.shards.write("any key", putting(b"2"), lambda error: error) == b"2"
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (seen, answers) == ([b"", b"2"], [b"2!"])


async def test_nothing_is_stored_in_a_shard_that_was_dropped_meanwhile(post, nursery, autojump_clock):
    post.lead()
    release, seen = trio.Event(), []
    answers = await answers_of(nursery, post, partial(put_when_made, release, seen))
    log = post.partitions[0].log
    post.resign()
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (answers, log.log_end_offset) == ([ErrorCode.NOT_COORDINATOR], 0)


async def test_a_request_goes_on_at_the_next_shard_of_its_key(post, nursery, autojump_clock):
    post.lead()
    release, seen = trio.Event(), []
    answers = await answers_of(nursery, post, partial(put_when_made, release, seen))
    post.resign()
    del post.partitions[0]
    post.lead(epoch=2)
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (seen, answers) == ([b"", b""], [b"!"])


async def test_a_step_that_fails_loads_the_shard_again(post, autojump_clock):
    post.lead()
    await post.shards.write("any key", putting(b"1"), lambda error: error)

    def fail(shard, made):
        shard.state[b"k"] = b"wrong"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await post.shards.write("any key", fail, lambda error: error)
    await trio.sleep(1)
    assert post.shards.find(0).state == {b"k": b"1"}


async def test_what_is_read_waits_for_the_records_that_it_shows(post, nursery, autojump_clock):
    post.lead(replicas=(0, 1))
    post.write(b"k", b"1")
    shown = []

    async def look(shard):
        return Outcome(shard.state[b"k"], 0)

    async def ask():
        shown.append(await post.shards.read("any key", look, lambda error: error))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert shown == []
    post.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert shown == [b"1"]


async def test_a_request_for_a_shard_of_another_broker_is_refused(post):
    assert post.shards.write_now("any key", lambda shard: "done", lambda error: error) is ErrorCode.NOT_COORDINATOR
