"""What tests share with `test_jwks.py`."""

import base64
import json

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

NOW_MS = 1_700_000_000_000


NOW = NOW_MS // 1000


CLAIMS = {"sub": "alice", "exp": NOW + 60, "iat": NOW}


PRIVATE = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "other": rsa.generate_private_key(65537, 2048),
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}


HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


KEY_OF = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}


def encoded(data: bytes | int) -> str:
    if isinstance(data, int):
        data = data.to_bytes((data.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public(name, **fields):
    """The row of a key set."""
    key = PRIVATE[name].public_key()
    if isinstance(key, rsa.RSAPublicKey):
        row = {"kty": "RSA", "n": encoded(key.public_numbers().n), "e": encoded(key.public_numbers().e)}
    elif isinstance(key, ec.EllipticCurvePublicKey):
        size_bytes = (key.key_size + 7) // 8
        x, y = (encoded(part.to_bytes(size_bytes, "big")) for part in (key.public_numbers().x, key.public_numbers().y))
        row = {"kty": "EC", "crv": name, "x": x, "y": y}
    else:
        row = {"kty": "OKP", "crv": name, "x": encoded(key.public_bytes_raw())}
    return row | {"kid": name} | fields


def signature(key, algorithm, signed):
    if algorithm == "EdDSA":
        return key.sign(signed)
    digest = HASHES[algorithm[2:]]
    if algorithm.startswith("ES"):
        r, s = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(digest)))
        size_bytes = (key.key_size + 7) // 8
        return r.to_bytes(size_bytes, "big") + s.to_bytes(size_bytes, "big")
    filling = padding.PSS(padding.MGF1(digest), digest.digest_size) if algorithm[0] == "P" else padding.PKCS1v15()
    return key.sign(signed, filling, digest)


def token(algorithm="RS256", claims=None, *, name=None, **header):
    name = name or KEY_OF.get(algorithm, "rsa")
    parts = [{"alg": algorithm, "kid": name} | header, CLAIMS if claims is None else claims]
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    signed = ".".join(encoded(text.encode()) for text in texts)
    return f"{signed}.{encoded(signature(PRIVATE[name], algorithm, signed.encode()))}"


def key_set(*rows):
    return json.dumps({"keys": list(rows)}).encode()
