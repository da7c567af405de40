"""Host checks for a server that requires no token.

A page of another site may make a browser on this machine send requests here: by a host name that
resolves to this address (DNS rebinding), or across sites. Both show in headers that a page can't
set: `Host`, `Origin` and `Sec-Fetch-Site`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

_FORM = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_MAX_KNOWN = 1000


class Peer(NamedTuple):
    """Address and origin headers of a request."""

    address: str | None
    """The address of the other side."""
    hosts: Sequence[str]
    """Its headers `Host`."""
    origin: str | None = None
    site: str | None = None
    """Its header `Sec-Fetch-Site`."""


class Hosts:
    """Distinguishes requests for this server from those made by pages of other sites."""

    def __init__(self, allowed: Iterable[str] = (), *, is_open: bool = False):
        """Accept loopback, the names in `allowed`, and (`is_open`) any literal address.

        Only a name can be made to resolve elsewhere.
        """
        self._allowed = {host.lower().strip("[]") for host in allowed}
        self.is_open = is_open
        self._known: set[str] = set()
        """Accepted headers: there are few, and parsing is slow."""

    def wrong(self, peer: Peer) -> str:
        """Return why a request is rejected without a token; empty if it is accepted."""
        for host in peer.hosts:
            if not self.accepts(host):
                return (
                    f"without tokens, this server doesn't answer as {host[:200]!r}\n"
                    "  hint: use a loopback address, start it with --allowed-host NAME, or create "
                    "a token"
                )
        if peer.origin is not None:
            name = _name(peer.origin.partition("://")[2])
            own = {_name(allowed) for allowed in peer.hosts} | self._allowed
            if name is None or name not in own:
                return f"without tokens, a page of {peer.origin[:200]!r} can't use this server"
        elif peer.site == "cross-site":
            return "without tokens, a page of another site can't use this server"
        return ""

    def accepts(self, host: str) -> bool:
        """Return whether a `Host` header names this server."""
        if host in self._known:
            return True
        name = _name(host)
        if name is None or not (name in self._allowed or self._is_ours(name)):
            return False
        if len(self._known) < _MAX_KNOWN:
            self._known.add(host)
        return True

    def _is_ours(self, name: str) -> bool:
        if name == "localhost":
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self.is_open or address.is_loopback


def _name(host: str) -> str | None:
    """Return the host of HOST or HOST:PORT; `None` if malformed."""
    match = _FORM.fullmatch(host.strip())
    return None if match is None else match[1].lower().strip("[]").removesuffix(".")
