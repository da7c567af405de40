"""Who wants which items: the clients of a broker, and its neighbours.

A link must be told of an item if a source other than the neighbour behind it wants the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rangecast.model.filters.filter import Filter
from rangecast.model.members import Id
from rangecast.overlay.interest import item_of
from rangecast.overlay.strategies import Wanted

CLIENTS = ""
"""The source that isn't a link."""
Changes = tuple[list[Wanted], list[int]]
"""What comes, and the names of what goes."""


class Sources:
    """Items by name, with the sources that want them."""

    def __init__(self) -> None:
        self._wanted: dict[int, Wanted] = {}
        self._by: dict[int, dict[str, None]] = {}
        self._item_of: dict[Id, int] = {}
        """The item of each subscription of a client."""
        self._same: dict[int, dict[Id, None]] = {}
        """The subscriptions of clients that are one item."""

    # ---- clients

    def subscribed(self, given: Iterable[tuple[Id, Filter]]) -> Changes:
        """Enter subscriptions of clients; return the items that are new among these."""
        come = []
        for one, filter_ in given:
            item = item_of(filter_)
            self._item_of[one] = item.name
            same = self._same.setdefault(item.name, {})
            if not same:
                come.append(Wanted(item, filter_))
            same[one] = None
        return come, []

    def unsubscribed(self, given: Iterable[Id]) -> Changes:
        """Remove subscriptions of clients; return the items that none of them wants any more."""
        go = []
        for one in given:
            name = self._item_of.pop(one)
            same = self._same[name]
            del same[one]
            if not same:
                del self._same[name]
                go.append(name)
        return [], go

    def replaced(self, given: Iterable[tuple[Id, Filter]]) -> Changes:
        """Give subscriptions of clients other filters."""
        come: dict[int, Wanted] = {}
        go: dict[int, None] = {}
        for one, filter_ in given:
            item = item_of(filter_)
            old = self._item_of[one]
            if item.name == old:
                continue
            (added, _), (_, removed) = self.subscribed([(one, filter_)]), ([], [])
            del self._same[old][one]
            if not self._same[old]:
                del self._same[old]
                removed = [old]
            for new in added:
                if new.item.name in go:
                    del go[new.item.name]
                else:
                    come[new.item.name] = new
            for name in removed:
                if name in come:
                    del come[name]
                else:
                    go[name] = None
        return list(come.values()), list(go)

    # ---- all sources

    def change(
        self, source: str, come: Sequence[Wanted], go: Sequence[int], links: Iterable[str]
    ) -> dict[str, Changes]:
        """Let items come and go at a source; return what changes for each link but that one."""
        changes: dict[str, Changes] = {link: ([], []) for link in links if link != source}
        for one in come:
            by = self._by.setdefault(one.item.name, {})
            one = self._wanted.setdefault(one.item.name, one)
            for link, (added, _) in changes.items():
                if not by or (len(by) == 1 and link in by):
                    added.append(one)
            by[source] = None
        for name in go:
            by = self._by[name]
            del by[source]
            for link, (_, removed) in changes.items():
                if not by or (len(by) == 1 and link in by):
                    removed.append(name)
            if not by:
                del self._by[name], self._wanted[name]
        return changes

    def besides(self, link: str) -> list[Wanted]:
        """Return all items that a link must be told of."""
        return [
            one
            for name, one in self._wanted.items()
            if len(self._by[name]) > 1 or link not in self._by[name]
        ]

    def of(self, source: str) -> list[int]:
        """Return the names of the items that a source wants."""
        return [name for name, by in self._by.items() if source in by]
