"""SCRAM credentials on a broker whose clients need no login.

What is answered about them, about ACLs without an authorizer, and about delegation tokens without a secret is in
compat_tests/differential/scenarios/security.py.
"""

from barnabas.wire import messages as m
from tests.broker.harness import Machine

Alter, Describe = m.AlterUserScramCredentialsRequest, m.DescribeUserScramCredentialsRequest


async def set_credentials(client, *users):
    """The error code of each user."""
    upsertions = [
        Alter.ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"\x01" * 32
        )
        for user in users
    ]
    return {row.user: row.error_code for row in (await client.ask(Alter(upsertions=upsertions))).results}


async def described(client):
    answer = await client.ask(Describe(users=None))
    return {row.user: [(one.mechanism, one.iterations) for one in row.credential_infos] for row in answer.results}


async def test_credentials_survive_a_restart(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await set_credentials(await machine.connect(), "a")
    await machine.crash()
    await machine.start()
    assert await described(await machine.connect()) == {"a": [(1, 4096)]}


async def test_an_error_in_writing_one_user_is_no_error_of_those_written(nursery, autojump_clock):
    # Kafka refuses all, and has written some.
    client = await (await Machine(nursery).start()).connect()
    assert await set_credentials(client, "a", "..", "b") == {"a": 0, "..": -1, "b": 0}
    assert await described(client) == {"a": [(1, 4096)], "b": [(1, 4096)]}
