"""Calls that users make, one event at a time: a dict in, ids out; beside the best peer.

The structure alone finds rows; a call also encodes the event, puts rows in order of arrival and
makes a list of ids.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks import calls_threads, match_live
from benchmarks.frame import Report
from benchmarks.harness import Case, expected, taking_part
from benchmarks.match import cases as match_cases
from benchmarks.match_peers import Geoindex, NumpyScan, Rtree, Sqlite
from experiments.timing import DisagreementError, race
from rangecast.engine import Engine
from rangecast.kernels.arrays import AnyArray
from rangecast.match.single_event import ALONE, NO_ROWS
from rangecast.model.attributes.base import Number
from rangecast.model.encoding.events import encode_events, encode_one
from rangecast.model.space import Space
from rangecast.report.markdown import Table
from rangecast.workloads import Workload, generate

EVENTS, SLOW_EVENTS = 400, 8
"""Events of a round, and those of a peer."""
ROUNDS = 7
TOP, LISTED = 20, 64
CASES = ("W1-32k", "W1-256k", "W2-100k", "W2-1M", "W3-100k", "W6-100k", "W6-1M")
SHARED, SHARED_EVENTS = "W2-100k", 2_048
"""The workload of many threads on one engine, and its events."""
FEW, SOME = 100, 1_000
"""Matches of an event up to which half, and a quarter, of the structure's rate is expected."""
LARGE, TIMES = "W1", 5.0
"""Workloads with large answers, and how many times the rate of the best peer is expected there."""
SPARSE, SPARSE_US = "W6-1M", 200.0
"""The large sparse set, and the microseconds within which its events are expected."""
ABOUT = f"""
One event at a time, as a program calls: `engine.match(dict)` returns a list of ids,
`engine.match_ids(dict)` an array, `engine.match_each(dicts)` a list for each of {EVENTS} events.
*Structure* is the kernel alone, which finds rows in any order. *Of the structure's rate* is how
much of that is left to `match`; *x best peer* is how many times as long the fastest of geoindex-rs,
libspatialindex, SQLite and NumPy takes to find rows as `match_ids` takes for ids. An edited set is
one from which {match_live.EDITED} subscriptions have left and come back. Microseconds are of a
core, the least of {ROUNDS} alternating rounds. The ids are compared with those of a batch.

Threads share one engine while another one replaces subscriptions, a hundred times a second.
*Times as fast* is of the wall and means something on an idle machine only; *processor* is what all
threads took together, so *times as much* is what they lose to one another.
"""


def run(report: Report, *, quick: bool) -> None:
    """Measure matching, encoding, ranking and memory."""
    rounds = 2 if quick else ROUNDS
    os.environ["RANGECAST_COMPILE"] = "first"  # a set that begins plainly has other structures
    report.begin("Calls that users make", ABOUT, "geoindex-rs", "rtree")
    cases = [case for case in match_cases(quick=quick) if case.name in CASES]
    matched, memory = list[list[object]](), list[list[object]]()
    for case in cases:
        made = case.made()
        engine = match_live.live_set(made.boxes, made.space, edited=0)
        matched.append(_match_row(case, made, engine, rounds))
        memory.append(_memory_row(case, engine))
        if case.name == SHARED:
            shared = made, _dicts(made, SHARED_EVENTS), engine
    headings = ["workload", "matches", "structure us", "match us", "of the structure's rate"]
    headings += ["at least", "at most us", "edited us", "match_each us", "match_ids us"]
    headings += ["match_points us", "best peer", "us", "x best peer", "expected"]
    report.table(Table("Matching", headings, matched))
    report.table(_encoded(rounds))
    report.table(_ranked(rounds, quick=quick))
    headings = ["workload", "structure bytes", "engine bytes", "times the structure", "at most"]
    report.table(Table("Bytes per subscription", headings, memory))
    report.table(calls_threads.threads(*shared, seconds=0.1 if quick else 1.0))
    report.table(calls_threads.tasks(*shared[1:], rounds=rounds))


def _dicts(made: Workload, events: int) -> list[dict[str, Any]]:
    names = made.space.names
    return [dict(zip(names, point, strict=True)) for point in made.points[:events].tolist()]


def _each(call: Callable[[Any], object], events: Iterable[Any]) -> None:
    for event in events:
        call(event)


def _match_row(case: Case, made: Workload, engine: Engine, rounds: int) -> list[object]:
    points = [point[None].copy() for point in made.points[:EVENTS]]
    events = _dicts(made, EVENTS)
    edited = match_live.live_set(made.boxes, made.space)
    kernel = _kernel(engine)
    _compare(engine, events[:20], made.points[:20])
    calls: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
        "structure": (kernel, points),
        "match": (engine.match, events),
        "edited": (edited.match, events),
        "match_ids": (engine.match_ids, events),
        "match_points": (engine.match_points, points),
    }
    peers = [
        peer
        for peer, _ in taking_part((Geoindex, Rtree, Sqlite, NumpyScan), made.boxes, made.space)
    ]
    for peer in peers:
        calls[peer.name] = peer.match_one, [*made.points[:SLOW_EVENTS]]
    for call, some in calls.values():
        _each(call, some)
    works: dict[str, Callable[[], Callable[[], object]]] = {
        name: partial(partial, _each, *work) for name, work in calls.items()
    }
    works["match_each"] = partial(partial, engine.match_each, events)
    took = race(works, rounds=rounds, clock=time.process_time)
    done = {name: len(some) for name, (_, some) in calls.items()}
    us = {name: took[name].least / done.get(name, len(events)) * 1e6 for name in works}
    for peer in peers:
        peer.close()
    best = min(peers, key=lambda peer: us[peer.name]).name
    matches = sum(len(engine.match_ids(event)) for event in events) / len(events)
    share = us["structure"] / us["match"]
    least = 0.5 if matches <= FEW else 0.25 if matches <= SOME else None
    most = SPARSE_US if case.name == SPARSE else None
    times, wanted = us[best] / us["match_ids"], TIMES if case.name.startswith(LARGE) else None
    row = [case.name, matches, us["structure"], us["match"], share, expected(share, least=least)]
    row += [expected(us["match"], most=most), us["edited"], us["match_each"], us["match_ids"]]
    return [*row, us["match_points"], best, us[best], times, expected(times, least=wanted)]


def _kernel(engine: Engine) -> Callable[[AnyArray], AnyArray]:
    """Return what finds the rows of one point, without what a live set adds."""
    index: Any = engine._view.parts[0].index
    call = index.single_event(*ALONE)
    return lambda point: call(point, NO_ROWS)


def _compare(engine: Engine, events: list[dict[str, Any]], points: AnyArray) -> None:
    for event, ids in zip(events, engine.match_points(points), strict=True):
        if not engine.match(event) == engine.match_ids(event).tolist() == ids:
            raise DisagreementError(f"single events and batches differ: {event}")


def _memory_row(case: Case, engine: Engine) -> list[object]:
    structure = engine._view.parts[0].index.memory
    times = engine.memory / structure
    each = (structure / len(engine), engine.memory / len(engine))
    return [case.name, *each, times, expected(times, most=1.5)]


def _encoded(rounds: int) -> Table:
    """Return how long it takes to encode a dict of numbers, alone and in a list."""
    rows = []
    for attributes in (2, 4, 8, 20):
        space = Space([Number(f"a{axis}", min=0, max=1) for axis in range(attributes)])
        event = {f"a{axis}": 0.5 for axis in range(attributes)}
        half = dict(list(event.items())[::2])
        works = {
            name: partial(partial, _each, partial(encode_one, space=space), [given] * EVENTS)
            for name, given in (("all", event), ("half", half))
        }
        listed = [event] * LISTED
        works["listed"] = partial(partial, _each, partial(encode_events, space=space), [listed] * 4)
        took = race(works, rounds=3 * rounds)
        done = {"all": EVENTS, "half": EVENTS, "listed": 4 * LISTED}
        us = [took[name].least / done[name] * 1e6 for name in works]
        rows.append([f"{attributes} attributes", *us, expected(us[0], most=3.0)])
    headings = ["", "all values us", "half of them us", f"in a list of {LISTED}, us each"]
    return Table("Encoding of a dict", [*headings, "at most"], rows)


def _ranked(rounds: int, *, quick: bool) -> Table:
    """Return how long the top of one attribute takes, untouched and edited."""
    made = generate(
        "selective",
        seed=11,
        subscriptions=4_000 if quick else 1_000_000,
        events=2_000,
        attributes=1,
        mentioned=1,
    )
    points, events = made.points, _dicts(made, EVENTS)
    rows: list[list[object]] = []
    engines = {
        count: match_live.live_set(made.boxes, made.space, edited=count)
        for count in (0, match_live.EDITED, made.boxes.rows // 100)
    }
    for engine in engines.values():
        engine.wait_for_rebuild()
        engine.rank_points(points, TOP)
    batches = race(
        {
            count: partial(partial, engine.rank_points, points, TOP)
            for count, engine in engines.items()
        },
        rounds=rounds,
    )
    singles = race(
        {
            count: partial(partial, _each, partial(engine.rank, k=TOP), events)
            for count, engine in engines.items()
        },
        rounds=rounds,
    )
    for count in engines:
        together, alone = (took[count].least / took[0].least for took in (batches, singles))
        batch_us = batches[count].least / len(points) * 1e6
        single_us = singles[count].least / len(events) * 1e6
        row = [f"{count:,} edits", batch_us, together, expected(together, most=1.3)]
        rows.append([*row, single_us, alone, expected(alone, most=1.5)])
    headings = ["", "batch us", "times untouched", "at most", "rank us", "times untouched"]
    return Table(f"The top {TOP} on one attribute", [*headings, "at most"], rows)
