"""`barnabas acls`: who may do what in any Kafka cluster.

The options are those of Kafka's own tool where it has them.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.changing import FAILED, dry_run, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show, warn
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.acls import AclBinding, AclFilter
    from barnabas.client.cluster import Cluster

COLUMNS = ["resource", "name", "pattern", "principal", "host", "operation", "permission"]
CLUSTER_NAME = "kafka-cluster"  # the only resource of its type
# Option -> the resource type that it names.
RESOURCES = {
    "topic": "Topic",
    "group": "Group",
    "transactional_id": "TransactionalId",
    "delegation_token": "DelegationToken",
    "user_principal": "User",
}
# As Kafka's tool writes operations, and as they are stored.
OPERATIONS = {
    name.lower(): name
    for name in (
        "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs",
        "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens",
    )
}  # fmt: skip
# What a producer or a consumer needs: resource type -> operations.
PRODUCER = {"Topic": ["Write", "Describe", "Create"], "TransactionalId": ["Write", "Describe"]}
CONSUMER = {"Topic": ["Read", "Describe"], "Group": ["Read"]}


class Resources(NamedTuple):
    """The resources that a command names: pairs of a type and a name, and how the names are meant."""

    named: Sequence[tuple[str, str]]
    is_prefixed: bool


@click.group()
def acls() -> None:
    """ACLs: who may do what."""


def names_resources(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name resources; the command gets them as `resources`."""

    @click.option("--topic", metavar="NAME", multiple=True, help="A topic; '*' is every topic.")
    @click.option("--group", metavar="NAME", multiple=True, help="A consumer group.")
    @click.option("--transactional-id", metavar="NAME", multiple=True, help="A transactional id.")
    @click.option("--delegation-token", metavar="NAME", multiple=True, help="A delegation token.")
    @click.option("--user-principal", metavar="NAME", multiple=True, help="A user, whose tokens they are.")
    @click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself.")
    @click.option("--prefixed", "is_prefixed", is_flag=True, help="Everything whose name begins with the given one.")
    @functools.wraps(command)
    def run(*arguments: object, is_cluster: bool, is_prefixed: bool, **options: object) -> None:
        named = []
        for option, resource_type in RESOURCES.items():
            names = options.pop(option)
            assert isinstance(names, tuple)
            named += [(resource_type, name) for name in names]
        if is_cluster:
            named.append(("Cluster", CLUSTER_NAME))
        command(*arguments, resources=Resources(named, is_prefixed), **options)

    return run


def _principal(_context: click.Context, _parameter: click.Parameter, value: object) -> object:
    texts = value if isinstance(value, tuple) else (value,)
    for text in texts:
        if text is not None and ":" not in text:
            raise click.BadParameter(f"{text!r} has no type: say User:{text}")
    return value


def _operation(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """The names of operations, from texts such as read,write; upper case and underscores do not matter."""
    found = []
    for text in ",".join(value).split(",") if value else ():
        name = OPERATIONS.get(text.strip().replace("_", "").lower())
        if name is None:
            raise click.BadParameter(f"{text!r} is none of {', '.join(OPERATIONS)}")
        found.append(name)
    return found


operations = click.option(
    "--operation", "operations", metavar="NAME", multiple=True, callback=_operation, help="read, write, ... [all]."
)


@acls.command("ls")
@names_resources
@click.option("--principal", metavar="User:NAME", callback=_principal, help="Only those of this principal.")
@as_json
@for_a_cluster
def list_all(target: Target, resources: Resources, principal: str | None, as_json: bool) -> None:
    """List the ACLs: all, or those that concern the named resources."""

    async def look(cluster: "Cluster") -> "list[AclBinding]":
        from barnabas.client.acls import list_acls

        found = [
            binding
            for wanted in _filters(resources, [principal], None, ["Any"], ["Any"], concerning=True)
            for binding in await list_acls(cluster, wanted)
        ]
        return sorted(dict.fromkeys(found))

    show(map(_row, run_with(target, look)), COLUMNS, as_json=as_json)


def _filters(
    resources: Resources,
    principals: Sequence[str | None],
    host: str | None,
    operations: Sequence[str],
    permissions: Sequence[str],
    *,
    concerning: bool,
) -> "Iterator[AclFilter]":
    """A filter for each combination. `concerning`: also patterns that hold for a resource, such as `*`."""
    from barnabas.client.acls import AclFilter

    everything: Sequence[tuple[str, str | None]] = [("Any", None)]
    for resource_type, name in resources.named or everything:
        # A filter without a name fits patterns of every type.
        pattern = "Prefixed" if resources.is_prefixed else "Match" if concerning and name is not None else "Literal"
        pattern = pattern if name is not None or resources.is_prefixed else "Any"
        for principal in principals:
            for operation in operations:
                for permission in permissions:
                    yield AclFilter(resource_type, name, pattern, principal, host, operation, permission)


def _row(binding: "AclBinding") -> Row:
    return dict(zip(COLUMNS, _names(binding), strict=True))


def _names(binding: "AclBinding") -> tuple[str, ...]:
    return (*binding.pattern, *binding.entry)


@acls.command("add")
@names_resources
@click.option("--allow", metavar="User:NAME", multiple=True, callback=_principal, help="Who may.")
@click.option("--deny", metavar="User:NAME", multiple=True, callback=_principal, help="Who may not.")
@click.option("--host", default="*", help="From which address [from everywhere].")
@operations
@click.option("--producer", is_flag=True, help="What a producer to --topic needs.")
@click.option("--consumer", is_flag=True, help="What a consumer of --topic in --group needs.")
@dry_run
@as_json
@for_a_cluster
def add(
    target: Target,
    resources: Resources,
    allow: Sequence[str],
    deny: Sequence[str],
    host: str,
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add ACLs. One that is there already stays as it is."""
    if not resources.named:
        raise click.UsageError("what is it about? Say --topic, --group, --cluster or another resource")
    if not allow and not deny:
        raise click.UsageError("who is it about? Say --allow User:NAME or --deny User:NAME")
    if (producer or consumer) and operations:
        raise click.UsageError("--producer and --consumer name their operations: leave --operation out")

    wanted: list[tuple[str, str, str]] = []
    for resource_type, name in resources.named:
        wanted += [(resource_type, name, each) for each in _of_roles(resource_type, operations, producer, consumer)]
    who = [(principal, "Allow") for principal in allow] + [(principal, "Deny") for principal in deny]
    pattern = "Prefixed" if resources.is_prefixed else "Literal"
    names: list[tuple[str, ...]] = [
        # The cluster has one name, so it has no prefix.
        (kind, name, "Literal" if kind == "Cluster" else pattern, principal, host, operation, permission)
        for kind, name, operation in wanted
        for principal, permission in who
    ]
    results = ["would be added"] * len(names) if dry_run else run_with(target, lambda cluster: _create(cluster, names))
    _show(zip(names, results, strict=True), as_json=as_json)


def _of_roles(resource_type: str, operations: Sequence[str], producer: bool, consumer: bool) -> Sequence[str]:
    if not producer and not consumer:
        return operations or ["All"]
    of_producer = PRODUCER.get(resource_type, []) if producer else []
    of_consumer = CONSUMER.get(resource_type, []) if consumer else []
    found = list(dict.fromkeys([*of_producer, *of_consumer]))
    if not found:
        role = "producer" if producer else "consumer"
        raise click.UsageError(f"a {role} needs nothing of a {resource_type}: leave it out")
    return found


async def _create(cluster: "Cluster", rows: Sequence[tuple[str, ...]]) -> list[str]:
    """What became of each ACL; those that were refused are named on standard error."""
    from barnabas.client.acls import AccessControlEntry, AclBinding, ResourcePattern, create_acls

    bindings = [AclBinding(ResourcePattern(*row[:3]), AccessControlEntry(*row[3:])) for row in rows]
    outcomes = await create_acls(cluster, bindings)
    return [_said(binding, *outcome, "added") for binding, outcome in zip(bindings, outcomes, strict=True)]


def _said(binding: "AclBinding", code: int, message: str | None, done: str) -> str:
    """`done`, or after an error, which is printed, `failed`."""
    from barnabas.client.errors import Refused, check

    (resource_type, name, _), entry = binding
    try:
        check(f"the ACL of {entry.principal} for {resource_type} {name!r}", code, message)
    except Refused as refused:
        warn(str(refused))
        return FAILED
    return done


def _show(results: Iterable[tuple[Sequence[str], str]], *, as_json: bool) -> None:
    """Print ACLs, and what became of each; the program ends with status 1 if any one failed."""
    rows = [{**dict(zip(COLUMNS, names, strict=True)), "result": result} for names, result in results]
    # A table has those with which it was done; the others are on standard error.
    shown = [row for row in rows if as_json or row["result"] != FAILED]
    if shown:
        show(shown, COLUMNS, as_json=as_json)
    if any(row["result"] == FAILED for row in rows):
        sys.exit(STATUS_FAILED)


@acls.command("delete")
@names_resources
@click.option("--principal", metavar="User:NAME", callback=_principal, help="Only those of this principal.")
@click.option("--host", help="Only those with this address.")
@operations
@click.option("--allowing", "permission", flag_value="Allow", help="Only those that allow.")
@click.option("--denying", "permission", flag_value="Deny", help="Only those that deny.")
@yes
@dry_run
@as_json
@for_a_cluster
def delete(
    target: Target,
    resources: Resources,
    principal: str | None,
    host: str | None,
    operations: Sequence[str],
    permission: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the ACLs that have exactly these resources, this principal and so on. What is left out may be anything."""
    if not resources.named and principal is None:
        raise click.UsageError("which ones? Say a resource, such as --topic NAME, or --principal User:NAME")
    wanted = list(
        _filters(resources, [principal], host, operations or ["Any"], [permission or "Any"], concerning=False)
    )

    async def plan(cluster: "Cluster") -> "list[AclBinding]":
        from barnabas.client.acls import list_acls
        from barnabas.client.errors import ClientError

        found = [binding for each in wanted for binding in await list_acls(cluster, each)]
        if not found:
            raise ClientError("there is no such ACL; `acls ls` lists those that there are")
        return sorted(dict.fromkeys(found))

    found = run_with(target, plan)
    if not dry_run and not yes:
        must_confirm(f"delete these {len(found)} ACLs", map(_row, found), COLUMNS)

    async def change(cluster: "RepeatingCluster") -> "dict[AclBinding, str]":
        from barnabas.client.acls import delete_acls, list_acls

        results = {}
        for each in wanted:
            for binding, code, message in await delete_acls(cluster, each):
                results[binding] = _said(binding, code, message, "deleted")
            # What a request has deleted whose answer was lost is in no answer.
            if cluster.is_repeated:
                left = await list_acls(cluster, each)
                gone = [binding for binding in found if each.fits(binding) and binding not in left]
                results |= dict.fromkeys(gone, "deleted")
        return results

    results = dict.fromkeys(found, "would be deleted") if dry_run else run_with(target, change)
    _show(((_names(binding), result) for binding, result in results.items()), as_json=as_json)
