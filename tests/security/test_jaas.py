"""`sasl.jaas.config` and JAAS files: what Kafka 3.9.1's JaasContext reads, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.jaas import (
    JaasError,
    LoginModule,
    jaas_file_in,
    parse_jaas_config,
    parse_jaas_file,
    zookeeper_context,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options_of(text: str) -> dict[str, str]:
    return dict(parse_jaas_config(f"{PLAIN} required {text};", "PLAIN").options)


def refusal_of(text: str, mechanism="PLAIN") -> str:
    with pytest.raises(JaasError) as refused:
        parse_jaas_config(text, mechanism)
    return str(refused.value)


def test_a_module_has_a_flag_and_options():
    text = f'{PLAIN} Required username="castle" password=\'se"cret\' user_klamm=pw\n user_frieda="";'
    module = parse_jaas_config(text, "PLAIN")
    options = {"username": "castle", "password": 'se"cret', "user_klamm": "pw", "user_frieda": ""}
    assert module == LoginModule(PLAIN, "REQUIRED", options)


def test_passwords_are_not_in_the_text_of_a_module():
    module = parse_jaas_config(f"{PLAIN} required password=sortini;", "PLAIN")
    assert "sortini" not in repr(module) + str(module)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("a=b a=c", {"a": "c"}),
        ('"user_a@b"="pw"', {"user_a@b": "pw"}),
        ("_a-b$c.d=é_1.5-x", {"_a-b$c.d": "é_1.5-x"}),
        (r'a="\a\b\f\n\r\t\v\"\\\x\'"', {"a": "\a\b\f\n\r\t\v\"\\x'"}),
        (r'a="\0\12\101\3777\477\8"', {"a": "\0\nA\xff7'78"}),
        ("a='x'b=\"y\"", {"a": "x", "b": "y"}),
        ("a=/* no */b // c=d", None),
        ("a=/* no\n **/b // c=d\n", {"a": "b"}),
        ("a=b / c=d\n e=f", {"a": "b", "e": "f"}),
        ("a=b /\n c=d\n e=f", {"a": "b", "e": "f"}),  # the line end behind the slash is skipped
        ('a="unfinished\n b=c', {"a": "unfinished", "b": "c"}),
        ('a="x\\\ny"', {"a": "x\ny"}),
        ("\x01\x0ba\x1f=\tb", {"a": "b"}),
        ("a\xa0b=c", {"a\xa0b": "c"}),  # a blank for Unicode, a letter here
    ],
)
def test_tokens_are_those_of_java(text, options):
    if options is None:
        assert "not terminated by semi-colon" in refusal_of(f"{PLAIN} required {text};")
    else:
        assert options_of(text) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified in JAAS config"),
        ("/* nothing */ // at all", "Login module not specified in JAAS config"),
        ("; required;", "Login module not specified in JAAS config (line 1, column 1)"),
        ("'' required;", "Login module not specified in JAAS config (line 1, column 1)"),
        (PLAIN, "Login module control flag not specified in JAAS config (line 1, column 56)"),
        (f"{PLAIN};", "Login module control flag is not available in the JAAS config (line 1, column 56)"),
        (f"\n {PLAIN} user=a;", "Invalid login module control flag 'user' in JAAS config (line 2, column 58)"),
        (f"{PLAIN} required a=;", "Value not specified for key 'a' in JAAS config (line 1, column 68)"),
        (f"{PLAIN} required a=5;", "Value not specified for key 'a' in JAAS config (line 1, column 68)"),
        (f"{PLAIN} required a=-1;", "Value not specified for key 'a' in JAAS config (line 1, column 68)"),
        (f"{PLAIN} required a", "Value not specified for a key in JAAS config (line 1, column 66)"),
        (f"{PLAIN} required a=b", "JAAS config entry not terminated by semi-colon (line 1, column 69)"),
        (f"{PLAIN} required; {SCRAM} optional;", "JAAS config property contains 2 login modules, should be 1 module"),
        (
            "com.sun.security.auth.module.JndiLoginModule required;",
            "com.sun.security.auth.module.JndiLoginModule is not allowed.",
        ),
        (f"{SCRAM} required;", f"the login module {SCRAM} does not serve PLAIN, which needs {PLAIN}"),
    ],
)
def test_errors_are_kafkas_and_say_where(text, message):
    assert refusal_of(text) == message


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN} required password=sortini@bureau;",
        f"{PLAIN} required password=very sortini;",
        f"{PLAIN} required password=1sortini;",
        f'{PLAIN} "sortini" required;',
        f"{PLAIN} required password=x; sortini;",
    ],
)
def test_no_part_of_a_password_is_in_an_error(text):
    assert "sortini" not in refusal_of(text)


def test_both_scram_mechanisms_have_one_module():
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert parse_jaas_config(f"{SCRAM} required;", mechanism).module == SCRAM
    assert "which needs no module" in refusal_of(f"{SCRAM} required;", "GSSAPI")


@given(st.dictionaries(st.text(), st.text()))
def test_options_that_are_quoted_are_read_back(options):
    def quoted(text):
        return (
            '"'
            + "".join(each if each.isalnum() else f"\\{ord(each):03o}" * (ord(each) < 256) or each for each in text)
            + '"'
        )

    assert options_of(" ".join(f"{quoted(key)}={quoted(value)}" for key, value in options.items())) == options


@given(st.text(alphabet="a1.-_=;'\"/\\* \n\r{}" + "é\x80"))
def test_no_text_raises_anything_but_a_jaas_error(text):
    for complete in (text, f"{PLAIN} required {text}", f"{PLAIN} required a={text};"):
        for parse in (lambda each: parse_jaas_config(each, "PLAIN"), parse_jaas_file):
            try:
                parse(complete)
            except JaasError:
                continue


FILE = f"""
// The broker's logins
KafkaServer {{
    {PLAIN} required username="castle" password="x";
    {SCRAM} optional;
}};
outside.KafkaServer {{ {PLAIN} required; }};
Client {{}};
"""


def test_a_file_has_several_contexts_with_several_modules():
    contexts = parse_jaas_file(FILE)
    assert {name: [entry.module for entry in entries] for name, entries in contexts.items()} == {
        "KafkaServer": [PLAIN, SCRAM],
        "outside.KafkaServer": [PLAIN],
        "Client": [],
    }
    assert contexts["KafkaServer"][0].options == {"username": "castle", "password": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ };", "JAAS file: expected the name of a context (line 1, column 1)"),
        ("a;", "JAAS file: expected '{' after the context a (line 1, column 2)"),
        ("a { }", "JAAS file: expected ';' after the context a (line 1, column 6)"),
        ("a { };\na { };", "JAAS file: the context a is there twice (line 2, column 1)"),
        ("a { x required }", "JAAS config entry not terminated by semi-colon (line 1, column 16)"),
        ("a { ", "Login module not specified in JAAS config (line 1, column 5)"),
    ],
)
def test_errors_in_a_file_say_where(text, message):
    with pytest.raises(JaasError) as refused:
        parse_jaas_file(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("", None),
        ("-Xmx1g -Dother=x", None),
        ("-Xmx1g -Djava.security.auth.login.config=/etc/castle.conf", "/etc/castle.conf"),
        ('-Djava.security.auth.login.config="/etc/the castle.conf" -Xms1g', "/etc/the castle.conf"),
        ("-Djava.security.auth.login.config==file:/etc/castle.conf", "/etc/castle.conf"),
        ("-Djava.security.auth.login.config=a -Djava.security.auth.login.config=b", "b"),
    ],
)
def test_the_file_is_named_by_the_options_of_java(options, path):
    assert jaas_file_in(options) == path


def test_options_with_an_open_quote_are_refused():
    with pytest.raises(JaasError, match="KAFKA_OPTS: No closing quotation"):
        jaas_file_in('"-Dx')


CONTEXTS = parse_jaas_file("Client { digest.Module required; }; Keeper { other.Module required; };")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("", "Client"),
        ("-Dzookeeper.sasl.client=TRUE", "Client"),
        ("-Dzookeeper.sasl.clientconfig=Keeper", "Keeper"),
        ("-Dzookeeper.sasl.clientconfig=Client -Dzookeeper.sasl.clientconfig=Keeper", "Keeper"),
    ],
)
def test_the_context_for_zookeeper_is_named_by_the_options_of_java(options, name):
    assert zookeeper_context(CONTEXTS, options) == (name, CONTEXTS[name])


@pytest.mark.parametrize("options", ["", "-Dzookeeper.sasl.client=false"])
def test_without_a_context_for_zookeeper_there_is_no_login(options):
    assert zookeeper_context({}, options) == ("Client", ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "-Dzookeeper.sasl.client=false",
            "zookeeper.sasl.client=false disables the login to ZooKeeper, and the JAAS file has Client",
        ),
        (
            "-Dzookeeper.sasl.clientconfig=Klamm",
            "zookeeper.sasl.clientconfig: there is no context Klamm in the JAAS file",
        ),
    ],
)
def test_options_that_contradict_the_file_are_refused(options, message):
    with pytest.raises(JaasError) as refused:
        zookeeper_context(CONTEXTS, options)
    assert str(refused.value) == message
