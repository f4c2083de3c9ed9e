"""The TLS of a listener as a value (pure): `listener_security.py` makes it of properties."""

from typing import NamedTuple

from barnabas.security.principals import MappingRules
from barnabas.security.tls.ciphers import TlsChoice
from barnabas.security.tls.stores import KeyStoreSettings, TrustStoreSettings


class TlsSettings(NamedTuple):
    """The TLS of a listener."""

    key_store: KeyStoreSettings
    trust_store: TrustStoreSettings
    choice: TlsChoice
    client_auth: str
    mapping_rules: MappingRules
    checks_host_name: bool  # of other brokers that this one connects to
    allow_dn_changes: bool
    allow_san_changes: bool
