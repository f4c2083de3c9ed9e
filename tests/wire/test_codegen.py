"""The code generator: the bytes of every kind of field, visible source, sane tables."""

import linecache
import traceback

import pytest

from barnabas.wire import codegen, runtime
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.schema import Field, Schema, parse_versions

# One message with every kind of field that a table can express; v0 is classic, v1 flexible.
EVERYTHING = Schema("Everything", None, "0-1", "1+", (
    Field("flag", "bool"),
    Field("tiny", "int8"),
    Field("ratio", "float64"),
    Field("id", "uuid"),
    Field("name", "string"),
    Field("alias", "string", nullable="0+", default=None),
    Field("blob", "bytes", nullable="0+"),
    Field("shorts", "[]int16"),
    Field("longs", "[]int64", nullable="0+"),
    Field("flags", "[]bool"),
    Field("ids", "[]uuid"),
    Field("names", "[]string"),
    Field("one", "Point", fields=(Field("x", "int32"), Field("y", "int32", default=-1))),
    Field("many", "[]Point", nullable="1+", fields=(Field("x", "int32"), Field("y", "int32", default=-1))),
    Field("late", "int32", "1+", tag=2, default=7),
    Field("early", "[]Point", "1+", tag=0, fields=(Field("x", "int32"), Field("y", "int32", default=-1))),
    Field("old", "int32", "0", default=5),
))  # fmt: skip


@pytest.fixture(scope="module")
def everything():
    return codegen.make_class(EVERYTHING)


def full(cls):
    return cls(
        flag=True, tiny=-2, ratio=0.5, id=bytes(range(16)), name="k", alias=None, blob=b"bb", shorts=[1, -1],
        longs=None, flags=[True, False], ids=[b"i" * 16], names=["n", ""],
        one=cls.Point(x=1, y=2), many=[cls.Point(x=3)],
    )  # fmt: skip


FIXED_PART = "01" "fe" "3fe0000000000000" "000102030405060708090a0b0c0d0e0f"  # fmt: skip
CLASSIC = FIXED_PART + (
    "0001 6b" "ffff" "00000002 6262" "00000002 0001 ffff" "ffffffff" "00000002 01 00"
    "00000001 69696969696969696969696969696969" "00000002 0001 6e 0000" "00000001 00000002"
    "00000001 00000003 ffffffff" "00000005"
)  # fmt: skip
FLEXIBLE = FIXED_PART + (
    "02 6b" "00" "03 6262" "03 0001 ffff" "00" "03 01 00"
    "02 69696969696969696969696969696969" "03 02 6e 01" "00000001 00000002 00"
    "02 00000003 ffffffff 00" "00"
)  # fmt: skip


@pytest.mark.parametrize(("version", "expected"), [(0, CLASSIC), (1, FLEXIBLE)])
def test_every_kind_of_field_has_the_bytes_that_the_protocol_says(everything, version, expected) -> None:
    data = runtime.encode(full(everything), version)
    assert data == bytes.fromhex(expected)
    assert runtime.decode(everything, version, data) == full(everything)


def test_tagged_fields_that_are_not_default_follow_in_ascending_order(everything) -> None:
    message = everything(late=8, early=[everything.Point(x=1, y=2)])
    data = runtime.encode(message, 1)
    assert data.endswith(bytes.fromhex("02" "00 0a 02 00000001 00000002 00" "02 04 00000008"))  # fmt: skip
    assert runtime.decode(everything, 1, data) == message


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(AttributeError) as caught:
        m.encode(m.HeartbeatRequest(group_id=None), 4)  # type: ignore[arg-type]
    text = "".join(traceback.format_exception(caught.value))
    assert "<HeartbeatRequest v4 encode>" in text
    assert "= o.group_id.encode()" in text


def test_neighbouring_fields_of_fixed_size_are_read_at_once() -> None:
    m.decode(m.FetchRequest, 12, m.encode(m.FetchRequest(), 12))
    source = "".join(linecache.getlines("<FetchRequest v12 decode>"))
    assert "unpack_iiiibiiB(buf, pos)" in source
    assert source.count("\ndef ") == 1  # the main function, and one for its tagged field; no function per struct


def test_a_codec_is_made_for_the_versions_that_are_used_and_no_others(everything) -> None:
    fresh = codegen.make_class(EVERYTHING)
    runtime.encode(fresh(), 1)
    assert (list(fresh.ENCODERS), list(fresh.DECODERS)) == ([1], [])


def test_the_default_struct_that_instances_share_cannot_be_changed_in_place() -> None:
    partition = m.FetchResponse.PartitionData()
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.current_leader.leader_id = 3
    partition.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=3)
    assert m.FetchResponse.PartitionData().current_leader.leader_id == -1


def test_a_default_struct_equals_one_that_was_built_and_prints_like_it() -> None:
    built = m.FetchResponse.LeaderIdAndEpoch()
    default = m.FetchResponse.PartitionData().current_leader
    assert default == built
    assert repr(default) == repr(built) == "FetchResponse.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)"


def test_a_count_that_the_bytes_left_cannot_hold_is_refused_before_a_list_is_made(everything) -> None:
    head = FIXED_PART + "02 6b" "00" "03 6262" "01" "00" "01"  # fmt: skip
    claim = bytes.fromhex(head) + b"\xff\xff\xff\xff\x07" + bytes(100)
    with pytest.raises(ProtocolViolation, match=r"ids claims 2147483646 elements in the 100 bytes"):
        runtime.decode(everything, 1, claim)


@pytest.mark.parametrize(("text", "expected"), [("3+", (3, 1 << 15)), ("0-14", (0, 14)), ("2", (2, 2))])
def test_version_ranges_are_read(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected


def fields_below(schema: Schema) -> list[tuple[Field, ...]]:
    return [schema.fields, *schema.all_structs().values()]


@pytest.mark.parametrize("schema", m.schemas().values(), ids=lambda schema: schema.name)
def test_a_table_names_each_field_once_and_tags_only_flexible_versions(schema: Schema) -> None:
    for fields in fields_below(schema):
        names = [field.name for field in fields]
        tags = [field.tag for field in fields if field.tag is not None]
        assert len(set(names)) == len(names)
        assert sorted(tags) == list(range(len(tags)))
        for field in fields:
            assert field.tag is None or schema.is_flexible(parse_versions(field.versions)[0])
            assert field.default_value() is not None or field.nullable or field.is_struct
