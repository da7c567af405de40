"""Publish/subscribe in PostgreSQL: a table of subscriptions with a GiST index, one of events.

Sent by `psql`, which waits for each answer before the next command.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.postgres import Server, Session
from benchmarks.server_load import (
    BODIES_ANSWERED,
    BODY,
    BULK,
    EDITS,
    EDITS_IN_BULK,
    NAMES,
    SINGLES,
    Load,
    Theirs,
)
from rangecast.kernels.arrays import F64


def postgres(folder: Path, boxes: Load, quick: bool) -> list[Theirs]:
    """Measure it."""
    del folder  # it has one of its own
    with ExitStack() as ending:
        server = Server(fsync="on", synchronous_commit="on")
        ending.callback(server.stop)

        def opened() -> Session:
            session = ending.enter_context(closing(server.session()))
            session.run(*_prepared())
            return session

        server.run(*_tables())
        sessions = [opened() for _ in range(64)]
        return _measured(sessions, boxes, quick=quick)


def _tables() -> list[str]:
    columns = ", ".join(f"{name} float8" for name in NAMES)
    return [
        "create table subscriptions (id text primary key, box cube not null)",
        "create index on subscriptions using gist (box)",
        f"create table events (id bigint generated always as identity primary key, {columns})",
    ]


def _prepared() -> list[str]:
    """Return statements that many values, or the ends of many boxes, are given to as arrays."""
    axes = range(len(NAMES))
    arrays = ", ".join("float8[]" for _ in axes)
    values = ", ".join(f"${axis + 1}" for axis in axes)
    ends = ", ".join(f"${axis + 2}" for axis in range(2 * len(axes)))
    low, high = (", ".join(f"{end}{axis}" for axis in axes) for end in ("lo", "hi"))
    names = ", ".join(NAMES)
    edit = (
        f"prepare edit(text[], {arrays}, {arrays}) as insert into subscriptions "
        f"select id, cube(array[{low}], array[{high}]) "
        f"from unnest($1, {ends}) as given (id, {low}, {high}) "
        "on conflict (id) do update set box = excluded.box"
    )
    publish = (
        f"prepare publish({arrays}) as with new as "
        f"(insert into events ({names}) select * from unnest({values}) returning *) "
        "select new.id, subscriptions.id from new join subscriptions "
        f"on box @> cube(array[{names}])"
    )
    return [edit, publish]


def _array(values: list[float] | list[str]) -> str:
    return "'{" + ",".join(map(str, values)) + "}'"


def _edit(ids: list[str], low: F64, high: F64) -> str:
    ends = ", ".join(_array(one.tolist()) for one in (*low.T, *high.T))
    return f"execute edit({_array(ids)}, {ends})"


def _publish(points: F64) -> str:
    return f"execute publish({', '.join(_array(one.tolist()) for one in points.T)})"


def _measured(sessions: list[Session], boxes: Load, *, quick: bool) -> list[Theirs]:
    first, ids = sessions[0], boxes.ids
    edits = [
        _edit(ids[at : at + BULK], boxes.lo[at : at + BULK], boxes.hi[at : at + BULK])
        for at in range(0, len(ids), BULK)
    ]
    began = time.perf_counter()
    for edit in edits:
        first.run(edit)
    bulk = len(ids) / (time.perf_counter() - began)
    first.run("analyze subscriptions")
    _check(first, boxes)
    count = 2 if quick else 10
    bodies = [_publish(boxes.points[at : at + BODY]) for at in range(0, len(boxes.points), BODY)]

    def publish(place: int, session: Session) -> None:
        for turn in range(count):
            session.run(bodies[(place + 4 * turn) % len(bodies)])

    turns = 5 if quick else 100
    singles = [_publish(point[None]) for point in boxes.points[:turns]]

    def publish_singles(_: int, session: Session) -> None:
        session.run(*singles)

    def edit_singles(place: int, session: Session) -> None:
        low, high = boxes.lo[:1], boxes.hi[:1]
        session.run(*(_edit([f"e{place}-{turn}"], low, high) for turn in range(turns)))

    return [
        Theirs("inserts in bulk", EDITS_IN_BULK, bulk),
        Theirs(
            "events in bodies of 1,000",
            BODIES_ANSWERED,
            4 * count * BODY / _seconds(sessions[:4], publish),
        ),
        Theirs(
            "one event per statement, 64 connections",
            SINGLES,
            len(sessions) * turns / _seconds(sessions, publish_singles),
        ),
        Theirs(
            "inserts one by one, 64 connections",
            EDITS,
            len(sessions) * turns / _seconds(sessions, edit_singles),
        ),
    ]


def _seconds(sessions: list[Session], work: Callable[[int, Session], None]) -> float:
    """Return how long all sessions together take."""
    with ThreadPoolExecutor(len(sessions)) as pool:
        began = time.perf_counter()
        list(pool.map(work, range(len(sessions)), sessions))
        return time.perf_counter() - began


def _check(session: Session, boxes: Load) -> None:
    """Compare the ids of some events."""
    found = defaultdict[str, list[str]](list)
    for line in session.run(_publish(boxes.points[:50])):
        event, subscription = line.split("|")
        found[event].append(subscription)
    boxes.check("PostgreSQL", [found[str(event)] for event in range(1, 51)])
