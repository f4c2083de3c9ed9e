"""Fetch sessions (KIP-227): epochs, what an incremental answer leaves out, partitions added and forgotten."""

from compat_tests.differential.asking import MIB, PAST_MS, batch, fetch, produce_one
from compat_tests.differential.scenario import scenario

UNKNOWN_ID = b"\x14" * 16
BY_ID = 13
VERSIONS = (7, 11, 12, 13, 15, 16, 17)
FRESH = (0, 0)  # session 0, epoch 0: a full fetch that may open a session


class _Talk:
    """A fetching client and the three topics it asks for, called as its version calls them."""

    def __init__(self, side, client, version, topics):
        self.client = client
        self.version = version
        by_id = version >= BY_ID
        self.one, self.two = (side.topic_id(name) if by_id else name for name in topics)
        self.unknown = UNKNOWN_ID if by_id else side.name("unknown")

    def ask(self, topics, session, **options):
        return self.client.ask(fetch(topics, session=session, **({"wait_ms": 50} | options)), self.version)


@scenario
def session_life(side):
    """A session's epochs: right, wrong, closed, and unknown ones."""
    topics = side.create_topic("one", 3), side.create_topic("two")
    side.ask(produce_one(topics[0], batch(b"s", at=PAST_MS)), 9)
    for version in VERSIONS:
        with side.connect() as client:
            talk = _Talk(side, client, version, topics)
            start = [(talk.one, [(0, 0), (1, 0), (2, 0)])]
            opened = talk.ask(start, FRESH)
            yield f"v{version} opened", opened
            own = opened.session_id
            yield f"v{version} a session", own > 0
            steps = {
                "nothing new": ([], (own, 1)),
                "nothing new again": ([], (own, 2)),
                "old epoch": ([], (own, 2)),
                "epoch too high": ([], (own, 9)),
                "right epoch after all": ([], (own, 3)),
                "unknown session": ([], (own ^ 0x5555, 4)),
                "no session, epoch 5": (start, (0, 5)),
                "session -1, epoch 5": (start, (-1, 5)),
                "epoch -2": ([], (0, -2)),
                "epoch -2 of the session": ([], (own, -2)),
                "closed by its last epoch": (start, (own, -1)),
                "closed": ([], (own, 4)),
                "full with an unknown id": (start, (12345, 0)),
                "last with an unknown id": (start, (12345, -1)),
                "full without topics": ([], FRESH),
            }
            for name, (asked, session) in steps.items():
                yield f"v{version} {name}", talk.ask(asked, session)
            first = talk.ask(start, FRESH).session_id
            second = talk.ask(start, (first, 0)).session_id
            yield f"v{version} a full fetch gives another id", second not in (0, first)
            yield f"v{version} the first is closed", talk.ask([], (first, 1))


@scenario
def session_contents(side):
    """What an incremental answer holds as partitions get records, are moved, added and forgotten."""
    for version in VERSIONS:
        topics = side.create_topic(f"{version}", 3), side.create_topic(f"{version}-two")
        with side.connect() as client:
            talk = _Talk(side, client, version, topics)
            for partition in range(3):
                client.ask(produce_one(topics[0], batch(b"s", at=PAST_MS), partition=partition), 9)
            own = talk.ask([(talk.one, [(0, 0), (1, 0), (2, 0)])], FRESH).session_id
            yield f"v{version} moved on", talk.ask([(talk.one, [(0, 1), (1, 1), (2, 1)])], (own, 1))
            client.ask(produce_one(topics[0], batch(b"new", at=PAST_MS), partition=1), 9)
            steps = [
                ("a new record", [], {}),
                ("the same record", [], {}),
                ("read", [(talk.one, [(1, 2)])], {}),
                ("add an unknown topic", [(talk.unknown, [(0, 0)])], {}),
                ("still unknown", [], {}),
                ("forget it", [], {"forgotten": [(talk.unknown, [0])]}),
                ("add an unknown partition", [(talk.one, [(9, 0)])], {}),
                ("forget that", [], {"forgotten": [(talk.one, [9])]}),
                ("add a topic", [(talk.two, [(0, 0)])], {}),
                ("out of range", [(talk.two, [(0, 7)])], {}),
                ("still out of range", [], {}),
                ("in range, forget another", [(talk.two, [(0, 0)])], {"forgotten": [(talk.one, [2])]}),
                ("forget what was never there", [], {"forgotten": [(talk.one, [44]), (talk.unknown, [1])]}),
                ("forget and add", [(talk.one, [(2, 0)])], {"forgotten": [(talk.one, [2])]}),
                ("too few bytes", [(talk.one, [(2, 0)])], {"min_bytes": MIB, "wait_ms": 100}),
            ]
            for epoch, (name, asked, options) in enumerate(steps, 2):
                yield f"v{version} {name}", talk.ask(asked, (own, epoch), **options)


@scenario
def sessions_of_errors_and_of_nothing(side):
    topics = side.create_topic("one"), side.create_topic("two")
    for version in VERSIONS:
        with side.connect() as client:
            talk = _Talk(side, client, version, topics)
            errors, mixed = [(talk.unknown, [(0, 0)])], [(talk.unknown, [(0, 0)]), (talk.one, [(0, 0)])]
            for name, asked in {
                "errors": errors,
                "errors and more": mixed,
                "twice": [(talk.one, [(0, 0), (0, 0)])],
            }.items():
                opened = talk.ask(asked, FRESH)
                yield f"v{version} {name}", opened
                yield f"v{version} {name}, next", talk.ask([], (opened.session_id, 1))
                yield (
                    f"v{version} {name}, one forgotten",
                    talk.ask([], (opened.session_id, 2), forgotten=[(talk.unknown, [0])]),
                )
            own = talk.ask([(talk.two, [(0, 0)])], FRESH).session_id
            yield f"v{version} all forgotten", talk.ask([], (own, 1), forgotten=[(talk.two, [0])])
            yield f"v{version} still empty", talk.ask([], (own, 2))
            yield f"v{version} filled again", talk.ask([(talk.two, [(0, 0)])], (own, 3))


@scenario
def names_and_ids_in_one_session(side):
    topic, other = side.create_topic("one"), side.create_topic("two")
    topic_id, other_id = side.topic_id(topic), side.topic_id(other)

    def opened(version):
        return client.ask(
            fetch([(topic if version < BY_ID else topic_id, [(0, 0)])], session=FRESH), version
        ).session_id

    with side.connect() as client:
        cases = {
            "names, then ids": (12, 13, fetch([(other_id, [(0, 0)])])),
            "names, then nothing by id": (12, 13, fetch([])),
            "ids, then names": (13, 12, fetch([(other, [(0, 0)])])),
            "ids, then nothing by name": (13, 12, fetch([])),
            "ids, then a name forgotten": (13, 12, fetch([], forgotten=[(topic, [0])])),
            "7, then 12": (7, 12, fetch([])),
        }
        for name, (first, then, request) in cases.items():
            request.session_id, request.session_epoch = opened(first), 1
            yield name, client.ask(request, then)
            again = fetch([], session=(request.session_id, 1), wait_ms=50)
            yield f"{name}: goes on at 1", client.ask(again, first)
            again.session_epoch = 2
            yield f"{name}: goes on at 2", client.ask(again, first)
        own = opened(12)
        for name, epoch in {"a wrong epoch": 7, "the right epoch": 1, "the right epoch again": 1}.items():
            yield f"ids in a session of names, {name}", client.ask(fetch([], session=(own, epoch)), 13)
        yield "an unknown session by id", client.ask(fetch([], session=(own ^ 77, 1)), 13)
        yield "a full fetch by id closes it", client.ask(fetch([(topic_id, [(0, 0)])], session=(own, 0)), 13)
        yield "closed", client.ask(fetch([], session=(own, 2)), 12)
        own = opened(12)
        yield "from another connection", side.ask(fetch([], session=(own, 1)), 12)


@scenario
def sessions_of_topics_that_come_later(side):
    topic = side.name("one")
    with side.connect() as client:
        opened = client.ask(fetch([(topic, [(0, 0)])], session=FRESH), 12)
        yield "unknown", opened
        side.create_topic("one")
        yield "created", client.ask(fetch([], session=(opened.session_id, 1)), 12)
        client.ask(produce_one(topic, batch(b"x", at=PAST_MS)), 9)
        yield "filled", client.ask(fetch([], session=(opened.session_id, 2)), 12)


@scenario
def a_session_whose_consumer_has_gone(side):
    """It stays, and any connection that continues it gets the records that came meanwhile."""
    topic = side.create_topic("one", 2)
    own = side.ask(fetch([(topic, [(0, 0), (1, 0)])], session=FRESH), 12).session_id
    for number in range(3):
        side.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS)), 9)
    yield "what came meanwhile", side.ask(fetch([], session=(own, 1)), 12)
    yield "not read yet", side.ask(fetch([], session=(own, 2)), 12)
    yield "read", side.ask(fetch([(topic, [(0, 3)])], session=(own, 3)), 12)
    side.ask(produce_one(topic, batch(b"later", at=PAST_MS), partition=1), 9)
    yield "of the other partition", side.ask(fetch([], session=(own, 4)), 12)


@scenario
def sessions_by_id_of_topics_that_are_created_again(side):
    """The old id in a session: deleted, created again, beside the new one, forgotten."""
    for version in (13, 17):
        topic, other = side.create_topic(f"{version}"), side.create_topic(f"{version}-other")
        first_id, other_id = side.topic_id(topic), side.topic_id(other)
        with side.connect() as client:

            def ask(topics, session, client=client, version=version, **options):
                return client.ask(fetch(topics, session=session, wait_ms=50, **options), version)

            client.ask(produce_one(topic, batch(b"old", at=PAST_MS)), 9)
            own = ask([(first_id, [(0, 0)]), (other_id, [(0, 0)])], FRESH).session_id
            quiet = ask([(first_id, [(0, 1)]), (other_id, [(0, 0)])], FRESH).session_id
            side.delete_topic(topic)
            yield f"v{version} deleted", ask([], (own, 1))
            yield f"v{version} still deleted", ask([], (own, 2))
            yield f"v{version} deleted, had nothing new", ask([], (quiet, 1))
            side.create_topic(f"{version}")
            new_id = side.topic_id(topic)
            client.ask(produce_one(topic, batch(b"new", at=PAST_MS)), 9)
            yield f"v{version} created again", ask([], (own, 3))
            yield f"v{version} created again, had nothing new", ask([], (quiet, 2))
            yield f"v{version} the old id in a new session", ask([(first_id, [(0, 0)])], FRESH)
            yield f"v{version} both ids in a new session", ask([(first_id, [(0, 0)]), (new_id, [(0, 0)])], FRESH)
            yield f"v{version} the new id beside it", ask([(new_id, [(0, 0)])], (own, 4))
            yield f"v{version} both stay", ask([], (own, 5))
            yield f"v{version} the old one forgotten", ask([], (own, 6), forgotten=[(first_id, [0])])
            yield f"v{version} the new one goes on", ask([(new_id, [(0, 1)])], (own, 7))
            client.ask(produce_one(topic, batch(b"newer", at=PAST_MS)), 9)
            yield f"v{version} and returns records", ask([], (own, 8))
