"""A follower of the server of an episode, behind a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.chaos.history import BrokenPromiseError
from tests.soak.chaos.processes import until
from tests.soak.chaos.wire import ask
from tests.soak.link_kills import Proxy

if TYPE_CHECKING:
    from tests.soak.chaos.episode import SingleEpisode

SOON = 60.0


class Copy:
    """The follower: harmed, healed, and compared with its leader."""

    def __init__(self, play: SingleEpisode):
        self._play = play
        self._proxy = Proxy(play.main.port)
        leader = f"http://127.0.0.1:{self._proxy.port}"
        self.server = play.server("f", "--follow", leader, is_copy=True)
        play.start(self.server)

    def harm(self, what: str) -> None:
        """Do some harm."""
        if what in ("kill", "power"):
            self._play.kill(self.server, is_power=what == "power")
        elif what == "term":
            self._play.term(self.server)
        elif what == "full":
            self.server.control.set(room=0)
        elif what == "cut":
            self._proxy.cut()
        else:
            self._proxy.flows.clear()

    def heal(self) -> None:
        """End all harm; look at the copy if it is down."""
        self.server.control.heal()
        self._proxy.heal()
        if self.server.code() is not None:
            self._play.check(self.server)
            self._play.start(self.server)

    def finish(self) -> None:
        """Wait until the copy is whole, then end it."""
        self.heal()
        last = self._play.get(self._play.main, "status")["durable_seq"]

        def is_whole() -> bool:
            status = ask(self.server, "GET", "status")
            return status.status == 200 and status.body["durable_seq"] >= last

        if not until(is_whole, SOON, 0.1):
            status = ask(self.server, "GET", "status").body
            raise BrokenPromiseError(
                "follows", f"the follower isn't at {last} after {SOON:.0f} s: {status}"
            )
        self._play.term(self.server)
        self._proxy.end()

    def check(self) -> None:
        """Compare the logs of both, which are down: the leader may have acknowledgements since."""
        main = self._play.main
        self._play.check(self.server, copy=[self.server.name, main.name], is_whole=False)
