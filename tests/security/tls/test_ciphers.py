"""TLS versions and cipher suites: Java's names are understood, and nothing is offered that was not asked for."""

import ssl
import subprocess

import pytest

from barnabas.security.tls.ciphers import TLS_1_2_SUITES, TLS_1_3_SUITES, choose
from compat_tests.tools import require_tool

BOTH = ("TLSv1.2", "TLSv1.3")
ECDHE_JAVA, ECDHE_OPENSSL = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"
RSA_JAVA, RSA_OPENSSL = "TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"
ALL_1_3 = sorted(TLS_1_3_SUITES)


@pytest.mark.parametrize(
    ("protocol", "enabled", "suites", "expected"),
    [
        ("TLSv1.3", BOTH, (), ("TLSv1.2", "TLSv1.3", None)),
        ("TLS", ("TLSv1.3", "TLSv1.2"), (), ("TLSv1.2", "TLSv1.3", None)),
        ("TLSv1.2", BOTH, (), ("TLSv1.2", "TLSv1.2", None)),
        ("TLSv1.3", ("TLSv1.3",), (), ("TLSv1.3", "TLSv1.3", None)),
        ("TLSv1.3", ("TLSv1", "TLSv1.1", "TLSv1.2"), (), ("TLSv1.2", "TLSv1.2", None)),  # as a JVM, which disabled two
        ("TLSv1.3", BOTH, (RSA_JAVA, ECDHE_JAVA), ("TLSv1.2", "TLSv1.2", f"{RSA_OPENSSL}:{ECDHE_OPENSSL}")),
        ("TLSv1.3", BOTH, ALL_1_3, ("TLSv1.3", "TLSv1.3", None)),
        ("TLSv1.3", BOTH, (*ALL_1_3, ECDHE_JAVA), ("TLSv1.2", "TLSv1.3", ECDHE_OPENSSL)),
        ("TLSv1.2", BOTH, (*ALL_1_3, ECDHE_JAVA), ("TLSv1.2", "TLSv1.2", ECDHE_OPENSSL)),
        ("TLSv1.3", BOTH, ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", RSA_JAVA), ("TLSv1.2", "TLSv1.2", RSA_OPENSSL)),
    ],
)
def test_versions_and_suites_restrict_each_other(protocol, enabled, suites, expected):
    assert choose(protocol, enabled, suites) == (*expected, ())


def test_suites_of_tls_1_3_that_cannot_be_left_out_are_named_in_a_warning():
    chosen = choose("TLSv1.3", BOTH, ("TLS_AES_256_GCM_SHA384", ECDHE_JAVA), "listener.name.outside.ssl.")
    assert chosen[:3] == ("TLSv1.2", "TLSv1.3", ECDHE_OPENSSL)
    assert chosen.warnings == (
        "listener.name.outside.ssl.cipher.suites: TLS 1.3 is offered with TLS_AES_128_GCM_SHA256,"
        " TLS_CHACHA20_POLY1305_SHA256, too",
    )


@pytest.mark.parametrize(
    ("protocol", "enabled", "suites", "message"),
    [
        ("SSLv3", BOTH, (), "ssl.protocol: SSLv3 is not served"),
        ("TLSv1.3", ("TLSv1.2", "TLSv9"), (), "ssl.enabled.protocols: Unsupported protocol TLSv9"),
        ("TLSv1.2", ("TLSv1.3",), (), "ssl.enabled.protocols (TLSv1.3) and ssl.protocol (TLSv1.2) leave no version"),
        ("TLSv1.3", ("TLSv1.1",), (), "leave no version"),
        ("TLSv1.3", (), (), "leave no version"),
        ("TLSv1.3", BOTH, ("AES128-SHA", "x"), "ssl.cipher.suites: Unsupported CipherSuite: AES128-SHA, x"),
        ("TLSv1.3", ("TLSv1.3",), (RSA_JAVA,), "ssl.cipher.suites names no suite of TLSv1.3"),
    ],
)
def test_what_leaves_nothing_to_offer_is_refused(protocol, enabled, suites, message):
    with pytest.raises(ValueError, match="ssl") as refused:
        choose(protocol, enabled, suites)
    assert message in str(refused.value)


def test_openssl_takes_every_name():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(":".join(TLS_1_2_SUITES.values()))
    assert {each["name"] for each in context.get_ciphers()} <= {*TLS_1_2_SUITES.values(), *TLS_1_3_SUITES}


def test_names_are_those_that_openssl_lists():
    require_tool("openssl")
    command = ["openssl", "ciphers", "-stdname", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if listed.returncode:
        pytest.skip("this openssl does not list standard names")
    names = {line.split()[0]: line.split()[2] for line in listed.stdout.splitlines()}
    assert {java: names[java] for java in TLS_1_2_SUITES.keys() & names.keys()}.items() <= TLS_1_2_SUITES.items()
