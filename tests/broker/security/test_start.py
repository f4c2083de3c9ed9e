"""What a broker without TLS and SASL does not pay for: start-up time is that of the modules that are imported."""

import subprocess
import sys

NOT_FOR_PLAINTEXT = {
    "cryptography",
    "barnabas.broker.tls",
    "barnabas.broker.config.listener_settings",
    "barnabas.broker.config.providers",
    "barnabas.broker.security.ciphers",
    "barnabas.broker.security.contexts",
    "barnabas.broker.security.der",
    "barnabas.broker.security.encoder",
    "barnabas.broker.security.jaas",
    "barnabas.broker.security.listener_security",
    "barnabas.broker.security.principals",
    "barnabas.broker.security.secured",
    "barnabas.broker.security.stores",
    "barnabas.broker.server.entry",
    "barnabas.broker.server.login",
}


def test_a_broker_without_tls_and_sasl_imports_nothing_of_them():
    code = "import sys, barnabas.broker.cli, barnabas.broker.process.run, barnabas.broker.serve; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert NOT_FOR_PLAINTEXT & set(ran.stdout.split()) == set()


def test_tls_without_pkcs12_imports_no_cryptography():
    code = "import sys, barnabas.broker.tls, barnabas.broker.security.contexts; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cryptography" not in ran.stdout.split()
