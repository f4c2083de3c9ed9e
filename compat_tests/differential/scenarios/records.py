"""What a topic's configuration demands of records, and what it makes of them."""

from barnabas.wire.records import Record
from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, now_ms, produce_one
from compat_tests.differential.scenario import scenario

MINUTE_MS = 60_000


@scenario
def keys_on_a_compacted_topic(side):
    topic = side.create_topic("one", cleanup_policy="compact")
    keyed, unkeyed = (b"a", b"v"), (None, b"v")
    batches = {
        "no key": batch(unkeyed),
        "some without": batch(keyed, unkeyed, (b"b", b"v"), (None, b"w")),
        "some without, gzip": batch(keyed, unkeyed, codec=1),
        "tombstone": batch((b"a", None)),
        "empty key": batch((b"", b"v")),
    }
    for version in (3, 7, 8, 9, 11):
        with side.connect() as client:
            yield from client.ask_all(version, {name: produce_one(topic, data) for name, data in batches.items()})


@scenario
def times_of_records(side):
    narrow = side.create_topic(
        "narrow", message_timestamp_before_max_ms="10000", message_timestamp_after_max_ms="10000"
    )
    usual = side.create_topic("usual")
    now = now_ms()
    times = {"now": now, "a minute ago": now - MINUTE_MS, "in a minute": now + MINUTE_MS, "-1": -1, "-2": -2, "0": 0}
    times |= {"in 30 minutes": now + 30 * MINUTE_MS, "in 2 hours": now + 120 * MINUTE_MS}
    times |= {"largest": 2**63 - 1, "smallest": -(2**63), "far": 2**62}
    for name, time_ms in times.items():
        for topic in (narrow, usual):
            answer = side.ask(produce_one(topic, batch(at=time_ms)), 9)
            yield f"{name} to {topic}", answer
    mixed = batch(*(Record(0, now + delta, None, b"v", ()) for delta in (0, -MINUTE_MS, MINUTE_MS, 0)))
    for version in (7, 8, 9):
        yield f"v{version} mixed to narrow", side.ask(produce_one(narrow, mixed), version)


@scenario
def several_faults_in_one_batch(side):
    """A record without a key, and one of another time, on a topic that refuses both."""
    limits = {"message_timestamp_before_max_ms": "10000", "message_timestamp_after_max_ms": "10000"}
    topic = side.create_topic("one", cleanup_policy="compact", **limits)
    now = now_ms()
    unkeyed, late = Record(0, now, None, b"v", ()), Record(0, now - MINUTE_MS, b"k", b"v", ())
    for name, records in {
        "key, time": (unkeyed, late),
        "time, key": (late, unkeyed),
        "four": (unkeyed, late) * 2,
    }.items():
        for version in (7, 9):
            yield f"v{version} {name}", side.ask(produce_one(topic, batch(*records)), version)


@scenario
def sizes_of_batches(side):
    small, segment = (
        side.create_topic("small", max_message_bytes="1000"),
        side.create_topic("seg", segment_bytes="1000"),
    )
    for version in (7, 9):
        for size in (900, 930, 931, 932, 933, 940, 2000):
            yield f"v{version} {size}", side.ask(produce_one(small, batch(b"x" * size)), version)
        yield f"v{version} 5000 zeros in gzip", side.ask(produce_one(small, batch(bytes(5000), codec=1)), version)
        for size in (900, 1200):
            yield f"v{version} {size} in a segment of 1000", side.ask(produce_one(segment, batch(b"x" * size)), version)
    squeezing = side.create_topic("gzip", max_message_bytes="1000", compression_type="gzip")
    yield "5000 zeros, to be compressed", side.ask(produce_one(squeezing, batch(bytes(5000))), 9)
    spreading = side.create_topic("plain", max_message_bytes="1000", compression_type="uncompressed")
    yield "5000 zeros, to be decompressed", side.ask(produce_one(spreading, batch(bytes(5000), codec=1)), 9)


@scenario
def codecs(side):
    """Each codec to each `compression.type`; what is stored is read back."""
    second = Record(0, PAST_MS + 5000, b"k2", None, [("h", b"x"), ("g", None)])
    for wanted in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        topic = side.create_topic(wanted, compression_type=wanted)
        with side.connect() as client:
            for codec in range(5):
                records = batch((b"k", b"v" * 40), second, codec=codec, at=PAST_MS)
                yield f"{codec} to {wanted}", client.ask(produce_one(topic, records), 9)
            yield f"zstd to {wanted} in v6", client.ask(produce_one(topic, batch(b"z", codec=4)), 6)
            yield f"{wanted} stored", client.ask(fetch([(topic, [(0, 0)])]), 11)


@scenario
def zstd_for_old_consumers(side):
    stored, configured = side.create_topic("stored"), side.create_topic("configured", compression_type="zstd")
    stored_id = side.topic_id(stored)
    side.ask(produce_one(stored, batch(b"z" * 50, codec=4, at=PAST_MS)), 9)
    side.ask(produce_one(configured, batch(b"z" * 50, at=PAST_MS)), 9)
    for version in range(4, 18):
        asked = stored if version < 13 else stored_id
        yield f"v{version} zstd", side.ask(fetch([(asked, [(0, 0)])]), version)
        if version < 13:
            yield f"v{version} configured zstd", side.ask(fetch([(configured, [(0, 0)])]), version)


@scenario
def log_append_time(side):
    topic = side.create_topic("one", message_timestamp_type="LogAppendTime")
    with side.connect() as client:
        for codec in range(5):
            yield f"codec {codec}", client.ask(produce_one(topic, batch(b"a", b"b", codec=codec, at=PAST_MS)), 9)
        yield "no time", client.ask(produce_one(topic, batch(b"a", at=-1)), 9)
        yield "v3", client.ask(produce_one(topic, batch(b"a", at=PAST_MS)), 3)
        yield "stored", client.ask(fetch([(topic, [(0, 0)])]), 11)
        for name, time_ms in {
            "0": 0,
            "a minute ago": now_ms() - MINUTE_MS,
            "in a minute": now_ms() + MINUTE_MS,
        }.items():
            yield f"offset of {name}", client.ask(list_offsets({topic: [(0, time_ms)]}), 7)
        for time_ms in (-1, -2):
            yield f"offset of {time_ms}", client.ask(list_offsets({topic: [(0, time_ms)]}), 7)
