"""Sources of interest: the clients of a broker, and its neighbours.

An item is advertised over a link if a source other than the neighbour behind it wants the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.interest.items import Batch, ResolvedItem

CLIENTS = ""
"""The source that isn't a link."""
Changes = tuple[list[ResolvedItem], list[int]]
"""New items, and the names of removed ones."""


class Sources:
    """Items by name, with their sources."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.wanted: dict[int, ResolvedItem] = {}
        self._by: dict[int, tuple[str, ...]] = {}
        self._equal: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Interned tuples of sources."""
        self._item_of: dict[Id, int] = {}
        """Item of each client subscription."""
        self._same: dict[int, int] = {}
        """Number of client subscriptions per item."""

    # ---- clients

    def subscribed(self, ids: Iterable[Id], wanted: Iterable[ResolvedItem]) -> Changes:
        """Add client subscriptions; return the items that are new."""
        added = []
        for id_, what in zip(ids, wanted, strict=True):
            name = what.item.name
            self._item_of[id_] = name
            same = self._same.get(name, 0)
            self._same[name] = same + 1
            if not same:
                added.append(what)
        return added, []

    def unsubscribed(self, ids: Iterable[Id]) -> Changes:
        """Remove client subscriptions; return the items without clients."""
        return [], self._left(self._item_of.pop(id_) for id_ in ids)

    def replaced(self, ids: Iterable[Id], wanted: Iterable[ResolvedItem]) -> Changes:
        """Replace the filters of client subscriptions."""
        added: dict[int, ResolvedItem] = {}
        removed: dict[int, None] = {}
        for id_, what in zip(ids, wanted, strict=True):
            old = self._item_of[id_]
            if what.item.name == old:
                continue
            for new in self.subscribed([id_], [what])[0]:
                if new.item.name in removed:
                    del removed[new.item.name]
                else:
                    added[new.item.name] = new
            for name in self._left([old]):
                if name in added:
                    del added[name]
                else:
                    removed[name] = None
        return list(added.values()), list(removed)

    def _left(self, names: Iterable[int]) -> list[int]:
        """Remove a client from each of these items; return the items without clients."""
        removed = []
        for name in names:
            self._same[name] -= 1
            if not self._same[name]:
                del self._same[name]
                removed.append(name)
        return removed

    # ---- all sources

    def change(
        self,
        source: str,
        added: Sequence[ResolvedItem],
        removed: Sequence[int],
        links: Iterable[str],
    ) -> dict[str, tuple[Batch, Batch]]:
        """Add and remove items of a source; return the changes for each other link."""
        # Mostly an item has one source, and is new or gone for all links: they share one batch.
        new: list[ResolvedItem] = []
        gone: list[ResolvedItem] = []
        others: dict[str, tuple[list[ResolvedItem], list[ResolvedItem]]] = {}
        only = self._sources((source,))
        for item in added:
            name = item.item.name
            by = self._by.get(name)
            if by is None:
                self.wanted[name] = item
                self._by[name] = only
                new.append(item)
                continue
            if len(by) == 1:
                others.setdefault(by[0], ([], []))[0].append(self.wanted[name])
            self._by[name] = self._sources((*by, source))
        for name in removed:
            by = self._by[name]
            if by == only:
                del self._by[name]
                gone.append(self.wanted.pop(name))
                continue
            by = self._by[name] = self._sources(tuple(item for item in by if item != source))
            if len(by) == 1:
                others.setdefault(by[0], ([], []))[1].append(self.wanted[name])
        all_new, all_gone = Batch(self._space, new), Batch(self._space, gone)
        changes = {}
        for link in links:
            if link == source:
                continue
            changes[link] = all_new, all_gone
            if link in others:
                more, less = others[link]
                changes[link] = Batch(self._space, new + more), Batch(self._space, gone + less)
        return changes

    def besides(self, link: str) -> Batch:
        """Return all items that are advertised over a link."""
        only = (link,)
        items_of = [items for name, items in self.wanted.items() if self._by[name] != only]
        return Batch(self._space, items_of)

    def _sources(self, by: tuple[str, ...]) -> tuple[str, ...]:
        """Return the interned tuple that equals this one."""
        return self._equal.setdefault(by, by)
