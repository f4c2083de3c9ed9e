"""The access to ZooKeeper that properties and a JAAS file describe."""

import ssl

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.controller.store.zkaccess import PLAIN, DigestLogin
from barnabas.security.jaas import ZooKeeperContext, parse_jaas_file
from barnabas.security.zookeeper import read_access
from tests.security.key_material import authority_pem

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def client(text):
    return parse_jaas_file("Client { " + text + " };")["Client"]


def access(login=(), **properties):
    given = {f"zookeeper.{name.replace('_', '.')}": value for name, value in properties.items()}
    return read_access(BrokerConfig({"zookeeper.connect": "zk:2181", **given}), ZooKeeperContext("Keeper", login))


def test_without_any_property_there_is_nothing():
    assert access() == PLAIN


def test_a_user_logs_in_and_restricts_nodes():
    login = client(f'{DIGEST} required username="kafka" password="secret";')
    assert access(login, set_acl="true") == PLAIN._replace(login=DigestLogin("kafka", "secret"), restricts=True)


@pytest.fixture
def trusted(tmp_path):
    path = tmp_path / "authority.pem"
    path.write_text(authority_pem())
    return str(path)


def test_names_are_checked_unless_that_is_turned_off(trusted):
    tls = {"ssl_client_enable": "true", "ssl_truststore_location": trusted, "ssl_protocol": "TLSv1.3"}
    context = access(**tls).tls
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    context = access(**tls, ssl_endpoint_identification_algorithm="").tls
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize(
    ("login", "properties", "why"),
    [
        ((), {"set_acl": "true"}, "neither logs in to ZooKeeper"),
        (client("com.sun.security.auth.module.Krb5LoginModule required;"), {}, "which is not served"),
        (client(f'{DIGEST} required username="kafka";'), {}, "the context Keeper needs username and password"),
        ((), {"ssl_client_enable": "true", "ssl_protocol": "SSLv3"}, "zookeeper.ssl.protocol: SSLv3 is not served"),
        (
            (),
            {"ssl_client_enable": "true", "ssl_truststore_location": "/nowhere.pem"},
            "zookeeper.ssl.truststore.location",
        ),
        (
            (),
            {"ssl_client_enable": "true", "ssl_endpoint_identification_algorithm": "LDAPS"},
            "zookeeper.ssl.endpoint.identification.algorithm: LDAPS is not served",
        ),
        ((), {"ssl_client_enable": "true", "ssl_cipher_suites": "NONE"}, "zookeeper.ssl.cipher.suites"),
    ],
)
def test_what_is_wrong_is_named(login, properties, why):
    with pytest.raises(ConfigError, match=why):
        access(login, **properties)
