"""The summaries of a broker: one per link, and what to advertise to each neighbour.

The summary of a link holds what came in over it; an event goes out over the links whose summary
holds it. A neighbour must know what came in over all other links, so it hears the difference that
a change makes to their summaries (paper 004, sections 2 and 4.2): the part of the change that none
of them holds. A subscription that they cover or subsume isn't sent; and when it is
the last one that holds something, that something is just not dropped: no subscription need be sent
again later, as with the paper's passive list of whole subscriptions.

A neighbour hears ranges, not subscriptions: more to hold, and less (`RangeForward`). It applies
them to its own summary for the link and goes on in the same way. Cost: for n links at most n * n
look-ups for each part of a change, and a change that need not be sent stops at the first
summary that holds it.

Brokers that exchange ranges number the words of string attributes alike only if they share a
space. Where they don't, leave string attributes out of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from rangecast.kernels.arrays import Bool
from rangecast.merge.cells import Cells
from rangecast.merge.forward import RangeForward
from rangecast.merge.ranges import Ranges, difference, joined
from rangecast.merge.summary import Summary
from rangecast.model.boxes import id_array
from rangecast.model.encoding.events import encode_event
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import SubscriptionSet
from rangecast.model.sets.members import Id
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
    with_prefix,
    without_prefix,
)
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_points

Link = str | int
_KIND = "links"


class Links(SubscriptionSet):
    """A `Summary` per link. All have the same cells; `options` are those of `Summary`.

    `links[link]` is the summary of a link; len, `in` and iteration are over the links.
    """

    def __init__(self, space: Space, **options: Any):
        super().__init__(space, "link")
        empty = Summary(self.space, **options)
        self.cells: Cells = empty.cells
        self._options: dict[str, Any] = empty.options()
        self._summaries: dict[Link, Summary] = {}

    def __getitem__(self, link: Link) -> Summary:
        self._members.row(link)
        return self._summaries[link]

    def connect(self, link: Link) -> RangeForward:
        """Add a link; return what to advertise to the new neighbour first."""
        new = self._members.new(link, "disconnect it first")
        self._summaries[new] = Summary(self.space, cells=self.cells, **self._options)
        self._members.bind(new, 0)
        return RangeForward(add=self.known_to(new))

    def disconnect(self, link: Link) -> dict[Link, RangeForward]:
        """Remove a link and what came in over it; return what to advertise to the others."""
        lost = self[link].ranges()
        self._members.release(link)
        del self._summaries[link]
        return self._forwards(link, RangeForward(drop=lost))

    # ---- what comes in over a link: each returns what the neighbours behind the others must hear

    def subscribe(self, link: Link, subscription: Id, filter: Any) -> dict[Link, RangeForward]:  # noqa: A002
        """Add a subscription that came in over a link."""
        return self._forwards(link, self[link].subscribe(subscription, filter))

    def unsubscribe(self, link: Link, subscription: Id) -> dict[Link, RangeForward]:
        """Remove a subscription that came in over a link."""
        return self._forwards(link, self[link].unsubscribe(subscription))

    def replace(self, link: Link, subscription: Id, filter: Any) -> dict[Link, RangeForward]:  # noqa: A002
        """Replace the filter of a subscription that came in over a link."""
        return self._forwards(link, self[link].replace(subscription, filter))

    def upsert(self, link: Link, subscription: Id, filter: Any) -> dict[Link, RangeForward]:  # noqa: A002
        """Add a subscription that came in over a link, or replace the one with this id."""
        return self._forwards(link, self[link].upsert(subscription, filter))

    def subscribe_many(
        self, link: Link, subscriptions: Any, *, rejected: RejectedTarget = None
    ) -> dict[Link, RangeForward]:
        """Add subscriptions received over a link; return the net change to advertise by link."""
        return self._changed(link, lambda to: to.subscribe_many(subscriptions, rejected=rejected))

    def unsubscribe_many(self, link: Link, subscriptions: Iterable[Id]) -> dict[Link, RangeForward]:
        """Remove subscriptions received over a link; return the net change to advertise by link."""
        return self._changed(link, lambda summary: summary.unsubscribe_many(subscriptions))

    def replace_many(
        self, link: Link, subscriptions: Any, *, rejected: RejectedTarget = None
    ) -> dict[Link, RangeForward]:
        """Replace the filters of subscriptions of a link; the net change is advertised at once."""
        return self._changed(link, lambda to: to.replace_many(subscriptions, rejected=rejected))

    def upsert_many(
        self, link: Link, subscriptions: Any, *, rejected: RejectedTarget = None
    ) -> dict[Link, RangeForward]:
        """Add or replace subscriptions of a link; the net change is advertised at once."""
        return self._changed(link, lambda to: to.upsert_many(subscriptions, rejected=rejected))

    def apply(self, link: Link, forward: RangeForward) -> dict[Link, RangeForward]:
        """Apply a change that the neighbour behind a link sent."""
        return self._forwards(link, self[link].apply(forward))

    # ---- questions

    def known_to(self, link: Link) -> Ranges:
        """Return the ranges advertised over a link: the union of all other links' summaries."""
        self._members.row(link)
        return joined(
            [summary.ranges() for other, summary in self._summaries.items() if other != link]
        )

    def links_for(self, event: Mapping[str, Any], incoming: Link | None = None) -> list[Link]:
        """Return the links to send an event over, other than its incoming link."""
        key = self.cells.places(encode_event(event, self.space)[None])
        return [
            link
            for link, summary in self._summaries.items()
            if link != incoming and summary.contains_cells(key)[0]
        ]

    def links_for_many(self, events: Any) -> dict[Link, Bool]:
        """Return for each link whether to send each event over it; see `Summary.may_match_many`."""
        places = self.cells.places(as_points(events, self.space))
        return {link: summary.contains_cells(places) for link, summary in self._summaries.items()}

    @property
    def memory(self) -> int:
        """Bytes of all summaries."""
        return sum(summary.memory for summary in self._summaries.values())

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        arrays = {**self.cells.arrays(), **id_buffers(id_array(list(self)))}
        for number, summary in enumerate(self._summaries.values()):
            arrays |= with_prefix(f"{number}.", summary.arrays())
        meta = space_meta(self.space) | self._options
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the links of a snapshot."""
        arrays, meta = load_arrays(path, _KIND)
        space, cells = space_of_meta(meta), Cells.of_arrays(arrays)
        opened = cls(
            space,
            cells=cells,
            max_ranges_per_subscription=meta["max_ranges_per_subscription"],
            gap=meta["gap"],
        )
        for number, link in enumerate(ids_of_buffers(arrays).to_pylist()):
            mine = without_prefix(f"{number}.", arrays)
            opened._summaries[link] = Summary.of_arrays(space, mine, meta)
            opened._members.bind(link, 0)
        return opened

    # ---- inside

    def _changed(self, link: Link, change: Callable[[Summary], Any]) -> dict[Link, RangeForward]:
        """Apply many commands; return their net effect."""
        summary = self[link]
        before = summary.ranges()
        change(summary)
        after = summary.ranges()
        forward = RangeForward(difference(after, before), difference(before, after))
        return self._forwards(link, forward)

    def _forwards(self, changed: Link, forward: RangeForward) -> dict[Link, RangeForward]:
        """Return what to advertise over the other links after a change."""
        forwards = {}
        for link in self._summaries:
            if link != changed:
                part = RangeForward(*(self._new_to(link, changed, changes) for changes in forward))
                if part:
                    forwards[link] = part
        return forwards

    def _new_to(self, link: Link, changed: Link, ranges: Ranges) -> Ranges:
        """Return the parts that a neighbour doesn't already know through other links."""
        for other, summary in self._summaries.items():
            if other not in (link, changed) and len(ranges):
                ranges = summary.difference(ranges)
        return ranges
