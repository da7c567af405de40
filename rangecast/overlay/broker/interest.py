"""Interest of clients and of neighbours, and the advertisements that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from rangecast.errors import UsageError
from rangecast.model.sets.members import Id
from rangecast.model.validation.inputs import as_boxes, as_filter
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.state import BrokerState
from rangecast.overlay.interest.items import (
    Batch,
    ResolvedItem,
    wanted_of,
    wanted_of_boxes,
    with_local_words,
)
from rangecast.overlay.interest.sources import CLIENTS
from rangecast.overlay.interest.strategies import strategy_of
from rangecast.overlay.wire.frames import MAX_CONTENT, Interest, Resync, Snapshot, Why, item_size
from rangecast.overlay.wire.packing import pack, pack_many


class InterestHandlers(BrokerState):
    """Handlers of changes of interest, by clients and by neighbours."""

    # ---- clients

    def _subscribe(self, now: float, input_: ports.Subscribe) -> None:
        named, exact = self._client_items(input_.subscriptions)
        ids = self._members.new_many(list(named))
        self._members.bind_many(ids, [0] * len(ids))
        if self._delivers:
            self._clients.change(dict(zip(ids, exact, strict=True)))
        self._spread(now, CLIENTS, self._sources.subscribed(ids, named.values()))

    def _unsubscribe(self, now: float, input_: ports.Unsubscribe) -> None:
        self._members.release_many(input_.subscriptions)
        ids = list(dict.fromkeys(input_.subscriptions))
        if self._delivers:
            self._clients.change({}, ids)
        self._spread(now, CLIENTS, self._sources.unsubscribed(ids))

    def _replace(self, now: float, input_: ports.Replace) -> None:
        named, exact = self._client_items(input_.subscriptions)
        ids, _ = self._members.known_many(list(named))
        if self._delivers:
            self._clients.change(dict(zip(ids, exact, strict=True)))
        self._spread(now, CLIENTS, self._sources.replaced(ids, named.values()))

    def _client_items(self, value: Any) -> tuple[dict[Id, ResolvedItem], list[bytes]]:
        """Return client subscriptions as items, by id, and the packed exact boxes of each.

        Deliveries are verified with the boxes, which have all conditions; items don't.
        """
        if isinstance(value, Mapping):
            filters = {name: as_filter(what, self.space) for name, what in value.items()}
            named = {name: wanted_of(filter_) for name, filter_ in filters.items()}
            exact = [pack(filter_.boxes) for filter_ in filters.values()]
        else:
            boxes = as_boxes(value, self.space)
            named = dict(
                zip(boxes.ids.to_pylist(), wanted_of_boxes(boxes, self.space), strict=True)
            )
            if len(named) < boxes.rows:
                self._members.new_many(boxes.ids)  # rejects an id that is there twice
            exact = pack_many(boxes)
        for name, wanted in named.items():
            if item_size(wanted.item) > MAX_CONTENT:
                raise UsageError(
                    f"the filter of subscription {name!r:.80} takes {item_size(wanted.item):,} "
                    f"bytes, more than a frame can hold\n  expected: at most {MAX_CONTENT:,}\n"
                    "  hint: split it into several subscriptions; nothing was changed"
                )
        return named, exact

    # ---- neighbours

    def _choose_form(self, now: float, link: Link, cells: str) -> None:
        """Create the strategy of a link, again if the neighbour's cells have changed."""
        same = self._curve is not None and cells == self._curve.digest
        if link.out is not None:
            if same == link.same_cells:
                return
            self.counts["forms changed"] += 1
        link.same_cells = same
        sources = self._sources
        link.out = strategy_of(self.space, self._options, sources.wanted, same_cells=same)
        change_out = link.out.change(sources.besides(link.name), Batch(self.space, []))
        link.wanted = {item.name: item for item in change_out.added}
        link.recompute_pending(now + self.settings.withdraw_delay, self.settings)
        link.tell_at = now

    def _interest(self, now: float, link: Link, frame: Interest) -> None:
        settings = self.settings
        change = link.received.change_of(frame, settings.max_received, settings.max_received_bytes)
        if change is None:
            self.counts["duplicates dropped"] += 1
        elif isinstance(change, str):
            self._request_snapshot(now, link, change)
        else:
            added = with_local_words(change.added, self.space, self._curve)
            link.received.change(change.added, change.removed)
            self._enter(now, link, added, change.removed)
            self._answerable = link if link.questions else None

    def _snapshot(self, now: float, link: Link, frame: Snapshot) -> None:
        settings = self.settings
        link.asked_at = now  # it is coming: no need to ask again
        items, interrupted = link.received.stage(
            frame, settings.max_received, settings.max_received_bytes
        )
        self.counts["snapshots interrupted"] += interrupted
        if items is None:
            return
        new = items.keys() - link.received.items.keys()
        arriving = [item for name, item in items.items() if name in new] if new else []
        added = with_local_words(arriving, self.space, self._curve)
        was_known = link.is_known
        gone = link.received.swap(frame, items)
        self.counts["snapshots taken"] += 1
        self._enter(now, link, added, gone)
        self._answerable = link if link.questions else None
        if not was_known:
            self._touched[link.name] = None

    def _enter(self, now: float, link: Link, added: list[ResolvedItem], removed: list[int]) -> None:
        """Store the interest of a neighbour, and advertise it to the others."""
        link.table.change_items(Batch(self.space, added), removed)
        self._spread(now, link.name, (added, removed))

    def _spread(
        self, now: float, source: str, change: tuple[list[ResolvedItem], list[int]]
    ) -> None:
        """Advertise the changed items of a source over all links but one."""
        for name, (added, removed) in self._sources.change(source, *change, self.links).items():
            link = self.links[name]
            if link.out is None or not (len(added) or len(removed)):
                continue
            form = link.out.form
            change_out = link.out.change(added, removed)
            if len(removed) and link.out.form == form == "boxes":
                coming = set(added.names)
                exposed = [item for item in change_out.added if item.name not in coming]
                self.counts["subscriptions exposed"] += len(exposed)
            self.counts["forms changed"] += link.out.form != form
            until = now + self.settings.withdraw_delay
            self.counts["removals cancelled"] += link.want(change_out, until)
            if link.exceeds_advertised(self.settings) != link.is_full:
                link.recompute_pending(until, self.settings)
                self.counts["forms changed"] += 1
            link.tell_at = min(link.tell_at, now + self.settings.batch_delay)
            self._touched[name] = None

    def _resync(self, now: float, link: Link, frame: Resync) -> None:
        self.counts[f"resyncs by {frame.why}"] += 1
        if link.parts and self.settings.is_reliable:
            return  # one is under way
        link.parts = deque(link.snapshot(self.incarnation, self.settings.max_items))
        self._touched[link.name] = None

    def _request_snapshot(
        self, now: float, link: Link, why: Why | Literal[""], *, at_once: bool = False
    ) -> None:
        """Request a snapshot, if there is a reason and no recent request."""
        if why and (at_once or now - link.asked_at >= self.settings.retry_timeout):
            link.asked_at = now
            self._send(link, Resync(version=link.received.version, why=why))
