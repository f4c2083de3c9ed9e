"""Environment variables of Kafka's container images, as properties (pure).

Three images are replaced: apache/kafka and Confluent's take `KAFKA_NUM_PARTITIONS` for `num.partitions`, Bitnami's
takes `KAFKA_CFG_NUM_PARTITIONS`. One underscore is a dot, two are an underscore, three are a dash. What the images do
with other variables is here too: passwords in files, users of Bitnami's image, defaults of listeners and directories.

A broker of this image runs alone or with ZooKeeper. Variables that make one server a broker and its own KRaft
controller are left out with a note, because a broker alone needs no controller; a quorum of several is refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.config.parse import ConfigError, Setting

IMAGE = "the image"
PREFIX = "KAFKA_"
BITNAMI_PREFIX = "KAFKA_CFG_"
SECRETS = "/etc/kafka/secrets/"
BITNAMI_CERTIFICATES = "/opt/bitnami/kafka/config/certs/"
# Where each image keeps its data, and thus what a volume is mounted on.
DATA = "/data"
MOUNTED = {"/bitnami/kafka": "/bitnami/kafka/data", "/var/lib/kafka/data": "/var/lib/kafka/data"}

PUNCTUATION = {1: ".", 2: "_", 3: "-"}
# Variables for the Java machine, its log files and the images' own scripts: there is nothing to configure here.
NO_PROPERTIES = {
    "KAFKA_VERSION", "KAFKA_HOME", "KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS",
    "KAFKA_JMX_OPTS", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_PORT", "KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_LOG4J_TOOLS_ROOT_LOGLEVEL", "KAFKA_OPTS",
    "KAFKA_REST_BOOTSTRAP_SERVERS", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_VOLUME_DIR",
    "KAFKA_ZOOKEEPER_PROTOCOL", "KAFKA_SKIP_KRAFT_STORAGE_INIT", "CLUSTER_ID",
}  # fmt: skip
# Variables of Bitnami's image that functions of this file read.
OF_BITNAMI = {
    "KAFKA_ENABLE_KRAFT", "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS", "KAFKA_INTER_BROKER_USER",
    "KAFKA_INTER_BROKER_PASSWORD", "KAFKA_CERTIFICATE_PASSWORD", "KAFKA_TLS_TYPE", "KAFKA_TLS_CLIENT_AUTH",
    "ALLOW_PLAINTEXT_LISTENER", "BITNAMI_DEBUG",
}  # fmt: skip
# Variable that names a file in SECRETS -> property, and whether its value is the content of the
# file, not its path.
FILES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": ("ssl.keystore.location", False),
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": ("ssl.keystore.password", True),
    "KAFKA_SSL_KEY_CREDENTIALS": ("ssl.key.password", True),
    "KAFKA_SSL_TRUSTSTORE_FILENAME": ("ssl.truststore.location", False),
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": ("ssl.truststore.password", True),
}
# Kubernetes gives every container such variables about a service that is named kafka.
OF_A_SERVICE = re.compile(r"KAFKA_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
QUORUM = ("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers")
OWN_NAMES = {"localhost", "127.0.0.1", "[::1]"}


class Translation(NamedTuple):
    """The properties, each with the variable that gives it; and what a person should know about the others."""

    settings: list[Setting]
    notes: list[str]


def translate(
    environment: Mapping[str, str],
    read_secret: Callable[[str], str],
    base: Mapping[str, str] | None = None,
    mounts: Collection[str] = (),
) -> Translation:
    """The properties that these variables set.

    `read_secret` gives the content of a file that a variable names, or raises OSError. `base`: the properties of a file
    that is mounted into the container; variables override them. `mounts`: directories on which volumes are mounted.
    Raises ConfigError, which names the variables, if they contradict each other or need what is not there.
    """
    found = _from_files(environment, read_secret) | _properties(environment)
    _must_agree(found, environment)
    was_kraft = any(name in found for name in QUORUM)
    notes = _without_quorum(found)
    is_bitnami = _is_bitnami(environment)
    if is_bitnami:
        _bitnami_security(found, environment)

    given = {**(base or {}), **{name: setting.text for name, setting in found.items()}}
    defaults = _defaults(given, mounts, is_bitnami=is_bitnami) | _defaults_of_ids(given, was_kraft=was_kraft)
    settings = [*found.values(), *(Setting(name, text, IMAGE) for name, text in defaults.items())]
    return Translation(settings, notes + _ignored(environment))


def property_of(variable: str) -> str | None:
    """The property that a variable sets; None for one that sets none."""
    if variable in NO_PROPERTIES | OF_BITNAMI | FILES.keys() or OF_A_SERVICE.fullmatch(variable):
        return None
    prefix = BITNAMI_PREFIX if variable.startswith(BITNAMI_PREFIX) else PREFIX
    name = variable.removeprefix(prefix)
    if name == variable or not name:
        return None
    return re.sub("_+", lambda run: PUNCTUATION.get(len(run[0]), run[0]), name).lower()


def _properties(environment: Mapping[str, str]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for variable in sorted(environment):
        name = property_of(variable)
        if name is None:
            continue
        setting = Setting(name, environment[variable].strip(), variable)
        other = found.setdefault(name, setting)
        if other.text != setting.text:
            raise ConfigError([f"{other.origin}={other.text} and {variable}={setting.text} contradict each other"])
    return found


def _from_files(environment: Mapping[str, str], read_secret: Callable[[str], str]) -> dict[str, Setting]:
    found = {}
    for variable, (name, is_content) in FILES.items():
        if variable not in environment:
            continue
        path = SECRETS + environment[variable]
        try:
            text = read_secret(path).rstrip("\r\n") if is_content else path
        except OSError as error:
            raise ConfigError([f"{variable}={environment[variable]}: {path}: {error.strerror}"]) from None
        found[name] = Setting(name, text, variable)
    return found


def _must_agree(found: Mapping[str, Setting], environment: Mapping[str, str]) -> None:
    """ConfigError for variables that contradict each other."""
    node = found.get("node.id")
    broker = found.get("broker.id")
    if node is not None and broker is not None and node.text != broker.text:
        raise ConfigError([f"{node.origin}={node.text} and {broker.origin}={broker.text} are the same id"])

    roles = found.get("process.roles")
    zookeeper = found.get("zookeeper.connect")
    kraft = environment.get("KAFKA_ENABLE_KRAFT", "").lower()
    if zookeeper is None or not zookeeper.text or names_this_container(zookeeper.text):
        return
    for variable, wants in ((roles and roles.origin, True), ("KAFKA_ENABLE_KRAFT", kraft in ("yes", "true"))):
        if variable and wants:
            raise ConfigError(
                [f"{variable} asks for KRaft mode, and {zookeeper.origin}={zookeeper.text} for ZooKeeper: remove one"]
            )


def names_this_container(connect: str) -> bool:
    """Whether a `zookeeper.connect` names a server in the container itself, where this image has none."""
    hosts = [part.rpartition(":")[0] or part for part in connect.partition("/")[0].split(",")]
    return all(host.strip() in OWN_NAMES for host in hosts)


def _without_quorum(found: dict[str, Setting]) -> list[str]:
    """Takes out what asks for a controller of this one server, and says so. ConfigError: more than that is asked."""
    notes = []
    roles = {role.strip() for role in found["process.roles"].text.split(",")} if "process.roles" in found else None
    if roles is not None and "broker" not in roles:
        raise ConfigError([f"{found['process.roles'].origin}: a controller alone: brokers of this image need none"])
    voters = found.get("controller.quorum.voters")
    if (voters is not None and "," in voters.text) or roles == {"broker"}:
        named = " and ".join(found[name].origin for name in QUORUM if name in found)
        raise ConfigError(
            [
                f"{named}: a cluster in KRaft mode, which Barnabas does not have: start one broker with "
                "KAFKA_PROCESS_ROLES=broker,controller, or brokers with KAFKA_ZOOKEEPER_CONNECT"
            ]
        )

    dropped = [found.pop(name).origin for name in QUORUM if name in found]
    if dropped:
        notes.append(f"one broker alone needs no controller: {', '.join(dropped)} left out")
    zookeeper = found.get("zookeeper.connect")
    if zookeeper is not None and zookeeper.text and names_this_container(zookeeper.text):
        notes.append(f"{zookeeper.origin}={zookeeper.text}: this image has no ZooKeeper, one broker alone needs none")
        del found["zookeeper.connect"]
    return notes


def _is_bitnami(environment: Mapping[str, str]) -> bool:
    return any(name.startswith(BITNAMI_PREFIX) or name in OF_BITNAMI for name in environment)


def _bitnami_security(found: dict[str, Setting], environment: Mapping[str, str]) -> None:
    """Adds the users and the stores that Bitnami's image finds without a property."""
    texts = {name: setting.text for name, setting in found.items()}
    secured = _protocols(texts)
    if any(protocol.endswith("SSL") for protocol in secured.values()):
        _bitnami_stores(found, environment)
    logins = [name for name, protocol in secured.items() if protocol.startswith("SASL_")]
    users = environment.get("KAFKA_CLIENT_USERS", "")
    if not logins or not users:
        return

    mechanisms = texts.get("sasl.enabled.mechanisms", "PLAIN").upper().split(",")
    if mechanisms != ["PLAIN"]:
        named = ", ".join(mechanisms)
        raise ConfigError([f"KAFKA_CLIENT_USERS gives users of PLAIN only, not of {named}: barnabas store scram add"])
    names = _items(users)
    passwords = _items(environment.get("KAFKA_CLIENT_PASSWORDS", ""))
    if len(names) != len(passwords):
        raise ConfigError([f"KAFKA_CLIENT_USERS has {len(names)} names, KAFKA_CLIENT_PASSWORDS {len(passwords)}"])
    jaas = _jaas(dict(zip(names, passwords, strict=True)), environment)
    for listener in logins:
        name = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        found.setdefault(name, Setting(name, jaas, "KAFKA_CLIENT_USERS"))
    found.setdefault("sasl.enabled.mechanisms", Setting("sasl.enabled.mechanisms", "PLAIN", "KAFKA_CLIENT_USERS"))


def _bitnami_stores(found: dict[str, Setting], environment: Mapping[str, str]) -> None:
    kind = environment.get("KAFKA_TLS_TYPE", "JKS").upper()
    password = environment.get("KAFKA_CERTIFICATE_PASSWORD")
    for store in ("keystore", "truststore"):
        file = f"{BITNAMI_CERTIFICATES}kafka.{store}.{kind.lower()}"
        for name, text in (
            (f"ssl.{store}.location", file),
            (f"ssl.{store}.type", kind),
            (f"ssl.{store}.password", password if kind == "JKS" else None),
        ):
            if text is not None:
                found.setdefault(name, Setting(name, text, "KAFKA_TLS_TYPE"))
    if client_auth := environment.get("KAFKA_TLS_CLIENT_AUTH"):
        found.setdefault("ssl.client.auth", Setting("ssl.client.auth", client_auth, "KAFKA_TLS_CLIENT_AUTH"))


def _jaas(users: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """A login module of PLAIN with these users, and with the one as whom brokers log in to each other."""
    entries = {f"user_{name}": password for name, password in users.items()}
    own = environment.get("KAFKA_INTER_BROKER_USER")
    if own:
        password = environment.get("KAFKA_INTER_BROKER_PASSWORD", "")
        entries = {"username": own, "password": password, f"user_{own}": password, **entries}
    texts = [f"{name}={_quoted(text)}" for name, text in entries.items()]
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {' '.join(texts)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _items(text: str) -> list[str]:
    return [part for part in re.split("[,;]", text) if part]


def _protocols(texts: Mapping[str, str]) -> dict[str, str]:
    """The security protocol of each listener, by its name."""
    mapped = dict(part.strip().split(":", 1) for part in _items(texts.get("listener.security.protocol.map", "")))
    names = [part.partition("://")[0].strip() for part in _items(texts.get("listeners", ""))]
    return {name: mapped.get(name, name).upper() for name in names}


def _defaults(given: Mapping[str, str], mounts: Collection[str], *, is_bitnami: bool) -> dict[str, str]:
    """What the images set where neither a variable nor a file does."""
    defaults = {}
    advertised = given.get("advertised.listeners")
    if not given.get("listeners"):
        # The images listen at the advertised ports, on every address of the container.
        everywhere = re.sub(r"://(\[[^\]]*\]|[^:,]*):", "://0.0.0.0:", advertised or "")
        defaults["listeners"] = everywhere or "PLAINTEXT://:9092"
        # Bitnami's image advertises the name of the container instead, which other containers can
        # resolve.
        if not advertised and not is_bitnami:
            defaults["advertised.listeners"] = "PLAINTEXT://localhost:9092"
    if not given.get("log.dirs") and not given.get("log.dir"):
        mounted = (data for place, data in MOUNTED.items() if {place, data} & set(mounts))
        defaults["log.dirs"] = next(mounted, DATA)
    return defaults


def _defaults_of_ids(given: Mapping[str, str], *, was_kraft: bool) -> dict[str, str]:
    """In KRaft mode a server has any id from 0; with ZooKeeper those above 1000 are kept for the ones it generates."""
    has_id = "node.id" in given or "broker.id" in given
    is_open = "broker.id.generation.enable" not in given and "reserved.broker.max.id" not in given
    return {"broker.id.generation.enable": "false"} if was_kraft and has_id and is_open else {}


def _ignored(environment: Mapping[str, str]) -> list[str]:
    """A note about the variables without effect; and one about a file of logins that is not read."""
    ids = [name for name in ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID") if name in environment]
    others = sorted(
        name for name in environment if name not in ids and (name in NO_PROPERTIES or OF_A_SERVICE.fullmatch(name))
    )
    notes = [f"{', '.join(ids)}: a new cluster gets an id of its own"] if ids else []
    if others:
        notes.append(f"without effect here: {', '.join(others)}")
    if "java.security.auth.login.config" in environment.get("KAFKA_OPTS", ""):
        notes.append(
            "KAFKA_OPTS names a JAAS file, which is not read: set "
            "KAFKA_LISTENER_NAME_<listener>_<mechanism>_SASL_JAAS_CONFIG"
        )
    return notes
