"""Brokers with one mistake each, which the simulator must find: a test of the test."""

from __future__ import annotations

import msgspec

from rangecast.overlay.broker import Broker
from rangecast.overlay.interest import Change
from rangecast.overlay.items import Batch
from rangecast.overlay.links import Link
from rangecast.overlay.sources import Sources
from rangecast.overlay.strategies import Options, strategy_of


class NoStaging(Broker):
    """Takes the first part of a snapshot for all of it."""

    def _snapshot(self, now, link, frame):
        part = sum(item.name for item in frame.items) & ((1 << 63) - 1)
        if (frame.incarnation, frame.version) >= (link.heard.incarnation, link.heard.version):
            super()._snapshot(
                now, link, msgspec.structs.replace(frame, part=0, parts=1, digest=part)
            )
            link.heard.digest = frame.digest


class RemovesFirst(Broker):
    """Withdraws a subscription before it tells what that exposes."""

    class link_type(Link):  # noqa: N801
        def changes(self, now, incarnation, most_items):
            new, self.new = self.new, {}
            frames = super().changes(now, incarnation, most_items)
            self.new = new
            return frames + super().changes(now, incarnation, most_items)


class CountsEqualOnes(Broker):
    """Withdraws an item when the first of several equal subscriptions leaves."""

    class sources_type(Sources):  # noqa: N801
        def unsubscribed(self, given):
            given = list(given)
            names = [self._item_of[one] for one in given]
            super().unsubscribed(given)
            return [], [name for name in dict.fromkeys(names) if "" in self._by.get(name, ())]

        def subscribed(self, ids, wanted):
            come, go = super().subscribed(ids, wanted)
            return [one for one in come if "" not in self._by.get(one.item.name, ())], go


class OneGraph(Broker):
    """Judges what is told over all links in one strategy, whatever link it came over."""

    def __init__(self, *given, **options):
        self._graph = None
        super().__init__(*given, **options)

    def _choose_form(self, now, link, cells):
        if self._graph is None:
            options = Options("covering", None, None, 1, "scan")
            catalog = self._sources.wanted
            self._graph = strategy_of(self.space, options, catalog, same_cells=True)
            told = self._graph.change(self._sources.besides("*"), Batch(self.space, []))
            self._all = {item.name: item for item in told.added}
        if link.out is None:
            link.out = self._graph
            here = [one.item.name for one in self._sources.besides(link.name)]
            link.wanted = {name: self._all[name] for name in here if name in self._all}
            link.aim(now + self.settings.linger, self.settings.most_told)

    def _spread(self, now, source, change):
        come, go = self._sources.change(source, *change, ["*"])["*"]
        if self._graph is None:
            return
        told = self._graph.change(come, go)
        for item in told.added:
            self._all[item.name] = item
        for name in told.removed:
            del self._all[name]
        for link in self.links.values():
            if link.out is not None and link.name != source:
                here = {one.item.name for one in self._sources.besides(link.name)}
                added = [
                    one for one in told.added if one.name in here and one.name not in link.wanted
                ]
                removed = [name for name in told.removed if name in link.wanted]
                link.want(Change(added, removed), now + self.settings.linger)
                self._touched[link.name] = None


class ForgetsLinger(Broker):
    """Withdraws what lingers even if it is wanted again."""

    class link_type(Link):  # noqa: N801
        def want(self, change, until):
            leaving = dict(self.leaving)
            cancelled = super().want(change, until)
            self.leaving = leaving | self.leaving
            return cancelled


class ShedsInSilence(Broker):
    """Doesn't say what a link couldn't take."""

    def _shed(self, shed):
        pass


BROKEN = [NoStaging, RemovesFirst, CountsEqualOnes, OneGraph, ForgetsLinger, ShedsInSilence]
