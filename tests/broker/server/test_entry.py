"""Listeners with TLS and SASL in a whole broker: who gets in, who does not, and who must log in again."""

from hashlib import pbkdf2_hmac

import pytest
import trio

from barnabas.broker.server.connections import STRANGERS_SHARE
from barnabas.broker.server.entry import HANDSHAKE_SECONDS
from barnabas.client.login import log_in
from barnabas.config.parse import ConfigError
from barnabas.controller.store.store import Delete
from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.exchange import LoginFailed
from barnabas.security.tls.contexts import client_context, load_stores
from barnabas.security.tls.stores import KeyStoreSettings, TrustStoreSettings
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import ConnectionLost
from barnabas.world.tls import ALERT, connect_tls
from barnabas.world.world import run_inline
from tests.broker.clock import now_ms
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, produce_request
from tests.security.key_material import BOTH_VERSIONS, authority_pem, chain_pem, key_pem, leaf
from tests.security.sasl.signed_tokens import key_set, public, token

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,TLS://127.0.0.1:9093,LOGIN://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required user_alice="alice-secret" user_bob="b";',
    "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
}
ALICE = Credentials("PLAIN", {"username": "alice", "password": "alice-secret"})
SESSION_MS = 10_000


def stores(name="castle") -> dict[str, str]:
    return {
        "ssl.keystore.key": key_pem(leaf(name)),
        "ssl.keystore.certificate.chain": chain_pem(leaf(name)),
        "ssl.truststore.certificates": authority_pem(name),
    }


async def started(nursery, **properties) -> Machine:
    machine = Machine(nursery)
    machine.properties |= LISTENERS | stores() | properties
    return await machine.start()


def context(name="castle"):
    keys = KeyStoreSettings(type="PEM", key=key_pem(leaf(name)), certificate_chain=chain_pem(leaf(name)))
    trusted = TrustStoreSettings(type="PEM", certificates=authority_pem(name))
    return client_context(load_stores(keys, trusted), BOTH_VERSIONS)


async def logged_in(machine: Machine, credentials: Credentials = ALICE, access_token: str | None = None):
    client = await machine.connect("LOGIN")
    await again(client, credentials, access_token)
    return client


async def again(client, credentials: Credentials = ALICE, access_token: str | None = None) -> None:
    async def ask(request):
        return await client.ask(request, 1)

    await log_in(ask, credentials.login(lambda: "nonce", 0, access_token), run_inline)


async def over_tls(machine: Machine, name="castle"):
    client = await machine.connect("TLS")
    client.stream = await connect_tls(client.stream, context(name), "localhost")
    return client


async def test_a_client_over_tls(nursery, autojump_clock):
    machine = await started(nursery, **{"listener.name.tls.ssl.client.auth": "required"})
    client = await over_tls(machine)
    await client.create_topic("t")
    await client.produce("t", b"x" * 100_000)
    fetched = await client.ask(fetch_request([("t", 0, 0)]), 12)
    assert len(fetched.responses[0].partitions[0].records) > 100_000


async def test_clients_without_tls_and_with_an_unknown_certificate(nursery, autojump_clock, caplog):
    caplog.set_level("INFO")
    machine = await started(nursery, **{"listener.name.tls.ssl.client.auth": "required"})
    plain = await machine.connect("TLS")
    await plain.send(m.MetadataRequest(topics=[]))
    assert await plain.stream.receive_some(100) == ALERT
    assert await plain.is_closed()
    with pytest.raises(ConnectionLost):
        await over_tls(machine, "elsewhere")
    assert "failed SSL handshake with 127.0.0.1: the client does not speak TLS" in caplog.text
    assert machine.is_running


async def test_a_handshake_that_does_not_go_on_ends(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect("TLS")
    await client.send_bytes(b"\x16\x03\x01\x02\x00\x01")
    began = trio.current_time()
    assert await client.is_closed(HANDSHAKE_SECONDS + 1)
    assert trio.current_time() == pytest.approx(began + HANDSHAKE_SECONDS, abs=0.1)


async def test_a_client_that_logs_in(nursery, autojump_clock):
    client = await logged_in(await started(nursery))
    await client.create_topic("t")
    await client.metadata("t")
    # Another login is refused, and the connection stays: the session has no end.
    refused = await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    await client.metadata("t")


async def test_a_request_before_the_login_closes(nursery, autojump_clock, caplog):
    caplog.set_level("INFO")
    client = await (await started(nursery)).connect("LOGIN")
    await client.send(m.MetadataRequest(topics=[]))
    assert await client.is_closed()
    assert "failed authentication with 127.0.0.1: Metadata before SaslHandshake" in caplog.text


async def test_a_scram_user_that_is_created_and_removed_while_the_broker_runs(nursery, autojump_clock):
    machine = await started(nursery)
    alice = Credentials("SCRAM-SHA-256", {"username": "carol", "password": "carol-secret"})
    admin = await machine.connect()
    salted = pbkdf2_hmac("sha256", b"carol-secret", b"salt", 4096)
    upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    altered = await admin.ask(m.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    assert [row.error_code for row in altered.results] == [0]
    await trio.sleep(1)  # virtual: the notification
    await (await logged_in(machine, alice)).metadata()
    # Without a session for more than 15 minutes, this broker finds no notification of the removal.
    await machine.broker.store.batch([Delete("/config/users/carol")])
    await machine.broker.store.expire()
    await trio.sleep(30)
    with pytest.raises(LoginFailed):
        await logged_in(machine, alice)


async def test_a_session_ends_unless_the_client_logs_in_again(nursery, autojump_clock):
    machine = await started(nursery, **{"connections.max.reauth.ms": str(SESSION_MS)})
    renewed, forgotten = await logged_in(machine), await logged_in(machine)
    await trio.sleep(SESSION_MS / 1000 * 0.9)
    await again(renewed)
    await trio.sleep(SESSION_MS / 1000 * 0.9)
    await renewed.metadata()
    await forgotten.send(m.MetadataRequest(topics=[]))
    assert await forgotten.is_closed()


async def test_requests_before_a_login_again_are_answered_first(nursery, autojump_clock):
    machine = await started(nursery, **{"connections.max.reauth.ms": str(SESSION_MS)})
    client = await logged_in(machine)
    await client.create_topic("t")
    await client.send(produce_request("t", b"x", acks=-1), 9)
    await client.send(fetch_request([("t", 0, 1)], max_wait_ms=2000), 12)
    await client.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert isinstance(await client.receive(), m.ProduceResponse)
    assert isinstance(await client.receive(), m.FetchResponse)
    assert isinstance(await client.receive(), m.SaslHandshakeResponse)
    await client.send(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 1)
    assert (await client.receive()).error_code == 0
    await client.metadata("t")


async def test_an_other_request_during_a_login_again_closes(nursery, autojump_clock):
    machine = await started(nursery, **{"connections.max.reauth.ms": str(SESSION_MS)})
    client = await logged_in(machine)
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await client.send(m.MetadataRequest(topics=[]))
    await client.receive()
    assert await client.is_closed()


def oauth(url: str) -> dict[str, str]:
    prefix = "listener.name.login.oauthbearer"
    return {
        "listener.name.login.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{prefix}.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": url,
    }


async def test_signed_access_tokens(nursery, autojump_clock, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(public("rsa")))
    machine = await started(nursery, **oauth(keys.as_uri()))
    now = now_ms() // 1000
    claims = {"sub": "alice", "iat": now, "exp": now + 60}
    await (await logged_in(machine, Credentials("OAUTHBEARER", {}), token(claims=claims))).metadata()
    with pytest.raises(LoginFailed, match="invalid_token"):
        await logged_in(machine, Credentials("OAUTHBEARER", {}), token(claims=claims, name="other"))
    # A key that is new is fetched when a token names it.
    keys.write_bytes(key_set(public("rsa"), public("other")))
    with pytest.raises(LoginFailed):
        await logged_in(machine, Credentials("OAUTHBEARER", {}), token(claims=claims, name="other"))
    await trio.sleep(61)  # early at most once a minute
    now = now_ms() // 1000
    claims = {"sub": "alice", "iat": now, "exp": now + 600}
    with pytest.raises(LoginFailed):
        await logged_in(machine, Credentials("OAUTHBEARER", {}), token(claims=claims, name="other"))
    await trio.sleep(1)
    await (await logged_in(machine, Credentials("OAUTHBEARER", {}), token(claims=claims, name="other"))).metadata()


async def test_a_broker_without_the_keys_does_not_start(nursery, autojump_clock, tmp_path):
    with pytest.raises(ConfigError, match="no keys can be fetched"):
        await started(nursery, **oauth((tmp_path / "none.json").as_uri()))


async def test_users_in_a_jaas_file(nursery, autojump_clock, tmp_path, monkeypatch):
    file = tmp_path / "jaas.conf"
    file.write_text(f'login.KafkaServer {{ {PLAIN} required user_alice="alice-secret"; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={file}")
    machine = Machine(nursery)
    properties = LISTENERS | stores() | {"listener.name.login.sasl.enabled.mechanisms": "PLAIN"}
    machine.properties |= {name: text for name, text in properties.items() if not name.endswith("jaas.config")}
    await (await logged_in(await machine.start())).metadata()


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"listener.name.login.sasl.enabled.mechanisms": "GSSAPI"}, "it names GSSAPI, which is not served"),
        ({"listener.name.login.plain.sasl.jaas.config": "x"}, "listener.name.login.plain.sasl.jaas.config: "),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.key"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth"),
    ],
)
async def test_what_is_wrong_is_refused_at_the_start(properties, why, nursery, autojump_clock):
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        await started(nursery, **properties)


# -- what a client gets away with

FOLLOWER = 2


async def unacknowledged(nursery, **properties):
    """A broker with sessions that end, and a client whose topic t acknowledges nothing before timeout_ms is over."""
    sessions = {"listener.name.login.plain.connections.max.reauth.ms": "100000"}
    machine = await started(nursery, **sessions, **properties)
    client = await logged_in(machine)
    await client.create_topic("t")
    me = machine.serving.broker_id
    admin = await machine.connect()
    await admin.give_role(machine, "t", leader=me, isr=[me, FOLLOWER], replicas=[me, FOLLOWER])
    return machine, client


async def begin_login_behind_a_produce(client):
    """The login does not go on."""
    await client.send(produce_request("t", b"x", timeout_ms=1000), 9)
    await client.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    produced = await client.receive()
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.receive()).error_code == 0


async def test_a_login_behind_a_delayed_response_is_closed_when_it_is_idle(nursery, autojump_clock):
    _, client = await unacknowledged(nursery, **{"connections.max.idle.ms": "5000"})
    await begin_login_behind_a_produce(client)
    assert await client.is_closed(60)


async def test_a_login_behind_a_delayed_response_does_not_hold_up_a_stop(nursery, autojump_clock):
    machine, client = await unacknowledged(nursery)
    await begin_login_behind_a_produce(client)
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() - began < 5


async def test_logins_behind_delayed_responses_do_not_keep_the_memory_for_requests(nursery, autojump_clock):
    memory = {"socket.request.max.bytes": "100000", "queued.max.request.bytes": "100000"}
    machine, client = await unacknowledged(nursery, **memory)
    for each in (client, await logged_in(machine)):
        await begin_login_behind_a_produce(each)
        await each.send_bytes((90_000).to_bytes(4, "big") + bytes(60_000))
        await trio.sleep(1)
    other = await logged_in(machine)
    frame = other.frame_of(m.MetadataRequest(topics=[]))
    await other.send_bytes(len(frame).to_bytes(4, "big") + frame[:5])
    await trio.sleep(1)
    await other.send_bytes(frame[5:])
    with trio.fail_after(1000):
        await other.receive()


async def test_those_that_never_log_in_take_no_memory_from_those_that_have(nursery, autojump_clock):
    machine = await started(nursery, **{"socket.request.max.bytes": "1000000", "queued.max.request.bytes": "1000000"})
    alice, slow = await logged_in(machine), await logged_in(machine)
    await alice.create_topic("t")
    await slow.send_bytes((900_000).to_bytes(4, "big") + bytes(300_000))
    for _ in range(40):
        stranger = await machine.connect("LOGIN")
        await stranger.send_bytes((500_000).to_bytes(4, "big") + bytes(30_000))
    await trio.sleep(5)
    with trio.fail_after(1):
        assert (await alice.produce("t", bytes(80_000))).error_code == 0
    assert await slow.is_quiet(1)


async def test_of_logins_that_do_not_go_on_the_longest_is_closed(nursery, autojump_clock, caplog):
    memory = str(100_000 * STRANGERS_SHARE)
    machine = await started(nursery, **{"socket.request.max.bytes": memory, "queued.max.request.bytes": memory})
    strangers = [await machine.connect("LOGIN") for _ in range(4)]
    for stranger in strangers:
        await trio.sleep(0.1)
        await stranger.send_bytes((500_000).to_bytes(4, "big") + bytes(30_000))
    await trio.sleep(1)
    assert [await stranger.is_closed(0.1) for stranger in strangers] == [True, False, False, False]
    assert "closing the connection of 127.0.0.1: memory for requests and responses is used up" in caplog.text
    await logged_in(machine)
    for stranger in strangers[1:]:
        stranger.close()
    await trio.sleep(1)
    others = [await machine.connect("LOGIN") for _ in range(3)]
    for each in others:
        await each.send_bytes((500_000).to_bytes(4, "big") + bytes(30_000))
    assert not any([await each.is_closed(1) for each in others]), "the bytes of the others were released"


async def test_a_client_to_which_only_a_delayed_response_is_owed_does_not_keep_the_memory(nursery, autojump_clock):
    memory = {"socket.request.max.bytes": "100000", "queued.max.request.bytes": "100000"}
    machine, _ = await unacknowledged(nursery, **memory)
    other, holder = await machine.connect(), await machine.connect()
    await other.send_bytes((90_000).to_bytes(4, "big") + bytes(60_000))
    await holder.send(produce_request("t", b"x", timeout_ms=3_000_000), 9)
    await holder.send_bytes((90_000).to_bytes(4, "big") + bytes(60_000))
    await trio.sleep(1)

    async def go_on_slowly():
        for _ in range(150):
            await trio.sleep(20)
            for each in (holder, other):
                await each.send_bytes(b"x")

    nursery.start_soon(go_on_slowly)
    client = await machine.connect()
    frame = client.frame_of(m.MetadataRequest(topics=[]))
    await client.send_bytes(len(frame).to_bytes(4, "big") + frame[:5])
    await trio.sleep(1)
    await client.send_bytes(frame[5:])
    with trio.fail_after(2000):
        await client.receive()


async def test_a_record_longer_than_those_of_tls_is_not_awaited(nursery, autojump_clock):
    client = await (await started(nursery)).connect("TLS")
    await client.send_bytes(b"\x16\x03\x01\xff\xff")
    assert await client.stream.receive_some(100) == ALERT
    assert await client.is_closed(1)
