"""Which URLs and addresses may be called (C-10).

A URL is read once, strictly, into the parts that are dialled; nothing downstream reads its text
again. What looks like a number is taken for the IPv4 address that the system would dial
(WHATWG URL, "ends in a number checker"), so that the judgement falls on that address.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

import idna

from streams.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

URL_CHARS_MAX: Final = 4_096
"""Longest URL taken. Real inbox URLs are under 500; servers commonly refuse over 8 KiB."""

SERVICE_PORTS: Final = frozenset(
    # The Fetch standard's "bad ports": mail, shells, name and file services, X11, IRC.
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102}
    | {103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427}
    | {465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989}
    | {990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665}
    | {6666, 6667, 6668, 6669, 6679, 6697, 10080}
    # What that list lacks and a webhook must not reach: coordination, containers, databases,
    # brokers, caches. Several of them read a POST's lines as commands.
    | {445, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 6379, 9042, 9092, 9093, 9200}
    | {9300, 11211, 27017}
)
"""Ports that no URL may name (field case C12): a webhook is not a port scanner."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SCHEME: Final = re.compile(r"(https?)://", re.IGNORECASE)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_TARGET_SAFE: Final = "/?:@!$&'()*+,;=-._~%[]|^"
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zs", "Zl", "Zp"})


class Origin(NamedTuple):
    """What a connection is made to: scheme, host and port.

    `host` is a lower-case ASCII name without a trailing dot, or an IP address as text, unbracketed.
    """

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedUrl:
    """A URL in the parts that are dialled and written.

    Attributes:
        origin: What is connected to.
        address: The host as an IP address, when it is one in any spelling; None for a name.
        target: Request target: path and query, percent-encoded ASCII, starting with `/`.
        authority: Value of the `Host` header: the port only where it is not the scheme's default,
            IPv6 in brackets (RFC 9110 §7.2).
    """

    origin: Origin
    address: IpAddress | None
    target: bytes
    authority: bytes


def parse_url(url: str) -> ParsedUrl:
    """Read an absolute http or https URL strictly.

    Fragments are dropped, as RFC 9110 §7.1 asks. Does not judge the address: see `admit_url`.

    Raises:
        TargetError: naming the rule broken, never repeating the URL (field case C08: it may hold a
            password).
    """
    _check_characters(url)
    scheme_match = _SCHEME.match(url)
    if scheme_match is None:
        raise TargetError("url: must start with http:// or https://")
    scheme = scheme_match[1].lower()
    authority, target = _split(url[scheme_match.end() :])
    host_text, port_text = _split_port(authority)
    address, host = _read_host(host_text)
    port = _read_port(port_text, scheme)
    shown = f"[{host}]" if isinstance(address, IPv6Address) else host
    if port != _DEFAULT_PORTS[scheme]:
        shown = f"{shown}:{port}"
    return ParsedUrl(
        origin=Origin(scheme, host, port),
        address=address,
        target=quote(target, safe=_TARGET_SAFE).encode("ascii"),
        authority=shown.encode("ascii"),
    )


def admit_url(url: str, allowed_networks: Sequence[IpNetwork]) -> ParsedUrl:
    """Read a URL and refuse it at admission if its host is an address that may not be called.

    Names are judged when they are resolved, at every new connection.

    Raises:
        TargetError: as `parse_url`, and for a forbidden address.
    """
    parsed = parse_url(url)
    reason = None if parsed.address is None else judge(parsed.address, allowed_networks)
    if reason is not None:
        raise TargetError(
            f"url: its host is a forbidden address ({reason}); OUTBOX_ALLOW_NETWORKS can allow it"
        )
    return parsed


def judge(address: IpAddress, allowed_networks: Sequence[IpNetwork]) -> str | None:
    """Say why `address` may not be called, or None when it may.

    An IPv6 address that stands for an IPv4 one (mapped, NAT64, 6to4) is judged as that one. Any
    other IPv6 address outside the global unicast space is refused unseen, so a range assigned
    tomorrow is closed until somebody opens it.

    Args:
        address: What would be dialled.
        allowed_networks: What a setting allows although it is not public.
    """
    if any(address in network for network in allowed_networks):
        return None
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return judge(inner, allowed_networks)
        return _reason(address, _FORBIDDEN_V6) or (
            None if address in _GLOBAL_UNICAST else "reserved"
        )
    return _reason(address, _FORBIDDEN_V4)


def judge_all(addresses: Iterable[IpAddress], allowed_networks: Sequence[IpNetwork]) -> str | None:
    """Say why a name with these addresses may not be called, or None when it may.

    One forbidden answer spoils the set (field case C05). Dialling only the public ones would be as
    safe on the wire, but a name that answers with both is broken or an attack, and a refusal says
    so each time, whatever order the answers came in.
    """
    for address in addresses:
        reason = judge(address, allowed_networks)
        if reason is not None:
            return reason
    return None


def _check_characters(url: str) -> None:
    if len(url) > URL_CHARS_MAX:
        raise TargetError(f"url: must be at most {URL_CHARS_MAX} characters")
    if "\\" in url:
        raise TargetError("url: must not contain a backslash")
    for character in url:
        # ASCII first: the tables of unicodedata are for the rare rest.
        if character <= " " or character == "\x7f":
            raise TargetError("url: must not contain spaces or control characters")
        if character > "\x7f" and (
            character == "\ufeff" or unicodedata.category(character) in _FORBIDDEN_CATEGORIES
        ):
            raise TargetError("url: must not contain spaces or control characters")


def _split(rest: str) -> tuple[str, str]:
    """Split what follows `scheme://` into authority and request target, dropping the fragment."""
    rest = rest.partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, target = rest[:end], rest[end:]
    if "@" in authority:
        raise TargetError("url: must not contain user info; name a secret of the target instead")
    return authority, target if target.startswith("/") else "/" + target


def _split_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        literal, bracket, after = authority.partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise TargetError("url: after an IPv6 host in brackets only a port may follow")
        return literal + bracket, after[1:]
    host, _, port = authority.partition(":")
    if ":" in port:
        raise TargetError("url: the port must be 1 to 65535 in ASCII digits, and IPv6 in brackets")
    return host, port


def _read_port(text: str, scheme: str) -> int:
    if not text:
        return _DEFAULT_PORTS[scheme]  # RFC 3986 §3.2.3: an empty port means the default
    port = int(text) if _PORT.fullmatch(text) else 0
    if not 1 <= port <= 65_535:
        raise TargetError("url: the port must be 1 to 65535, in ASCII digits")
    if port in SERVICE_PORTS:
        raise TargetError("url: the port belongs to another service and may not be called")
    return port


def _read_host(text: str) -> tuple[IpAddress | None, str]:
    """Read a host as the address it means, or as a name, with its canonical text."""
    if "%" in text:
        raise TargetError("url: the host must not contain a zone id or percent-encoding")
    if text.startswith("["):
        try:
            literal = IPv6Address(text[1:-1])
        except ValueError:
            raise TargetError("url: the host in brackets must be an IPv6 address") from None
        return literal, str(literal)
    name = _to_ascii(text).lower().removesuffix(".")
    if not name:
        raise TargetError("url: the host must not be empty")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        address = _read_ipv4(labels)
        return address, str(address)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise TargetError(
            "url: the host must be a DNS name: labels of 1 to 63 letters, digits, '-' or '_'"
        )
    return None, name


def _to_ascii(host: str) -> str:
    """Map a host to ASCII by UTS #46, which also turns wide digits and dots into plain ones.

    An ASCII host passes as it is: `idna` would refuse the underscores of real internal names.
    """
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True, std3_rules=True, transitional=False).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise TargetError("url: the host is not a valid internationalised name") from None


def _read_ipv4(labels: list[str]) -> IPv4Address:
    """Read one to four numbers, each decimal, octal (0…) or hex (0x…), as `inet_aton` does."""
    rule = TargetError("url: a host that ends in a number must be a whole IPv4 address")
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise rule
    try:
        *heads, last = (_read_number(label) for label in labels)
    except ValueError:  # an 8 or 9 in an octal number
        raise rule from None
    if any(head > 255 for head in heads) or last >= 256 ** (4 - len(heads)):
        raise rule
    return IPv4Address(sum(head << (24 - 8 * at) for at, head in enumerate(heads)) + last)


def _read_number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Give the IPv4 address that dialling `address` would reach, if it stands for one."""
    number = int(address)
    if address in _MAPPED or address in _NAT64:  # RFC 4291 §2.5.5.2, RFC 6052
        return IPv4Address(number & 0xFFFF_FFFF)
    if address in _6TO4:  # RFC 3056
        return IPv4Address((number >> 80) & 0xFFFF_FFFF)
    return None


def _reason(address: IpAddress, table: tuple[tuple[IpNetwork, str], ...]) -> str | None:
    return next((reason for network, reason in table if address in network), None)


def _table(*rows: tuple[str, str]) -> tuple[tuple[IpNetwork, str], ...]:
    return tuple((ip_network(network), reason) for network, reason in rows)


_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")

# IANA's special-purpose registries, and the clouds' metadata services; the first match counts, so
# narrow rows come first. Python's `is_global` is not used: 3.11 calls fec0::/10 and NAT64 global.
_FORBIDDEN_V4: Final = _table(
    ("169.254.169.254/32", "metadata"),  # most clouds
    ("169.254.170.2/32", "metadata"),  # AWS ECS credentials
    ("100.100.100.200/32", "metadata"),  # Alibaba
    ("168.63.129.16/32", "metadata"),  # Azure's host, in public space
    ("192.0.0.192/32", "metadata"),  # Oracle
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "carrier_nat"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link_local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "reserved"),  # 6to4 relays, RFC 7526
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
)

_FORBIDDEN_V6: Final = _table(
    ("fd00:ec2::254/128", "metadata"),  # AWS
    ("fd20:ce::254/128", "metadata"),  # Google
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::/96", "reserved"),  # IPv4-compatible, RFC 4291 §2.5.5.1: deprecated, and no route for it
    (
        "64:ff9b:1::/48",
        "private",
    ),  # local NAT64, RFC 8215: where the IPv4 stands is a site's choice
    ("2001::/32", "reserved"),  # Teredo: hides two IPv4 addresses, serves no one
    ("2001:2::/48", "benchmarking"),
    ("2001:db8::/32", "documentation"),
    ("2001::/23", "reserved"),  # IETF protocol assignments: anycast services, ORCHID
    ("3ffe::/16", "reserved"),  # 6bone, given back
    ("3fff::/20", "documentation"),
    ("fc00::/7", "unique_local"),
    ("fe80::/10", "link_local"),
    ("fec0::/10", "site_local"),
    ("ff00::/8", "multicast"),
)
