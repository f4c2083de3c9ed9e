"""Passwords as Kafka keeps them in the metadata store (pure): encrypted, by a key from password.encoder.secret.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:…,iterations:4096,
    encryptedPassword:…,passwordLength:12,initializationVector:…

The pairs stand in any order; with GCM there is `authenticationTagLength`, too. Reference security.md, S.22.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import NamedTuple

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_FACTORIES = {f"PBKDF2WithHmac{name}": name.lower() for name in ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")}
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
KEY_LENGTHS = (128, 192, 256)
SALT_BYTES, CBC_IV_BYTES, GCM_IV_BYTES, TAG_BITS, BLOCK_BITS = 256, 16, 12, 128, 128
ITERATIONS_MAX = 10_000_000  # some seconds


class EncoderError(ValueError):
    """A password cannot be encoded or decoded. Neither it nor the secret is in the message."""


class Encoding(NamedTuple):
    """How new values are encoded: `password.encoder.…`."""

    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC
    key_length: int = 128
    iterations: int = 4096


def encoding_problem(encoding: Encoding) -> str | None:
    """Why values cannot be encoded so; it names the property."""
    choices = (
        ("keyfactory.algorithm", encoding.key_factory, tuple(KEY_FACTORIES)),
        ("cipher.algorithm", encoding.cipher, (CBC, GCM)),
        ("key.length", encoding.key_length, KEY_LENGTHS),
    )
    for name, value, served in choices:
        if value not in served:
            return f"password.encoder.{name}: {value} is not served: {', '.join(map(str, served))} are"
    if not 1 <= encoding.iterations <= ITERATIONS_MAX:
        return f"password.encoder.iterations: {encoding.iterations} is not served: 1 to {ITERATIONS_MAX} are"
    return None


def encode(password: str, secret: str, encoding: Encoding, random_bytes: Callable[[int], bytes]) -> str:
    """The text that is stored. PBKDF2 takes milliseconds: call it in a thread."""
    problem = encoding_problem(encoding)
    if problem is not None:
        raise EncoderError(problem)
    salt = random_bytes(SALT_BYTES)
    vector = random_bytes(GCM_IV_BYTES if encoding.cipher == GCM else CBC_IV_BYTES)
    key = _key(secret, salt, encoding)
    values: dict[str, str | int | bytes] = {
        "keyFactoryAlgorithm": encoding.key_factory,
        "cipherAlgorithm": encoding.cipher,
        "keyLength": encoding.key_length,
        "salt": salt,
        "iterations": encoding.iterations,
        "encryptedPassword": _encrypt(password.encode(), key, vector, encoding.cipher),
        "passwordLength": _java_length(password),
        "initializationVector": vector,
    }
    if encoding.cipher == GCM:
        values["authenticationTagLength"] = TAG_BITS
    shown = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in values.items()
    }
    return ",".join(f"{name}:{value}" for name, value in shown.items())


def decode(text: str, secret: str) -> str:
    """The password of a stored text; EncoderError when it is damaged, or was encoded with another secret."""
    pairs = dict(pair.split(":", 1) for pair in text.split(",") if ":" in pair)
    try:
        encoding = Encoding(
            pairs["keyFactoryAlgorithm"], pairs["cipherAlgorithm"], int(pairs["keyLength"]), int(pairs["iterations"])
        )
        salt, vector, encrypted = (
            base64.b64decode(pairs[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        length = int(pairs["passwordLength"])
        tag_bits = int(pairs.get("authenticationTagLength", TAG_BITS))
    except (KeyError, ValueError, binascii.Error) as error:
        raise EncoderError("Password could not be decoded: the stored text is damaged") from error

    problem = encoding_problem(encoding)
    if problem is None and tag_bits != TAG_BITS:
        problem = f"{tag_bits} bits of a tag are not served"
    if problem is not None:
        raise EncoderError(f"Password could not be decoded: {problem}")
    password = _decrypt(encrypted, _key(secret, salt, encoding), vector, encoding.cipher)
    # CBC shows a wrong secret by its padding alone, which may be right by chance. So Kafka stores
    # the length beside it, and compares it.
    if password is None or _java_length(password) != length:
        raise EncoderError("Password could not be decoded: it was encoded with another secret, or is damaged")
    return password


def _key(secret: str, salt: bytes, encoding: Encoding) -> bytes:
    hash_name = KEY_FACTORIES[encoding.key_factory]
    return hashlib.pbkdf2_hmac(hash_name, secret.encode(), salt, encoding.iterations, encoding.key_length // 8)


def _java_length(text: str) -> int:
    """The length as Java counts it: beyond U+FFFF a character is two."""
    return len(text.encode("utf-16-be")) // 2


NEEDS_CRYPTOGRAPHY = "encoded passwords need the package cryptography: pip install cryptography"


def _encrypt(plain: bytes, key: bytes, vector: bytes, cipher: str) -> bytes:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError as error:
        raise EncoderError(NEEDS_CRYPTOGRAPHY) from error
    if cipher == GCM:
        return aead.AESGCM(key).encrypt(vector, plain, None)
    padder = PKCS7(BLOCK_BITS).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()


def _decrypt(encrypted: bytes, key: bytes, vector: bytes, cipher: str) -> str | None:
    """None when the key is not the one."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError as error:
        raise EncoderError(NEEDS_CRYPTOGRAPHY) from error

    try:
        if cipher == GCM:
            return aead.AESGCM(key).decrypt(vector, encrypted, None).decode()
        unpadder = PKCS7(BLOCK_BITS).unpadder()
        decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        return (unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()).decode()
    except (ValueError, InvalidTag):  # of the padding, of UTF-8, of a vector with another length
        return None
