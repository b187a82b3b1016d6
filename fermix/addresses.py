"""Which web addresses may be asked for when a model, a page or a server chose them. Pure; `public.py` asks.

What must stay true: a host has one spelling here, so that what was judged is what is called; and a number that is
neither on the public internet for certain nor a name is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, urljoin, urlsplit

import idna

from fermix.errors import Refused

URL_CHARS = 4_096
PORTS = {"http": 80, "https": 443}
FIRST_FREE_PORT = 1_024  # below it lie mail, shells and file shares, and two ports of the web

INSIDE = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "svc", "onion")
METADATA = ("metadata.goog", "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com")

CLOSED_V4 = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        ),
    )
)  # fmt: skip
"""Not public, or the same everywhere: 168.63.129.16 is where Azure tells a machine about itself."""
GLOBAL_V6 = IPv6Network("2000::/3")
CLOSED_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
"""Parts of 2000::/3 that are no public host, or that wrap an IPv4 address: Teredo and 6to4."""

_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:@]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a last label like this makes the whole an IPv4 address for a browser
_UNQUOTED = "%/:?[]@!$&'()*+,;=-._~|"


@dataclass(frozen=True, slots=True)
class Target:
    """A web address that may be asked for. `host` is ASCII, an IPv6 one without its brackets; `url` has no fragment."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who is asked: what is meant for one origin is for no other."""
        return self.scheme, self.host, self.port


def is_own(host: str) -> bool:
    """Tell whether a host of the configuration is this machine or another on the owner's network, by its spelling."""
    try:
        ip_address(host)
    except ValueError:
        name = host.lower().removesuffix(".")
        return "." not in name or any(name.endswith(f".{ending}") for ending in INSIDE)
    return not is_public(host)


def is_public(address: str) -> bool:
    """Tell whether an address, as a resolver gives it, is for certain a host on the public internet."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:  # of one network card, so of this network
            return False
        return is_public(str(found.ipv4_mapped)) if found.ipv4_mapped is not None else _is_public_v6(found)
    return found.is_global and not any(found in network for network in CLOSED_V4)


def _is_public_v6(address: IPv6Address) -> bool:
    """Everything outside 2000::/3 is private, local, reserved, or an IPv4 address in disguise."""
    is_open = address in GLOBAL_V6 and not any(address in network for network in CLOSED_V6)
    return is_open and address.is_global


def parse(url: str, base: str = "") -> Target:
    """Judge a text as a web address, relative to `base` if that is given. Names are not looked up.

    Raises: Refused with a sentence that says what to change.
    """
    _check_characters(url)
    try:
        parts = urlsplit(urljoin(base, url))
    except ValueError:
        raise _refused("it is not a web address") from None
    if parts.scheme not in PORTS:
        raise _refused("only http and https addresses can be asked for")
    if "@" in parts.netloc:
        raise _refused("leave out the user name and the password before the host")
    authority = _AUTHORITY.fullmatch(parts.netloc)
    if authority is None:
        raise _refused("its host or port is not written as it should be")
    host, port = _host(authority["host"]), _port(authority["port"], PORTS[parts.scheme])
    shown = f"[{host}]" if ":" in host else host
    place = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
    query = f"?{_quoted(parts.query)}" if parts.query else ""
    return Target(f"{parts.scheme}://{place}{_quoted(parts.path) or '/'}{query}", parts.scheme, host, port)


def _refused(reason: str) -> Refused:
    return Refused(f"web address: {reason}", user_text=f"This address cannot be fetched: {reason}.")


def _check_characters(url: str) -> None:
    if len(url) > URL_CHARS:
        raise _refused(f"it is longer than {URL_CHARS} characters")
    if "\\" in url or any(not char.isprintable() or char.isspace() for char in url):
        raise _refused("it holds a space, a backslash or an invisible character; percent-encode what belongs to it")


def _quoted(text: str) -> str:
    return quote(text, safe=_UNQUOTED)


def _port(text: str | None, usual: int) -> int:
    port = usual if text is None else int(text)
    if port not in PORTS.values() and not FIRST_FREE_PORT <= port <= 65_535:
        raise _refused(f"port {port} is not one that web pages are served on")
    return port


def _host(text: str) -> str:
    """Return the one spelling of a host. Raises: Refused."""
    if text.startswith("["):
        return _number(text[1:-1])
    name = _name(text)
    if _NUMERIC.fullmatch(name.rpartition(".")[2]):
        return _number(name)
    if "." not in name or any(name == ending or name.endswith(f".{ending}") for ending in INSIDE):
        raise _refused(f"{name} is a name inside a network, not on the public internet")
    if name in METADATA:
        raise _refused(f"{name} tells a machine about itself and is never asked")
    return name


def _name(text: str) -> str:
    """Return a name in ASCII and lower case, without the dot of the root. Raises: Refused."""
    try:
        name = text.lower() if text.isascii() else idna.encode(text, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _refused("its host is not a name that can exist") from None
    name = name.removesuffix(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, name.split("."))):
        raise _refused("its host is not a name that can exist")
    return name


def _number(text: str) -> str:
    """Return the canonical text of an IP address. Raises: Refused for other spellings and for what is not public."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        raise _refused("an IP address is written as four decimal numbers, or as IPv6 in brackets") from None
    if not is_public(str(address)):
        raise _refused(f"{address} is not an address on the public internet")
    return str(address)
