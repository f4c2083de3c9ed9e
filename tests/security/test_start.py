"""What a broker without TLS and SASL does not pay for: start-up time is that of the modules that are imported."""

import subprocess
import sys

NOT_FOR_PLAINTEXT = {
    "cryptography",
    "barnabas.world.tls",
    "barnabas.config.listener_settings",
    "barnabas.config.providers",
    "barnabas.security.tls.ciphers",
    "barnabas.security.tls.contexts",
    "barnabas.security.der",
    "barnabas.security.encoder",
    "barnabas.security.jaas",
    "barnabas.security.listener_security",
    "barnabas.security.principals",
    "barnabas.security.secured",
    "barnabas.security.tls.stores",
    "barnabas.broker.server.entry",
    "barnabas.broker.server.login",
}


def test_a_broker_without_tls_and_sasl_imports_nothing_of_them():
    code = "import sys, barnabas.cli.serve, barnabas.broker.process.run, barnabas.broker.serve; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert NOT_FOR_PLAINTEXT & set(ran.stdout.split()) == set()


def test_tls_without_pkcs12_imports_no_cryptography():
    code = "import sys, barnabas.world.tls, barnabas.security.tls.contexts; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cryptography" not in ran.stdout.split()
