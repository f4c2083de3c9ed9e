"""`ssl.SSLContext`s from stores and properties (edge): reads the files of stores, and gives OpenSSL its keys.

Python's ssl reads keys from files alone. A key that is written for it stays in memory (Linux), or is in a file of mode
0600 that is gone when the function returns. Reference security.md, S.3 and S.4.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.security.tls import pem
from barnabas.security.tls.ciphers import TlsChoice
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.tls.stores import (
    KeyEntry,
    KeyStoreSettings,
    StoreError,
    TlsStores,
    TrustStoreSettings,
    key_store_problem,
    read_key_store,
    read_trust_store,
    reload_problem,
    trust_store_problem,
)

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
STORE_BYTES_MAX = 16 << 20
HANDSHAKE_STEPS_MAX = 10


class ListenerTls:
    """The stores and contexts of one listener. A reload replaces them; connections that are there keep theirs.

    At the listener that brokers use among themselves they connect to each other with the same settings (`client`), so
    the stores must accept themselves, and those of a reload and the old ones each other: brokers are not reloaded all
    at once.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext | None  # of the brokers' listener alone

    def __init__(self, settings: TlsSettings, *, is_brokers_own: bool) -> None:
        """Blocking: short. StoreError when the stores cannot be used."""
        key_store = settings.key_store
        trust_store = settings.trust_store
        self._settings = settings
        self._is_brokers_own = is_brokers_own
        self._times = modification_times(key_store, trust_store)  # before they are read: a later change is seen
        self.stores = load_stores(key_store, trust_store)
        self.server = server_context(self.stores, settings.choice, settings.client_auth, key_store.prefix)
        self.client = self._client(settings.checks_host_name) if is_brokers_own else None
        if is_brokers_own:
            # That the stores do not accept each other would otherwise show only when brokers
            # connect. No host name is checked, because this handshake runs in memory, without a
            # host.
            prove(self.server, self._client(checks_host_name=False))

    def prepared(self, settings: TlsSettings) -> "ListenerTls | None":
        """What `replace` takes, None if nothing changed, in the properties or in the files.

        Blocking: short. StoreError, in Kafka's words, when the new stores may not replace the old.
        """
        times = modification_times(settings.key_store, settings.trust_store)
        if settings == self._settings and times == self._times:
            return None
        new = ListenerTls(settings, is_brokers_own=self._is_brokers_own)
        problem = reload_problem(
            self.stores,
            new.stores,
            allow_dn_changes=settings.allow_dn_changes,
            allow_san_changes=settings.allow_san_changes,
        )
        if problem is not None:
            raise StoreError(problem)
        if self._is_brokers_own:
            prove(self.server, new._client(checks_host_name=False))
            prove(new.server, self._client(checks_host_name=False))
        return new

    def replace(self, new: "ListenerTls") -> None:
        """Serve new connections with these stores."""
        self._settings = new._settings
        self._times = new._times
        self.stores = new.stores
        self.server = new.server
        self.client = new.client

    def _client(self, checks_host_name: bool) -> ssl.SSLContext:
        settings = self._settings
        return client_context(
            self.stores, settings.choice, checks_host_name=checks_host_name, prefix=settings.key_store.prefix
        )


def load_stores(key_store: KeyStoreSettings, trust_store: TrustStoreSettings) -> TlsStores:
    """What both stores hold; None for one that is not configured. Blocking: short. StoreError names the property."""
    problem = key_store_problem(key_store) or trust_store_problem(trust_store)
    if problem is not None:
        raise StoreError(problem)
    keys = anchors = None
    if key_store.location is not None or key_store.key is not None:
        keys = read_key_store(key_store, _contents(key_store.location, f"{key_store.prefix}keystore.location"))
    if trust_store.location is not None or trust_store.certificates is not None:
        name = f"{trust_store.prefix}truststore.location"
        anchors = read_trust_store(trust_store, _contents(trust_store.location, name))
    return TlsStores(keys, anchors)


def modification_times(key_store: KeyStoreSettings, trust_store: TrustStoreSettings) -> tuple[int | None, ...]:
    """When each file of a store was last written; None for one that is not there. A reload compares them."""
    times: list[int | None] = []
    for location in (key_store.location, trust_store.location):
        try:
            times.append(None if location is None else os.stat(location).st_mtime_ns)
        except OSError:
            times.append(None)
    return tuple(times)


def server_context(stores: TlsStores, choice: TlsChoice, client_auth: str, prefix: str = "ssl.") -> ssl.SSLContext:
    """The context of a listener; `client_auth` is none, requested or required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, choice, prefix)
    if stores.keys is None:
        raise StoreError(f"{prefix}keystore.location is not set: a listener with TLS needs a key and its certificate")
    _load_keys(context, stores.keys, prefix)
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_anchors(context, stores.anchors, ssl.Purpose.CLIENT_AUTH, prefix)
    return context


def client_context(
    stores: TlsStores, choice: TlsChoice, *, checks_host_name: bool = True, prefix: str = "ssl."
) -> ssl.SSLContext:
    """The context with which a broker connects to others: their certificates are always verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, choice, prefix)
    if stores.keys is not None:
        _load_keys(context, stores.keys, prefix)
    context.check_hostname = checks_host_name
    _load_anchors(context, stores.anchors, ssl.Purpose.SERVER_AUTH, prefix)
    return context


def prove(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """StoreError unless this client, which checks no host name, and this server accept each other. In memory."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for _ in range(HANDSHAKE_STEPS_MAX):
            sides = [side for side in sides if not _shakes_hands(side)]
            if not sides:
                return
    except ssl.SSLError as error:
        raise _unproven(error.reason or str(error)) from error
    raise _unproven("the handshake does not end")


def _shakes_hands(side: ssl.SSLObject) -> bool:
    """Whether the handshake is complete on this side."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _unproven(why: str) -> StoreError:
    return StoreError(
        "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those"
        f" settings: {why}"
    )


def _contents(location: str | None, name: str) -> bytes:
    """The bytes of a store's file; none without a location."""
    if location is None:
        return b""
    try:
        with open(location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise StoreError(f"{name}: {location}: {error.strerror}") from error
    if not data or len(data) > STORE_BYTES_MAX:
        raise StoreError(f"{name}: {location} is {'too large' if data else 'empty'}")
    return data


def _configure(context: ssl.SSLContext, choice: TlsChoice, prefix: str) -> None:
    context.minimum_version = VERSIONS[choice.lowest]
    context.maximum_version = VERSIONS[choice.highest]
    # A client could make the server renegotiate without end (CVE-2011-1473), and the size of what
    # is compressed shows secrets in it (CRIME, CVE-2012-4929).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Many clients close without a close_notify, and may still read answers, so a connection that
    # just ends is no error. OpenSSL before 3.0 does not have this option, and behaves so anyway.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if choice.suites is not None:
        try:
            context.set_ciphers(choice.suites)
        except ssl.SSLError as error:
            raise StoreError(f"{prefix}cipher.suites: OpenSSL offers none of these suites") from error


def _load_keys(context: ssl.SSLContext, entries: tuple[KeyEntry, ...], prefix: str) -> None:
    # A context has one key of each type (RSA, EC), and a later key replaces an earlier one. Java
    # takes the first, so the entries are loaded in reverse order.
    for entry in reversed(entries):
        text = pem.write_block(entry.key) + pem.certificates_as_pem(entry.chain)
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        password = entry.password or ""
        try:
            with _readable_once(text) as path:
                context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            # OpenSSL reports a wrong password as one of many kinds of damage.
            why = error.reason or "the key is no usable RSA, EC or DSA key"
            if entry.key.label == pem.ENCRYPTED_PRIVATE_KEY:
                why += f", or {prefix}key.password is wrong"
            raise StoreError(f"{prefix}keystore: the key of {entry.alias!r} cannot be used: {why}") from error


@contextmanager
def _readable_once(text: bytes) -> Iterator[str]:
    """The path of a file with this text, which exists inside the block alone, and in memory if the system can."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # of mode 0600
            file.write(text)
            file.flush()
            yield file.name


def _load_anchors(
    context: ssl.SSLContext, anchors: tuple[bytes, ...] | None, purpose: ssl.Purpose, prefix: str
) -> None:
    if anchors is None:
        context.load_default_certs(purpose)  # as the JVM's own list of authorities
        return
    # In Java every certificate of a trust store is trusted by itself, also one that is no authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(anchors))
    except ssl.SSLError as error:
        raise StoreError(f"{prefix}truststore: a certificate cannot be used: {error.reason}") from error
