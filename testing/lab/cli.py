"""`barnabas lab` and `barnabas monitor`: brokers whose faults are set over HTTP, and what clients ask them (edge).

The commands are listed in `cli/commands.py`. Nothing but click is imported before they run.
"""

import signal
import sys
import threading
from typing import NoReturn, TypedDict, Unpack

import click

from barnabas.status import STATUS_FAILED

CONTROL_ADDRESS = "127.0.0.1:9645"


class TourOptions(TypedDict):
    """The options of the tour; the scenes have brokers of their own, so others have no effect with them."""

    is_tour: bool
    scene: str | None
    with_bug: bool


@click.command()
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many brokers.")
@click.option("--data-dir", metavar="DIR", help="Keep the data in this directory; without it they are in memory.")
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    default=CONTROL_ADDRESS,
    show_default=True,
    help="Where faults are set, on a loopback address; port 0 picks a free one.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create a topic.")
@click.option(
    "--upstream", metavar="HOST:PORT", help="Run no brokers: be in front of those of this Kafka, with the same faults."
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Of the upstream: properties of a client, as Kafka's tools take them: TLS, a login.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a property of all brokers.")
@click.option("--tour", "is_tour", is_flag=True, help="Show scenes about replication and groups, step by step.")
@click.option("--scene", metavar="N", help="Of the tour: play this one without waiting for a key; a number or a name.")
@click.option("--with-bug", is_flag=True, help="Of the scene: plant its bug.")
@click.pass_context
def lab(
    context: click.Context,
    brokers: int,
    data_dir: str | None,
    address: str,
    topics: tuple[str, ...],
    upstream: str | None,
    command_config: str | None,
    assignments: tuple[str, ...],
    **tour: Unpack[TourOptions],
) -> None:
    """Run brokers that misbehave when they are asked to, over HTTP. They run until Ctrl-C."""
    if any(tour.values()):
        _check_tour_alone(context)
        _tour(tour["scene"], with_bug=tour["with_bug"])
        return
    from barnabas.testing.cluster.cluster import LocalCluster
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.lab.control import Laboratory
    from barnabas.testing.lab.upstream import UpstreamProxy

    # The handlers are set before the brokers start, so that Ctrl-C ends a start that takes long.
    ended = _signals()
    if upstream is None and command_config is not None:
        _fail("--command-config: it says how the brokers of --upstream are reached")
    if upstream is not None and (data_dir is not None or topics or assignments):
        _fail("--upstream: the brokers are others', so --data-dir, --topic and --set have no effect")
    try:
        kafka: LocalCluster | UpstreamProxy
        if upstream is None:
            sizes = _topics(topics, min(brokers, 3))
            kafka = LocalCluster(brokers, data_dir=data_dir, config=_properties(assignments), topics=sizes, http=True)
        else:
            kafka = UpstreamProxy(upstream, _client_properties(command_config))
        with kafka, Laboratory(kafka, address) as laboratory:
            click.echo(f"bootstrap {kafka.bootstrap_servers}")
            click.echo(f"control {laboratory.url}v1/")
            if isinstance(kafka, LocalCluster):
                for broker in kafka.brokers.values():
                    click.echo(f"page {broker.page_url}")
            ended.wait()
            # The brokers end first: a program that waits for them over HTTP gets its answer then.
            kafka.close()
    except (LocalBrokerError, OSError) as error:
        _fail(str(error))


@click.command()
@click.option("--upstream", metavar="HOST:PORT", help="Be in front of this Kafka; without it, look at a laboratory.")
@click.option(
    "--lab",
    "url",
    metavar="URL",
    default=f"http://{CONTROL_ADDRESS}/",
    show_default=True,
    help="The laboratory whose requests are printed.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Of the upstream: properties of a client, as Kafka's tools take them: TLS, a login.",
)
@click.option("--api", metavar="NAME", help="Only the requests of this API, such as Produce.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines, one request a line.")
def monitor(*, upstream: str | None, command_config: str | None, url: str, api: str | None, as_json: bool) -> None:
    """Print each request of clients, and what it was answered. A request is a line; Ctrl-C ends it."""
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.lab.control import Laboratory
    from barnabas.testing.lab.monitoring import print_requests
    from barnabas.testing.lab.upstream import UpstreamProxy

    ended = _signals()
    try:
        if upstream is None:
            if command_config is not None:
                _fail("--command-config: it says how the brokers of --upstream are reached")
            print_requests(url, api, ended, as_json=as_json)
            return
        with UpstreamProxy(upstream, _client_properties(command_config)) as proxy, Laboratory(proxy) as laboratory:
            # Standard output has requests only, so that it can be piped.
            click.echo(f"bootstrap {proxy.bootstrap_servers}", err=True)
            print_requests(laboratory.url, api, ended, as_json=as_json)
    except (LocalBrokerError, OSError) as error:
        _fail(str(error))


def _check_tour_alone(context: click.Context) -> None:
    """Refuse other options beside those of the tour."""
    default = click.core.ParameterSource.DEFAULT
    given = [each for each in context.params if context.get_parameter_source(each) is not default]
    others = [
        each for each in context.command.params if each.name in given and each.name not in TourOptions.__annotations__
    ]
    if others:
        _fail(f"{others[0].opts[0]}: the scenes of the tour have brokers of their own, so it has no effect")


def _tour(scene: str | None, *, with_bug: bool) -> None:
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.tour.guide import guide, scene_of, scenes_list, show

    try:
        if scene is not None:
            show(scene_of(scene), click.echo, with_bug=with_bug)
        elif with_bug:
            _fail("--with-bug: of which scene? Give --scene as well")
        elif sys.stdin.isatty():
            guide(click.echo, _answer)
        else:
            # There is no one to choose.
            for line in scenes_list():
                click.echo(line)
            _fail("--tour: without a terminal, choose a scene by --scene N")
    except LocalBrokerError as error:
        _fail(str(error))


def _answer(question: str) -> str | None:
    """What a person types; None at the end of the input."""
    try:
        return input(question)
    except (EOFError, KeyboardInterrupt):
        click.echo("")
        return None


def _signals() -> threading.Event:
    """Set by SIGINT and SIGTERM; the second one ends the process at once."""
    ended = threading.Event()

    def end(number: int, frame: object) -> None:
        if ended.is_set():
            sys.exit(128 + number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return ended


def _client_properties(file_name: str | None) -> dict[str, str]:
    """The properties of a file; none without a file."""
    if file_name is None:
        return {}
    from barnabas.config.parse import ConfigError, parse_properties

    with open(file_name, encoding="latin-1") as file:  # as Java reads properties
        try:
            return {setting.name: setting.text for setting in parse_properties(file.read(), file_name)}
        except ConfigError as error:
            _fail(str(error))


def _topics(given: tuple[str, ...], replicas: int) -> dict[str, tuple[int, int]]:
    sizes = {}
    for text in given:
        name, _, partitions = text.partition(":")
        if partitions and not partitions.isdecimal():
            _fail(f"--topic {text}: a name, or a name with a number of partitions, such as orders:6")
        sizes[name] = (int(partitions or 1), replicas)
    return sizes


def _properties(assignments: tuple[str, ...]) -> dict[str, str]:
    for text in assignments:
        if "=" not in text:
            _fail(f"--set {text}: a property and its value, such as num.partitions=3")
    return dict(tuple(text.split("=", 1)) for text in assignments)  # type: ignore[misc]  # two parts each


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(STATUS_FAILED)
