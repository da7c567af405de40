"""Brokers with one mistake each, which the simulator must find: a test of the test."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from dataclasses import replace

import msgspec

from rangecast.overlay.broker import ports
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.interest.interest_set import Change, ReceivedItems
from rangecast.overlay.interest.items import Batch
from rangecast.overlay.interest.sources import Sources
from rangecast.overlay.interest.strategies import Options, strategy_of
from rangecast.overlay.simulation.run import simulate
from rangecast.overlay.wire.frames import EventsAck


class NoStaging(Broker):
    """Takes the first part of a snapshot for all of it."""

    def _snapshot(self, now, link, frame):
        part = sum(item.name for item in frame.items) & ((1 << 63) - 1)
        if (frame.incarnation, frame.version) >= (link.received.incarnation, link.received.version):
            super()._snapshot(
                now, link, msgspec.structs.replace(frame, part=0, parts=1, digest=part)
            )
            link.received.digest = frame.digest


class RemovesFirst(Broker):
    """Withdraws a subscription before it tells what that exposes."""

    class link_type(Link):  # noqa: N801
        def changes(self, *given):
            new, self.new = self.new, {}
            frames = super().changes(*given)
            self.new = new
            return frames + super().changes(*given)


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
            link.recompute_pending(now + self.settings.withdraw_delay, self.settings)

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
                link.want(Change(added, removed), now + self.settings.withdraw_delay)
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

    def _drop(self, dropped):
        pass


class KeepsOnResync(Broker):
    """Keeps what a neighbour doesn't want any more when it says all that it wants."""

    class link_type(Link):  # noqa: N801
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.received = _KeepingHeard(self.received.items.values())


class _KeepingHeard(ReceivedItems):
    def swap(self, frame, items):
        super().swap(frame, self.items | items)
        return []


class ForgetsCursors(Broker):
    """Takes it after a start that neighbours have all that is in its log."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        for link in self.links.values():
            link.scanned = self.log.end


class OffByOne(Broker):
    """Begins to read its log one place too late."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        between = self.log.between
        self.log.between = lambda begin, end: between(begin + 1, end)


class ComparesNoDigests(Broker):
    """Takes sets for the same if their versions are."""

    class link_type(Link):  # noqa: N801
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.received = _TrustingHeard(self.received.items.values())


class _TrustingHeard(ReceivedItems):
    def lacks(self, incarnation, version, digest):
        why = super().lacks(incarnation, version, digest)
        return "" if why == "digest" else why


class DeliversEarly(Broker):
    """Delivers what isn't on disk yet."""

    def handle(self, now, given):
        outputs = super().handle(now, given)
        for one in [*outputs]:
            if isinstance(one, ports.Append):
                matches = self._clients.matches(one.block.points_in(self.space))
                if len(matches):
                    outputs.append(ports.Deliver(one.at, one.block, matches))
        return outputs


class ConfirmsEarly(Broker):
    """Confirms what isn't on disk yet."""

    def _events(self, now, link, frame):
        super()._events(now, link, frame)
        if self._got.get(frame.origin, 0) >= frame.upto:
            self._send(link, EventsAck(kept={frame.origin: frame.upto}))


class KeepsSent(Broker):
    """Doesn't send again what was on its way when a link went down."""

    class link_type(Link):  # noqa: N801
        def rewind(self):
            sent = self.sent
            super().rewind()
            self.sent = sent


class KeepsTaken(Broker):
    """Takes it that a neighbour has what it once had, though its disk may be another one."""

    def _hello(self, now, link, frame):
        taken = dict(link.taken)
        super()._hello(now, link, frame)
        if link.name in self.links:
            link.taken = {
                one: max(taken.get(one, 0), link.taken.get(one, 0)) for one in taken | link.taken
            }
            link.sent = dict(link.taken)


class AnswersEarly(Broker):
    """Answers that it knows it though it lacks the version that was asked for."""

    def _propagation_asked(self, now, link, frame):
        asked = self._propagation.asked(frame.token, link.name, self.links.values())
        if asked is not None:
            self._query_propagation(asked)


class SendsEarly(Broker):
    """Sends what isn't on disk yet."""

    class link_type(Link):  # noqa: N801
        def scan(self, log, space, most, enough):
            durable, log.durable = log.durable, log.end
            super().scan(log, space, most, enough)
            log.durable = durable


class WantsNothing(Broker):
    """Takes it that neighbours want nothing until they are heard."""

    class link_type(Link):  # noqa: N801
        def __init__(self, name, table, *, is_expected):
            super().__init__(name, table, is_expected=False)


class ComparesNoHistories(Broker):
    """Doesn't see that a neighbour has events that its own log has lost."""

    def _compare_histories(self, link, frame):
        pass


class GivesNumbersTwice(Broker):
    """Goes on with the numbers of its disk, and rejects a neighbour only if it has higher ones."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options | {"numbers_from": 0})

    def _compare_histories(self, link, frame):
        pass

    def _wrong_with(self, link, frame):
        if frame.kept.get(self.name, 0) > self._number:
            return "history", "the log here has lost events"
        return super()._wrong_with(link, frame)


class SendsAgainAndAgain(Broker):
    """Sends everything again that isn't confirmed, to neighbours that don't read as well."""

    def _tick(self, now, given):
        settings = self.settings
        self.settings = replace(settings, is_reliable=False, silence_timeout=None)
        for link in self.links.values():
            link.last_frame_at = now
        super()._tick(now, given)
        self.settings = settings


class LetsNamesBeTaken(Broker):
    """Lets another broker take the place of a neighbour by its name alone."""

    def conflict(self, hello):
        return ""

    def _wrong_with(self, link, frame):
        link.log = ""
        return super()._wrong_with(link, frame)


class RejectsClocks(Broker):
    """Counts the Hellos of a neighbour whose clock went back, and says nothing."""

    def _hello(self, now, link, frame):
        if frame.incarnation >= link.peer:
            super()._hello(now, link, frame)


class HoldsAllParts(Broker):
    """Holds parts of a snapshot, whatever their number."""

    def _snapshot(self, now, link, frame):
        link.received._parts[frame.part] = frame.items
        super()._snapshot(now, link, frame)


BROKEN = {
    NoStaging: 5,
    RemovesFirst: 109,
    CountsEqualOnes: 4,
    OneGraph: 0,
    ForgetsLinger: 0,
    ShedsInSilence: 8,
    KeepsOnResync: 0,
    ForgetsCursors: 6,
    OffByOne: 1,
    ComparesNoDigests: 3,
    DeliversEarly: 0,
    ConfirmsEarly: 38,
    KeepsSent: 1,
    KeepsTaken: 6,
    AnswersEarly: 52,
    SendsEarly: 0,
    WantsNothing: 36,
    ComparesNoHistories: 131,
    GivesNumbersTwice: 101,
    SendsAgainAndAgain: 3,
    LetsNamesBeTaken: 75,
    RejectsClocks: 193,
    HoldsAllParts: 41,
}
"""All of them, and a seed that finds each."""
SEEDS = 200
"""Within which each has to be found."""


def found(broken, seed):
    """Return what of a mistake a seed shows, if that is a promise that is broken: an exception
    wouldn't count.
    """
    return [one for one in simulate(seed, broken).wrong if re.match(r"[SLB]\d: ", one)]


def main():
    """Show how many seeds find each mistake, and the first."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.broken_brokers", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", action="store_true", help="stop at the first seed of each")
    given = parser.parse_args()
    missed = 0
    for broken in BROKEN:
        seeds = (seed for seed in range(given.seeds) if found(broken, seed))
        some = list(itertools.islice(seeds, 1 if given.first else None))
        missed += not some
        first = f"first: {some[0]:3}" if some else "NOT FOUND"
        print(f"{broken.__name__:22} {len(some):4} of {given.seeds} seeds, {first}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
