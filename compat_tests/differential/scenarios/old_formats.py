"""Message formats 0 and 1 in Produce: what is stored of them, and what is refused."""

import zlib

from barnabas.wire.compression import Codec
from barnabas.wire.compressors import compress
from barnabas.wire.downconvert import encode_message
from barnabas.wire.record_batch import read_batch_header, walk_entries
from barnabas.wire.record_reader import Record
from barnabas.wire.runtime import varint
from compat_tests.differential.asking import PAST_MS, YEAR_MS, batch, fetch, produce, produce_one
from compat_tests.differential.scenario import scenario
from compat_tests.differential.side import CLOSED, SILENT

VERSIONS = range(3)
OLD_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
APPEND_TIME = 8  # in the attributes of format 1
BROKEN_LZ4_CHECKSUM = 0  # any other than the right one: format 0 does not look at it


def message(magic, value=b"v", key=b"k", *, at=PAST_MS, offset=0, attributes=0):
    return encode_message(Record(offset, at, key, value, []), magic, attributes)


def message_set(magic, *times, first=0, step=1, **fields):
    """Messages v0, v1 … of these times, at offsets in a row."""
    return b"".join(
        message(magic, b"v%d" % index, at=at, offset=first + index * step, **fields) for index, at in enumerate(times)
    )


def wrapped(magic, content, codec=Codec.GZIP, *, at=PAST_MS, offset=0, attributes=0):
    """A message set as one compressed message."""
    data = bytearray(compress(codec, content))
    if codec == Codec.LZ4 and magic == 0:
        data[6] = BROKEN_LZ4_CHECKSUM
    return message(magic, bytes(data), None, at=at, offset=offset, attributes=attributes | codec)


def edited(entry, at, content, *, sealed=True):
    """A message with other bytes at a position, and the checksum that goes with them unless it is not `sealed`."""
    data = bytearray(entry)
    data[at : at + len(content)] = content
    if sealed:
        data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


def lengthened(entry, by):
    """A message whose size claims more, or fewer, bytes than belong to it."""
    return entry[:8] + (int.from_bytes(entry[8:12], "big") + by).to_bytes(4, "big") + entry[12:]


def good(magic):
    """What is stored, as message sets of this format."""
    three = (PAST_MS, PAST_MS + 5, PAST_MS + 3)
    cases = {
        "one": message(magic),
        "no key": message(magic, key=None),
        "no value": message(magic, None),
        "nothing at all": message(magic, None, None),
        "empty": message(magic, b"", b""),
        "several": message_set(magic, *three),
        "several at the same offset": message_set(magic, *three, step=0),
        "several from 100 on": message_set(magic, *three, first=100),
        "many": message_set(magic, *range(PAST_MS, PAST_MS + 300)),
        "large": message(magic, b"x" * 100_000, b"y" * 1000),
        "a part behind it": message(magic) + message(magic)[:-1],
        "a few bytes behind it": message(magic) + b"\x00" * 5,
        "no timestamp": message(magic, at=-1),
        "no timestamp at first": message_set(magic, -1, PAST_MS),
        "no timestamp at last": message_set(magic, PAST_MS, -1),
        "far in the past": message(magic, at=1),
        "unknown attribute bits": message(magic, attributes=0xF0),
        "time of the append": message(magic, attributes=APPEND_TIME),
    }
    for codec in OLD_CODECS:
        name = codec.name.lower()
        cases |= {
            f"{name} of one": wrapped(magic, message(magic), codec),
            f"{name} of several": wrapped(magic, message_set(magic, *three), codec, offset=2),
            f"{name} of many": wrapped(magic, message_set(magic, *range(PAST_MS, PAST_MS + 3000)), codec, offset=2999),
            f"{name} without keys and values": wrapped(magic, message(magic, None, None) * 2, codec),
            f"{name}, wrapper at 0": wrapped(magic, message_set(magic, *three), codec, offset=0),
            f"{name}, wrapper far on": wrapped(magic, message_set(magic, *three), codec, offset=1000),
            f"{name}, offsets from 7 on": wrapped(magic, message_set(magic, *three, first=7), codec, offset=9),
            f"{name}, offsets backwards": wrapped(magic, message_set(magic, *three, first=2, step=-1), codec, offset=2),
            f"{name}, one time in the wrapper": wrapped(magic, message_set(magic, *three), codec, offset=2, at=7),
            f"{name}, no time in the wrapper": wrapped(magic, message_set(magic, *three), codec, offset=2, at=-1),
            f"{name}, time of the append": wrapped(
                magic, message_set(magic, *three), codec, offset=2, at=PAST_MS + 9, attributes=APPEND_TIME
            ),
            f"{name}, inner times of the append": wrapped(
                magic, message_set(magic, *three, attributes=APPEND_TIME), codec, offset=2
            ),
            f"{name}, cut within a message": wrapped(magic, message_set(magic, *three)[:-3], codec, offset=1),
            f"{name}, cut within a start": wrapped(magic, message(magic) + bytes(9), codec),
            f"{name}, a part behind it": wrapped(magic, message(magic), codec) + message(magic)[:-1],
        }
    return cases


def bad(magic):
    """What is refused."""
    one, two, start = message(magic), message_set(magic, PAST_MS, PAST_MS), (18, 26)[magic]
    other = message(1 - magic)
    cases = {
        "wrong checksum": edited(one, len(one) - 1, b"w", sealed=False),
        "wrong checksum of the second": one + edited(one, len(one) - 1, b"w", sealed=False),
        "cut off": one[:-1],
        "size 5": one[:8] + (5).to_bytes(4, "big") + one[12:],
        "size 5 of the second": one + one[:8] + (5).to_bytes(4, "big") + one[12:],
        "magic 3 of the second": one + edited(one, 16, b"\x03"),
        "magic -1 of the second": one + edited(one, 16, b"\xff"),
        "no fields": edited(lengthened(one, 14 - (len(one) - 12))[:26], 17, b"\x00"),
        "key too long": edited(one, start, (1000).to_bytes(4, "big")),
        "value too long": edited(one, start + 5, (1000).to_bytes(4, "big")),
        "value too short": edited(message(magic, b"vvvv"), start + 5, (1).to_bytes(4, "big")),
        "key of length -5": edited(message(magic, b"v", None), start, (-5).to_bytes(4, "big", signed=True)),
        "bytes behind the value": edited(lengthened(one + b"xx", 2), 0, b""),
        "another format behind it": one + other,
        "another format before it": other + one,
        "format 2 behind it": one + batch(at=PAST_MS),
        "format 2 before it": batch(at=PAST_MS) + one,
        "timestamp -2": message(magic, at=-2),
        "timestamp -2 of the second": message_set(magic, PAST_MS, -2),
        "largest timestamp": message(magic, at=(1 << 63) - 1),
        "smallest timestamp": message(magic, at=-(1 << 63)),
        "codec zstd": wrapped(magic, one, Codec.ZSTD),
        "codec 5": message(magic, attributes=5),
        "codec 7": message(magic, attributes=7),
        "codec 5 of the second": one + message(magic, attributes=5),
        "wrapper without value": message(magic, None, attributes=1),
        "wrapper of nothing": wrapped(magic, b""),
        "wrapper with an empty value": message(magic, b"", attributes=1),
        "two wrappers": wrapped(magic, one) * 2,
        "a wrapper and one": wrapped(magic, one) + one,
        "one and a wrapper": one + wrapped(magic, one),
        "wrong checksum of a wrapper": edited(wrapped(magic, one), 40, b"w", sealed=False),
        "wrapper at 1 of 0 to 4": wrapped(magic, message_set(magic, *[PAST_MS] * 5), offset=1),
        "wrapper at -5": wrapped(magic, two, offset=-5),
        "inner time -2": wrapped(magic, message(magic, at=-2)),
    }
    inner = {
        "wrong checksum": edited(one, len(one) - 1, b"w", sealed=False),
        "size 5": one[:8] + (5).to_bytes(4, "big") + one[12:],
        "size -5": one[:8] + (-5).to_bytes(4, "big", signed=True) + one[12:],
        "size in megabytes": one[:8] + (3 << 20).to_bytes(4, "big") + one[12:],
        "magic of the other": other,
        "magic 2": edited(one, 16, b"\x02"),
        "magic 9": edited(one, 16, b"\x09"),
        "compressed": wrapped(magic, one),
        "codec 5": message(magic, attributes=5),
        "no fields": edited(lengthened(one, 14 - (len(one) - 12))[:26], 17, b"\x00"),
        "key too long": edited(one, start, (1000).to_bytes(4, "big")),
        "value too long": edited(one, start + 5, (1000).to_bytes(4, "big")),
    }
    for codec in OLD_CODECS:
        cases |= {
            f"{codec.name.lower()}, {where} {name}": wrapped(magic, content, codec)
            for name, faulty in inner.items()
            for where, content in {"inner": faulty, "second inner": one + faulty, "inner before": faulty + one}.items()
        }
        data = compress(codec, two)
        cases |= {
            f"{codec.name.lower()} cut off": message(magic, data[:-8], attributes=codec),
            f"{codec.name.lower()} garbage": message(magic, b"garbage" * 9, attributes=codec),
            f"{codec.name.lower()} and more": message(magic, data + b"more", attributes=codec),
        }
    return cases


# How the digits of a time in a header begin, and those of a time delta between PAST_MS and 1970 end, in either
# direction: what is left of them is a distance.
PAST_BEGINS = PAST_MS.to_bytes(8, "big").hex()[:-5]
YEAR_BEGINS = (PAST_MS + YEAR_MS).to_bytes(8, "big").hex()[:-5]
PAST_ENDS = varint(PAST_MS >> 20).hex()
PAST_ENDS_BACKWARDS = varint((PAST_MS >> 20) - 1).hex()
CHECKSUM = slice(34, 42)  # of the digits of a batch


def _digits(data):
    """The bytes of a batch without its checksum, which covers times."""
    digits = data.hex()
    named = f"{digits[: CHECKSUM.start]} {digits[CHECKSUM.stop :]}"
    for of_this_run, name in (
        (PAST_BEGINS, " PAST "),
        (YEAR_BEGINS, " YEAR "),
        (PAST_ENDS, " PAST "),
        (PAST_ENDS_BACKWARDS, " -PAST "),
    ):
        named = named.replace(of_this_run, name)
    return named


def _stored(side, topic):
    """What the log holds, and its bytes where no compressor and no clock had a hand in them."""
    request = fetch([(topic, [(0, 0)])], max_bytes=50 << 20, partition_bytes=50 << 20)
    answer = side.ask(request, 11)  # which also carries what zstd compressed
    content = bytes(answer.responses[0].partitions[0].records)
    plain = [
        _digits(content[position : position + entry.size_bytes])
        for position, entry in walk_entries(content)
        if not read_batch_header(content, position).attributes
    ]
    return {"answer": answer, "bytes": plain}


def _each(side, topic, version, cases):
    with side.connect() as client:
        yield from client.ask_all(version, {name: produce_one(topic, data) for name, data in cases.items()})


@scenario
def old_messages_are_converted(side):
    for magic in (0, 1):
        for version in VERSIONS:
            topic = side.create_topic(f"{version}-{magic}")
            cases = {f"magic {magic} {name}": data for name, data in good(magic).items()}
            yield from _each(side, topic, version, cases)
            yield f"v{version} magic {magic} stored", _stored(side, topic)


@scenario
def old_messages_are_refused(side):
    for magic in (0, 1):
        for version in VERSIONS:
            topic = side.create_topic(f"{version}-{magic}")
            cases = {f"magic {magic} {name}": data for name, data in bad(magic).items()}
            yield from _each(side, topic, version, cases)
            yield f"v{version} magic {magic} stored", _stored(side, topic)


@scenario
def old_messages_in_new_requests(side):
    topic = side.create_topic("one")
    for version in (3, 7, 9, 11):
        for magic in (0, 1):
            cases = {"one": message(magic), "two": message(magic) * 2, "wrapper": wrapped(magic, message(magic))}
            yield from _each(side, topic, version, {f"magic {magic} {name}": data for name, data in cases.items()})


@scenario
def new_batches_in_old_requests(side):
    zstd = batch(b"z" * 100, codec=Codec.ZSTD, at=PAST_MS)
    good = batch(at=PAST_MS)
    cases = {
        "one": good,
        "two": good * 2,
        "gzip": batch(b"a", b"b", codec=Codec.GZIP, at=PAST_MS),
        "zstd": zstd,
        "with headers": batch(Record(0, PAST_MS, b"k", b"v", [("h", b"x")])),
        "of a producer": batch(producer_id=10**12, producer_epoch=0, base_sequence=0, at=PAST_MS),
        "of a transaction": batch(attributes=16, producer_id=10**12, producer_epoch=0, base_sequence=0, at=PAST_MS),
        "control": batch(attributes=32, producer_id=9, producer_epoch=0, base_sequence=0, at=PAST_MS),
        "base offset 5": batch(base_offset=5, at=PAST_MS),
        "damaged": good[:-1] + b"\x09",
        "damaged second": good + good[:-1] + b"\x09",
        "part of a second": good + good[:-1],
        "cut off": good[:-1],
        "nothing": b"",
        "a few bytes": bytes(5),
        "12 bytes": bytes(8) + (100).to_bytes(4, "big"),
        "zeros": bytes(100),
    }
    for version in VERSIONS:
        topic = side.create_topic(str(version))
        yield from _each(side, topic, version, cases)
        yield f"v{version} stored", _stored(side, topic)
    yield "null", side.ask(produce_one(topic, None), 2)


DAY_MS = str(86_400_000)
CONFIGURATIONS = {
    "append time": {"message_timestamp_type": "LogAppendTime"},
    "near times": {"message_timestamp_before_max_ms": DAY_MS, "message_timestamp_after_max_ms": DAY_MS},
    "compacted": {"cleanup_policy": "compact"},
    "compacted, near times": {"cleanup_policy": "compact", "message_timestamp_before_max_ms": DAY_MS},
    "small": {"max_message_bytes": "1000"},
    "small and gzip": {"max_message_bytes": "1000", "compression_type": "gzip"},
    "small and plain": {"max_message_bytes": "1000", "compression_type": "uncompressed"},
    "small segments": {"segment_bytes": "1000", "max_message_bytes": "100000"},
    **{name: {"compression_type": name} for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")},
}


def configurable(magic):
    """Message sets that one topic takes and another one refuses."""

    def pair(*times, **fields):
        return message_set(magic, *times, **fields)

    keyless = message(magic, key=None)
    cases = {
        "several": pair(PAST_MS, PAST_MS + 2),
        "time of the append": message(magic, attributes=APPEND_TIME),
        "second old": pair(PAST_MS, 1),
        "future": message(magic, at=PAST_MS + YEAR_MS),
        "no time": message(magic, at=-1),
        "no time, time of the append": message(magic, at=-1, attributes=APPEND_TIME),
        "second without key": message(magic) + keyless,
        "old without key": message(magic, key=None, at=1),
        "without key, then old": keyless + message(magic, at=1),
        "old, then without key": message(magic, at=1) + keyless,
        "large": message(magic, b"x" * 1100),
        "large second": message(magic) + message(magic, b"x" * 1100),
        "many": pair(*[PAST_MS] * 200),
        "fit for old formats only": pair(*[PAST_MS] * 20, key=bytes(12)),
    }
    for codec in OLD_CODECS:
        inner = {
            "several": wrapped(magic, pair(PAST_MS, PAST_MS + 2), codec, offset=1),
            "time of the append": wrapped(magic, pair(1, 2), codec, offset=1, attributes=APPEND_TIME),
            "no time, time of the append": wrapped(magic, pair(1, 2), codec, offset=1, attributes=APPEND_TIME, at=-1),
            "inner time of the append": wrapped(magic, pair(PAST_MS, 5, attributes=APPEND_TIME), codec, offset=1),
            "second old": wrapped(magic, pair(PAST_MS, 1), codec, offset=1),
            "without key": wrapped(magic, keyless, codec),
            "without key, old": wrapped(magic, keyless + message(magic, at=1), codec, offset=1),
            "without key, nested": wrapped(magic, keyless + wrapped(magic, message(magic)), codec, offset=1),
            "without key, time -2": wrapped(magic, keyless + message(magic, at=-2), codec, offset=1),
            "without key, cut off": message(magic, compress(codec, keyless * 9)[:-6], attributes=codec),
            "much of the same": wrapped(magic, pair(*[PAST_MS] * 200), codec, offset=199),
            "large within": wrapped(magic, message(magic, b"x" * 50_000), codec),
        }
        cases |= {f"{codec.name} {name}": data for name, data in inner.items()}
    return cases


@scenario
def old_messages_and_the_configuration_of_topics(side):
    """Times, keys, sizes and codecs as a topic wants them."""
    for name, configs in CONFIGURATIONS.items():
        topic = side.create_topic(name.replace(" ", "-").replace(",", ""), **configs)
        for magic in (0, 1):
            cases = {f"{name}, magic {magic} {case}": data for case, data in configurable(magic).items()}
            yield from _each(side, topic, 2, cases)
        yield f"{name} stored", _stored(side, topic)
    for version in (0, 1):
        yield from _each(side, side.name("append-time"), version, {"the time of the append": message(1)})


@scenario
def old_messages_and_acks(side):
    topic, unknown = side.create_topic("one", 2), side.name("unknown")
    lonely = side.create_topic("lonely", min_insync_replicas="2")
    good, damaged = message(1), message(1)[:-1] + b"\x09"
    for version in VERSIONS:
        cases = {
            "acks 1": produce_one(topic, good, acks=1),
            "acks 2": produce_one(topic, good, acks=2),
            "acks 2, damaged": produce_one(topic, damaged, acks=2),
            "acks 2, nothing": produce_one(topic, b"", acks=2),
            "unknown topic": produce_one(unknown, good),
            "unknown partition": produce_one(topic, good, partition=9),
            "internal": produce_one("__consumer_offsets", good),
            "several": produce([(topic, [(0, good), (1, damaged), (7, good)]), (unknown, [(0, good)])]),
            "no topics": produce([]),
            "no partitions": produce([(topic, [])]),
            "too few replicas": produce_one(lonely, good),
            "too few replicas, nothing": produce_one(lonely, b""),
            "too few replicas, acks 1": produce_one(lonely, good, acks=1),
            "nothing to an unknown topic": produce_one(unknown, b""),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)
        for name, records in {"good": good, "damaged": damaged, "nothing": b""}.items():
            with side.connect() as client:
                client.send(produce_one(topic, records, acks=0), version)
                heard = client.listen(0.3)
                yield f"v{version} {name} without acks", heard
                assert heard in (CLOSED, SILENT), heard
    yield "stored", side.ask(fetch([(topic, [(0, 0), (1, 0)])]), 4)
