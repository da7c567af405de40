"""`rangecast precompile`: compile kernels ahead, so that the first answer doesn't wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.options import Quiet

if TYPE_CHECKING:
    from rangecast.notify import Board
    from rangecast.workloads.base import Workload

_SUBSCRIPTIONS, _EVENTS = 3_000, 600
"""Enough data for every structure, for single events and for batches."""


class Verb(StrEnum):
    """Verbs that have kernels."""

    MATCH = "match"
    RANK = "rank"
    COVER = "cover"
    MERGE = "merge"
    NOTIFY = "notify"
    TRACK = "track"


_LONGEST_FIRST = (Verb.NOTIFY, Verb.MATCH, Verb.TRACK, Verb.COVER, Verb.MERGE, Verb.RANK)


def precompile(
    verbs: Annotated[
        list[Verb] | None,
        typer.Argument(metavar="[VERB]...", help="Verbs to compile for (default: all)."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=0, help="Number of processes; 0: one per core.")
    ] = 0,
    quiet: Quiet = False,
) -> None:
    """Compile the kernels of some verbs and cache them on disk.

    Without it, the first call of each command compiles the kernels that it needs. Run it when you
    build an image or set up a host. The kernels are kept in the user's cache folder
    (XDG_CACHE_HOME, or ~/.cache).

    \b
    Examples:
      rangecast precompile
      rangecast precompile match rank
    """
    import gc
    import multiprocessing
    import os
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from rangecast.cli.shared.output import console
    from rangecast.errors import UsageError
    from rangecast.kernels.jit import cache_folder

    folder = cache_folder()
    if folder is None:
        raise UsageError(
            "compiled kernels can't be cached: there is no folder that only you can write to\n"
            "  hint: set XDG_CACHE_HOME to one"
        )
    wanted = list(dict.fromkeys(verbs or Verb))
    most = min(processes or os.cpu_count() or 1, len(wanted))

    def say(text: str) -> None:
        if not quiet:
            console.print(text, highlight=False)

    def finished() -> Iterator[tuple[Verb, float]]:
        if most == 1:
            yield from ((verb, compile_for(verb)) for verb in wanted)
            return
        # Fresh processes: a fork of one whose libraries have threads may hang.
        # Compiling leaves little garbage: looking for it takes a fifteenth of the time.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(most, spawn, initializer=gc.disable) as pool:
            # Those that take longest begin first, so that all end together.
            order = sorted(wanted, key=_LONGEST_FIRST.index)
            waiting = {pool.submit(compile_for, verb): verb for verb in order}
            yield from ((waiting[done], done.result()) for done in as_completed(waiting))

    for verb, seconds in finished():
        say(f"{verb}: {seconds:.1f} s of compiling")
    say(f"compiled kernels are cached in {folder}")


def compile_for(verb: Verb) -> float:
    """Run a verb on a small example; return the seconds spent compiling."""
    from rangecast.kernels.jit import timing_compilation
    from rangecast.workloads import generate

    made = generate("market", seed=0, subscriptions=_SUBSCRIPTIONS, events=_EVENTS)
    with timing_compilation(lambda: None) as compiled:
        _EXAMPLES[verb](made)
    return compiled.seconds


def _match(made: Workload) -> None:
    """Run every structure that `auto` chooses, fresh and edited, on batches and single events."""
    from rangecast.engine import Engine
    from rangecast.match.answerer import MatchAnswerer
    from rangecast.model.answers.answerer import warm as answer
    from rangecast.model.filters.many import read_texts

    boxes, points = made.boxes, made.points
    for index in ("rtree", "cells", "tiles", "values", "slabs"):
        engine = Engine(made.space, index=index)
        engine.subscribe_many(boxes)
        for _ in range(2):
            engine.match_points(points)
            engine.match_points(points[:1])[0]
            engine.boxes()
            edited = boxes.take(range(2))
            engine.unsubscribe_many(edited.ids.to_pylist())
            engine.subscribe_many(edited)
    answer(MatchAnswerer.of(boxes), boxes.dimensions)
    read_texts(["true"], made.space)
    _match_texts()


def _match_texts() -> None:
    """Select by terms in batches and, once these have seen enough, with single events."""
    from rangecast.engine import Engine
    from rangecast.model.attributes.base import Number
    from rangecast.model.attributes.patterns import Text
    from rangecast.model.space import Space

    engine = Engine(Space([Text("title"), Number("price")]))
    filters = [f"words(title) has all ('red', 'n{n}') and price > {n}" for n in range(_EVENTS)]
    engine.subscribe_many({"id": list(range(_EVENTS)), "filter": filters})
    events = {"title": [f"a red n{n}" for n in range(_EVENTS)], "price": [9.0] * _EVENTS}
    single = {"title": "a red n1", "price": 2.0}
    engine.match(single)
    for _ in range(70):
        engine.match_many(events)
    engine.match(single)
    engine.match({"title": "é"})  # texts of ASCII have a kernel of their own
    engine.unsubscribe(1)
    engine.subscribe(1, filters[1])
    engine.match(single)
    engine.match_many(events)


def _rank(made: Workload) -> None:
    from rangecast.engine import Engine
    from rangecast.model.answers.answerer import warm as answer
    from rangecast.rank.answerer import RankAnswerer

    boxes = made.boxes
    answer(RankAnswerer.of(boxes), boxes.dimensions)
    engine = Engine(made.space)
    engine.subscribe_many(boxes)
    for edited in (
        0,
        2,
        boxes.rows // 5,
    ):  # by the first part, by the newest rows, by a second part
        removed = boxes.take(range(edited))
        engine.unsubscribe_many(removed.ids.to_pylist())
        engine.subscribe_many(removed)
        for relaxed in (False, True):
            for points in (made.points, made.points[:1]):
                engine.rank_points(points, 3, relaxed=relaxed)


def _cover(made: Workload) -> None:
    from rangecast.cover import CoverSet
    from rangecast.cover.batch import covered_by

    covered_by(made.boxes)
    live = CoverSet(made.space)
    live.subscribe_many(made.boxes)
    edited = made.boxes.take(range(2))
    live.unsubscribe_many(edited.ids.to_pylist())
    live.subscribe_many(edited)


def _merge(made: Workload) -> None:
    from rangecast.merge import Summary, tuning

    tuning.recommend(made.boxes, made.space, 100).summary.ranges()
    summary = Summary(made.space)
    summary.subscribe_many(made.boxes)
    removed = made.boxes.take(range(2))
    summary.unsubscribe_many(removed.ids.to_pylist())
    summary.may_match_many(made.tables["events"])


def _notify(_made: Workload) -> None:
    """Run boards over a line, with both algorithms, and over spaces with all kinds of interests."""
    import numpy as np

    from rangecast.model.attributes.base import Number
    from rangecast.model.attributes.places import Point
    from rangecast.model.attributes.residuals import Arithmetic
    from rangecast.model.space import Space
    from rangecast.notify import Board

    at = np.arange(100.0)
    objects = {"id": at.astype(np.int64), "position": at, "value": at}
    interests = {"id": objects["id"], "position_lo": at, "position_hi": at + 10}
    for algorithm in ("dense", "sparse"):
        board = Board(3, objects=objects, interests=interests, algorithm=algorithm)
        board.subscribe(200, 7.0, 9.0)
        _change(board, 7.5, {"position": 7.5})
    space = Space([Number("a"), Number("b")])
    objects = {"id": objects["id"], "a": at, "b": at[::-1], "value": at}
    position = {"a": 7.5, "b": 60.5}
    for attribute in (None, "b"):
        board = Board(3, space=space, upper_bound_attribute=attribute, objects=objects)
        for number in range(20):
            board.subscribe(number, f"a between {number} and {number + 30} and b <= 150")
        _change(board, position, position)
    board = Board(3, space=Space([*space, Point("place", x="a", y="b"), Arithmetic("sums")]))
    board.update_batch([(n, n, {"a": float(n), "b": 99.0 - n}) for n in range(100)])
    for number in range(20):
        board.subscribe(number, f"within(place, circle({number}, 90, 30)) and a + b > 0")
    _change(board, position, position)


def _change(board: Board, position: float | dict[str, float], columns: dict[str, float]) -> None:
    """Apply every kind of change to a board."""
    board.set_value(5, 0.5)
    board.add(200, position, 0.25)
    board.move(6, position)
    board.remove(7)
    rows: list[dict[str, float]] = [
        {"id": object_id, "value": (7 * object_id) % 40} for object_id in range(10, 29)
    ]
    board.update_batch([*rows, {"id": 40, **columns, "value": 1.5}])
    board.unsubscribe(3)
    board.lists()


def _track(_made: Workload) -> None:
    """Track events one by one and in batches, with every rule, edits, timers and paths."""
    from rangecast.engine import Engine
    from rangecast.model.attributes.base import Number
    from rangecast.model.attributes.places import Location, Point
    from rangecast.model.attributes.timestamps import Timestamp
    from rangecast.model.space import Space
    from rangecast.track.rules import Rule
    from rangecast.track.tracker import Tracker

    space = Space([Timestamp("at", epoch="s"), Location("place"), Point("point"), Number("speed")])
    shapes = (
        "within(place, circle(5, 5, 1 km))",
        "within(place, 'POLYGON ((4 4, 6 4, 6 6, 4 4))')",
        "within(place, buffer('LINESTRING (4 5, 6 5)', 1 km))",
        "within(point, 'POLYGON ((4 4, 6 4, 6 6, 4 4))')",
        "within(point, 'POLYGON ((0 0, 9 0, 9 9, 0 0), (4 2, 6 2, 6 3, 4 2))')",
        "distance(point, point(5, 5)) < 1 and speed < 50",
    )
    rules = (
        Rule(for_="1 s", dwell="2 s"),
        Rule(cross="1 min", margin={"speed": 1}),
    )
    for lateness, rule in (("1 s", rules[0]), (None, rules[1])):
        engine = Engine(space)
        for number, text in enumerate(shapes):
            engine.subscribe(number, text)
        followed = Tracker(
            engine,
            key="key",
            time="at",
            rule=rule,
            after="1 h",
            lateness=lateness,
            accuracy={"place": "error"} if lateness else None,
        )
        for at in range(12):
            where = {"longitude": at, "latitude": at, "x": at, "y": at, "speed": at}
            event = {"key": f"{at % 3}", "at": at, **where}
            followed.update(event | ({"error": 100} if lateness else {}))
        for at, x in ((20, 3), (21, 7)):  # across all shapes
            across = {"longitude": x, "latitude": 4.5, "x": x, "y": 4.5, "speed": 1}
            followed.update({"key": "fast", "at": at, **across})
        engine.unsubscribe(0)
        followed.advance("1970-01-02")
    plain = Tracker(engine, key="key", time="at")
    plain.update({"key": "a", "at": 1, "speed": 1})


_EXAMPLES: dict[Verb, Callable[[Workload], None]] = {
    Verb.MATCH: _match,
    Verb.RANK: _rank,
    Verb.COVER: _cover,
    Verb.MERGE: _merge,
    Verb.NOTIFY: _notify,
    Verb.TRACK: _track,
}
