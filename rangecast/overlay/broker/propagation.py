"""Propagation: does every broker know a subscription?

A token follows the interest that it closes over every link, and comes back once all further links
have confirmed. A broker answers only if it has the version that the question names, so a lost frame
is asked for again, and the question comes again until it is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rangecast.errors import UsageError
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.interest.sources import CLIENTS

Question = tuple[str, tuple[str, int]]
"""Link to query, token, and the version that its neighbour must know."""
Answer = tuple[str, str]
"""The asking link or client, and its token."""


_LATER = -1
"""Version that a neighbour must know while not everything is advertised."""


@dataclass(slots=True)
class _Open:
    """A pending query."""

    asker: str
    """A link, or `CLIENTS`."""
    token: str
    """Token of the asker."""
    waits: dict[str, int]
    """By link: the version that its neighbour must know."""


class Propagation:
    """Pending queries, by their token on the links of this broker."""

    def __init__(self, prefix: str, max_questions: int):
        self._prefix = prefix
        self._max_questions = max_questions
        """Maximum pending queries per asker."""
        self._waiting: Counter[str] = Counter()
        """Number of pending queries by asker."""
        self._count = 0
        self._put_off = 0
        """Lower bound on the queries that wait until everything is advertised."""
        self._open: dict[str, _Open] = {}

    def ask(self, token: str, links: Iterable[Link]) -> tuple[list[Question], list[Answer]]:
        """Register a query of a client."""
        if self._waiting[CLIENTS] >= self._max_questions:
            raise UsageError(
                f"{self._max_questions:,} questions are pending, the maximum\n"
                "  hint: wait for some IsPropagated, or raise Settings.max_questions"
            )
        self._count += 1
        return self._begin(f"{self._prefix}/{self._count}", CLIENTS, token, links)

    def asked(
        self, token: str, asker: str, links: Iterable[Link]
    ) -> tuple[list[Question], list[Answer]] | None:
        """Register a query of a neighbour, new or repeated; `None` if too many are pending."""
        if token in self._open:
            return [], []
        if self._waiting[asker] >= self._max_questions:
            return None
        return self._begin(token, asker, token, (link for link in links if link.name != asker))

    def _begin(
        self, key: str, asker: str, token: str, links: Iterable[Link]
    ) -> tuple[list[Question], list[Answer]]:
        waits = {
            link.name: _LATER if link.is_advertising else link.advertised.version
            for link in links
            if not link.is_bypassed
        }
        if not waits:
            return [], [(asker, token)]
        self._open[key] = _Open(asker, token, waits)
        self._waiting[asker] += 1
        asked = [(name, (key, version)) for name, version in waits.items() if version != _LATER]
        self._put_off += len(waits) - len(asked)
        return asked, []

    def wait_for(self, link: Link) -> None:
        """Make all queries wait for one more link; they are sent when it is up."""
        for propagation in self._open.values():
            if propagation.asker != link.name:
                propagation.waits.setdefault(link.name, link.advertised.version)

    @property
    def has_put_off(self) -> bool:
        """Whether queries wait until everything is advertised."""
        return self._put_off > 0

    def all_advertised(self, link: Link) -> list[Question]:
        """Return the queries that waited until everything was advertised over a link."""
        tokens = []
        for key, propagation in self._open.items():
            if propagation.waits.get(link.name) == _LATER:
                propagation.waits[link.name] = link.advertised.version
                tokens.append((link.name, (key, link.advertised.version)))
        self._put_off = sum(
            _LATER in propagation.waits.values() for propagation in self._open.values()
        )
        return tokens

    def answered(self, token: str, link: str) -> list[Answer]:
        """Record a neighbour's confirmation; return the resulting answers."""
        propagation = self._open.get(token)
        if propagation is None:
            return []
        propagation.waits.pop(link, None)
        return [] if propagation.waits else [self._close(token)]

    def forget(self, link: str) -> list[Answer]:
        """Drop a link permanently, so that no query waits for it; return the resulting answers."""
        self.restarted(link)
        for propagation in self._open.values():
            propagation.waits.pop(link, None)
        closed = [key for key, propagation in self._open.items() if not propagation.waits]
        return [self._close(key) for key in closed]

    def _close(self, key: str) -> Answer:
        propagation = self._open.pop(key)
        self._waiting[propagation.asker] -= 1
        return propagation.asker, propagation.token

    def restarted(self, link: str) -> None:
        """Drop the queries of a neighbour that has forgotten them."""
        self._open = {
            key: propagation for key, propagation in self._open.items() if propagation.asker != link
        }
        del self._waiting[link]

    def open(self, links: Mapping[str, Link]) -> list[Question]:
        """Return all pending queries, to be sent again."""
        return [
            (name, (key, version))
            for key, propagation in self._open.items()
            for name, version in propagation.waits.items()
            if name in links and version != _LATER
        ]
