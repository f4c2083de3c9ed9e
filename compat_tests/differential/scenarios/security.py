"""ACLs, SCRAM credentials, delegation tokens and SASL on a broker that has no authorizer, secret or mechanism."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4  # kinds of resource pattern
TOPIC, READ, ALLOW = 2, 3, 3


def _filter(kind, **fields):
    usual = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "t",
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": READ,
        "permission_type": ALLOW,
    }
    return kind(**(usual | fields))


def _creation(**fields):
    usual = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:x",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return m.CreateAclsRequest.AclCreation(**(usual | fields))


@scenario
def acls_without_an_authorizer(side):
    odd = {
        "good": {},
        "everything": {"resource_type_filter": 1, "resource_name_filter": None, "operation": 1, "permission_type": 1},
        "resource type 0": {"resource_type_filter": 0},
        "resource type 99": {"resource_type_filter": 99},
        "operation 0": {"operation": 0},
        "operation 99": {"operation": 99},
        "permission 0": {"permission_type": 0},
        "permission 9": {"permission_type": 9},
    }
    creations = {
        "good": {},
        "resource type 1": {"resource_type": 1},
        "resource type 99": {"resource_type": 99},
        "operation 1": {"operation": 1},
        "permission 1": {"permission_type": 1},
        "permission 0": {"permission_type": 0},
        "bad principal": {"principal": "x"},
        "empty name": {"resource_name": ""},
    }
    for version in range(4):
        Filter = m.DeleteAclsRequest.DeleteAclsFilter
        cases = {f"describe, {name}": _filter(m.DescribeAclsRequest, **fields) for name, fields in odd.items()}
        cases |= {
            f"delete, {name}": m.DeleteAclsRequest(filters=[_filter(Filter, **fields)]) for name, fields in odd.items()
        }
        cases |= {
            f"create, {name}": m.CreateAclsRequest(creations=[_creation(**fields)])
            for name, fields in creations.items()
        }
        cases |= {
            "delete, two": m.DeleteAclsRequest(filters=[_filter(Filter), _filter(Filter)]),
            "delete, nothing": m.DeleteAclsRequest(filters=[]),
            "create, two": m.CreateAclsRequest(creations=[_creation(), _creation()]),
            "create, nothing": m.CreateAclsRequest(creations=[]),
        }
        if version >= 1:
            cases["create, good and pattern 0"] = m.CreateAclsRequest(
                creations=[_creation(), _creation(resource_pattern_type=0)]
            )
        if version >= 1:
            patterns = (0, ANY, MATCH, PREFIXED, 9)
            cases |= {
                f"describe, pattern {kind}": _filter(m.DescribeAclsRequest, pattern_type_filter=kind)
                for kind in patterns
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


def _upsertion(name, mechanism=1, iterations=4096, salt=b"salt", password=b"password"):
    return m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=password
    )


@scenario
def scram_credentials(side):
    Request, Deletion = m.AlterUserScramCredentialsRequest, m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    User = m.DescribeUserScramCredentialsRequest.UserName
    one, two, absent, odd = map(side.name, ("one", "two", "none", "ä b/<default>"))

    def alter(upsertions=(), deletions=()):
        rows = [Deletion(name=name, mechanism=mechanism) for name, mechanism in deletions]
        return Request(upsertions=list(upsertions), deletions=rows)

    def described(*names):
        return m.DescribeUserScramCredentialsRequest(users=[User(name=name) for name in names])

    cases = {
        "all, none there": m.DescribeUserScramCredentialsRequest(users=None),
        "no users, none there": described(),
        "one": alter([_upsertion(one)]),
        "another mechanism": alter([_upsertion(one, 2, 8192)]),
        "again": alter([_upsertion(one, 1, 5000)]),
        "two": alter([_upsertion(two), _upsertion(two, 2)]),
        "nothing": alter(),
        "empty name": alter([_upsertion("")]),
        "mechanism 0": alter([_upsertion(one, 0)]),
        "mechanism 9": alter([_upsertion(one, 9)]),
        "4095 iterations": alter([_upsertion(one, 1, 4095)]),
        "8191 iterations of SHA-512": alter([_upsertion(one, 2, 4095)]),
        "16385 iterations": alter([_upsertion(one, 1, 16385)]),
        "no salt": alter([_upsertion(one, salt=b"")]),
        "no password": alter([_upsertion(one, password=b"")]),
        "twice": alter([_upsertion(one), _upsertion(one)]),
        "set and deleted": alter([_upsertion(one)], [(one, 1)]),
        "good and bad": alter([_upsertion(two), _upsertion(one, 9)]),
        "delete what is not there": alter(deletions=[(absent, 1)]),
        "delete with mechanism 9": alter(deletions=[(one, 9)]),
        "delete an empty name": alter(deletions=[("", 1)]),
        "describe": described(one),
        "describe two": described(one, two),
        "describe an unknown one": described(absent),
        "describe one twice": described(one, one),
        "describe an empty name": described(""),
        "describe what no node is called": described("..", one),
        "describe all": m.DescribeUserScramCredentialsRequest(users=None),
        "one refused, others not": alter([_upsertion(one, 1, 1), _upsertion(one, 2), _upsertion(two)], [(absent, 1)]),
        "no password beside others": alter([_upsertion(one), _upsertion(two, password=b""), _upsertion(absent, 9)]),
        "delete what no node is called": alter([_upsertion(one)], [("..", 1)]),
        "an odd name": alter([_upsertion(odd, 2, 5000)]),
        "describe all that are there": m.DescribeUserScramCredentialsRequest(users=None),
        "delete the odd one": alter(deletions=[(odd, 2)]),
        "delete one": alter(deletions=[(one, 1)]),
        "describe what is left": described(one),
        "delete the rest": alter(deletions=[(one, 2), (two, 1), (two, 2)]),
        "describe all, deleted": m.DescribeUserScramCredentialsRequest(users=None),
    }
    with side.connect() as client:
        for name, request in cases.items():
            yield name, client.ask(request, 0)


@scenario
def delegation_tokens_without_a_secret(side):
    Renewer, Owner = m.CreateDelegationTokenRequest.CreatableRenewers, m.DescribeDelegationTokenRequest
    for version in range(4):
        cases = {
            "create": m.CreateDelegationTokenRequest(max_lifetime_ms=-1),
            "create with a renewer": m.CreateDelegationTokenRequest(
                renewers=[Renewer(principal_type="User", principal_name="x")], max_lifetime_ms=1000
            ),
            "describe": m.DescribeDelegationTokenRequest(owners=[]),
            "describe all": m.DescribeDelegationTokenRequest(owners=None),
            "describe one": m.DescribeDelegationTokenRequest(
                owners=[Owner.DescribeDelegationTokenOwner(principal_type="User", principal_name="x")]
            ),
        }
        if version == 3:
            for kind, name in (("User", "y"), ("", "y"), ("User", None), ("", ""), (None, "y")):
                cases[f"create for {kind} {name}"] = m.CreateDelegationTokenRequest(
                    owner_principal_type=kind, owner_principal_name=name, max_lifetime_ms=-1
                )
        if version <= 2:
            cases |= {
                "renew": m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000),
                "expire": m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def sasl_on_a_plain_listener(side):
    for version in range(2):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "", "nope"):
            with side.connect() as client:
                yield (
                    f"handshake v{version} {mechanism!r}",
                    client.ask(m.SaslHandshakeRequest(mechanism=mechanism), version),
                )
                yield f"afterwards v{version} {mechanism!r}", client.ask(m.HeartbeatRequest(group_id=""), 1)
    for version in range(3):
        yield f"authenticate v{version}", side.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), version)
        yield f"authenticate v{version} empty", side.ask(m.SaslAuthenticateRequest(auth_bytes=b""), version)
