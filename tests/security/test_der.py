"""Names in certificates: what is found, and that every malformed certificate is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.der import DerError, alternative_names_of, elements, oid_text, only, subject_of
from tests.security.der_writing import UTF8, certificate, name, oid, tlv

CASTLE = name([("CN", UTF8, b"castle")])
DNS_AND_ADDRESS = tlv(0x82, b"castle.example") + tlv(0x87, b"\x7f\0\0\1")


@pytest.mark.parametrize("version", [True, False])
def test_the_subject_is_found_with_and_without_a_version(version):
    assert tlv(0x30, subject_of(certificate(CASTLE, version=version))) == CASTLE


def test_alternative_names_are_found_behind_other_extensions():
    found = alternative_names_of(certificate(CASTLE, alternative_names=DNS_AND_ADDRESS))
    assert found == {(0x82, b"castle.example"), (0x87, b"\x7f\0\0\1")}
    assert alternative_names_of(certificate(CASTLE)) == frozenset()


@pytest.mark.parametrize("text", ["2.5.4.3", "1.2.840.113549.1.9.1", "2.999.1", "0.9.2342.19200300.100.1.25", "1.39.0"])
def test_identifiers_are_written_with_dots(text):
    assert oid_text(only(oid(text), 0x06)) == text


@pytest.mark.parametrize(
    "malformed",
    [
        b"\x30",  # no length
        b"\x30\x80\0\0",  # of indefinite length
        b"\x30\x05\x02\x01",  # longer than what is there
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x85\0\0\0\0\0",  # a length of five octets
        b"\x30\x81\x05\x02\x01\0\x05\0",  # a length with an octet too many
        b"\x30\x82\0\x80" + bytes(0x80),
        b"\x3f\x81\x01\0",  # a tag of two octets
    ],
)
def test_what_is_no_der_is_refused(malformed):
    with pytest.raises(DerError):
        list(elements(malformed))


@pytest.mark.parametrize("content", [b"", b"\x81", b"\x55\x84", b"\x81" * 1000 + b"\x01"])
def test_an_unfinished_or_endless_identifier_is_refused(content):
    with pytest.raises(DerError):
        oid_text(content)


def test_a_certificate_cut_anywhere_is_refused():
    whole = certificate(CASTLE, alternative_names=DNS_AND_ADDRESS)
    for length in range(len(whole)):
        for read in (subject_of, alternative_names_of):
            with pytest.raises(DerError):
                read(whole[:length])


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_raise_anything_but_a_der_error(garbage, position, octet):
    whole = bytearray(certificate(CASTLE, alternative_names=DNS_AND_ADDRESS))
    whole[position % len(whole)] = octet
    for data in (garbage, bytes(whole)):
        for read in (subject_of, alternative_names_of, oid_text, lambda each: list(elements(each))):
            try:
                read(data)
            except DerError:
                continue
