"""The grammar of `sasl.jaas.config` and of JAAS files (pure): reference security.md, S.11.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="…" user_klamm="…";

A JAAS file has several of these: `context { module flag option…; module …; };`. Texts are cut into tokens as Java's
StreamTokenizer does it, with its oddities: a word that begins like a number is no word, a quoted text ends at the end
of its line, and a single slash begins a comment.

The text holds passwords. So errors name the place, and of the text only words that stand where no value can stand.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_PACKAGE = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
# With these modules a configuration that comes in by a request can run code (CVE-2023-25194,
# CVE-2025-27818, CVE-2025-27819).
DISALLOWED = ("com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule")

CLIENT = "Client"  # the context of the login to ZooKeeper, unless zookeeper.sasl.clientconfig names another
JAAS_FILE = "java.security.auth.login.config"


class JaasError(ValueError):
    """The text is no JAAS configuration, or not of this use; the message is Kafka's, and the place."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry. Its options hold passwords and are left out of `repr`."""

    module: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


class ZooKeeperContext(NamedTuple):
    """A context of the JAAS file, for the login to ZooKeeper; without modules there is no login."""

    name: str
    modules: tuple[LoginModule, ...]


def parse_jaas_config(text: str, mechanism: str) -> LoginModule:
    """`sasl.jaas.config` of this mechanism: exactly one entry, whose module is the mechanism's."""
    tokens = _Tokens(text)
    entries = []
    while not tokens.at_end:
        entries.append(_entry(tokens))
    if not entries:
        raise JaasError("Login module not specified in JAAS config")
    if len(entries) != 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    check_module(entries[0], mechanism)
    return entries[0]


def check_module(entry: LoginModule, mechanism: str) -> None:
    """JaasError unless this module is the one that serves the mechanism."""
    # These modules would be refused below as well. This message is Kafka's, which programs may look
    # for.
    if entry.module in DISALLOWED:
        raise JaasError(f"{entry.module} is not allowed.")
    if entry.module != LOGIN_MODULES.get(mechanism):
        expected = LOGIN_MODULES.get(mechanism, "no module: the mechanism is not served")
        raise JaasError(f"the login module {entry.module} does not serve {mechanism}, which needs {expected}")


def parse_jaas_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The entries of each context of a JAAS file."""
    tokens = _Tokens(text)
    contexts = dict[str, tuple[LoginModule, ...]]()
    while not tokens.at_end:
        name = tokens.take()
        if name.text is None:
            tokens.refuse(name, "JAAS file: expected the name of a context")
        if name.text in contexts:
            tokens.refuse(name, f"JAAS file: the context {name.text} is there twice")
        tokens.expect("{", f"JAAS file: expected '{{' after the context {name.text}")
        entries = []
        while not tokens.peek().is_mark("}"):
            entries.append(_entry(tokens))
        tokens.take()
        tokens.expect(";", f"JAAS file: expected ';' after the context {name.text}")
        contexts[name.text] = tuple(entries)

    return contexts


def jaas_file_in(options: str) -> str | None:
    """The path of the JAAS file that Java's options (the variable KAFKA_OPTS) name; None if they name none."""
    path = system_property(options, JAAS_FILE)
    return None if path is None else path.removeprefix("=").removeprefix("file:")


def system_property(options: str, name: str) -> str | None:
    """The value of `-Dname=value` in Java's options (the variable KAFKA_OPTS), the last one; None without it."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise JaasError(f"KAFKA_OPTS: {error}") from error
    values = [word.removeprefix(f"-D{name}=") for word in words if word.startswith(f"-D{name}=")]
    return values[-1] if values else None


def zookeeper_context(contexts: Mapping[str, tuple[LoginModule, ...]], options: str) -> ZooKeeperContext:
    """The context of the login to ZooKeeper, by the system properties that ZooKeeper's client has for it."""
    named = system_property(options, "zookeeper.sasl.clientconfig")
    name = CLIENT if named is None else named
    if name not in contexts:
        # Java's client would go on without a login, and only say so in its log.
        if named is not None:
            raise JaasError(f"zookeeper.sasl.clientconfig: there is no context {name} in the JAAS file")
        return ZooKeeperContext(name, ())
    enabled = system_property(options, "zookeeper.sasl.client")
    # Kafka does not start with this, either: its nodes in ZooKeeper would be open to everyone,
    # although the JAAS file has a login.
    if enabled is not None and enabled.lower() != "true":
        raise JaasError(
            f"zookeeper.sasl.client={enabled} disables the login to ZooKeeper, and the JAAS file has {name}"
        )
    return ZooKeeperContext(name, contexts[name])


def _entry(tokens: "_Tokens") -> LoginModule:
    module = tokens.take()
    if not module.text:
        tokens.refuse(module, "Login module not specified in JAAS config")
    flag = tokens.take()
    if flag.kind == END:
        tokens.refuse(flag, "Login module control flag not specified in JAAS config")
    if flag.text is None:
        tokens.refuse(flag, "Login module control flag is not available in the JAAS config")
    if flag.text.upper() not in FLAGS:
        shown = f" '{flag.text}'" if flag.kind == WORD else ""
        tokens.refuse(flag, f"Invalid login module control flag{shown} in JAAS config")
    options: dict[str, str] = {}
    while not (key := tokens.take()).is_mark(";"):
        if key.kind == END or key.is_mark("}"):
            tokens.refuse(key, "JAAS config entry not terminated by semi-colon")

        # A word that no `=` follows may be a part of a password that should be in quotes, so it is
        # not shown.
        if not tokens.peek().is_mark("="):
            tokens.refuse(key, "Value not specified for a key in JAAS config")
        tokens.take()
        value = tokens.take()
        if key.text is None:
            tokens.refuse(key, "a key that begins like a number, or has other characters, must be in quotes")
        if value.text is None:
            tokens.refuse(value, f"Value not specified for key '{key.text}' in JAAS config")
        options[key.text] = value.text

    return LoginModule(module.text, flag.text.upper(), options)


# -- tokens

WORD, QUOTED, NUMBER, MARK, END = "word", "quoted", "number", "mark", "end"
GRAMMAR = re.compile(
    r"""
    (?P<blank> [\0-\x20]+ | /\*.*?\*/ | //[^\n\r]* )
    | (?P<open> /\*.* )                           # a comment without its end takes all that follows
    | (?P<lone> /(?!/).?[^\n\r]* )                # the character behind the slash is not looked at, even a line's end
    | (?P<number> -?(?=[0-9.])[0-9]*\.?[0-9]* )
    | (?P<word> [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]* )
    | "(?P<double> (?: \\. | [^"\\\n\r] )* )"?
    | '(?P<single> (?: \\. | [^'\\\n\r] )* )'?
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{1,2}|[0-7]{1,2})|(?P<other>.))", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Token(NamedTuple):
    kind: str
    text: str | None  # of a word or a quoted text
    mark: str  # the character that stands for itself
    position: int

    def is_mark(self, mark: str) -> bool:
        return self.kind == MARK and self.mark == mark


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        # One token is read ahead, so that `peek` can tell an option from the end of an entry.
        self._next = self._read()

    @property
    def at_end(self) -> bool:
        return self._next.kind == END

    def peek(self) -> _Token:
        return self._next

    def take(self) -> _Token:
        token = self._next
        if token.kind != END:
            self._next = self._read()
        return token

    def expect(self, mark: str, otherwise: str) -> None:
        token = self.take()
        if not token.is_mark(mark):
            self.refuse(token, otherwise)

    def refuse(self, token: _Token, why: str) -> NoReturn:
        before = self._text[: token.position]
        line = before.count("\n") + 1
        column = token.position - before.rfind("\n")
        raise JaasError(f"{why} (line {line}, column {column})")

    def _read(self) -> _Token:
        while self._position < len(self._text):
            start = self._position
            match = GRAMMAR.match(self._text, start)
            assert match is not None, "the last alternative matches any character"
            self._position = match.end()
            match match.lastgroup:
                case "word":
                    return _Token(WORD, match["word"], "", start)
                # The pattern accepts a text whose closing quote is missing, because Java's
                # tokenizer does.
                case "double" | "single" as quote:
                    return _Token(QUOTED, _ESCAPE.sub(_unescaped, match[quote]), "", start)
                case "number":
                    return _Token(NUMBER, None, "", start)
                case "mark":
                    return _Token(MARK, None, match["mark"], start)

        return _Token(END, None, "", len(self._text))


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    return _CONTROLS.get(match["other"], match["other"])
