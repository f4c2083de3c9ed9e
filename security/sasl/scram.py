"""SCRAM credentials as Kafka keeps them (pure): RFC 5802, KIP-84, KIP-554; reference A.6.

A credential is one property of its user's configuration: the mechanism's name, and

    salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>

The client salts the password itself, so the broker never gets the password, nor anything from which it can be derived
except by guessing. With stored_key the broker verifies a client's proof; with server_key it proves its own identity to
the client.

The checks, their order and their messages were measured on a running Apache Kafka 3.9.1 in ZooKeeper mode.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.wire.errors import ErrorCode

# The minimum is RFC 5802's, the maximum Kafka's.
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
NAME_EMPTY = "Username must not be empty"
UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"
TOO_FEW_ITERATIONS = "Too few iterations"
TOO_MANY_ITERATIONS = "Too many iterations"
ALTERED_TWICE = "A user credential cannot be altered twice in the same request"
NOTHING_TO_DELETE = "Attempt to delete a user credential that does not exist"


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its property and its hash function."""

    name: str
    hash: str


# The keys are the numbers of KIP-554's requests.
MECHANISMS = {1: Mechanism("SCRAM-SHA-256", "sha256"), 2: Mechanism("SCRAM-SHA-512", "sha512")}


class Deletion(NamedTuple):
    """Delete a user's credential."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """Create or replace a user's credential."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Refusal(NamedTuple):
    """The error of all alterations of one user."""

    code: ErrorCode
    message: str


class Alterations(NamedTuple):
    """The alterations of one request."""

    deletions: tuple[Deletion, ...]
    upsertions: tuple[Upsertion, ...]

    def by_user(self) -> "dict[str, Alterations]":
        """The alterations of each user."""
        deletions: dict[str, list[Deletion]] = {}
        upsertions: dict[str, list[Upsertion]] = {}
        for deletion in self.deletions:
            deletions.setdefault(deletion.user, []).append(deletion)
        for upsertion in self.upsertions:
            upsertions.setdefault(upsertion.user, []).append(upsertion)
        return {
            user: Alterations(tuple(deletions.get(user, ())), tuple(upsertions.get(user, ())))
            for user in deletions | upsertions
        }

    @property
    def can_be_prepared(self) -> bool:
        """Whether all credentials can be computed."""
        # Java's Mac accepts no empty key. Python's does, so it has to be checked.
        return all(upsertion.salted_password for upsertion in self.upsertions)

    def without(self, users: Iterable[str]) -> "Alterations":
        """The alterations without those of these users."""
        left_out = set(users)
        return Alterations(
            tuple(deletion for deletion in self.deletions if deletion.user not in left_out),
            tuple(upsertion for upsertion in self.upsertions if upsertion.user not in left_out),
        )

    def missing(self, configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """The users with a deletion of a credential that does not exist."""
        return [user for user, mechanism in self.deletions if MECHANISMS[mechanism].name not in configs.get(user, {})]

    def applied_to(self, config: Mapping[str, str]) -> dict[str, str]:
        """The user's configuration after these alterations, which must all be of this user."""
        # The node also has the user's quotas and the other mechanism's credential, which stay.
        deleted = {MECHANISMS[deletion.mechanism].name for deletion in self.deletions}
        changed = {name: text for name, text in config.items() if name not in deleted}
        for upsertion in self.upsertions:
            changed[MECHANISMS[upsertion.mechanism].name] = encode_credential(upsertion)
        return changed


def refuse_alterations(asked: Alterations) -> dict[str, Refusal]:
    """Users whose alterations are invalid or contradict each other, each with its last error."""
    # Kafka's order is deletions, upsertions, duplicates. A later error replaces an earlier one of
    # the same user.
    refused: dict[str, Refusal] = {}
    for deletion in asked.deletions:
        _note(refused, deletion.user, _objection(deletion.user, deletion.mechanism))
    for upsertion in asked.upsertions:
        objection = _objection(upsertion.user, upsertion.mechanism) or _objection_to_iterations(upsertion.iterations)
        _note(refused, upsertion.user, objection)
    # A deletion and an upsertion of the same credential contradict each other, too: the request has no order. Only here
    # the first error stays, because Kafka looks for duplicates among the users without an error.
    deleted, upserted = (Counter((row.user, row.mechanism) for row in rows) for rows in asked)
    for (user, _), times in (deleted + upserted).items():
        if times > 1:
            refused.setdefault(user, Refusal(ErrorCode.DUPLICATE_RESOURCE, ALTERED_TWICE))
    return refused


def _note(refused: dict[str, Refusal], user: str, objection: Refusal | None) -> None:
    if objection is not None:
        refused[user] = objection


def _objection(user: str, mechanism: int) -> Refusal | None:
    if user == "":
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, NAME_EMPTY)
    if mechanism not in MECHANISMS:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, UNKNOWN_MECHANISM)
    return None


def _objection_to_iterations(iterations: int) -> Refusal | None:
    if iterations > ITERATIONS_MAX:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, TOO_MANY_ITERATIONS)
    if iterations < ITERATIONS_MIN:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, TOO_FEW_ITERATIONS)
    return None


def encode_credential(upsertion: Upsertion) -> str:
    """The stored form of a credential, from its salted password."""
    # The import is here, because few brokers ever get a credential, and start-up must be fast.
    import base64

    credential = make_credential(
        upsertion.salted_password, upsertion.salt, upsertion.iterations, MECHANISMS[upsertion.mechanism]
    )
    parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    texts = [f"{name}={base64.b64encode(value).decode('ascii')}" for name, value in parts.items()]
    return ",".join([*texts, f"iterations={upsertion.iterations}"])


def credential_iterations(text: str) -> int:
    """The number of iterations of a stored credential; ValueError when it is not a credential."""
    return int(_parts(text)["iterations"])


class ScramCredential(NamedTuple):
    """What a broker needs to verify a user's proof and to prove that it is the server."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    # A credential may be in a traceback or in a record that is logged.
    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def parse_credential(text: str, mechanism: Mechanism) -> ScramCredential:
    """A stored credential; ValueError when it is not one of this mechanism. Its message contains no part of it."""
    import base64
    import hashlib

    try:
        parts = _parts(text)
        salt, stored_key, server_key = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(parts["iterations"])
    except ValueError:
        raise ValueError(f"this is no {mechanism.name} credential") from None

    size_bytes = hashlib.new(mechanism.hash).digest_size
    if len(stored_key) != size_bytes or len(server_key) != size_bytes:
        raise ValueError(f"the keys of a {mechanism.name} credential do not have {size_bytes} bytes")
    return ScramCredential(salt, stored_key, server_key, iterations)


def salted_password(password: bytes, salt: bytes, iterations: int, mechanism: Mechanism) -> bytes:
    """RFC 5802's SaltedPassword. It takes a millisecond or more for each thousand iterations: call it in a thread."""
    import hashlib

    return hashlib.pbkdf2_hmac(mechanism.hash, password, salt, iterations)


def make_credential(salted: bytes, salt: bytes, iterations: int, mechanism: Mechanism) -> ScramCredential:
    """The credential of a salted password."""
    import hashlib
    import hmac

    # The hash of the client key is stored, not the key: who reads the store cannot log in with it. The two literals are
    # RFC 5802's.
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    stored_key = hashlib.new(mechanism.hash, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.hash), iterations)


def _parts(text: str) -> dict[str, str]:
    # The split is at the first "=" only, because base64 ends in "=" as well.
    parts = dict(part.split("=", 1) for part in text.split(","))
    if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError(f"{sorted(parts)} are not the parts of a SCRAM credential")
    return parts
