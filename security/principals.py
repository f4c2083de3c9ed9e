"""Who a connection is (pure): principals, the name in a client's certificate, and what rules make of that name.

A principal is written `Type:name`. A client with a TLS certificate is `User:` and the certificate's distinguished name
in the form that Java's X500Principal.getName() has, because super.users and ACLs of existing clusters contain that form
(RFC 2253, with more escapes). `ssl.principal.mapping.rules` replaces it (KIP-371). Reference security.md, S.1 and S.5.
"""

import re
import warnings
from typing import NamedTuple

from barnabas.security.der import OID, SEQUENCE, SET, DerError, Element, elements, expected, oid_text, subject_of

USER = "User"


class KafkaPrincipal(NamedTuple):
    """A principal, compared exactly, in both parts."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")


def parse_principal(text: str) -> KafkaPrincipal:
    """`Type:name`, separated by the first colon; either part may be empty. ValueError without a colon."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(kind, name)


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """`super.users`: principals separated by `;`, because distinguished names have commas."""
    parts = text.split(";")
    while parts and not parts[-1]:  # as Java splits
        parts.pop()
    return frozenset(parse_principal(part.strip()) for part in parts)


# -- the name in a certificate

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Java decodes all of these as UTF-8, also those with other encodings; values of other types are written as bytes.
TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})  # UTF8, Printable, T61, IA5, General, BMP
ESCAPED = re.compile(r'[,=+<>#;"\\]')
BLANKS = " \r"


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Java writes it; DerError when it is malformed."""
    relative = [_relative_name(each) for each in elements(subject_of(certificate))]
    return ",".join(reversed(relative))


def _relative_name(relative: Element) -> str:
    if relative.tag != SET:
        raise DerError("a relative distinguished name is no set")
    return "+".join(_attribute(each) for each in elements(relative.content))


def _attribute(attribute: Element) -> str:
    if attribute.tag != SEQUENCE:
        raise DerError("an attribute is no sequence")
    parts = elements(attribute.content)
    oid = oid_text(expected(parts, OID).content)
    value = next(parts, None)
    if value is None or next(parts, None) is not None:
        raise DerError("an attribute does not have exactly one value")
    if oid not in KEYWORDS or value.tag not in TEXT_TAGS:
        return f"{KEYWORDS.get(oid, oid)}=#{value.encoded.hex()}"
    return f"{KEYWORDS[oid]}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    text = ESCAPED.sub(r"\\\g<0>", text).replace("\0", "\\00")
    inner = text.strip(BLANKS)
    if len(inner) == len(text):
        return text
    leading = len(text) - len(text.lstrip(BLANKS)) if inner else len(text)
    blanks = [f"\\{each}" for each in text[:leading] + text[leading + len(inner) :]]
    return "".join([*blanks[:leading], inner, *blanks[leading:]])


# -- rules

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"  # Kafka's
_RULE_IN_LIST = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_GROUP = re.compile(r"\\(.)|\$([0-9]+)|(\$)", re.DOTALL)
# Java's `.` matches none of these characters, Python's matches all but the first.
_LINE_ENDS = re.compile("[\n\r\x85\u2028\u2029]")


class NoMatchingRule(ValueError):
    """No rule makes a name of this distinguished name, so its connection is refused."""


class Rule(NamedTuple):
    """One rule: names that match the pattern as a whole are replaced. Without a pattern every name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[str | int, ...] = ()  # text, and numbers of groups
    case: str = ""  # L or U

    def apply(self, name: str) -> str | None:
        """The name that this rule makes; None if it does not match."""
        if self.pattern is None:
            return name
        if _LINE_ENDS.search(name) or not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self._expanded, name)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped

    def _expanded(self, match: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.replacement)


class MappingRules(NamedTuple):
    """`ssl.principal.mapping.rules`."""

    text: str
    rules: tuple[Rule, ...]

    def name_of(self, distinguished_name: str) -> str:
        """What the first rule that matches makes of this name. NoMatchingRule also if that is empty."""
        for rule in self.rules:
            name = rule.apply(distinguished_name)
            # A rule may strip several names of everything; all their certificates would share the
            # empty name.
            if name == "":
                break
            if name is not None:
                return name
        raise NoMatchingRule(f"No rules apply to {distinguished_name!r}, rules {self.text}")


def principal_of_certificate(certificate: bytes | None, rules: MappingRules) -> KafkaPrincipal:
    """The principal of a connection with this verified certificate. ValueError when it must be refused."""
    if certificate is None:
        return ANONYMOUS
    return KafkaPrincipal(USER, rules.name_of(distinguished_name(certificate)))


def parse_mapping_rules(text: str) -> MappingRules:
    """The rules, in order; ValueError says which one is wrong."""
    parsed = map(_parse_rule, _split(text.strip()))
    return MappingRules(text, tuple(rule for rule in parsed if rule is not None))


def _split(text: str) -> list[str]:
    return [match[1] for match in _RULE_IN_LIST.finditer(text)]


def _parse_rule(text: str) -> Rule | None:
    """The rule; None for an empty one, which Kafka ignores."""
    match = re.match(_RULE, text)
    assert match is not None, "the last alternative matches the empty text"
    if match.end() != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    if match[1] is not None:
        return Rule()
    if match[2] is None:
        return None
    pattern = _compile(match[2], text)
    return Rule(pattern, tuple(_parse_replacement(match[4], pattern.groups, text)), match[6])


def _compile(pattern: str, rule: str) -> re.Pattern[str]:
    """A pattern of Java as one of Python, whose meaning must be the same; ValueError where it is not known to be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # sets within sets, which Java knows
            return re.compile(pattern, re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(f"Invalid rule: `{rule}`: its pattern cannot be used here: {error}") from error


def _parse_replacement(text: str, groups: int, rule: str) -> list[str | int]:
    r"""Text and numbers of groups: `$1` is a group, `\x` is x. A group that the pattern does not have is text."""
    parts: list[str | int] = []
    position = 0
    for match in _GROUP.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        # Kafka starts with such a replacement, and then refuses each connection whose name the
        # pattern matches.
        if match[3] is not None or (match[2] is not None and not groups and match[2][0] != "0"):
            raise ValueError(f"Invalid rule: `{rule}`: its pattern has no group for `$` in the replacement")
        parts += [match[1]] if match[1] is not None else _group(match[2], groups)
    rest = text[position:]
    return [part for part in (*parts, rest) if part != ""]


def _group(digits: str, groups: int) -> list[str | int]:
    """What `$` and these digits stand for: the longest number that a group has, and text; else all of it is text."""
    number = int(digits[0])
    taken = 1
    if number > groups:
        return [f"${digits}"]
    while taken < len(digits) and number * 10 + int(digits[taken]) <= groups:
        number = number * 10 + int(digits[taken])
        taken += 1
    return [number, digits[taken:]]
