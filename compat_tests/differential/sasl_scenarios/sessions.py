"""Sessions that end, and logins that begin again on the same connection (KIP-368)."""

import time

from compat_tests.differential.asking import metadata
from compat_tests.differential.asking_sasl import (
    OAUTHBEARER,
    PLAIN,
    api_versions,
    bearer,
    bearer_message,
    client_final,
    client_first,
    handshake,
    plain,
    token,
)
from compat_tests.differential.sasl_side import AGAIN, REAUTH_MS, Ask, Frame, Pause, Pipelined
from compat_tests.differential.scenario import sasl_scenario
from compat_tests.secured import ADMIN, ADMIN_PASSWORD, USER

LOGGED_IN = [handshake(PLAIN), token(plain())]
SOON = Pause(1.5)  # a second login is allowed one second after the first one began
EXPIRED = Pause(REAUTH_MS / 1000 + 0.5)
WORK = Ask(metadata(), 1)
SHA_512 = "SCRAM-SHA-512"


@sasl_scenario
def logins_that_begin_again(side):
    cases = {
        "at once": [*LOGGED_IN, *LOGGED_IN, WORK],
        "twice at once": [*LOGGED_IN, *LOGGED_IN, *LOGGED_IN, WORK],
        "soon": [*LOGGED_IN, *LOGGED_IN, SOON, *LOGGED_IN, WORK],
        "after work": [*LOGGED_IN, WORK, SOON, *LOGGED_IN, WORK],
        "with old tokens": [*LOGGED_IN, SOON, handshake(PLAIN, 0), Frame(plain()), WORK],
        "after an old login": [handshake(PLAIN, 0), Frame(plain()), SOON, *LOGGED_IN, WORK],
        "SCRAM": [
            handshake(SHA_512),
            token(client_first()),
            client_final(SHA_512),
            SOON,
            handshake(SHA_512),
            token(client_first()),
            client_final(SHA_512),
            WORK,
        ],
        "with the wrong password": [*LOGGED_IN, SOON, handshake(PLAIN), token(plain(password="wrong"))],
        "SCRAM, with the wrong password": [
            handshake(SHA_512),
            token(client_first()),
            client_final(SHA_512),
            SOON,
            handshake(SHA_512),
            token(client_first()),
            client_final(SHA_512, password="wrong"),
        ],
        "as another user": [*LOGGED_IN, SOON, handshake(PLAIN), token(plain(ADMIN, ADMIN_PASSWORD))],
        "by another mechanism": [*LOGGED_IN, SOON, handshake(SHA_512), token(client_first())],
        "by a mechanism that is not enabled": [*LOGGED_IN, SOON, handshake("GSSAPI"), token(b"x")],
        "with ApiVersions before": [*LOGGED_IN, SOON, api_versions(3), *LOGGED_IN, WORK],
        "with ApiVersions within": [*LOGGED_IN, SOON, handshake(PLAIN), api_versions(3)],
        "with work within": [*LOGGED_IN, SOON, handshake(PLAIN), WORK],
        "with work within SCRAM": [
            handshake(SHA_512),
            token(client_first()),
            client_final(SHA_512),
            SOON,
            handshake(SHA_512),
            token(client_first()),
            WORK,
        ],
        "a token alone": [*LOGGED_IN, SOON, token(plain()), WORK],
        "two handshakes": [*LOGGED_IN, SOON, handshake(PLAIN), handshake(PLAIN)],
        "work and a login in one piece": [*LOGGED_IN, SOON, Pipelined([WORK, handshake(PLAIN), token(plain()), WORK])],
    }
    yield from side.play_all(cases, AGAIN)


@sasl_scenario
def sessions_after_logins(side):
    cases = {
        "work": [*LOGGED_IN, EXPIRED, WORK],
        "an old login": [handshake(PLAIN, 0), Frame(plain()), EXPIRED, WORK],
        "a login": [*LOGGED_IN, EXPIRED, *LOGGED_IN, WORK],
        "ApiVersions": [*LOGGED_IN, EXPIRED, api_versions(3)],
        "a token": [*LOGGED_IN, EXPIRED, token(plain())],
        "nothing": [*LOGGED_IN, EXPIRED],
        "a handshake with a mechanism that is not enabled": [*LOGGED_IN, EXPIRED, handshake("GSSAPI")],
        "kept by logins": [*LOGGED_IN, SOON, *LOGGED_IN, SOON, *LOGGED_IN, SOON, WORK],
    }
    yield from side.play_all(cases, AGAIN)


@sasl_scenario
def tokens_that_expire(side):
    def lasting(seconds):
        return bearer_message(bearer({"sub": USER, "exp": int(time.time()) + seconds}))

    cases = {
        "an hour": [handshake(OAUTHBEARER), token(lasting(3600)), WORK],
        "seconds": [handshake(OAUTHBEARER), token(lasting(2)), WORK, Pause(3.0), WORK],
        "seconds, and a longer one": [
            handshake(OAUTHBEARER),
            token(lasting(2)),
            SOON,
            handshake(OAUTHBEARER),
            token(lasting(3600)),
            Pause(2.0),
            WORK,
        ],
    }
    yield from side.play_all(cases)
