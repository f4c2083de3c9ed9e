"""`make docker-check`: build the image on whatever base is given, start the cluster, and use it from outside.

    make docker-check [BASE=image] [ZOOKEEPER_IMAGE=image] [BUILD_NETWORK=host] [SUBNET=172.31.250.0/24]

Three brokers with the properties of cluster.properties and the addresses of compose.yaml, and ZooKeeper, become
healthy; a topic with three replicas is made and written from outside, and written again after the container that leads
it was killed, and after it came back; every record is read. Whatever was built and started is removed again.

It says `docker run` and not `docker compose`, which not every docker client has. ZOOKEEPER_IMAGE defaults to an image
of Debian's package, built on BASE, so that one base image is enough where no registry can be reached. BUILD_NETWORK is
docker's `build --network`, for machines whose containers cannot reach the registries of packages. With SUBNET the
containers have fixed addresses there and know each other by them, for a daemon without iptables has no name server.
"""

import ipaddress
import os
import pathlib
import subprocess
import sys
import time
import uuid

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

ROOT = pathlib.Path(__file__).parents[1]
BASE = os.environ.get("BASE") or "python:3.13-slim"
RUN = f"barnabas-check-{uuid.uuid4().hex[:8]}"
OUTSIDE = {1: 19092, 2: 29092, 3: 39092}
NAMES = ("zookeeper", *(f"broker{broker_id}" for broker_id in OUTSIDE))
HEALTHY_SECONDS = 120
TOPIC = "letters"


def docker(*arguments: str, quiet: bool = True) -> str:
    """Run docker and return what it prints; its complaints end the check."""
    output = subprocess.PIPE if quiet else None
    ran = subprocess.run(["docker", *arguments], cwd=ROOT, stdout=output, text=True, check=False)
    if ran.returncode:
        sys.exit(f"docker {' '.join(arguments[:2])} failed")
    return (ran.stdout or "").strip()


def build() -> str:
    """Both images; returns the one of ZooKeeper."""
    build_image("docker/Dockerfile", RUN, ".")
    print(f"{int(docker('image', 'inspect', '--format', '{{.Size}}', RUN)) // 1_000_000} MB, built on {BASE}")
    given = os.environ.get("ZOOKEEPER_IMAGE")
    if not given:
        build_image("docker/zookeeper.Dockerfile", f"{RUN}-zookeeper", "docker")
    return given or f"{RUN}-zookeeper"


def build_image(dockerfile: str, name: str, context: str) -> None:
    network = ["--network", os.environ["BUILD_NETWORK"]] if os.environ.get("BUILD_NETWORK") else []
    docker("build", "--file", dockerfile, "--build-arg", f"BASE={BASE}", *network, "--tag", name, context, quiet=False)


def container(name: str) -> str:
    return f"{RUN}-{name}"


def start(zookeeper_image: str) -> None:
    """ZooKeeper and the brokers."""
    subnet = os.environ.get("SUBNET")
    docker("network", "create", *(["--subnet", subnet] if subnet else []), RUN)
    run = ["run", "--detach", "--network", RUN]
    docker(*run, *known_as("zookeeper", subnet), zookeeper_image)
    for broker_id, port in OUTSIDE.items():
        name = f"broker{broker_id}"
        advertised = f"advertised.listeners=INSIDE://{name}:9092,OUTSIDE://localhost:{port}"
        properties = ["/etc/barnabas/cluster.properties", "--set", f"broker.id={broker_id}", "--set", advertised]
        docker(*run, *known_as(name, subnet), "--publish", f"{port}:19092", RUN, *properties)


def known_as(name: str, subnet: str | None) -> list[str]:
    """The container's name, and how the others find it."""
    named = ["--name", container(name), "--network-alias", name]
    if subnet:
        addresses = dict(zip(NAMES, list(ipaddress.ip_network(subnet).hosts())[10:], strict=False))
        named += ["--ip", str(addresses[name])]
        named += [f"--add-host={each}:{address}" for each, address in addresses.items()]
    return named


def await_health() -> None:
    """Until docker calls every broker healthy."""
    deadline = time.monotonic() + HEALTHY_SECONDS
    for broker_id in OUTSIDE:
        name = container(f"broker{broker_id}")
        while (health := docker("inspect", "--format", "{{.State.Health.Status}}", name)) != "healthy":
            if time.monotonic() > deadline:
                print(docker("logs", "--tail", "30", name))
                sys.exit(f"broker {broker_id} is {health} after {HEALTHY_SECONDS} s")
            time.sleep(0.5)


def use() -> None:
    """What a client outside does with the cluster, a leader's death included."""
    bootstrap = [f"localhost:{port}" for port in OUTSIDE.values()]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
    write(bootstrap, "before")
    leader = next(each["leader_id"] for each in admin.describe_topics([TOPIC])[0]["partitions"])
    print(f"killing broker {leader}")
    docker("kill", container(f"broker{leader}"))
    write(bootstrap, "after")
    docker("start", container(f"broker{leader}"))
    await_health()
    write(bootstrap, "again")
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=15_000
    )
    read = sorted(message.value.decode() for message in consumer)
    wanted = sorted(f"{when} {number}" for when in ("before", "after", "again") for number in range(100))
    if read != wanted:
        sys.exit(f"{len(read)} of {len(wanted)} records were read, {len(set(wanted) - set(read))} are lost")
    print(f"{len(read)} records written with acks=all, and read; none lost")


def write(bootstrap: list[str], when: str) -> None:
    """A hundred records, acknowledged by all in sync."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=100)
    sent = [producer.send(TOPIC, f"{when} {number}".encode(), partition=number % 3) for number in range(100)]
    for each in sent:
        each.get(timeout=60)
    producer.close()


def remove() -> None:
    """Whatever was started or built."""
    names = [container(each) for each in NAMES]
    for command in (
        ["rm", "--force", "--volumes", *names],
        ["network", "rm", RUN],
        ["image", "rm", RUN, f"{RUN}-zookeeper"],
    ):
        subprocess.run(["docker", *command], capture_output=True, check=False)  # what is not there need not go


def main() -> None:
    """All of it."""
    try:
        start(build())
        await_health()
        use()
    finally:
        remove()


if __name__ == "__main__":
    main()
