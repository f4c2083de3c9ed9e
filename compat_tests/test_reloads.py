"""A key store that is replaced again and again, while clients connect: no connection is lost, and each one that is made
after a change is shown the new certificate. RELOADS makes it longer."""

import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from barnabas.wire import messages as m
from compat_tests.raw import BROKER, RawClient, alter_config, ask
from compat_tests.secured import Certificates, SecuredBroker

pytestmark = pytest.mark.thorough

RELOADS = int(os.environ.get("RELOADS", "20"))
CONNECTIONS = 50
CERTIFICATES = 4  # that take turns
LOCATION = "listener.name.ssl.ssl.keystore.location"
NAMES = {"common_name": "broker", "organization_name": "Castle", "organization_unit_name": "Brokers"}


def connected(broker: SecuredBroker, context: ssl.SSLContext) -> RawClient:
    client = RawClient(broker.ports["SSL"])
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def shown_to(client: RawClient) -> int:
    """The serial number of the certificate that the broker has shown."""
    assert isinstance(client.socket, ssl.SSLSocket)
    certificate = client.socket.getpeercert()
    assert certificate
    return int(str(certificate["serialNumber"]), 16)


def test_a_reload_loses_no_connection_and_new_ones_see_the_new_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    issued = []
    for number in range(CERTIFICATES):
        leaf = certificates.issue("localhost", "127.0.0.1", **NAMES)
        serial = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number
        issued.append((Path(certificates.pem(f"{number}.pem", leaf)).read_bytes(), serial))
    store = tmp_path / "broker.pem"
    store.write_bytes(issued[0][0])
    stores = {**certificates.pem_stores("listener.name.ssl."), LOCATION: str(store), "broker.id": 0}
    context = ssl.create_default_context(cafile=certificates.trusted)
    with (
        SecuredBroker(tmp_path / "broker", {"BROKERS": "PLAINTEXT", "SSL": "SSL"}, stores) as broker,
        RawClient(broker.ports["BROKERS"]) as admin,
    ):
        clients = [connected(broker, context) for _ in range(CONNECTIONS)]
        for number in range(1, RELOADS + 1):
            data, serial = issued[number % CERTIFICATES]
            store.write_bytes(data)
            alter_config(admin, BROKER, "0", LOCATION, str(store))  # it is read again
            later = [connected(broker, context) for _ in range(CONNECTIONS)]
            assert {shown_to(client) for client in later} == {serial}
            for client in clients:
                assert ask(client, m.MetadataRequest(topics=[]), 9).brokers
                client.socket.close()
            clients = later
        for client in clients:
            client.socket.close()
