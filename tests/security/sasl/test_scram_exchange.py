"""The SCRAM exchanges: RFC 7677's example, both of our sides against each other, and clients that cheat."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.exchange import Broken, Challenge, Complete, Compute, LoginFailed, Rejected
from barnabas.security.sasl.scram import (
    MECHANISMS,
    ScramCredential,
    Upsertion,
    encode_credential,
    make_credential,
    parse_credential,
    salted_password,
)
from barnabas.security.sasl.scram_exchange import ScramClient, ScramServer, TokenLogin, escaped, unescaped

SHA_256, SHA_512 = MECHANISMS[1], MECHANISMS[2]
OTHER = "Authentication failed: Client requested an authorization id that is different from username"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
BARE = b"n=user,r=" + CLIENT_NONCE.encode()
FIRST = b"n,," + BARE
# The salted passwords of all tests, computed once.
SALTED = {mechanism: salted_password(b"pencil", SALT, 4096, mechanism) for mechanism in (SHA_256, SHA_512)}


def credential(mechanism=SHA_256, iterations=4096):
    return make_credential(SALTED[mechanism], SALT, iterations, mechanism)


def server(mechanism=SHA_256, *, user="user", found=None, tokens=None, nonce=SERVER_NONCE):
    users = {user: credential(mechanism) if found is None else found}
    return ScramServer(mechanism, users.get, (tokens or {}).get, nonce, b"token salt")


def run(computed):
    return computed.then(computed.run())


def final_message(server_first, *, client_first=BARE, mechanism=SHA_256, **parts):
    """An honest client-final message, or one with some parts replaced: nonce, extensions, channel, proof, salted."""
    texts = dict(part.split("=", 1) for part in server_first.decode().split(","))
    nonce = parts.get("nonce", texts["r"])
    without_proof = f"c={parts.get('channel', 'biws')},r={nonce}"
    salted = parts.get("salted", SALTED[mechanism])
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    stored_key = hashlib.new(mechanism.hash, client_key).digest()
    signed = client_first + b"," + server_first + b"," + (without_proof + parts.get("signed_extension", "")).encode()
    signature = hmac.digest(stored_key, signed, mechanism.hash)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    sent = base64.b64encode(parts.get("proof", proof)).decode()
    return f"{without_proof}{parts.get('extension', '')},p={sent}".encode()


def challenged(**options):
    """A server that has sent its first message, and that message."""
    side = server(**options)
    answer = side.evaluate(FIRST, 0)
    assert isinstance(answer, Challenge)
    return side, answer.token


def test_the_example_of_rfc_7677():
    side = server()
    first = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert side.evaluate(FIRST, 0) == Challenge(first)
    complete = side.evaluate(final, 0)
    assert complete == Complete(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", KafkaPrincipal("User", "user"))
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.begin() == FIRST
    assert run(client.evaluate(first)) == final
    assert client.evaluate(complete.token) is None


names = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20)
nonces = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1, max_size=20)


@given(names, nonces, nonces, st.sampled_from([SHA_256, SHA_512]))
def test_both_sides_agree_for_any_name_and_nonce(user, client_nonce, server_nonce, mechanism):
    client = ScramClient(mechanism, user, "pencil", client_nonce)
    side = server(mechanism, user=user, nonce=server_nonce)
    answer = side.evaluate(client.begin(), 0)
    # Without PBKDF2, which takes milliseconds: its result is known.
    final = client.evaluate(answer.token).then(SALTED[mechanism])
    complete = side.evaluate(final, 0)
    assert complete.principal == KafkaPrincipal("User", user)
    assert client.evaluate(complete.token) is None


@given(names)
def test_a_name_is_the_same_after_both_ways(name):
    assert unescaped(escaped(name)) == name
    assert "," not in escaped(name)


messages = st.one_of(st.binary(max_size=200), st.from_regex(r"n,(a=[a-z=,]*)?,(m=x,)?n=[a-z=CD2,]*,r=[!-~]*(,x=y)?\Z"))


@given(st.lists(messages.map(lambda message: message if isinstance(message, bytes) else message.encode()), max_size=4))
def test_random_messages_never_log_in_and_never_raise(sent):
    side = server()
    for message in sent:
        answer = side.evaluate(message, 0)
        assert isinstance(answer, Challenge | Rejected | Broken)


@given(st.lists(messages.map(lambda message: message if isinstance(message, bytes) else message.encode()), max_size=4))
def test_random_answers_only_fail_a_login_of_our_own(answers):
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    for answer in answers:
        with pytest.raises(LoginFailed):
            client.evaluate(answer)


@given(st.integers(0, 31), st.integers(1, 255))
def test_a_proof_with_a_wrong_bit_is_rejected(position, bits):
    side, first = challenged()
    final = final_message(first)
    proof = bytearray(base64.b64decode(final.rpartition(b"p=")[2]))
    proof[position] ^= bits
    assert isinstance(side.evaluate(final_message(first, proof=bytes(proof)), 0), Rejected)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\0",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,n=user,r=abc",
        b"n,,r=abc,n=user",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2Cer=,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user\xff,r=abc",
        "n,,n=üser,r=abc".encode(),
        b"n,,n=user,r=a\x7fbc",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc,1=x",
        b"n,,n=user,r=abc,x=",
        b"n,,n=" + b"u" * (1 << 14) + b",r=abc",
        b"n,,n=" + b"=2C" * 170_000 + b",r=abc",
    ],
)
def test_a_malformed_first_message_is_rejected(first):
    assert isinstance(server().evaluate(first, 0), Rejected)
    assert server().evaluate(first, 0).message is None


@pytest.mark.parametrize(
    ("first", "signed"),
    [
        (b"n,a=user,n=user,r=abc", b"n=user,r=abc"),
        (b"n,,n=user,r=abc,x=y,z=1=2", b"n=user,r=abc,x=y,z=1=2"),
        (b"n,,n=user,r=abc,tokenauth=false", b"n=user,r=abc,tokenauth=false"),
        (b"n,,m=what,n=user,r=abc", b"n=user,r=abc"),
    ],
)
def test_what_a_first_message_may_contain_besides(first, signed):
    side = server()
    answer = side.evaluate(first, 0)
    assert isinstance(side.evaluate(final_message(answer.token, client_first=signed), 0), Complete)


def test_an_unknown_user_and_a_weak_credential_fail_at_the_first_message():
    assert isinstance(server().evaluate(b"n,,n=eve,r=abc", 0), Rejected)
    weak = server(found=credential(iterations=4095))
    assert isinstance(weak.evaluate(FIRST, 0), Rejected)


@pytest.mark.parametrize(
    ("user", "first"),
    [
        ("user", b"n,a=admin,n=user,r=abc"),
        ("us,er", b"n,a=us=2Cer,n=us=2Cer,r=abc"),
    ],
)
def test_another_authorization_id_is_rejected_in_kafkas_words(user, first):
    assert server(user=user).evaluate(first, 0) == Rejected(OTHER, OTHER)
    # Only of a user who exists.
    assert server(user="x").evaluate(first, 0).message is None


def test_the_nonce_may_repeat_the_clients_part_and_must_end_with_both_parts():
    whole = CLIENT_NONCE + SERVER_NONCE
    for nonce, is_right in [
        (whole, True),
        (CLIENT_NONCE + whole, True),
        (SERVER_NONCE, False),
        ("x" + SERVER_NONCE, False),
        (CLIENT_NONCE, False),
        (whole + "x", False),
        (whole.swapcase(), False),
    ]:
        side, first = challenged()
        assert isinstance(side.evaluate(final_message(first, nonce=nonce), 0), Complete if is_right else Rejected), (
            nonce
        )


def test_a_replayed_proof_fails_because_the_nonce_is_new():
    side, first = challenged()
    final = final_message(first)
    assert isinstance(side.evaluate(final, 0), Complete)
    assert isinstance(challenged(nonce="another")[0].evaluate(final, 0), Rejected)


def test_the_proof_of_another_user_or_password_fails():
    side, first = challenged()
    other = salted_password(b"pen", SALT, 4096, SHA_256)
    assert isinstance(side.evaluate(final_message(first, salted=other), 0), Rejected)
    side, first = challenged()
    assert isinstance(
        side.evaluate(final_message(first, client_first=b"n=eve,r=" + CLIENT_NONCE.encode()), 0), Rejected
    )


def test_who_reads_the_stored_credential_cannot_log_in_with_it():
    side, first = challenged()
    assert isinstance(side.evaluate(final_message(first, proof=credential().stored_key), 0), Rejected)
    assert isinstance(side.evaluate(final_message(first, proof=bytes(32)), 0), Rejected)


@pytest.mark.parametrize("size_bytes", [0, 1, 31, 33, 64])
def test_a_proof_of_another_length_breaks_the_exchange(size_bytes):
    side, first = challenged()
    assert isinstance(side.evaluate(final_message(first, proof=bytes(size_bytes)), 0), Broken)


def test_extensions_of_the_final_message_are_not_signed():
    side, first = challenged()
    assert isinstance(side.evaluate(final_message(first, extension=",x=y"), 0), Complete)
    side, first = challenged()
    signed_too = final_message(first, extension=",x=y", signed_extension=",x=y")
    assert isinstance(side.evaluate(signed_too, 0), Rejected)


def test_the_channel_binding_is_signed_and_not_compared():
    side, first = challenged()
    assert isinstance(side.evaluate(final_message(first, channel="eSws"), 0), Complete)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"r=x,c=biws,p=", b"c=b,r=x,p=", FIRST, b"c=biws,r=x\0,p=AAAA", b"\xff" * 40]
)
def test_a_malformed_final_message_is_rejected(final):
    assert isinstance(challenged()[0].evaluate(final, 0), Rejected)


# -- delegation tokens


def token_login(kept, credential=None):
    return TokenLogin(KafkaPrincipal("User", "owner"), 5000, b"pencil", credential, kept.append)


def test_a_delegation_token_logs_its_owner_in():
    kept = []
    side = server(tokens={"id": token_login(kept)})
    client = ScramClient(SHA_256, "id", "pencil", CLIENT_NONCE, is_token=True)
    computed = side.evaluate(client.begin(), 0)
    assert isinstance(computed, Compute)
    first = run(computed)
    assert first.token.decode().split(",")[1:] == ["s=dG9rZW4gc2FsdA==", "i=4096"]
    complete = side.evaluate(run(client.evaluate(first.token)), 0)
    assert complete == Complete(complete.token, KafkaPrincipal("User", "owner"), 5000, is_token=True)
    assert client.evaluate(complete.token) is None
    # The next login costs no PBKDF2.
    again = server(tokens={"id": token_login([], *kept)}).evaluate(client.begin(), 0)
    assert isinstance(again, Challenge)


def test_a_token_is_no_user_and_a_user_no_token():
    tokens = {"id": token_login([], credential())}
    assert isinstance(server(tokens=tokens).evaluate(b"n,,n=id,r=abc", 0), Rejected)
    assert isinstance(server(tokens=tokens).evaluate(b"n,,n=user,r=abc,tokenauth=true", 0), Rejected)
    assert isinstance(server(tokens=tokens).evaluate(b"n,,n=id,r=abc,tokenauth=TRUE", 0), Challenge)
    assert server(tokens=tokens).evaluate(b"n,a=owner,n=id,r=abc,tokenauth=true", 0).message == OTHER


# -- the client's side


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "malformed"),
        (b"r=abc+,s=AAAA", "malformed"),
        (b"e=other-error", "malformed"),
        (b"r=ab,s=AAAA,i=4096", "nonce"),
        (b"r=abc,s=AAAA,i=4096", "nonce"),
        (b"r=Xabc,s=AAAA,i=4096", "nonce"),
        (b"r=abc+,s=AAAA,i=1", "1 iterations"),
        (b"r=abc+,s=AAAA,i=4095", "4095 iterations"),
        (b"r=abc+,s=AAAA,i=2147483648", "2147483648 iterations"),
        (b"r=abc+,s=AAAA,i=" + b"9" * 5000, "malformed"),
        (b"r=abc+,s=AAAA,i=-1", "malformed"),
        (b"r=abc+,s=A,i=4096", "malformed"),
        (b"r=" + b"abc" * 100_000, "does not belong"),
    ],
)
def test_our_login_refuses_a_servers_first_message(answer, why):
    with pytest.raises(LoginFailed, match=why):
        ScramClient(SHA_256, "user", "pencil", "abc").evaluate(answer)


@pytest.mark.parametrize(
    "last", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="]
)
def test_our_login_refuses_a_server_that_proves_nothing(last):
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client.evaluate(server().evaluate(client.begin(), 0).token).then(SALTED[SHA_256])
    with pytest.raises(LoginFailed):
        client.evaluate(last)


# -- stored credentials


@pytest.mark.parametrize("number", MECHANISMS)
def test_a_stored_credential_is_read_back(number):
    mechanism = MECHANISMS[number]
    text = encode_credential(Upsertion("user", number, 4096, SALT, SALTED[mechanism]))
    assert parse_credential(text, mechanism) == credential(mechanism)
    other = MECHANISMS[3 - number]
    with pytest.raises(ValueError, match="bytes"):
        parse_credential(text, other)


@pytest.mark.parametrize("text", ["", "hunter2", "hunter2=x", "salt=hunter2,stored_key=,server_key=,iterations=4096"])
def test_no_error_about_a_credential_repeats_it(text):
    with pytest.raises(ValueError, match="credential") as caught:
        parse_credential(text, SHA_256)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_credential_hides_its_keys():
    assert repr(ScramCredential(b"a", b"b", b"c", 4096)) == "ScramCredential(iterations=4096)"
