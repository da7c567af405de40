"""URL guard: webhooks may call only addresses of the public internet.

The creator of a webhook chooses an address that the server connects to. So a name is resolved once
per attempt, all of its addresses must be global, and the connection goes to the address that was
checked: DNS rebinding gains nothing. Ports of other protocols are rejected, as a request could mean
something to a mail server or a database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from rangecast.errors import RangecastError, abbreviate

LONGEST = 2000
"""Characters of a URL."""
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_SPECIAL = IPv6Network("3fff::/20"), IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24")
"""Documents, protocols, relays: some versions of Python call them global."""
BLOCKED_PORTS = frozenset(
    {
        # those that browsers don't call: https://fetch.spec.whatwg.org/#port-blocking
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101),
        *(102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389),
        *(427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636),
        *(989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566),
        *(6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
        # file shares, remote desktops, databases, caches
        *(445, 873, 1433, 1521, 3306, 3389, 5432, 5900, 6379, 9042, 11211, 27017),
    }
)
"""Ports of other protocols than HTTP: called only where private addresses may be called."""
Resolve = Callable[[str], Awaitable[list[str]]]
"""A host to the addresses that it has."""


class AddressError(RangecastError):
    """The server may not call a URL."""


class Target(NamedTuple):
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def name(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"

    def at(self, address: str) -> str:
        """Return the URL with the host name replaced by an address."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def target_of(url: str) -> Target:
    """Return the parts of a URL; reject anything but http and https."""
    wrong = ""
    if len(url) > LONGEST:
        wrong = f"may have at most {LONGEST:,} characters"
    elif not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        wrong = "must be plain ASCII, without spaces and backslashes"
    else:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise AddressError(f"this isn't a URL: {error}\n  given: {abbreviate(url)}") from None
        if parts.scheme not in ("http", "https"):
            wrong = "must start with http:// or https://"
        elif "@" in parts.netloc:
            wrong = (
                "can't contain a user name or password: requests are authenticated by their "
                "signature"
            )
        elif not host or "%" in host or port == 0:
            wrong = "must have a host, and a port from 1 to 65535 if any"
    if wrong:
        raise AddressError(f"the URL of a webhook {wrong}\n  given: {abbreviate(url)}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or {"http": 80, "https": 443}[parts.scheme], path)


def is_global(address: str) -> bool:
    """Return whether an address is public; an address embedded in another one is checked, too."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is None and ip not in _UNICAST:
            return False
        ip = inner or ip
    is_special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL)
    return ip.is_global and not is_special


def is_private_literal(host: str) -> bool:
    """Return whether a host is a literal address that isn't public."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return not is_global(host)


def check_port(target: Target) -> None:
    """Reject ports of protocols other than HTTP."""
    if target.port in BLOCKED_PORTS:
        raise AddressError(
            f"port {target.port} is reserved for a protocol other than HTTP; the "
            "webhook is not called"
        )


async def address_of(target: Target, resolve: Resolve, *, allow_private: bool) -> str:
    """Return the address to connect to.

    A name with any non-public address is rejected, and so are ports of other protocols.
    """
    if not allow_private:
        check_port(target)
    addresses = await resolve(target.host)
    if not addresses:
        raise AddressError("the host name has no address")
    if not allow_private and not all(map(is_global, addresses)):
        # which address it is isn't said: that would be a way to look into a private network
        raise AddressError(
            "the host name has an address outside the public internet; the webhook is not called"
        )
    return addresses[0]
