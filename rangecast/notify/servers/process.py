"""Process of one server: `python -m rangecast.notify.servers.process HOME WEST EAST`.

The arguments are the descriptors of its links; -1: no neighbour there. It ends when a link does.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Sequence

from rangecast.notify.messages import Message
from rangecast.notify.servers.frames import Connection, Counts, Failed, Frame, Report
from rangecast.notify.servers.server import Server
from rangecast.notify.servers.wire import EAST, HOME, WEST, Completed, Start, Tile


class _Host:
    """A server and its links."""

    def __init__(self, links: dict[int, Connection]):
        self._links = links
        self._server: Server | None = None
        self._sent = self._received = 0

    def run(self) -> None:
        """Handle messages until a link ends."""
        with selectors.DefaultSelector() as ready:
            for side, link in self._links.items():
                ready.register(link.link, selectors.EVENT_READ, side)
            while all(link.is_open for link in self._links.values()):
                for side, link in self._links.items():
                    writes = selectors.EVENT_WRITE if link.has_output else 0
                    ready.modify(link.link, selectors.EVENT_READ | writes, side)
                for key, _ in ready.select():
                    link = self._links[key.data]
                    link.flush()
                    for message in link.received():
                        self._take(key.data, message)

    def _take(self, side: int, message: Frame) -> None:
        home = self._links[HOME]
        if isinstance(message, Start):
            self._server = Server.of(message)
            return
        server = self._server
        assert server is not None
        if isinstance(message, Report):
            work, hops = tuple(server.tiler.work), tuple(server.tiler.hops)
            home.send(Counts(len(server.zone), work, hops, self._sent, self._received))
            return
        assert not isinstance(message, Message | Tile | Completed | Counts | Failed)
        self._received += side != HOME
        for to, output in server.handle(message):
            self._sent += to != HOME
            self._links[to].send(output)


def main(arguments: Sequence[str]) -> None:
    """Run a server on inherited links."""
    sockets = zip((HOME, WEST, EAST), map(int, arguments), strict=True)
    links = {side: Connection(socket.socket(fileno=link)) for side, link in sockets if link >= 0}
    try:
        _Host(links).run()
    except Exception as error:  # reported to the parent process, which raises it
        links[HOME].link.setblocking(True)
        links[HOME].send(Failed(f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
