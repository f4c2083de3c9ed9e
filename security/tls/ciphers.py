"""TLS versions and cipher suites (pure): what Kafka's properties name as Java does, in the terms of OpenSSL.

Reference security.md, S.3 and S.4. The suites of TLS 1.3 have one name each, but OpenSSL's list of suites does not
contain them, and Python offers no other way to choose them: either all three are offered, or TLS 1.3 is not.
"""

from collections.abc import Sequence
from typing import NamedTuple

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
SERVED_VERSIONS = (TLS_1_2, TLS_1_3)
# Java knows these, and has disabled them.
DISABLED_VERSIONS = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
CONTEXT_VERSIONS = {"TLS": TLS_1_3, TLS_1_3: TLS_1_3, TLS_1_2: TLS_1_2}  # ssl.protocol: the highest version
TLS_1_3_SUITES = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
RENEGOTIATION_SIGNAL = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # in Java's lists; OpenSSL always sends it
# Java's (IANA's) name -> OpenSSL's, of what both offer.
TLS_1_2_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": "DHE-DSS-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": "DHE-DSS-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": "DHE-DSS-AES256-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": "DHE-DSS-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": "DHE-DSS-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": "DHE-DSS-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}


class TlsChoice(NamedTuple):
    """The versions and the suites that a context offers."""

    lowest: str
    highest: str
    suites: str | None  # OpenSSL's list for TLS 1.2; None leaves the default
    warnings: tuple[str, ...] = ()


def choose(protocol: str, enabled: Sequence[str], suites: Sequence[str], prefix: str = "ssl.") -> TlsChoice:
    """What `ssl.protocol`, `ssl.enabled.protocols` and `ssl.cipher.suites` allow together.

    ValueError, which names the property (`prefix` is what stands before "protocol"), if that is nothing.
    """
    versions = _versions(protocol, enabled, prefix)
    if not suites:
        return TlsChoice(versions[0], versions[-1], None)
    unknown = [
        suite
        for suite in suites
        if suite not in TLS_1_2_SUITES and suite not in TLS_1_3_SUITES and suite != RENEGOTIATION_SIGNAL
    ]
    if unknown:
        raise ValueError(f"{prefix}cipher.suites: Unsupported CipherSuite: {', '.join(unknown)}")
    older = [TLS_1_2_SUITES[suite] for suite in suites if suite in TLS_1_2_SUITES]
    newer = TLS_1_3_SUITES.intersection(suites)

    # A version none of whose suites is in the list cannot be negotiated, so it is not offered.
    usable = [version for version in versions if (newer if version == TLS_1_3 else older)]
    if not usable:
        raise ValueError(f"{prefix}cipher.suites names no suite of {' or '.join(versions)}")
    left_out = sorted(TLS_1_3_SUITES - newer) if TLS_1_3 in usable else []
    warnings = (f"{prefix}cipher.suites: TLS 1.3 is offered with {', '.join(left_out)}, too",) if left_out else ()
    return TlsChoice(usable[0], usable[-1], ":".join(older) if TLS_1_2 in usable else None, warnings)


def _versions(protocol: str, enabled: Sequence[str], prefix: str) -> list[str]:
    """The versions that both properties allow, the lowest first."""
    if protocol not in CONTEXT_VERSIONS:
        raise ValueError(f"{prefix}protocol: {protocol} is not served: {', '.join(CONTEXT_VERSIONS)} are")
    unknown = [version for version in enabled if version not in SERVED_VERSIONS and version not in DISABLED_VERSIONS]
    if unknown:
        raise ValueError(f"{prefix}enabled.protocols: Unsupported protocol {', '.join(unknown)}")
    highest = CONTEXT_VERSIONS[protocol]
    versions = [version for version in SERVED_VERSIONS if version in enabled and version <= highest]
    if not versions:
        raise ValueError(
            f"{prefix}enabled.protocols ({','.join(enabled)}) and {prefix}protocol ({protocol}) leave no version that"
            f" is served: {', '.join(SERVED_VERSIONS)} are"
        )
    return versions
