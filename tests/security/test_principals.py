"""Principals: their text, the names in certificates as Java writes them, and mapping rules as Kafka applies them.

The names of certificates and the results of rules are those of X500Principal.getName() of Java 17 and of Kafka 3.9.1's
SslPrincipalMapper.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.der import DerError
from barnabas.security.principals import (
    ANONYMOUS,
    KafkaPrincipal,
    NoMatchingRule,
    distinguished_name,
    parse_mapping_rules,
    parse_principal,
    parse_super_users,
    principal_of_certificate,
)
from tests.security.der_writing import PRINTABLE, UTF8, certificate, name, oid, tlv

KLAMM = "CN=klamm,OU=Bureau,O=Castle,C=AB"


def cn(value: str, tag=UTF8) -> str:
    return distinguished_name(certificate(name([("CN", tag, value.encode())])))


def test_a_principal_is_split_at_the_first_colon():
    assert parse_principal("User:CN=a:b") == KafkaPrincipal("User", "CN=a:b")
    assert parse_principal(":") == KafkaPrincipal("", "")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "User", "User;klamm"])
def test_a_principal_without_a_colon_is_refused(text):
    with pytest.raises(ValueError, match=f"expected a string in format principalType:principalName but got {text}"):
        parse_principal(text)


@given(st.text(), st.text())
def test_what_is_written_as_a_principal_is_read_back(kind, who):
    principal = KafkaPrincipal(kind.replace(":", ""), who)
    assert parse_principal(str(principal)) == principal


def test_super_users_may_have_commas():
    assert parse_super_users(f"User:{KLAMM}; User:frieda ;") == {
        KafkaPrincipal("User", KLAMM),
        KafkaPrincipal("User", "frieda"),
    }
    assert parse_super_users("") == frozenset()


@pytest.mark.parametrize("text", ["klamm", "User:a;;User:b", "User:a; "])
def test_super_users_that_are_no_principals_are_refused(text):
    with pytest.raises(ValueError, match="expected a string in format"):
        parse_super_users(text)


def test_a_name_is_written_from_its_last_part_to_its_first():
    subject = name(
        [("C", PRINTABLE, b"AB")],
        [("ST", UTF8, b"Some State")],
        [("O", UTF8, b"Org, Inc.")],
        [("L", UTF8, b"Town"), ("OU", UTF8, b"Unit")],
        [("CN", UTF8, b"writeuser")],
        [("1.2.840.113549.1.9.1", 0x16, b"w@x.org")],
    )
    assert distinguished_name(certificate(subject)) == (
        r"1.2.840.113549.1.9.1=#16077740782e6f7267,CN=writeuser,L=Town+OU=Unit,O=Org\, Inc.,ST=Some State,C=AB"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a=b", r"a\=b"),
        ("a#", r"a\#"),
        ('a,b+c"d\\e<f>g;h', r"a\,b\+c\"d\\e\<f\>g\;h"),
        (" a b ", r"\ a b\ "),
        ("  ", r"\ \ "),
        ("\ra\r", "\\\ra\\\r"),
        ("a\nb\x01", "a\nb\x01"),
        ("a\0b", r"a\00b"),
        ("\0", r"\00"),
        ("é😀", "é😀"),
        ("", ""),
    ],
)
def test_a_value_is_escaped_as_java_escapes_it(value, written):
    assert cn(value) == f"CN={written}"


@pytest.mark.parametrize("tag", [0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E])
def test_values_of_text_types_are_read_as_utf_8(tag):
    assert cn("\0k\0l", tag) == r"CN=\00k\00l"


@pytest.mark.parametrize("tag", [0x12, 0x1C, 0x1A, 0x04])
def test_values_of_other_types_are_written_as_bytes(tag):
    assert cn("12", tag) == f"CN=#{tag:02x}023132"


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("2.5.4.9", "STREET=k"),
        ("0.9.2342.19200300.100.1.25", "DC=k"),
        ("0.9.2342.19200300.100.1.1", "UID=k"),
        ("2.5.4.5", "2.5.4.5=#0c016b"),
        ("2.5.4.12", "2.5.4.12=#0c016b"),
        ("2.999.1", "2.999.1=#0c016b"),
    ],
)
def test_few_types_have_names(kind, written):
    assert distinguished_name(certificate(name([(kind, UTF8, b"k")]))) == written


def test_a_broken_name_is_refused():
    for subject in (
        tlv(0x30, tlv(0x30, b"")),
        tlv(0x30, tlv(0x31, tlv(0x31, b""))),
        tlv(0x30, tlv(0x31, tlv(0x30, oid("2.5.4.3")))),
        tlv(0x30, tlv(0x31, tlv(0x30, oid("2.5.4.3") + tlv(UTF8, b"a") + tlv(UTF8, b"b")))),
        tlv(0x30, tlv(0x31, tlv(0x30, tlv(UTF8, b"a") + tlv(UTF8, b"b")))),
    ):
        with pytest.raises(DerError):
            distinguished_name(certificate(subject))


@given(st.lists(st.tuples(st.sampled_from(["CN", "OU", "1.2.3"]), st.text(max_size=8)), min_size=1, max_size=4))
def test_different_names_are_written_differently(parts):
    """Or a certificate could pass for another one's user, a super user perhaps."""

    def read_back(text):
        found, key, value, position = [], "", "", 0
        while position < len(text):
            if not key:
                key, _, rest = text[position:].partition("=")
                position = len(text) - len(rest)
            elif text[position] == ",":
                found.append((key, value))
                key, value, position = "", "", position + 1
            elif text[position] == "\\":
                step = 3 if text[position + 1] == "0" else 2
                value += "\0" if step == 3 else text[position + 1]
                position += step
            else:
                value, position = value + text[position], position + 1
        return [*found, (key, value)]

    subject = name(*([(kind, UTF8, value.encode())] for kind, value in parts))
    expected = [(kind, value if "." not in kind else "#" + tlv(UTF8, value.encode()).hex()) for kind, value in parts]
    assert read_back(distinguished_name(certificate(subject))) == expected[::-1]


@pytest.mark.parametrize(
    ("rules", "mapped"),
    [
        ("DEFAULT", KLAMM),
        (r"RULE:^CN=(.*?),OU=Bureau.*$/$1/", "klamm"),
        (r"RULE:^CN=(.*?),.*$/$1/U", "KLAMM"),
        (r"RULE:^.*$/Klamm/L", "klamm"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2.$3/L,DEFAULT", "klamm@bureau.castle"),
        (r"RULE:^OU=(.*?)$/$1/,RULE:^CN=(.*?),.*$/first-$1/, DEFAULT", "first-klamm"),
        (r" RULE:^OU=.*$/x/ , DEFAULT", KLAMM),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1\/$9 $12 $01 $0/", f"klamm/$9 klamm2 klamm {KLAMM}"),
        (r"RULE:C(.)(.)(.*)/$4 $45 $31/", "$4 $45 klamm,OU=Bureau,O=Castle,C=AB1"),
        (r"RULE:CN=.*/$0/", KLAMM),
        (r"RULE:.*/x/", "xx"),  # replaces every match, and the empty text at the end is one
        (r"RULE:^CN=([^,]*),.*$/\$1 \\$1/", "$1 \\klamm"),
        (r"RULE:^CN=(.)?(x)?.*$/[$1$2]/", "[k]"),
        ("RULE:CN=KLAMM.*/x/,RULE:(?i)cn=KLAMM.*$/y/", "y"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules, mapped):
    assert parse_mapping_rules(rules).name_of(KLAMM) == mapped


@pytest.mark.parametrize("rules", ["", ",", "RULE:^OU=.*$/x/", "RULE:CN=klamm/x/", "RULE:CN=.*$//,DEFAULT"])
def test_without_a_name_the_connection_is_refused(rules):
    with pytest.raises(NoMatchingRule, match="No rules apply to 'CN=klamm"):
        parse_mapping_rules(rules).name_of(KLAMM)


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_a_name_with_a_line_end_matches_no_pattern(end):
    with pytest.raises(NoMatchingRule):
        parse_mapping_rules("RULE:CN=(.*)/$1/").name_of(f"CN=a{end}b")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:CN=(/x/",
        "RULE:CN=x/$1/",
        "RULE:CN=(.*)/${name}/",
        r"RULE:\p{Alpha}+/x/",
        "RULE:[a-z&&[^k]]+/x/",
        "RULE:(?<who>.*)/x/",
        "RULE:(?u)a/x/",
        "RULE:a{99999999999}/x/",
    ],
)
def test_a_rule_that_cannot_be_applied_is_refused(rule):
    with pytest.raises(ValueError, match="Invalid rule: `"):
        parse_mapping_rules(f"DEFAULT,{rule}")


@given(st.text(alphabet="RULE:DFAT/\\$1()[]*+?{,}.^ \n", max_size=30), st.text(max_size=10))
def test_no_text_of_rules_raises_anything_but_value_errors(text, distinguished):
    try:
        parse_mapping_rules(text).name_of(distinguished)
    except ValueError:
        return


def test_a_connection_without_a_certificate_is_anonymous():
    rules = parse_mapping_rules("RULE:^CN=(.*)$/$1/")
    assert principal_of_certificate(None, rules) == ANONYMOUS
    assert principal_of_certificate(certificate(name([("CN", UTF8, b"klamm")])), rules) == ("User", "klamm")
