"""Encoded passwords: what Kafka wrote is read, what is written is read back, and nothing else is."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.encoder import CBC, GCM, EncoderError, Encoding, decode, encode

SECRET = "burgel"
QUICK = Encoding(iterations=1024)
KAFKA_WROTE_CBC = (
    "initializationVector:5Tb94ETX+hzYPT+rwxWKlg==,keyLength:128,salt:0+aQrYebVxhTuAeXQY5ivyCyFIalWcD00o1jvWK7PuD3n"
    "nU/sMi0/EVm3zXEXxU2mdPHWDM5LvQ5yjp0Z+Z1NRxGazD4AlOkATEEQPp0MkRbP/Y5ltaoHyNfVG0wkyuHunIKW7qySAtImpxpXC/vhthKYMJ"
    "UR+kiRr2l4FF6FSUeo1xJyCIwjebD1hP/RyWOBFXqAj5zznNxq5LtixBmK2nQLdH0oeBHN3m1GdF10HlpV9yxNgMWNzW1OivmBSjGvuc5BAZVW"
    "8ZZtDBI5MsGe+rnOvqp936ooBVQgRu6TRI+V5WhIgObcT6TPIygNSGyhnC8S0keaI1cUubcKZPoow==,keyFactoryAlgorithm:PBKDF2With"
    "HmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:1024,passwordLength:7,encryptedPassword:4f/qYEKUWhM"
    "XXITsjaP7bw=="
)
KAFKA_WROTE_GCM = (
    "initializationVector:HayKPdDz7WjgYPAp,keyLength:256,salt:/vWbCkBzORsqwrgt5tzHKhWfX2Q5alHTHt43PNmEuAMOYajiFBpgz"
    "RJfXOzEawC+y9W4CDrzrWQ3TWuVsnQivliXOM8JdRIgkF0t+JTUseJHW18DO6fKiXZPOFM65WRwePLqcyxQ97Vxou8vFRtD3Bz/ogrSDfXlPob"
    "eyasUgiEPDxL5uifXpG4vB+wUb/KijTerI65I8w0X8kiQbrZnq4ltsr9gmBGDF6c+TFZiL7GkQukiot6VaXknM4MyP1RlqU7+6u575Fis2iwsv"
    "tDbkD63TI0QaWufW+n7ARRvnMv7+apctCW/5sBeLK5/bsMjOU5NBSze4Q+vKjZ7Wf4Q3Q==,keyFactoryAlgorithm:PBKDF2WithHmacSHA2"
    "56,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128,iterations:1024,passwordLength:7,encryptedPas"
    "sword:7uaBf5PQQrgHvC3yZddBAm6JLFRteZEnzw=="
)


@pytest.mark.parametrize("text", [KAFKA_WROTE_CBC, KAFKA_WROTE_GCM])
def test_what_kafka_encoded_is_decoded(text):
    assert decode(text, SECRET) == "klamm😀"


@settings(max_examples=20)
@given(st.text(), st.text(), st.sampled_from([CBC, GCM]), st.sampled_from([128, 192, 256]))
def test_what_is_encoded_is_decoded(password, secret, cipher, key_length):
    text = encode(password, secret, Encoding("PBKDF2WithHmacSHA256", cipher, key_length, 1), os.urandom)
    assert decode(text, secret) == password
    pairs = text.split(",")
    random.Random(len(text)).shuffle(pairs)
    assert decode(",".join(pairs), secret) == password


def test_the_text_has_kafkas_pairs():
    pairs = dict(pair.split(":") for pair in encode("klamm😀", SECRET, QUICK, bytes).split(","))
    assert pairs.keys() == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
        "initializationVector",
    }
    assert (pairs["passwordLength"], pairs["iterations"], len(pairs["salt"])) == ("7", "1024", 344)


@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_another_secret_decodes_nothing(cipher):
    text = encode("sortini", SECRET, QUICK._replace(cipher=cipher), os.urandom)
    for secret in ("", "Burgel", "burgel "):
        with pytest.raises(EncoderError, match=r"^Password could not be decoded"):
            decode(text, secret)


@pytest.mark.parametrize(
    ("pair", "other", "why"),
    [
        ("keyLength:128", "keyLength:129", "password.encoder.key.length: 129 is not served: 128, 192, 256 are"),
        ("keyLength:128", "keyLength:x", "damaged"),
        ("iterations:1024", "iterations:0", "password.encoder.iterations: 0 is not served"),
        ("iterations:1024", "iterations:99999999999", "password.encoder.iterations: 99999999999 is not served"),
        ("AES/CBC", "DES/CBC", "password.encoder.cipher.algorithm: DES/CBC/PKCS5Padding is not served"),
        ("SHA512", "MD5", "password.encoder.keyfactory.algorithm: PBKDF2WithHmacMD5 is not served"),
        ("passwordLength:7", "passwordLength:8", "another secret, or is damaged"),
        ("salt:", "salz:", "damaged"),
        ("salt:", "salt:*", "damaged"),
        ("initializationVector:", "initializationVector:AAAA", "another secret, or is damaged"),
    ],
)
def test_a_damaged_text_is_refused(pair, other, why):
    text = encode("sortini", SECRET, QUICK, os.urandom)
    assert pair in text
    with pytest.raises(EncoderError) as refused:
        decode(text.replace(pair, other), SECRET)
    assert why in str(refused.value)
    assert "sortini" not in str(refused.value)


@given(st.text(alphabet="keyLength:128,salt/=AESCBC"), st.integers(0, 600), st.characters())
def test_no_text_raises_anything_but_encoder_errors(garbage, position, character):
    text = encode("sortini", SECRET, Encoding(iterations=1), bytes)
    for damaged in (garbage, text[:position] + character + text[position + 1 :]):
        if "iterations:1," not in damaged:
            continue  # another number may take seconds
        try:
            decode(damaged, SECRET)
        except EncoderError:
            continue


def test_what_is_not_served_is_not_encoded():
    with pytest.raises(EncoderError, match=r"password.encoder.cipher.algorithm: DES is not served"):
        encode("sortini", SECRET, QUICK._replace(cipher="DES"), os.urandom)
