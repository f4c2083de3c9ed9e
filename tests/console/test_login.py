"""Who may ask for the page: a login where Kafka's listeners ask for one, over the same credentials."""

import pytest
import trio

from barnabas.broker.call import ANONYMOUS
from barnabas.wire import messages as m
from tests.broker.handlers.authorized import grant
from tests.broker.harness import Machine
from tests.console.page import Page

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="castle" user_admin="castle" user_klamm="herrenhof:1";'
)
SASL = {
    "listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "listener.name.outside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.outside.plain.sasl.jaas.config": PLAIN_JAAS,
    "listener.name.outside.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "connection.failed.authentication.delay.ms": "300",
}
SALT = b"saltsaltsalt"


async def secured(nursery, **other):
    machine = await Machine(nursery, **(SASL | other)).start()
    return await Page(machine).open(nursery), machine


async def test_without_a_login_the_page_asks_for_one(nursery, autojump_clock):
    page, _ = await secured(nursery)
    status, headers, _ = await page.ask("/v1/cluster")
    assert (status, headers["www-authenticate"]) == (401, 'Basic realm="barnabas", charset="UTF-8"')
    for path in ("/", "/healthz", "/metrics"):
        assert (await page.ask(path))[0] == 200, path


async def test_a_plain_user_logs_in_with_a_password_that_has_a_colon(nursery, autojump_clock):
    page, _ = await secured(nursery)
    shown = await page.get("/v1/cluster", login=("klamm", "herrenhof:1"))
    assert shown["principal"] == "User:klamm"


async def test_a_scram_user_logs_in(nursery, autojump_clock):
    page, machine = await secured(nursery)
    await add_scram_user(machine, "frieda", "pencil")
    shown = await page.get("/v1/cluster", login=("frieda", "pencil"))
    assert shown["principal"] == "User:frieda"
    assert (await page.ask("/v1/cluster", login=("frieda", "pen")))[0] == 401


async def add_scram_user(machine, name, password):
    from barnabas.security.sasl.scram import MECHANISMS, salted_password

    row = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=1,
        iterations=4096,
        salt=SALT,
        salted_password=salted_password(password.encode(), SALT, 4096, MECHANISMS[1]),
    )
    client = await machine.connect("INSIDE")
    answer = await client.ask(m.AlterUserScramCredentialsRequest(upsertions=[row], deletions=[]))
    assert answer.results[0].error_code == 0
    await trio.sleep(1)


@pytest.mark.parametrize(
    "login", [("klamm", "wrong"), ("barnabas", "x"), ("klamm", "klamm"), ("k" * 5000, "x"), ("ä\ud83d\ude00", "x")]
)
async def test_a_wrong_password_waits_as_on_kafkas_port(nursery, autojump_clock, login):
    page, machine = await secured(nursery)
    login = tuple(each.encode("utf-16", "surrogatepass").decode("utf-16") for each in login)
    began = trio.current_time()
    status, _, body = await page.ask("/v1/cluster", login=login)
    assert status == 401
    assert trio.current_time() - began >= 0.3
    assert b"herrenhof" not in body
    assert machine.broker.tally.listeners["OUTSIDE"].failed_logins == 1


async def test_each_user_sees_what_its_acls_allow(nursery, autojump_clock):
    page, machine = await secured(
        nursery,
        **{
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:admin;{ANONYMOUS}",
        },
    )
    client = await machine.connect("INSIDE")
    await client.create_topic("t")
    await client.create_topic("u")
    entry = grant("Describe Topic t")
    await machine.broker.authorization.create([entry._replace(entry=entry.entry._replace(principal="User:klamm"))])

    async def topics_of(*login):
        return [each["topic"] for each in (await page.get("/v1/topics", login=login))["topics"]]

    assert await topics_of("admin", "castle") == ["t", "u"]
    assert await topics_of("klamm", "herrenhof:1") == ["t"]


async def test_where_only_certificates_log_in_the_page_is_off(nursery, autojump_clock, monkeypatch):
    page, machine = await secured(nursery)
    only = machine.broker.secured.get("OUTSIDE")
    monkeypatch.setattr(only, "sasl", None)
    # The listener without a login lets every caller in, as it does on Kafka's port.
    assert (await page.get("/v1/cluster"))["principal"] == ANONYMOUS
    endpoints = machine.broker.config.listener_endpoints
    monkeypatch.setattr(type(machine.broker.config), "listener_endpoints", endpoints[1:])
    status, said = await page.refused("/v1/cluster")
    assert (status, "PLAIN or SCRAM" in said) == (403, True)
    assert (await page.ask("/healthz"))[0] == 200
